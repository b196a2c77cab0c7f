"""Plain formulas, for comparison: in float64 with scipy.special, and in mpmath at 15 digits.

What one would type: the published moments of a kernel, their logarithm at the end; of a quadrature
the definition given to `scipy.integrate.quad` and `mpmath.quad`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import sympy
from scipy import integrate, special

from benchmarks.recorded.score_laws import WEIGHTS

DIGITS = 15


class _Float64:
    """The functions that a formula is made of, in float64."""

    exp, log, sqrt, erf, ndtr = np.exp, np.log, np.sqrt, special.erf, special.ndtr
    pi = math.pi
    number = np.float64


class _Mpmath:
    """The same in mpmath."""

    exp, log, sqrt, erf, ndtr = mpmath.exp, mpmath.log, mpmath.sqrt, mpmath.erf, mpmath.ncdf
    pi = mpmath.mp.pi
    number = mpmath.mpf


def _exp(m: Any, beta: Any, gamma: Any) -> Any:
    first = m.exp(beta + gamma * gamma / 2)
    return first / m.sqrt(m.exp(2 * beta + 2 * gamma * gamma))


def _relu2(m: Any, beta: Any, gamma: Any) -> Any:
    z, b2, g2 = beta / gamma, beta * beta, gamma * gamma
    density = m.exp(-z * z / 2) / m.sqrt(2 * m.pi)
    first = (b2 + g2) * m.ndtr(z) + beta * gamma * density
    second = (b2 * b2 + 6 * b2 * g2 + 3 * g2 * g2) * m.ndtr(z)
    return first / m.sqrt(second + beta * gamma * (b2 + 5 * g2) * density)


def _identity(m: Any, beta: Any, gamma: Any) -> Any:
    z = beta / gamma
    first = m.sqrt(2 / m.pi) * gamma * m.exp(-z * z / 2) + beta * m.erf(z / m.sqrt(m.number(2)))
    return first / m.sqrt(beta * beta + gamma * gamma)


def _nonnegative(m: Any, ratio: Any, dim: Any, query: str) -> Any:
    size = int(dim)
    if query == "half-normal":
        erfinv = special.erfinv if m is _Float64 else mpmath.erfinv
        q = [m.sqrt(m.number(2)) * erfinv(m.number(2 * i + 1) / (2 * size)) for i in range(size)]
    else:
        q = [m.number(1)] * (size if query == "uniform" else 1)
    return 1 / m.sqrt(1 + (ratio * m.sqrt(sum(x * x for x in q)) / sum(q)) ** 2)


def _decayed(m: Any, decay: Any, length: Any) -> Any:
    power = decay**length
    return m.sqrt((1 - power) * (1 + decay) / (length * (1 - decay) * (1 + power)))


_FORMULAS: dict[str, Callable[..., Any]] = {
    "exp": _exp, "relu2": _relu2, "identity": _identity, "nonnegative": _nonnegative,
    "decayed": _decayed,
}  # fmt: skip


def _by_scipy_quad(kernel: str, beta: float, gamma: float) -> float:
    f: Any = sympy.lambdify(*_expression(kernel), "numpy")
    moments = []
    for p in (1, 2):
        def body(t: float, p: int = p) -> float:
            return abs(f(beta + gamma * t)) ** p * math.exp(-t * t / 2) / math.sqrt(2 * math.pi)

        moments.append(integrate.quad(body, -np.inf, np.inf)[0])
    return float(np.log(moments[0] / np.sqrt(moments[1])))


def _by_mpmath_quad(kernel: str, beta: float, gamma: float) -> Any:
    f: Any = sympy.lambdify(*_expression(kernel), "mpmath")
    ends = [-mpmath.inf, 0, mpmath.inf]
    moments = [
        mpmath.quad(lambda t, p=p: abs(f(beta + gamma * t)) ** p * mpmath.npdf(t), ends)
        for p in (1, 2)
    ]
    return mpmath.log(moments[0] / mpmath.sqrt(moments[1]))


def _expression(kernel: str) -> tuple[Any, Any]:
    return next(iter(WEIGHTS[kernel].free_symbols)), WEIGHTS[kernel]


def by_scipy(asked: dict[str, Any]) -> float:
    """Return log S by the plain formula in float64; NaN where there is no number."""
    own = {name: x for name, x in asked.items() if name not in ("call", "kernel", "method")}
    with np.errstate(all="ignore"):
        try:
            if "method" in asked:
                return _by_scipy_quad(asked["kernel"], **own)
            given = {name: x if isinstance(x, str) else np.float64(x) for name, x in own.items()}
            return float(np.log(_FORMULAS[asked["kernel"]](_Float64, **given)))
        except (ArithmeticError, ValueError, TypeError):
            return math.nan


def by_mpmath(asked: dict[str, Any]) -> float:
    """Return log S by the plain formula in mpmath at 15 digits; NaN where there is no number."""
    own = {name: x for name, x in asked.items() if name not in ("call", "kernel", "method")}
    with mpmath.workdps(DIGITS):
        try:
            given = {name: x if isinstance(x, str) else mpmath.mpf(x) for name, x in own.items()}
            if "method" in asked:
                return float(_by_mpmath_quad(asked["kernel"], **given))
            return float(mpmath.log(_FORMULAS[asked["kernel"]](_Mpmath, **given)))
        except (ArithmeticError, ValueError, TypeError):
            return math.nan
