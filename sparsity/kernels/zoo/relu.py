"""Powers of ReLU: a = max(s, 0)^p. Their S depends on z = β/γ alone."""

from sparsity.kernels.base import score_kernel
from sparsity.kernels.symbols import relu as rectified
from sparsity.kernels.symbols import s

relu = score_kernel(
    "relu",
    rectified(s),
    title="ReLU",
    source="Wortsman et al. (2023), arXiv:2309.08586, ReLU attention",
)
relu3 = score_kernel(
    "relu3",
    rectified(s) ** 3,
    title="cubed ReLU",
    source="Wortsman et al. (2023), arXiv:2309.08586, has the powers 1 and 2; this is the next",
)
