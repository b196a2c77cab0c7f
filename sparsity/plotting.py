"""Data to Matplotlib axes: the style of every figure, curves, labels and files. Computes nothing.

Colours are those of Okabe & Ito (2008), told apart with any colour vision; names beside the curves
and markers say the same again. A marker is a sample. A dashed line is what stands beside an exact
law: the limit of long rows, or a rule of thumb. Figures are built without pyplot, so no global
state is touched.
"""

from __future__ import annotations

import bisect
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib import patheffects
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from sparsity.output import length_label, power_of_ten, powers_of_two

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sparsity.series import Series

INK, GREY, PALE = "#1f2328", "#6b7280", "#e5e7eb"
# In points, so that markers of different shapes look about equally large.
_MARKER_SIZES = {"|": 13.0, "p": 7.0, "X": 7.2, "D": 5.3, "s": 5.6, "^": 6.6, "v": 6.6}
_NORMAL95 = 1.959964  # half width of a 95 % interval in standard errors


@dataclass(frozen=True)
class Look:
    """Colour, dash pattern and marker of a series, and the ground that the marker stands on."""

    color: str
    dash: Any
    marker: str
    ground: str = "white"


BLUE, SKY, GREEN, BLACK = "#0072b2", "#3f9fd6", "#009e73", "#1f2328"
ORANGE, VERMILLION, PURPLE = "#d98c00", "#d55e00", "#b5568f"

LOOKS = (
    Look(BLUE, "-", "o"),
    Look(VERMILLION, "-", "s"),
    Look(GREEN, "-", "D"),
    Look(PURPLE, "-", "^"),
    Look(ORANGE, "-", "v"),
    Look(SKY, "-", "p"),
    Look(BLACK, "-", "X"),
)

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "mathtext.fontset": "dejavusans",
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.labelsize": 11,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "lines.linewidth": 2.0,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 10,
    "savefig.facecolor": "white",
    "svg.fonttype": "path",  # looks the same wherever it is inlined, whatever fonts are there
}


DASHED = (0, (5, 3))  # of limits and rules, beside the exact law
SHADE = "#eceef1"  # of what no row can reach
SMALL = "small = focused"  # said on every axis of S
SPARSITY = f"sparsity  S  ({SMALL})"
TOKENS = "effective tokens  n_eff"  # one name on every figure

# What a file would say of the day and the program is left out.
FILES: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def render(
    draw: Callable[[Figure], Any],
    title: str,
    subtitle: str | None,
    size: tuple[float, float],
    suffixes: Sequence[str] = ("svg", "png"),
    describe: Callable[[Figure], str] | None = None,
) -> dict[str, bytes]:
    """Return a figure as file contents by suffix, the same bytes for the same drawing.

    Args:
        draw: draws on the figure, in the house style.
        title: the finding, set above the figure; also salts the identifiers inside the SVG.
        subtitle: what is shown, under the title; None where what draws sets both itself.
        size: width and height in inches.
        suffixes: of the files, out of `FILES`.
        describe: the figure, drawn -> what its SVG says of itself.
    """
    files = {}
    # Matplotlib salts identifiers inside an SVG with random numbers unless it is given a salt.
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": title}):
        figure = Figure(figsize=size)
        if subtitle is not None:
            headline(figure, title, subtitle)
        draw(figure)
        for suffix in suffixes:
            out = io.BytesIO()
            says = {"Description": describe(figure)} if describe and suffix == "svg" else {}
            figure.savefig(out, format=suffix, dpi=200, metadata=FILES[suffix] | says)
            files[suffix] = out.getvalue()
    return files


def headline(figure: Figure, title: str, subtitle: str, soft: str = GREY) -> float:
    """Write the finding and, under it, what is shown; what is too long goes on in another line.

    Returns:
        How far they reach down, in inches.
    """
    # Distances from the upper edge are in inches, the same on figures of any height.
    _, height = figure.get_size_inches()
    depth = 0.16
    for words, fontsize, line, style in (
        (title, 13.0, 0.3, {"fontweight": "bold"}),
        (subtitle, 10.5, 0.2, {"color": soft}),
    ):
        if words:
            # A user's own title is no formula.
            text = figure.text(0.025, 1 - depth / height, words, fontsize=fontsize, va="top")
            text.set(parse_math=False, linespacing=1.25, **style)
            depth += line + (_wrap(text) - 1) * fontsize * 1.5 / 72
    return depth


