"""Transforms of a normal density above a threshold: of the excess, its square, and any power.

∫₀^∞ x^k e^(−zx) φ(t+x) dx = φ(t) J_k(t+z) and, of a square in the exponent, φ(t) J_k(t/w)/w^(k+1)
with w = √(1 + 2z), where J_k(y) = ∫₀^∞ x^k e^(−yx−x²/2) dx: J₀ is the Mills ratio Φ̄/φ, and
J₂ = (1+y²)J₀ − y. All are entire. To the left of the imaginary axis they are reflected,
J_k(y) = ∫_ℝ − (−1)^k J_k(−y), so that e^(y²/2) meets φ(t) before it can overflow.

Any other power q of the excess x = (ε − t)₊ takes a quadrature,

    g_a = E[(x/c)^a e^(−z(x/c)^q); ε > t] = ∫₀^∞ (x/c)^a φ(t + x) e^(−z(x/c)^q) dx,

along a ray that turns with the argument. On the real axis the integral of q > 2 ends at Re z = 0,
and oscillates before. On x = re^(−iθ) the exponent is turned back by qθ, and for θ < π/4 the
density still falls: g goes on, without a cut, to arg z < π/2 + qπ/4. Of a few rays that one is
taken on which the modulus of the integrand adds up to least, where least cancels. The rule is
tanh-sinh, over the part of the ray that counts: fractional powers at 0 do not matter to it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from sparsity.exact_law.integration import log_near_one
from sparsity.special import erfcx, ndtr, wofz

# Of the Mills ratio and its kin.
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

# Of the rays.
_DEPTH = 40.0  # e-folds down to which an integrand counts
_SHARES = np.linspace(0, 1, 7)  # of the furthest angle: the rays that are looked at
_FURTHEST = 0.65  # θ at most, below π/4, where the density no longer falls
_EARLY = 3.0  # x before which the exponent has to end the integral where the density may grow
_LEAST_COSINE = 0.2  # of the exponent on a ray: it has to fall there,
_FAINT = 3.0  # unless it is so small where the density ends that it does not matter
_LOOKS = 32  # points of a look along a ray
_SHARED = 3  # thresholds, and points of the contour, that share the ray of a look: 9 times as fast
_REACH = 3.1  # of the tanh-sinh rule's variable: beyond, its density is below 3e-14
_HELD = 2**14  # numbers of an array at once: they stay in the cache


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
    found = np.log(ratio)
    found[left] += over
    return found


def _second(y: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """Return J₂(y) for Re y ≥ 0, given J₀(y)."""
    # (1 + y²)J₀ and y agree to 2/y³: their difference has lost y⁴ of its digits, hence the series.
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


def _expm1(w: Any) -> Any:
    """Return e^w − 1 with the digits of a small w, which NumPy's has for real w alone."""
    if not np.iscomplexobj(w):
        return np.expm1(w)
    # cos b − 1 = −2 sin²(b/2) keeps the digits of a small b.
    grown, turned = np.expm1(w.real), np.sin(0.5 * w.imag)
    return grown - 2 * (1 + grown) * turned**2 + 1j * (1 + grown) * np.sin(w.imag)


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
        folded, over = above[left], np.where(t > 0, line - ndtr(-t), _expm1(grown) + ndtr(t))
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
    found = [density * each for each in _upwards(np.where(left, -y, y))]
    if left.any():  # reflected: the whole line less the other half of it
        # Over the whole line the moments of a normal about −y follow by M_k = −yM_(k−1) +
        # (k−1)M_(k−2). t²z/(1 + 2z) is what is left of t²/2 and y²/2, subtracted by hand.
        back = y[left]
        line = np.exp(-((t * t * z) / (1 + 2 * z))[left])
        whole, last = line, np.zeros_like(line)
        for k in range(_ORDERS):
            found[k][left] = whole - (-1) ** k * found[k][left]
            whole, last = -back * whole + k * last, whole
    found = [each / w ** (k + 1) for k, each in enumerate(found)]
    every = ndtr(t) + found[0]
    return found, log_near_one(every, found[0] - ndtr(-t)), every


