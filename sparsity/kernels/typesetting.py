"""A formula as a line of text that reads like print: max(s, 0)², √s, exp(−s), 2·s."""

from __future__ import annotations

import re
from typing import Any

from sympy import Integer, Rational
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.str import StrPrinter

from sparsity.kernels.base import Kernel

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class _Printer(StrPrinter):
    """Prints powers raised, and a score before the numbers that it is compared with."""

    def _print_Pow(self, expr: Any, rational: bool = False) -> str:
        base = str(self.parenthesize(expr.base, PRECEDENCE["Pow"]))
        if expr.exp == Rational(1, 2):
            return f"√{base}" if expr.base.is_Atom else f"√({self._print(expr.base)})"
        if isinstance(expr.exp, Integer) and expr.exp != -1:
            return base + str(expr.exp).translate(_RAISED)
        return str(super()._print_Pow(expr, rational))

    def _print_Symbol(self, expr: Any) -> str:
        return "λ" if expr.name == "lambda" else str(expr.name)

    def _as_ordered_terms(self, expr: Any, order: Any = None) -> list[Any]:
        terms = super()._as_ordered_terms(expr, order)
        return sorted(terms, key=lambda term: term.could_extract_minus_sign())  # n − j, not −j + n

    def _print_Sum(self, expr: Any) -> str:
        return "Σ " + re.sub(r"\[(\w)\]", r"_\1", self._print(expr.function))  # k_i, not k[i]

    def _print_Max(self, expr: Any) -> str:
        ordered = sorted(expr.args, key=lambda x: (x.is_number, str(x)))
        return f"{expr.func.__name__.lower()}({', '.join(map(self._print, ordered))})"

    _print_Min = _print_Max

    def _print_Abs(self, expr: Any) -> str:
        return f"|{self._print(expr.args[0])}|"

    def _print_Piecewise(self, expr: Any) -> str:
        parts = [
            self._print(value) + ("" if where == True else f" if {self._print(where)}")  # noqa: E712
            for value, where in expr.args
        ]
        return ", else ".join(parts)


def typeset(expression: Any) -> str:
    """Return a SymPy expression as a line of text."""
    said = _Printer().doprint(expression).replace("**", "^").replace("*", "·")
    return said.replace("<=", "≤").replace(">=", "≥").replace("-", "−")


def typeset_name(kernel: Any) -> str:
    """Return the name of a kernel; of one that was typed as a formula, the formula."""
    typed = isinstance(kernel, Kernel) and re.search(r"[(*/^]", kernel.name)
    return typeset(kernel.weight) if typed else kernel.name


def typeset_weight(kernel: Any) -> str:
    """Return the weight of a kernel or of a map of rows."""
    return typeset(kernel.weight) if isinstance(kernel, Kernel) else kernel.formula
