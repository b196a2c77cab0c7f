"""Symmetries of a weight: shifts and scales of the score that only multiply it by a constant."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import sympy

from sparsity.kernels.base import Kernel
from sparsity.kernels.lowering import log_abs
from sparsity.kernels.symbols import s

__all__ = ["symmetry"]


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


@functools.lru_cache(maxsize=128)
def symmetry(kernel: Kernel) -> tuple[float | None, float | None]:
    """(a, p): f(s + x) = e^(ax) f(s) up to a sign for all x, and f(cs) = c^p f(s); or None."""
    rise = sympy.simplify(log_abs(kernel.weight).diff(s)) if kernel.weight.has(s) else sympy.S(0)
    exponent = float(rise) if rise.is_number and rise.is_real else None
    return exponent, _degree(kernel.weight)
