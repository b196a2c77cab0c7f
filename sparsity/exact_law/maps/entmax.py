"""The exact law of entmax rows of every order 1 < α ≤ 2: support and participation.

Entmax of order α = 1 + 1/q is the threshold map of weights p = (x/c)^q, c = q/γ; the scheme is
`threshold_maps`. For α = 1.5 the exponent zx² leaves a normal density, and all means over one key
are Mills ratios (`gaussian_tail`). For other orders they are integrals along rays
(`gaussian_tail`): g_a = E[(x/c)^a e^(−zp); ε > t] of a = q − 1, 2q and 3q − 1.

For q > 2 those have a branch point at z = 0, so the contour crosses the real axis to the right of
it, also where the saddle point would lie to the left: there the density of t is small, and only its
digits are lost. Where it is small is found from the same integrals with the excesses of weight
p > 2 left out, which no row has: those are entire, with a saddle point on the real axis always. The
bound holds, besides, half the nodes along the rays. Where all weights are near 1/n, powers of γ
take the place of the integral.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sparsity.exact_law.integration import refuse_unresolved
from sparsity.exact_law.maps.gaussian_tail import (
    Power,
    PowerMeans,
    RayPiece,
    along_rays,
    best_rays,
    of_squared_excess,
    real_axis,
)
from sparsity.exact_law.maps.threshold_maps import (
    CONTOUR_STEP,
    REACH,
    KeyMeans,
    Law,
    Place,
    ThresholdMap,
    integrate,
    judged,
)
from sparsity.special import ndtr

_ALL_IN = 14.0  # c/√n from which every key of entmax-1.5 has a weight
_CONTOURS = 33  # thresholds at which the contour of other orders is placed; between, it follows
_LEAST_CROSSING = 1.0  # of the real axis: to the right of the branch point
_PERIODS = 4.0  # of e^z along the contour's width, where it does not cross at a saddle point
_MOST_WEIGHT = 2.0  # that counts where the thresholds are looked for
_LOOK = 64  # nodes there
_NODES = (64, 128, 256, 512)  # along a ray, until the last two agree
# A difference between two numbers of nodes for which no more are taken. Tanh-sinh squares its error
# as nodes double: the finer of the two is far better, and 1e-8 is a bound, not the error.
_GOOD = 1e-8
_NEAR = 1e-2  # a total that is near enough to 1 to tell which points matter
_NOTHING = 1e-19  # of a mean: points that add less are not refined
# Share of the way from the mean score to the threshold at which a key counts as one without weight
# in `even_rows`: the threshold itself moves with the scores. Less widens the bound.
_SAFE = 0.7
_ORDERS = ((1, 1), (2, 0), (3, 1))  # (k, j) of the powers kq − j: q − 1, 2q and 3q − 1


class EntmaxThreeHalves(ThresholdMap):
    """The means over one key of p = x²/c², with z in units of 1/c²."""

    q = 2.0
    points = 241
    bisections = 44

    def __init__(self, gamma: float) -> None:
        self.c = 2 / gamma
        self.total = self.c**2

    def means(self, t: np.ndarray, z: np.ndarray) -> KeyMeans:
        """Return the means over one key; the slope of x² is 2x."""
        g, log_h, h = of_squared_excess(t, z)
        square = self.c**4
        return KeyMeans(g[0], 2 * g[1], g[4] / square, 2 * g[5] / square, log_h, h)

    def means_on_axis(self, t: np.ndarray, z: np.ndarray) -> tuple[KeyMeans, Any, Any]:
        """Return these at real arguments, in units of x."""
        g, log_h, h = of_squared_excess(t, z)
        return KeyMeans(g[0], 2 * g[1], g[4], 2 * g[5], log_h, h), g[2], 2 * g[3]

    def bracket(self, t: np.ndarray, n: np.ndarray) -> Any:
        """Return ends in ln(1 + 2z): z > −½, where the density ends."""
        most = 1 + 2 * (4 * (n + 4) / self.c**2 + 2 * np.abs(t) / self.c + 10)
        high = np.log(np.broadcast_to(most, t.shape))
        return np.full(t.shape, -60.0), high, lambda x: 0.5 * np.expm1(x)


class Entmax(ThresholdMap):
    """The means over one key of p = (x/c)^q, along rays."""

    points = 193

    def __init__(self, alpha: float, gamma: float) -> None:
        self.q = 1 / (alpha - 1)
        self.c = self.q / gamma
        self.power = Power(self.q, self.c)

    def of_orders(self, found: PowerMeans) -> KeyMeans:
        """Return the means over one key, given those of the powers q − 1, 2q and 3q − 1."""
        # p = (x/c)^q has the slope p′ = (q/c)(x/c)^(q−1): p′, p² and p²p′ are powers of x.
        slope, square, square_slope = found.orders[-3:]
        steep = self.q / self.c
        above, _, log_all, all_ = found
        return KeyMeans(above, steep * slope, square, steep * square_slope, log_all, all_)

    def means_on_axis(self, t: np.ndarray, z: np.ndarray) -> tuple[KeyMeans, Any, Any]:
        """Return the means over one key, without excesses of weights beyond 2."""
        on = real_axis(t, z, self.power, _MOST_WEIGHT)
        found = along_rays(t, z, self.power, ((1, 0), (2, 1), *_ORDERS), on, _LOOK)
        return self.of_orders(found), found.orders[0], self.q / self.c * found.orders[1]

    def bracket(self, t: np.ndarray, n: np.ndarray) -> Any:
        """Return ends in arsinh z."""
        low, high = (np.full(t.shape, math.asinh(z)) for z in (-1e9, 1e12))
        return low, high, np.sinh

    def places(self, n: np.ndarray) -> Place:
        """Return thresholds of rows of n, and the contour of each, to the right of 0."""
        low, high = self.window(n)
        # A saddle costs two dozen transforms: they are looked for at a few thresholds only. The
        # integral is the same whatever the contour, so that it need not follow them exactly. Right
        # of the saddle the integrand oscillates at the rate of its slope, and the width follows
        # that instead of the curvature.
        few, t = (np.linspace(low, high, count, axis=1) for count in (_CONTOURS, self.points))
        z = np.maximum(self.saddles(few, n), _LEAST_CROSSING)
        _, slope, curvature = self.growth(few, z, n)
        width = np.minimum(np.maximum(curvature, 1e-12) ** -0.5, _PERIODS / np.abs(slope))

        def followed(x: np.ndarray) -> np.ndarray:
            rows = zip(t, few, np.log(x), strict=True)
            return np.exp(np.stack([np.interp(*row) for row in rows]))

        return Place(t, followed(z), followed(width), np.zeros(t.shape))

    def law(self, n: np.ndarray) -> Law:
        """Return the law of a few lengths, by as many nodes along the rays as it takes."""
        m = n[:, None]
        place = self.places(m)
        z, share = self.contour(place)
        t, each = (np.broadcast_to(x[..., None], z.shape) for x in (place.t, m))
        on = best_rays(t, z, self.power)
        body, seen = np.empty((3, *z.shape)), np.full(z.shape, True)

        def rule(nodes: int) -> Law:
            rays = RayPiece(*(x[seen] for x in on))
            found = self.of_orders(along_rays(t[seen], z[seen], self.power, _ORDERS, rays, nodes))
            body[:, seen] = self.body(
                found, z[seen], each[seen], np.broadcast_to(share, z.shape)[seen]
            )
            return judged(integrate(place, m, lambda *_: body, body.size), m, self.rounding)

        # Transforms along rays are all of the work, and most points of (t, z) are far out on the
        # contour. The fewest nodes tell which points add to the means: only these are done with
        # more.
        found = rule(_NODES[0])
        if (np.abs(found.total - 1) < _NEAR).all():
            step = (place.t[:, 1] - place.t[:, 0]) * CONTOUR_STEP
            size = np.maximum(np.abs(body[:2]).max(axis=0), each * np.abs(body[2]))
            seen = size * step[:, None, None] >= _NOTHING
        for nodes in _NODES[1:]:
            coarse, found = found, rule(nodes)
            gap = np.abs(coarse.value / found.value - 1)
            found.error[:] += gap
            if (gap < _GOOD).all():
                break
        return found


def even_rows(alpha: float, gamma: float, n: np.ndarray) -> Law:
    """Return the law of rows whose weights are all near 1/n, by powers of γ up to the fourth.

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


