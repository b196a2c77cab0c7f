"""Which sink logit takes a given share of the attention: the exact law inverted."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from scipy.optimize import brentq

from sparsity.arguments import number
from sparsity.errors import InputError
from sparsity.exact_law import engine
from sparsity.kernels import Kernel
from sparsity.kernels.parameters import LENGTH
from sparsity.limit.long_rows import log_sums
from sparsity.rows.classes import classed
from sparsity.rows.row import Row, row_of
from sparsity.rows.steps import SinkLogit

_FARTHEST = 1e4  # that a logit is looked for from where a sink begins to matter


def _typical_total(row: Row, n: int) -> tuple[float, float]:
    """About the log of a typical row's total weight, and how far to look from it, at least 1.

    It is log E Σ − ½(g − √(2 ln n))₊², that of log-normal weights: beyond g = √(2 ln n) the few
    largest are all there is, and E Σ is that of rows which never occur. The largest, and with it
    the total, then varies by about g/√(2 ln n).
    """
    (first, _), (second, _) = log_sums(classed(row, n), (1, 2))
    spread = math.sqrt(max(second - 2 * first + math.log(n), 0.0))
    edge = math.sqrt(2 * math.log(n))
    return first - max(spread - edge, 0.0) ** 2 / 2, max(spread / max(edge, 1.0), 1.0)


def _solved(mass: float, row: Row, n: int) -> float:
    odds = math.log(mass) - math.log1p(-mass)

    @functools.cache
    def excess(b: float) -> float:
        (sinks, _), (others, _) = engine.shares(row.then(SinkLogit(b)), n)
        with np.errstate(divide="ignore"):
            return float(np.log(sinks) - np.log(others)) - odds

    total, wide = _typical_total(row, n)
    low = high = total + odds
    step = wide
    while excess(low) > 0:
        high, low, step = low, low - step, 2 * step
        if step > _FARTHEST:  # all-zero rows and other sinks leave less than that
            fix = "more than that goes to sinks at every logit tried; give a larger mass"
            raise InputError("mass", mass, fix)
    step = wide
    while not excess(high) >= 0:
        low = high if excess(high) < 0 else low
        high, step = high + step, 2 * step
        if step > _FARTHEST:
            raise InputError("mass", mass, "is out of reach in float64; give a smaller mass")
    if low == high:
        return low
    root: Any = brentq(excess, low, high, xtol=1e-13)
    return float(root)


def sink_logit(
    mass: float, kernel: str | Kernel | Row, *, length: Any, **parameters: Any
) -> np.ndarray:
    """The logit b of a `SinkLogit` that takes a given mean mass: like ln n + γ²/2 for exp.

    Args:
        mass: the wanted mean mass, in (0, 1).
        kernel: what the sink logit is added to, a `Row`, a built-in kernel's name, or a `Kernel`;
            other sinks of a row take their share of the mass.
        length: row lengths n, whole numbers ≥ 1, any shape.
        **parameters: of a kernel given without a row.

    Returns:
        b, in the shape of `length`, to about 1e−12: the odds of the mass are solved for.

    Raises:
        InputError: a mass outside (0, 1) or out of reach, or a row without an exact law.
    """
    mass = number("mass", mass, "must be between 0 and 1", lambda x: 0 < x < 1)
    row, n = row_of(kernel, parameters).scored(), LENGTH.check(length)
    if not n.size:
        raise InputError("length", length, "give at least one")
    with np.errstate(over="ignore", invalid="ignore"):  # far out in the tails, where nothing falls
        found = [_solved(mass, row, int(m)) for m in n.flat]
    return np.array(found, dtype=np.float64).reshape(n.shape)
