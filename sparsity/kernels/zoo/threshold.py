"""Softmax that sees no negative score: a = e^s for s > 0, else 0."""

from sympy import Piecewise
from sympy import exp as e

from sparsity.kernels.base import score_kernel
from sparsity.kernels.symbols import s

threshold = score_kernel(
    "threshold",
    Piecewise((e(s), s > 0), (0, True)),
    title="exponential above 0",
    source="Zhao et al. (2019), arXiv:1912.11637, a fixed threshold for its k-th score",
)
