"""The names of curves, beside them where they are apart; placed again whenever a chart is drawn.

At the right ends if the curves end apart from each other; else on the curves, each where the others
are far. A chart whose scale or limits a user changes has them in the right places all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sparsity import plotting
from sparsity.plots.colors import Palette, readable

_GAP = 15.0  # points between the middles of two labels
# Points that a label may stand from the end of its curve, and that these ends are apart at least:
# closer ones, 2 thick, run into one spot, where nobody sees which label is whose.
_FARTHEST, _LEAST_APART = 16.0, 3.0
_STEP = 3.0  # pixels between the places that are tried: about the thickness of a line


class CurveLabels(Artist):
    """The labels of a chart's curves.

    Args:
        ax: the axes, with all that is drawn in them.
        lines: the line of each curve, or its points where it has none.
        names: the label of each.
        palette: the colours of the chart.
    """

    def __init__(
        self, ax: Axes, lines: Sequence[Line2D], names: Sequence[str], palette: Palette
    ) -> None:
        super().__init__()
        self.set_in_layout(False)
        self.set_zorder(-10)  # drawn first, and so before the texts that it places
        self.lines, self.palette, self.at_ends = lines, palette, True
        style: dict[str, Any] = {"fontsize": 10.5, "va": "center", "parse_math": False}
        style |= {"transform": ax.transAxes, "zorder": 5}
        self.texts = [ax.text(0, 0, name, **style) for name in names]
        line_style: dict[str, Any] = {"lw": 0.9, "clip_on": False, "transform": ax.transAxes}
        # Not `ax.plot`: places in the axes are no data, by which limits would go.
        self.leaders = [Line2D([], [], color=line.get_color(), **line_style) for line in lines]
        for leader in self.leaders:
            ax.add_artist(leader)
        ax.add_artist(self)

    def stand_at_ends(self, at_ends: bool) -> bool:
        """Put the labels at the ends of the curves or on them, and tell whether they fit there."""
        self.at_ends = at_ends
        ground = self.palette.paper if at_ends else self.palette.ground
        box = {"facecolor": ground, "edgecolor": "none", "pad": 1.5}
        for text, leader, line in zip(self.texts, self.leaders, self.lines, strict=True):
            text.set(ha="left" if at_ends else "center", bbox=None if at_ends else box)
            text.set_color(readable(line.get_color(), ground))
            leader.set_visible(at_ends)
        return self.place()

    def draw(self, renderer: Any) -> None:
        """Place the labels, which are drawn after this."""
        self.place()

    def place(self) -> bool:
        """Place the labels under the limits and scales of now, and tell whether they fit."""
        return self._place_at_ends() if self.at_ends else self._place_on_curves()

    def _place_at_ends(self) -> bool:
        ax = self._chart_axes()
        last = [_last_point(ax, line) for line in self.lines]
        # Also of a curve that leaves the axes, at whose edge it then stands.
        ends = np.clip(np.array(last), ax.bbox.y0, ax.bbox.y1)
        point = self.figure.dpi / 72  # type: ignore[union-attr]
        order = np.argsort(ends, kind="stable")
        heights = np.empty_like(ends)
        heights[order] = plotting.pushed_apart(ends[order], _GAP * point)
        to_axes, right = ax.transAxes.inverted().transform, ax.bbox.x1
        moved = plotting.needs_leader(heights - ends, point)
        gap = 12 if moved.any() else 5
        for i, (end, height) in enumerate(zip(ends, heights, strict=True)):
            leader = to_axes([(right + 2 * point, end), (right + 9 * point, height)])
            self.leaders[i].set(data=leader.T, visible=bool(moved[i]))
            self.texts[i].set_position(tuple(to_axes((right + gap * point, height))))
        far = np.abs(heights - ends).max() > _FARTHEST * point
        return not far and bool(np.diff(ends[order]).min() >= _LEAST_APART * point)

    def _place_on_curves(self) -> bool:
        ax = self._chart_axes()
        columns = np.arange(ax.bbox.x0, ax.bbox.x1, _STEP)
        curves = {line: _heights(ax, line, columns) for line in ax.lines if _is_curve(ax, line)}
        points = [_pixels(ax, line) for line in ax.lines if line.get_marker() not in _NO_MARKER]
        marks = np.concatenate([np.zeros((0, 2)), *points])
        places, scores, sizes = [], [], []
        for line, text in zip(self.lines, self.texts, strict=True):
            box = text.get_window_extent()
            curve = curves.get(line, np.full(columns.shape, np.nan))
            # On the curve; else above or below it, where it has a neighbour on the other side.
            heights = curve + np.outer((0, 0.75, -0.75), np.full(columns.shape, box.height))
            score = [
                _clearance(ax, columns, y, line, curves, marks, (box.width, box.height))
                for y in heights
            ]
            places.append(np.column_stack([np.tile(columns, len(heights)), heights.ravel()]))
            scores.append(np.concatenate(score))
            sizes.append((box.width, box.height))
        # Those with the fewest places first; later ones keep away from them.
        taken: list[tuple[np.ndarray, tuple[float, float]]] = []
        fit = True
        for i in sorted(range(len(scores)), key=lambda i: int((scores[i] > 0).sum())):
            for middle, size in taken:
                room = (np.array(size) + sizes[i]) / 2 + (4, 1)
                scores[i][(np.abs(places[i] - middle) < room).all(axis=1)] = -np.inf
            best = int(np.argmax(scores[i]))
            fit = fit and bool(scores[i][best] > 0)
            if np.isfinite(places[i][best]).all():
                taken.append((places[i][best], sizes[i]))
                x, y = ax.transAxes.inverted().transform(places[i][best])
                self.texts[i].set_position((x, y))
        return fit

    def _chart_axes(self) -> Axes:
        assert self.axes is not None
        return self.axes  # type: ignore[return-value]


_NO_MARKER = ("", "None", "none", None, " ")


def _is_curve(ax: Axes, line: Line2D) -> bool:
    """Tell whether a line runs through the data, as no leader, point or end of a bar does."""
    dashed = line.get_linestyle() not in _NO_MARKER
    return dashed and line.get_transform().contains_branch(ax.transData)


def _pixels(ax: Axes, line: Line2D) -> np.ndarray:
    """Return the points of a line in pixels, those that the axes can show."""
    xy = np.asarray(line.get_xydata(), float)
    with np.errstate(divide="ignore", invalid="ignore"):
        points = ax.transData.transform(xy)
    return points[np.isfinite(points).all(axis=1)]


def _last_point(ax: Axes, line: Line2D) -> float:
    """Return the height in pixels of the last point of a line; the axes' lower edge without one."""
    points = _pixels(ax, line)
    inside = points[points[:, 0] <= ax.bbox.x1 + 1]
    return float(inside[-1, 1]) if len(inside) else ax.bbox.y0


