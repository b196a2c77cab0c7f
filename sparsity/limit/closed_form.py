"""Closed forms of log S in float64: vectorised, and stable over the whole domain.

Each function is a rearrangement of the form that `sparsity.derivation` derives; the comment above
it leads from one to the other. `python -m benchmarks.accuracy` measures them all against rigorous
balls, and `RELATIVE_ERROR` is the bound that they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial, chebyshev
from sympy import Expr

from sparsity import kernels
from sparsity.errors import NoClosedForm
from sparsity.kernels.base import Kernel
from sparsity.kernels.numeric.points import EPS
from sparsity.kernels.queries import check_features, norm_ratio
from sparsity.special import erfc

RELATIVE_ERROR = 1e-13  # |Δ log S| ≤ RELATIVE_ERROR · max(1, |log S|)

_SQRT_HALF = np.sqrt(0.5)
_SQRT_TAU = np.sqrt(2 * np.pi)
_QUARTER_LOG_TAU = 0.25 * np.log(2 * np.pi)


def error_bound(log_S: Any) -> np.ndarray:
    """Return the bound on |Δ log S| that the closed forms hold: 1e−13 · max(1, |log S|)."""
    return np.asarray(RELATIVE_ERROR * np.maximum(np.abs(log_S), 1.0))


def exp(beta: Any, gamma: Any) -> np.ndarray:
    """Return log S of a = e^s: −γ²/2, whatever β.

    Args:
        beta: bias β, any shape.
        gamma: spread γ > 0, broadcastable with beta.

    Returns:
        log S, float64 of the broadcast shape.
    """
    _, gamma = np.broadcast_arrays(beta, gamma)
    with np.errstate(over="ignore", under="ignore"):
        return -0.5 * np.square(gamma, dtype=np.float64)


# relu², z ≥ −1.5. The derived moments in units of γ are m₂ = (z²+1)Φ + zφ (first) and
# m₄ = (z⁴+6z²+3)Φ + z(z²+5)φ (second). Their z⁴ cancels in the variance by hand, with Φ̄ = 1 − Φ:
#     m₄ − m₂² = Φ[4z² + 2 + (z²+1)²Φ̄] + zφ[3 − z² + 2(z²+1)Φ̄ − zφ],
# and log S = −½ log1p((m₄ − m₂²)/m₂²) is exact in relative terms for z → ∞. Beyond z = 10, Φ̄ and
# φ are below 1e−22 and drop out; w = 1/z² then keeps z⁴ from overflowing. At z = −1.5 the sums
# have lost a factor of about 40, the most.
def _middle_band(z: np.ndarray) -> np.ndarray:
    z2 = z * z
    tail = 0.5 * erfc(np.abs(z) * _SQRT_HALF)
    rest = 1 - tail
    upper, lower = np.where(z < 0, rest, tail), np.where(z < 0, tail, rest)
    zphi = z * np.exp(-0.5 * z2) / _SQRT_TAU
    p = z2 + 1
    variance = lower * (4 * z2 + 2 + p * p * upper) + zphi * (3 - z2 + 2 * p * upper - zphi)
    return -0.5 * np.log1p(variance / np.square(p * lower + zphi))


def _far_right_band(z: np.ndarray) -> np.ndarray:
    w = np.square(1 / z)
    return -0.5 * np.log1p(w * (4 + 2 * w) / np.square(1 + w))


# relu², z < −1.5. The moments are φ(z)J₂ and φ(z)J₄ of J_k = ∫₀^∞ t^k e^(−t²/2 + zt) dt. By parts,
# J_{k+1} = zJ_k + kJ_{k−1} for k ≥ 1 and J₁ = 1 + zJ₀, so the ratios r_k = J_k/J_{k−1} satisfy
# r_k = k/(r_{k+1} − z) and J₀ = 1/(r₁ − z): a continued fraction of positive terms, with
#     log S = −z²/4 − ¼ log 2π + ½ log[(r₁/r₃)(r₂/r₄)/(r₁ − z)].
# It starts at k = K from the fixed point r = (z + √(z² + 4K))/2 of the recurrence; an error there
# has shrunk by about e^(−2|z|√K) at k = 1.
def relu2_left(z: np.ndarray, start: int) -> np.ndarray:
    x = np.minimum(-z, 1e160)  # log S is below the float64 range already
    r = 2 * start / (x + np.sqrt(x * x + 4 * start))
    last = [r, r, r, r]
    for k in range(start - 1, 0, -1):
        r = k / (r + x)
        last = [r, *last[:3]]
    r1, r2, r3, r4 = last
    ratio = (r1 / r3) * (r2 / r4) / (r1 + x)
    return 0.5 * np.log(ratio) - np.square(0.5 * x) - _QUARTER_LOG_TAU


# The fraction is exact to rounding if it begins at 120 from z = −1.5 on, at 20 from z = −8 on. It
# takes so many divisions a point. From −16 to 10, log S is a table of polynomials of degree 7 on
# intervals of ¼, through the bands' own values at Chebyshev nodes: within 1e−14 of them, in less
# than half of the time.
_TABLE_LOW, _TABLE_HIGH, _INTERVALS_PER_UNIT, _TABLE_DEGREE = -16.0, 10.0, 4, 7


@cache
def _relu2_table(degree: int) -> np.ndarray:
    """Return coefficients by power of u in [−1, 1] and by interval."""
    half = 0.5 / _INTERVALS_PER_UNIT
    middles = np.arange(_TABLE_LOW + half, _TABLE_HIGH, 2 * half)
    nodes = chebyshev.chebpts1(degree + 1)
    z = middles[:, None] + half * nodes
    values = np.where(z < -1.5, relu2_left(np.minimum(z, -1.5), 120), _middle_band(z))
    terms = np.linalg.solve(chebyshev.chebvander(nodes, degree), values.T)
    basis = [Chebyshev.basis(k).convert(kind=Polynomial).coef for k in range(degree + 1)]
    powers = [np.pad(coefficients, (0, degree + 1 - len(coefficients))) for coefficients in basis]
    return np.array(powers, dtype=np.float64).T @ terms


def relu2_by_table(z: np.ndarray, degree: int = _TABLE_DEGREE) -> np.ndarray:
    place = (z - _TABLE_LOW) * _INTERVALS_PER_UNIT
    interval = np.minimum(place.astype(np.intp), len(_relu2_table(degree)[0]) - 1)  # next to 10
    u = 2 * (place - interval) - 1
    *lower, out = (row.take(interval) for row in _relu2_table(degree))
    for coefficient in reversed(lower):
        out *= u
        out += coefficient
    return out


def relu2(beta: Any, gamma: Any) -> np.ndarray:
    """Return log S of a = max(s, 0)²: a function of z = β/γ alone, about −z²/4 for z → −∞.

    S = m₂/√m₄ with m₂ = (z²+1)Φ(z) + zφ(z), m₄ = (z⁴+6z²+3)Φ(z) + z(z²+5)φ(z).

    Args:
        beta: bias β, any shape.
        gamma: spread γ > 0, broadcastable with beta.

    Returns:
        log S, float64 of the broadcast shape.
    """
    with np.errstate(over="ignore", under="ignore"):
        z = np.asarray(np.divide(beta, gamma, dtype=np.float64))
        far_left, far_right = z < _TABLE_LOW, z >= _TABLE_HIGH
        if not np.any(far_left | far_right):
            return relu2_by_table(z)
        beyond = [lambda z: relu2_left(z, 20), _far_right_band]
        return np.piecewise(z, [far_left, far_right], [*beyond, relu2_by_table])


# identity. With a = |z| and L = φ(a) − aΦ(−a) (the normal loss, ≥ 0, vanishing for a → ∞), the
# derived m₁ = √(2/π)e^(−z²/2) + z erf(z/√2) is a + 2L, and m₂ = 1 + a², so
#     m₂ − m₁² = 1 − 4L(a + L)   and   log S = −½ log1p((m₂ − m₁²)/m₁²),
# exact in relative terms for a → ∞, where S → 1, and even in z by construction.
def identity(beta: Any, gamma: Any) -> np.ndarray:
    """Return log S of a = s: S = [√(2/π) e^(−z²/2) + z erf(z/√2)] / √(1 + z²), z = β/γ.

    Args:
        beta: bias β, any shape.
        gamma: spread γ > 0, broadcastable with beta.

    Returns:
        log S, float64 of the broadcast shape.
    """
    with np.errstate(over="ignore", under="ignore"):
        a = np.minimum(np.abs(np.divide(beta, gamma, dtype=np.float64)), 1e300)
        loss = np.exp(-0.5 * a * a) / _SQRT_TAU - 0.5 * a * erfc(a * _SQRT_HALF)
        return -0.5 * np.log1p((1 - 4 * loss * (a + loss)) / np.square(a + 2 * loss))


def nonnegative(ratio: Any, dim: Any, query: str) -> np.ndarray:
    """Return log S of a = q̃ᵀk̃ with i.i.d. features: S = 1/√(1 + x²), x = (σ̃/μ̃)·‖q̃‖₂/‖q̃‖₁.

    Args:
        ratio: noise-to-signal ratio σ̃/μ̃ > 0 of one feature, any shape.
        dim: dimension d ≥ 1, broadcastable with ratio.
        query: name of the query family, see `sparsity.kernels.queries`.

    Returns:
        log S, float64 of the broadcast shape.
    """
    # √(1 + x²) = max(x, 1)·√(1 + min(x, 1/x)²): x² cannot overflow, small x keep their digits.
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        x = np.multiply(ratio, norm_ratio(query, dim), dtype=np.float64)
        return -np.log(np.maximum(x, 1)) - 0.5 * np.log1p(np.square(np.minimum(x, 1 / x)))


# decayed. With L = −log λ, 1 − λⁿ = 2e^(−nL/2) sinh(nL/2) and 1 + λⁿ = 2e^(−nL/2) cosh(nL/2), so
# the derived S² = (1−λⁿ)(1+λ)/(n(1−λ)(1+λⁿ)) is tanh(nL/2)/(n tanh(L/2)), and
#     log S = ½[g(L/2) − g(nL/2)],   g(x) = log(x coth x) ≥ 0,
# where x coth x = 1 + x²/(3 + x²/(5 + …)) keeps the digits of g for x → 0: λ = 1 and n = 1 give 0.
def _log_x_coth(x: np.ndarray) -> np.ndarray:
    small = np.minimum(x, 1.0)
    x2 = small * small
    tail = np.full_like(x2, 19.0)
    for odd in range(17, 1, -2):
        tail = odd + x2 / tail
    large = np.maximum(x, 1.0)
    return np.where(x < 1, np.log1p(x2 / tail), np.log(large / np.tanh(large)))


def decayed(decay: Any, length: Any) -> np.ndarray:
    """Return log S of a_j = λ^(n−j): S = √[(1−λⁿ)(1+λ) / (n(1−λ)(1+λⁿ))].

    Args:
        decay: λ in (0, 1], any shape.
        length: n ≥ 1, broadcastable with decay.

    Returns:
        log S, float64 of the broadcast shape; exactly 0 for λ = 1 and for n = 1.
    """
    with np.errstate(over="ignore", under="ignore"):
        half = -0.5 * np.log(np.asarray(decay, dtype=np.float64))
        return 0.5 * (_log_x_coth(half) - _log_x_coth(half * length))


# By definition, not by name: a user's own kernel that is one of these gets its form.
FORMS: Mapping[Expr, Callable[..., np.ndarray]] = {
    kernels.exp.weight: exp,
    kernels.relu2.weight: relu2,
    kernels.identity.weight: identity,
    kernels.zoo.absolute.weight: identity,  # S takes |a|
    kernels.nonnegative.weight: nonnegative,
    kernels.decayed.weight: decayed,
}


def of_measured_features(**given: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return log S = −½ log1p(q̃ᵀΣ̃q̃/(q̃ᵀμ̃)²) of a = q̃ᵀk̃ ≥ 0, and a bound on its error.

    Args:
        **given: as `check_features` takes it.

    Raises:
        InputError: as `check_features`.
    """
    mean, covariance, query = check_features(**given)
    # S does not turn on the scale of the features, nor on that of a query.
    top = mean.max()
    mean, query = mean / top, query / query.max(axis=-1, keepdims=True)
    with np.errstate(over="ignore"):
        covariance = covariance / top / top
    weight = query @ mean
    variance = np.einsum("...i,ij,...j->...", query, covariance, query)
    size = np.einsum("...i,ij,...j->...", query, np.abs(covariance), query)
    ratio, terms = np.maximum(variance, 0.0) / weight**2, 2 * mean.size + 8
    error = terms * EPS * (size / weight**2 + ratio) / (1 + ratio) + EPS
    return -0.5 * np.log1p(ratio), error


def sparsity(kernel: Kernel, parameters: Mapping[str, Any]) -> list[np.ndarray]:
    """Return S, log S ≤ 0 and the bound on |Δ log S| of a kernel by its stable closed form.

    Args:
        kernel: any kernel.
        parameters: its parameters, as `kernel.bind` returns them.

    Returns:
        Three arrays, float64 of the broadcast shape.

    Raises:
        NoClosedForm: the definition is none of those with a stable form.
    """
    form = FORMS.get(kernel.weight)
    if form is None:
        raise NoClosedForm("lookup", f"no stable form is known for the weight {kernel.weight}")

    log_S = np.minimum(form(**parameters), 0.0) + 0.0  # + 0.0 turns −0 into 0
    with np.errstate(under="ignore"):
        return [np.exp(log_S), np.asarray(log_S), error_bound(log_S)]
