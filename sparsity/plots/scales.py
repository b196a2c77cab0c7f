"""Scales, ends and ticks of a chart's axes: by what is drawn, unless the user says."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sparsity import plotting
from sparsity.checks import check_choice, check_pair
from sparsity.errors import InputError
from sparsity.plots.axes.controls import LOG, NINES, Control
from sparsity.plots.curves import Curve, common_floor

# Of the ends of a y-axis: one value near 0 would press all the others against the top.
_MOST_RATIO_SHOWN = 1e6
_LEAST_RATIO_OF_LOG = 20.0  # of largest to smallest, from which an axis is logarithmic
# Of S, which is drawn on a linear axis unless all curves fall below the first number, where they
# could not be told from 0, and none below the second, which a logarithmic axis of few decades has.
_S_IS_SMALL, _S_IS_NOTHING = 0.05, 1e-3
_LEAST_SHARE_SEEN = 0.02  # of the largest value: less is the thickness of a line on an axis from 0
_UNEVEN = 0.25  # of a step, that values of an even grid may be off: they are rounded to whole ones


class View(NamedTuple):
    """What a user says of the axes; what is None goes by what is drawn.

    Args:
        xscale: "linear" or "log".
        yscale: likewise.
        xlim: the ends of the x-axis, ascending.
        ylim: likewise of the y-axis.
    """

    xscale: str | None = None
    yscale: str | None = None
    xlim: tuple[float, float] | None = None
    ylim: tuple[float, float] | None = None


def read_view(xscale: Any, yscale: Any, xlim: Any, ylim: Any) -> View:
    """Return what the user says of the axes.

    Raises:
        InputError: no scale, or no two ends, or ends that a logarithmic axis cannot have.
    """
    ends = []
    for axis, scale, given in (("x", xscale, xlim), ("y", yscale, ylim)):
        if scale is not None:
            check_choice(f"{axis}scale", scale, ("linear", "log"))
        if given is not None:
            fix = "give two numbers, the lower one first"
            given = check_pair(f"{axis}lim", given, fix, operator.lt)
        ends.append(given)
        if ends[-1] is not None and scale == "log" and ends[-1][0] <= 0:
            raise InputError(f"{axis}lim", given, "a logarithmic axis begins above 0")
    return View(xscale, yscale, *ends)


def is_log(values: np.ndarray, control: Control | None, whole: bool = False) -> bool:
    """Tell whether an x-axis is logarithmic: a grid with even steps is not.

    Args:
        values: the values along it, ascending.
        control: the panel's control of it; None where there is none.
        whole: whether its values are lengths.
    """
    if values[0] <= 0 or len(values) < 2:
        return False
    even = np.linspace(values[0], values[-1], len(values))
    step = even[1] - even[0]
    if len(values) > 2 and np.abs(values - even).max() < _UNEVEN * step:
        return False
    scale = None if control is None else control.scale
    wide = values[-1] / values[0] >= _LEAST_RATIO_OF_LOG
    return scale is LOG or whole or (wide and scale is not NINES)


def ends_of_y_axis(
    curves: Sequence[Curve], of: str, view: View, left: float, right: float
) -> tuple[float, float, bool]:
    """Return the ends of the y-axis, and whether it is logarithmic."""
    # A limit may leave the chart, where it is far from rows of n, unless it is all there is.
    shown, floor = [], common_floor(curves)
    for curve in curves:
        alone = curve.limit is not None and np.isnan(curve.exact.theory).all()
        seen = [(curve.exact, "theory"), (curve.exact, "estimate")]
        seen += [(curve.limit, "theory")] if alone and curve.limit else []
        columns = [getattr(s, name)[(s.x >= left) & (s.x <= right)] for s, name in seen]
        values = np.concatenate(columns)
        shown.append(values[np.isfinite(values)])
    values = np.concatenate(shown)
    low, high, log = _ends_of_values(values, [v for v in shown if len(v)], of, view.yscale, floor)
    return (*(view.ylim or (low, high)), log)


def _ends_of_values(
    values: np.ndarray,
    by_curve: Sequence[np.ndarray],
    of: str,
    scale: str | None,
    floor: np.ndarray | None,
) -> tuple[float, float, bool]:
    """Return the ends of the y-axis for these values, and whether it is logarithmic."""
    if scale == "log" and (values > 0).any():
        values = values[values > 0]
    if not len(values):
        return 0.0, 1.0, False
    low, high = float(values.min()), float(values.max())
    share = low >= 0 and high <= 1.0
    log = low > 0 and high / low >= _LEAST_RATIO_OF_LOG
    if share:  # whose charts compare on a linear axis; S alone may be small everywhere
        small = all(curve_values.min() < _S_IS_SMALL for curve_values in by_curve)
        log = of.startswith("S") and small and low >= _S_IS_NOTHING
    if scale is not None:
        log = scale == "log" and low > 0
    # The shaded floor is in sight, so that one sees how far from it the curves are.
    ground = low if floor is None else min(low, float(floor.min()))
    if log:
        ground = max(ground, high / _MOST_RATIO_SHOWN)
        room = (high / ground) ** 0.06 if high > ground else 2.0  # 6 % of the height, as below
        return ground / room, high * room, True
    # From 0, so that charts compare, unless what varies is all in the upper half. A share or an S
    # is shown on 0 … 1 once it reaches half of that.
    varied = high - low > _LEAST_SHARE_SEEN * high
    if varied and low > high / 2:
        return low - 0.06 * (high - low), high + 0.06 * (high - low), False
    if share:
        return 0.0, 1.03 if high > 0.5 else 1.15 * high or 1.0, False
    room = 0.06 * (high - min(low, 0.0)) or 1.0
    return (0.0 if low >= 0 else low - room), high + room, False


def set_log_ticks(axis: Any, low: float, high: float) -> None:
    """Set ticks at powers of ten, named as in the figures; between them only where few."""
    # The 1e−9 keeps the end of an axis among its ticks where log10 of it rounds past the power.
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    step = max(1, math.ceil((last - first) / 7))
    ticks = [10.0**k for k in range(first, last + 1, step)]
    if len(ticks) < 3:
        every = [m * 10.0**k for k in range(first - 1, last + 1) for m in (1, 2, 5)]
        ticks = [t for t in every if low * (1 - 1e-9) <= t <= high * (1 + 1e-9)]
    plotting.plain_ticks(axis, ticks)
