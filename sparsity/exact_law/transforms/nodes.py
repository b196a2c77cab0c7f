"""Nodes and weights of the integral over the score that Laplace transforms are made of.

A law with a density is cut into panels over which log|f| and the density vary little; a law of
points is its own rule; a mixture is both, each part with its share.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sparsity.errors import InputError, TooFine
from sparsity.kernels.base import Kernel
from sparsity.kernels.numeric.definition import definition
from sparsity.kernels.numeric.points import EPS
from sparsity.limit.densities import Gaussian
from sparsity.limit.panels import HIGH, NODES, WEIGHTS, WIDE, Axis, PanelBounds, Panels, cut
from sparsity.limit.score_moments import at_points, score_law
from sparsity.rows.score_laws import StudentT

TAIL = 1e-15  # mass that truncation may lose
# How far 2·log|f| plus the log density, and arg f, may vary over a panel's box. More makes fewer
# panels, and the error e^(VARIATION)·10⁻¹⁶ of each larger.
VARIATION, _TURN = 6.0, 0.6
_MOST_PANELS = 80_000  # that one law may have: seconds of work
_LOOSE = 20  # times as far as log|f| varies it may seem to, by its bounds over wide panels
# Relative error of the rule on such a panel. By `limit.panels.LOG_RULE` it is e^VARIATION·6.6e-17 =
# 2.7e-14 of the mean of |f|^k over the panel, k ≤ 2; as much again is for a law that is near. Held
# against 30 digits, the rule has 8e-17 at most of |f|^k e^(−t|f|^c), k ≤ 8, on panels as wide as
# VARIATION and _TURN let them be: f exponential, or next to a zero, a pole or branch points, the
# density flat, falling, or normal and tilted as far as a near law's.
_RULE = 5e-14
WORK = 8_000_000  # segments, boxes and points evaluated, times the parts of f: seconds
_RAREST = 1e-32  # width of a panel at a pole of f that is not resolved
_REACH = 105.0  # depth of the Gaussian density, in e-folds, at which the integral ends
_MATTERS = 75.0  # down to which it is resolved: 10¹² tokens reach to 28


def _quadratic(by: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Return the polynomials a + bt + ct²."""
    a, b, c = np.moveaxis(by[..., None], -2, 0)
    return a + t * (b + t * c)


class Nodes(NamedTuple):
    """Nodes where f ≠ 0, in the order of log|f|.

    Args:
        t: the coordinate.
        log_f: log|f|.
        log_w: log weights.
        error: of log|f|.
        density_error: relative error of the weights, slivers left out.
        slivers: t, most log|f| and log mass of each panel too narrow for nodes, [3, slivers].
        p_zero: P(f = 0), to all digits.
        zeros: ends in t of the intervals that it is the mass of, [2, intervals].
        work: evaluations that it took to find them, times the parts of the expression.
    """

    t: np.ndarray
    log_f: np.ndarray
    log_w: np.ndarray
    error: np.ndarray
    density_error: float
    slivers: np.ndarray
    p_zero: float
    zeros: np.ndarray
    work: float = 0.0

    def tilted(self, by: np.ndarray) -> np.ndarray:
        """Return log weights of laws of densities e^(a + bt + ct²) over this one's, [..., nodes].

        Args:
            by: a, b and c, [..., 3].
        """
        return self.log_w + _quadratic(by, self.t)

    def sliver_error(self, by: np.ndarray) -> float:
        """Return what slivers add to the error: their mass beside that of all weights as large."""
        # All its mass may be off, but beside that of the nodes as large as it: at every t these
        # have a 1 − e^(−x) that is as large.
        t, most, mass = self.slivers
        above = np.logaddexp.accumulate(self.tilted(by)[::-1])[::-1]
        at = np.searchsorted(self.log_f, most - 1.0)
        known = at < len(above)
        mass = (mass + _quadratic(by, t))[known] - above[at[known]]
        return float(np.exp(np.minimum(mass, 0.0)).sum())


def _in_order(*fields: Any) -> Nodes:
    """Return the nodes of these fields, sorted by log|f|."""
    order = np.argsort(fields[1], kind="stable")
    return Nodes(*(field[order] for field in fields[:4]), *fields[4:])


