"""Figure 5: nonnegative linear attention against the dimension."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparsity import plotting
from sparsity.curves import sweep
from sparsity.figures.record import Canvas, Context, Data, Figure
from sparsity.series import Series, from_sweeps

RATIOS = {0.5: "½", 1.0: "1", 2.0: "2"}
QUERIES = ("one-hot", "half-normal", "uniform")
_DASHES = ("-", (0, (6, 1.8)), (0, (1.4, 1.4)))
_MARKERS = ("o", "^", "s")


def data(context: Context) -> Data:
    """S(d) for every σ̃/μ̃ and query family."""
    lines = sweep("nonnegative", ratio=list(RATIOS), query=QUERIES, dim="1:1024:120:log")
    points = context.sample("nonnegative", ratio=list(RATIOS), query=QUERIES, dim=[2, 8, 32, 128])
    order = from_sweeps(
        lines, points, "dim", lambda key: f"σ̃/μ̃ = {RATIOS[key['ratio']]}, {key['query']}"
    )
    return order


def draw(data: Sequence[Series], canvas: Canvas) -> None:
    """Colour tells σ̃/μ̃, dash and marker the query family."""
    ax = plotting.axes(canvas, "dimension of the features  d", "sparsity  S", right=0.8)
    ax.set(xscale="log", xlim=(1, 1024), ylim=(0.4, 1.015))
    plotting.plain_ticks(ax.xaxis, (1, 4, 16, 64, 256, 1024))
    colors = [look.color for look in plotting.LOOKS[:3]]
    looks = [plotting.Look(c, d, m) for c in colors for d, m in zip(_DASHES, _MARKERS, strict=True)]
    for series, look in zip(data, looks, strict=True):
        plotting.curve(ax, series, look)
    ends = [(d.theory[-1], d.label, look.color) for d, look in zip(data, looks, strict=True)]
    plotting.end_labels(ax, ends, gap=14, fontsize=9)


FIGURE = Figure(
    name="nonnegative",
    title="A larger dimension never sharpens nonnegative linear attention",
    subtitle="Sparsity of a = q̃ᵀk̃, nonnegative features with noise-to-signal ratio σ̃/μ̃",
    caption="",
    alt="",
    data=data,
    draw=draw,
)
