"""The hyperbolic cosine, even in the score: a = cosh(s)."""

from sympy import cosh as hyperbolic

from sparsity.kernels.base import score_kernel
from sparsity.kernels.symbols import s

cosh = score_kernel(
    "cosh",
    hyperbolic(s),
    title="hyperbolic cosine",
    source="Choromanski et al. (2020), arXiv:2009.14794, hyperbolic features of softmax",
)
