"""The exact law of sparsemax rows of n independent scores N(β, γ²): Kac–Rice and one contour.

The threshold τ solves G(τ) = Σ(s_j − τ)₊ = 1, and G′ = −K, the number of keys above it, so that
E F = ∫ dτ E[F · K · δ(G(τ) − 1)] for any function F of the weights. With t = τ/γ, excesses
x_j = (ε_j − t)₊ of normal ε_j and c = 1/γ, the δ is an inverse Laplace transform,

    E F = ∫ dt (1/2πi) ∫ dz e^(zc) E[F · K · e^(−zΣx)],

and over independent keys the last mean is a product: with g = E[e^(−zx); ε > t], h = E e^(−zx) and
g₂ = E[x² e^(−zx); ε > t], all of them error functions,

    1     ->  n g h^(n−1)
    K     ->  n g h^(n−1) + n(n−1) g² h^(n−2)
    Σp²   ->  [n g₂ h^(n−1) + n(n−1) g₂ g h^(n−2)] / c².

The contour is a hyperbola through the saddle point of the first, on which everything decays like
e^(−|z|). Both rules are trapezoidal; the bound holds twice the step of either, and how far the
first line is from 1. No published form of this law was found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, ndtri_exp

from sparsity.errors import RESOLVED, InputError
from sparsity.exact_law.mills import mills, transforms
from sparsity.quantities.base import within

_ANGLE = math.pi / 8  # by which the hyperbola bends to the left: halfway to where g grows
STEP = 0.06  # of the hyperbola's parameter
_REACH = 5.4  # of it
_POINTS = 161  # thresholds, odd
_ZOOM = 33  # thresholds of a look at where they lie
_ZOOMS = 3
_DEPTH = 42.0  # e-folds of the density of t down to which it counts
_BISECTIONS = 24
_DEEPEST = 36.0  # of (t + z)² − t² its root, beyond which e^(half of it) leaves float64
_ROUNDING = np.array([[3e-13], [3e-12]])  # of E K, and of E Y₂, in whose g₂ digits cancel
ALL_IN = 11.0  # standard deviations below the mean that no score of a row has
_AT_ONCE = 2**17  # numbers held at once


class Place(NamedTuple):
    """Thresholds at which the integrand of a row is looked at.

    Args:
        t: thresholds, [lengths, points].
        saddle: of each.
        width: of the integrand along the imaginary axis there.
        log_size: of the integrand there.
    """

    t: np.ndarray
    saddle: np.ndarray
    width: np.ndarray
    log_size: np.ndarray


def _slope(t: np.ndarray, z: np.ndarray, n: np.ndarray, c: float) -> tuple[np.ndarray, ...]:
    """Of zc + log g + (n−1) log h on the real axis: value, first and second derivative."""
    found = transforms(t, z)
    y, density = t + z, np.exp(-0.5 * t * t) / math.sqrt(2 * math.pi)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # E[x e^(−zx); ε > t], by J₁ = 1 − yJ₀ and J₂ = J₀ − yJ₁
        near = density - y * found.above
        first = np.where(np.abs(y) < 2, near, (found.above - found.second) / y)
        one, all_ = first / found.above, first / found.all
        value = z * c + np.log(found.above) + (n - 1) * found.log_all
        slope = c - one - (n - 1) * all_
        curvature = found.second / found.above - one**2
        curvature = curvature + (n - 1) * (found.second / found.all - all_**2)
    return value, slope, curvature


def _at(t: np.ndarray, n: np.ndarray, c: float) -> Place:
    """The saddle points of the integrand, by bisection of its slope: between −c and n/c in t + z.

    The contour may lie anywhere; through the saddle nothing cancels on it.
    """
    low = np.arcsinh(np.maximum(-c, -np.sqrt(t * t + _DEEPEST**2)))
    high = np.arcsinh(np.broadcast_to(n / c, t.shape)) + 1e-3
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        slope = _slope(t, np.sinh(middle) - t, n, c)[1]
        low, high = np.where(slope < 0, middle, low), np.where(slope < 0, high, middle)
    z = np.sinh(0.5 * (low + high)) - t
    value, _, curvature = _slope(t, z, n, c)
    curvature = np.where(curvature > 0, curvature, c * c)
    size = value - 0.5 * np.log(curvature)
    return Place(t, z, curvature**-0.5, np.where(np.isfinite(size), size, -np.inf))


def narrowed(
    low: np.ndarray, high: np.ndarray, log_size: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Ends between which all but e^(−_DEPTH) of an integrand over thresholds lies.

    Args:
        low: thresholds that nothing is below, [lengths].
        high: that nothing is above.
        log_size: thresholds [lengths, points] -> the log of the integrand.
    """
    for _ in range(_ZOOMS):
        t = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, _ZOOM)
        size = log_size(t)
        seen = size > size.max(axis=1, keepdims=True) - _DEPTH
        first = np.maximum(seen.argmax(axis=1) - 1, 0)
        last = np.minimum(_ZOOM - seen[:, ::-1].argmax(axis=1), _ZOOM - 1)
        rows = np.arange(len(low))
        low, high = t[rows, first], t[rows, last]
    return low, high


