"""What longer rows do to S and n_eff: when they are at their limit, and the window of decay.

A figure is what it computes, how it is drawn, with its words, and the record of both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.interpolate import PchipInterpolator

from sparsity import plotting
from sparsity.exact_law.exact import exact, exact_grid
from sparsity.exact_law.regimes import critical_spread, limit_reach
from sparsity.kernels import identity, relu2
from sparsity.limit.evaluation import evaluate
from sparsity.quantities import n_eff
from sparsity.report.figures.figure import Canvas, Context, Data, Figure
from sparsity.sampling import draw as sample
from sparsity.series import Point, Series, from_sweeps
from sparsity.sweeps.curves import sweep

# The figure `rows`.
ROWS_GAMMAS = (1.0, 2.0, 3.0, 4.0)
ROWS_SAMPLED = [16, 64, 256, 1024, 4096]
REL_ERROR = 0.02  # of n_eff: a whole row is one draw


def compute_rows(context: Context) -> Data:
    """Compute for every γ the exact S_rms(n), sampled rows and the limit; then the floor 1/√n.

    A limit is given from where it meets the floor, n = exp(γ²), and at n = exp(2γ²): its second
    moment comes from scores 2γ standard deviations up, which a shorter row does not hold.
    """
    lines = sweep("exp", gamma=ROWS_GAMMAS, length="1:1e9:121:log")
    how = {"seed": context.seed, "rel_error": max(context.rel_error, REL_ERROR)}
    how |= {"of": "n_eff", "montecarlo": True, "dtype": np.float32}
    sampled = sweep("exp", gamma=ROWS_GAMMAS, length=ROWS_SAMPLED, **how)
    n, ends = lines["length"].values, np.array([1.0, 1e9])
    laws, limits = [], []
    for gamma in ROWS_GAMMAS:
        line, points = lines.sel(gamma=gamma), sampled.sel(gamma=gamma)
        columns = (points[f"{x}n_eff_mc"].values for x in ("", "stderr_", "samples_", "seed_"))
        method = points.attrs["method_n_eff_mc"]
        drawn = [Point(*values, method=method) for values in zip(*columns, strict=True)]
        at = dict(zip(map(float, ROWS_SAMPLED), drawn, strict=True))
        curve = Series.line(f"γ = {gamma:g}", n, np.log(line["n_eff"].values), gamma=gamma)
        curve = curve.with_points(np.log(points["n_eff"].values), at).as_sparsity()
        laws.append(curve.named("length", "S_rms", kernel="exp"))
        reach = np.array([np.exp(gamma**2), np.exp(2 * gamma**2), ends[1]])
        reach = np.unique(np.minimum(reach, ends[1]))
        limit = np.full(reach.shape, line["log_S_limit"].item())
        limit_line = Series.line(f"limit, γ = {gamma:g}", reach, limit, gamma=gamma)
        limits.append(limit_line.named("length", "S", kernel="exp"))
    floor = Series.line("floor 1/√n", ends, -0.5 * np.log(ends)).named("length", "S_rms")
    return (*laws, *limits, floor)


def draw_rows(data: Data, canvas: Canvas) -> None:
    """A softmax row needs n ≫ exp(2γ²) tokens to reach its limit

    Against n: sparsity of rows of n weights exp(s), s ~ N(0, γ²), and their limit exp(−γ²/2)

    The limit exp(−γ²/2) (dashed) owes its second moment to scores 2γ standard deviations above
    the mean; a row holds such a token only if n > exp(2γ²) (ticks): 7, 3,000 and 66 million
    tokens for γ = 1, 2, 3, and 8·10¹³ for γ = 4. Before that the row is flatter than its limit,
    and never below the floor 1/√n, which is above the limit for n < exp(γ²). Solid: exact law
    at finite n. Points: Monte Carlo with whole rows; their 95 % error bars are smaller than the
    markers.

    Alt text: Line chart, both axes logarithmic, of sparsity against row length up to a billion
    tokens. Curves for spreads 1, 2, 3 and 4 start at 1 and fall towards dashed limits 0.61,
    0.14, 0.011 and 0.0003; the first two arrive, the third nearly, the fourth is far above. A
    shaded region below the line one over square root of n is out of reach. Monte Carlo points
    for up to 4096 tokens lie on the curves.
    """
    # Drawn exact laws solid and limits dashed, and shade what lies below the floor.
    count = (len(data) - 1) // 2
    ax = plotting.axes(canvas, "row length  n", plotting.SPARSITY, right=0.88)
    ax.set(xscale="log", yscale="log", xlim=(1, 1e9), ylim=(1.5e-4, 1.4))
    plotting.plain_ticks(ax.yaxis, (1, 0.1, 0.01, 1e-3))
    plotting.length_ticks(ax.xaxis, 1, 1e9)
    floor = data[-1]
    ax.fill_between(floor.x, 1e-5, floor.theory, color="#f1f2f4", zorder=0)
    ax.plot(floor.x, floor.theory, color=plotting.GREY, lw=1)
    looks = plotting.LOOKS[:count]
    for law, limit, look in zip(data, data[count:], looks, strict=False):
        ax.plot(limit.x, limit.theory, color=look.color, lw=1.2, ls=plotting.DASHED)
        ax.plot(limit.x[1:-1], limit.theory[1:-1], "|", color=look.color, ms=13, mew=2)
        plotting.curve(ax, law, look)
    ends = zip(data, data[count:], looks, strict=False)
    plotting.end_labels(ax, [(limit.theory[-1], d.label, k.color) for d, limit, k in ends])
    ax.text(6, 0.012, "no row has\nS < 1/√n", color=plotting.GREY, fontsize=10.5)
    limits = [("limit; tick at n = exp(2γ²)", plotting.Look(plotting.GREY, plotting.DASHED, "|"))]
    plotting.key(ax, line="exact law of n tokens", lines=limits, loc="lower left")


ROWS = Figure.from_docstring("rows", compute_rows, draw_rows)

# The figure `lengths`.
CURVES = (
    *((relu2, -2.0, "relu2, β = −2γ"), (relu2, 0.0, "relu2, β = 0")),
    *((identity, 0.0, "identity, β = 0"), (identity, 2.0, "identity, β = 2γ")),
)
LENGTHS_SAMPLED = 256  # tokens
_ENDS = 1.0, 1e5


def compute_lengths(context: Context) -> Data:
    """Compute n_eff(n) of every curve with √(n_eff/n) beside it, and the limits of both."""
    n = np.unique(np.rint(np.geomspace(*_ENDS, 81)))
    tokens, sparse, limits = [], [], []
    for kernel, beta, label in CURVES:
        point: dict[str, Any] = {"beta": beta, "gamma": 1.0}  # S depends on β/γ alone
        law = exact_grid(kernel, {name: np.array([v]) for name, v in point.items()}, n, n_eff)
        log, at = np.log(law.value.ravel()), np.array([LENGTHS_SAMPLED], float)
        theory = exact(kernel, length=at, **point).log_value
        settings = context.sampling(kernel.name, beta, LENGTHS_SAMPLED, rel_error=REL_ERROR)
        drawn = sample(
            kernel, replace(settings, max_samples=1e7), length=LENGTHS_SAMPLED, of=n_eff, **point
        )
        held = {"kernel": kernel.name, **point}
        curve = Series.line(label, n, log).named("length", "n_eff", "tokens", **held)
        tokens.append(curve.with_points(theory, {float(LENGTHS_SAMPLED): Point.of(drawn)}))
        sparse.append(replace(tokens[-1].as_sparsity(), label=f"S, {label}"))  # the same draws
        log_S = np.full(2, float(evaluate(kernel, **point).log_S))
        limit = Series.line(f"limit of S, {label}", _ENDS, log_S)
        limits.append(limit.named("length", "S", **held))
    return (*tokens, *sparse, *limits)


def draw_lengths(data: Data, canvas: Canvas) -> None:
    """Squared ReLU needs a negative bias to attend to few tokens

    Against n: n_eff and √(n_eff/n) of rows of n weights max(s, 0)² or s, s ~ N(β, γ²)

    At n = 10⁵ squared ReLU attends to 522 tokens with β = −2γ and to 16,668 with β = 0; the
    identity to 63,662 with β = 0 and to 81,364 with β = 2γ. Solid: exact law. Dashed: the limit
    of long rows, n·S² on the left and S on the right, where √(n_eff/n) is drawn. Shaded: what
    no row can reach, n_eff below 1 and S below 1/√n. Points: Monte Carlo with whole rows; their
    95 % error bars are smaller than the markers.

    Alt text: Two line charts against row length from 1 to 10⁵, logarithmic axes. Left,
    effective tokens: four curves start at 1 and end at 522, 16,668, 63,662 and 81,364, each on
    its dashed limit. Right, sparsity: the same curves fall from 1 to 0.07, 0.41, 0.80 and 0.90.
    Monte Carlo points lie on the curves.
    """
    # Drawn n_eff at the left and S at the right, with the limits dashed.
    count = len(CURVES)
    tokens, sparse, limits = (data[i * count : (i + 1) * count] for i in range(3))
    boxes = ((0.085, 0.13, 0.3, 0.655), (0.475, 0.13, 0.3, 0.655))
    titles = (plotting.TOKENS, plotting.SPARSITY)
    for box, title, curves in zip(boxes, titles, (tokens, sparse), strict=True):
        ax = plotting.panel(canvas, box, title)
        ax.set(xscale="log", yscale="log", xlim=_ENDS, xlabel="row length  n")
        plotting.length_ticks(ax.xaxis, *_ENDS, most=4)
        of_S = curves is sparse
        ax.set_ylim(*((0.02, 1.3) if of_S else (0.5, 9e5)))
        plotting.plain_ticks(ax.yaxis, (1, 0.3, 0.1, 0.03) if of_S else (1, 10, 100, 1e3, 1e4, 1e5))
        n = curves[0].x
        ax.fill_between(n, 1e-3, n**-0.5 if of_S else n**0.0, color=plotting.SHADE, zorder=0)
        for curve, limit, look in zip(curves, limits, plotting.LOOKS, strict=False):
            factor = 1.0 if of_S else limit.theory * limit.x
            ax.plot(limit.x, factor * limit.theory, color=look.color, lw=1.2, ls=plotting.DASHED)
            plotting.curve(ax, curve, look)
        if of_S:
            named = [replace(c, label=label) for c, (*_, label) in zip(curves, CURVES, strict=True)]
            plotting.name_ends(ax, named, fontsize=9.5)
            plotting.inline(ax, 2.2, 0.05, "no row has\nS < 1/√n", plotting.GREY, ha="left")
        else:
            place = {"loc": "upper left", "fontsize": 9, "handlelength": 2.0, "borderaxespad": 0.2}
            dashed = plotting.Look(plotting.GREY, plotting.DASHED, "")
            plotting.key(
                ax,
                line="exact law",
                lines=[("limit n·S²", dashed)],
                shade="no row is here",
                **place,
            )


LENGTHS = Figure.from_docstring("lengths", compute_lengths, draw_lengths)

# The figure `phase`.
SHORTEST, LONGEST, WIDEST = 10.0, 1e12, 2.3
LEVELS = {  # of n_eff, and the length at which a contour is named
    3: 100, 5: 3e6, 10: 1e8, 30: 1e9, 100: 1e10, 1e3: 1e11,
    1e4: 2e4, 1e6: 2e6, 1e8: 2e8, 1e10: 2e10,
}  # fmt: skip
BOUNDARIES = {"γ_c/2": 0.5, "γ_c": 1.0}
_ALONG_N = np.unique(np.round(np.geomspace(1, LONGEST, 41)))
_ALONG_GAMMA = np.concatenate([[1e-3], np.linspace(0.1, 1, 10), np.geomspace(1.1, 12.4, 40)])


def _contours() -> Data:
    """Compute n against γ/√(ln n) at fixed n_eff."""
    # At fixed γ, n_eff rises with n, and at fixed n it falls with γ. So ln n is a function of
    # ln n_eff along each row of the grid, and PCHIP, which keeps what is monotone monotone, gives
    # the n of a level. A last point on the upper edge, by γ, ends a contour where it leaves.
    log = [exact("exp", length=_ALONG_N, gamma=gamma).log_value for gamma in _ALONG_GAMMA.tolist()]
    log, log_n = np.array(log), np.log(_ALONG_N)
    contours: dict[float, list[tuple[float, float]]] = {level: [] for level in LEVELS}
    for gamma, along in zip(_ALONG_GAMMA.tolist(), log, strict=True):
        length = PchipInterpolator(along, log_n)
        for level, points in contours.items():
            if np.log(level) < along[-1]:
                at = float(length(np.log(level)))
                points.append((gamma / np.sqrt(at), at))
    last = PchipInterpolator(log[::-1, -1], _ALONG_GAMMA[::-1])  # where they leave the diagram
    for level, points in contours.items():
        if np.log(level) > log[-1, -1]:
            points.append((float(last(np.log(level))) / np.sqrt(log_n[-1]), log_n[-1]))
    return tuple(
        Series.line(f"n_eff = {level:g}", *zip(*points, strict=True)).named(
            "gamma/sqrt(ln n)", "length", "tokens", kernel="exp", n_eff=level
        )
        for level, points in contours.items()
    )


def compute_phase(context: Context) -> Data:
    """Compute contours of n_eff, n against γ/√(ln n); then the bounds of the regimes, against n."""
    n = np.round(np.geomspace(SHORTEST, LONGEST, 20))
    bounds = {name: share * critical_spread(n) for name, share in BOUNDARIES.items()}
    bounds["limit within 10 %"] = limit_reach(n)
    lines = (
        Series.line(name, n, np.log(at / np.sqrt(np.log(n)))).named(
            "length", "gamma/sqrt(ln n)", kernel="exp"
        )
        for name, at in bounds.items()
    )
    return (*_contours(), *lines)


def draw_phase(data: Data, canvas: Canvas) -> None:
    """The limit law of softmax holds only up to γ ≈ ½√(ln n)

    Against γ and n: n_eff (blue) of softmax rows; the limit is 10 % too low on the red line

    Up to half of γ_c = √(2 ln n) all tokens count and n_eff = n·exp(−γ²) (annealed), which is
    the limit law S = exp(−γ²/2). Between γ_c/2 and γ_c the few largest weights make up Σa², and
    n_eff falls like exp((γ_c − γ)²) to leading order; beyond γ_c a handful of tokens hold all
    the mass, in rows of any length (condensed). At real lengths these transitions are wide: the
    limit law is within 10 % of the exact S left of the red line only, from γ = 0.50 √(ln n)
    in short rows to 0.62 √(ln n) at 10¹² tokens; γ = 1.40 for n = 1024. Contours: the exact law
    of rows of finite length.

    Alt text: Phase diagram of softmax rows, length from 10 to 10¹² against spread over the root
    of ln n from 0 to 2.3. Contours of 3 to 10¹⁰ effective tokens start flat at the left and
    become steep towards the right. Grey lines at 0.71 and 1.41 part three tinted regimes:
    annealed, extremes, condensed. A thick line from 0.5 at the bottom to 0.62 at the top bounds
    the region where the limit law is within ten per cent.
    """
    # Drawn contours over tinted regimes, with the reach of the limit law in front.
    *contours, half, whole, reach = data
    ax = plotting.axes(canvas, "spread of the scores over √(ln n),  γ/√(ln n)", "row length  n")
    ax.grid(visible=False)
    ax.set_position((0.115, 0.13, 0.855, 0.665))
    ax.set(yscale="log", xlim=(0, WIDEST), ylim=(SHORTEST, LONGEST))
    plotting.plain_ticks(ax.xaxis, (0, 0.5, 1, 1.5, 2))
    plotting.plain_ticks(ax.yaxis, (10.0, 1e3, 1e6, 1e9, 1e12))
    edges = (0.0, half.theory[0], whole.theory[0], WIDEST)
    tints = {"annealed": "white", "extremes": "#f3f4f6", "condensed": "#e5e7eb"}
    place = {"transform": ax.get_xaxis_transform(), "ha": "center", "color": plotting.GREY}
    for left, right, (name, tint) in zip(edges, edges[1:], tints.items(), strict=False):
        ax.axvspan(left, right, color=tint, zorder=0, linewidth=0)
        ax.text((left + right) / 2, 1.02, name, **place)
    for bound, name in ((half, r"½$\gamma_c$"), (whole, r"$\gamma_c$")):
        ax.plot(bound.theory, bound.x, color=plotting.GREY, lw=1)
        ax.text(bound.theory[0], 1.02, name, **place)
    blue, red = plotting.LOOKS[:2]
    for contour in contours:
        level = contour.key["n_eff"]
        ax.plot(contour.x, contour.theory, color=blue.color, lw=1.4)
        x = float(np.interp(np.log(LEVELS[level]), contour.log, contour.x))
        plotting.inline(ax, x, LEVELS[level], plotting.tick_label(level), blue.color, fontsize=9.5)
    ax.plot(reach.theory, reach.x, color=red.color, lw=2.8)


PHASE = Figure.from_docstring("phase", compute_phase, draw_phase, size=(7.2, 5.0))


# The figure `decayed`.
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


def compute_decayed(context: Context) -> Data:
    """Compute S(n) for every λ, then n·S²(n)."""
    lines = sweep("decayed", decay=list(DECAYS), length="1:100000:160:log")
    points = context.sample("decayed", decay=list(DECAYS), length="2:50000:8:log")
    curves = from_sweeps(lines, points, "length", lambda key: f"λ = {DECAYS[key['decay']]}")
    return (*curves, *map(_as_window, curves))


def draw_decayed(data: Data, canvas: Canvas) -> None:
    """Decay leaves a window that longer rows cannot widen

    Against n: sparsity S and effective tokens n_eff of a = λⁿ⁻ʲ, j = 1 … n

    Without decay every token counts, S = 1. With λ < 1 the effective tokens n_eff = n·S² stops
    at (1+λ)/(1−λ): 3, 19, 199 and 1999 for λ = 0.5, 0.9, 0.99 and 0.999, so S falls like 1/√n.
    Decay attends to what is near, not to what is similar. Lines: the closed form. Points: Monte
    Carlo over positions; their 95 % error bars are smaller than the markers.

    Alt text: Two line charts against row length, both logarithmic. Left: sparsity stays 1 for λ
    = 1 and turns to fall with slope −1/2 for λ = 0.999, 0.99, 0.9 and 0.5, in this order.
    Right: the effective window grows with n and levels off at 1999, 199, 19 and 3 tokens. Monte
    Carlo points lie on the curves.
    """
    # Drawn S at the left and n·S² at the right, both on logarithmic axes.
    half = len(data) // 2
    left = plotting.panel(canvas, (0.085, 0.13, 0.335, 0.655), plotting.SPARSITY)
    right = plotting.panel(canvas, (0.5, 0.13, 0.275, 0.655), plotting.TOKENS)
    for ax, curves in ((left, data[:half]), (right, data[half:])):
        ax.set(xscale="log", yscale="log", xlim=(1, 1e5), xlabel="row length  n")
        plotting.length_ticks(ax.xaxis, 1, 1e5, most=5)
        plotting.curves(ax, curves)
    left.set_ylim(2.5e-3, 1.5)
    plotting.plain_ticks(left.yaxis, (1, 0.1, 0.01))
    plotting.key(left, loc="lower left")
    right.set_ylim(0.8, 1.6e5)
    plotting.plain_ticks(right.yaxis, (1, 10, 100, 1e3, 1e4, 1e5))
    plotting.name_ends(right, data[half:])


DECAYED = Figure.from_docstring("decayed", compute_decayed, draw_decayed)
