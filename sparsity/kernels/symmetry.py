"""Symmetries of a weight: shifts and scales of the score that only multiply it by a constant."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import sympy

from sparsity.kernels.base import Kernel
from sparsity.kernels.symbols import s


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
def symmetry(kernel: Kernel) -> tuple[float | None, float | None]:
    """(a, p): f(s + x) = e^(ax) f(s) up to a sign for all x, and f(cs) = c^p f(s); or None."""
    return _rise(kernel.weight), _degree(kernel.weight)
