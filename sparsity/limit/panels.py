"""The score axis cut into panels on which a kernel is known: analytic, bounded, and on one branch.

A panel is accepted when bounds on a complex box around it prove that a Gauss rule is exact to a
given error there, and dropped when bounds on its segment prove that it does not count. All others
are cut. Nothing hides between the nodes: a spike, a jump or a fast wave keeps the bounds wide until
the panels are as narrow as it needs.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from sparsity.errors import InputError, TooFine
from sparsity.kernels.numeric.points import EPS, Approx
from sparsity.limit.axis import Axis, PanelBounds, Panels

_ROUNDS = 1200
_WORK = 14_000_000  # segments, boxes and points evaluated, times the parts of the expression
_ENDLESS = 20_000  # panels on which f is unbounded
_LOOKS, _SANE = 3, 1e6  # odd points looked at in high precision, and how far out
_PATIENCE = 5  # rounds of halving before branches are looked for
_GRADES = 56  # halvings at once towards a singular anchor
_NEAR_RATIO = 4.0  # of the ends of a panel that is cut in equal ratios
_NARROW = 64 * EPS  # relative width of panels that cannot be cut further
_NEAR = 1e-6  # of an anchor's size: offsets at which f keeps their digits


class RefinementPolicy(Protocol):
    """What the panels are cut for."""

    tilted: bool  # whether bounds on f leave out its tilt
    patience: int  # rounds before panels are graded towards a singular anchor

    def see(self, known: PanelBounds) -> None:
        """Take notice of the bounds on the pending panels of a round."""
        ...

    def drop(self, known: PanelBounds) -> np.ndarray:
        """Which panels do not count."""
        ...

    def accept(self, known: PanelBounds) -> np.ndarray:
        """Which panels the rule is good enough on."""
        ...

    def keep(self, known: PanelBounds) -> None:
        """Take over accepted panels."""
        ...

    def negligible(self, known: PanelBounds) -> np.ndarray:
        """Which pending panels can be left out by what is next to them."""
        ...

    def singular(self, known: PanelBounds) -> np.ndarray:
        """Which pending panels f may be singular on."""
        ...

    def parts(self, known: PanelBounds) -> np.ndarray:
        """Into how many parts each pending panel is to be cut."""
        ...

    def stuck(self, known: PanelBounds) -> None:
        """Take over panels that cannot be cut further."""
        ...


def _branches(taken: list[Any], which: np.ndarray) -> list[Any]:
    return [sign[which] if np.ndim(sign) else sign for sign in taken]


def cut(axis: Axis, goal: RefinementPolicy, work: float = _WORK) -> None:
    """Cut the axis until the goal has taken every panel.

    Args:
        axis: the anchored axis.
        goal: what to cut for.
        work: the most segments, boxes and points to evaluate, times the parts of the expression.

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
        if axis.work > work:
            fix = f"has too fine a structure at gamma = {axis.law.gamma:g}; lower gamma"
            raise TooFine("weight", axis.f.kernel.weight, fix)
        if (rest.f[1] == np.inf).sum() > _ENDLESS:
            fix = "is unbounded at more scores than can be resolved"
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


def _narrow(axis: Axis, rest: PanelBounds) -> np.ndarray:
    """Panels that cannot be cut further, and are not at an anchor."""
    p = rest.panels
    own = np.maximum(np.abs(p.low), np.abs(p.high))
    touching = (p.low == 0) | (p.high == 0)
    return ~touching & (2 * rest.half <= _resolution(axis, p.a, own)) | (own < 1e-290)


def _refuse_unreal(axis: Axis, rest: PanelBounds) -> None:
    """Refuse an f that is not real on a pending panel."""
    p = rest.panels
    x = p.low + 0.3819660112501051 * (p.high - p.low)
    found = axis.at(p.a, x)
    odd = np.flatnonzero(np.isnan(found.log) | (found.log == np.inf))
    for i in odd[np.argsort(np.abs(axis.t[p.a] + x)[odd])][:_LOOKS]:
        offset = axis.law.offset(Approx(x[i]), axis.t[p.a[i]])
        score = float(axis.s[p.a[i]] + offset.m)
        if abs(score) < _SANE and not axis.f.real_at(score):
            fix = f"is not a finite real number at score {score:.6g}; it must be one at every score"
            raise InputError("weight", axis.f.kernel.weight, fix)


def _split(axis: Axis, goal: RefinementPolicy, rest: PanelBounds, round_: int) -> Panels:
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
    parts.append(_cut(q, count))
    return Panels.joined(parts)


def _cut(p: Panels, count: np.ndarray) -> Panels:
    """Each panel in so many parts: of equal ratio not far from the anchor, else of equal width."""
    a, start, end, parts = (np.repeat(x, count) for x in (p.a, p.low, p.high, count))
    number = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)

    def edge(share: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            ratio = end / start
            near = (ratio > 1 / _NEAR_RATIO) & (ratio < _NEAR_RATIO)
            found = np.where(near, start * ratio**share, start + share * (end - start))
        return np.where(share == 0, start, np.where(share == 1, end, found))

    return Panels(a, edge(number / parts), edge((number + 1) / parts))


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
