"""A kernel typed as text: "log(1 + exp(s))" becomes a SymPy expression of the score.

The text is read as a syntax tree. Each node must be on the list below and is built as the SymPy
node it stands for; nothing that is typed is ever evaluated as Python.
"""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import sympy
from sympy import Expr, Max, Min, Piecewise, Rational

from sparsity.calls import did_you_mean
from sparsity.errors import InputError
from sparsity.kernels.symbols import ALIASES, FUNCTIONS, s

LONGEST = 400  # characters
_DEEPEST = 24  # of nesting
_MOST_NODES = 500  # of the expression, in which gelu(x) has x twice
_LARGEST_EXPONENT = 64  # of a power by a whole number: moments need twice as many terms
_LARGEST = 10**30  # of a number
_MOST_ARGUMENTS = 8  # of max and min
_AROUND = 24  # characters shown on either side of a mistake


_SEVERAL = {"max": Max, "min": Min}
_CONSTANTS = {"s": s, "pi": sympy.pi}
_NAMES = (*_CONSTANTS, *FUNCTIONS, *_SEVERAL, "where")
_COMPARISONS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Lt: sympy.StrictLessThan,
    ast.LtE: sympy.LessThan,
    ast.Gt: sympy.StrictGreaterThan,
    ast.GtE: sympy.GreaterThan,
}
_OPERATIONS: Any = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
_NUMBER = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,3})?", re.IGNORECASE | re.ASCII)
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*", re.ASCII)


def is_formula(text: str, near: bool = False) -> bool:
    """Whether a text is meant as a formula or an alias, rather than as a kernel's name.

    Args:
        text: as typed.
        near: whether a name is spelled nearly the same; "non-negative" is no difference then.
    """
    text = text.strip()
    if text in _CONSTANTS or text in ALIASES:
        return True
    return bool(text) and not _WORD.fullmatch(text.replace("-", "") if near else text)


def refusal(text: str, place: int, why: str) -> InputError:
    """The error that shows the text with a caret before the mistake."""
    start, stop = max(place - _AROUND, 0), place + _AROUND
    left = ("…" if start else "") + text[start:place]
    right = text[place:stop] + ("…" if stop < len(text) else "")
    shown = "".join(x if x.isprintable() else "\N{REPLACEMENT CHARACTER}" for x in left + right)
    return InputError("kernel", f'"{shown[: len(left)]}^{shown[len(left) :]}"', f"at ^: {why}")