def places(n: np.ndarray, c: float) -> Place:
    """Where the threshold of rows of n lies, but for e^(−_DEPTH) of them.

    Args:
        n: row lengths > 1, [lengths, 1].
        c: 1/γ.
    """
    m = n[:, 0]
    # n(mean − t) ≤ Σ(ε − t)₊ = c ≤ n(max − t), and max − c ≤ t.
    low = np.maximum(-10 / np.sqrt(m) - c / m, ndtri_exp(-_DEPTH / m) - c)
    high = -ndtri_exp(-_DEPTH - np.log(m)) - c / m
    low, high = narrowed(low, high, lambda t: _at(t, n, c).log_size)
    return _at(low[:, None] + (high - low)[:, None] * np.linspace(0, 1, _POINTS), n, c)


def hyperbola(step: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The upper half of the contour: its parameter, the way from the saddle, and dz/i du of both.

    Args:
        step: of the parameter.
    """
    u = np.arange(0.0, _REACH, step)
    along = math.sin(_ANGLE) * (1 - np.cosh(u)) + 1j * math.cos(_ANGLE) * np.sinh(u)
    turn = (-math.sin(_ANGLE) * np.sinh(u) + 1j * math.cos(_ANGLE) * np.cosh(u)) / 1j
    turn[0] *= 0.5  # it stands for both halves
    return u, along, turn


def _integrands(place: Place, n: np.ndarray, c: float) -> np.ndarray:
    """Integrands of 1, K and Y₂ over (t, u), real, [3, lengths, points, nodes]."""
    _, along, turn = hyperbola(STEP)
    t, width = place.t[..., None], place.width[..., None]
    z = place.saddle[..., None] + width * along
    found = transforms(t, z)
    m = n[..., None]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        others = np.exp(z * c + (m - 1) * found.log_all + np.log(m)) * turn * width / math.pi
        ratio = (m - 1) / found.all
        one = found.above * others
        each = (1 + ratio * found.above) * others
        values = (one, found.above * each, found.second / c**2 * each)
        body = np.stack([value.real for value in values])
    return np.where(np.isfinite(body), body, 0.0)  # far out, where h or e^(zc) is nothing


class Law(NamedTuple):
    """What the law gives, for each length.

    Args:
        value: E K and E Y₂, [2, lengths].
        error: bounds on their relative errors, [2, lengths].
        total: the probability that the rule finds, which is 1, [lengths].
    """

    value: np.ndarray
    error: np.ndarray
    total: np.ndarray


def ruled(
    n: np.ndarray,
    place: Place,
    integrands: Callable[[Place, np.ndarray], np.ndarray],
    size: int,
    rounding: np.ndarray,
) -> Law:
    """The law by the double integral, of these or other maps with a threshold.

    Args:
        n: row lengths, [lengths, 1].
        place: where the thresholds and the contour lie, along lengths.
        integrands: (place, n) -> those of 1, K and Σp², [3, lengths, thresholds, contour].
        size: lengths at a time.
        rounding: of the means, relative, [2, 1].
    """
    step = (place.t[:, 1] - place.t[:, 0]) * STEP
    out = np.empty((3, 3, len(n)))  # of the rule, of twice its step in t, and in u
    for start in range(0, len(n), size):
        part = slice(start, start + size)
        body = integrands(Place(*(x[part] for x in place)), n[part])
        coarse = (2 * body[:, :, ::2].sum(axis=(2, 3)), 2 * body[..., ::2].sum(axis=(2, 3)))
        out[:, :, part] = np.stack([body.sum(axis=(2, 3)), *coarse]) * step[part]
    (total, *means), *coarse = out
    value = np.stack(means)
    gap = sum(np.abs(1 - other[1:] / value) for other in coarse)
    error = gap + np.abs(total - 1) + rounding
    one = np.ones(len(n))
    ends = [[one, 1 / n[:, 0]], [n[:, 0], one]]
    return Law(within(value, error, ends), error, total)


def _ruled(n: np.ndarray, c: float) -> Law:
    """The law of sparsemax."""
    n = n[:, None]
    size = max(1, _AT_ONCE // (_POINTS * math.ceil(_REACH / STEP)))
    return ruled(n, places(n, c), lambda place, m: _integrands(place, m, c), size, _ROUNDING)


def resolved(error: np.ndarray, gamma: float) -> np.ndarray:
    """The error bounds, if they are any.

    Raises:
        InputError: one of them is too large.
    """
    if not (error < RESOLVED).all():
        fix = "the exact law of sparsemax is not resolved there; use estimate"
        raise InputError("gamma", gamma, fix)
    return error


def law(gamma: float, length: np.ndarray) -> Law:
    """Means over rows of the support size K and of the participation Y₂ = Σp².

    Args:
        gamma: spread γ > 0 of the scores.
        length: row lengths n ≥ 1, [lengths].

    Raises:
        InputError: a spread at which the law is not resolved.
    """
    n, c = np.asarray(length, dtype=np.float64), 1 / gamma
    # Where no score is as far as 1/n below the mean, every key has a weight: p = 1/n + s − mean.
    whole = np.stack([n, 1 / n + gamma**2 * (n - 1)])
    found = Law(whole, np.full(whole.shape, 1e-15), np.ones(n.shape))
    found.error[:, n == 1] = 0.0
    some = (n > 1) & (c < ALL_IN * n)
    if some.any():
        with np.errstate(all="ignore"):  # far out, where nothing falls
            ruled = _ruled(n[some], c)
        resolved(ruled.error, gamma)
        for into, part in zip(found, ruled, strict=True):
            into[..., some] = part
    return found


def long_rows(gamma: float, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E K and E Y₂ of long rows, to leading order.

    The keys near the largest are a Poisson process: K − 1 ~ Poisson(λ), the weights are uniform on
    the simplex, E Y₂ = 2(λ − 1 + e^(−λ))/λ², and λ = h(Φ̄⁻¹(1/n))/γ with the hazard h = φ/Φ̄.
    It is approached like 1/ln n, and for small γ late: at γ = 2, E Y₂ is 0.9 % low at n = 256 and
    0.3 % at 65,536; at γ = 0.2, 10 % and 6 %; at γ = 0.1, 17 % and 9 %.

    Args:
        gamma: spread γ > 0 of the scores.
        length: row lengths n > 2, [lengths].
    """
    rate = 1 / (gamma * mills(-ndtri(1 / np.asarray(length, dtype=np.float64))))
    return 1 + rate, 2 * (rate + np.expm1(-rate)) / rate**2
