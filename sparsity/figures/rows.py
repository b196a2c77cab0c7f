"""A softmax row needs n ≫ exp(2γ²) tokens to reach its limit

Against n: sparsity of rows of n weights exp(s), s ~ N(0, γ²), and their limit exp(−γ²/2)

The limit exp(−γ²/2) (dashed) owes its second moment to scores 2γ standard deviations above the
mean; a row holds such a token only if n > exp(2γ²) (ticks): 7, 3 000 and 66 million tokens for γ =
1, 2, 3, and 8·10¹³ for γ = 4. Before that the row is flatter than its limit, and never below the
floor 1/√n, which is above the limit for n < exp(γ²). Solid: exact law at finite n. Points: Monte
Carlo with whole rows; their 95 % error bars are smaller than the markers.

Alt text: Line chart, both axes logarithmic, of sparsity against row length up to a billion tokens.
Curves for spreads 1, 2, 3 and 4 start at 1 and fall towards dashed limits 0.61, 0.14, 0.011 and
0.0003; the first two arrive, the third nearly, the fourth is far above. A shaded region below the
line one over square root of n is out of reach. Monte Carlo points for up to 4096 tokens lie on the
curves.
"""

from __future__ import annotations

import numpy as np

from sparsity import plotting
from sparsity.figures.figure import Canvas, Context, Data, Figure
from sparsity.series import Point, Series
from sparsity.sweeps.curves import sweep

GAMMAS = (1.0, 2.0, 3.0, 4.0)
SAMPLED = [16, 64, 256, 1024, 4096]
REL_ERROR = 0.02  # of n_eff: a whole row is one draw


def data(context: Context) -> Data:
    """Compute for every γ the exact S_rms(n), sampled rows and the limit; then the floor 1/√n.

    A limit is given from where it meets the floor, n = exp(γ²), and at n = exp(2γ²): its second
    moment comes from scores 2γ standard deviations up, which a shorter row does not hold.
    """
    lines = sweep("exp", gamma=GAMMAS, length="1:1e9:121:log")
    how = {"seed": context.seed, "rel_error": max(context.rel_error, REL_ERROR)}
    how |= {"of": "n_eff", "montecarlo": True, "dtype": np.float32}
    sampled = sweep("exp", gamma=GAMMAS, length=SAMPLED, **how)
    n, ends = lines["length"].values, np.array([1.0, 1e9])
    exact, limits = [], []
    for gamma in GAMMAS:
        line, points = lines.sel(gamma=gamma), sampled.sel(gamma=gamma)
        found, error = points["n_eff_mc"].values, points["stderr_n_eff_mc"].values
        # S_rms = √(n_eff/n), whose relative error is half that of n_eff.
        root = np.sqrt(found / SAMPLED)
        of_draws = points["samples_n_eff_mc"].values, points["seed_n_eff_mc"].values
        method = points.attrs["method_n_eff_mc"]
        drawn = zip(root, root * error / found / 2, *of_draws, strict=True)
        at = {float(n): Point(*each, method) for n, each in zip(SAMPLED, drawn, strict=True)}
        curve = Series.line(f"γ = {gamma:g}", n, np.log(line["S_rms"].values), gamma=gamma)
        curve = curve.named("length", "S_rms", kernel="exp")
        log = np.log(points["S_rms"].values)
        exact.append(curve.with_points(log, at))
        reach = np.array([np.exp(gamma**2), np.exp(2 * gamma**2), ends[1]])
        reach = np.unique(np.minimum(reach, ends[1]))
        limit = np.full(reach.shape, line["log_S_limit"].item())
        limit_line = Series.line(f"limit, γ = {gamma:g}", reach, limit, gamma=gamma)
        limits.append(limit_line.named("length", "S", kernel="exp"))
    floor = Series.line("floor 1/√n", ends, -0.5 * np.log(ends)).named("length", "S_rms")
    return (*exact, *limits, floor)


def draw(data: Data, canvas: Canvas) -> None:
    """Draw exact laws solid and limits dashed, and shade what lies below the floor."""
    count = (len(data) - 1) // 2
    ax = plotting.axes(canvas, "row length  n", plotting.SPARSITY, right=0.88)
    ax.set(xscale="log", yscale="log", xlim=(1, 1e9), ylim=(1.5e-4, 1.4))
    plotting.plain_ticks(ax.yaxis, (1, 0.1, 0.01, 1e-3), ("1", "0.1", "0.01", "10⁻³"))
    ticks = (1, 1e3, 1e6, 1e9)
    plotting.plain_ticks(ax.xaxis, ticks, ("1", "1 000", "a million", "a billion"))
    floor = data[-1]
    ax.fill_between(floor.x, 1e-5, floor.theory, color="#f1f2f4", zorder=0)
    ax.plot(floor.x, floor.theory, color=plotting.GREY, lw=1)
    looks = plotting.LOOKS[:count]
    for exact, limit, look in zip(data, data[count:], looks, strict=False):
        ax.plot(limit.x, limit.theory, color=look.color, lw=1.2, ls=plotting.DASHED)
        ax.plot(limit.x[1:-1], limit.theory[1:-1], "|", color=look.color, ms=13, mew=2)
        plotting.curve(ax, exact, look)
    ends = zip(data, data[count:], looks, strict=False)
    plotting.end_labels(ax, [(limit.theory[-1], d.label, k.color) for d, limit, k in ends])
    ax.text(6, 0.012, "no row has\nS < 1/√n", color=plotting.GREY, fontsize=10.5)
    limits = [("limit; tick at n = exp(2γ²)", plotting.Look(plotting.GREY, plotting.DASHED, "|"))]
    plotting.key(ax, line="exact law of n tokens", lines=limits, loc="lower left")


FIGURE = Figure.from_docstring(__doc__, "rows", data, draw)
