"""Eight kernels such as users write, each as SymPy's expression and as stable float64 functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy
from scipy import special

from sparsity.kernels import Kernel, score_kernel

_ROOT_HALF = math.sqrt(0.5)


@dataclass(frozen=True)
class UserKernel:
    """f(s), three times.

    Args:
        name: in tables.
        expression: s -> SymPy's expression, as a user would type it.
        scalar: f of a float, for integrators that go point by point.
        vector: f of an array.
    """

    name: str
    expression: Callable[[Any], Any]
    scalar: Callable[[float], float]
    vector: Callable[[np.ndarray], np.ndarray]

    def fresh(self) -> Kernel:
        """A kernel that nothing has seen yet."""
        return score_kernel(self.name, self.expression(sympy.Symbol("s", real=True)))


def _softplus(s: float) -> float:
    return max(s, 0.0) + math.log1p(math.exp(-abs(s)))


def _sigmoid(s: float) -> float:
    e = math.exp(-abs(s))
    return 1 / (1 + e) if s >= 0 else e / (1 + e)


def _product(s: float) -> float:
    return _softplus(s) * math.tanh(s) ** 2 * _sigmoid(s)


def _products(s: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, s) * np.tanh(s) ** 2 * special.expit(s)


KERNELS = (
    UserKernel(
        "softplus", lambda s: sympy.log(1 + sympy.exp(s)), _softplus, lambda s: np.logaddexp(0, s)
    ),
    UserKernel(
        "|s|^0.3",
        lambda s: sympy.Abs(s) ** sympy.Rational(3, 10),
        lambda s: abs(s) ** 0.3,
        lambda s: np.abs(s) ** 0.3,
    ),
    UserKernel(
        "exp or 1+s",
        lambda s: sympy.Piecewise((sympy.exp(s), s < 0), (1 + s, True)),
        lambda s: math.exp(s) if s < 0 else 1 + s,
        lambda s: np.where(s < 0, np.exp(np.minimum(s, 0)), 1 + s),
    ),
    UserKernel("s^3", lambda s: s**3, lambda s: s * s * s, lambda s: s * s * s),
    UserKernel("sigmoid", lambda s: 1 / (1 + sympy.exp(-s)), _sigmoid, special.expit),
    UserKernel(
        "tanh^2",
        lambda s: sympy.tanh(s) ** 2,
        lambda s: math.tanh(s) ** 2,
        lambda s: np.tanh(s) ** 2,
    ),
    UserKernel(
        "GELU",
        lambda s: s * (1 + sympy.erf(s / sympy.sqrt(2))) / 2,
        lambda s: 0.5 * s * math.erfc(-s * _ROOT_HALF),
        lambda s: s * special.ndtr(s),
    ),
    UserKernel(
        "product",
        lambda s: sympy.log(1 + sympy.exp(s)) * sympy.tanh(s) ** 2 / (1 + sympy.exp(-s)),
        _product,
        _products,
    ),
)
