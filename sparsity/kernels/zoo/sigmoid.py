"""Sigmoid attention: a = 1/(1 + e^(−s)).

Its bias b is part of β. The usual one is −ln n, the step `LengthBias(-1)`.
"""

from sparsity.kernels.base import score_kernel
from sparsity.kernels.symbols import s
from sparsity.kernels.symbols import sigmoid as logistic

sigmoid = score_kernel(
    "sigmoid",
    logistic(s),
    title="sigmoid",
    source="Ramapuram et al. (2024), arXiv:2409.04431, sigmoid attention",
)
