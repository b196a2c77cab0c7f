"""The exact law of entmax-1.5 rows of n independent scores N(β, γ²): Kac–Rice and one contour.

As `sparsemax`, with another sum at the threshold. In standard deviations of the scores the excesses
x_j = (ε_j − t)₊ have Σx² = c², c = 2/γ, and the weights are p = x²/c². With G(t) = Σx², G′ = −2Σx,

    E F = ∫ dt (1/2πi) ∫ dz e^(zc²) E[F · 2Σx · e^(−zΣx²)],

and over independent keys the last mean is a product: with g_k = E[x^k e^(−zx²); ε > t] and
h = E e^(−zx²), the scores under the threshold with it,

    1     ->  2n g₁ h^(n−1)
    K     ->  2[n g₁ h^(n−1) + n(n−1) g₀g₁ h^(n−2)]
    Σp²   ->  2[n g₅ h^(n−1) + n(n−1) g₄g₁ h^(n−2)] / c⁴.

A square in the exponent leaves a normal density: g_k = φ(t) J_k(t/w)/w^(k+1) with w = √(1 + 2z) and
J_k of `mills`. The contour and both rules are those of `sparsemax`, and so is the bound. No
published form of this law was found.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri_exp

from sparsity.errors import RESOLVED, InputError
from sparsity.exact_law.mills import log_near_one, mills
from sparsity.exact_law.sparsemax import STEP, Law, Place, hyperbola, narrowed, ruled

_ORDERS = 6  # g₀ … g₅
_NEAR = 2.0  # |y| up to which J_k is found from J₀ upwards
_TERMS = 220  # of the continued fraction beyond,
_OF_REAL = 60  # and where y is real: it turns towards the imaginary axis that they are for
_POINTS = 241  # thresholds, odd
_DEPTH = 42.0  # e-folds of the density of t down to which it counts
_BISECTIONS = 44
_ROUNDING = np.array([[1e-11], [1e-11]])  # of E K and E Y₂
_ALL_IN = 14.0  # c/√n from which every key has a weight
_AT_ONCE = 2**16  # numbers held at once


def _moments(y: Any) -> list[Any]:
    """J_k(y) = ∫₀^∞ x^k e^(−yx − x²/2) dx for k = 0 … 5, Re y ≥ 0.

    Upwards J_(k+1) = kJ_(k−1) − yJ_k; for large y, where that cancels, by J_k/J_(k−1) =
    k/(y + J_(k+1)/J_k) from far above.
    """
    first = mills(y)
    up = [first, 1 - y * first]
    for k in range(1, _ORDERS - 1):
        up.append(k * up[k - 1] - y * up[k])
    far = np.abs(y) > _NEAR
    if far.any():
        at, terms = y[far], _TERMS if np.iscomplexobj(y) else _OF_REAL
        ratio = 0.5 * (np.sqrt(at * at + 4 * terms) - at)
        ratios = [ratio := k / (at + ratio) for k in range(terms, 0, -1)]
        value = first[far]
        for k in range(1, _ORDERS):
            value = value * ratios[-k]
            up[k][far] = value
    return up


def transforms(t: np.ndarray, z: Any) -> tuple[list[Any], Any, Any]:
    """E[x^k e^(−zx²); ε > t] for k = 0 … 5, and log h and h, h = E e^(−zx²) over all scores.

    Args:
        t: thresholds, real, in standard deviations of the score.
        z: arguments, real > −½ or complex, of shapes that broadcast.
    """
    t, z = np.broadcast_arrays(np.asarray(t, np.float64), z)
    w: Any = np.sqrt(1 + 2 * z)
    y = t / w
    left = y.real < 0
    density = np.exp(-0.5 * t * t) / math.sqrt(2 * math.pi)
    found = [density * each for each in _moments(np.where(left, -y, y))]
    if left.any():  # reflected: the whole line less the other half of it
        back = y[left]
        line = np.exp(-((t * t * z) / (1 + 2 * z))[left])
        whole, last = line, np.zeros_like(line)
        for k in range(_ORDERS):
            found[k][left] = whole - (-1) ** k * found[k][left]
            whole, last = -back * whole + k * last, whole
    found = [each / w ** (k + 1) for k, each in enumerate(found)]
    every, rest = ndtr(t) + found[0], found[0] - ndtr(-t)
    return found, log_near_one(every, rest), every


def _slope(t: np.ndarray, z: np.ndarray, n: np.ndarray, c: float) -> tuple[np.ndarray, ...]:
    """Of zc² + log g₁ + (n−1) log h on the real axis: value, first and second derivative."""
    g, log_h, h = transforms(t, z)
    one, all_ = g[3] / g[1], g[2] / h
    value = z * c * c + np.log(g[1]) + (n - 1) * log_h
    curvature = g[5] / g[1] - one**2 + (n - 1) * (g[4] / h - all_**2)
    return value, c * c - one - (n - 1) * all_, curvature


def _at(t: np.ndarray, n: np.ndarray, c: float) -> Place:
    """The saddle points of the integrand, by bisection of its slope in ln(1 + 2z)."""
    low = np.full(t.shape, -60.0)
    most = 1 + 2 * (4 * (n + 4) / c**2 + 2 * np.abs(t) / c + 10)
    high = np.log(np.broadcast_to(most, t.shape))
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        slope = _slope(t, 0.5 * np.expm1(middle), n, c)[1]
        falls = ~(slope >= 0)
        low, high = np.where(falls, middle, low), np.where(falls, high, middle)
    z = 0.5 * np.expm1(high)
    value, _, curvature = _slope(t, z, n, c)
    curvature = np.where(curvature > 0, curvature, c**4)
    size = value - 0.5 * np.log(curvature)
    return Place(t, z, curvature**-0.5, np.where(np.isfinite(size), size, -np.inf))


def _places(n: np.ndarray, c: float) -> Place:
    """Where the threshold of rows of n lies, but for e^(−_DEPTH) of them."""
    m = n[:, 0]
    # n(mean − t)² ≤ Σ(ε − t)₊² = c² ≤ n(max − t)², and max − c ≤ t.
    low = np.maximum(-10 / np.sqrt(m) - c / np.sqrt(m), ndtri_exp(-_DEPTH / m) - c)
    high = -ndtri_exp(-_DEPTH - np.log(m)) - c / np.sqrt(m)
    low, high = narrowed(low, high, lambda t: _at(t, n, c).log_size)
    return _at(low[:, None] + (high - low)[:, None] * np.linspace(0, 1, _POINTS), n, c)


def _integrands(place: Place, n: np.ndarray, c: float) -> np.ndarray:
    """Integrands of 1, K and Y₂ over (t, u), real, [3, lengths, points, nodes]."""
    _, along, turn = hyperbola(STEP)
    t, width = place.t[..., None], place.width[..., None]
    z = place.saddle[..., None] + width * along
    g, log_h, h = transforms(t, z)
    m = n[..., None]
    others = 2 * np.exp(z * c * c + (m - 1) * log_h + np.log(m)) * turn * width / math.pi
    pair = (m - 1) * g[1] / h
    values = (g[1] * others, (g[1] + g[0] * pair) * others, (g[5] + g[4] * pair) / c**4 * others)
    body = np.stack([value.real for value in values])
    return np.where(np.isfinite(body), body, 0.0)  # far out, where h or e^(zc²) is nothing


def _ruled(n: np.ndarray, c: float) -> Law:
    """The law of entmax."""
    n = n[:, None]
    size = max(1, _AT_ONCE // (_POINTS * len(hyperbola(STEP)[0])))
    return ruled(n, _places(n, c), lambda place, m: _integrands(place, m, c), size, _ROUNDING)


def _all_in(n: np.ndarray, c: float) -> np.ndarray:
    """E K and E Y₂ where every key has a weight: x = ε − mean + √((c² − D)/n), D = Σ(ε − mean)².

    D is χ² of n − 1 degrees of freedom, and of the scores given D the mean of Σ(ε − mean)⁴ is
    3(n − 1)D²/(n(n + 1)), that of the cubes 0.
    """
    more = 4 * c**2 * (n - 1) + 3 * (n - 1) ** 2 - 5 * (n * n - 1)
    return np.stack([n, 1 / n + more / (n * c**4)])


def law(gamma: float, length: np.ndarray) -> Law:
    """Means over rows of the support size K and of the participation Y₂ = Σp².

    Args:
        gamma: spread γ > 0 of the scores.
        length: row lengths n ≥ 1, [lengths].

    Raises:
        InputError: a spread at which the law is not resolved.
    """
    n, c = np.asarray(length, dtype=np.float64), 2 / gamma
    found = Law(np.ones((2, *n.shape)), np.zeros((2, *n.shape)), np.ones(n.shape))
    whole = (n > 1) & (c >= _ALL_IN * np.sqrt(n))
    found.value[:, whole], found.error[:, whole] = _all_in(n[whole], c), 1e-15
    some = (n > 1) & ~whole
    if some.any():
        with np.errstate(all="ignore"):  # far out, where nothing falls
            ruled = _ruled(n[some], c)
        if not (ruled.error < RESOLVED).all():
            fix = "the exact law of entmax-1.5 is not resolved there; use estimate"
            raise InputError("gamma", gamma, fix)
        for into, part in zip(found, ruled, strict=True):
            into[..., some] = part
    return found
