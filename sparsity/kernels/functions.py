"""The functions that a formula of the score may use, and the names that stand for f(s) alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy
from sympy import Expr, Max, Piecewise


def _gelu(x: Expr) -> Expr:
    return x * (1 + sympy.erf(x / sympy.sqrt(2))) / 2


def _sigmoid(x: Expr) -> Expr:
    return 1 / (1 + sympy.exp(-x))


def _elu(x: Expr) -> Expr:
    return Piecewise((x, x > 0), (sympy.exp(x) - 1, True))


FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "exp": sympy.exp,
    "log": sympy.log,
    "sqrt": sympy.sqrt,
    "abs": sympy.Abs,
    "sign": sympy.sign,
    "sinh": sympy.sinh,
    "cosh": sympy.cosh,
    "tanh": sympy.tanh,
    "erf": sympy.erf,
    "erfc": sympy.erfc,
    "sin": sympy.sin,
    "cos": sympy.cos,
    "atan": sympy.atan,
    "floor": sympy.floor,
    "relu": lambda x: Max(x, 0),
    "sigmoid": _sigmoid,
    "softplus": lambda x: sympy.log(1 + sympy.exp(x)),
    "gelu": _gelu,
    "silu": lambda x: x * _sigmoid(x),
    "elu": _elu,
}
# What may be typed alone, as a name for f(s).
ALIASES: Mapping[str, Callable[[Any], Any]] = {
    "softmax": sympy.exp,
    **{name: FUNCTIONS[name] for name in ("relu", "gelu", "silu", "softplus", "sigmoid", "elu")},
}
