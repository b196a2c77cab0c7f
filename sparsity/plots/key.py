"""The key of a chart: what its lines and points are, and room where it covers no curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.path import Path

from sparsity import plotting
from sparsity.plots.colors import Palette, look_of
from sparsity.plots.curves import Curve, common_floor, limit_alone
from sparsity.plotting import DASHED, Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sparsity.series import Series

_LEAST_HEIGHT_SEEN = 0.005  # of the axes: a line so low lies on the axis
_MOST_HEADROOM = 0.6  # of the axes, for a key


def _in_sight(line: Series | None, ax: Axes) -> bool:
    """Tell whether a line comes into the axes, above the thickness of the lower one."""
    if line is None:
        return False
    at = np.isfinite(line.theory)
    inside = (ax.transData - ax.transAxes).transform(np.c_[line.x, line.theory][at])
    return bool(at.any()) and inside[:, 1].min() <= 1 and inside[:, 1].max() >= _LEAST_HEIGHT_SEEN


def key_handles(
    ax: Axes, curves: Sequence[Curve], lines: Sequence[Line2D], palette: Palette, each: bool
) -> list[Any]:
    """Return what the key shows: with `each` every curve; then each kind of line that is there."""
    # Kinds of lines are told apart by dash and marker, curves by colour: grey is that of any curve.
    handles: list[Any] = []
    size = {"markeredgecolor": palette.ground, "markersize": 6}

    def add(label: str, **style: Any) -> None:
        handles.append(Line2D([], [], label=label, **style))

    if each and len(curves) > 1:
        for i, (curve, line) in enumerate(zip(curves, lines, strict=True)):
            marker = look_of(i, palette).marker
            points = {"marker": marker, **size} if curve.exact.sampled.any() else {}
            add(curve.exact.label, color=line.get_color(), **points)
    color = str(lines[0].get_color()) if len(curves) == 1 else palette.soft
    measured = any(curve.measured for curve in curves)
    if measured:
        add("measured", color=color, marker=".", ls="none", ms=6)
    if any(np.isfinite(curve.exact.theory).any() for curve in curves):
        of_rows = any(curve.floor is not None or curve.limit is not None for curve in curves)
        said = "exact law, rows of n" if of_rows else "exact law"
        add("exact law at the row's own γ" if measured else said, color=color)
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
    most = len(handles) if "bbox_to_anchor" in place else 1 + (len(handles) > 4)
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
