"""The modulus of linear attention: a = |s|. S is that of the identity, which takes |a|."""

from sympy import Abs

from sparsity.kernels.base import score_kernel
from sparsity.kernels.symbols import s

absolute = score_kernel(
    "abs",
    Abs(s),
    title="absolute value",
    source="Su (2023), kexue.fm/archives/9889, linear attention without activation, its modulus",
)