def _wrap(text: Any) -> int:
    """Break a text into lines that fit on its figure, and return how many."""
    figure, words = text.get_figure(root=True), text.get_text().split(" ")
    room, lines = 0.96 * figure.bbox.width, []

    def is_too_wide(count: int) -> bool:
        text.set_text(" ".join(words[:count]))
        return text.get_window_extent().width > room

    while words:
        # To measure a text takes a millisecond: most fit whole, and of the others each line is
        # found by bisection.
        count = len(words)
        if is_too_wide(count):
            count = 1 + bisect.bisect_left(range(2, count), True, key=is_too_wide)
        lines.append(" ".join(words[:count]))
        words = words[count:]
    text.set_text("\n".join(lines))
    if (width := text.get_window_extent().width) > room:  # one word is too long
        text.set_fontsize(text.get_fontsize() * room / width)
    return len(lines)


def axes(figure: Figure, x: str, y: str, *, right: float = 0.97) -> Axes:
    """Return one pair of axes under the headline, with room for labels at the right."""
    ax = figure.add_axes((0.115, 0.13, right - 0.115, 0.7))
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    ax.yaxis.set_label_coords(-0.085, 0.5)
    return calm(ax)


def tick_label(value: float) -> str:
    """Return a number with a true minus; powers of ten are written as such, but 0.01 … 100."""
    power = math.log10(value) if value > 0 else 0.0
    if abs(power) > 2.5 and abs(power - round(power)) < 1e-9:
        return power_of_ten(round(power))
    return f"{value:g}".replace("-", "−")


def length_ticks(axis: Any, low: float, high: float, most: int = 7) -> bool:
    """Set ticks of a logarithmic axis of lengths at powers of two, and tell whether three fit."""
    ticks = powers_of_two(low, high, most)
    if len(ticks) < 3:
        return False
    plain_ticks(axis, ticks, list(map(length_label, ticks)))
    return True


def plain_ticks(axis: Any, ticks: Sequence[float], labels: Sequence[str] | None = None) -> None:
    """Set the ticks of a logarithmic axis, named by `tick_label` unless labels are given."""
    axis.set_ticks(ticks, labels or [tick_label(tick) for tick in ticks])
    axis.set_ticks([], minor=True)


