"""A chart, and how it is drawn on Matplotlib axes in the style of the figures. Computes nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from sparsity import quantities
from sparsity.axes import quantity_axis
from sparsity.axes.controls import LOG, NINES, Control
from sparsity.figures import plotting
from sparsity.figures.plotting import DASHED, GREY, LOOKS, SHADE, Look
from sparsity.output import power_of_ten
from sparsity.plots.curves import Curve
from sparsity.quantities import Quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sparsity.figures.figure import Series

SIZE = (7.2, 4.6)  # inches, as the figures
# Characters of a label that stands at the end of its curve: each takes 1/80 of the width from the
# axes (`Chart.on`), which then end at 0.6 of it. Longer labels go to the legend.
_LONGEST_END_LABEL = 26
# Of the ends of an ordinate: one value near 0 would press all the others against the top.
_MOST_RATIO_SHOWN = 1e6
_LEAST_HEIGHT_SEEN = 0.005  # of the axes: a line so low lies on the axis
_LEAST_RATIO_OF_LOG = 20.0  # of largest to smallest, from which an axis is logarithmic


class Words(NamedTuple):
    """The texts on a chart.

    Args:
        title: the headline: what is drawn, against what.
        subtitle: the weight function, and what all curves hold fixed.
        x: the label of the abscissa.
        y: the label of the ordinate.
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
        log_x: whether the abscissa is logarithmic.
        control: the panel's control of x, whose scale a chart shares; None where there is none.
        of: the name of the quantity or variable that is drawn.
    """

    curves: tuple[Curve, ...]
    words: Words
    log_x: bool
    control: Control | None
    of: str

    def on(self, figure: Any) -> Axes:
        """Draw it on an empty Matplotlib figure, without the headline."""
        longest = max(len(curve.exact.label) for curve in self.curves)
        labelled = 1 < len(self.curves) and longest <= _LONGEST_END_LABEL
        # Labels at the ends are quicker to read than a legend; they need room at the right.
        ax = plotting.axes(figure, "", "", right=0.94 - 0.0125 * longest if labelled else 0.97)
        self.draw(ax, ends=labelled)
        return ax

    def draw(self, ax: Axes, ends: bool = False) -> None:
        """Draw the exact law as lines, limits dashed, what was sampled or measured as points.

        What no row can reach is shaded.

        Args:
            ax: the axes to draw into.
            ends: whether the labels stand at the right ends of the curves.
        """
        # Scales and limits first: ticks, the floor and the legend go by what is in sight.
        curves, control = self.curves, self.control
        plotting.calm(ax)
        ax.set(xlabel=self.words.x, ylabel=self.words.y)
        x = curves[0].exact.x
        low, high = float(x[0]), float(x[-1])
        if self.log_x:
            ax.set_xscale("log")
        elif control is not None and control.scale is NINES and 0.99 < high < 1:
            ax.set_xscale("function", functions=(control.scale.to, control.scale.back))
            plotting.plain_ticks(ax.xaxis, [t for t in control.ticks if low <= t <= high])
        if low < high:
            ax.set_xlim(low, high)
        bottom, top, log_y = _ends_of_ordinate(curves)
        ax.set(yscale="log" if log_y else "linear", ylim=(bottom, top))
        if self.log_x:
            _set_log_ticks(ax.xaxis, low, high)
        if log_y:
            _set_log_ticks(ax.yaxis, bottom, top)
        floor = _common_floor(curves)
        if floor is not None and (floor > bottom).any():
            # Down to 0 but on a logarithmic axis, which has none.
            under = max(bottom * 1e-3, 1e-300) if log_y else min(bottom, 0.0)
            ax.fill_between(x, under, floor, color=SHADE, zorder=0, linewidth=0)
            ax.plot(x, floor, color=GREY, lw=1, zorder=1)
        for i, curve in enumerate(curves):
            _draw_curve(ax, curve, _look(i))
        if ends:  # also of a curve that leaves the chart
            found = [(*_end(c), _look(i).color) for i, c in enumerate(curves)]
            inside = [(min(max(y, bottom), top), text, color) for y, text, color in found]
            plotting.end_labels(ax, inside)
        _draw_legend(ax, curves, each=not ends and len(curves) > 1)


def ordinate_label(quantity: Quantity) -> str:
    """Return the label of the ordinate of a quantity."""
    if quantity is quantities.S:
        return plotting.SPARSITY
    if quantity is quantities.n_eff:
        return "effective tokens  n_eff"
    return quantity_axis.named(quantity.name).label


def is_log(values: np.ndarray, control: Control | None, whole: bool = False) -> bool:
    """Tell whether an abscissa is logarithmic.

    Args:
        values: the values along it, ascending.
        control: the panel's control of it; None where there is none.
        whole: whether its values are lengths.
    """
    if values[0] <= 0 or len(values) < 2:
        return False
    scale = None if control is None else control.scale
    wide = values[-1] / values[0] >= _LEAST_RATIO_OF_LOG
    return scale is LOG or whole or (wide and scale is not NINES)


def _look(i: int) -> Look:
    """Return the look of the i-th curve, which is solid: dashes are limits."""
    return plotting.solid(LOOKS[i % len(LOOKS)])


def _draw_curve(ax: Axes, curve: Curve, look: Look) -> None:
    """Draw one curve: theory as lines; only what was sampled or measured as markers."""
    if curve.limit is not None:
        ax.plot(curve.limit.x, curve.limit.theory, color=look.color, lw=1.3, ls=DASHED, zorder=2)
    if curve.measured:
        # A measured row is no estimate: it has no error bar, and a small dot, as rows are many.
        dots: dict[str, Any] = {"marker": ".", "ls": "none", "color": look.color, "ms": 6}
        ax.plot(curve.exact.x, curve.exact.estimate, zorder=3, **dots)
        if np.isfinite(curve.exact.theory).any():
            ax.plot(curve.exact.x, curve.exact.theory, color=look.color, lw=1.3, alpha=0.7)
    else:
        plotting.curve(ax, curve.exact, look)


def _common_floor(curves: Sequence[Curve]) -> np.ndarray | None:
    """Return the least value that a row of any curve can have; None where one has no floor."""
    # Curves may have points at different x, of samples asked for there: no common floor, then.
    floors = [curve.floor for curve in curves if curve.floor is not None]
    same = all(np.array_equal(curve.exact.x, curves[0].exact.x) for curve in curves)
    return np.min(floors, axis=0) if len(floors) == len(curves) and same else None


def _ends_of_ordinate(curves: Sequence[Curve]) -> tuple[float, float, bool]:
    """Return the ends of the ordinate, and whether it is logarithmic."""
    # A limit may leave the chart, where it is far from rows of n, unless it is all there is.
    shown = [curve.exact.theory for curve in curves]
    shown += [curve.exact.estimate for curve in curves]
    shown += [c.limit.theory for c in curves if c.limit and np.isnan(c.exact.theory).all()]
    values = np.concatenate(shown)
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 1.0, False
    low, high = float(values.min()), float(values.max())
    floor = _common_floor(curves)
    # The shaded floor is in sight, so that one sees how far from it the curves are.
    ground = low if floor is None else min(low, float(floor.min()))
    if low > 0 and high / low >= _LEAST_RATIO_OF_LOG:
        ground = max(ground, high / _MOST_RATIO_SHOWN)
        room = (high / ground) ** 0.06  # 6 % of the height at each end, as below
        return ground / room, high * room, True
    # A share or an S is shown on 0 … 1 once it reaches half of that: charts of it compare.
    if high <= 1.0 and low >= 0:
        return 0.0, 1.03 if high > 0.5 else 1.15 * high or 1.0, False
    room = 0.06 * (high - min(low, 0.0)) or 1.0
    return (0.0 if low >= 0 else low - room), high + room, False


def _set_log_ticks(axis: Any, low: float, high: float) -> None:
    """Set ticks at powers of ten, named as in the figures; between them only where few."""
    # The 1e−9 keeps the end of an axis among its ticks where log10 of it rounds past the power.
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    step = max(1, math.ceil((last - first) / 7))
    ticks = [10.0**k for k in range(first, last + 1, step)]
    if len(ticks) < 3:
        every = [m * 10.0**k for k in range(first - 1, last + 1) for m in (1, 2, 5)]
        ticks = [t for t in every if low * (1 - 1e-9) <= t <= high * (1 + 1e-9)]
    powers = map(math.log10, ticks)
    small = (p if p < -2 and abs(p - round(p)) < 1e-9 else None for p in powers)  # written as 10⁻³
    labels = [
        plotting.tick_label(t) if p is None else power_of_ten(round(p))
        for t, p in zip(ticks, small, strict=True)
    ]
    plotting.plain_ticks(axis, ticks, labels)


def _end(curve: Curve) -> tuple[float, str]:
    """Return the height of the right end of a curve, and its label.

    The end is the law's, else the limit's, else the last sampled point.
    """
    for series in (curve.exact, curve.limit):
        if series is not None and np.isfinite(series.theory[-1]):
            return float(series.theory[-1]), curve.exact.label
    at = np.flatnonzero(np.isfinite(curve.exact.estimate))[-1]
    return float(curve.exact.estimate[at]), curve.exact.label


def _in_sight(line: Series | None, ax: Axes) -> bool:
    """Tell whether a line comes into the axes, above the thickness of the lower one."""
    if line is None:
        return False
    at = np.isfinite(line.theory)
    inside = (ax.transData - ax.transAxes).transform(np.c_[line.x, line.theory][at])
    return bool(at.any()) and inside[:, 1].min() <= 1 and inside[:, 1].max() >= _LEAST_HEIGHT_SEEN


def _draw_legend(ax: Axes, curves: Sequence[Curve], each: bool) -> None:
    """Draw the legend: each kind of line that is there, and before these with `each` each curve."""
    # Kinds of lines are told apart by dash and marker, curves by colour: grey is that of any curve.
    handles: list[Any] = []
    size = {"markeredgecolor": "white", "markersize": 6}

    def add(label: str, **style: Any) -> None:
        handles.append(Line2D([], [], label=label, **style))

    if each:
        for i, curve in enumerate(curves):
            look = _look(i)
            points = {"marker": look.marker, **size} if curve.exact.sampled.any() else {}
            add(curve.exact.label, color=look.color, **points)
    color = _look(0).color if len(curves) == 1 else GREY
    measured = any(curve.measured for curve in curves)
    if measured:
        add("measured", color=color, marker=".", ls="none", ms=6)
    if any(np.isfinite(curve.exact.theory).any() for curve in curves):
        of_rows = any(curve.floor is not None or curve.limit is not None for curve in curves)
        said = "exact law, rows of n" if of_rows else "exact law"
        add("exact law at the row's own γ" if measured else said, color=color)
    if any(_in_sight(curve.limit, ax) for curve in curves):
        add("limit of long rows", color=color, lw=1.3, ls=DASHED)
    if any((curve.exact.sampled & ~curve.exact.doubted).any() for curve in curves):
        add("Monte Carlo ± 95 %", color=color, marker="o", ls="none", **size)
    if any(curve.exact.doubted.any() for curve in curves):
        add("Monte Carlo, error in doubt", **plotting.hollow(Look(color, "-", "o")))
    floor = _common_floor(curves)
    if floor is not None and (floor > ax.get_ylim()[0]).any():
        handles.append(Patch(fc=SHADE, ec=GREY, lw=0.6, label="out of reach of any row"))
    box = {"frameon": True, "facecolor": "white", "edgecolor": "none", "framealpha": 0.85}
    ink = plotting.INK if each else GREY
    legend = ax.legend(handles=handles, labelcolor=ink, handlelength=2.6, **box)
    legend.set_zorder(4)
    for text in legend.get_texts():  # a user's own label is no formula
        text.set_parse_math(False)
