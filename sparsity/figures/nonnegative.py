"""Figure 5: nonnegative linear attention against the dimension."""

from __future__ import annotations

from collections.abc import Sequence

from sparsity.figures import features, plotting
from sparsity.figures.record import Canvas, Context, Data, Figure
from sparsity.figures.series import Series, from_sweeps
from sparsity.limit.evaluation import evaluate
from sparsity.sweeps.curves import sweep

RATIOS = {0.5: "½", 1.0: "1", 2.0: "2"}
DIMS = (2, 8, 32)  # sampled
QUERIES = ("one-hot", "half-normal", "uniform")
_DASHES = ("-", (0, (6, 1.8)), (0, (1.4, 1.4)))
_MARKERS = ("o", "^", "s")


def data(context: Context) -> Data:
    """S(d) for every σ̃/μ̃ and query family."""
    lines = sweep("nonnegative", ratio=list(RATIOS), query=QUERIES, dim="1:1024:120:log")
    curves = from_sweeps(
        lines, None, "dim", lambda key: f"σ̃/μ̃ = {RATIOS[key['ratio']]}, {key['query']}"
    )
    return tuple(_sampled(context, curve) for curve in curves)


def _sampled(context: Context, curve: Series) -> Series:
    ratio, query = curve.key["ratio"], curve.key["query"]
    mean, estimates, method = features.center(ratio), {}, ""
    for dim in DIMS:
        estimates[dim], method = features.sample(context, features.relu, mean, query, dim)
    log = evaluate("nonnegative", ratio=ratio, dim=DIMS, query=query).log_S
    return curve.with_points(log, estimates, method)


def draw(data: Sequence[Series], canvas: Canvas) -> None:
    """Colour tells σ̃/μ̃, dash and marker the query family."""
    ax = plotting.axes(canvas, "dimension of the features  d", plotting.SPARSITY, right=0.855)
    ax.set(xscale="log", xlim=(1, 1024), ylim=(0.4, 1.015))
    plotting.plain_ticks(ax.xaxis, (1, 4, 16, 64, 256, 1024))
    colors = [look.color for look in plotting.LOOKS[:3]]
    looks = [plotting.Look(c, d, m) for c in colors for d, m in zip(_DASHES, _MARKERS, strict=True)]
    for series, look in zip(data, looks, strict=True):
        plotting.curve(ax, series, look)
    floors = zip(data[:: len(QUERIES)], colors, strict=True)
    plotting.end_labels(ax, [(d.theory[-1], d.label.split(",")[0], c) for d, c in floors])
    plotting.key(
        ax,
        lines=[
            (f"{query} query", plotting.Look(plotting.GREY, dash, marker))
            for query, dash, marker in zip(QUERIES, _DASHES, _MARKERS, strict=True)
        ],
        loc="lower right",
        bbox_to_anchor=(1.0, 0.13),
    )


FIGURE = Figure(
    name="nonnegative",
    title="More i.i.d. features never sharpen nonnegative attention",
    subtitle="Sparsity of a = q̃ᵀk̃, i.i.d. nonnegative features of noise-to-signal ratio σ̃/μ̃",
    caption=(
        "S = 1/√(1 + (σ̃ρ/μ̃)²) with ρ = ‖q̃‖₂/‖q̃‖₁ between 1/√d and 1. The sparsest query is "
        "one-hot, ρ = 1, and its S is that of a single feature in every dimension; dense queries "
        "(uniform, half-normal) only get flatter as d grows. What helps is noise: a larger σ̃/μ̃. "
        "Lines: the closed form. Points: Monte Carlo with whole ReLU features of Gaussian keys; "
        "their 95 % error bars are smaller than the markers."
    ),
    alt=(
        "Line chart of sparsity against feature dimension from 1 to 1024. For noise-to-signal "
        "ratios one half, one and two the one-hot query gives flat lines at 0.89, 0.71 and 0.45; "
        "the half-normal and uniform queries start there at d = 1 and rise to 1. Monte Carlo "
        "points lie on the curves."
    ),
    data=data,
    draw=draw,
)
