"""The score axis cut into panels on which a kernel is known: analytic, bounded, and on one branch.

A panel is accepted when bounds on a complex box around it prove that a Gauss rule is exact to a
given error there, and dropped when bounds on its segment prove that it does not count. All others
are cut. Nothing hides between the nodes: a spike, a jump or a fast wave keeps the bounds wide until
the panels are as narrow as it needs.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple, Protocol

import mpmath
import numpy as np
from mpmath.calculus.quadrature import GaussLegendre

from sparsity.errors import InputError, TooFine
from sparsity.kernels.numeric.boxes import ComplexBox
from sparsity.kernels.numeric.definition import Definition, Values
from sparsity.kernels.numeric.intervals import Interval
from sparsity.kernels.numeric.points import EPS, Approx
from sparsity.limit.densities import ScoreLaw

# The 24-point Gauss–Legendre rule on [−1, 1], in float64 to all digits: the weights of NumPy and
# SciPy are off by 1e−13.
_RULE = sorted(GaussLegendre(mpmath.mp).calc_nodes(4, 80))  # of 3·2^(4 − 1) points, by 80 bits
NODES, WEIGHTS = np.array(_RULE, dtype=np.float64).T
# Of the ellipse around a panel; its half axes are WIDE and HIGH. A smaller one fits between poles,
# but the rule's bound needs ρ^(−2N) below rounding: 2.25^(−48) makes LOG_RULE that of 7e−17. The
# ellipse then reaches 0.17 of a panel's width beyond its ends and 0.45 above and below its middle:
# a pole must be farther away than that, or the panel is cut.
RHO = 2.25
WIDE, HIGH = (RHO + 1 / RHO) / 2, (RHO - 1 / RHO) / 2
# |∫ − Gauss rule| ≤ 64/15 · sup|f| · ρ^(−2N)/(1 − ρ^(−2)) on [−1, 1] (Trefethen, ATAP, Thm 19.3)
LOG_RULE = float(np.log(64 / 15) - 2 * len(NODES) * np.log(RHO) - np.log1p(-(RHO**-2)))

# Segments, boxes and points evaluated, times the parts of the expression: 2 s.
MAX_WORK = 14_000_000
_WORK_OF_POINT, _WORK_OF_CALL = 0.05, 40  # measured, in segments
_MAX_ROUNDS = 1200  # float64 is halved away long before
_MAX_UNBOUNDED = 20_000  # panels on which f is unbounded
_DOUBTFUL = 1e-9  # error of log|f| above which a point is evaluated slowly
# A pending panel is looked at here, (3 − √5)/2 of its width. Middles of panels are places such as 0
# or ½, where f may have a zero or a kink by design. The golden section is none that halving arrives
# at, and of all irrational numbers the one that fractions come least close to.
_LOOK = 0.3819660112501051
_MOST_LOOKS, _SANE = 3, 1e6  # odd points looked at in high precision, and how far out
# Rounds of halving before branches are looked for: most panels that look singular at first are only
# wide, and each search costs 60 evaluations.
_PATIENCE = 5
_GRADES = 56  # halvings at once towards a singular anchor: 2^−56 is below a rounding error
_NEAR_RATIO = 4.0  # of the ends of a panel that is cut in equal ratios
# Relative width of panels that cannot be cut further: the ends of a narrower one, rounded, are off
# by too much of its width for bounds on it to say more.
_NARROW = 64 * EPS
_NEAR = 1e-6  # of an anchor's size: offsets at which f keeps their digits
_UNDERFLOW = 1e-290  # of an offset with all its digits


class Panels(NamedTuple):
    """Panels [anchor + low, anchor + high] of the coordinate t.

    Args:
        a: numbers of the anchors.
        low: left ends, from the anchor.
        high: right ends, from the anchor.
    """

    a: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def __getitem__(self, which: Any) -> Panels:  # type: ignore[override]
        return Panels(*(x[which] for x in tuple(self)))

    @property
    def at_anchor(self) -> np.ndarray:
        """Say which of them end at their anchor."""
        return (self.low == 0) | (self.high == 0)

    @staticmethod
    def joined(parts: list[Panels]) -> Panels:
        if not parts:
            return Panels(np.empty(0, dtype=int), np.empty(0), np.empty(0))
        return Panels(*(np.concatenate(column) for column in zip(*map(tuple, parts), strict=True)))


class PanelBounds(NamedTuple):
    """What is known of |f|, or of what is left of it without its tilt, on panels.

    Args:
        panels: the panels.
        t: middles of the panels.
        half: half widths.
        on_segment: least and largest log|f| on the segments.
        on_box: least and largest log|f| on the boxes, largest |arg f|; NaN: not analytic.
    """

    panels: Panels
    t: np.ndarray
    half: np.ndarray
    on_segment: tuple[np.ndarray, ...]
    on_box: tuple[np.ndarray, ...] = ()

    def __getitem__(self, which: Any) -> PanelBounds:  # type: ignore[override]
        segment, box = (tuple(y[which] for y in x) for x in (self.on_segment, self.on_box))
        return PanelBounds(self.panels[which], self.t[which], self.half[which], segment, box)


class Axis:
    """A law's coordinate, anchored where a linear part of the kernel vanishes and at its centre.

    Args:
        f: the definition of a kernel.
        law: the law of the score.
    """

    def __init__(self, f: Definition, law: ScoreLaw) -> None:
        self.f, self.law, self.work = f, law, 0.0
        first, last = law.steps[0], law.steps[-1]
        # The place of a root is rounded, its score is not: offsets from it give scores exactly.
        at = {law.where(root): root for root in f.roots}
        at = {t: root for t, root in at.items() if first <= t <= last and t != 0} | {0.0: law.beta}
        self.t, self.s = np.array(sorted(at.items()), dtype=np.float64).T
        self.shift = np.array([law.shift(*pair) for pair in zip(self.t, self.s, strict=True)])

    def start(self) -> Panels:
        """Return panels over the whole line; each anchor serves the part that is nearest to it."""
        half = np.array([self.law.gap(*pair) for pair in itertools.pairwise(self.s)]) / 2
        lows = np.concatenate([self.law.steps[:1] - self.t[:1], -half])
        highs = np.concatenate([half, self.law.steps[-1:] - self.t[-1:]])
        parts = []
        for a, (t, low, high) in enumerate(zip(self.t, lows, highs, strict=True)):
            x = np.concatenate([self.law.steps - t, [low, 0.0, high]])
            x = np.unique(x[(x >= low) & (x <= high)])
            parts.append(Panels(np.full(len(x) - 1, a), x[:-1], x[1:]))
        return Panels.joined(parts)

    def _count(self, evaluations: float) -> None:
        self.work += (evaluations + _WORK_OF_CALL) * self.f.size

    def values_at(self, a: np.ndarray, x: np.ndarray) -> Values:
        """Return |f| at points, from `Definition.values_at`."""
        self._count(_WORK_OF_POINT * np.size(x))
        return self.f.values_at(self.s[a], self.law.offset(Approx(x), self.t[a]))

    def refined(self, a: np.ndarray, x: np.ndarray, values: Values, worth: np.ndarray) -> Values:
        """Return what was found at points, in high precision where float64 left doubts.

        Args:
            a: numbers of the anchors.
            x: offsets of t.
            values: |f| there, from `values_at`.
            worth: which points are worth it.
        """
        size = 1 + np.abs(np.where(np.isfinite(values.log), values.log, 0.0))
        index = np.nonzero((values.error > _DOUBTFUL * size) & worth)
        if not len(index[0]):
            return values
        t = self.t[a[index]]
        offset = [self.law.slow_offset(*pair) for pair in zip(x[index], t, strict=True)]
        slow = self.f.slowly(self.s[a[index]], offset)
        good = ~np.isnan(slow)
        index, slow = tuple(i[good] for i in index), slow[good]
        log, error, most = values.log.copy(), values.error.copy(), values.most.copy()
        log[index], error[index], most[index] = slow, 2 * EPS * (1 + np.abs(slow)), slow
        return Values(log, error, most, values.side)

    def bounds_on_segments(self, p: Panels, tilted: bool) -> tuple[PanelBounds, list[Any]]:
        """Return what is known on the segments, and the branches there."""
        self._count(len(p.a))
        x = self.law.offset(Interval.between(p.low, p.high), self.t[p.a])
        low, high, taken = self.f.bounds_on_segments(self.s[p.a], x, tilted)
        middle = self.t[p.a] + (p.low + p.high) / 2
        return PanelBounds(p, middle, (p.high - p.low) / 2, (low, high)), taken

    def bounds_on_boxes(self, known: PanelBounds, taken: list[Any], tilted: bool) -> PanelBounds:
        """Add what is known on the boxes around the ellipses of the rule."""
        self._count(len(known.half))
        p, half = known.panels, known.half
        centre = (p.low + p.high) / 2
        # The rectangle around the ellipse that the theorem asks for, rounded outward.
        wide, high = WIDE * half * (1 + 8 * EPS), HIGH * half * (1 + 8 * EPS)
        box = self.law.offset(ComplexBox(centre - wide, centre + wide, -high, high), self.t[p.a])
        return known._replace(on_box=self.f.bounds_on_boxes(self.s[p.a], box, taken, tilted))


class RefinementPolicy(Protocol):
    """What the panels are cut for."""

    tilted: bool  # whether bounds on f leave out its tilt
    patience: int  # rounds before panels are graded towards a singular anchor

    def observe(self, known: PanelBounds) -> None:
        """Take notice of the bounds on the pending panels of a round."""

    def negligible(self, known: PanelBounds) -> np.ndarray:
        """Say which panels do not count."""
        ...

    def resolved(self, known: PanelBounds) -> np.ndarray:
        """Say which panels the rule is good enough on."""
        ...

    def collect(self, known: PanelBounds) -> None:
        """Take over resolved panels."""

    def not_worth_cutting(self, known: PanelBounds) -> np.ndarray:
        """Say which pending panels are to be given up, although they could be cut."""
        ...

    def singular(self, known: PanelBounds) -> np.ndarray:
        """Say which pending panels f may be singular on."""
        ...

    def parts(self, known: PanelBounds) -> np.ndarray:
        """Return into how many parts each pending panel is to be cut."""
        ...

    def give_up(self, known: PanelBounds) -> None:
        """Take over panels that are not cut further, or refuse."""


def cut(axis: Axis, goal: RefinementPolicy, work: float = MAX_WORK) -> None:
    """Cut the axis until the goal has taken every panel.

    Each round bounds f on all pending segments at once, then on the boxes around those that count:
    breadth first, since NumPy's cost is per call, and since what is certain of the whole after a
    round shows which small panels need not be looked at again.

    Args:
        axis: the anchored axis.
        goal: what to cut for.
        work: the most segments, boxes and points to evaluate, times the parts of the expression.

    Raises:
        InputError: f is not a finite real number where keys fall, or needs too many panels.
    """
    weight, pending = axis.f.kernel.weight, axis.start()
    for round_ in range(_MAX_ROUNDS):
        known, taken = axis.bounds_on_segments(pending, goal.tilted)
        goal.observe(known)
        live = np.flatnonzero(~goal.negligible(known))
        taken = [sign[live] if np.ndim(sign) else sign for sign in taken]
        known = axis.bounds_on_boxes(known[live], taken, goal.tilted)
        good = goal.resolved(known)
        goal.collect(known[good])
        rest = known[~good]
        if len(rest.half):
            hopeless = _too_narrow(axis, rest) | goal.not_worth_cutting(rest)
            if hopeless.any():
                goal.give_up(rest[hopeless])
                rest = rest[~hopeless]
        if not len(rest.half):
            return
        if round_ >= 2:  # the first panels are so wide that what is pending says little
            _refuse_unreal(axis, rest)
        # Each of these is cut in two at least, which are looked at in the next round.
        if axis.work + 2 * len(rest.half) * axis.f.size > work:
            fix = f"has too fine a structure at gamma = {axis.law.gamma:g}; lower gamma"
            raise TooFine("weight", weight, fix)
        if (rest.on_segment[1] == np.inf).sum() > _MAX_UNBOUNDED:
            raise TooFine("weight", weight, "is unbounded at more scores than can be resolved")
        pending = _split(axis, goal, rest, round_)
    raise TooFine("weight", weight, "cannot be cut into pieces that are smooth")


def _resolution(axis: Axis, a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return how finely branches of f can be told apart at an offset from an anchor.

    Next to an anchor f keeps its digits in the offset, elsewhere in the score: 1 − 1e−30 is no
    float64, but an anchor at 1 and an offset of −1e−30 are two.
    """
    offset = np.abs(x)
    with np.errstate(over="ignore"):
        size = np.maximum(np.abs(axis.t[a]), np.abs(axis.s[a]) / axis.law.gamma)
    return _NARROW * np.where(offset < _NEAR * size, offset, np.maximum(offset, size))


