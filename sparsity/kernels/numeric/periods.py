"""The period of a kernel, read off its expression."""

from __future__ import annotations

import functools
import math
from typing import Any

import sympy

from sparsity.kernels.symbols import s

_TURNING = {sympy.sin: 2, sympy.cos: 2, sympy.tan: 1, sympy.cot: 1, sympy.sec: 2, sympy.csc: 2}
_COARSEST = 1000  # of a period that is common to several


def _own(part: Any) -> Any:
    """The period of a function of a linear score, None for anything else."""
    if part.func not in (*_TURNING, sympy.frac, sympy.Mod):
        return None
    slope = part.args[0].diff(s)
    if not slope.is_number or not slope.is_real or slope == 0:
        return None
    if part.func in _TURNING:
        return _TURNING[part.func] * sympy.pi / abs(slope)
    if part.func is sympy.frac:
        return 1 / abs(slope)
    return abs(part.args[1] / slope) if not part.args[1].has(s) else None


@functools.lru_cache(maxsize=128)
def period(weight: Any) -> float | None:
    """A period P > 0 of f, f(s + P) = f(s), or None where the expression shows none."""
    found = {part: own for part in sympy.preorder_traversal(weight) if (own := _own(part))}
    if not found or weight.subs({part: sympy.Dummy() for part in found}).has(s):
        return None
    first, *others = found.values()
    common = 1
    for other in others:
        ratio = other / first
        if not ratio.is_Rational or ratio.q > _COARSEST:
            return None
        common = math.lcm(common, int(ratio.p))
    return float(common * first) if common <= _COARSEST else None
