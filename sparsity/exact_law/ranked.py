"""The exact law of what goes by the rank of weights, of rows of n independent scores of one law.

Let N(a) be how many weights are above a. The k largest add up to ∫ min(k, N(a)) da, and the Gini
coefficient is ∫ N(a)(n − N(a)) da / (nZ), Z = Σ|a|: both are ∫ g(N(a)) da / Z = ∫dt ∫da g(N(a))
e^(−tZ). With φ_t = E e^(−t|f|), of which B_t(a) is the part with |f| ≤ a, N is binomial under the
weight e^(−tZ): in u = ln t and v = ln a

    mean = ∫∫ e^(u+v) φ(u)^n E g(Bin(n, 1 − B/φ)) du dv / P(the row is not all zero).

The rule over u is trapezoidal, as in `engine`. The axis of v has Gauss–Legendre panels, in which B
is the integral of the polynomial through their nodes; where k is large they are narrow about the
k-th largest weight, which rows hardly differ in. It takes the law of v = ln|f| of one score,
which softmax and the powers of |s| or max(s, 0) have in closed form. The bound holds a coarser rule
in both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from sparsity import kernels
from sparsity.errors import InputError, TooFine
from sparsity.exact_law.integration import (
    cumulative_rule,
    gauss_panels,
    grid_points,
    log_complement,
    relative_gap,
)
from sparsity.exact_law.maps.gaussian_tail import ROOT_2_PI
from sparsity.kernels import Kernel
from sparsity.quantities import RankLaw
from sparsity.quantities.base import Means, clip_to_range
from sparsity.special import bdtr, log_ndtr, ndtri_exp

_STEPS = (0.22, 0.3)  # of u: of the value, and of what bounds its error
_POINTS = (16, 12)  # of a panel, likewise
_WIDEST = 0.5  # panel of v
_NARROWEST = 1e-12  # likewise, over |v|: its nodes have four digits
_LOG_TAIL = -41.0  # log of the probability of what is left out
_DEEP = 34.0  # e-folds below the largest weight down to which t counts
_ROUNDING = 1e-12  # allowed for in every bound, beside the gap of the two rules
_RAREST = -1e-270  # log P(f = 0) beyond which densities leave the range of float64
_MOST_NUMBERS = 6e7  # of a table: seconds
_FEWEST_U = 100  # points of u for which a table is counted at least
_LOST = 1e-9  # of the mass of a law of weights, beyond which its panels are wrong
_AT_ONCE = 16  # points of u of a table held at once: they stay in the cache
_GONE = 7.0  # u + v beyond which e^(−tz) is nothing, not even a denormal
_MANY = 64  # k beyond which the k-th largest weight is known so closely that it has own panels
_FAR = 10.0  # standard deviations of N beyond which it is not k; and e^(−100) of rows
_WIDEST_Z = 2.0  # panel of v about the k-th largest weight, in standard deviations of N


class LogWeightLaw(NamedTuple):
    """The law of v = ln|f| of one score.

    Args:
        density: of v.
        log_zero: log P(f = 0).
        low: v below which nothing falls.
        high: v above which a row of the longest length has nothing.
        width: of a panel.
        near: span under `high` in which the k-th largest weights fall, k > 1.
        gamma: as an error says it.
        turn: how far v may leave the real axis without its density growing more than e² times.
        spread: about that of the largest of n.
    """

    density: Callable[[np.ndarray], np.ndarray]
    log_zero: float
    low: float
    high: float
    width: float
    near: float
    gamma: float
    turn: float
    spread: float

    def edges(self, *, fine: bool) -> np.ndarray:
        """Return the edges of panels; finer where more than the largest weight of a row falls."""
        below = max(self.low, self.high - (self.near if fine else 0.0))
        coarse, dense = (below - self.low) / self.width, 4 * (self.high - below) / self.width
        _refuse_many(self, coarse + dense, _POINTS[1] * _FEWEST_U)  # before they take memory
        lower = np.linspace(self.low, below, math.ceil(coarse) + 1)
        return np.append(lower, np.linspace(below, self.high, math.ceil(dense) + 1)[1:])

    def edges_about(self, keys: int, n: np.ndarray) -> np.ndarray:
        """Return the edges of panels; many where the k-th largest weight of rows of n falls."""
        edges = self.edges(fine=keys != 1)
        if keys <= _MANY:
            return edges
        # N(a) is as good as normal. Under e^(−tZ) it is less by −n ln φ, about, and where that is
        # above 100 no row is left.
        spread = np.sqrt(keys * (1 - keys / n) + 1)[:, None]
        while True:
            v, weights = gauss_panels(edges, _POINTS[1])
            mass = (self.density(v) * weights).sum(axis=1)
            over = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
            z = np.clip((n[:, None] * over - keys) / spread, -_FAR, _FAR + 100 / spread)
            wide = (-np.diff(z) > _WIDEST_Z).any(axis=0)
            if not wide.any():
                return edges
            edges = np.sort(np.append(edges, (edges[:-1] + edges[1:])[wide] / 2))

    def surely_full(self, n: Any, keys: int) -> np.ndarray:
        """Return whether rows of n have so many weights above 0, or whether it does not matter."""
        if keys < 2:
            return np.full(np.shape(n), keys == 1)
        fewer = bdtr(keys - 1, np.asarray(n, dtype=np.int64), -math.expm1(self.log_zero))
        return fewer < math.exp(_LOG_TAIL)


def _deviations(n: float, log_share: float = 0.0) -> float:
    """Return the standard deviations beyond which a row of n has no score, of a share of scores."""
    return -float(ndtri_exp(_LOG_TAIL - math.log(n) + log_share))


def _of_exp(beta: float, gamma: float, n: float) -> LogWeightLaw:
    """Return the law of v = s of softmax, which is normal."""
    spread = gamma / math.sqrt(2 + 2 * math.log(n))
    return LogWeightLaw(
        lambda v: np.exp(-0.5 * ((v - beta) / gamma) ** 2) / (ROOT_2_PI * gamma),
        -math.inf,
        beta - _deviations(1.0) * gamma,
        beta + _deviations(n) * gamma,
        min(_WIDEST, spread),
        0.0,
        gamma,
        2 * gamma,
        spread,
    )


def _of_power(power: int, both: bool) -> Callable[[float, float, float], LogWeightLaw]:
    """Return the law of |s|^power, for scores of both signs or those above 0 alone."""

    def law(beta: float, gamma: float, n: float) -> LogWeightLaw:
        def density(v: np.ndarray) -> np.ndarray:
            s = np.exp(v / power)
            value = np.exp(-0.5 * ((s - beta) / gamma) ** 2)
            if both:
                value = value + np.exp(-0.5 * ((s + beta) / gamma) ** 2)
            return value * s / (ROOT_2_PI * power * gamma)

        z, far = beta / gamma, _deviations(1.0)
        log_zero = -math.inf if both else float(log_ndtr(-z))
        if log_zero > _RAREST:
            fix = "a weight is hardly ever above 0; give a larger beta, or a larger gamma"
            raise InputError("beta / gamma", z, fix)  # the caller may have scaled both
        side = abs(z) if both else z
        top = _deviations(n, 0.0 if both else float(log_ndtr(min(z, 0.0))))
        highest = gamma * (side + top)
        # Below s a share of about s·density: the smallest that counts, unless 0 is out of reach.
        reached = side < far
        share = math.exp(_LOG_TAIL + 0.5 * max(side, 0.0) ** 2) if reached else 0.0
        least = gamma * max(side - far, share / max(-side, 1.0))
        root = 1 + math.sqrt(2 * math.log(n + 1))
        width = power / (root * max(1.0, abs(z) + 1))
        return LogWeightLaw(
            density,
            log_zero,
            power * math.log(min(least, highest / 2) if reached else least),
            power * math.log(highest),
            min(_WIDEST, width),
            3.0 * power,
            gamma,
            0.0,
            power / (root * (root + abs(z))),  # γ/root of a score that is γ(root + z) itself
        )

    return law


# (β, γ, longest n) -> the law of ln|f|, by the weight
LAWS: dict[Any, Callable[[float, float, float], LogWeightLaw]] = {
    kernels.exp.weight: _of_exp,
    kernels.relu2.weight: _of_power(2, both=False),
    kernels.identity.weight: _of_power(1, both=True),
    kernels.zoo.absolute.weight: _of_power(1, both=True),
    kernels.zoo.relu.weight: _of_power(1, both=False),
    kernels.zoo.relu3.weight: _of_power(3, both=False),
    kernels.zoo.power2.weight: _of_power(2, both=True),
    kernels.zoo.power4.weight: _of_power(4, both=True),
}


def _refuse_many(law: LogWeightLaw, panels: float, numbers: int) -> None:
    if not panels * numbers <= _MOST_NUMBERS:  # nor is it where they are beyond float64
        fix = f"its law of weights takes {panels:.0f} panels at these parameters; use estimate"
        raise TooFine("row", f"gamma = {law.gamma:g}", fix)


def _log_share(share: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """Return the log of a share, given it and the rest; at most 0."""
    with np.errstate(divide="ignore"):
        log = log_complement(rest, np.maximum(share, 0))
    return np.minimum(log, 0.0)  # where φ^n is nothing, its parts have no digits


class _Table:
    """φ(u) and the parts of it below and above every node of v, for a grid of u.

    Both parts are summed from their own end: their differences would have no digits left.
    """

    def __init__(self, law: LogWeightLaw, edges: np.ndarray, points: int, u: np.ndarray) -> None:
        """Integrate the law over v, from both ends."""
        self.edges = edges
        _refuse_many(law, len(self.edges) - 1, points * max(len(u), _FEWEST_U))
        # Partial integrals to every node, by one matrix per panel: B is wanted at all of them.
        w, self.up = cumulative_rule(points)
        self.down = w - self.up
        self.half = np.diff(self.edges)[:, None] / 2
        self.u = u
        self.v, self.weights = gauss_panels(self.edges, points)
        self.density, self.zero = law.density(self.v), math.exp(law.log_zero)
        mass = (self.density * self.weights).sum(axis=1)
        self.under, self.over = (np.concatenate([[0.0], np.cumsum(m)]) for m in (mass, mass[::-1]))
        self.lost = abs(float(self.under[-1]) / -math.expm1(law.log_zero) - 1)
        if not self.lost < _LOST:
            fix = f"its law of weights is found up to {self.lost:.1g} only; use estimate"
            raise TooFine("row", f"gamma = {law.gamma:g}", fix)

    def parts(self, y: np.ndarray, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return integrals of y from the lower end up to every node, and from there to the upper.

        y is given at the panels from `first` on; it is the density below them, 0 above those given.
        """
        which = slice(first, first + y.shape[-2])
        total = (y * self.weights[which]).sum(axis=-1)
        below, above = y @ self.up.T * self.half[which], y @ self.down.T * self.half[which]
        below += self.under[first]
        below[..., 1:, :] += np.cumsum(total[..., :-1], axis=-1)[..., None]
        above[..., :-1, :] += np.cumsum(total[..., :0:-1], axis=-1)[..., ::-1, None]
        return below, above

    def blocks(
        self, start: int, least: float
    ) -> Iterator[tuple[slice, slice, np.ndarray, np.ndarray, np.ndarray]]:
        """Yield (slice of u, panels, log φ, log P(f = 0)/φ, log B/φ at the panels' nodes).

        The panels are those from `start` on with `least` < u + v < `_GONE`: weights below count
        for nothing where e^(−tz) is 1, and none is left above.
        """
        for first in range(0, len(self.u), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            u = self.u[part]
            low, high = np.searchsorted(self.edges, (least - u[-1], _GONE - u[0])).tolist()
            low, high = max(low - 1, 0), min(high, len(self.v))
            if high <= max(low, start):
                continue
            x = np.exp(u[:, None, None] + self.v[low:high])
            density = self.density[low:high]
            below, above = self.parts(density * np.exp(-x), low)
            # 1 − φ is summed by itself: all weights above the panels, and 1 − e^(−tz) on them.
            missing = self.over[len(self.v) - high] + (
                np.expm1(-x).reshape(len(u), -1) @ (-density * self.weights[low:high]).ravel()
            )
            kept = below[:, -1, -1] + above[:, -1, -1]
            phi = np.maximum(self.zero + kept, 1e-300)  # below that no row is left
            norm, begin = phi[:, None, None], max(low, start)
            below, above = below[:, begin - low :], above[:, begin - low :]
            log_b = _log_share((self.zero + below) / norm, above / norm)
            log_none = _log_share(self.zero / phi, kept / phi)
            yield part, slice(begin, high), _log_share(phi, missing), log_none, log_b


def _lowest(law: LogWeightLaw, n: np.ndarray, keys: int) -> float:
    """Return the v under which the weights that count, if they are not 0, hardly ever are."""
    # A lower end of v saves panels of all u. Where P(N < k) matters there is no such end.
    shortest = float(n.min())
    if not law.surely_full(shortest, keys):
        return law.low
    # The k largest weights are all above v, unless fewer than k are; the largest is, unless all are
    # below. Down from there g(N) is that of many, and the integral over v is known at once.
    table = _Table(law, law.edges_about(keys, n), _POINTS[1], np.empty(0))
    below, above = table.parts(table.density)
    share = np.maximum(below, 0.0)  # of the weights between 0 and v
    with np.errstate(divide="ignore"):
        if keys > 1:
            under = np.log(bdtr(keys - 1, int(shortest), np.clip(above, 0.0, 1.0)))
        elif table.zero:  # (share + zero)^n − zero^n
            ratio = np.log1p(share / table.zero)
            under = shortest * law.log_zero + np.log(np.expm1(np.minimum(shortest * ratio, 700.0)))
        else:
            under = shortest * np.log(share)
    rare = (under < _LOG_TAIL + math.log(-np.expm1(shortest * law.log_zero))).all(axis=1)
    count = int(np.argmin(rare)) if not rare.all() else 0
    return float(table.v[max(count - 1, 0), 0])


def _by_rule(
    law: LogWeightLaw, n: np.ndarray, of: RankLaw, points: int, step: float
) -> tuple[np.ndarray, float]:
    """Return E[value; row ≠ 0] at each length by one rule, and the share of the mass it lost."""
    edges, lowest = law.edges_about(of.keys, n), _lowest(law, n, of.keys)  # counted, before u
    u = grid_points(-law.high - _DEEP - math.log(n.max()), 5.0 - lowest, step)
    table = _Table(law, edges, points, u)
    start = int(np.searchsorted(table.v[:, -1], lowest))
    begin = float(table.edges[start])
    rare = _LOG_TAIL - 10 - math.log(n.max())
    totals = np.zeros(len(n))
    for part, panels, log_phi, log_none, log_share in table.blocks(start, rare):
        top = float(table.v[panels][-1, -1])  # e^v alone may be beyond float64
        # e^(u+v) du dv: the factor e^v is taken over that of the last panel, as e^v of a row of exp
        # may overflow where e^(u+v) does not.
        area = (np.exp(table.v[panels] - top) * table.weights[panels]).ravel()
        for i, m in enumerate(n.tolist()):
            log_row = u[part] + m * log_phi  # of the chance that no weight has ended the row
            alive = log_row + law.high > _LOG_TAIL - 10 - math.log(m)
            held = of.mean(m, log_share[alive])
            inner = held.reshape(len(held), area.size) @ area
            # Under the first panel B is P(f = 0) as far as it matters.
            inner += math.exp(begin - top) * of.mean(m, log_none[alive])
            totals[i] += float(np.exp(log_row[alive] + top) @ inner) * step
    return totals, table.lost


def law_of_weights(kernel: Kernel, beta: float, gamma: float, n: float) -> LogWeightLaw:
    """Return the law of ln|f| of one score, for rows of up to n.

    Raises:
        InputError: a kernel that is not in `LAWS`, or weights that are hardly ever above 0.
        TooFine: weights that are all but equal.
    """
    if kernel.weight not in LAWS:
        fix = "no exact law of ranks but for exp and powers of |s| or max(s, 0); use estimate"
        raise InputError("kernel", kernel.name, fix)
    if kernel.weight == kernels.exp.weight:
        beta = 0.0  # a factor on every weight
    law = LAWS[kernel.weight](beta, gamma, n)
    if not law.width > _NARROWEST * max(abs(law.low), abs(law.high)):
        raise TooFine("gamma", gamma, "its law of weights is too narrow for float64; use estimate")
    return law


def ranked(kernel: Kernel, beta: float, gamma: float, length: np.ndarray, of: RankLaw) -> Means:
    """Return the mean over nonzero rows, P(the row is not all zero), and relative error bounds.

    Args:
        kernel: one of `LAWS`: exp, identity, relu2, and the powers of the zoo.
        beta: bias β.
        gamma: spread γ > 0.
        length: row lengths n ≥ 1, [lengths].
        of: what the quantity is of N(a).

    Raises:
        InputError: another kernel.
        TooFine: a law of weights that takes more than seconds.
    """
    n = np.asarray(length, dtype=np.float64)
    several = n > max(of.keys, 1)
    least, most = np.array([of.ends(m) for m in n.tolist()]).T
    value, error = most.copy(), np.zeros(n.shape)
    law = law_of_weights(kernel, beta, gamma, float(n.max()))
    p_row = -np.expm1(n * law.log_zero)
    full = law.surely_full(n, of.keys)
    # Lengths whose rows surely have k weights start their panels higher up; the others would make
    # all lengths start at the lowest weight.
    for group in (several & full, several & ~full):
        if group.any():
            (fine, lost), (coarse, _) = (
                _by_rule(law, n[group], of, *how) for how in zip(_POINTS, _STEPS, strict=True)
            )
            error[group] = relative_gap(fine, coarse) + _ROUNDING + 4 * lost
            ends = least[group], most[group]
            value[group] = clip_to_range(fine / p_row[group], error[group], ends)
    return Means(value, p_row, error)
