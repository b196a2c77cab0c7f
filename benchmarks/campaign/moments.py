"""E|f|^p in balls: where the mass is, how little lies beyond, and what lies between.

The score axis is halved until a stretch either holds nothing that counts or f is smooth on it;
smooth stretches are integrated by Arb with a proven error, and the rest enters the radius.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flint import acb, arb, ctx

from benchmarks.campaign.balls import on_discs, on_stretches, slope
from benchmarks.campaign.functions import NAN
from benchmarks.campaign.limits import DEADLINE, Infinite, NoReference
from benchmarks.campaign.shape import Node, constant
from benchmarks.campaign.smooth import Stretch, Undecided, smooth

__all__ = ["Weight", "moment", "reach"]

SPARE = 120  # bits below the moment at which a part no longer counts


@dataclass(frozen=True)
class Weight:
    """The density of scores: Gaussian (not normalised), or 1 on one period of the kernel."""

    beta: arb
    gamma: arb
    period: arb | None = None

    def disc(self, z: Any) -> Any:
        if self.period is not None:
            return 1
        t = (z - self.beta) / self.gamma
        return (-t * t / 2).exp()

    def most(self, x: arb) -> arb:
        """The largest density on a stretch."""
        if self.period is not None:
            return arb(1)
        t = arb(((x - self.beta) / self.gamma).abs_lower())
        return (-t * t / 2).exp()


def most(f: Callable[[arb], arb], p: int, weight: Weight, a: arb, b: arb) -> arb:
    """An upper bound of the integral of |f|^p over [a, b]; not finite where there is none."""
    x = a.union(b)
    size = f(x)
    if not size.is_finite():
        return size
    return arb(size.abs_upper()) ** p * weight.most(x) * arb((b - a).upper())


def _far(f: Callable[[arb], arb], p: int, weight: Weight, side: int, small: arb) -> tuple[arb, arb]:
    """The end of the range on one side, and a bound on what lies beyond it, to 1e7 times as far.

    Beyond that the building blocks, none of which outgrows e^(cs²), have nothing to add.
    """
    ratio, near = arb("1.06"), arb(12)
    end, rest = near, arb(0)
    for _ in range(290):
        wide = near * ratio
        a, b = (weight.beta + side * weight.gamma * d for d in (near, wide))
        a, b = (arb(a.mid()), arb(b.mid()))
        part = most(f, p, weight, *((a, b) if side > 0 else (b, a)))
        near = arb(wide.mid())
        if part < small:
            rest += part
        else:
            end, rest = near, arb(0)
    last = arb((weight.beta + side * weight.gamma * end).mid())
    if end > 1e8:
        for _ in range(12):
            size = abs(f(last)) ** p * weight.most(last)
            if size > small * arb(2) ** (SPARE - 40):  # so far out, against the moment
                raise Infinite(f"the moment of order {p} does not end")
            last = arb(((last + weight.beta) / 2).mid())
        raise NoReference(f"no bound on a tail of the moment of order {p}")
    return last, rest


def reach(tree: Node, p: int, weight: Weight, small: arb) -> tuple[arb, arb, arb]:
    """The range that holds all of a moment but a rest, and a bound on the rest."""
    f = on_stretches(tree)
    left, more = _far(f, p, weight, -1, small)
    right, rest = _far(f, p, weight, 1, small)
    return left, right, more + rest


@dataclass
class _Parts:
    """What the halving has found."""

    smooth: list[tuple[arb, arb, Node]]
    rest: arb
    singular: list[tuple[arb, arb]]


def _halve(tree: Node, p: int, weight: Weight, cuts: list[arb], small: arb) -> _Parts:
    """Smooth stretches in order, a bound on the rest, and the stretches too short to halve."""
    parts = _Parts([], arb(0), [])
    whole: Node = ("abs", tree) if p == 1 else tree
    f = on_stretches(tree)
    todo = list(itertools.pairwise(cuts))[::-1]
    while todo:
        a, b = todo.pop()
        DEADLINE.check()
        if not a < b:
            continue
        bound = most(f, p, weight, a, b)
        if bound < small:
            parts.rest += bound
            continue
        try:
            found = smooth(whole, Stretch(a, b))
        except Undecided as reason:
            shortest = arb(2) ** (60 - ctx.prec) * max(arb(abs(a).mid()), arb(abs(b).mid()))
            if b - a < shortest or b - a < arb(2) ** -1500:
                parts.singular.append((a, b))
                parts.rest += bound if bound.is_finite() and not reason.guard else 0
                continue
            ends = [a, *_between(reason, a, b), b]
            todo += list(itertools.pairwise(ends))[::-1]
            continue
        last = parts.smooth[-1] if parts.smooth else None
        if last and last[1] == a and last[2] == found:
            parts.smooth[-1] = (last[0], b, found)
        else:
            parts.smooth.append((a, b, found))
    return parts


def _between(reason: Undecided, a: arb, b: arb) -> list[arb]:
    """Where to cut a stretch: around the one zero of what is undecided, else in the middle."""
    middle = arb(((a + b) / 2).mid())
    if reason.node is None:
        return [middle]
    g, x, y = on_stretches(reason.node), a.union(b), middle
    incline = slope(reason.node, x)
    if not (incline > 0 or incline < 0):
        return [middle]
    for _ in range(14):  # Newton's method on balls: the zero lies in every x
        new = y - g(y) / incline
        if not new.is_finite() or not new.overlaps(x):
            return [middle]
        if float(new.rad()) > 0.6 * float(x.rad()):
            break
        x = new
        y, incline = arb(x.mid()), slope(reason.node, x)
    pad = arb(2) ** (50 - ctx.prec) * arb(abs(x).abs_upper()) + arb(2) ** -1501
    low, high = arb((x.lower() - pad).mid()), arb((x.upper() + pad).mid())
    return [c for c in (low, high) if a < c < b] or [middle]


def _panel(a: arb, b: arb, node: Node, p: int, weight: Weight, small: arb) -> arb:
    """The integral of node^p over a stretch on which it is smooth."""
    if constant(node):
        return on_stretches(node)(a) ** p * mass(a, b, weight)
    f = on_discs(node)

    def whole(z: acb, _: bool) -> acb:
        return acb(NAN) if DEADLINE.passed() else f(z) ** p * weight.disc(z)

    value = acb.integral(whole, a, b, abs_tol=small, rel_tol=arb(2) ** -(SPARE + 10))
    DEADLINE.check()
    return value.real


def mass(a: arb, b: arb, weight: Weight) -> arb:
    """The integral of the density alone."""
    if weight.period is not None:
        return b - a
    scale = weight.gamma * arb(2).sqrt()
    low, high = (a - weight.beta) / scale, (b - weight.beta) / scale
    if high < 0:
        low, high = -high, -low
    gap = low.erfc() - high.erfc() if low > 0 else high.erf() - low.erf()
    return gap * scale * arb.pi().sqrt() / 2


def _singular(f: Callable[[arb], arb], p: int, weight: Weight, a: arb, b: arb, top: arb) -> arb:
    """What a singular point may hold: a hundred times the width, at the height of its edges.

    This covers logarithms, and powers above −0.9 and |s|^(−0.9) by far; a pole does not pass.
    """
    width = b - a
    found = arb(0)
    for end in (a - width, b + width):
        size = abs(f(end)) ** p * weight.most(end) * width * 100
        found = found.max(size) if size.is_finite() else size
    if not found.is_finite():
        raise NoReference(f"no bound at the score {float(a.mid()):.6g}")
    if not found < top * arb(2) ** -60:
        raise Infinite(f"the moment of order {p} at the score {float(a.mid()):.6g}")
    return found


def moment(tree: Node, p: int, weight: Weight, scale: arb, cuts: list[arb]) -> arb:
    """A ball around the integral of |f|^p against the weight.

    Args:
        tree: f.
        p: 1 or 2.
        weight: the density.
        scale: the moment's rough size; parts 2^−120 of it do not count.
        cuts: scores at which to begin to cut, in order.

    Raises:
        Infinite: it seems to be.
        NotReal: f is not real somewhere that counts.
    """
    small = scale * arb(2) ** -SPARE
    f = on_stretches(tree)
    rest = arb(0)
    if weight.period is None:
        left, right, rest = reach(tree, p, weight, small)
        cuts = [left, *(c for c in cuts if left < c < right), right]
    parts = _halve(tree, p, weight, cuts, small / 1000)
    total = arb(0)
    for a, b, node in parts.smooth:
        total += _panel(a, b, node, p, weight, small / len(parts.smooth))
    rest += parts.rest
    for a, b in parts.singular:
        rest += _singular(f, p, weight, a, b, scale)
    return total + arb(0).union(arb(rest.upper()))
