"""Nonnegative linear attention: a = q̃ᵀk̃ with q̃ = g(q) ≥ 0 and k̃ = h(k) ≥ 0."""

from sympy import Sum

from sparsity.kernels.base import Kernel, Law
from sparsity.kernels.parameters import DIM, QUERY, RATIO
from sparsity.kernels.symbols import d, i, k, q

# Only the mean and the covariance of the features k̃ enter S: no Gaussian assumption.
nonnegative = Kernel(
    name="nonnegative",
    title="nonnegative linear",
    law=Law.FEATURES,
    weight=Sum(q[i] * k[i], (i, 1, d)),
    parameters=(RATIO, DIM, QUERY),
    source="Su (2023), kexue.fm/archives/9889, linear attention with nonnegative features",
)
