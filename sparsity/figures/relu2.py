"""Squared ReLU can focus only when its bias is negative

Against γ: sparsity of a = max(s, 0)², scores s ~ N(β, γ²), for seven biases β = q·μ

S depends on β/γ alone. With β < 0 and a small spread γ it falls to 0; with β = 0 it is 1/√6
whatever the spread; with β > 0 a smaller spread makes attention flatter. Lines: the closed form.
Points: stratified Monte Carlo; their 95 % error bars are smaller than the markers.

Alt text: Line chart of sparsity against spread on a logarithmic axis. Three curves for negative
bias rise from 0, three for positive bias fall from 1, the one for zero bias is flat; all meet 0.408
at the right. Monte Carlo points lie on the curves.
"""

from __future__ import annotations

import numpy as np

from sparsity import plotting
from sparsity.figures.figure import Canvas, Context, Data, Figure
from sparsity.series import from_sweeps
from sparsity.sweeps.curves import sweep

BETAS = {-2.0: "−2", -1.0: "−1", -0.5: "−½", 0.0: "0", 0.5: "½", 1.0: "1", 2.0: "2"}
# Where each label stands: right of its curve, above the falling and below the rising ones.
_FALLING = ((1.47, 0.12), (0.735, 0.12), (0.367, 0.12), (0.12, 0.445))
_RISING = ((0.31, 0.735), (0.62, 0.735), (1.24, 0.735))


def data(context: Context) -> Data:
    """Compute S(γ) for every bias."""
    betas = list(BETAS)
    lines = sweep("relu2", beta=betas, gamma=np.geomspace(0.1, 30, 241))
    points = context.sample("relu2", beta=betas, gamma=np.geomspace(0.14, 20, 9))
    return from_sweeps(lines, points, "gamma", lambda key: f"β = {BETAS[key['beta']]}")


def draw(data: Data, canvas: Canvas) -> None:
    """Draw on logarithmic γ, where the curves of one sign are one curve, shifted."""
    ax = plotting.axes(canvas, "spread  γ = σ‖q‖", plotting.SPARSITY)
    ax.set(xscale="log", xlim=(0.1, 30), ylim=(-0.01, 1.03))
    plotting.plain_ticks(ax.xaxis, (0.1, 0.3, 1, 3, 10, 30))
    for series, look, place in zip(data, plotting.LOOKS, (*_FALLING, *_RISING), strict=True):
        plotting.curve(ax, series, look)
        plotting.inline(ax, *place, series.label, look.color, ha="left", fontsize=9.5)
    plotting.inline(ax, 29, 0.3, "all meet 1/√6 ≈ 0.408", plotting.GREY, ha="right")
    plotting.key(ax, loc="upper right")


FIGURE = Figure.from_docstring(__doc__, "relu2", data, draw)
