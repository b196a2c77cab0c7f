"""Trees evaluated in balls: over a stretch of scores, on a complex disc, and their slope."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from flint import acb, acb_poly, arb, arb_poly, ctx

from benchmarks.campaign.functions import (
    DERIVATIVES,
    DISC,
    NAN,
    PAIRS,
    STRETCH,
    monotone,
    rational,
    root,
    whole,
)
from benchmarks.campaign.shape import Node, constant, curved, direction, polynomial

__all__ = ["on_discs", "on_stretches", "slope"]


def _piecewise(args: tuple[Node, ...], bits: int) -> Callable[[Any], Any]:
    """The hull of the pieces that a stretch may meet."""
    values = [compiled(value, "stretch", bits) for value in args[::2]]
    pieces = list(zip(values, args[1::2], strict=True))

    def may(test: Node, x: arb) -> tuple[bool, bool]:
        """Whether the condition can be true, and whether it can be false."""
        if test[0] in ("true", "false"):
            return test[0] == "true", test[0] == "false"
        if test[0] == "above":
            gap = compiled(test[1], "stretch", bits)(x)
            return not gap < 0, not gap > 0
        yes, no = zip(*(may(t, x) for t in test[1:]), strict=True)
        return (all(yes), any(no)) if test[0] == "and" else (any(yes), all(no))

    def hull(x: arb) -> arb:
        found = None
        for value, test in pieces:
            yes, no = may(test, x)
            if yes:
                found = value(x) if found is None else found.union(value(x))
            if not no:
                break
        return NAN if found is None else found

    return hull


def _polynomial(found: Any, kind: str) -> Callable[[Any], Any]:
    coefficients = [arb(c) for c in found.coeffs()]
    return acb_poly(coefficients) if kind == "disc" else arb_poly(coefficients)


class _Tape:
    """A tree as steps over slots, each done once; slot 0 holds the score."""

    def __init__(self, kind: str, bits: int) -> None:
        self.kind, self.bits = kind, bits
        self.table = DISC if kind == "disc" else STRETCH
        self.slots: dict[Node, int] = {("s",): 0}
        self.start: list[Any] = [None]
        self.steps: list[tuple[int, Any, int, int]] = []

    def emit(self, f: Any, i: int, j: int = -1) -> int:
        self.start.append(None)
        self.steps.append((len(self.start) - 1, f, i, j))
        return len(self.start) - 1

    def place(self, x: Node) -> int:
        if x not in self.slots:
            self.slots[x] = self._placed(x)
        return self.slots[x]

    def _placed(self, x: Node) -> int:
        if x[0] in ("num", "pi"):
            self.start.append(rational(x[1]) if x[0] == "num" else arb.pi())
            return len(self.start) - 1
        if self.kind != "point" and constant(x):
            self.start.append(compiled(x, "point", self.bits)(arb(0)))
            return len(self.start) - 1
        if self.kind == "stretch" and curved(x):
            if direction(x):
                return self.emit(monotone(compiled(x, "point", self.bits)), 0)
            if x[0] == "exp" and x[1][0] == "add":  # e^(s − e^s): each factor by its ends
                return self.place(("mul", *(("exp", term) for term in x[1][1:])))
        if x[0] in ("add", "mul") and (found := polynomial(x)) and found.degree() > 3:
            return self.emit(_polynomial(found, self.kind), 0)
        if x[0] in PAIRS:
            slot = self.place(x[1])
            for other in x[2:]:
                slot = self.emit(PAIRS[x[0]], slot, self.place(other))
            return slot
        if x[0] in ("ipow", "rpow"):
            return self.emit((whole if x[0] == "ipow" else root)(x[2]), self.place(x[1]))
        if x[0] == "piecewise":
            return self.emit(_piecewise(x[1:], self.bits), 0)
        return self.emit(self.table[x[0]], self.place(x[1]))


@functools.lru_cache(maxsize=20000)
def compiled(node: Node, kind: str, bits: int) -> Callable[[Any], Any]:
    """A function of one ball; `kind` is "stretch" or "point" (arb), or "disc" (acb)."""
    tape = _Tape(kind, bits)
    with ctx.workprec(bits):
        last = tape.place(node)
    start, steps = tape.start, tape.steps

    def run(x: Any) -> Any:
        v = start.copy()
        v[0] = x
        for slot, f, i, j in steps:
            v[slot] = f(v[i]) if j < 0 else f(v[i], v[j])
        return v[last]

    return run


def on_stretches(node: Node) -> Callable[[arb], arb]:
    """f over a stretch of real scores, jumps and kinks included."""
    return compiled(node, "stretch", ctx.prec)


def on_discs(node: Node) -> Callable[[acb], acb]:
    """f, of smooth operations only, over a disc of complex scores."""
    return compiled(node, "disc", ctx.prec)


def slope(node: Node, x: arb) -> arb:
    """The derivative of a smooth tree over a stretch."""
    name, *arguments = node
    if name in ("num", "pi"):
        return arb(0)
    if name == "s":
        return arb(1)
    if name == "add":
        return functools.reduce(lambda a, b: a + b, (slope(y, x) for y in arguments))
    value = [on_stretches(y)(x) for y in arguments if isinstance(y, tuple)]
    if name == "mul":
        total = arb(0)
        for i, factor in enumerate(arguments):
            part = slope(factor, x)
            for j, other in enumerate(value):
                part = part if i == j else part * other
            total += part
        return total
    inner = slope(arguments[0], x)
    if name == "ipow":
        n = arguments[1]
        return inner * n * (whole(n - 1)(value[0]) if n != 1 else 1)
    if name == "rpow":
        return inner * rational(arguments[1]) * root(arguments[1] - 1)(value[0])
    return inner * DERIVATIVES[name](value[0])
