"""A tree made smooth on a stretch of scores: every sign, step and branch decided, or `Undecided`.

Abs, sign, Heaviside, floor, Max, Min and Piecewise are replaced by what they are there; bases of
logarithms, fractional powers and quotients are shown to be away from zero.
"""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any

from flint import arb, ctx

from benchmarks.campaign.balls import on_stretches, slope
from benchmarks.campaign.limits import NotReal
from benchmarks.campaign.shape import Node, nodes, nonnegative, polynomial, positive
from benchmarks.campaign.tree import ONE, ZERO, add, mul, num, power

__all__ = ["Stretch", "Undecided", "smooth"]

ROUGH = {"abs", "sign", "step", "floor", "frac", "max", "min", "piecewise", "log", "rpow"}
LEVEL = ("expm1", "softplus", "sigmoid")  # e^g − 1, log(1 + e^g), 1/(1 + e^−g)
STEEP = ("exp", "expm1", "onepexp", "cosh", "sinh")  # where g itself is exponential


class Undecided(Exception):
    """A sign that balls cannot tell on this stretch.

    Args:
        guard: whether the kernel may be singular where the sign changes.
        node: the smooth tree with that sign, where there is one.
    """

    def __init__(self, guard: bool, node: Node | None = None) -> None:
        super().__init__("undecided")
        self.guard, self.node = guard, node


class Stretch:
    """A stretch of scores between two exact ends, and a ball around it (a little wider)."""

    def __init__(self, low: arb, high: arb) -> None:
        self.low, self.high = low, high
        self.ball = low.union(high)


@functools.lru_cache(maxsize=65536)
def is_smooth(node: Node) -> bool:
    """Whether nothing in the tree has to be decided."""
    if node[0] in ROUGH and not (node[0] in ("log", "rpow") and positive(node[1])):
        return False
    if node[0] in LEVEL and any(x[0] in STEEP for x in nodes(node[1])):
        return False
    if node[0] == "bose" or (node[0] == "ipow" and node[2] < 0 and not positive(node[1])):
        return False
    return all(is_smooth(x) for x in node[1:] if isinstance(x, tuple))


@functools.lru_cache(maxsize=4096)
def _roots(node: Node, bits: int) -> Any:
    """Balls around the real roots of a polynomial, or None."""
    found = polynomial(node)
    if found is None or found.degree() < 1:
        return None
    if found.degree() == 1:
        return [arb(-found[0]) / arb(found[1])]
    with ctx.workprec(bits):
        roots = (found * found.denom()).numer().complex_roots()
    return [root.real for root, _ in roots if root.imag.contains(0)]


def sign(node: Node, x: Stretch, guard: bool = False) -> int:
    """+1 or −1 where a smooth tree keeps its sign on the stretch.

    Raises:
        Undecided: it may vanish, as far as can be told.
    """
    if positive(node):
        return 1
    f = on_stretches(node)
    roots = _roots(node, ctx.prec)
    if roots is not None:
        if not all(root < x.low or root > x.high for root in roots):
            raise Undecided(guard, node)
        value = f(arb(x.ball.mid()))
    else:
        value = f(x.ball)
        if not (value > 0 or value < 0):
            value = _by_slope(node, x)
    if value > 0 or value < 0:
        return 1 if value > 0 else -1
    raise Undecided(guard, node)


def _by_slope(node: Node, x: Stretch) -> arb:
    """A smooth tree over a stretch by its ends, where it is monotone, else by the mean value."""
    f, incline, middle = on_stretches(node), slope(node, x.ball), arb(x.ball.mid())
    if incline > 0 or incline < 0:
        ends = f(x.low), f(x.high)
        if all(end > 0 for end in ends) or all(end < 0 for end in ends):
            return ends[0]
    return f(middle) + incline * (x.ball - middle)


