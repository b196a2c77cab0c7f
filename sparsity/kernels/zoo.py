"""Elementwise kernels, a short record each: those of the article, and the zoo beside them.

Every instrument takes one by its name. The reference grid, the figures and the report show those of
the article only: Su (2023), kexue.fm/archives/9889.
"""

from __future__ import annotations

import sympy
from sympy import Abs, Add, Max, Piecewise, Sum, factorial
from sympy import exp as e

from sparsity.checks import check_whole
from sparsity.errors import InputError
from sparsity.kernels import symbols
from sparsity.kernels.base import Kernel, Law, score_kernel
from sparsity.kernels.parameters import DECAY, DIM, LENGTH, QUERY, RATIO
from sparsity.kernels.symbols import d, decay, i, j, k, n, q, s

# Softmax before normalisation. S does not depend on β: a factor e^β cancels.
exp = score_kernel(
    "exp",
    sympy.exp(s),
    title="softmax",
    source="Su (2023), kexue.fm/archives/9889, standard attention",
)

relu2 = score_kernel(
    "relu2",
    Max(s, 0) ** 2,
    title="squared ReLU",
    source="Su (2023), kexue.fm/archives/9889, the gated attention unit's relu²",
)

identity = score_kernel(
    "identity",
    s,
    title="signed linear",
    source="Su (2023), kexue.fm/archives/9889, linear attention without activation",
)

# q̃ᵀk̃ with q̃ = g(q) ≥ 0 and k̃ = h(k) ≥ 0. Only the mean and the covariance of the features k̃
# enter S: no Gaussian assumption.
nonnegative = Kernel(
    name="nonnegative",
    title="nonnegative linear",
    law=Law.FEATURES,
    weight=Sum(q[i] * k[i], (i, 1, d)),
    parameters=(RATIO, DIM, QUERY),
    source="Su (2023), kexue.fm/archives/9889, linear attention with nonnegative features",
)

# Pure decay, the skeleton of retention.
decayed = Kernel(
    name="decayed",
    title="exponential decay",
    law=Law.POSITION,
    weight=decay ** (n - j),
    parameters=(DECAY, LENGTH),
    source="Su (2023), kexue.fm/archives/9889, linear attention with decay",
)


_LARGEST = 64  # exponent, as in a formula that is typed

# Powers of ReLU, max(s, 0)^p: their S depends on z = β/γ alone.
relu = score_kernel(
    "relu",
    symbols.relu(s),
    title="ReLU",
    source="Wortsman et al. (2023), arXiv:2309.08586, ReLU attention",
)
relu3 = score_kernel(
    "relu3",
    symbols.relu(s) ** 3,
    title="cubed ReLU",
    source="Wortsman et al. (2023), arXiv:2309.08586, has the powers 1 and 2; this is the next",
)


def power(degree: int) -> Kernel:
    """The weight s^p of an even degree p. At β = 0, S² = Γ((p+1)/2)²/(√π Γ(p+½)), whatever γ.

    Raises:
        InputError: a degree that is not whole, even and ≥ 2.
    """
    degree = check_whole("degree", degree, 2, _LARGEST)
    if degree % 2:
        raise InputError("degree", degree, "must be even")
    return score_kernel(
        f"power{degree}",
        s**degree,
        title=f"power of degree {degree}",
        source="Kacham et al. (2023), arXiv:2310.01655, polynomial attention",
    )


power2, power4 = power(2), power(4)

# S is that of the identity, which takes |a|.
absolute = score_kernel(
    "abs",
    Abs(s),
    title="absolute value",
    source="Su (2023), kexue.fm/archives/9889, linear attention without activation, its modulus",
)

cosh = score_kernel(
    "cosh",
    sympy.cosh(s),
    title="hyperbolic cosine",
    source="Choromanski et al. (2020), arXiv:2009.14794, hyperbolic features of softmax",
)


def taylor(degree: int, source: str = "Taylor series of e^s") -> Kernel:
    """The weight Σ_(r≤p) s^r/r! of Taylor features of degree p, positive for even p."""
    degree = check_whole("degree", degree, 1, _LARGEST)
    weight = Add(*(s**r / factorial(r) for r in range(degree + 1)))
    return score_kernel(
        f"taylor{degree}", weight, title=f"Taylor of degree {degree}", source=source
    )


taylor2 = taylor(2, "Arora et al. (2024), arXiv:2402.18668, second-order Taylor features")
taylor4 = taylor(4, "Keles et al. (2022), arXiv:2209.04881, Taylor series of any degree")

threshold = score_kernel(
    "threshold",
    Piecewise((e(s), s > 0), (0, True)),
    title="exponential above 0",
    source="Zhao et al. (2019), arXiv:1912.11637, a fixed threshold for its k-th score",
)

# Softpick divides by Σ|e^s − 1|, so that negative scores take mass and give none. S and n_eff
# compare the weights with one another, and do not see the denominator. The share of the mass that
# is kept is m₁/E|e^s − 1|, at β = 0 m₁/[e^(γ²/2)(2Φ(γ) − 1)].
softpick = score_kernel(
    "softpick",
    Max(e(s) - 1, 0),
    title="softpick's numerator",
    source="Zuhri et al. (2025), arXiv:2504.20966",
)

softplus = score_kernel(
    "softplus",
    symbols.softplus(s),
    title="softplus",
    source="Wortsman et al. (2023), arXiv:2309.08586, among the activations tried",
)

# Its bias b is part of β. The usual one is −ln n, the step `LengthBias(-1)`.
sigmoid = score_kernel(
    "sigmoid",
    symbols.sigmoid(s),
    title="sigmoid",
    source="Ramapuram et al. (2024), arXiv:2409.04431, sigmoid attention",
)

# Not elu(s) + 1, which would subtract 1 from e^s and add it again.
elu1 = score_kernel(
    "elu+1",
    Piecewise((s + 1, s > 0), (e(s), True)),
    title="ELU plus one",
    source="Katharopoulos et al. (2020), arXiv:2006.16236, as a feature map; here of the score",
)
elu = score_kernel(
    "elu", symbols.elu(s), title="ELU", source="Clevert et al. (2015), arXiv:1511.07289"
)

gelu = score_kernel(
    "gelu",
    symbols.gelu(s),
    title="GELU",
    source="Wortsman et al. (2023), arXiv:2309.08586, among the activations tried",
)

silu = score_kernel(
    "silu",
    symbols.silu(s),
    title="SiLU",
    source="Zhai et al. (2024), arXiv:2402.17152, pointwise attention of HSTU",
)

ZOO: tuple[Kernel, ...] = (
    *(relu, relu3, power2, power4, absolute, cosh, taylor2, taylor4, threshold),
    *(softpick, softplus, sigmoid, elu1, elu, gelu, silu),
)
