"""The sigmoid linear unit, which is signed: a = s/(1 + e^(−s))."""

from sparsity.kernels.base import score_kernel
from sparsity.kernels.symbols import s
from sparsity.kernels.symbols import silu as unit

silu = score_kernel(
    "silu",
    unit(s),
    title="SiLU",
    source="Zhai et al. (2024), arXiv:2402.17152, pointwise attention of HSTU",
)