def _heights(ax: Axes, line: Line2D, columns: np.ndarray) -> np.ndarray:
    """Return the heights of a line in pixels at some columns, NaN beyond its ends."""
    points = _pixels(ax, line)
    if len(points) < 2:
        return np.full(columns.shape, np.nan)
    return np.interp(columns, *points.T, left=np.nan, right=np.nan)


def _clearance(
    ax: Axes,
    columns: np.ndarray,
    y: np.ndarray,
    line: Line2D,
    curves: dict[Line2D, np.ndarray],
    marks: np.ndarray,
    size: tuple[float, float],
) -> np.ndarray:
    """Return how far from all else, in pixels, a label of a curve is with its middle at (x, y).

    Where it does not fit it is not above 0.
    """
    width, height = size
    reach = int(np.ceil((width / 2 + 3) / _STEP))
    padded = {other: np.pad(h, reach, constant_values=np.nan) for other, h in curves.items()}
    clearance = np.full(columns.shape, -np.inf)
    for i in np.flatnonzero(np.isfinite(y)):
        if not ax.bbox.y0 + height / 2 < y[i] < ax.bbox.y1 - height / 2:
            continue
        if not reach <= i < len(columns) - reach:
            continue
        off = {x: np.abs(h[i : i + 2 * reach + 1] - y[i]) for x, h in padded.items()}
        to_curve = off.pop(line, np.zeros(1))
        near = np.concatenate([np.array([np.inf]), *off.values()])
        away = min(float(np.nanmin(near)) - height / 2 - 2, 2 * height)  # farther is not better
        if len(marks):
            beside = np.abs(marks[:, 0] - columns[i]) - width / 2
            above = np.abs(marks[:, 1] - y[i]) - height / 2
            away = min(away, float(np.maximum(beside, above).min()) - 5)
        if to_curve[reach : reach + 1] > 0:  # beside the curve, which may not run through it
            away = min(away, float(np.nanmin(to_curve)) - height / 2) - height / 8
        # Then the middle of the chart is better than its edge.
        middle = abs(columns[i] - columns.mean()) / np.ptp(columns)
        clearance[i] = away - middle * height / 4
    return clearance