class Power(NamedTuple):
    """The weight of an excess, (x/c)^q.

    Args:
        q: its power, ≥ 1. Of q < 1 the means of x^(q−1) are singular at x = 0, and the rule of
            `_REACH` leaves out the first 1e-15 of a ray: at q = ½, 1e-7 of them.
        c: its unit.
    """

    q: float
    c: float


class RayPiece(NamedTuple):
    """The part of a ray that counts.

    Args:
        angle: θ of x = re^(−iθ).
        low: r from which on the integrand counts.
        high: r up to which it does.
    """

    angle: np.ndarray
    low: np.ndarray
    high: np.ndarray


class PowerMeans(NamedTuple):
    """Means over one score ε ~ N(0, 1), at thresholds and arguments.

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
    """Return Re z(re^(−iθ))^q / r^q: how fast the exponential falls along a ray."""
    return np.abs(z) * np.cos(np.angle(z) - q * angle)


def _end(t: Any, z: Any, weight: Power, angle: Any) -> np.ndarray:
    """Return the r beyond which neither the density nor the exponent leaves anything."""
    # On x = re^(−iθ) the real part of (t + x)²/2 is t²/2 + tr cos θ + r² cos 2θ / 2: the larger
    # root of its equation for `_DEPTH`, or the r at which the exponential has fallen so far, if
    # sooner.
    c1, c2 = np.cos(angle), np.maximum(np.cos(2 * angle), 1e-3)
    wide = np.sqrt(np.maximum(t, 0) ** 2 * c1**2 + 2 * _DEPTH * c2)
    # Of a threshold below the mean the density first grows along the ray: by e^lift at most.
    lift = (np.minimum(t, 0) * c1) ** 2 * np.minimum(0.5 / c2, 1.0)
    fall = _fall(z, weight.q, angle)
    firm = fall > 0.25 * _LEAST_COSINE * np.abs(z)
    early = weight.c * ((_DEPTH + lift) / np.where(firm, fall, 1.0)) ** (1 / weight.q)
    return np.minimum(np.abs(wide - t * c1) / c2, np.where(firm, early, np.inf))


def _look_along(
    t: Any, z: Any, weight: Power, angle: Any, high: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return how much the moduli add up to along a ray, as a log, and where they start to count.

    The moduli are those of the integrands of g₀ and of g_(3q−1), multiplied: they bound the two
    ways in which digits get lost. The first cancels around the bulk of the scores, where x is
    small; the second, of the highest power of x that is asked for, at the far end.
    """
    # Squares as places are denser near 0, where fractional powers and steep exponentials are.
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
    """Return the angle of the ray up to which the integral may be turned.

    Nothing may be left on the arc between that ray and the end of the density. Beyond π/4 the
    density grows again: that is allowed where the exponent has ended the integral before.
    """
    # At θ = arg z / q the exponent is real and does not oscillate: nothing is won beyond. So θ < π
    # for q ≥ 1; a larger angle, of q < 1, leads around 0, on the sheet of x^q that `along_rays`
    # takes. Where the density has to fall, `_FURTHEST` is the limit.
    fall = np.maximum(_fall(z, weight.q, _FURTHEST), 1e-300)
    end = weight.c * ((_DEPTH + np.minimum(t, 0) ** 2) / fall) ** (1 / weight.q)
    full = np.angle(z) / weight.q
    return np.where(end < _EARLY, full, np.minimum(full, _FURTHEST))


