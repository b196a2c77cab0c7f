"""Softplus: a = log(1 + e^s)."""

from sparsity.kernels.base import score_kernel
from sparsity.kernels.symbols import s
from sparsity.kernels.symbols import softplus as function

softplus = score_kernel(
    "softplus",
    function(s),
    title="softplus",
    source="Wortsman et al. (2023), arXiv:2309.08586, among the activations tried",
)
