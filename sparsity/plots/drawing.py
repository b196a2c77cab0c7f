"""Curves to Matplotlib axes, in the style of the figures. Computes nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from sparsity.axes.controls import LOG, NINES, Control
from sparsity.figures import plotting
from sparsity.figures.plotting import GREY, LOOKS, Look
from sparsity.output import power_of_ten
from sparsity.plots.curves import Drawn

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sparsity.figures.figure import Series

SIZE = (7.2, 4.6)  # inches, as the figures
_SHADE = "#eceef1"
_LIMIT = (0, (5, 3))  # dashes
_LONGEST = 26  # characters of a label that stands at the end of its curve
_DEEP = 1e6  # ratio that an ordinate shows, at most
_HIDDEN = 0.005  # of the height: a line so low lies on the axis
_WIDE = 20.0  # ratio of largest to smallest from which an axis is logarithmic


class Words(NamedTuple):
    """What is written on a chart.

    Args:
        title: what is drawn.
        subtitle: of what.
        x: along the abscissa.
        y: along the ordinate.
    """

    title: str
    subtitle: str
    x: str
    y: str


def is_log(values: np.ndarray, control: Control | None, whole: bool = False) -> bool:
    """Whether an abscissa is logarithmic."""
    if values[0] <= 0 or len(values) < 2:
        return False
    known = control is not None and control.scale is LOG
    return known or whole or (values[-1] / values[0] >= _WIDE and not _near_one(values, control))


def _near_one(values: np.ndarray, control: Control | None) -> bool:
    return control is not None and control.scale is NINES


def look_of(i: int) -> Look:
    """The look of the i-th curve: solid, as dashes are limits."""
    look = LOOKS[i % len(LOOKS)]
    return Look(look.color, "-", look.marker)


def draw(
    drawn: Sequence[Drawn], ax: Axes, words: Words, *, log_x: bool, control: Any, ends: bool
) -> None:
    """Lines: the exact law; dashed: the limit; points: sampled or measured; shaded: no row's value.

    Args:
        drawn: the curves.
        ax: where.
        words: what is written; the title is not.
        log_x: whether the abscissa is logarithmic.
        control: of the abscissa, for its scale; or None.
        ends: whether labels may stand right of the axes.
    """
    plotting.calm(ax)
    ax.set(xlabel=words.x, ylabel=words.y)
    x = drawn[0].exact.x
    low, high = float(x[0]), float(x[-1])
    if log_x:
        ax.set_xscale("log")
    elif _near_one(x, control) and high < 1 and high > 0.99:
        ax.set_xscale("function", functions=(control.scale.to, control.scale.back))
        plotting.plain_ticks(ax.xaxis, [t for t in control.ticks if low <= t <= high])
    if low < high:
        ax.set_xlim(low, high)
    bottom, top, log_y = _heights(drawn)
    ax.set(yscale="log" if log_y else "linear", ylim=(bottom, top))
    for axis, end, log in ((ax.xaxis, (low, high), log_x), (ax.yaxis, (bottom, top), log_y)):
        if log:
            _log_ticks(axis, *end)
    floor = _lowest(drawn)
    if floor is not None and (floor > bottom).any():
        under = max(bottom * 1e-3, 1e-300) if log_y else min(bottom, 0.0)
        ax.fill_between(x, under, floor, color=_SHADE, zorder=0, linewidth=0)
        ax.plot(x, floor, color=GREY, lw=1, zorder=1)
    for i, curve in enumerate(drawn):
        _curve(ax, curve, look_of(i))
    beside = ends and len(drawn) > 1 and max(len(c.exact.label) for c in drawn) <= _LONGEST
    if beside:
        found = [_end(c, look_of(i)) for i, c in enumerate(drawn)]
        inside = [(min(max(y, bottom), top), text, color) for y, text, color in found]
        plotting.end_labels(ax, inside)  # also of a curve that leaves the chart
    _key(ax, drawn, each=not beside and len(drawn) > 1)


def _curve(ax: Axes, curve: Drawn, look: Look) -> None:
    """One curve: theory as lines; only what was sampled or measured as markers."""
    if curve.limit is not None:
        ax.plot(curve.limit.x, curve.limit.theory, color=look.color, lw=1.3, ls=_LIMIT, zorder=2)
    if curve.measured:
        # A measured row is no estimate: it has no error bar, and a small dot, as rows are many.
        dots: dict[str, Any] = {"marker": ".", "ls": "none", "color": look.color, "ms": 6}
        ax.plot(curve.exact.x, curve.exact.estimate, zorder=3, **dots)
        if np.isfinite(curve.exact.theory).any():
            ax.plot(curve.exact.x, curve.exact.theory, color=look.color, lw=1.3, alpha=0.7)
    else:
        plotting.curve(ax, curve.exact, look)


def _lowest(drawn: Sequence[Drawn]) -> np.ndarray | None:
    """The floor of all curves; None where one has none."""
    if any(curve.floor is None for curve in drawn):
        return None
    same = all(np.array_equal(curve.exact.x, drawn[0].exact.x) for curve in drawn)
    floors = [curve.floor for curve in drawn if curve.floor is not None]
    return np.min(floors, axis=0) if same else None


def _heights(drawn: Sequence[Drawn]) -> tuple[float, float, bool]:
    """The ends of the ordinate, and whether it is logarithmic."""
    shown = [curve.exact.theory for curve in drawn]
    shown += [curve.exact.estimate for curve in drawn]
    shown += [c.limit.theory for c in drawn if c.limit and np.isnan(c.exact.theory).all()]
    values = np.concatenate(shown)
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 1.0, False
    low, high = float(values.min()), float(values.max())
    lower = _lowest(drawn)
    ground = low if lower is None else min(low, float(lower.min()))
    if low > 0 and high / low >= _WIDE:
        ground = max(ground, high / _DEEP)
        room = (high / ground) ** 0.06
        return ground / room, high * room, True
    if high <= 1.0 and low >= 0:
        return 0.0, 1.03 if high > 0.5 else 1.15 * high or 1.0, False
    room = 0.06 * (high - min(low, 0.0)) or 1.0
    return (0.0 if low >= 0 else low - room), high + room, False


def _log_ticks(axis: Any, low: float, high: float) -> None:
    """Powers of ten, as the figures name them; between them only where there are few."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    step = max(1, math.ceil((last - first) / 7))
    ticks = [10.0**k for k in range(first, last + 1, step)]
    if len(ticks) < 3:
        every = [m * 10.0**k for k in range(first - 1, last + 1) for m in (1, 2, 5)]
        ticks = [t for t in every if low * (1 - 1e-9) <= t <= high * (1 + 1e-9)]
    plotting.plain_ticks(axis, ticks, [_tick(t) for t in ticks])


