"""The score axis cut into panels on which a kernel is known: analytic, bounded, and on one branch.

A panel is accepted when bounds on a complex box around it prove that a Gauss rule is exact to a
given error there, and dropped when bounds on its segment prove that it does not count. All others
are cut. Nothing hides between the nodes: a spike, a jump or a fast wave keeps the bounds wide until
the panels are as narrow as it needs.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple, Protocol

import numpy as np

from sparsity.errors import InputError, TooFine
from sparsity.kernels.numeric.boxes import Boxes
from sparsity.kernels.numeric.definition import At, Definition
from sparsity.kernels.numeric.points import EPS, Points
from sparsity.kernels.numeric.segments import Segments
from sparsity.theory.score_laws import ScoreLaw

__all__ = [
    "HIGH",
    "LOG_RULE",
    "NODES",
    "RHO",
    "WEIGHTS",
    "WIDE",
    "Axis",
    "Goal",
    "Known",
    "Panels",
    "cut",
]

# The 24-point Gauss–Legendre rule on [−1, 1]; NumPy's weights are off by 1e−13.
_X = [0.06405689286260562608504308262, 0.1911188674736163091586398207571]
_X += [0.3150426796961633743867932913198, 0.4337935076260451384870842319133]
_X += [0.5454214713888395356583756172184, 0.6480936519369755692524957869107]
_X += [0.7401241915785543642438281030999, 0.8200019859739029219539498726697]
_X += [0.8864155270044010342131543419822, 0.9382745520027327585236490017087]
_X += [0.9747285559713094981983919930082, 0.9951872199970213601799974097007]
_W = [0.1279381953467521569740561652247, 0.1258374563468282961213753825112]
_W += [0.1216704729278033912044631534763, 0.1155056680537256013533444839068]
_W += [0.1074442701159656347825773424466, 0.09761865210411388826988066446425]
_W += [0.08619016153195327591718520298374, 0.07334648141108030573403361525312]
_W += [0.05929858491543678074636775850011, 0.0442774388174198061686027482113]
_W += [0.02853138862893366318130781595188, 0.01234122979998719954680566707004]
NODES = np.array([-x for x in _X[::-1]] + _X)
WEIGHTS = np.array(_W[::-1] + _W)
_COUNT = len(NODES)
RHO = 2.25  # of the ellipse around a panel; its half axes are WIDE and HIGH
WIDE, HIGH = (RHO + 1 / RHO) / 2, (RHO - 1 / RHO) / 2
# |∫ − Gauss rule| ≤ 64/15 · sup|f| · ρ^(−2N)/(1 − ρ^(−2)) on [−1, 1] (Trefethen, ATAP, Thm 19.3)
LOG_RULE = float(np.log(64 / 15) - 2 * _COUNT * np.log(RHO) - np.log1p(-(RHO**-2)))
_ROUNDS = 1200
_WORK = 14_000_000  # segments, boxes and points evaluated, times the parts of the expression
_POINT, _CALL = 0.05, 40  # segments that a point costs, and any evaluation at all
_ENDLESS = 20_000  # panels on which f is unbounded
_LOOKS, _SANE = 3, 1e6  # odd points looked at in high precision, and how far out
_PATIENCE = 5  # rounds of halving before branches are looked for
_GRADES = 48  # halvings at once towards a singular anchor
_DOUBTFUL = 1e-9  # error of log|f| above which it is evaluated slowly
_NARROW = 64 * EPS  # relative width of panels that cannot be cut further
_NEAR = 1e-6  # of an anchor's size: offsets at which f keeps their digits


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
        """Some of them."""
        return Panels(*(x[which] for x in tuple(self)))

    def sorted(self, t: np.ndarray) -> Panels:
        """In ascending order, given the places of the anchors."""
        return self[np.argsort(t[self.a] + self.low, kind="stable")]

    @staticmethod
    def joined(parts: list[Panels]) -> Panels:
        """Several lots as one."""
        return Panels(*(np.concatenate(column) for column in zip(*map(tuple, parts), strict=True)))


class Known(NamedTuple):
    """What is known of |f|, or of what is left of it without its tilt, on panels.

    Args:
        panels: the panels.
        t: middles of the panels.
        half: half widths.
        f: least and largest log|f| on the segments.
        around: least and largest log|f| on the boxes, largest |arg f|; NaN: not analytic.
    """

    panels: Panels
    t: np.ndarray
    half: np.ndarray
    f: tuple[np.ndarray, ...]
    around: tuple[np.ndarray, ...] = ()

    def __getitem__(self, which: Any) -> Known:  # type: ignore[override]
        """Some of them."""
        f, around = (tuple(y[which] for y in x) for x in (self.f, self.around))
        return Known(self.panels[which], self.t[which], self.half[which], f, around)


class Goal(Protocol):
    """What the panels are cut for."""

    tilted: bool  # whether bounds on f leave out its tilt
    patience: int  # rounds before panels are graded towards a singular anchor

    def see(self, known: Known) -> None:
        """Take notice of the bounds on the pending panels of a round."""
        ...

    def drop(self, known: Known) -> np.ndarray:
        """Which panels do not count."""
        ...

    def accept(self, known: Known) -> np.ndarray:
        """Which panels the rule is good enough on."""
        ...

    def keep(self, known: Known) -> None:
        """Take over accepted panels."""
        ...

    def negligible(self, known: Known) -> np.ndarray:
        """Which pending panels can be left out by what is next to them."""
        ...

    def singular(self, known: Known) -> np.ndarray:
        """Which pending panels f may be singular on."""
        ...

    def parts(self, known: Known) -> np.ndarray:
        """Into how many parts each pending panel is to be cut."""
        ...

    def stuck(self, known: Known) -> None:
        """Take over panels that cannot be cut further."""
        ...


class Axis:
    """A law's coordinate, anchored where a linear part of the kernel vanishes and at its centre.

    Args:
        f: the definition of a kernel.
        law: the law of the score.
    """

    def __init__(self, f: Definition, law: ScoreLaw) -> None:
        """Place the anchors."""
        self.f, self.law, self.work = f, law, 0.0
        first, last = law.steps[0], law.steps[-1]
        at = {law.where(root): root for root in f.roots}
        at = {t: root for t, root in at.items() if first <= t <= last and t != 0} | {0.0: law.beta}
        self.t, self.s = np.array(sorted(at.items()), dtype=np.float64).T
        self.shift = np.array([law.shift(*pair) for pair in zip(self.t, self.s, strict=True)])

    def start(self) -> Panels:
        """Panels over the whole line; each anchor serves the part that is nearest to it."""
        half = np.array([self.law.gap(*pair) for pair in itertools.pairwise(self.s)]) / 2
        lows = np.concatenate([self.law.steps[:1] - self.t[:1], -half])
        highs = np.concatenate([half, self.law.steps[-1:] - self.t[-1:]])
        parts = []
        for a, (t, low, high) in enumerate(zip(self.t, lows, highs, strict=True)):
            x = np.concatenate([self.law.steps - t, [low, 0.0, high]])
            x = np.unique(x[(x >= low) & (x <= high)])
            parts.append(Panels(np.full(len(x) - 1, a), x[:-1], x[1:]))
        return Panels.joined(parts)

    def at(self, a: np.ndarray, x: np.ndarray) -> At:
        """|f| at points, from `Definition.at`."""
        self.work += (_POINT * np.size(x) + _CALL) * self.f.size
        return self.f.at(self.s[a], self.law.offset(Points(x), self.t[a]))

    def refined(self, a: np.ndarray, x: np.ndarray, found: At, worth: np.ndarray) -> At:
        """What was found at points, in high precision where float64 left doubts.

        Args:
            a: numbers of the anchors.
            x: offsets of t.
            found: |f| there, from `at`.
            worth: which points are worth it.
        """
        size = 1 + np.abs(np.where(np.isfinite(found.log), found.log, 0.0))
        index = np.nonzero((found.error > _DOUBTFUL * size) & worth)
        if not len(index[0]):
            return found
        t = self.t[a[index]]
        offset = [self.law.slow_offset(*pair) for pair in zip(x[index], t, strict=True)]
        slow = self.f.slowly(self.s[a[index]], offset)
        good = ~np.isnan(slow)
        index, slow = tuple(i[good] for i in index), slow[good]
        log, error, most = found.log.copy(), found.error.copy(), found.most.copy()
        log[index], error[index], most[index] = slow, 2 * EPS * (1 + np.abs(slow)), slow
        return At(log, error, most, found.side)

    def on(self, p: Panels, tilted: bool) -> tuple[Known, list[Any]]:
        """What is known on the segments, and the branches there."""
        self.work += (len(p.a) + _CALL) * self.f.size
        x = self.law.offset(Segments.between(p.low, p.high), self.t[p.a])
        low, high, taken = self.f.on(self.s[p.a], x, tilted)
        middle = self.t[p.a] + (p.low + p.high) / 2
        return Known(p, middle, (p.high - p.low) / 2, (low, high)), taken

    def around(self, known: Known, taken: list[Any], tilted: bool) -> Known:
        """And what is known on the boxes around them."""
        self.work += (len(known.half) + _CALL) * self.f.size
        p, half = known.panels, known.half
        centre = (p.low + p.high) / 2
        wide, high = WIDE * half * (1 + 8 * EPS), HIGH * half * (1 + 8 * EPS)
        box = self.law.offset(Boxes(centre - wide, centre + wide, -high, high), self.t[p.a])
        return known._replace(around=self.f.around(self.s[p.a], box, taken, tilted))


def _branches(taken: list[Any], which: np.ndarray) -> list[Any]:
    return [sign[which] if np.ndim(sign) else sign for sign in taken]


def cut(axis: Axis, goal: Goal) -> None:
    """Cut the axis until the goal has taken every panel.

    Args:
        axis: the anchored axis.
        goal: what to cut for.

    Raises:
        InputError: f is not a finite real number where keys fall, or needs too many panels.
    """
    pending = axis.start()
    for round_ in range(_ROUNDS):
        known, taken = axis.on(pending, goal.tilted)
        goal.see(known)
        live = np.flatnonzero(~goal.drop(known))
        known = axis.around(known[live], _branches(taken, live), goal.tilted)
        good = goal.accept(known)
        goal.keep(known[good])
        rest = known[~good]
        if not len(rest.half):
            return
        narrow = _narrow(axis, rest) | goal.negligible(rest)
        if narrow.any():
            goal.stuck(rest[narrow])
            rest = rest[~narrow]
        if not len(rest.half):
            return
        if round_ >= 2:
            _refuse_unreal(axis, rest)
        if axis.work > _WORK:
            fix = f"has too fine a structure at gamma = {axis.law.gamma:g}; lower gamma"
            raise TooFine("weight", axis.f.kernel.weight, fix)
        if (rest.f[1] == np.inf).sum() > _ENDLESS:
            fix = "is unbounded at more scores than can be told apart"
            raise TooFine("weight", axis.f.kernel.weight, fix)
        pending = _split(axis, goal, rest, round_)
    raise TooFine("weight", axis.f.kernel.weight, "cannot be cut into pieces that are smooth")


def _resolution(axis: Axis, a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """How finely branches of f can be told apart at an offset from an anchor.

    Next to an anchor f keeps its digits in the offset, elsewhere in the score.
    """
    own = np.abs(x)
    size = np.maximum(np.abs(axis.t[a]), np.abs(axis.s[a]) / axis.law.gamma)
    return _NARROW * np.where(own < _NEAR * size, own, np.maximum(own, size))


def _narrow(axis: Axis, rest: Known) -> np.ndarray:
    """Panels that cannot be cut further, and are not at an anchor."""
    p = rest.panels
    own = np.maximum(np.abs(p.low), np.abs(p.high))
    touching = (p.low == 0) | (p.high == 0)
    return ~touching & (2 * rest.half <= _resolution(axis, p.a, own)) | (own < 1e-290)


def _refuse_unreal(axis: Axis, rest: Known) -> None:
    """Refuse an f that is not real on a pending panel."""
    p = rest.panels
    x = p.low + 0.3819660112501051 * (p.high - p.low)
    found = axis.at(p.a, x)
    odd = np.flatnonzero(np.isnan(found.log) | (found.log == np.inf))
    for i in odd[np.argsort(np.abs(axis.t[p.a] + x)[odd])][:_LOOKS]:
        offset = axis.law.offset(Points(x[i]), axis.t[p.a[i]])
        score = float(axis.s[p.a[i]] + offset.m)
        if abs(score) < _SANE and not axis.f.real_at(score):
            fix = f"is not a finite real number at score {score:.6g}; it must be one at every score"
            raise InputError("weight", axis.f.kernel.weight, fix)


def _split(axis: Axis, goal: Goal, rest: Known, round_: int) -> Panels:
    """The panels in equal parts, graded towards a singular anchor, or at the jump inside."""
    p, parts = rest.panels, []
    odd = goal.singular(rest)
    graded = odd & ((p.low == 0) | (p.high == 0)) & (round_ >= goal.patience)
    if graded.any():
        parts.append(_graded(p[graded]))
    even = ~graded
    if round_ >= _PATIENCE:
        jump, places = _jumps(axis, p, odd & ~graded)
        even &= ~jump
        if jump.any():
            parts.append(_around(axis, p[jump], places))
    q, count = p[even], goal.parts(rest)[even]
    a, low, step = (np.repeat(x, count) for x in (q.a, q.low, (q.high - q.low) / count))
    number = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    low, high = low + number * step, low + (number + 1) * step
    high = np.where(number + 1 == np.repeat(count, count), np.repeat(q.high, count), high)
    parts.append(Panels(a, low, high))
    return Panels.joined(parts)


def _graded(p: Panels) -> Panels:
    """Panels [0, h] (or mirrored) as [0, h/2^m], …, [h/2, h]."""
    side = np.where(p.low == 0, p.high, p.low)
    edges = side[:, None] * np.concatenate([2.0 ** -np.arange(_GRADES + 1), [0.0]])
    one, two = edges[:, 1:].ravel(), edges[:, :-1].ravel()
    a = np.repeat(p.a, _GRADES + 1)
    return Panels(a, np.minimum(one, two), np.maximum(one, two))


def _jumps(axis: Axis, p: Panels, where: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which of the panels have a jump of branches inside, one only, and where."""
    found = np.zeros(len(where), dtype=bool)
    index = np.flatnonzero(where)
    if not len(index):
        return found, np.empty(0)
    a, low, high = p.a[index], p.low[index], p.high[index]
    left, right = axis.at(a, low).side, axis.at(a, high).side
    middle = axis.at(a, (low + high) / 2).side
    differ = (left != right) & ((middle == left) | (middle == right))  # else there are several
    found[index[differ]] = True
    a, low, high, left = a[differ], low[differ], high[differ], left[differ]
    for _ in range(60 if len(a) else 0):
        middle = (low + high) / 2
        same = axis.at(a, middle).side == left
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return found, (low + high) / 2


def _around(axis: Axis, p: Panels, place: np.ndarray) -> Panels:
    """Each panel as what is left of a place, a sliver around it, and what is right of it."""
    sliver = 0.4 * _resolution(axis, p.a, place)
    one = np.clip(place - sliver, p.low, p.high)
    two = np.clip(place + sliver, p.low, p.high)
    parts = [Panels(p.a, p.low, one), Panels(p.a, one, two), Panels(p.a, two, p.high)]
    found = Panels.joined(parts)
    return found[found.high > found.low]
