"""Laplace transforms of the normal density above a threshold, at complex arguments.

∫₀^∞ x^k e^(−zx) φ(t+x) dx = φ(t) J_k(t+z), J_k(y) = ∫₀^∞ x^k e^(−yx−x²/2) dx: J₀ is the Mills ratio
Φ̄/φ, and J₂ = (1+y²)J₀ − y. All are entire. To the left of the imaginary axis they are reflected,
J_k(y) = ∫_ℝ − (−1)^k J_k(−y), so that e^(y²/2) meets φ(t) before it can overflow.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import erfcx, ndtr, wofz

_FAR = 10.0  # |y| beyond which J₂ is its asymptotic series; before, up to |y|⁴ of eps is lost
_TERMS = 34  # which has 1e-16 there
_LARGEST = 600.0  # an exponent that float64 still holds
_ROOT_HALF = math.sqrt(0.5)
_ROOT_PI_HALF = math.sqrt(math.pi / 2)


class Transforms(NamedTuple):
    """Of one score ε ~ N(0, 1) and its excess x = (ε − t)₊ over the threshold t.

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
    """J₀(y) = Φ̄(y)/φ(y), of real or complex y; large to the left of the imaginary axis."""
    if np.iscomplexobj(y):
        return _ROOT_PI_HALF * wofz(1j * _ROOT_HALF * y)
    return _ROOT_PI_HALF * erfcx(_ROOT_HALF * y)


def _second(y: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """J₂(y) for Re y ≥ 0, given J₀(y)."""
    far = np.abs(y) > _FAR
    found = (1 + y * y) * ratio - y
    if far.any():
        over = 1 / y[far]
        square, term = over * over, 2 * over**3
        total = term.copy()
        for m in range(1, _TERMS):  # (2m+2)!/(2^m m!) of alternating sign
            term = term * (-(2 * m + 1) * (m + 1) / m) * square
            total += term
        found[far] = total
    return found


def log_near_one(h: Any, less_one: Any) -> Any:
    """Log h from h and h − 1, whichever has the digits; NumPy's complex log1p has not."""
    if not np.iscomplexobj(h):
        near = np.abs(less_one) < 0.5
        return np.where(near, np.log1p(np.where(near, less_one, 0.0)), np.log(h))
    a, b = less_one.real, less_one.imag
    square = a * (2 + a) + b * b  # |h|² − 1
    found = np.empty(h.shape, dtype=h.dtype)
    found.real = np.where(np.abs(square) < 0.5, 0.5 * np.log1p(square), np.log(np.abs(h)))
    found.imag = np.arctan2(h.imag, h.real)
    return found


def _expm1(w: Any) -> Any:
    """e^w − 1 with the digits of a small w."""
    if not np.iscomplexobj(w):
        return np.expm1(w)
    grown, turned = np.expm1(w.real), np.sin(0.5 * w.imag)
    return grown - 2 * (1 + grown) * turned**2 + 1j * (1 + grown) * np.sin(w.imag)


def transforms(t: np.ndarray, z: np.ndarray) -> Transforms:
    """The transforms at thresholds t and arguments z, of shapes that broadcast.

    Args:
        t: thresholds, real, in standard deviations of the score.
        z: arguments, real or complex.
    """
    t, z = np.broadcast_arrays(np.asarray(t, np.float64), z)
    y: Any = t + z
    left = y.real < 0
    folded = np.where(left, -y, y)
    density = np.exp(-0.5 * t * t) / math.sqrt(2 * math.pi)
    ratio = mills(folded)
    above, second = density * ratio, density * _second(folded, ratio)
    every, rest = ndtr(t) + above, above - ndtr(-t)  # h, and h − 1
    if left.any():
        grown = (z * t + 0.5 * z * z)[left]
        line, t, y = np.exp(grown), t[left], y[left]  # the first is φ(t)∫ over the whole line
        folded, over = above[left], np.where(t > 0, line - ndtr(-t), _expm1(grown) + ndtr(t))
        above[left], rest[left] = line - folded, over - folded
        every[left] = line + ndtr(t) - folded
        second[left] = line * (1 + y * y) - second[left]
    return Transforms(above, second, log_near_one(every, rest), every)


def log_mills(y: Any) -> Any:
    """Log J₀(y), of real or complex y, also where J₀ itself would overflow."""
    left = y.real < 0
    ratio = mills(np.where(left, -y, y))
    if not left.any():
        return np.log(ratio)
    half = 0.5 * y[left] ** 2
    over = np.maximum(half.real - _LARGEST, 0.0)
    ratio[left] = 2 * _ROOT_PI_HALF * np.exp(half - over) - ratio[left]
    found = np.log(ratio)
    found[left] += over
    return found
