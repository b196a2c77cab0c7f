"""Kernels as small trees of tuples, with forms that do not cancel put in where they are known.

A node is a tuple: its operation, then its arguments. Floats become the exact rationals they are.
"""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any

import sympy

from benchmarks.campaign.shape import Node, positive

__all__ = ["Unknown", "add", "convert", "mul", "num", "power"]

S: Node = ("s",)
UNARY = ("exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh", "erf", "erfc", "atan")
RELATIONS = {
    sympy.StrictLessThan: -1,
    sympy.LessThan: -1,
    sympy.StrictGreaterThan: 1,
    sympy.GreaterThan: 1,
}


class Unknown(Exception):
    """An expression that the reference does not know."""


def num(value: Any) -> Node:
    return ("num", Fraction(value))


ZERO, ONE = num(0), num(1)


def _value(node: Node) -> Fraction | None:
    return node[1] if node[0] == "num" else None


def add(*terms: Node) -> Node:
    """The sum, flat, its numbers together and last."""
    flat = [y for x in terms for y in (x[1:] if x[0] == "add" else (x,))]
    total = sum((x[1] for x in flat if x[0] == "num"), Fraction(0))
    rest = [x for x in flat if x[0] != "num"]
    rest += [num(total)] if total or not rest else []
    return rest[0] if len(rest) == 1 else ("add", *rest)


def mul(*factors: Node) -> Node:
    """The product, flat, its numbers together and first."""
    flat = [y for x in factors for y in (x[1:] if x[0] == "mul" else (x,))]
    number = Fraction(1)
    for x in flat:
        number *= x[1] if x[0] == "num" else 1
    if not number:
        return ZERO
    rest = [x for x in flat if x[0] != "num"]
    if number != 1 or not rest:
        rest.insert(0, num(number))
    return rest[0] if len(rest) == 1 else ("mul", *rest)


def power(base: Node, exponent: Fraction) -> Node:
    """A power with a rational exponent; poles of sech and of 1/(exp(g) − 1) kept off the axis."""
    if exponent == 1:
        return base
    if base[0] == "num" and exponent.denominator == 1:
        return num(base[1] ** int(exponent))
    stable = {"cosh": "sech", "expm1": "bose", "onepexp": "sigmoid"}.get(base[0])
    if stable and exponent < 0:
        inside = base[1]
        if base[0] == "onepexp":
            inside = mul(num(-1), inside)
        return power((stable, inside), -exponent)
    if exponent.denominator == 1:
        return ("ipow", base, int(exponent))
    return ("rpow", base, exponent)


def _split(term: Node) -> tuple[Fraction, Node]:
    """A term as its number and one other node."""
    if term[0] == "mul" and term[1][0] == "num":
        return term[1][1], mul(*term[2:])
    return Fraction(1), term


def _paired(c: Fraction, node: Node) -> tuple[Fraction, Node] | None:
    """A number n and a node with n + c·node in a form that does not cancel, n > 0."""
    name, size = node[0], abs(c)
    turned = mul(num(1 if c > 0 else -1), node[1]) if len(node) > 1 else ZERO
    if name == "tanh":
        return size, mul(num(2 * size), ("sigmoid", mul(num(2), turned)))
    if name == "erf":
        return size, mul(num(size), ("erfc", mul(num(-1), turned)))
    if name == "erfc" and c < 0:
        return 2 * size, mul(num(size), ("erfc", mul(num(-1), node[1])))
    if name == "cos":
        half = mul(num(Fraction(1, 2)), node[1])
        return size, mul(num(2 * size), ("ipow", ("cos" if c > 0 else "sin", half), 2))
    if name == "sin":
        half = add(mul(num(Fraction(1, 2)), node[1]), mul(num(Fraction(1, 4)), ("pi",)))
        return size, mul(num(2 * size), ("ipow", ("sin" if c > 0 else "cos", half), 2))
    falls = name == "exp" and positive(mul(num(-1), node[1]))  # −c·e^(−g), g > 0
    return (size, mul(num(c), ("expm1", node[1]))) if falls and c < 0 else None