def _too_narrow(axis: Axis, rest: PanelBounds) -> np.ndarray:
    """Say which panels cannot be cut further; at an anchor there is always a smaller half."""
    p = rest.panels
    offset = np.maximum(np.abs(p.low), np.abs(p.high))
    narrow = 2 * rest.half <= _resolution(axis, p.a, offset)
    return ~p.at_anchor & narrow | (offset < _UNDERFLOW)


def _refuse_unreal(axis: Axis, rest: PanelBounds) -> None:
    """Refuse an f that is not real on a pending panel, as high precision confirms."""
    p = rest.panels
    x = p.low + _LOOK * (p.high - p.low)
    values = axis.values_at(p.a, x)
    odd = np.flatnonzero(np.isnan(values.log) | (values.log == np.inf))
    for i in odd[np.argsort(np.abs(axis.t[p.a] + x)[odd])][:_MOST_LOOKS]:
        offset = axis.law.offset(Approx(x[i]), axis.t[p.a[i]])
        score = float(axis.s[p.a[i]] + offset.m)
        if abs(score) < _SANE and not axis.f.real_at(score):
            fix = f"is not a finite real number at score {score:.6g}; it must be one at every score"
            raise InputError("weight", axis.f.kernel.weight, fix)


def _split(axis: Axis, goal: RefinementPolicy, rest: PanelBounds, round_: int) -> Panels:
    """Return the panels in equal parts, graded towards a singular anchor, or at the jump inside."""
    p, odd = rest.panels, goal.singular(rest)
    graded = odd & p.at_anchor & (round_ >= goal.patience)
    even, parts = ~graded, [_graded(p[graded])] if graded.any() else []
    if round_ >= _PATIENCE:
        jumps, places = _find_jumps(axis, p, odd & ~graded)
        even &= ~jumps
        if jumps.any():
            parts.append(_cut_at_jumps(axis, p[jumps], places))
    parts.append(_cut_evenly(p[even], goal.parts(rest)[even]))
    return Panels.joined(parts)


