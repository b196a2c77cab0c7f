"""What is read off the formula of a weight: whether it can be computed, and its symmetries."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import sympy
from sympy.core.relational import Relational
from sympy.functions.elementary.piecewise import ExprCondPair

from sparsity.errors import InputError
from sparsity.kernels.symbols import s

# Made of these alone, a weight needs no trial.
_PLAIN = (
    sympy.Symbol, sympy.Integer, sympy.Rational, sympy.Float, sympy.NumberSymbol,
    sympy.Add, sympy.Mul, sympy.Pow, sympy.exp, sympy.log, sympy.Abs, sympy.Max, sympy.Min,
    sympy.sign, sympy.Heaviside, sympy.sinh, sympy.cosh, sympy.tanh, sympy.erf, sympy.erfc,
    ExprCondPair, Relational, type(sympy.true),
)  # fmt: skip
_LARGEST = 10**300  # of a number in a weight, about what float64 holds
_INFINITE = (sympy.nan, sympy.zoo, sympy.oo, -sympy.oo)
_SCORES = np.array([-1.5, 0.25, 2.0])  # of the trial


def _is_plain(part: Any) -> bool:
    if isinstance(part, sympy.Rational):
        return max(abs(part.p), part.q) < _LARGEST
    if isinstance(part, sympy.Piecewise):
        return part.args[-1].args[1] == sympy.true  # the last condition: no gap is left
    return isinstance(part, _PLAIN) and part not in _INFINITE


def _tried(weight: Any) -> np.ndarray | None:
    """The weight at a few scores, None where that fails in any way."""
    if weight in _INFINITE:
        return None
    try:
        function = sympy.lambdify([s], weight, ["scipy", "numpy"])
        with np.errstate(all="ignore"):
            value = np.asarray(function(_SCORES))
        return value if value.dtype.kind in "biufc" else value.astype(np.float64)
    except Exception:  # noqa: BLE001  whatever code that was printed from an expression may raise
        return None


def refuse_uncomputable(weight: Any) -> None:
    """Check that a weight, a function of the score s, has real values.

    Raises:
        InputError: it has none, or may have none at some scores.
    """
    if all(map(_is_plain, sympy.preorder_traversal(weight))):
        return
    values = _tried(weight)
    if values is None:
        fix = "cannot be computed at a score; use functions that NumPy or SciPy has"
        raise InputError("weight", weight, fix)
    if np.any(np.imag(values)):
        raise InputError("weight", weight, "must be real for every real score s")
    if any(pieces.args[-1].args[1] != sympy.true for pieces in weight.atoms(sympy.Piecewise)):
        fix = "a Piecewise may have no value at some score; end it with (value, True)"
        raise InputError("weight", weight, fix)


def _degree(f: Any) -> float | None:
    """The p with f(cs) = c^p f(s) for every c > 0, None if there is none; NaN for f = 0."""
    if f == s:
        return 1.0
    if not f.has(s):
        return np.nan if f == 0 else 0.0
    if isinstance(f, sympy.Pow) and not f.exp.has(s):
        inner = _degree(f.base)
        return None if inner is None else float(f.exp) * inner
    if isinstance(f, (sympy.Mul, sympy.Add, sympy.Max, sympy.Min, sympy.Abs)):
        parts = [p for part in f.args if (p := _degree(part)) is not None]
        if len(parts) < len(f.args):
            return None
        if isinstance(f, sympy.Mul):
            return float(sum(parts))
        distinct = {p for p in parts if p == p}
        return distinct.pop() if len(distinct) == 1 else None
    return None


def _rise(f: Any) -> float | None:
    """The a with f(s + x) = e^(ax) f(s) up to a sign for every x, None where it is not seen.

    Read off the expression: a derivative would not see the jumps of a piecewise constant.
    """
    if not f.has(s):
        return 0.0
    if isinstance(f, (sympy.exp, sympy.Pow)) and not f.as_base_exp()[0].has(s):
        base, exponent = f.as_base_exp()
        slope = exponent.diff(s) if exponent.is_polynomial(s) else s
        rate = slope * sympy.log(base)
        return None if slope.has(s) or not rate.is_real else float(rate)
    if isinstance(f, sympy.Pow) and not f.exp.has(s):
        inner = _rise(f.base)
        return None if inner is None or not f.exp.is_real else float(f.exp) * inner
    if isinstance(f, (sympy.Mul, sympy.Abs)):
        parts = [_rise(part) for part in f.args]
        known = [part for part in parts if part is not None]
        return float(sum(known)) if len(known) == len(parts) else None
    return None


@functools.lru_cache(maxsize=128)
def symmetry(weight: sympy.Expr) -> tuple[float | None, float | None]:
    """(a, p): f(s + x) = e^(ax) f(s) up to a sign for all x, and f(cs) = c^p f(s); or None."""
    return _rise(weight), _degree(weight)
