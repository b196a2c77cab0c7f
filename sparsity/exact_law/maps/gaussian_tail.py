"""Transforms of a normal density above a threshold: of the excess and of its square.

∫₀^∞ x^k e^(−zx) φ(t+x) dx = φ(t) J_k(t+z) and, of a square in the exponent, φ(t) J_k(t/w)/w^(k+1)
with w = √(1 + 2z), where J_k(y) = ∫₀^∞ x^k e^(−yx−x²/2) dx: J₀ is the Mills ratio Φ̄/φ, and
J₂ = (1+y²)J₀ − y. All are entire. To the left of the imaginary axis they are reflected,
J_k(y) = ∫_ℝ − (−1)^k J_k(−y), so that e^(y²/2) meets φ(t) before it can overflow.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from sparsity.exact_law.integration import log_near_one
from sparsity.special import erfcx, expm1, ndtr, wofz

_FAR = 10.0  # |y| beyond which J₂ is its asymptotic series; before, up to |y|⁴ of eps is lost
_TERMS = 34  # of that series, which has 1e-16 there
_LARGEST = 600.0  # an exponent that float64 still holds
_ORDERS = 6  # J₀ … J₅: what the threshold law of squared excesses is made of
_NEAR = 2.0  # |y| up to which J_k is found from J₀ upwards without a loss of digits
_TERMS_OF_COMPLEX = 220  # of the continued fraction beyond: it turns towards the imaginary axis
_TERMS_OF_REAL = 60
_ROOT_HALF = math.sqrt(0.5)
_ROOT_PI_HALF = math.sqrt(math.pi / 2)
ROOT_2_PI = math.sqrt(2 * math.pi)


class TailMeans(NamedTuple):
    """What is known of one score ε ~ N(0, 1) and its excess x = (ε − t)₊ over the threshold t.

    Args:
        above: E[e^(−zx); ε > t].
        second: E[x² e^(−zx); ε > t].
        log_all: log of E e^(−zx), the scores under the threshold with it.
        all: E e^(−zx).
    """

    above: np.ndarray
    second: np.ndarray
    log_all: np.ndarray
    all: np.ndarray


def mills(y: np.ndarray) -> np.ndarray:
    """Return J₀(y) = Φ̄(y)/φ(y) of real or complex y; it is large left of the imaginary axis."""
    if np.iscomplexobj(y):
        return _ROOT_PI_HALF * wofz(1j * _ROOT_HALF * y)
    return _ROOT_PI_HALF * erfcx(_ROOT_HALF * y)


def log_mills(y: Any) -> Any:
    """Return log J₀(y) of real or complex y, also where J₀ itself would overflow."""
    # J₀(y) = √2π e^(y²/2) − J₀(−y), over e^over, where the exponential alone would leave float64.
    left = y.real < 0
    ratio = mills(np.where(left, -y, y))
    if not left.any():
        return np.log(ratio)
    half = 0.5 * y[left] ** 2
    over = np.maximum(half.real - _LARGEST, 0.0)
    ratio[left] = 2 * _ROOT_PI_HALF * np.exp(half - over) - ratio[left]
    log = np.log(ratio)
    log[left] += over
    return log


def _second(y: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """Return J₂(y) for Re y ≥ 0, given J₀(y)."""
    # (1 + y²)J₀ and y agree to 2/y³: their difference has lost y⁴ of its digits, hence the series.
    far = np.abs(y) > _FAR
    second = (1 + y * y) * ratio - y
    if far.any():
        over = 1 / y[far]
        square, term = over * over, 2 * over**3
        total = term.copy()
        for m in range(1, _TERMS):  # (2m+2)!/(2^m m!) of alternating sign
            term = term * (-(2 * m + 1) * (m + 1) / m) * square
            total += term
        second[far] = total
    return second


def of_excess(t: np.ndarray, z: np.ndarray) -> TailMeans:
    """Return the transforms at thresholds t and arguments z, of shapes that broadcast.

    Args:
        t: thresholds, real, in standard deviations of the score.
        z: arguments, real or complex.
    """
    t, z = np.broadcast_arrays(np.asarray(t, np.float64), z)
    y: Any = t + z
    left = y.real < 0
    folded = np.where(left, -y, y)
    density = np.exp(-0.5 * t * t) / ROOT_2_PI
    ratio = mills(folded)
    above, second = density * ratio, density * _second(folded, ratio)
    every, rest = ndtr(t) + above, above - ndtr(-t)  # h, and h − 1
    if left.any():
        # J₀(y) = √2π e^(y²/2) − J₀(−y), times φ(t): the exponents are added before they are taken.
        # Of t < 0 the whole line is near 1 and the digits are in what it lacks of 1.
        grown = (z * t + 0.5 * z * z)[left]
        line, t, y = np.exp(grown), t[left], y[left]  # φ(t)∫ over the whole line
        folded, over = above[left], np.where(t > 0, line - ndtr(-t), expm1(grown) + ndtr(t))
        above[left], rest[left] = line - folded, over - folded
        every[left] = line + ndtr(t) - folded
        second[left] = line * (1 + y * y) - second[left]
    return TailMeans(above, second, log_near_one(every, rest), every)


def _upwards(y: Any) -> list[Any]:
    """Return J_k(y) for k = 0 … 5 and Re y ≥ 0.

    Upwards J_(k+1) = kJ_(k−1) − yJ_k; for large y, where that cancels, by J_k/J_(k−1) =
    k/(y + J_(k+1)/J_k) from far above.
    """
    # Both come from integrating d(x^k e^(−yx−x²/2)). Upwards each step multiplies errors by y; the
    # continued fraction, started at the root of r² + yr = k far above, forgets its start instead.
    first = mills(y)
    up = [first, 1 - y * first]
    for k in range(1, _ORDERS - 1):
        up.append(k * up[k - 1] - y * up[k])
    far = np.abs(y) > _NEAR
    if far.any():
        at, terms = y[far], _TERMS_OF_COMPLEX if np.iscomplexobj(y) else _TERMS_OF_REAL
        ratio = 0.5 * (np.sqrt(at * at + 4 * terms) - at)
        ratios = [ratio := k / (at + ratio) for k in range(terms, 0, -1)]
        value = first[far]
        for k in range(1, _ORDERS):
            value = value * ratios[-k]
            up[k][far] = value
    return up


def of_squared_excess(t: np.ndarray, z: Any) -> tuple[list[Any], Any, Any]:
    """Return E[x^k e^(−zx²); ε > t] for k = 0 … 5, and log h and h, h = E e^(−zx²) over all scores.

    Args:
        t: thresholds, real, in standard deviations of the score.
        z: arguments, real > −½ or complex, of shapes that broadcast.
    """
    t, z = np.broadcast_arrays(np.asarray(t, np.float64), z)
    w: Any = np.sqrt(1 + 2 * z)
    y = t / w
    left = y.real < 0
    density = np.exp(-0.5 * t * t) / ROOT_2_PI
    moments = [density * moment for moment in _upwards(np.where(left, -y, y))]
    if left.any():  # reflected: the whole line less the other half of it
        # Over the whole line the moments of a normal about −y follow by M_k = −yM_(k−1) +
        # (k−1)M_(k−2). t²z/(1 + 2z) is what is left of t²/2 and y²/2, subtracted by hand.
        back = y[left]
        line = np.exp(-((t * t * z) / (1 + 2 * z))[left])
        whole, last = line, np.zeros_like(line)
        for k in range(_ORDERS):
            moments[k][left] = whole - (-1) ** k * moments[k][left]
            whole, last = -back * whole + k * last, whole
    moments = [moment / w ** (k + 1) for k, moment in enumerate(moments)]
    every = ndtr(t) + moments[0]
    return moments, log_near_one(every, moments[0] - ndtr(-t)), every