def _cut_evenly(p: Panels, count: np.ndarray) -> Panels:
    """Cut each panel in so many parts: of equal ratio not far from the anchor, else equal width."""
    a, start, end, parts = (np.repeat(x, count) for x in (p.a, p.low, p.high, count))
    number = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)

    def edge(share: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            ratio = end / start
            # Towards an anchor f may vary as a power of the offset: halves in its logarithm.
            near = (ratio > 1 / _NEAR_RATIO) & (ratio < _NEAR_RATIO)
            between = np.where(near, start * ratio**share, start + share * (end - start))
        return np.where(share == 0, start, np.where(share == 1, end, between))

    return Panels(a, edge(number / parts), edge((number + 1) / parts))


def _graded(p: Panels) -> Panels:
    """Cut panels [0, h] (or mirrored) into [0, h/2^m], …, [h/2, h].

    Of a power |s|^q all parts but the first look the same on their own scales, so that the rule is
    as good on each. Cut one by one they would take as many rounds.
    """
    side = np.where(p.low == 0, p.high, p.low)
    edges = side[:, None] * np.concatenate([2.0 ** -np.arange(_GRADES + 1), [0.0]])
    one, two = edges[:, 1:].ravel(), edges[:, :-1].ravel()
    return Panels(np.repeat(p.a, _GRADES + 1), np.minimum(one, two), np.maximum(one, two))


def _find_jumps(axis: Axis, p: Panels, where: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find which panels have one jump of branches inside, and where, by bisection of `side`.

    `side` numbers the branch that a point is on: which arm of a piecewise f, which sign under an
    absolute value. Where it differs between the ends of a panel there is an edge inside, and the
    comparing sides is all that bisection asks for. Halving alone would bound f, for twenty times
    the cost of a point, on 50 rounds of ever narrower panels. A middle that is on a third side
    shows that there are several edges, and two edges with the same side beyond both are not seen:
    halving parts those first.
    """
    jumps = np.zeros(len(where), dtype=bool)
    index = np.flatnonzero(where)
    if not len(index):
        return jumps, np.empty(0)
    a, low, high = p.a[index], p.low[index], p.high[index]
    left, right = axis.values_at(a, low).side, axis.values_at(a, high).side
    middle = axis.values_at(a, (low + high) / 2).side
    differ = (left != right) & ((middle == left) | (middle == right))
    jumps[index[differ]] = True
    a, low, high, left = a[differ], low[differ], high[differ], left[differ]
    for _ in range(60 if len(a) else 0):  # more than float64 has bits
        middle = (low + high) / 2
        same = axis.values_at(a, middle).side == left
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return jumps, (low + high) / 2


def _cut_at_jumps(axis: Axis, p: Panels, place: np.ndarray) -> Panels:
    """Cut each panel into what is left of a place, a sliver around it, and what is right of it.

    The sliver is too narrow to be cut: the next round gives it up with the little mass it may have.
    """
    sliver = 0.4 * _resolution(axis, p.a, place)
    one = np.clip(place - sliver, p.low, p.high)
    two = np.clip(place + sliver, p.low, p.high)
    parts = [Panels(p.a, p.low, one), Panels(p.a, one, two), Panels(p.a, two, p.high)]
    panels = Panels.joined(parts)
    return panels[panels.high > panels.low]