def best_rays(t: np.ndarray, z: np.ndarray, weight: Power) -> RayPiece:
    """Return the ray of least cancellation for each threshold and argument, or for ones near them.

    Args:
        t: thresholds, real, in standard deviations of the score, [..., thresholds, arguments].
        z: arguments, 0 ≤ arg z < π/2 + q·`_FURTHEST`, of the same shape.
        weight: of an excess.
    """
    # A look costs as much as a transform of few nodes: neighbours share the ray that it finds, as a
    # share of their own furthest angle. Any ray below that angle gives the same integral.
    few = (..., slice(None, None, _SHARED), slice(None, None, _SHARED))
    some_t, some_z = t[few], z[few]
    furthest = _furthest(some_t, some_z, weight)
    best = np.full(some_t.shape, np.inf)
    turn, start = np.ones(some_t.shape), np.zeros(some_t.shape)
    for each in _SHARES:
        angle = each * furthest
        high = _end(some_t, some_z, weight, angle)
        mass, first = _look_along(some_t, some_z, weight, angle, high)
        faint = np.abs(some_z) * (high / weight.c) ** weight.q < _FAINT
        falls = faint | (_fall(some_z, weight.q, angle) > _LEAST_COSINE * np.abs(some_z))
        better = (mass < best) & falls
        best = np.where(better, mass, best)
        turn, start = np.where(better, each, turn), np.where(better, first, start)

    def every(x: np.ndarray) -> np.ndarray:
        whole = x.repeat(_SHARED, axis=-2).repeat(_SHARED, axis=-1)
        return whole[..., : t.shape[-2], : t.shape[-1]]

    angle = every(turn) * _furthest(t, z, weight)
    high = _end(t, z, weight, angle)
    return RayPiece(angle, every(start) * high, high)


def real_axis(t: np.ndarray, z: np.ndarray, weight: Power, most: float) -> RayPiece:
    """Return the real axis, up to a weight: for real arguments, also below 0.

    Args:
        t: thresholds, real.
        z: arguments, real, of the same shape.
        weight: of an excess.
        most: (x/c)^q beyond which the excess is left out.
    """
    angle, positive = np.zeros(t.shape), np.maximum(z, 0.0)
    end = _end(t, positive, weight, angle)
    start = _look_along(t, positive, weight, angle, end)[1] * end
    high = np.minimum(end, weight.c * most ** (1 / weight.q))
    return RayPiece(angle, np.minimum(start, 0.5 * high), high)


def along_rays(
    t: np.ndarray,
    z: np.ndarray,
    weight: Power,
    orders: tuple[tuple[int, int], ...],
    on: RayPiece,
    count: int,
) -> PowerMeans:
    """Return the transforms by the tanh-sinh rule of so many nodes.

    Args:
        t: thresholds, real, in standard deviations of the score.
        z: arguments, real or complex, of the same shape.
        weight: of an excess.
        orders: pairs (k, j), of the powers kq − j, k = 1, 2, 3 and j = 0, 1.
        on: rays, of the same shape.
        count: nodes.
    """
    # Tanh-sinh, as x^a has a branch point at the end r = 0: its nodes crowd there doubly
    # exponentially, so that the rule converges as fast as for an analytic integrand.
    q, c = weight
    s = np.linspace(-_REACH, _REACH, count)
    v = 0.5 * math.pi * np.sinh(s)
    node = 1 / (1 + np.exp(-2 * v))  # on [0, 1]
    share = 0.25 * math.pi * np.cosh(s) / np.cosh(v) ** 2 * (s[1] - s[0])

    def turned(power: float) -> Any:
        """Return e^(−iθ·power): the power of e^(−iθ) that goes on from θ = 0, beyond π as well."""
        return np.exp(-1j * power * on.angle) if np.iscomplexobj(z) else np.ones(t.shape)

    turn = turned(1.0)
    # From 0 on, node^q is common to all rays, and one power of `high` is enough.
    steep, whole = -z * turned(q), not on.low.any()
    above: Any = 0.0
    found: list[Any] = [0.0 for _ in orders]
    size = max(1, _HELD // t.size)
    for start in range(0, count, size):
        part = (slice(start, start + size), *(None,) * t.ndim)
        r = on.low + (on.high - on.low) * node[part]
        p = (on.high / c) ** q * node[part] ** q if whole else (r / c) ** q
        body = np.exp(steep * p - 0.5 * (t + turn * r) ** 2) * share[part]
        above = above + body.sum(axis=0)
        factor = {1: p, 2: p * p, 3: p * p * p}
        for i, (k, j) in enumerate(orders):
            found[i] = found[i] + (body * (factor[k] * (c / r) if j else factor[k])).sum(axis=0)
    long = (on.high - on.low) * turn / ROOT_2_PI
    found = [x * turned(k * q - j) * long for x, (k, j) in zip(found, orders, strict=True)]
    above = above * long
    every, rest = ndtr(t) + above, above - ndtr(-t)
    return PowerMeans(above, found, log_near_one(every, rest), every)
