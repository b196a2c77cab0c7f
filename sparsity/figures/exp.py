"""Softmax can be made as sparse as the row allows

Against γ: sparsity of a = exp(s), scores s ~ N(β, γ²), in the limit of long rows

S = exp(−γ²/2) falls without a floor as the spread γ of the scores grows, and does not depend on the
bias β: points at three biases lie on one curve. A real row of n tokens cannot go below 1/√n (grey);
see the figure of rows for what happens there. Line: the closed form. Points: stratified Monte
Carlo; their 95 % error bars are smaller than the markers.

Alt text: Line chart of sparsity on a logarithmic axis against spread. One falling parabola from 1
at spread 0 to 0.0003 at spread 4, with Monte Carlo points for three biases on it. Grey lines mark
the least sparsity of rows of 100, 10 000 and a million tokens: 0.1, 0.01 and 0.001.
"""

from __future__ import annotations

import numpy as np

from sparsity import plotting
from sparsity.figures.figure import Canvas, Context, Data, Figure
from sparsity.series import Series, from_sweeps
from sparsity.sweeps.curves import sweep

BETAS = {-2.0: "−2", 0.0: "0", 2.0: "2"}
LENGTHS = (100, 10_000, 1_000_000)


def data(context: Context) -> Data:
    """Compute S(γ), and the floors of rows.

    S does not depend on β, so the points at three biases are interleaved.
    """
    found: list[Series] = []
    for offset, (beta, label) in enumerate(BETAS.items()):
        lines = sweep("exp", beta=beta, gamma=np.linspace(0.02, 4, 200))
        points = context.sample("exp", beta=beta, gamma=np.arange(0.25 * (offset + 1), 4, 0.75))
        found += from_sweeps(lines, points, "gamma", lambda key, label=label: f"β = {label}")
    ends = np.array([0.0, 4.0])
    for n in LENGTHS:
        floor = np.full(2, -0.5 * np.log(n))
        line = Series.line(f"floor of a row of {n:,} tokens".replace(",", " "), ends, floor)
        found.append(line.named("gamma", "S", length=n))
    return tuple(found)


def draw(data: Data, canvas: Canvas) -> None:
    """Draw S on a logarithmic axis, where it is a parabola without a floor."""
    ax = plotting.axes(canvas, "spread  γ = σ‖q‖", plotting.SPARSITY)
    ax.set(yscale="log", xlim=(0, 4), ylim=(2.5e-4, 1.3))
    plotting.plain_ticks(ax.yaxis, (1, 0.1, 0.01, 0.001))
    style = {"ha": "left", "va": "bottom", "fontsize": 9.5}
    for series in data[3:]:
        ax.plot(series.x, series.theory, color=plotting.GREY, lw=1)
        y = series.theory[0] * 1.07
        plotting.inline(ax, 0.05, y, series.label, plotting.GREY, **style)
    looks = plotting.LOOKS[:3]
    plotting.curve(ax, data[0], plotting.Look(plotting.INK, "-", "none"), points=False)
    plotting.curves(ax, data[:3], looks, line=False)
    points = [(f"Monte Carlo, {d.label}", k) for d, k in zip(data, looks, strict=False)]
    plotting.key(ax, loc="upper right", points=points)
    plotting.inline(ax, 2.62, 0.05, "S = exp(−γ²/2)", plotting.INK, ha="left")


FIGURE = Figure.from_docstring(__doc__, "exp", data, draw)
