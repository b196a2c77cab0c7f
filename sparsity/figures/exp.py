"""Figure 3: softmax attention against the spread."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparsity.figures import plotting
from sparsity.figures.record import Canvas, Context, Data, Figure
from sparsity.figures.series import Series, from_sweeps
from sparsity.sweeps.curves import sweep

BETAS = {-2.0: "−2", 0.0: "0", 2.0: "2"}
LENGTHS = (100, 10_000, 1_000_000)


def data(context: Context) -> Data:
    """S(γ); points at three biases, interleaved, since S does not depend on β. Floors of rows."""
    found: list[Series] = []
    for offset, (beta, label) in enumerate(BETAS.items()):
        lines = sweep("exp", beta=beta, gamma=np.linspace(0.02, 4, 200))
        points = context.sample("exp", beta=beta, gamma=np.arange(0.25 * (offset + 1), 4, 0.75))
        found += from_sweeps(lines, points, "gamma", lambda key, label=label: f"β = {label}")
    ends = np.array([0.0, 4.0])
    for n in LENGTHS:
        floor = np.full(2, -0.5 * np.log(n))
        found.append(Series.line(f"floor of a row of {n:,} tokens".replace(",", " "), ends, floor))
    return tuple(found)


def draw(data: Sequence[Series], canvas: Canvas) -> None:
    """Logarithmic S: a parabola without a floor."""
    ax = plotting.axes(canvas, "spread  γ = σ‖q‖", plotting.SPARSITY)
    ax.set(yscale="log", xlim=(0, 4), ylim=(2.5e-4, 1.3))
    plotting.plain_ticks(ax.yaxis, (1, 0.1, 0.01, 0.001))
    for series in data[3:]:
        ax.plot(series.x, series.theory, color=plotting.GREY, lw=1, ls=(0, (4, 3)))
        place = (0.05, series.theory[0] * 1.07)
        plotting.inline(
            ax, *place, series.label, plotting.GREY, ha="left", va="bottom", fontsize=9.5
        )
    looks = plotting.LOOKS[:3]
    plotting.curve(ax, data[0], plotting.Look(plotting.INK, "-", "none"), points=False)
    for series, look in zip(data[:3], looks, strict=True):
        plotting.curve(ax, series, look, line=False)
    plotting.key(
        ax,
        loc="upper right",
        points=[(f"Monte Carlo, {d.label}", k) for d, k in zip(data, looks, strict=False)],
    )
    plotting.inline(ax, 2.62, 0.05, "S = exp(−γ²/2)", plotting.INK, ha="left")


FIGURE = Figure(
    name="exp",
    title="Softmax can be made as sparse as the row allows",
    subtitle="Sparsity of a = exp(s), scores s ~ N(β, γ²), in the limit of long rows",
    caption=(
        "S = exp(−γ²/2) falls without a floor as the spread γ of the scores grows, and does not "
        "depend on the bias β: points at three biases lie on one curve. A real row of n tokens "
        "cannot go below 1/√n (dashed); see the figure of rows for what happens there. Line: the "
        "closed form. Points: stratified Monte Carlo; their 95 % error bars are smaller than the "
        "markers."
    ),
    alt=(
        "Line chart of sparsity on a logarithmic axis against spread. One falling parabola from 1 "
        "at spread 0 to 0.0003 at spread 4, with Monte Carlo points for three biases on it. Dashed "
        "lines mark the least sparsity of rows of 100, 10 000 and a million tokens: 0.1, 0.01 and "
        "0.001."
    ),
    data=data,
    draw=draw,
)
