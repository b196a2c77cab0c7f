"""Figure 7: softmax rows of finite length, exactly, against the limit of long rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparsity import plotting
from sparsity.curves import sweep
from sparsity.figures.record import Canvas, Context, Data, Figure
from sparsity.series import Series

GAMMAS = (1.0, 2.0, 3.0, 4.0)
SAMPLED = [4, 16, 64, 256, 1024, 4096]
REL_ERROR = 0.02  # of n_eff: a whole row is one draw


def data(context: Context) -> Data:
    """For every γ the exact S_rms(n), sampled rows and the limit; then the floor 1/√n."""
    lines = sweep("exp", gamma=GAMMAS, length="1:1e9:121:log").squeeze("beta")
    sampled = sweep(
        "exp",
        gamma=GAMMAS,
        length=SAMPLED,
        montecarlo=True,
        seed=context.seed,
        rel_error=max(context.rel_error, REL_ERROR),
    ).squeeze("beta")
    n, ends = lines["length"].values, np.array([1.0, 1e9])
    exact, limits = [], []
    for gamma in GAMMAS:
        line, points = lines.sel(gamma=gamma), sampled.sel(gamma=gamma)
        root = np.sqrt(points["n_eff_mc"] / points["length"])  # S_rms; δS/S = ½ δn_eff/n_eff
        stderr = root * points["stderr_n_eff_mc"] / points["n_eff_mc"] / 2
        columns = (root, stderr, points["samples_n_eff_mc"], points["seed_n_eff_mc"])
        rows = zip(*(column.values for column in columns), strict=True)
        estimates = dict(zip(map(float, SAMPLED), rows, strict=True))
        curve = Series.line(f"γ = {gamma:g}", n, np.log(line["S_rms"].values), gamma=gamma)
        log = np.log(points["S_rms"].values)
        exact.append(curve.with_points(log, estimates, points.attrs["method_n_eff_mc"]))
        limit = np.full(2, line["log_S"].item())
        limits.append(Series.line(f"limit, γ = {gamma:g}", ends, limit, gamma=gamma))
    return (*exact, *limits, Series.line("floor 1/√n", ends, -0.5 * np.log(ends)))


def draw(data: Sequence[Series], canvas: Canvas) -> None:
    """Solid: exact. Dashed: the limit. Shaded: below the floor."""
    count = (len(data) - 1) // 2
    ax = plotting.axes(canvas, "row length  n", "sparsity  S", right=0.88)
    ax.set(xscale="log", yscale="log", xlim=(1, 1e9), ylim=(1.5e-4, 1.4))
    plotting.plain_ticks(ax.yaxis, (1, 0.1, 0.01, 0.001), ("1", "0.1", "0.01", "0.001"))
    ticks = (1, 1e3, 1e6, 1e9)
    plotting.plain_ticks(ax.xaxis, ticks, ("1", "1 000", "a million", "a billion"))
    floor = data[-1]
    ax.fill_between(floor.x, 1e-5, floor.theory, color="#f1f2f4", zorder=0)
    ax.plot(floor.x, floor.theory, color=plotting.GREY, lw=1)
    for exact, limit, look in zip(data, data[count:], plotting.LOOKS[:count], strict=False):
        solid = plotting.Look(look.color, "-", look.marker)
        ax.plot(limit.x, limit.theory, color=look.color, lw=1.1, ls=(0, (5, 3)), alpha=0.8)
        plotting.curve(ax, exact, solid)
    looks = zip(data[:count], data[count:], plotting.LOOKS, strict=False)
    plotting.end_labels(ax, [(limit.theory[-1], d.label, k.color) for d, limit, k in looks])
    plotting.inline(ax, 12, 0.02, "out of reach: S < 1/√n", plotting.GREY)
    plotting.key(ax, line="exact law of n tokens", loc="lower left")


FIGURE = Figure(
    name="rows",
    title="A real softmax row follows the limit only while γ² < ln n",
    subtitle="Sparsity of rows of n softmax weights: exact (solid) and limit exp(−γ²/2) (dashed)",
    caption="",
    alt="",
    data=data,
    draw=draw,
)