def _sum(terms: list[Node]) -> Node:
    """1 ± tanh g, 1 ± erf g, 1 ± cos g, e^g ± 1 and √(1 + g²) − g, without their cancelling."""
    flat = add(*terms)
    rest = list(flat[1:]) if flat[0] == "add" else [flat]
    number = rest.pop()[1] if rest[-1][0] == "num" else Fraction(0)
    if number and len(rest) == 1 and _split(rest[0])[1][0] == "exp":
        factor, node = _split(rest[0])
        share = factor / number  # n + c·e^g = n(1 ± e^(g + log|c/n|))
        inside = node[1] if abs(share) == 1 else add(node[1], ("log", num(abs(share))))
        if share < 0:
            return mul(num(-number), ("expm1", inside))
        return mul(num(number), ("onepexp", inside))
    if not number and len(rest) == 2:
        for root, other in (rest, rest[::-1]):
            inside = mul(num(-1), other)
            if root == ("rpow", add(("ipow", inside, 2), ONE), Fraction(1, 2)):
                return ("rootgap", inside)
    if number < 0 and len(rest) == 1:  # tanh g − 1 and the like
        return mul(num(-1), _sum([num(-number), mul(num(-1), rest[0])]))
    for i, (factor, node) in enumerate(map(_split, rest)):
        pair = _paired(factor, node)
        if pair and number >= pair[0]:
            number, rest[i] = number - pair[0], pair[1]
    return add(*rest, num(number)) if number or not rest else add(*rest)


def _log(inside: Node) -> Node:
    if inside[0] == "onepexp":
        return ("softplus", inside[1])
    return ("logcosh", inside[1]) if inside[0] == "cosh" else ("log", inside)


def _condition(test: Any) -> Node:
    if test in (sympy.true, sympy.false):
        return ("true",) if test else ("false",)
    if isinstance(test, (sympy.And, sympy.Or)):
        name = "and" if isinstance(test, sympy.And) else "or"
        return (name, *map(_condition, test.args))
    if isinstance(test, sympy.Eq):  # a single point, which no integral sees
        return ("false",)
    if isinstance(test, sympy.Ne):
        return ("true",)
    if type(test) not in RELATIONS:
        raise Unknown(str(test))
    gap = add(convert(test.lhs), mul(num(-1), convert(test.rhs)))
    return ("above", mul(num(RELATIONS[type(test)]), gap))


def _power(expression: Any) -> Node:
    base, exponent = convert(expression.base), convert(expression.exp)
    if exponent[0] == "num":
        return power(base, exponent[1])
    return ("exp", mul(exponent, ("log", base)))


@functools.lru_cache(maxsize=4096)
def convert(expression: Any) -> Node:
    """The tree of a SymPy expression.

    Raises:
        Unknown: a function that is not in the table.
    """
    if expression.is_Symbol:
        return S
    if expression.is_Rational or expression.is_Float:
        exact: Any = sympy.Rational(expression)
        return num(Fraction(int(exact.p), int(exact.q)))
    if expression in (sympy.pi, sympy.E):
        return ("pi",) if expression == sympy.pi else ("exp", ONE)
    if isinstance(expression, sympy.Piecewise):
        pairs: Any = expression.args
        flat = [x for value, test in pairs for x in (convert(value), _condition(test))]
        return ("piecewise", *flat)
    if isinstance(expression, sympy.Pow):
        return _power(expression)
    if isinstance(expression, sympy.sinc):
        inside = convert(expression.args[0])
        return mul(("sin", inside), power(inside, Fraction(-1)))
    return _function(expression, [convert(x) for x in expression.args])


def _function(expression: Any, x: list[Node]) -> Node:
    name = expression.func.__name__.lower()
    if name in UNARY:
        return _log(x[0]) if name == "log" else (name, x[0])
    if name in ("max", "min"):
        return functools.reduce(lambda a, b: (name, a, b), x)
    simple = {
        "add": lambda: _sum(x),
        "mul": lambda: mul(*x),
        "abs": lambda: ("abs", x[0]),
        "sign": lambda: ("sign", x[0]),
        "heaviside": lambda: ("step", x[0]),
        "floor": lambda: ("floor", x[0]),
        "ceiling": lambda: mul(num(-1), ("floor", mul(num(-1), x[0]))),
        "frac": lambda: ("frac", x[0]),
        "mod": lambda: mul(x[1], ("frac", mul(x[0], power(x[1], Fraction(-1))))),
        "sech": lambda: ("sech", x[0]),
        "csch": lambda: power(("sinh", x[0]), Fraction(-1)),
        "coth": lambda: power(("tanh", x[0]), Fraction(-1)),
    }
    if name not in simple:
        raise Unknown(name)
    return simple[name]()
