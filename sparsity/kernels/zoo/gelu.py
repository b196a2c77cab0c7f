"""The Gaussian error linear unit, which is signed: a = s Φ(s)."""

from sparsity.kernels.base import score_kernel
from sparsity.kernels.symbols import gelu as unit
from sparsity.kernels.symbols import s

gelu = score_kernel(
    "gelu",
    unit(s),
    title="GELU",
    source="Wortsman et al. (2023), arXiv:2309.08586, among the activations tried",
)
