"""Decay leaves a window that longer rows cannot widen

Against n: sparsity S and effective tokens n_eff of a = λⁿ⁻ʲ, j = 1 … n

Without decay every token counts, S = 1. With λ < 1 the effective tokens n_eff = n·S² stops at
(1+λ)/(1−λ): 3, 19, 199 and 1999 for λ = 0.5, 0.9, 0.99 and 0.999, so S falls like 1/√n. Decay
attends to what is near, not to what is similar. Lines: the closed form. Points: Monte Carlo over
positions; their 95 % error bars are smaller than the markers.

Alt text: Two line charts against row length, both logarithmic. Left: sparsity stays 1 for λ = 1 and
turns to fall with slope −1/2 for λ = 0.999, 0.99, 0.9 and 0.5, in this order. Right: the effective
window grows with n and levels off at 1999, 199, 19 and 3 tokens. Monte Carlo points lie on the
curves.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sparsity import plotting
from sparsity.figures.figure import Canvas, Context, Data, Figure
from sparsity.series import Series, from_sweeps
from sparsity.sweeps.curves import sweep

DECAYS = {1.0: "1", 0.999: "0.999", 0.99: "0.99", 0.9: "0.9", 0.5: "0.5"}


def _as_window(series: Series) -> Series:
    """Turn a curve of S into one of the effective number of tokens n·S²."""
    n, decay = series.x, series.key["decay"]
    # The window of an endless row, (Σλʲ)²/Σλ²ʲ = (1−λ²)/(1−λ)² = (1+λ)/(1−λ), in whole tokens. The
    # error is that of a square, δ(n·S²) = 2n·S·δS.
    limit = "∞" if decay == 1 else f"{(1 + decay) / (1 - decay):.0f}"
    return replace(
        series,
        label=f"{series.label} → {limit}",
        of="n_eff",
        unit="tokens",
        theory=n * series.theory**2,
        log=np.log(n) + 2 * series.log,
        estimate=n * series.estimate**2,
        stderr=2 * n * series.estimate * series.stderr,
    )


def data(context: Context) -> Data:
    """Compute S(n) for every λ, then n·S²(n)."""
    lines = sweep("decayed", decay=list(DECAYS), length="1:100000:160:log")
    points = context.sample("decayed", decay=list(DECAYS), length="2:50000:8:log")
    curves = from_sweeps(lines, points, "length", lambda key: f"λ = {DECAYS[key['decay']]}")
    return (*curves, *map(_as_window, curves))


def draw(data: Data, canvas: Canvas) -> None:
    """Draw S at the left and n·S² at the right, both on logarithmic axes."""
    half, ticks = len(data) // 2, (1, 10, 100, 1e3, 1e4, 1e5)
    left = plotting.panel(canvas, (0.085, 0.13, 0.335, 0.655), plotting.SPARSITY)
    right = plotting.panel(canvas, (0.5, 0.13, 0.275, 0.655), plotting.TOKENS)
    for ax, curves in ((left, data[:half]), (right, data[half:])):
        ax.set(xscale="log", yscale="log", xlim=(1, 1e5), xlabel="row length  n")
        plotting.plain_ticks(ax.xaxis, ticks)
        plotting.curves(ax, curves)
    left.set_ylim(2.5e-3, 1.5)
    plotting.plain_ticks(left.yaxis, (1, 0.1, 0.01))
    plotting.key(left, loc="lower left")
    right.set_ylim(0.8, 1.6e5)
    plotting.plain_ticks(right.yaxis, ticks)
    plotting.name_ends(right, data[half:])


FIGURE = Figure.from_docstring(__doc__, "decayed", data, draw)