def law_by(row: EntmaxThreeHalves | Entmax, alpha: float, gamma: float, length: np.ndarray) -> Law:
    """Return what `law` does, by the means over one key that a map of that order gives."""
    n = np.asarray(length, dtype=np.float64)
    found = even_rows(alpha, gamma, n)
    if isinstance(row, EntmaxThreeHalves):
        # Where every key has a weight, those powers of γ are all there are: the weights are squares
        # of x = s − mean + √((c² − Σ(s − mean)²)/n), and Σp² a polynomial of the scores.
        found.error[:] = np.where(row.c >= _ALL_IN * np.sqrt(n), 1e-15, np.inf)
    found.error[:, n == 1] = 0.0
    some = np.flatnonzero((n > 1) & (found.error > _GOOD).any(axis=0))
    size = max(1, row.held // (row.points * math.ceil(REACH / CONTOUR_STEP)))
    for start in range(0, len(some), size):
        part = some[start : start + size]
        with np.errstate(all="ignore"):  # far out, where nothing falls
            few = row.law(n[part])
        better = few.error.max(axis=0) < found.error[:, part].max(axis=0)
        found.replace(part[better], Law(*(x[..., better] for x in few)))
    name = "entmax-1.5" if isinstance(row, EntmaxThreeHalves) else f"entmax of order {alpha:g}"
    refuse_unresolved(found.error, gamma, name)
    return found


def law(alpha: float, gamma: float, length: np.ndarray) -> Law:
    """Return the means over rows of the support size K and of the participation Y₂ = Σp².

    Args:
        alpha: order α of the map, in (1, 2].
        gamma: spread γ > 0 of the scores.
        length: row lengths n ≥ 1, [lengths].

    Raises:
        InputError: a spread at which the law is not resolved.
    """
    row = EntmaxThreeHalves(gamma) if alpha == 1.5 else Entmax(alpha, gamma)
    return law_by(row, alpha, gamma, length)
