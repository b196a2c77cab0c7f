"""The exact law of entmax rows of any order 1 < α < 2, of n independent scores N(β, γ²).

As `entmax`, whose order is 1.5. With q = 1/(α − 1) and c = q/γ the weights are p = (x/c)^q of the
excesses x_j = (ε_j − t)₊, Σp = 1 at the threshold, and |dΣp/dt| = (q/c)Σ(x/c)^(q−1). So

    E F = ∫ dt (1/2πi) ∫ dz e^z E[F · (q/c)Σ(x/c)^(q−1) · e^(−zΣp)],

and over independent keys the last mean is a product: with g_a = E[(x/c)^a e^(−zp); ε > t] and
h = E e^(−zp), the scores under the threshold with it,

    1     ->  (q/c) n g_(q−1) h^(n−1)
    K     ->  (q/c) [n g_(q−1) h^(n−1) + n(n−1) g₀ g_(q−1) h^(n−2)]
    Σp²   ->  (q/c) [n g_(3q−1) h^(n−1) + n(n−1) g_2q g_(q−1) h^(n−2)].

The g are those of `rays`. For q > 2 they have a branch point at z = 0, so the contour crosses the
real axis to the right of it, also where the saddle point would lie to the left: there the density
of t is small, and only its digits are lost. Where it is small is found from the same integrals
with the excesses of weight p > 2 left out, which no row has: those are entire, with a saddle point
on the real axis always. The bound holds twice the step of either rule of `ruled`, half the nodes
along the rays, and how far the first line is from 1. Where all weights are near 1/n, powers of γ
take its place. No published form of this law was found.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri_exp

from sparsity.errors import RESOLVED, InputError
from sparsity.exact_law.rays import Power, Stretch, Transforms, straight, stretch, transforms
from sparsity.exact_law.sparsemax import STEP, Law, Place, hyperbola, narrowed, ruled

_POINTS = 193  # thresholds, odd
_FEW = 33  # of them at which the contour is placed; between, it follows
_DEPTH = 42.0  # e-folds of the density of t down to which it counts
_BISECTIONS = 24
_LOWEST, _HIGHEST = -1e9, 1e12  # saddle points
_LEAST = 1.0  # crossing of the real axis
_OFF = 4.0  # periods of e^z along the contour's width, where it does not cross at a saddle point
_MOST = 2.0  # weight that counts where the thresholds are looked for
_LOOK = 64  # nodes there
_NODES = (64, 128, 256, 512)  # along a ray
_GOOD = 1e-8  # a difference for which no more of them are taken
_NEAR = 1e-2  # a total that is nearly 1
_NOTHING = 1e-19  # of a mean, of which all points make up 1 or more
_ROUNDING = np.array([[1e-11], [1e-11]])  # of E K and E Y₂
_SAFE = 0.7  # of the way from the mean score to the threshold, which that moves meanwhile
_AT_ONCE = 2**16  # numbers held at once
_ORDERS = ((1, 1), (2, 0), (3, 1))  # q − 1, 2q and 3q − 1


def _slope(t: np.ndarray, z: np.ndarray, n: np.ndarray, weight: Power) -> tuple[np.ndarray, ...]:
    """Of z + log g_(q−1) + (n−1) log h on the real axis: value, first and second derivative."""
    on = straight(t, z, weight, _MOST)
    found = transforms(t, z, weight, ((1, 0), (2, 1), *_ORDERS), on, _LOOK)
    g_q, g_2q1, g_q1, g_2q, g_3q1 = found.orders
    one, all_ = g_2q1 / g_q1, g_q / found.all
    value = z + np.log(g_q1) + (n - 1) * found.log_all
    curvature = g_3q1 / g_q1 - one**2 + (n - 1) * (g_2q / found.all - all_**2)
    return value, 1 - one - (n - 1) * all_, curvature


def _saddle(t: np.ndarray, n: np.ndarray, weight: Power) -> np.ndarray:
    """The saddle points of the integrand, by bisection in arsinh z."""
    low = np.full(t.shape, math.asinh(_LOWEST))
    high = np.full(t.shape, math.asinh(_HIGHEST))
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        falls = ~(_slope(t, np.sinh(middle), n, weight)[1] >= 0)
        low, high = np.where(falls, middle, low), np.where(falls, high, middle)
    return np.sinh(high)


def looked_at(t: np.ndarray, n: np.ndarray, weight: Power) -> Place:
    """The saddle points on the real axis, and to leading order the density of t."""
    z = _saddle(t, n, weight)
    value, _, curvature = _slope(t, z, n, weight)
    curvature = np.where(curvature > 0, curvature, 1.0)
    size = value - 0.5 * np.log(curvature)
    return Place(t, z, curvature**-0.5, np.where(np.isfinite(size), size, -np.inf))


def window(n: np.ndarray, weight: Power) -> tuple[np.ndarray, np.ndarray]:
    """The ends between which the threshold of rows of n lies, but for e^(−_DEPTH) of them."""
    m = n[:, 0]
    # n(mean − t)^q ≤ Σ(ε − t)₊^q = c^q ≤ n(max − t)^q, and max − c ≤ t.
    even = weight.c * m ** (-1 / weight.q)
    low = np.maximum(-10 / np.sqrt(m) - even, ndtri_exp(-_DEPTH / m) - weight.c)
    high = -ndtri_exp(-_DEPTH - np.log(m)) - even
    return narrowed(low, high, lambda t: looked_at(t, n, weight).log_size)


def _places(n: np.ndarray, weight: Power) -> Place:
    """Thresholds of rows of n, and the contour of each."""
    low, high = window(n, weight)
    few, t = (np.linspace(low, high, count, axis=1) for count in (_FEW, _POINTS))
    z = np.maximum(_saddle(few, n, weight), _LEAST)
    _, slope, curvature = _slope(few, z, n, weight)
    width = np.minimum(np.maximum(curvature, 1e-12) ** -0.5, _OFF / np.abs(slope))

    def followed(x: np.ndarray) -> np.ndarray:
        rows = zip(t, few, np.log(x), strict=True)
        return np.exp(np.stack([np.interp(*row) for row in rows]))

    return Place(t, followed(z), followed(width), np.zeros(t.shape))


def _integrands(found: Transforms, z: np.ndarray, m: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Integrands of 1, K and Y₂ over (t, u), real, of which share is what does not turn on keys."""
    g_q1, g_2q, g_3q1 = found.orders
    others = share * np.exp(z + (m - 1) * found.log_all + np.log(m))
    pair = (m - 1) * g_q1 / found.all
    values = (g_q1 * others, (g_q1 + found.above * pair) * others, (g_3q1 + g_2q * pair) * others)
    body = np.stack([value.real for value in values])
    return np.where(np.isfinite(body), body, 0.0)  # far out, where h or e^z is nothing