def _tick(value: float) -> str:
    """A tick's label; small powers of ten as such."""
    power = math.log10(value)
    if power < -2 and abs(power - round(power)) < 1e-9:
        return power_of_ten(round(power))
    return plotting.tick_label(value)


def _end(curve: Drawn, look: Look) -> tuple[float, str, str]:
    """(height, label, colour) at the end of a curve."""
    for series in (curve.exact, curve.limit):
        if series is not None and np.isfinite(series.theory[-1]):
            return float(series.theory[-1]), curve.exact.label, look.color
    at = np.flatnonzero(np.isfinite(curve.exact.estimate))[-1]
    return float(curve.exact.estimate[at]), curve.exact.label, look.color


def _in_sight(line: Series | None, ax: Axes) -> bool:
    """Whether a line comes into the axes, above what the lower one hides."""
    if line is None:
        return False
    at = np.isfinite(line.theory)
    inside = (ax.transData - ax.transAxes).transform(np.c_[line.x, line.theory][at])
    return bool(at.any()) and inside[:, 1].min() <= 1 and inside[:, 1].max() >= _HIDDEN


def _key(ax: Axes, drawn: Sequence[Drawn], each: bool) -> None:
    """What the kinds of lines are; and each curve, where no label stands at its end."""
    handles: list[Any] = []
    size = {"markeredgecolor": "white", "markersize": 6}
    if each:
        for i, curve in enumerate(drawn):
            look = look_of(i)
            points = {"marker": look.marker, **size} if curve.exact.sampled.any() else {}
            style: dict[str, Any] = {"color": look.color, **points}
            handles.append(Line2D([], [], label=curve.exact.label, **style))
    color = look_of(0).color if len(drawn) == 1 else GREY
    measured = any(curve.measured for curve in drawn)
    if measured:
        style = {"color": color, "marker": ".", "ls": "none", "ms": 6}
        handles.append(Line2D([], [], label="measured", **style))
    if any(np.isfinite(curve.exact.theory).any() for curve in drawn):
        of_rows = any(curve.floor is not None or curve.limit is not None for curve in drawn)
        said = "exact law, rows of n" if of_rows else "exact law"
        if measured:
            said = "exact law at the row's own γ"
        handles.append(Line2D([], [], color=color, label=said))
    if any(_in_sight(curve.limit, ax) for curve in drawn):
        handles.append(Line2D([], [], color=color, lw=1.3, ls=_LIMIT, label="limit of long rows"))
    if any((curve.exact.sampled & ~curve.exact.doubted).any() for curve in drawn):
        style = {"color": color, "marker": "o", "ls": "none", **size}
        handles.append(Line2D([], [], label="Monte Carlo ± 95 %", **style))
    if any(curve.exact.doubted.any() for curve in drawn):
        style = plotting.hollow(Look(color, "-", "o"))
        handles.append(Line2D([], [], label="Monte Carlo, error in doubt", **style))
    floor = _lowest(drawn)
    if floor is not None and (floor > ax.get_ylim()[0]).any():
        handles.append(Patch(fc=_SHADE, ec=GREY, lw=0.6, label="out of reach of any row"))
    box = {"frameon": True, "facecolor": "white", "edgecolor": "none", "framealpha": 0.85}
    color = plotting.INK if each else GREY
    legend = ax.legend(handles=handles, labelcolor=color, handlelength=2.6, **box)
    legend.set_zorder(4)
    for text in legend.get_texts():  # a user's own label is no formula
        text.set_parse_math(False)
