"""Signed linear attention never gets below √(2/π) ≈ 0.80

Against γ: sparsity of a = s, scores s ~ N(β, γ²); the same for β and −β

S depends on |β|/γ alone. The least it can be is √(2/π), at β = 0 or for a large spread: nearly as
flat as uniform attention, S = 1. The vertical axis starts at 0.775. Lines: the closed form. Points:
stratified Monte Carlo; their 95 % error bars are smaller than the markers.

Alt text: Line chart of sparsity against spread on a logarithmic axis. Curves for bias one half,
one, two and four fall from 1 to the floor 0.798; the curve for zero bias is the floor. Monte Carlo
points lie on the curves.
"""

from __future__ import annotations

import numpy as np

from sparsity import plotting
from sparsity.figures.figure import Canvas, Context, Data, Figure
from sparsity.series import from_sweeps
from sparsity.sweeps.curves import sweep

BETAS = {0.0: "0", 0.5: "½", 1.0: "1", 2.0: "2", 4.0: "4"}
_PLACES = ((0.12, 0.806), (0.205, 0.94), (0.41, 0.94), (0.82, 0.94), (1.64, 0.94))


def data(context: Context) -> Data:
    """Compute S(γ) for every bias; S is even in β."""
    betas = list(BETAS)
    lines = sweep("identity", beta=betas, gamma=np.geomspace(0.1, 30, 241))
    points = context.sample("identity", beta=betas, gamma=np.geomspace(0.14, 20, 9))
    return from_sweeps(lines, points, "gamma", lambda key: f"β = {BETAS[key['beta']]}")


def draw(data: Data, canvas: Canvas) -> None:
    """Draw on a vertical axis that starts just below the floor, not at 0."""
    ax = plotting.axes(canvas, "spread  γ = σ‖q‖", plotting.SPARSITY)
    ax.set(xscale="log", xlim=(0.1, 30), ylim=(0.775, 1.006))
    plotting.plain_ticks(ax.xaxis, (0.1, 0.3, 1, 3, 10, 30))
    for series, look, place in zip(data, plotting.LOOKS, _PLACES, strict=False):
        plotting.curve(ax, series, look)
        plotting.inline(ax, *place, series.label, look.color, ha="left")
    plotting.inline(ax, 29, 0.788, "floor √(2/π) ≈ 0.798", plotting.GREY, ha="right")
    plotting.key(ax, loc="upper right")


FIGURE = Figure.from_docstring(__doc__, "identity", data, draw)
