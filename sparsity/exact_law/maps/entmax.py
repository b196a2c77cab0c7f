"""The exact law of entmax-1.5 rows: support, participation, powers of it, and the largest weight.

Entmax of order 1.5 is the threshold map of weights p = (x/c)², c = 2/γ; the scheme is
`threshold_maps`. The exponent zx² leaves a normal density, so that all means over one key are Mills
ratios (`gaussian_tail`). Where every key has a weight, powers of γ take the place of the integral.

n_eff, E S_n and E max p take one integral more. The powers of Y₂ are those of `sparsemax`,

    1/Y₂^k = ∫₀^∞ v^(k−1) e^(−vY₂) dv/Γ(k),    g_a(v) = E[(x/c)^a e^(−zp−vp²); ε > t].

In the law of the largest weight all other excesses are cut off at its own X: with h_X and g_X the
integrals up to there,

    E max p = ∫dt (1/2πi)∫dz e^z n ∫dX φ(t + X) p(X) e^(−zp(X)) W(X),
    W = p′ h_X^(n−1) + (n−1) g_X h_X^(n−2),

p′ = (q/c)(X/c)^(q−1) and g_X = E[p′(x) e^(−zp); 0 < x < X]. Cut at a real X the transforms do not
fall to the left of the contour; as nothing in it is singular, X runs along the ray of x, and they
do.

For K and Y₂ the contour follows the threshold t. Here all t share a contour, through where the
density of t is largest, and all z share a ray x = re^(−iθ). Then
φ(t + x) and e^(−zp(x)) are two tables, and transforms are products of matrices. The contour is bent
by ψ and the ray is turned by θ, ψ < qθ: so e^(−zp) falls everywhere on it. They are straight where
the bulk of the scores is above the threshold, whose density would cancel.

The bound holds a coarser rule, and how far P(all rows) is from 1. Where all weights are near 1/n,
powers of γ take its place. No published form of these laws was found.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from sparsity.errors import RESOLVED
from sparsity.exact_law import integration
from sparsity.exact_law.maps.gaussian_tail import ROOT_2_PI, of_squared_excess
from sparsity.exact_law.maps.sparsemax import MORE_KEYS, NOTHING, expected_maximum
from sparsity.exact_law.maps.threshold_maps import DEPTH, KeyMeans, ThresholdMap
from sparsity.special import ndtr

_ALL_ALIKE = 1e-100  # γ below which weights are 1/n to as many digits
_ALL_IN = 14.0  # c/√n from which every key has a weight


class EntmaxThreeHalves(ThresholdMap):
    """The means over one key of p = x²/c², with z in units of 1/c²."""

    name, q = "entmax-1.5", 2.0
    points = 241
    bisections = 44

    def __init__(self, gamma: float) -> None:
        self.gamma, self.c = gamma, 2 / max(gamma, _ALL_ALIKE)
        self.total = self.c**2

    def all_in(self, n: np.ndarray) -> np.ndarray:
        """Tell in rows of which lengths every key has a weight, nearly surely."""
        return self.c >= _ALL_IN * np.sqrt(n)

    def means_all_in(self, n: np.ndarray) -> np.ndarray:
        """Return E K and E Y₂ of rows of which every key has a weight, [2, lengths].

        The weights are then squares of x = s − mean + √((c² − Σ(s − mean)²)/n), and Σp² a
        polynomial of the scores. Means over rows of Σs²/n, its square and Σs⁴/n are those of χ² of
        n − 1 degrees of freedom.
        """
        square = (self.gamma * n**0.5) ** 2
        second, both = square * (n - 1) / n, square**2 * (n * n - 1) / n**2
        return np.stack([n, (1 + second - 0.3125 * both + 0.1875 * second**2) / n])

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


_MOST_TURNED = 0.6  # θ at most, below π/4, where the density no longer falls along the ray
_LEAST_CROSSING = 1.0  # of the real axis by the contour
EVEN = 34.0  # q/ρ, ρ = √n γ, beyond which a look does not resolve: weights are about 1/n
_LOOK = 33  # thresholds of a look at where the contour is placed
_NEAR = 9.5  # standard deviations of a score that count
_WIDEST = 1.0  # panel of r, in standard deviations
_SMALLEST = -1.0  # log of |zp| up to which squares of r, which are polynomials, need no panels
_FAINT = 1e-20  # of the probability of all rows: points of (t, z) that are left out
_HELD = 2**19  # numbers of an array at once
_GOOD = 1e-10  # an error of powers of γ that is good enough
_ROUNDING = 2e-11  # relative


class Fineness(NamedTuple):
    """How fine a grid is.

    Args:
        thresholds: how many, odd.
        step: of the contour's parameter.
        nodes: of a panel.
        growth: of p along a panel, as a log.
        turned: qθ at most.
        many: θ√K at most of K keys above the threshold, and θ√K|t| below the mean.
    """

    thresholds: int
    step: float
    nodes: int
    growth: float
    turned: float
    many: float


# Of a law, and of what bounds its error: with e^(−vp²), and with the cut at the largest weight.
_DAMPED = (Fineness(129, 0.045, 14, 0.6, 0.5, 4), Fineness(97, 0.06, 12, 0.6, 0.5, 4))
_CUT = (Fineness(129, 0.05, 14, 1.2, 0.9, 2), Fineness(97, 0.07, 11, 1.2, 0.9, 2))


class Grid:
    """Points of thresholds, contour and excesses for rows of n, and what their integrals share.

    Args:
        row: the map.
        n: the row length.
        fine: how fine.

    Attributes:
        t: thresholds.
        every: dt du of the contour's points, times what does not turn on keys but e^z.
        z: points of the contour.
        p: weights (x/c)^q of the excesses x on the ray, panel by panel.
        slope: (q/c)(x/c)^(q−1).
        density: φ(t + x) dx at them, [thresholds, excesses].
        damped: e^(−zp), [contour, excesses].
        nodes: of a panel.
    """

    def __init__(self, row: EntmaxThreeHalves, n: float, fine: Fineness) -> None:
        q, c = row.q, row.c
        self.n, self.nodes = n, fine.nodes
        # Angles first: of the ray θ, as far as the density of the crowd above the threshold allows,
        # then of the contour ψ < qθ, with 0.6 as the margin in which e^(−zp) falls.
        low, high, middle, crossing, width = self._place(row)
        keys = n * float(ndtr(-middle))
        # On a turned ray the density of the bulk of the scores cancels, the more so the more keys
        # are above the threshold.
        crowded = fine.many / (max(1 - middle, 1.0) * max(keys, 1.0) ** 0.5)
        angle = min(fine.turned / q, crowded, _MOST_TURNED)
        bend = min(row.bend, 0.6 * q * angle)
        end = math.acosh(1 + DEPTH / (math.sin(bend) * width))
        along, turn = integration.hyperbola(bend, np.arange(0.0, end + fine.step, fine.step))
        self.z = crossing + width * along
        self.t, apart = np.linspace(low, high, fine.thresholds, retstep=True)
        self.every = turn * width * fine.step / math.pi * apart
        nodes, weights = integration.gauss_panels(
            self._edges(q, c, low, high, angle, fine), fine.nodes
        )
        r, turned = nodes.ravel(), np.exp(-1j * angle)
        self.p = (r / c) ** q * turned**q
        self.slope = q * self.p / (r * turned)
        density = np.exp(-0.5 * (self.t[:, None] + r * turned) ** 2) * turned / ROOT_2_PI
        self.density = density * weights.ravel()
        self.damped = np.exp(-self.z[:, None] * self.p)

    def _place(self, row: EntmaxThreeHalves) -> tuple[float, float, float, float, float]:
        """Return the ends of t, the likeliest t, where the contour crosses there, and its width."""
        even = row.c * self.n ** (-1 / row.q)
        rho, spread = row.q / even, _NEAR / math.sqrt(self.n)
        if even > EVEN:  # the threshold is the mean score less what makes all weights 1/n, nearly
            high = -even + spread + rho * (1 + spread) ** 2
            return -even - spread, high, -even, _LEAST_CROSSING, math.sqrt(self.n) / rho
        n = np.array([[self.n]])
        (low,), (high,) = row.window(n)
        look = row.look(np.linspace(low, high, _LOOK)[None], n)
        peak = int(look.log_size.argmax())
        # Its arguments belong to x²; those of p = x²/c² are c² times as large.
        saddle, width = (row.total * float(x[0, peak]) for x in (look.saddle, look.width))
        return low, high, float(look.t[0, peak]), max(saddle, _LEAST_CROSSING), width

    def _edges(
        self, q: float, c: float, low: float, high: float, angle: float, fine: Fineness
    ) -> np.ndarray:
        """Return the ends of panels of r: geometric from the smallest on, and none too wide."""
        # e^(−zp) of p = (r/c)^q varies with ln r, so panels grow geometrically; the density varies
        # with r, so none is wider than a standard deviation.
        start = max(-high - _NEAR, 0.0)
        end = (_NEAR - low) / math.cos(2 * angle) ** 0.5
        edges = [start, end]
        if start == 0:
            smallest = c * math.exp(_SMALLEST / q) * float(np.abs(self.z).max()) ** (-1 / q)
            rise = np.arange(math.log(min(smallest, end / 2)), math.log(end), fine.growth / q)
            edges = [0.0, *np.exp(rise).tolist(), end]
        ends = [edges[0]]
        for edge in edges[1:]:
            parts = math.ceil((edge - ends[-1]) / _WIDEST)
            ends.extend(np.linspace(ends[-1], edge, parts + 1)[1:].tolist())
        return np.array(ends)

    def damped_body(self, v: float) -> Any:
        """Return the integrand of E e^(−vY₂) over rows, complex, [thresholds, contour]."""
        density = self.density if v == 0 else self.density * np.exp(-v * self.p**2)
        above: Any = density @ self.damped.T
        slope: Any = (density * self.slope) @ self.damped.T
        t = self.t[:, None]
        log_h = integration.log_near_one(ndtr(t) + above, above - ndtr(-t))
        body: Any = slope * np.exp(self.z + (self.n - 1) * log_h + math.log(self.n)) * self.every
        return np.where(np.isfinite(body), body, 0.0)  # far out, where h or e^z is nothing

    def power_means(self, power: float, most: float) -> tuple[float, float]:
        """Return E Y₂^(−power), and the same by twice the step in v."""
        w, v, share = integration.inverse_power_rule(power, most)
        # w ascends, and beyond w = 0 the integrand has one hump: four values that add nothing end
        # it.
        terms = np.zeros(len(w))
        for i in range(len(w)):
            terms[i] = share[i] * self.damped_body(float(v[i])).real.sum()
            if w[i] > 0 and np.abs(terms[i - 3 : i + 1]).max() < NOTHING * terms.sum():
                break
        return float(terms.sum()), 2 * float(terms[::2].sum())

    def largest(self) -> tuple[float, float]:
        """Return E max p, and P(all rows), which is 1."""
        # Here each point of (t, z) takes a whole row over X, not a number: the faint ones are
        # dropped.
        seen = np.argwhere(np.abs(self.damped_body(0.0)) > _FAINT)
        weights, up_to = integration.cumulative_rule(self.nodes)
        # `body` has the weights of the whole panel in it already; partial integrals have their own.
        up_to = (up_to / weights).T

        def cumulated(x: Any) -> Any:
            blocks = x.reshape(len(x), -1, self.nodes)
            whole = blocks.sum(axis=-1)
            return (blocks @ up_to + (np.cumsum(whole, axis=-1) - whole)[..., None]).reshape(
                x.shape
            )

        # h_X and g_X are the integrals of the same tables up to each X, panel by panel.
        size, sums = max(1, _HELD // len(self.p)), np.zeros(2)
        for start in range(0, len(seen), size):
            at, of = seen[start : start + size].T
            t, body = self.t[at, None], self.density[at] * self.damped[of]
            sloped, above = body * self.slope, cumulated(body)
            every = ndtr(t) + above
            log_h = integration.log_near_one(every, above - ndtr(-t))
            others = np.exp(self.z[of, None] + (self.n - 2) * log_h + math.log(self.n))
            terms: Any = others * (sloped * every + (self.n - 1) * cumulated(sloped) * body)
            terms = np.where(np.isfinite(terms), terms, 0.0)
            both: Any = np.stack([terms @ self.p, terms.sum(axis=-1)]) * self.every[of]
            sums += both.real.sum(axis=-1)
        return float(sums[0]), float(sums[1])


def by_grids(
    row: EntmaxThreeHalves, n: float, power: float | None, most: float
) -> tuple[float, float]:
    """Return E Y₂^(−power), or E max p if that is None, and a bound on its relative error.

    Args:
        row: the map.
        n: the row length.
        power: as in `law`.
        most: the largest 1/Y₂ that a row has.
    """
    if power is None:
        grid, coarser = (Grid(row, n, fineness) for fineness in _CUT)
        value, every = grid.largest()
        others = []
    else:
        grid, coarser = (Grid(row, n, fineness) for fineness in _DAMPED)
        every = float(grid.damped_body(0.0).real.sum())  # P(all rows): 1 if the grid resolves it
        if not abs(every - 1) < RESOLVED:  # one of fifty sums tells what all of them would end in
            return 0.0, math.inf
        value, *others = grid.power_means(power, most)
    if not value > 0:  # the contour has met nothing of the integrand: no coarser one is asked
        return 0.0, math.inf
    other = coarser.largest() if power is None else coarser.power_means(power, most)
    return value, float(integration.relative_gap(value, *others, other[0])) + abs(every - 1)


def even_rows(gamma: float, n: float, power: float | None) -> tuple[float, float]:
    """Return the same where all weights are near 1/n, by powers of ρ = √n γ up to the second.

    As in `EntmaxThreeHalves.means_all_in`; the largest score less the mean score is independent of
    the mean. The bounds are of the next orders.
    """
    rho = gamma * n**0.5
    if power is not None:
        return n**power * (1 - power * rho**2 * (n - 1) / n), 8 * rho**4
    first, second = (expected_maximum(n, k) for k in (1, 2))
    value = 1 + rho * first + 0.25 * rho**2 * (second - 1)
    return value / n, 2 * (rho * (1 + first)) ** 3 + 1e-14


def powers_and_largest(
    gamma: float, length: np.ndarray, power: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of Y₂^(−power) over rows, or of max p, and a bound on its relative error.

    Args:
        gamma: spread γ > 0 of the scores.
        length: row lengths n ≥ 1, [lengths].
        power: 1 for the effective number of keys, ½ for its root; None for the largest weight.

    Raises:
        InputError: a spread at which the law is not resolved.
    """
    n, row = np.asarray(length, dtype=np.float64), EntmaxThreeHalves(gamma)
    value, error = np.ones(n.shape), np.zeros(n.shape)
    size = n if power is None else row.support_and_participation(n)[0][0]
    for i, m in enumerate(n.tolist()):
        if m == 1:
            continue
        value[i], error[i] = even_rows(gamma, m, power)
        if error[i] > _GOOD:
            with np.errstate(all="ignore"):  # far out, where nothing falls
                most = min(m, 2 * float(size[i]) + MORE_KEYS)
                pair = by_grids(row, m, power, most)
            if not pair[1] > error[i]:
                value[i], error[i] = pair[0], pair[1] + _ROUNDING
    integration.refuse_unresolved(error, gamma, "entmax-1.5")
    return value, error