def calm(ax: Axes, grid: str = PALE) -> Axes:
    """Put a light grid behind the data, and return the axes."""
    ax.grid(visible=True, color=grid, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(which="both", length=3)
    return ax


def panel(canvas: Figure, box: tuple[float, float, float, float], title: str = "") -> Axes:
    """Return one of several pairs of axes, in a box in shares of the canvas."""
    ax = calm(canvas.add_axes(box))
    if title:
        ax.set_title(title, loc="left", fontsize=11)
    return ax


def curve(
    ax: Axes, series: Series, look: Look, *, line: bool = True, points: bool = True, **style: Any
) -> None:
    """Draw theory as a line and estimates as points with 95 % error bars.

    An estimate whose error bar cannot be trusted is hollow and has none.
    """
    if line:
        ax.plot(series.x, series.theory, color=look.color, linestyle=look.dash, **style)
    doubted = series.doubted
    if points and doubted.any():
        ax.plot(series.x[doubted], series.estimate[doubted], zorder=3, **hollow(look))
    at = series.sampled & ~doubted
    if points and at.any():
        ax.errorbar(
            series.x[at],
            series.estimate[at],
            yerr=_NORMAL95 * series.stderr[at],
            elinewidth=1.2,
            zorder=3,
            **_marker(look),
        )


def curves(ax: Axes, data: Iterable[Series], looks: Iterable[Look] = LOOKS, **how: Any) -> None:
    """Draw several curves, each in the look of its place."""
    for series, look in zip(data, looks, strict=False):
        curve(ax, series, look, **how)


def name_ends(ax: Axes, data: Iterable[Series], looks: Iterable[Look] = LOOKS, **how: Any) -> None:
    """Write the labels of curves at their right ends."""
    pairs = zip(data, looks, strict=False)
    end_labels(ax, [(line.theory[-1], line.label, look.color) for line, look in pairs], **how)


def _marker(look: Look) -> dict[str, Any]:
    return {
        "linestyle": "none",
        "marker": look.marker,
        "color": look.color,
        "markersize": _MARKER_SIZES.get(look.marker, 6.0),
        "markeredgecolor": look.color if look.marker == "|" else look.ground,
        "markeredgewidth": 1.8 if look.marker == "|" else 0.7,
    }


def hollow(look: Look) -> dict[str, Any]:
    """Return the marker of an estimate whose error bar cannot be trusted."""
    edge = {"markerfacecolor": look.ground, "markeredgecolor": look.color, "markeredgewidth": 1.4}
    return _marker(look) | edge


def key(
    ax: Axes,
    *,
    line: str = "theory",
    points: Iterable[tuple[str, Look]] = (("Monte Carlo ± 95 %", Look(GREY, "-", "o")),),
    lines: Iterable[tuple[str, Look]] = (),
    shade: str = "",
    **place: Any,
) -> None:
    """Say what the line and the points are; then lines with markers of their own, and the shade."""
    handles: list[Any] = [ax.plot([], [], color=GREY, label=line)[0]]
    handles += [ax.plot([], [], label=label, **_marker(look))[0] for label, look in points]
    for label, look in lines:
        thin = {} if look.dash == "-" else {"lw": 1.2}  # of a thick line the key shows half a dash
        style = _marker(look) | {"linestyle": look.dash, **thin}
        handles += ax.plot([], [], label=label, **style)
    handles += [Patch(color=SHADE, label=shade)] if shade else []
    ax.legend(handles=handles, labelcolor=GREY, **{"handlelength": 2.6, "borderpad": 0.2, **place})


def inline(ax: Axes, x: float, y: float, text: str, color: str = INK, **style: Any) -> None:
    """Write a label at a point of the axes' data, with a white halo over lines."""
    style = {"ha": "center", "va": "center", "fontsize": 10.5, "zorder": 5, **style}
    halo = [patheffects.withStroke(linewidth=3.5, foreground="white")]
    ax.text(x, y, text, color=color, path_effects=halo, **style)


def pushed_apart(heights: np.ndarray, step: float) -> np.ndarray:
    """Return ascending heights, moved as little as keeps neighbours a step from each other."""
    heights = heights.copy()
    # Two neighbours that are too close move apart by half of what they lack each, which may bring
    # others too close: repeated until nothing lacks more than a hundredth of a pixel. The rounds
    # are limited, as more labels than fit would push each other for ever.
    for _ in range(200):
        lack = np.maximum(step - np.diff(heights), 0) / 2
        if lack.max(initial=0) < 0.01:
            break
        heights[:-1] -= lack
        heights[1:] += lack
    return heights


def needs_leader(shifts: np.ndarray, point: float) -> np.ndarray:
    """Tell which labels moved so far from the ends of their curves that a line has to lead there.

    A level one would read as a tick, or as a minus before the label.
    """
    return np.abs(shifts) > 3 * point


def end_labels(
    ax: Axes, labels: Iterable[tuple[float, str, str]], *, gap: float = 15.0, fontsize: float = 10.5
) -> None:
    """Write labels at the right end of curves, pushed apart where they would overlap.

    Args:
        ax: axes whose limits are final.
        labels: (height in data, text, colour).
        gap: least distance in points.
        fontsize: in points.
    """
    items = sorted(labels)
    figure = ax.get_figure(root=True)
    assert figure is not None
    step = gap * figure.dpi / 72
    ends = np.array([ax.transData.transform((1.0, y))[1] for y, *_ in items])
    heights = pushed_apart(ends, step)
    to_axes, point = ax.transAxes.inverted().transform, figure.dpi / 72
    right = ax.transAxes.transform((1.0, 0.0))[0]
    moved = needs_leader(heights - ends, point)
    for end, height, far, (_, text, color) in zip(ends, heights, moved, items, strict=True):
        if far:
            leader = to_axes([(right + 2 * point, end), (right + 9 * point, height)])
            ax.plot(*leader.T, color=color, lw=0.9, transform=ax.transAxes, clip_on=False)
        x, y = to_axes((right + (12 if moved.any() else 5) * point, height))
        style: dict[str, Any] = {"fontsize": fontsize, "va": "center", "parse_math": False}
        ax.text(x, y, text, color=color, transform=ax.transAxes, **style)
