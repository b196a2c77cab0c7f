"""Transforms of powers of a normal excess, by quadrature along a ray that turns with the argument.

    g_a = E[(x/c)^a e^(−z(x/c)^q); ε > t] = ∫₀^∞ (x/c)^a φ(t + x) e^(−z(x/c)^q) dx,  x = (ε − t)₊.

On the real axis the integral of q > 2 ends at Re z = 0, and oscillates before. On x = re^(−iθ) the
exponent is turned back by qθ, and for θ < π/4 the density still falls: g goes on, without a cut, to
arg z < π/2 + qπ/4. Of a few rays that one is taken on which the modulus of the integrand adds up to
least, where least cancels. The rule is tanh-sinh, over the part of the ray that counts: fractional
powers at 0 do not matter to it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from sparsity.exact_law.mills import log_near_one

_DEPTH = 40.0  # e-folds down to which an integrand counts
_TURNS = np.linspace(0, 1, 7)  # of the furthest ray
_FURTHEST = 0.65  # of θ, below π/4
_EARLY = 3.0  # an end of (x/c)^q before which the density may grow
_FIRM = 0.2  # cosine by which the exponent has to fall on a ray,
_FAINT = 3.0  # unless it is nothing where the density ends
_LOOKS = 32  # points of a look along a ray
_SHARED = 3  # thresholds, and points of the contour, that share the ray of a look
_REACH = 3.1  # of the rule's variable
_AT_ONCE = 2**14  # numbers held at once


class Power(NamedTuple):
    """The weight of an excess, (x/c)^q.

    Args:
        q: its power, ≥ 1.
        c: its unit.
    """

    q: float
    c: float


class Stretch(NamedTuple):
    """The part of a ray that counts.

    Args:
        angle: θ of x = re^(−iθ).
        low: r from which on the integrand counts.
        high: r up to which it does.
    """

    angle: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Transforms(NamedTuple):
    """Of one score ε ~ N(0, 1), at thresholds and arguments.

    Args:
        above: E[e^(−z(x/c)^q); ε > t].
        orders: g_a of the powers a asked for.
        log_all: log of E e^(−z(x/c)^q), the scores under the threshold with it.
        all: E e^(−z(x/c)^q).
    """

    above: Any
    orders: list[Any]
    log_all: Any
    all: Any


def _fall(z: Any, q: float, angle: Any) -> Any:
    """By which e^(−zx^q) falls along a ray."""
    return np.abs(z) * np.cos(np.angle(z) - q * angle)


def _end(t: Any, z: Any, weight: Power, angle: Any) -> np.ndarray:
    """The r beyond which neither the density nor the exponent leaves anything."""
    c1, c2 = np.cos(angle), np.maximum(np.cos(2 * angle), 1e-3)
    wide = np.sqrt(np.maximum(t, 0) ** 2 * c1**2 + 2 * _DEPTH * c2)
    lift = (np.minimum(t, 0) * c1) ** 2 * np.minimum(0.5 / c2, 1.0)
    fall = _fall(z, weight.q, angle)
    firm = fall > 0.25 * _FIRM * np.abs(z)
    early = weight.c * ((_DEPTH + lift) / np.where(firm, fall, 1.0)) ** (1 / weight.q)
    return np.minimum(np.abs(wide - t * c1) / c2, np.where(firm, early, np.inf))


def _look(t: Any, z: Any, weight: Power, angle: Any, high: Any) -> tuple[np.ndarray, np.ndarray]:
    """How much the moduli add up to along a ray, as a log, and where they start to count.

    Those of g₀ and g_(3q−1): the one cancels around the bulk of the scores, the other at the end.
    """
    share, order = (np.arange(_LOOKS) / _LOOKS) ** 2, 3 * weight.q - 1
    fall = _fall(z, weight.q, angle) * (high / weight.c) ** weight.q
    size = (
        -(t * np.cos(angle) * high)[..., None] * share
        - (0.5 * np.cos(2 * angle) * high**2)[..., None] * share**2
        - fall[..., None] * share**weight.q
    )
    peak = size.max(axis=-1)
    kept = np.exp(size - peak[..., None]) * np.gradient(share)
    mass = np.log(kept.sum(axis=-1)) + np.log((kept * share**order).sum(axis=-1))
    first = (size > peak[..., None] - _DEPTH).argmax(axis=-1) - 1
    return mass + 2 * peak + (2 + order) * np.log(high), np.where(first < 0, 0.0, share[first])


def _furthest(t: Any, z: Any, weight: Power) -> np.ndarray:
    """The ray up to which nothing is left between it and the end of the density.

    Beyond π/4 the density grows again. That is allowed where the exponent has ended it before.
    """
    fall = np.maximum(_fall(z, weight.q, _FURTHEST), 1e-300)
    end = weight.c * ((_DEPTH + np.minimum(t, 0) ** 2) / fall) ** (1 / weight.q)
    full = np.angle(z) / weight.q
    return np.where(end < _EARLY, full, np.minimum(full, _FURTHEST))


def _firm(z: Any, weight: Power, angle: Any, high: Any) -> Any:
    """Whether the exponent falls on a ray, or is nothing on it."""
    faint = np.abs(z) * (high / weight.c) ** weight.q < _FAINT
    return faint | (_fall(z, weight.q, angle) > _FIRM * np.abs(z))


def _chosen(t: Any, z: Any, weight: Power) -> tuple[np.ndarray, np.ndarray]:
    """The share of the furthest ray that cancels least, and where on it the integrand starts."""
    furthest = _furthest(t, z, weight)
    best = np.full(t.shape, np.inf)
    turn, start = np.ones(t.shape), np.zeros(t.shape)
    for each in _TURNS:
        angle = each * furthest
        high = _end(t, z, weight, angle)
        mass, first = _look(t, z, weight, angle, high)
        better = (mass < best) & _firm(z, weight, angle, high)
        best = np.where(better, mass, best)
        turn, start = np.where(better, each, turn), np.where(better, first, start)
    return turn, start


def stretch(t: np.ndarray, z: np.ndarray, weight: Power) -> Stretch:
    """The ray of least cancellation for each threshold and argument, or for ones near them.

    Args:
        t: thresholds, real, in standard deviations of the score, [..., thresholds, arguments].
        z: arguments, 0 ≤ arg z < π/2 + q·`_FURTHEST`, of the same shape.
        weight: of an excess.
    """
    few = (..., slice(None, None, _SHARED), slice(None, None, _SHARED))

    def every(x: np.ndarray) -> np.ndarray:
        whole = x.repeat(_SHARED, axis=-2).repeat(_SHARED, axis=-1)
        return whole[..., : t.shape[-2], : t.shape[-1]]

    turn, start = (every(x) for x in _chosen(t[few], z[few], weight))
    angle = turn * _furthest(t, z, weight)
    high = _end(t, z, weight, angle)
    return Stretch(angle, start * high, high)


def straight(t: np.ndarray, z: np.ndarray, weight: Power, most: float) -> Stretch:
    """The real axis, up to a weight: for real arguments, also below 0.

    Args:
        t: thresholds, real.
        z: arguments, real, of the same shape.
        weight: of an excess.
        most: (x/c)^q beyond which the excess is left out.
    """
    angle, positive = np.zeros(t.shape), np.maximum(z, 0.0)
    end = _end(t, positive, weight, angle)
    start = _look(t, positive, weight, angle, end)[1] * end
    high = np.minimum(end, weight.c * most ** (1 / weight.q))
    return Stretch(angle, np.minimum(start, 0.5 * high), high)


def _rule(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of the tanh-sinh rule on [0, 1]."""
    s = np.linspace(-_REACH, _REACH, count)
    v = 0.5 * math.pi * np.sinh(s)
    share = 0.25 * math.pi * np.cosh(s) / np.cosh(v) ** 2 * (s[1] - s[0])
    return 1 / (1 + np.exp(-2 * v)), share