class _Reader:
    """Builds the expression of one text; a mistake is raised with its place."""

    def __init__(self, text: str) -> None:
        self.text = text

    def refuse(self, node: Any, why: str) -> InputError:
        return refusal(self.text, getattr(node, "col_offset", 0), why)

    def expression(self, node: ast.expr, depth: int = 0) -> Any:
        """The SymPy expression of a node; a constant in it is a real number of ordinary size."""
        built = self._built(node, depth)
        if any(i >= _MOST_NODES for i, _ in enumerate(sympy.preorder_traversal(built))):
            raise self.refuse(node, "this is too long a formula; write it with fewer parts")
        if not built.free_symbols and not built.is_Rational:
            self._size(node, built)
        return built

    def _size(self, node: ast.expr, constant: Any) -> float:
        """The size of a number, if it is real and within bounds."""
        value = constant.evalf(15)
        if not (value.is_Float or value.is_Rational) or abs(value) > _LARGEST:
            raise self.refuse(node, "this is not a real number of ordinary size")
        if constant != 0 and abs(value) < 1 / sympy.Integer(_LARGEST):
            raise self.refuse(node, "this is next to zero; write it as a number")
        return float(abs(value))

    def _built(self, node: ast.expr, depth: int) -> Any:
        if depth > _DEEPEST:
            raise self.refuse(node, "this is too long a formula; write it with fewer parts")
        match node:
            case ast.Constant():
                return self._number(node)
            case ast.Name():
                return self._name(node)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                inner = self.expression(node.operand, depth + 1)
                return -inner if isinstance(node.op, ast.USub) else inner
            case ast.BinOp():
                return self._operation(node, depth)
            case ast.Call():
                return self._call(node, depth)
            case ast.Compare() | ast.IfExp():
                raise self.refuse(node, "a condition stands in where(condition, value, otherwise)")
        raise self.refuse(
            node, f"this cannot be in a kernel; use {', '.join(_NAMES)} and + - * / **"
        )

    def _number(self, node: ast.Constant) -> Any:
        written = ast.get_source_segment(self.text, node) or ""
        if not _NUMBER.fullmatch(written):
            raise self.refuse(node, "write numbers as 2, 0.5 or 1e-3")
        return self._bounded(node, Rational(written.lower()))

    def _bounded(self, node: Any, value: Any) -> Any:
        """The value, if no number or exponent in it is out of bounds."""
        if value.has(sympy.zoo, sympy.nan, sympy.oo, sympy.I):
            raise self.refuse(node, "this is not a finite real number")
        for number in value.atoms(Rational):
            if abs(number.p) > _LARGEST or number.q > _LARGEST:
                raise self.refuse(node, f"numbers must stay within {float(_LARGEST):.0e}")
        for power in value.atoms(sympy.Pow):
            if power.exp.is_Rational and abs(power.exp) > _LARGEST_EXPONENT:
                raise self.refuse(node, f"exponents must stay within {_LARGEST_EXPONENT}")
        return value

    def _name(self, node: ast.Name) -> Any:
        if node.id in _CONSTANTS:
            return _CONSTANTS[node.id]
        if node.id in FUNCTIONS or node.id in _SEVERAL or node.id == "where":
            raise self.refuse(node, f"{node.id} is a function: write {node.id}(s)")
        raise self._unknown(node, node.id)

    def _unknown(self, node: ast.expr, name: str) -> InputError:
        hint = did_you_mean(name, _NAMES)
        shown = name if len(name) <= _AROUND else f"{name[:_AROUND]}…"
        return self.refuse(node, f"unknown name {shown}; {hint}use {', '.join(_NAMES)}")

    def _operation(self, node: ast.BinOp, depth: int) -> Any:
        if isinstance(node.op, ast.BitXor):
            power = self.text.replace("^", "**")  # the caret would stand beside their own
            raise InputError("kernel", f'"{self.text}"', f'write ** for a power: "{power}"')
        left, right = (self.expression(x, depth + 1) for x in (node.left, node.right))
        if isinstance(node.op, ast.Pow):
            return self._power(node, left, right)
        if isinstance(node.op, ast.Div):
            if right == 0:
                raise self.refuse(node.right, "this divides by zero")
            return self._bounded(node, left / right)
        if type(node.op) not in _OPERATIONS:
            raise self.refuse(node.right, "between two parts write one of + - * / **")
        return self._bounded(node, _OPERATIONS[type(node.op)](left, right))

    def _power(self, node: ast.BinOp, base: Any, exponent: Any) -> Any:
        if exponent.is_Rational:
            if abs(exponent) > _LARGEST_EXPONENT or exponent.q > _LARGEST_EXPONENT:
                why = f"an exponent is at most {_LARGEST_EXPONENT}, or a fraction of such numbers"
                raise self.refuse(node.right, why)
        elif not (base.is_Rational and base.is_positive):
            raise self.refuse(node.right, "give a number, unless the base is a positive number")
        if base == 0 and exponent.is_positive is not True:
            raise self.refuse(node.right, "zero has no such power")
        return self._bounded(node, base**exponent)

    def _call(self, node: ast.Call, depth: int) -> Any:
        if isinstance(node.func, ast.Attribute) and node.func.attr in _NAMES:
            raise self.refuse(node.func, f"write {node.func.attr}, by its name alone")
        if not isinstance(node.func, ast.Name):
            raise self.refuse(node.func, "only the functions by name can be called")
        name = node.func.id
        if name not in _NAMES or name in _CONSTANTS:
            raise self._unknown(node.func, name)
        if node.keywords:
            raise self.refuse(node, f"{name} takes plain arguments")
        if name == "where":
            return self._where(node, depth)
        if name in _SEVERAL:
            if not 2 <= len(node.args) <= _MOST_ARGUMENTS:
                raise self.refuse(node, f"{name} takes 2 to {_MOST_ARGUMENTS} arguments")
            return _SEVERAL[name](*(self.expression(x, depth + 1) for x in node.args))
        if len(node.args) != 1:
            raise self.refuse(node, f"{name} takes one argument")
        inner = self.expression(node.args[0], depth + 1)
        if not inner.free_symbols and self._size(node.args[0], inner) > _LARGEST_EXPONENT:
            raise self.refuse(node.args[0], f"a number here is at most {_LARGEST_EXPONENT}")
        if name == "elu" and inner.has(Piecewise):
            raise self.refuse(node, "elu of a where or an elu is not taken")
        return self._bounded(node, FUNCTIONS[name](inner))

    def _where(self, node: ast.Call, depth: int) -> Any:
        if len(node.args) != 3:
            raise self.refuse(node, "where takes three arguments: condition, value, otherwise")
        condition, *values = node.args
        if not (isinstance(condition, ast.Compare) and len(condition.ops) == 1):
            raise self.refuse(condition, "the condition is one comparison, such as s > 0")
        if type(condition.ops[0]) not in _COMPARISONS:
            raise self.refuse(condition, "compare with <, <=, > or >=")
        left, right = (
            self.expression(x, depth + 1) for x in (condition.left, condition.comparators[0])
        )
        if left.has(Piecewise) or right.has(Piecewise):
            raise self.refuse(condition, "a condition has no where or elu in it")
        holds = _COMPARISONS[type(condition.ops[0])](left, right)
        value, otherwise = (self.expression(x, depth + 1) for x in values)
        return Piecewise((value, holds), (otherwise, True))


def parse(text: str) -> Expr:
    """The expression of the score that a text writes.

    Args:
        text: numbers, s, pi, + - * / **, where(condition, value, otherwise) with one comparison,
            max, min and the `FUNCTIONS`; or one of the `ALIASES` alone, "softmax" for "exp(s)".
            At most 400 characters.

    Returns:
        A SymPy expression of `sparsity.kernels.symbols.s`.

    Raises:
        InputError: anything else; a caret shows the place.
    """
    text = text.strip()
    if not text:
        raise InputError("kernel", text, "give a formula of the score s, such as log(1 + exp(s))")
    if len(text) > LONGEST:
        raise refusal(text, LONGEST, f"a formula has at most {LONGEST} characters")
    for place, character in enumerate(text):
        if not (character.isascii() and character.isprintable()) or character in "#\\":
            raise refusal(text, place, "write plain letters, digits and + - * / ** ( ) , < > =")
    if text in ALIASES:
        return ALIASES[text](s)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python, on what it would not run
            tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        place = min(max((error.offset or 1) - 1, 0), len(text))
        raise refusal(text, place, "this is not a formula") from None
    except (ValueError, RecursionError, MemoryError):
        raise refusal(text, 0, "this is not a formula") from None
    return sympy.sympify(_Reader(text).expression(tree.body))
