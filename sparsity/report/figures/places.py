"""Where the curves of a figure lie on it, so that a page can show their values on hover.

An SVG has paths and no numbers; the numbers are in the CSV beside it. The SVG's description joins
them: the box of each pair of axes, its scales, and which rows of the CSV are drawn there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

    from sparsity.series import Series

_POINTS_PER_INCH = 72  # the unit of an SVG by Matplotlib


def describe_places(canvas: Canvas, data: Sequence[Series]) -> str:
    """Return where the curves are drawn, as JSON.

    Args:
        canvas: the figure, drawn.
        data: its curves, in the order of the CSV.

    Returns:
        A list with, for each pair of axes on which a curve is drawn, `box`: left, top, width and
        height in points; `name`: what x is called; `x` and `y`: "linear" or "log", and both ends;
        `curves`: of each the first row of the CSV, the number of rows, the colour, and whether x is
        drawn upwards.
    """
    width, height = _POINTS_PER_INCH * canvas.get_size_inches()
    places = []
    for ax in canvas.axes:
        curves = list(dict.fromkeys(_drawn_curves(ax, data)))
        if curves:
            at = ax.get_position()
            box = at.x0 * width, (1 - at.y1) * height, at.width * width, at.height * height
            place = {
                "box": [round(side, 3) for side in box],
                "name": _label_of_x(ax, canvas.axes),
                "x": [ax.get_xscale(), *map(float, ax.get_xlim())],
                "y": [ax.get_yscale(), *map(float, ax.get_ylim())],
            }
            places.append(place | {"curves": curves})
    return json.dumps(places, ensure_ascii=False, separators=(",", ":"))


def _drawn_curves(ax: Axes, data: Sequence[Series]) -> Iterator[tuple[int, int, Any, int]]:
    """Yield the curves whose theory, or samples, are lines or markers of the axes."""
    # Lines are known by their numbers, whoever drew them: those of a guide are nobody's.
    for line in ax.lines:
        drawn, first = np.array(line.get_data(orig=True), float), 0
        for series in data:
            count = drawn.shape[1]
            upright = _is_start_of(drawn, series.x, series.theory)
            lying = not upright and _is_start_of(drawn, series.theory, series.x)
            if upright or lying:
                yield first, min(count, len(series.x)), line.get_color(), int(lying)
            elif _is_start_of(
                drawn, *(column[series.sampled] for column in (series.x, series.estimate))
            ):
                yield first, len(series.x), line.get_color(), 0
            first += len(series.x)


def _is_start_of(drawn: np.ndarray, x: np.ndarray, y: np.ndarray) -> bool:
    """Tell whether a line is the first points of a curve, or all of them."""
    count = drawn.shape[1]
    return 0 < count <= len(x) and np.array_equal(drawn, (x[:count], y[:count]), equal_nan=True)


def _label_of_x(ax: Axes, every: Sequence[Axes]) -> str:
    """Return the label of the x-axis, which of several axes in a column only the last has."""
    left = ax.get_position().x0
    column = [axes for axes in every if axes.get_position().x0 == left]
    return next((axes.get_xlabel() for axes in (ax, *column) if axes.get_xlabel()), "x")