def transforms(
    t: np.ndarray,
    z: np.ndarray,
    weight: Power,
    orders: tuple[tuple[int, int], ...],
    on: Stretch,
    count: int,
) -> Transforms:
    """The transforms by the rule of so many nodes.

    Args:
        t: thresholds, real, in standard deviations of the score.
        z: arguments, real or complex, of the same shape.
        weight: of an excess.
        orders: pairs (k, j), of the powers kq − j, k = 1, 2, 3 and j = 0, 1.
        on: rays, of the same shape.
        count: nodes.
    """
    q, c = weight
    node, share = _rule(count)
    turn = np.exp(-1j * on.angle) if np.iscomplexobj(z) else np.ones(t.shape)
    steep, whole = -z * turn**q, not on.low.any()
    above: Any = 0.0
    found: list[Any] = [0.0 for _ in orders]
    size = max(1, _AT_ONCE // t.size)
    for start in range(0, count, size):
        part = (slice(start, start + size), *(None,) * t.ndim)
        r = on.low + (on.high - on.low) * node[part]
        p = (on.high / c) ** q * node[part] ** q if whole else (r / c) ** q
        body = np.exp(steep * p - 0.5 * (t + turn * r) ** 2) * share[part]
        above = above + body.sum(axis=0)
        factor = {1: p, 2: p * p, 3: p * p * p}
        for i, (k, j) in enumerate(orders):
            found[i] = found[i] + (body * (factor[k] * (c / r) if j else factor[k])).sum(axis=0)
    long = (on.high - on.low) * turn / math.sqrt(2 * math.pi)
    found = [x * turn ** (k * q - j) * long for x, (k, j) in zip(found, orders, strict=True)]
    above = above * long
    every, rest = ndtr(t) + above, above - ndtr(-t)
    return Transforms(above, found, log_near_one(every, rest), every)
