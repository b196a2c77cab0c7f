"""A chart, and how it is drawn on Matplotlib axes in the style of the figures. Computes nothing.

What a user sees: the headline; under it the key, which so covers no curve; the axes; and the names
of the curves where these are apart (`labels`), in colours that the ground asks for (`colors`). The
key says what lines and points are; where it stands on the axes, it makes room so that it covers no
curve.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.path import Path

from sparsity import plotting, quantities
from sparsity.errors import InputError
from sparsity.kernels.parameters import LENGTH
from sparsity.plots.axes import quantity_axis
from sparsity.plots.axes.controls import CONTROLS, NINES, Control
from sparsity.plots.colors import Palette, look_of
from sparsity.plots.curves import Curve, common_floor, limit_alone
from sparsity.plots.labels import CurveLabels
from sparsity.plots.scales import View, ends_of_y_axis, set_log_ticks
from sparsity.plotting import DASHED, Look
from sparsity.quantities import Quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sparsity.series import Series

SIZE = (7.2, 4.6)  # inches, as the figures
_LEFT, _RIGHT, _BELOW = 0.83, 0.22, 0.6  # inches around the axes, for ticks and labels
# Characters of a label beside its curve: longer ones would take more than a third of the width, and
# go to the key. A character is 0.09 inches wide.
_LONGEST_LABEL, _CHARACTER = 26, 0.09


class Words(NamedTuple):
    """The texts on a chart.

    Args:
        title: the headline: what is drawn, against what.
        subtitle: the weight function, and what all curves hold fixed.
        x: the label of the x-axis.
        y: the label of the y-axis.
    """

    title: str
    subtitle: str
    x: str
    y: str


class Chart(NamedTuple):
    """Everything of a chart but the drawing.

    Args:
        curves: the curves.
        words: the texts.
        log_x: whether the x-axis is logarithmic.
        control: the panel's control of x, whose scale a chart shares; None where there is none.
        of: the name of the quantity or variable that is drawn.
        view: what the user says of the axes.
    """

    curves: tuple[Curve, ...]
    words: Words
    log_x: bool
    control: Control | None
    of: str
    view: View = View()

    @property
    def _named_beside(self) -> bool:
        """Whether the names of the curves stand beside them."""
        return 1 < len(self.curves) and self._longest <= _LONGEST_LABEL

    @property
    def _longest(self) -> int:
        return max(len(curve.exact.label) for curve in self.curves)

    def on(self, figure: Any) -> Axes:
        """Draw it on an empty Matplotlib figure, with its headline."""
        width, height = figure.get_size_inches()
        ax = figure.add_axes((0.1, 0.1, 0.8, 0.8))
        palette = Palette.of(figure.get_facecolor(), ax.get_facecolor())
        depth = plotting.headline(figure, self.words.title, self.words.subtitle, palette.soft)

        def leave(right: float, above: float) -> None:
            at = _LEFT / width, _BELOW / height
            size = max(width - _LEFT - right, 0.5), max(height - _BELOW - above, 0.5)
            ax.set_position((*at, size[0] / width, size[1] / height))

        leave(_RIGHT, depth)
        handles = self._draw(ax, palette)
        place = {"bbox_to_anchor": (0.02, 1 - depth / height), "loc": "upper left"}
        place |= {"bbox_transform": figure.transFigure, "borderaxespad": 0}
        every = key_handles(ax, self.curves, handles, palette, not self._named_beside)
        legend = draw_key(ax, every, palette, 0.97 * figure.bbox.width, **place)
        above = depth + legend.get_window_extent().height / figure.dpi + 0.12
        leave(_RIGHT, above)
        ax.yaxis.set_label_coords((0.3 - _LEFT) / max(width - _LEFT - _RIGHT, 0.5), 0.5)
        if self._named_beside:
            names = [curve.exact.label for curve in self.curves]
            labels = CurveLabels(ax, handles, names, palette)
            # At the ends they are quicker to read, but need room at the right.
            right = 0.3 + _CHARACTER * self._longest
            leave(right, above)
            if not labels.stand_at_ends(True):
                leave(_RIGHT, above)
                if not labels.stand_at_ends(False):
                    leave(right, above)
                    labels.stand_at_ends(True)
        return ax

    def draw(self, ax: Axes) -> None:
        """Draw it into a user's axes, with the key where it covers no curve."""
        figure: Any = ax.get_figure(root=True)
        palette = Palette.of(figure.get_facecolor(), ax.get_facecolor())
        handles = self._draw(ax, palette)
        every = key_handles(ax, self.curves, handles, palette, len(self.curves) > 1)
        legend = draw_key(ax, every, palette, 0.8 * ax.bbox.width, loc="best")
        if self.view.ylim is None:
            make_room(ax, legend)

    def _draw(self, ax: Axes, palette: Palette) -> list[Line2D]:
        """Draw the exact law as lines, limits dashed, what was sampled as points.

        What no row can reach is shaded.

        Returns:
            The line of each curve, or its points where it has no line.
        """
        # Scales and limits first: ticks, the floor and the key go by what is in sight.
        curves, view = self.curves, self.view
        plotting.calm(ax, palette.grid)
        ax.set(xlabel=self.words.x, ylabel=self.words.y)
        self._set_x_axis(ax)
        left, right = ax.get_xlim() if view.xlim is None else view.xlim
        if view.yscale is None and self.control is CONTROLS[LENGTH.name] and not self.log_x:
            view = view._replace(yscale="linear")  # n_eff along n: both axes in tokens, or neither
        bottom, top, log_y = ends_of_y_axis(curves, self.of, view, left, right)
        ax.set(yscale="log" if log_y else "linear", ylim=(bottom, top))
        if log_y:
            set_log_ticks(ax.yaxis, bottom, top)
        floor, x = common_floor(curves), curves[0].exact.x
        if floor is not None and (floor > bottom).any():
            # Down to 0 but on a logarithmic axis, which has none.
            under = max(bottom * 1e-3, 1e-300) if log_y else min(bottom, 0.0)
            ax.fill_between(x, under, floor, color=palette.shade, zorder=0, linewidth=0)
            ax.plot(x, floor, color=palette.soft, lw=1, zorder=1)
        alone = limit_alone(curves)
        looks = [look_of(i, palette) for i in range(len(curves))]
        return [_draw_curve(ax, *pair, alone) for pair in zip(curves, looks, strict=True)]

    def _set_x_axis(self, ax: Axes) -> None:
        """Set scale, limits and ticks of the x-axis."""
        x, control, view = self.curves[0].exact.x, self.control, self.view
        low, high = float(x[0]), float(x[-1])
        log = self.log_x if view.xscale is None else view.xscale == "log"
        if log and low <= 0:
            raise InputError("xscale", view.xscale, f"x begins at {low:g}; give linear")
        if log:
            ax.set_xscale("log")
        elif view.xscale is None and control and control.scale is NINES and 0.99 < high < 1:
            ax.set_xscale("function", functions=(control.scale.to, control.scale.back))
            plotting.plain_ticks(ax.xaxis, [t for t in control.ticks if low <= t <= high])
        if view.xlim is not None:
            low, high = view.xlim
        elif any(curve.exact.sampled[[0, -1]].any() for curve in self.curves):
            # The frame would cut a point at the end in half, and its error bar from it.
            room = 0.02 * (math.log(high / low) if log else high - low)
            low, high = (
                (low * math.exp(-room), high * math.exp(room)) if log else (low - room, high + room)
            )
        if low < high:
            ax.set_xlim(low, high)
        of_lengths = log and control is CONTROLS[LENGTH.name]
        if log and not (of_lengths and plotting.length_ticks(ax.xaxis, low, high)):
            set_log_ticks(ax.xaxis, low, high)


