"""Kernels with many jumps or periods under one Gaussian: sums in place of an integral."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from flint import arb

from benchmarks.campaign.balls import on_stretches
from benchmarks.campaign.functions import rational
from benchmarks.campaign.limits import DEADLINE
from benchmarks.campaign.shape import Node, nodes, polynomial
from benchmarks.campaign.tree import ONE, add, mul

__all__ = ["period", "plateaus", "tilted"]

Period = tuple[Fraction, str]  # how many of 2π ("turn") or of 1 ("unit"); 0 for a constant


def _common(x: Period, y: Period) -> Period | None:
    if not x[0] or not y[0]:
        return x if x[0] else y
    if x[1] != y[1]:
        return None
    top = math.lcm(x[0].numerator, y[0].numerator)
    return Fraction(top, math.gcd(x[0].denominator, y[0].denominator)), x[1]


def _period(node: Node) -> Period | None:
    name, *x = node
    if name == "s":
        return None
    if name in ("sin", "cos", "tan", "frac"):
        moving = [y for y in x[0][1:] if ("s",) in nodes(y)] if x[0][0] == "add" else [x[0]]
        line = polynomial(add(*moving))
        if line is not None and line.degree() == 1:
            slope = abs(Fraction(int(line[1].p), int(line[1].q)))
            return 1 / slope, "unit" if name == "frac" else "turn"
    found: Period = (Fraction(0), "unit")
    for child in (y for y in x if isinstance(y, tuple)):
        below = _period(child)
        both = None if below is None else _common(found, below)
        if both is None:
            return None
        found = both
    return found


def period(node: Node) -> arb | None:
    """The period of a kernel in the score, where its form shows one.

    Over γ ≥ 3 periods the Gaussian mean of a function ≥ 0 is its mean over a period, within a
    share 2·Σ e^(−2π²k²γ²/P²) < 1e−76 (Poisson's sum).
    """
    found = _period(node)
    if found is None or not found[0]:
        return None
    return rational(found[0]) * (2 * arb.pi() if found[1] == "turn" else 1)


def jumps(node: Node) -> list[tuple[Node, arb]] | None:
    """The linear arguments at which a staircase jumps, or None where the tree is no staircase.

    A staircase depends on the score only through floor, sign and Heaviside of straight lines. Each
    line comes with the spacing of its jumps in the score; 0 for a single one.
    """
    name, *x = node
    if name in ("floor", "sign", "step"):
        line = polynomial(x[0])
        if line is not None and line.degree() == 1:
            slope = Fraction(int(line[1].p), int(line[1].q))
            return [(x[0], abs(1 / rational(slope)) if name == "floor" else arb(0))]
    if name == "s":
        return None
    found = []
    for child in (y for y in x if isinstance(y, tuple)):
        below = jumps(child)
        if below is None:
            return None
        found += below
    return found


def _cuts(line: Node, spacing: arb, left: arb, right: arb) -> Iterator[arb]:
    """Scores between two at which a straight line is whole (or zero, where spacing is 0)."""
    found = polynomial(line)
    shift, slope = arb(found[0]), arb(found[1])
    if spacing == 0:
        yield -shift / slope
        return
    ends = sorted(float(slope * x + shift) for x in (left, right))
    for k in range(math.floor(ends[0]), math.ceil(ends[1]) + 1):
        yield (k - shift) / slope


def plateau_count(node: Node, reach: arb) -> float:
    """How many plateaus a staircase has within a reach; infinite for all other kernels."""
    lines = jumps(node)
    if not lines:
        return math.inf
    return sum(1 if spacing == 0 else float(reach / spacing) for _, spacing in lines)


def plateaus(node: Node, p: int, beta: arb, gamma: arb, left: arb, right: arb) -> arb:
    """The integral of |f|^p of a staircase against the Gaussian (not normalised)."""
    found = [c for line, step in jumps(node) or [] for c in _cuts(line, step, left, right)]
    inner = sorted((c for c in found if left < c < right), key=lambda c: float(c.mid()))
    f, scale = on_stretches(node), gamma * arb(2).sqrt()
    total, a, low = arb(0), left, (left - beta) / scale
    before = abs(low).erfc()
    for b in [*inner, right]:
        DEADLINE.check()
        if not a < b:
            continue
        high = (b - beta) / scale
        after = abs(high).erfc()
        share = 2 - before - after if low < 0 and high > 0 else abs(before - after)
        total += abs(f(arb(((a + b) / 2).mid()))) ** p * share
        a, low, before = b, high, after
    return total * scale * arb.pi().sqrt() / 2


def tilted(node: Node, beta: arb, gamma: arb, p: int) -> tuple[Node, arb, arb]:
    """A kernel e^(as + b)·h: its h, and the Gaussian that e^(p(as + b)) turns the given one into.

    Returns:
        h, the mean β + paγ², and the logarithm of the constant that remains.
    """
    factors = node[1:] if node[0] == "mul" else (node,)
    rest, mean, log = [], beta, arb(0)
    slope = shift = arb(0)
    for x in factors:
        line = polynomial(x[1]) if x[0] == "exp" else None
        if line is None or line.degree() > 1:
            rest.append(x)
        else:
            slope, shift = slope + arb(line[1]), shift + arb(line[0])
    mean = beta + p * slope * gamma**2
    log = p * (shift + slope * beta) + (p * slope * gamma) ** 2 / 2
    return mul(*rest) if rest else ONE, mean, log