def _ruled(n: np.ndarray, place: Place, weight: Power) -> Law:
    """The law of a few lengths, by as many nodes as it takes, where the fewest find anything."""
    _, along, turn = hyperbola(STEP)
    width = place.width[..., None]
    z = place.saddle[..., None] + width * along
    t, m = (np.broadcast_to(x[..., None], z.shape) for x in (place.t, n))
    share = turn * width * (weight.q / weight.c / math.pi)
    on, body, seen = stretch(t, z, weight), np.empty((3, *z.shape)), np.full(z.shape, True)

    def rule(nodes: int) -> Law:
        rays = Stretch(*(x[seen] for x in on))
        found = transforms(t[seen], z[seen], weight, _ORDERS, rays, nodes)
        body[:, seen] = _integrands(found, z[seen], m[seen], share[seen])
        return ruled(n, place, lambda *_: body, len(n), _ROUNDING)

    found = rule(_NODES[0])
    if (np.abs(found.total - 1) < _NEAR).all():
        step = (place.t[:, 1] - place.t[:, 0]) * STEP
        size = np.maximum(np.abs(body[:2]).max(axis=0), m * np.abs(body[2]))
        seen = size * step[:, None, None] >= _NOTHING
    for nodes in _NODES[1:]:
        coarse, found = found, rule(nodes)
        gap = np.abs(coarse.value / found.value - 1)
        found.error[:] += gap
        if (gap < _GOOD).all():
            break
    return found


def _even(alpha: float, gamma: float, n: np.ndarray) -> Law:
    """The law of rows whose weights are all near 1/n, by powers of γ up to the fourth.

    With u = n^(α−1)(s − mean), of Σu = 0, the weights are (1 + (α−1)(u − v))^q/n, and v follows
    from Σp = 1. Means over rows of Σu²/n, its square and Σu⁴/n are those of χ² of n − 1 degrees of
    freedom. What is left out was at most 0.6ρ⁶, ρ = n^(α−1)γ, at every order looked at.
    """
    a, square = alpha - 1, (gamma * n ** (alpha - 1)) ** 2
    second, both = square * (n - 1) / n, square**2 * (n * n - 1) / n**2
    third, most = (1 - a) * (1 - 2 * a), (2 - a) * (2 - 2 * a)
    fourth = (1 - a) ** 2 / 4 + (1 - a) / 2 * (third - most)
    alone = most * (2 - 3 * a) / 12 - third * (1 - 3 * a) / 12
    value = np.stack([n, (1 + second + fourth * both + 3 * alone * second**2) / n])
    left = n * ndtr(-_SAFE / (a * np.sqrt(square)))  # keys whose weight is 0
    return Law(value, np.stack([left, 2 * square**3 + left]) + 1e-15, np.ones(n.shape))


def law(alpha: float, gamma: float, length: np.ndarray) -> Law:
    """Means over rows of the support size K and of the participation Y₂ = Σp².

    Args:
        alpha: order α of the map, in (1, 2].
        gamma: spread γ > 0 of the scores.
        length: row lengths n ≥ 1, [lengths].

    Raises:
        InputError: a spread at which the law is not resolved.
    """
    n, q = np.asarray(length, dtype=np.float64), 1 / (alpha - 1)
    weight, found = Power(q, q / gamma), _even(alpha, gamma, n)
    found.error[:, n == 1] = 0.0
    some = np.flatnonzero((n > 1) & (found.error > _GOOD).any(axis=0))
    size = max(1, _AT_ONCE // (_POINTS * len(hyperbola(STEP)[0])))
    for start in range(0, len(some), size):
        part = some[start : start + size]
        with np.errstate(all="ignore"):  # far out, where nothing falls
            m = n[part, None]
            few = _ruled(m, _places(m, weight), weight)
        better = few.error.max(axis=0) < found.error[:, part].max(axis=0)
        for into, new in zip(found, few, strict=True):
            into[..., part[better]] = new[..., better]
    if not (found.error < RESOLVED).all():
        fix = f"the exact law of entmax of order {alpha:g} is not resolved there; use estimate"
        raise InputError("gamma", gamma, fix)
    return found
