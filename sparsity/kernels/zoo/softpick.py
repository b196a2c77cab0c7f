"""The numerator of softpick: a = max(e^s − 1, 0).

Softpick divides by Σ|e^s − 1|, so that negative scores take mass and give none. S and n_eff compare
the weights with one another, and do not see the denominator. The share of the mass that is kept is
m₁/E|e^s − 1|, at β = 0 m₁/[e^(γ²/2)(2Φ(γ) − 1)]: see the claim `softpick-mass`.
"""

from sympy import Max
from sympy import exp as e

from sparsity.kernels.base import score_kernel
from sparsity.kernels.symbols import s

softpick = score_kernel(
    "softpick",
    Max(e(s) - 1, 0),
    title="softpick's numerator",
    source="Zuhri et al. (2025), arXiv:2504.20966",
)
