"""Plain formulas, for comparison: in float64 with scipy.special, and in mpmath at 15 digits.

What one would type: the published moments of a kernel, their logarithm at the end; of a quadrature
the definition given to `scipy.integrate.quad` and `mpmath.quad`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
import sympy
from scipy import integrate, special

from benchmarks.recorded.cells import Cell, extended_error
from benchmarks.recorded.score_laws import WEIGHTS

DIGITS = 15

# The functions that a formula is made of.
_FLOAT64 = SimpleNamespace(
    exp=np.exp, log=np.log, sqrt=np.sqrt, erf=special.erf, erfinv=special.erfinv,
    ndtr=special.ndtr, pi=np.float64(math.pi), number=np.float64,
)  # fmt: skip
_MPMATH = SimpleNamespace(
    exp=mpmath.exp, log=mpmath.log, sqrt=mpmath.sqrt, erf=mpmath.erf, erfinv=mpmath.erfinv,
    ndtr=mpmath.ncdf, pi=mpmath.mp.pi, number=mpmath.mpf,
)  # fmt: skip


def _exp(m: Any, beta: Any, gamma: Any) -> Any:
    return m.exp(beta + gamma * gamma / 2) / m.sqrt(m.exp(2 * beta + 2 * gamma * gamma))


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
    q = [m.number(1)] * (size if query == "uniform" else 1)
    if query == "half-normal":
        q = [m.sqrt(m.number(2)) * m.erfinv(m.number(2 * i + 1) / (2 * size)) for i in range(size)]
    return 1 / m.sqrt(1 + (ratio * m.sqrt(sum(x * x for x in q)) / sum(q)) ** 2)


def _decayed(m: Any, decay: Any, length: Any) -> Any:
    power = decay**length
    return m.sqrt((1 - power) * (1 + decay) / (length * (1 - decay) * (1 + power)))


_FORMULAS: dict[str, Callable[..., Any]] = {
    "exp": _exp, "relu2": _relu2, "identity": _identity, "nonnegative": _nonnegative,
    "decayed": _decayed, "abs": _identity,
}  # fmt: skip


def _by_quad(kernel: str, beta: Any, gamma: Any, library: Any) -> Any:
    """Return log S by integrals of |f|^p times the density, as `quad` makes them."""
    symbol = next(iter(WEIGHTS[kernel].free_symbols))
    f: Any = sympy.lambdify(symbol, WEIGHTS[kernel], "numpy" if library is _FLOAT64 else "mpmath")

    def moment(p: int) -> Any:
        def body(t: Any) -> Any:
            density = library.exp(-t * t / 2) / library.sqrt(2 * library.pi)
            return abs(f(beta + gamma * t)) ** p * density

        if library is _FLOAT64:
            return integrate.quad(body, -np.inf, np.inf)[0]
        return mpmath.quad(body, [-mpmath.inf, 0, mpmath.inf])

    return library.log(moment(1) / library.sqrt(moment(2)))


def _log_S(asked: dict[str, Any], library: Any) -> float:
    """Return log S by the plain formula; NaN where there is no number."""
    own = {
        name: x if isinstance(x, str) else library.number(x)
        for name, x in asked.items()
        if name not in ("call", "kernel", "method")
    }
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"), mpmath.workdps(DIGITS):
            warnings.simplefilter("ignore")
            if "method" in asked:
                return float(_by_quad(asked["kernel"], own["beta"], own["gamma"], library))
            return float(library.log(_FORMULAS[asked["kernel"]](library, **own)))
    except (ArithmeticError, ValueError, TypeError):
        return math.nan


def compare(cell: Cell) -> None:
    """Set the errors of the plain formulas, which closed forms and quadratures have."""
    if cell.member.startswith(("closed form", "quadrature")):
        for name, library in (("scipy", _FLOAT64), ("mpmath", _MPMATH)):
            found = extended_error(_log_S(cell.asked, library), cell.reference, cell.unit)
            setattr(cell, name, found)