def _floor(inside: Node, x: Stretch) -> int:
    f = on_stretches(inside)
    value = f(x.ball)
    if not value.is_finite():
        raise Undecided(False)
    low: Any
    high: Any
    low, high = value.lower().floor(), value.upper().floor()
    if low != high:
        incline = slope(inside, x.ball)
        if incline > 0 or incline < 0:
            ends = f(x.low), f(x.high)
            low = ends[0].min(ends[1]).lower().floor()
            high = ends[0].max(ends[1]).upper().floor()
    if low != high:
        raise Undecided(False, add(inside, num(-int(high.unique_fmpz()))))
    return int(low.unique_fmpz())


def _size(node: Node, x: Stretch) -> Node:
    """|node| for a smooth node, factor by factor."""
    if nonnegative(node):
        return node
    if node[0] == "mul":
        return mul(*(_size(y, x) for y in node[1:]))
    if node[0] == "ipow":
        return power(_size(node[1], x), Fraction(node[2]))
    if node[0] == "num":
        return num(abs(node[1]))
    if node[0] in ("bose", "tanh", "sinh", "erf", "expm1", "atan"):  # the sign of their argument
        return mul(num(sign(node[1], x)), node)
    return mul(num(sign(node, x)), node)


def _sign_of(node: Node, x: Stretch) -> int:
    if node[0] == "mul":
        return functools.reduce(lambda a, b: a * _sign_of(b, x), node[1:], 1)
    return sign(node, x)


def _holds(test: Node, x: Stretch) -> bool:
    if test[0] in ("true", "false"):
        return test[0] == "true"
    if test[0] == "above":
        return sign(smooth(test[1], x), x) > 0
    return (all if test[0] == "and" else any)(_holds(t, x) for t in test[1:])


def _branch(args: tuple[Node, ...], x: Stretch) -> Node:
    for value, test in zip(args[::2], args[1::2], strict=True):
        if _holds(test, x):
            return smooth(value, x)
    raise NotReal("no piece covers the score")


def _guarded(node: Node, base: Node, x: Stretch, real: bool) -> None:
    """Show that the base of a logarithm, root or quotient is away from 0 (and > 0 if `real`)."""
    if sign(base, x, guard=True) < 0 and real:
        raise NotReal(str(node[0]))


def smooth(node: Node, x: Stretch) -> Node:
    """The smooth tree that equals the given one on the stretch.

    Raises:
        Undecided: a sign or branch changes there, or cannot be told.
        NotReal: the kernel is not a real number there.
    """
    if is_smooth(node):
        return node
    name = node[0]
    if name == "piecewise":
        return _branch(node[1:], x)
    inner = [smooth(y, x) if isinstance(y, tuple) else y for y in node[1:]]
    if name == "add":
        return add(*inner)
    if name == "mul":
        return mul(*inner)
    if name == "abs":
        return _size(inner[0], x)
    if name in ("sign", "step"):
        value = _sign_of(inner[0], x)
        return num(value) if name == "sign" else (ONE if value > 0 else ZERO)
    if name in ("floor", "frac"):
        whole = _floor(inner[0], x)
        return num(whole) if name == "floor" else add(inner[0], num(-whole))
    if name in ("max", "min"):
        gap = add(inner[0], mul(num(-1), inner[1]))
        first = gap == ZERO or (sign(gap, x) > 0) == (name == "max")
        return inner[0] if first else inner[1]
    if name in ("log", "rpow"):
        _guarded(node, inner[0], x, real=True)
    elif name == "bose" or (name == "ipow" and inner[1] < 0):
        _guarded(node, inner[0], x, real=False)
    elif name in LEVEL and not is_smooth((name, *inner)):
        return _level(name, inner[0], x)
    return power(*inner) if name == "rpow" else (name, *inner)


def _level(name: str, inside: Node, x: Stretch) -> Node:
    """A doubly exponential node as its limit, where that is right to all bits."""
    beyond = ctx.prec + 40
    if name == "expm1":
        far = sign(add(inside, num(beyond)), x) < 0
        return num(-1) if far else (name, inside)
    far = sign(add(inside, num(-beyond)), x) > 0
    return (name, inside) if not far else ONE if name == "sigmoid" else inside