def y_axis_label(quantity: Quantity) -> str:
    """Return the label of the y-axis of a quantity."""
    if quantity is quantities.S:
        return plotting.SPARSITY
    if quantity is quantities.n_eff:
        return plotting.TOKENS
    return quantity_axis.named(quantity.name).label


def _draw_curve(ax: Axes, curve: Curve, look: Look, alone: bool) -> Line2D:
    """Draw one curve: theory as lines; only what was sampled as markers."""
    shown = []
    if curve.limit is not None:
        how: dict[str, Any] = {"lw": 2.0} if alone else {"lw": 1.3, "ls": DASHED}
        shown = ax.plot(curve.limit.x, curve.limit.theory, color=look.color, zorder=2, **how)
    before = len(ax.lines)
    line = bool(np.isfinite(curve.exact.theory).any())
    plotting.curve(ax, curve.exact, look, line=line)
    return ax.lines[before] if line or not shown else shown[0]


_LEAST_HEIGHT_SEEN = 0.005  # of the axes: a line so low lies on the axis
_MOST_HEADROOM = 0.6  # of the axes, for a key


def _in_sight(line: Series | None, ax: Axes) -> bool:
    """Return whether a line comes into the axes, above the thickness of the lower one."""
    if line is None:
        return False
    at = np.isfinite(line.theory)
    inside = (ax.transData - ax.transAxes).transform(np.c_[line.x, line.theory][at])
    return bool(at.any()) and inside[:, 1].min() <= 1 and inside[:, 1].max() >= _LEAST_HEIGHT_SEEN


