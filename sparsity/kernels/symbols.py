"""What a formula of the score is written in: symbols under the field's names, and functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy
from sympy import Expr, Idx, IndexedBase, Max, Piecewise, Symbol

s = Symbol("s", real=True)  # score s = q·k of a key against the query
beta = Symbol("beta", real=True)  # bias β = q·μ: the mean score
gamma = Symbol("gamma", positive=True)  # spread γ = σ‖q‖: the score's standard deviation
decay = Symbol("lambda", positive=True)  # decay λ per token of distance
n = Symbol("n", integer=True, positive=True)  # length of the row
j = Symbol("j", integer=True, positive=True)  # position of a key, 1…n
d = Symbol("d", integer=True, positive=True)  # dimension of the features
ratio = Symbol("r", positive=True)  # noise-to-signal ratio σ̃/μ̃ of one feature
sigma = Symbol("sigma", positive=True)  # standard deviation of one i.i.d. feature

i = Idx("i")  # index of a feature; a range in it would make Sum(…).subs(d, 3) wrong in SymPy
q: Any = IndexedBase("q", shape=(d,), nonnegative=True)  # nonnegative query features q̃
k: Any = IndexedBase("k", shape=(d,), nonnegative=True)  # nonnegative key features k̃
mu: Any = IndexedBase("mu", shape=(d,), positive=True)  # their mean μ̃
Sigma: Any = IndexedBase("Sigma", shape=(d, d), real=True)  # their covariance Σ̃


def relu(x: Expr) -> Expr:
    """max(x, 0)."""
    return Max(x, 0)


def sigmoid(x: Expr) -> Expr:
    """1/(1 + e^(−x))."""
    return 1 / (1 + sympy.exp(-x))


def softplus(x: Expr) -> Expr:
    """log(1 + e^x)."""
    return sympy.log(1 + sympy.exp(x))


def gelu(x: Expr) -> Expr:
    """The product x Φ(x)."""
    return x * (1 + sympy.erf(x / sympy.sqrt(2))) / 2


def silu(x: Expr) -> Expr:
    """x/(1 + e^(−x))."""
    return x * sigmoid(x)


def elu(x: Expr) -> Expr:
    """The number x above 0, e^x − 1 below."""
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
    "relu": relu,
    "sigmoid": sigmoid,
    "softplus": softplus,
    "gelu": gelu,
    "silu": silu,
    "elu": elu,
}
# What may be typed alone beside the names of kernels, which `kernels.named` finds first.
ALIASES: Mapping[str, Callable[[Any], Any]] = {
    "softmax": sympy.exp,
    "linear": lambda x: x,
    "relu^2": lambda x: relu(x) ** 2,
    "relu**2": lambda x: relu(x) ** 2,
}