def too_wide(kernel: Kernel, gamma: float) -> TooFine:
    """Return the refusal of a weight that varies over too many orders of magnitude."""
    fix = f"spreads over too wide a range at gamma = {gamma:g} for the exact law"
    return TooFine("weight", kernel.weight, f"{fix}; use estimate, or lower gamma")


class _Smooth:
    """The goal of the transforms: panels over which log|f| and the density vary little.

    On the box around a panel e^(−tf^c) is then bounded for every t > 0, whatever the power of f
    beside it, and the rule exact to about e^(VARIATION) · 10⁻¹⁶. The methods are those that
    `limit.panels.cut` asks of a goal.
    """

    patience = 1

    def __init__(self, axis: Axis, powers: tuple[float, ...]) -> None:
        self.axis = axis
        self.tilted = axis.law.tilts
        self.tilt = np.zeros(3)  # f = e^(c + bt + at²) times what the panels know of it
        self.powers = list(powers)
        if isinstance(axis.law, Gaussian):
            self.tilt += np.subtract(
                axis.law.exponent(axis.f.tilt), axis.law.exponent((0.0, 0.0, 0.0))
            )
            # A moment that a factor e^(as²) of f makes infinite asks for no nodes.
            decays = [axis.law.exponent(self._times(p)).c < 0 for p in powers]
            self.powers = [p for p, falls in zip(powers, decays, strict=True) if falls]
        self.tops = [-np.inf] * len(self.powers)
        self.kept: list[Panels] = []
        self.count = 0
        self.slivers: list[np.ndarray] = [np.empty((3, 0))]
        self.zeros: list[np.ndarray] = []

    def _times(self, p: float) -> tuple[float, float, float]:
        c0, c1, c2 = self.axis.f.tilt
        return p * c0, p * c1, p * c2

    def _density(self, known: PanelBounds, p: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Return least and largest log of |f|^p times the density; of |f|^−1 the tilt alone."""
        ends = known.t - known.half, known.t + known.half
        with np.errstate(all="ignore"):
            low, high = self.axis.law.bounds_on_segments(*ends, self._times(p))
            if p > 0:
                low = low + p * known.on_segment[0]
                high = high + p * np.where(
                    np.isfinite(known.on_segment[1]), known.on_segment[1], 0.0
                )
        return low, high

    def _depth(self, known: PanelBounds) -> np.ndarray:
        """Return the log of the largest share that a panel has in a moment, about."""
        highs = [self._density(known, p)[1] for p in self.powers]
        return np.max([high - top for high, top in zip(highs, self.tops, strict=True)], axis=0)

    def observe(self, known: PanelBounds) -> None:
        """Note how high the density is at least, where keys fall and f is not zero."""
        alive = known.on_segment[0] > -np.inf
        for i, p in enumerate(self.powers):
            least = np.max(self._density(known, p)[0], where=alive, initial=-np.inf)
            self.tops[i] = max(self.tops[i], float(least))

    def negligible(self, known: PanelBounds) -> np.ndarray:
        """Return which panels f is zero on, or no moment is made of."""
        zero = known.on_segment[1] == -np.inf
        self.zeros.append(np.stack([known.t - known.half, known.t + known.half])[:, zero])
        return zero | (self._depth(known) < -_REACH)

    def _excess(self, known: PanelBounds) -> np.ndarray:
        """Return how far f and the density vary over a panel's box, in units of what they may."""
        # The panels know f without its factor e^(c + bt + at²), whose variation over a box is
        # exact: that of |f| by the real part's slope and bend, that of arg f by the imaginary
        # part's.
        box = known.t, WIDE * known.half, HIGH * known.half
        with np.errstate(all="ignore"):
            density = self.axis.law.bound_on_boxes(*box, (0.0, 0.0, 0.0)) - self._density(known)[0]
            slope, (_, wide, high) = np.abs(self.tilt[1] + 2 * self.tilt[2] * known.t), box
            bend = abs(self.tilt[2])
            varies = 2 * slope * wide + bend * (wide**2 + high**2)
            varies = varies + known.on_box[1] - known.on_box[0]
            turns = known.on_box[2] + slope * high + 2 * bend * wide * high
            return np.maximum((2 * varies + density) / VARIATION, turns / _TURN)

    def resolved(self, known: PanelBounds) -> np.ndarray:
        """Return which panels neither f nor the density varies much over.

        Raises:
            TooFine: log|f| varies so far that they would be too many.
        """
        with np.errstate(all="ignore"):
            slope = np.abs(self.tilt[1] + 2 * self.tilt[2] * known.t)
            # 2·log|f| of a panel varies by VARIATION at most.
            fall = known.on_segment[1] - known.on_segment[0] + 2 * slope * known.half
        needed = 2 / VARIATION * fall[np.isfinite(fall)].sum()
        # The first panels of a law with heavy tails are as wide as these: there `WORK` ends it.
        light = isinstance(self.axis.law, Gaussian)
        if light and needed > _LOOSE * _MOST_PANELS:
            raise too_wide(self.axis.f.kernel, self.axis.law.gamma)
        return self._excess(known) < 1

    def singular(self, known: PanelBounds) -> np.ndarray:
        """Return which panels f may vanish on, or be unbounded on the box of."""
        return ~np.isfinite(known.on_box[1]) | (known.on_segment[0] == -np.inf)

    def parts(self, known: PanelBounds) -> np.ndarray:
        """Return into how many to cut a panel: the excess falls faster than the width does."""
        excess = self._excess(known)
        excess = np.where(np.isfinite(excess), excess, 2.0)
        return np.clip(np.ceil(0.8 * excess), 2, 8).astype(int)

    def collect(self, known: PanelBounds) -> None:
        """Keep the panels, as long as there are not too many."""
        self.kept.append(known.panels)
        self.count += len(known.half)
        if self.count > _MOST_PANELS:
            raise too_wide(self.axis.f.kernel, self.axis.law.gamma)

    def not_worth_cutting(self, known: PanelBounds) -> np.ndarray:
        """Return panels next to a zero or a pole of f, or far out, that no more is asked of."""
        # Next to a zero of f less than TAIL of the mass is lost. Next to a pole the weights are the
        # largest of all, however rare: there panels are cut until the pole's place is rounding.
        most = np.where(known.on_segment[1] == np.inf, _RAREST, TAIL / 10)
        low, high = self._density(known)
        tiny = 2 * known.half < most
        return tiny | ((self._depth(known) < -_MATTERS) & (high - low < 4))

    def give_up(self, known: PanelBounds) -> None:
        """Take panels as they are that cannot be cut further; refuse a pole among them."""
        if (known.on_segment[1][2 * known.half > _RAREST] == np.inf).any():
            fix = "is unbounded at a score known only to rounding; its rows have no exact law"
            raise InputError("weight", self.axis.f.kernel.weight, fix)
        self.kept.append(known.panels)
        density = self._density(known)[1]
        counts = self._depth(known) > -_MATTERS
        mass = density + np.log(2 * known.half)
        tilt = np.polyval(self.tilt[::-1], known.t)  # a sliver is too narrow for it to vary
        sliver = known.t, known.on_segment[1] + tilt, mass + self.axis.law.log_norm
        self.slivers.append(np.stack(sliver)[:, counts])

    def nodes(self) -> Nodes:
        """Return the nodes of the panels that were kept."""
        panels = Panels.joined(self.kept)
        axis, zeros = self.axis, np.concatenate(self.zeros, axis=1)
        p_zero, slivers = float(axis.law.mass(*zeros).sum()), np.concatenate(self.slivers, axis=1)
        half = ((panels.high - panels.low) / 2)[:, None]
        x = (panels.high + panels.low)[:, None] / 2 + half * NODES
        a = np.broadcast_to(panels.a[:, None], x.shape)
        t = axis.t[a] + x
        density = axis.law.log_density(t)
        values = axis.values_at(a, x)
        shares = [
            density + p * values.log - top for p, top in zip(self.powers, self.tops, strict=True)
        ]
        values = axis.refined(a, x, values, np.max(shares, axis=0) > -_MATTERS)
        keep = np.isfinite(values.log)
        rounding = axis.law.rounding(t) + axis.law.steep(t) * axis.shift[a]
        log_w = density + axis.law.log_norm + np.log(half) + np.log(WEIGHTS)
        error = float(np.max(rounding, where=keep, initial=0.0)) + _RULE
        columns = (y[keep] for y in (t, values.log, log_w, values.error))
        return _in_order(*columns, error, slivers, p_zero, zeros, axis.work)


def _points(kernel: Kernel, beta: float, gamma: float, x: np.ndarray, share: np.ndarray) -> Nodes:
    """Return the nodes of scores β + γx that are points, each with its share of the law."""
    values = at_points(kernel, beta, gamma, x)
    wrong = ~(values.log < np.inf)
    if wrong.any():
        fix = f"is not a finite real number at score {beta + gamma * x[wrong][0]:.6g}"
        raise InputError("weight", kernel.weight, fix)
    p_zero, some = float(share[values.log == -np.inf].sum()), np.isfinite(values.log)
    columns = (y[some] for y in (x, values.log, np.log(share), values.error))
    rounding = EPS * (len(x) - 1)  # as they are summed
    return _in_order(*columns, rounding, np.empty((3, 0)), p_zero, np.empty((2, 0)))


def _of_mixture(
    kernel: Kernel,
    beta: float,
    gamma: float,
    parts: tuple[np.ndarray, ...],
    powers: tuple[float, ...],
) -> Nodes:
    """Return the nodes of Gaussian laws and points, each with its law's share."""
    share, mean, deviation = parts
    point = deviation == 0
    # A part N(m, d²) of the mixture is the law of scores of bias β + γm and spread γd.
    of_parts = [_points(kernel, beta, gamma, mean[point], share[point])] if point.any() else []
    for one, m, d in zip(share[~point], mean[~point], deviation[~point], strict=True):
        part = nodes(kernel, beta + gamma * m, gamma * d, None, powers)
        slivers = part.slivers + np.array([[0.0], [0.0], [np.log(one)]])
        log_w, p_zero = part.log_w + np.log(one), one * part.p_zero
        of_parts.append(part._replace(log_w=log_w, slivers=slivers, p_zero=p_zero))
    columns = (np.concatenate([x[i] for x in of_parts]) for i in range(4))
    slivers = np.concatenate([x.slivers for x in of_parts], axis=1)
    error, p_zero = max(x.density_error for x in of_parts), sum(x.p_zero for x in of_parts)
    work = sum(x.work for x in of_parts)
    return _in_order(*columns, error, slivers, p_zero, np.empty((2, 0)), work)


def nodes(
    kernel: Kernel,
    beta: float,
    gamma: float,
    scores: Any,
    powers: tuple[float, ...] = (0.0,),
    work: float = WORK,
) -> Nodes:
    """Return where |f| is evaluated, and with what weights.

    Args:
        kernel: a kernel of Law.SCORE.
        beta: bias.
        gamma: spread; 0 is a fixed score.
        scores: the law of x in β + γx; None for Gaussian scores.
        powers: of |f| whose means the nodes reach: of a row of rare weights those are far out.
        work: the most segments, boxes and points to evaluate, times the parts of f; each part of a
            mixture has `WORK`.

    Raises:
        InputError: f is not a finite real number where keys fall, or varies beyond all reach.
        TooFine: f has more structure than can be resolved with that work.
    """
    if gamma == 0:
        return _points(kernel, beta, 0.0, np.zeros(1), np.ones(1))
    if scores is not None and scores.parts is not None:
        return _of_mixture(kernel, beta, gamma, scores.parts, powers)
    try:
        axis = Axis(definition(kernel), score_law(kernel, beta, gamma, scores))
        goal = _Smooth(axis, powers)
        cut(axis, goal, work)
        return goal.nodes()
    except TooFine:
        if not isinstance(scores, StudentT):
            raise
        fix = f"spreads too wide for the exact law of {scores.typed} scores; use estimate"
        raise TooFine("weight", kernel.weight, fix) from None
