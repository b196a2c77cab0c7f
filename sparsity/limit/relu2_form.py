"""Log S of relu²: bands of z = β/γ with a stable form each, and a table of what they give."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial, chebyshev
from scipy.special import erfc

_SQRT_HALF = np.sqrt(0.5)
_SQRT_TAU = np.sqrt(2 * np.pi)
_QUARTER_LOG_TAU = 0.25 * np.log(2 * np.pi)


# relu², z ≥ −1.5. The derived moments in units of γ are m₂ = (z²+1)Φ + zφ (first) and
# m₄ = (z⁴+6z²+3)Φ + z(z²+5)φ (second). Their z⁴ cancels in the variance by hand, with Φ̄ = 1 − Φ:
#     m₄ − m₂² = Φ[4z² + 2 + (z²+1)²Φ̄] + zφ[3 − z² + 2(z²+1)Φ̄ − zφ],
# and log S = −½ log1p((m₄ − m₂²)/m₂²) is exact in relative terms for z → ∞. Beyond z = 10, Φ̄ and
# φ are below 1e−22 and drop out; w = 1/z² then keeps z⁴ from overflowing. At z = −1.5 the sums
# have lost a factor of about 40, the most.
def _centre(z: np.ndarray) -> np.ndarray:
    z2 = z * z
    tail = 0.5 * erfc(np.abs(z) * _SQRT_HALF)
    rest = 1 - tail
    upper, lower = np.where(z < 0, rest, tail), np.where(z < 0, tail, rest)
    zphi = z * np.exp(-0.5 * z2) / _SQRT_TAU
    p = z2 + 1
    variance = lower * (4 * z2 + 2 + p * p * upper) + zphi * (3 - z2 + 2 * p * upper - zphi)
    return -0.5 * np.log1p(variance / np.square(p * lower + zphi))


def _right(z: np.ndarray) -> np.ndarray:
    w = np.square(1 / z)
    return -0.5 * np.log1p(w * (4 + 2 * w) / np.square(1 + w))


# relu², z < −1.5. The moments are φ(z)J₂ and φ(z)J₄ of J_k = ∫₀^∞ t^k e^(−t²/2 + zt) dt. By parts,
# J_{k+1} = zJ_k + kJ_{k−1} for k ≥ 1 and J₁ = 1 + zJ₀, so the ratios r_k = J_k/J_{k−1} satisfy
# r_k = k/(r_{k+1} − z) and J₀ = 1/(r₁ − z): a continued fraction of positive terms, with
#     log S = −z²/4 − ¼ log 2π + ½ log[(r₁/r₃)(r₂/r₄)/(r₁ − z)].
# It starts at k = K from the fixed point r = (z + √(z² + 4K))/2 of the recurrence; an error there
# has shrunk by about e^(−2|z|√K) at k = 1.
def left(z: np.ndarray, start: int) -> np.ndarray:
    x = np.minimum(-z, 1e160)  # log S is below the float64 range already
    r = 2 * start / (x + np.sqrt(x * x + 4 * start))
    last = [r, r, r, r]
    for k in range(start - 1, 0, -1):
        r = k / (r + x)
        last = [r, *last[:3]]
    r1, r2, r3, r4 = last
    ratio = (r1 / r3) * (r2 / r4) / (r1 + x)
    return 0.5 * np.log(ratio) - np.square(0.5 * x) - _QUARTER_LOG_TAU


_EDGES = (-8.0, -4.0, -2.0, -1.5, 10.0)  # of the bands of z, one form for each
_FORMS: tuple[Callable[[np.ndarray], np.ndarray], ...] = (
    lambda z: left(z, 20),
    lambda z: left(z, 36),
    lambda z: left(z, 80),
    lambda z: left(z, 120),
    _centre,
    _right,
)


def _by_bands(z: np.ndarray) -> np.ndarray:
    bands, out = np.zeros(z.shape, dtype=np.int8), np.empty_like(z)
    for edge in _EDGES:
        bands += z >= edge
    for band, form in enumerate(_FORMS):
        inside = bands == band
        out[inside] = form(z[inside])
    return out


# The bands take up to a hundred divisions a point. From −16 to 10, log S is a table of polynomials
# of degree 7 on intervals of ¼, through the bands' own values at Chebyshev nodes: within 1e−14 of
# them, in a sixth of the time.
_LOW, _HIGH, _PER_UNIT, _DEGREE = -16.0, 10.0, 4, 7


@cache
def _table(degree: int) -> np.ndarray:
    """Coefficients by power of u in [−1, 1] and by interval."""
    half = 0.5 / _PER_UNIT
    middles = np.arange(_LOW + half, _HIGH, 2 * half)
    nodes = chebyshev.chebpts1(degree + 1)
    values = _by_bands(middles[:, None] + half * nodes)
    terms = np.linalg.solve(chebyshev.chebvander(nodes, degree), values.T)
    basis = [Chebyshev.basis(k).convert(kind=Polynomial).coef for k in range(degree + 1)]
    powers = [np.pad(each, (0, degree + 1 - len(each))) for each in basis]
    return np.array(powers, dtype=np.float64).T @ terms


def by_table(z: np.ndarray, degree: int = _DEGREE) -> np.ndarray:
    place = (z - _LOW) * _PER_UNIT
    interval = np.minimum(place.astype(np.intp), len(_table(degree)[0]) - 1)  # next to 10
    u = 2 * (place - interval) - 1
    *lower, out = (row.take(interval) for row in _table(degree))
    for coefficient in reversed(lower):
        out *= u
        out += coefficient
    return out


def relu2(beta: Any, gamma: Any) -> np.ndarray:
    """Log S of a = max(s, 0)²: a function of z = β/γ alone, about −z²/4 for z → −∞.

    S = m₂/√m₄ with m₂ = (z²+1)Φ(z) + zφ(z), m₄ = (z⁴+6z²+3)Φ(z) + z(z²+5)φ(z).

    Args:
        beta: bias β, any shape.
        gamma: spread γ > 0, broadcastable with beta.

    Returns:
        log S, float64 of the broadcast shape.
    """
    with np.errstate(over="ignore", under="ignore"):
        z = np.asarray(np.divide(beta, gamma, dtype=np.float64))
        tabled = (z >= _LOW) & (z < _HIGH)
        if np.all(tabled):
            return by_table(z)
        out = np.empty_like(z)
        out[tabled], out[~tabled] = by_table(z[tabled]), _by_bands(z[~tabled])
        return out