def key_handles(
    ax: Axes, curves: Sequence[Curve], lines: Sequence[Line2D], palette: Palette, every_curve: bool
) -> list[Any]:
    """Return what the key shows: every curve, where asked; then each kind of line that is there."""
    # Kinds of lines are told apart by dash and marker, curves by colour: grey is that of any curve.
    handles: list[Any] = []
    size = {"markeredgecolor": palette.ground, "markersize": 6}

    def add(label: str, **style: Any) -> None:
        handles.append(Line2D([], [], label=label, **style))

    if every_curve and len(curves) > 1:
        for i, (curve, line) in enumerate(zip(curves, lines, strict=True)):
            marker = look_of(i, palette).marker
            points = {"marker": marker, **size} if curve.exact.sampled.any() else {}
            add(curve.exact.label, color=line.get_color(), **points)
    color = str(lines[0].get_color()) if len(curves) == 1 else palette.soft
    if any(np.isfinite(curve.exact.theory).any() for curve in curves):
        of_rows = any(curve.floor is not None or curve.limit is not None for curve in curves)
        add("exact law, rows of n" if of_rows else "exact law", color=color)
    if any(_in_sight(curve.limit, ax) for curve in curves):
        how: dict[str, Any] = {} if limit_alone(curves) else {"lw": 1.3, "ls": DASHED}
        add("limit of long rows", color=color, **how)
    if any((curve.exact.sampled & ~curve.exact.doubted).any() for curve in curves):
        add("Monte Carlo ± 95 %", color=color, marker="o", ls="none", **size)
    if any(curve.exact.doubted.any() for curve in curves):
        hollow = plotting.hollow(Look(color, "-", "o", palette.ground))
        add("Monte Carlo, error bar not known", **hollow)
    floor = common_floor(curves)
    if floor is not None and (floor > ax.get_ylim()[0]).any():
        least = "1" if (floor == 1).all() else "1/√n"
        style = {"fc": palette.shade, "ec": palette.soft, "lw": 0.6}
        handles.append(Patch(label=f"no row is below {least}", **style))
    return handles


def draw_key(ax: Axes, handles: list[Any], palette: Palette, room: float, **place: Any) -> Any:
    """Draw the key in as many columns as have room, in pixels."""
    box = {"frameon": True, "facecolor": palette.ground, "edgecolor": "none", "framealpha": 0.85}
    style: dict[str, Any] = {
        "fontsize": 9.5,
        "labelcolor": palette.soft,
        "handlelength": 1.8,
        "columnspacing": 1,
    }
    legend: Any = None
    most = max(len(handles), 1) if "bbox_to_anchor" in place else 1 + (len(handles) > 4)
    for columns in range(most, 0, -1):
        legend = ax.legend(handles=handles, ncols=columns, **style, **box, **place)
        for text in legend.get_texts():  # a user's own label is no formula
            text.set_parse_math(False)
        if legend.get_window_extent().width <= room:
            break
    legend.set_zorder(4)
    return legend


def make_room(ax: Axes, legend: Any) -> None:
    """Raise the upper end of the y-axis where the key would cover a curve everywhere."""
    box = legend.get_window_extent()
    paths = [
        line.get_transform().transform_path(Path(line.get_xydata()))
        for line in ax.lines
        if np.size(line.get_xdata()) and line.get_transform().contains_branch(ax.transData)
    ]
    if not any(path.intersects_bbox(box, filled=False) for path in paths):
        return
    share = min((box.height + 12) / ax.bbox.height, _MOST_HEADROOM)
    low, high = ax.get_ylim()
    if ax.get_yscale() == "log":
        ax.set_ylim(low, low * (high / low) ** (1 / (1 - share)))
    else:
        ax.set_ylim(low, low + (high - low) / (1 - share))
