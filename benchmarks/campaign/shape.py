"""What the form of a tree alone says: its parts, its sign, and whether it rises or falls."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from flint import fmpq, fmpq_poly

__all__ = [
    "FALLING",
    "RISING",
    "Node",
    "constant",
    "curved",
    "direction",
    "nodes",
    "nonnegative",
    "positive",
]

Node = Any  # a tuple: the operation, then its arguments
RISING = ("exp", "sinh", "erf", "atan", "tanh", "sigmoid", "softplus", "expm1", "onepexp")
FALLING = ("erfc", "rootgap")


def nodes(node: Node) -> Iterator[Node]:
    """The node and all below it."""
    yield node
    for argument in node[1:]:
        if isinstance(argument, tuple):
            yield from nodes(argument)


@functools.lru_cache(maxsize=65536)
def positive(node: Node) -> bool:
    """Whether the form of a node alone says that it is > 0 for every real score."""
    name, *x = node
    if name == "num":
        return x[0] > 0
    if name in ("exp", "pi", "erfc", "cosh", "sech", "softplus", "sigmoid", "rootgap", "onepexp"):
        return True
    if name == "add":
        return all(map(nonnegative, x)) and any(map(positive, x))
    if name in ("mul", "min"):
        return all(map(positive, x))
    if name == "max":
        return any(map(positive, x))
    if name == "piecewise":
        return all(map(positive, x[::2]))
    return name in ("ipow", "rpow", "abs") and positive(x[0])


@functools.lru_cache(maxsize=65536)
def nonnegative(node: Node) -> bool:
    """Whether the form of a node alone says that it is ≥ 0 for every real score."""
    name, *x = node
    if name == "num":
        return x[0] >= 0
    if name in ("abs", "step", "frac", "logcosh"):
        return True
    if name in ("add", "mul", "min"):
        return all(map(nonnegative, x))
    if name == "max":
        return any(map(nonnegative, x))
    if name == "piecewise":
        return all(map(nonnegative, x[::2]))
    if name == "ipow":
        return x[1] % 2 == 0 or nonnegative(x[0])
    return name == "rpow" or positive(node)


@functools.lru_cache(maxsize=65536)
def direction(node: Node) -> int:
    """+1 or −1 for a tree that rises or falls all along, by its form; 0 where it may not."""
    name, *x = node
    if name == "s":
        return 1
    if name in ("add", "max", "min"):
        found = {direction(y) for y in x if not constant(y)}
        return found.pop() if len(found) == 1 else 0
    if name == "mul":
        moving = [y for y in x if not constant(y)]
        fixed = [y for y in x if constant(y)]
        factor = 1
        for y in fixed:
            if not positive(y) and y[0] != "num":
                return 0
            factor *= 1 if positive(y) else -1
        found = {direction(y) for y in moving}
        alike = len(moving) == 1 or all(map(positive, moving))
        return factor * found.pop() if len(found) == 1 and alike else 0
    if name in FALLING:
        return -direction(x[0])
    if name in RISING or name == "log":
        return direction(x[0])
    if name == "ipow" and (positive(x[0]) or (x[1] > 0 and x[1] % 2)):
        return direction(x[0]) * (1 if x[1] > 0 else -1)
    if name == "rpow" and positive(x[0]):
        return direction(x[0]) * (1 if x[1] > 0 else -1)
    return 0


@functools.lru_cache(maxsize=65536)
def constant(node: Node) -> bool:
    return all(x != ("s",) for x in nodes(node))


@functools.lru_cache(maxsize=65536)
def curved(node: Node) -> bool:
    return any(x[0] in (*RISING, *FALLING, "log") for x in nodes(node))


@functools.lru_cache(maxsize=4096)
def polynomial(node: Node) -> Any:
    """The tree as a polynomial with rational coefficients, or None."""
    name, *x = node
    if name == "num":
        return fmpq_poly([fmpq(x[0].numerator, x[0].denominator)])
    if name == "s":
        return fmpq_poly([0, 1])
    if name == "ipow" and 0 < x[1] <= 60:
        base = polynomial(x[0])
        return None if base is None or base.degree() * x[1] > 60 else base ** x[1]
    if name not in ("add", "mul"):
        return None
    parts = [polynomial(y) for y in x]
    if any(p is None for p in parts):
        return None
    return functools.reduce(lambda a, b: a + b if name == "add" else a * b, parts)
