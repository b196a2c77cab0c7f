"""What kernels of the article can do in long rows: S against spread, bias and dimension.

A figure is what it computes, how it is drawn, with its words, and the record of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import brentq

from sparsity import plotting
from sparsity.kernels import Kernel
from sparsity.kernels.queries import named
from sparsity.kernels.zoo import elu1, relu
from sparsity.limit.evaluation import evaluate
from sparsity.limit.quadrature import moment
from sparsity.report.figures.figure import Canvas, Context, Data, Figure
from sparsity.sampling import draw as sample
from sparsity.sampling import estimators
from sparsity.series import Point, Series, from_sweeps
from sparsity.sweeps.curves import sweep


def _biases_over_spreads(context: Context, kernel: str, labels: Mapping[float, str]) -> Data:
    """Compute S(γ) for the biases that have a label."""
    betas = list(labels)
    lines = sweep(kernel, beta=betas, gamma=np.geomspace(0.1, 30, 241))
    points = context.sample(kernel, beta=betas, gamma=np.geomspace(0.14, 20, 9))
    return from_sweeps(lines, points, "gamma", lambda key: f"β = {labels[key['beta']]}")


def _draw_over_spreads(
    data: Data, canvas: Canvas, ends: Any, places: Any, said: tuple[float, str], **style: Any
) -> None:
    """Draw the curves on a logarithmic axis of γ, each with its label at its place.

    Args:
        data: the curves.
        canvas: an empty figure.
        ends: of the vertical axis.
        places: of the labels.
        said: at the right, with its height.
        **style: of the labels.
    """
    ax = plotting.axes(canvas, "spread  γ = σ‖q‖", plotting.SPARSITY)
    ax.set(xscale="log", xlim=(0.1, 30), ylim=ends)
    plotting.plain_ticks(ax.xaxis, (0.1, 0.3, 1, 3, 10, 30))
    for series, look, (x, y) in zip(data, plotting.LOOKS, places, strict=False):
        plotting.curve(ax, series, look)
        plotting.inline(ax, x, y, series.label, look.color, ha="left", **style)
    height, words = said
    plotting.inline(ax, 29, height, words, plotting.GREY, ha="right")
    plotting.key(ax, loc="upper right")


# The figure `relu2`.
RELU2_BETAS = {-2.0: "−2", -1.0: "−1", -0.5: "−½", 0.0: "0", 0.5: "½", 1.0: "1", 2.0: "2"}
# Where each label stands: right of its curve, above the falling and below the rising ones.
_FALLING = ((1.47, 0.12), (0.735, 0.12), (0.367, 0.12), (0.12, 0.445))
_RISING = ((0.31, 0.735), (0.62, 0.735), (1.24, 0.735))


def compute_relu2(context: Context) -> Data:
    """Compute S(γ) for every bias."""
    return _biases_over_spreads(context, "relu2", RELU2_BETAS)


def draw_relu2(data: Data, canvas: Canvas) -> None:
    """Squared ReLU can focus only when its bias is negative

    Against γ: sparsity of a = max(s, 0)², scores s ~ N(β, γ²), for seven biases β = q·μ

    S depends on β/γ alone. With β < 0 and a small spread γ it falls to 0; with β = 0 it is 1/√6
    whatever the spread; with β > 0 a smaller spread makes attention flatter. Lines: the closed
    form. Points: stratified Monte Carlo; their 95 % error bars are smaller than the markers.

    Alt text: Line chart of sparsity against spread on a logarithmic axis. Three curves for
    negative bias rise from 0, three for positive bias fall from 1, the one for zero bias is
    flat; all meet 0.408 at the right. Monte Carlo points lie on the curves.
    """
    # Drawn on logarithmic γ, where the curves of one sign are one curve, shifted.
    places, said = (*_FALLING, *_RISING), (0.3, "all meet 1/√6 ≈ 0.408")
    _draw_over_spreads(data, canvas, (-0.01, 1.03), places, said, fontsize=9.5)


RELU2 = Figure.from_docstring("relu2", compute_relu2, draw_relu2)

# The figure `identity`.
IDENTITY_BETAS = {0.0: "0", 0.5: "½", 1.0: "1", 2.0: "2", 4.0: "4"}
_IDENTITY_PLACES = ((0.12, 0.806), (0.205, 0.94), (0.41, 0.94), (0.82, 0.94), (1.64, 0.94))


def compute_identity(context: Context) -> Data:
    """Compute S(γ) for every bias; S is even in β."""
    return _biases_over_spreads(context, "identity", IDENTITY_BETAS)


def draw_identity(data: Data, canvas: Canvas) -> None:
    """Signed linear attention never gets below √(2/π) ≈ 0.80

    Against γ: sparsity of a = s, scores s ~ N(β, γ²); the same for β and −β

    S depends on |β|/γ alone. The least it can be is √(2/π), at β = 0 or for a large spread:
    nearly as flat as uniform attention, S = 1. The vertical axis starts at 0.775. Lines: the
    closed form. Points: stratified Monte Carlo; their 95 % error bars are smaller than the
    markers.

    Alt text: Line chart of sparsity against spread on a logarithmic axis. Curves for bias one
    half, one, two and four fall from 1 to the floor 0.798; the curve for zero bias is the
    floor. Monte Carlo points lie on the curves.
    """
    # Drawn on a vertical axis that starts just below the floor, not at 0.
    said = 0.788, "floor √(2/π) ≈ 0.798"
    _draw_over_spreads(data, canvas, (0.775, 1.006), _IDENTITY_PLACES, said)


IDENTITY = Figure.from_docstring("identity", compute_identity, draw_identity)

# The figure `exp`.
EXP_BETAS = {-2.0: "−2", 0.0: "0", 2.0: "2"}
FLOORS = (100, 10_000, 1_000_000)


def compute_exp(context: Context) -> Data:
    """Compute S(γ), and the floors of rows.

    S does not depend on β, so the points at three biases are interleaved.
    """
    curves: list[Series] = []
    for offset, (beta, label) in enumerate(EXP_BETAS.items()):
        lines = sweep("exp", beta=beta, gamma=np.linspace(0.02, 4, 200))
        points = context.sample("exp", beta=beta, gamma=np.arange(0.25 * (offset + 1), 4, 0.75))
        curves += from_sweeps(lines, points, "gamma", lambda key, label=label: f"β = {label}")
    ends = np.array([0.0, 4.0])
    for n in FLOORS:
        floor = np.full(2, -0.5 * np.log(n))
        line = Series.line(f"floor of a row of {plotting.tick_label(n)} tokens", ends, floor)
        curves.append(line.named("gamma", "S", length=n))
    return tuple(curves)


def draw_exp(data: Data, canvas: Canvas) -> None:
    """Softmax can be made as sparse as the row allows

    Against γ: sparsity of a = exp(s), scores s ~ N(β, γ²), in the limit of long rows

    S = exp(−γ²/2) falls without a floor as the spread γ of the scores grows, and does not
    depend on the bias β: points at three biases lie on one curve. A real row of n tokens cannot
    go below 1/√n (grey); see the figure of rows for what happens there. Line: the closed form.
    Points: stratified Monte Carlo; their 95 % error bars are smaller than the markers.

    Alt text: Line chart of sparsity on a logarithmic axis against spread. One falling parabola
    from 1 at spread 0 to 0.0003 at spread 4, with Monte Carlo points for three biases on it.
    Grey lines mark the least sparsity of rows of 100, 10⁴ and 10⁶ tokens: 0.1, 0.01
    and 0.001.
    """
    # Drawn S on a logarithmic axis, where it is a parabola without a floor.
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


EXP = Figure.from_docstring("exp", compute_exp, draw_exp)

# The figure `nonnegative`.
RATIOS = {0.5: "½", 1.0: "1", 2.0: "2"}
DIMS = (2, 8, 32)  # sampled
QUERIES = ("one-hot", "half-normal", "uniform")
_MARKERS = ("o", "^", "s")


# Points of this figure and of the next are keys drawn whole: real features h(k) of Gaussian keys.


def noise_ratio(feature: Kernel, mean: Any) -> np.ndarray:
    """Return σ̃/μ̃ of h(k), k ~ N(mean, 1), by quadrature of its first two moments."""
    # σ̃²/μ̃² = E h²/(E h)² − 1, from the logarithms of both moments: expm1 keeps the digits of a
    # small ratio, where the quotient is nearly 1.
    (m1, _), (m2, _) = (moment(feature, p, mean, 1.0) for p in (1, 2))
    return np.sqrt(np.expm1(m2 - 2 * m1))


def sample_features(
    context: Context, feature: Kernel, mean: float, label: float, query: str, dim: int
) -> Point:
    """Sample S of q̃ᵀh(k), k ~ N(mean, 1); its stream goes by the label."""
    settings = context.sampling(feature.name, label, query, dim)
    return Point.of(estimators.features(feature, named(query).vector(dim), mean, 1.0, settings))


def sample_noisy_features(context: Context, ratio: float, query: str, dim: int) -> Point:
    """Sample ReLU features whose keys have the mean that gives them the ratio σ̃/μ̃."""

    def excess(mean: float) -> Any:
        return np.log(noise_ratio(relu, mean) / ratio)

    # The ratio of relu falls with the mean, from over 200 at −4 to 1/20 at 20.
    mean: Any = brentq(excess, -4, 20, xtol=1e-12)
    # The root is not the same to the last bits on every processor; the ratio is.
    return sample_features(context, relu, float(mean), ratio, query, dim)


def compute_nonnegative(context: Context) -> Data:
    """Compute S(d) for every σ̃/μ̃ and query family."""
    lines = sweep("nonnegative", ratio=list(RATIOS), query=QUERIES, dim="1:1024:120:log")
    curves = []
    for curve in from_sweeps(
        lines, None, "dim", lambda key: f"σ̃/μ̃ = {RATIOS[key['ratio']]}, {key['query']}"
    ):
        ratio, query = curve.key["ratio"], curve.key["query"]
        points = {float(d): sample_noisy_features(context, ratio, query, d) for d in DIMS}
        log = evaluate("nonnegative", ratio=ratio, dim=DIMS, query=query).log_S
        curves.append(curve.with_points(log, points))
    return tuple(curves)


def draw_nonnegative(data: Data, canvas: Canvas) -> None:
    """More i.i.d. features never sharpen nonnegative attention

    Against d: sparsity of a = q̃ᵀk̃, i.i.d. nonnegative features of noise-to-signal ratio σ̃/μ̃

    S = 1/√(1 + (σ̃ρ/μ̃)²) with ρ = ‖q̃‖₂/‖q̃‖₁ between 1/√d and 1. The sparsest query is
    one-hot, ρ = 1, and its S is that of a single feature in every dimension; dense queries
    (uniform, half-normal) only get flatter as d grows. What helps is noise: a larger σ̃/μ̃.
    Lines: the closed form. Points: Monte Carlo with whole ReLU features of Gaussian keys; their
    95 % error bars are smaller than the markers.

    Alt text: Line chart of sparsity against feature dimension from 1 to 1024. For
    noise-to-signal ratios one half, one and two the one-hot query gives flat lines at 0.89,
    0.71 and 0.45; the half-normal and uniform queries start there at d = 1 and rise to 1. Monte
    Carlo points lie on the curves.
    """
    # Drawn with the colour telling σ̃/μ̃, the marker the query family.
    ax = plotting.axes(canvas, "dimension of the features  d", plotting.SPARSITY, right=0.855)
    ax.set(xscale="log", xlim=(1, 1024), ylim=(0.4, 1.015))
    plotting.plain_ticks(ax.xaxis, (1, 4, 16, 64, 256, 1024))
    colors = [look.color for look in plotting.LOOKS[:3]]
    plotting.curves(ax, data, [plotting.Look(c, "-", m) for c in colors for m in _MARKERS])
    floors = zip(data[:: len(QUERIES)], colors, strict=True)
    plotting.end_labels(ax, [(d.theory[-1], d.label.split(",")[0], c) for d, c in floors])
    families = [
        (f"{query} query", plotting.Look(plotting.GREY, "-", marker))
        for query, marker in zip(QUERIES, _MARKERS, strict=True)
    ]
    plotting.key(ax, lines=families, loc="lower right", bbox_to_anchor=(1.0, 0.13))


NONNEGATIVE = Figure.from_docstring("nonnegative", compute_nonnegative, draw_nonnegative)

# The figure `bias`.
BIASED = {"exp": "softmax", "relu2": "squared ReLU", "identity": "signed linear"}
BIASED_DECAY, BIASED_DIM = {"decay": 0.95, "length": 256}, 2
_LINE, _POINTS = np.linspace(-4, 4, 81), np.linspace(-4, 4, 9)


def _log_S_of_features(beta: np.ndarray) -> np.ndarray:
    """Return log S of the sparsest query on features elu(k) + 1."""
    ratio = noise_ratio(elu1, beta)
    return evaluate("nonnegative", ratio=ratio, dim=BIASED_DIM, query="one-hot").log_S


def compute_bias(context: Context) -> Data:
    """Compute S(β) at spread 1; decay does not see β."""
    curves: list[Series] = []
    for kernel, label in BIASED.items():
        lines = sweep(kernel, beta=_LINE, gamma=1.0)
        points = context.sample(kernel, beta=_POINTS, gamma=1.0)
        curves += from_sweeps(lines, points, "beta", lambda key, label=label: label)
    points = {
        b: sample_features(context, elu1, b, b, "one-hot", BIASED_DIM) for b in _POINTS.tolist()
    }
    line = Series.line("nonnegative linear", _LINE, _log_S_of_features(_LINE))
    line = line.named("beta", "S", kernel="nonnegative", dim=BIASED_DIM, query="one-hot")
    curves.append(line.with_points(_log_S_of_features(_POINTS), points))
    # Decay has no β: at each it is the same row, drawn anew, by the program of other figures.
    log = float(evaluate("decayed", **BIASED_DECAY).log_S)
    how = {b: replace(context.sampling("decayed", b), dtype=None) for b in _POINTS.tolist()}
    points = {b: Point.of(sample("decayed", x, **BIASED_DECAY)) for b, x in how.items()}
    line = Series.line("exponential decay", _LINE, np.full(_LINE.shape, log))
    line = line.named("beta", "S", kernel="decayed", **BIASED_DECAY)
    curves.append(line.with_points(np.full(_POINTS.shape, log), points))
    return tuple(curves)


def draw_bias(data: Data, canvas: Canvas) -> None:
    """Bias makes or breaks squared ReLU; softmax ignores it

    Against β: sparsity at γ = 1; for nonnegative linear, β is the mean of the keys

    Softmax and decay do not depend on the bias. Signed linear attention is sparsest without
    one. Squared ReLU goes to 0 with a negative bias and to 1 with a positive one. Nonnegative
    linear attention is shown at its sparsest, a one-hot query on features elu(k) + 1 of keys k
    ~ N(β, 1): a negative bias brings it to softmax, no further. Decay: λ = 0.95, n = 256.
    Lines: closed forms (the features' moments by quadrature). Points: Monte Carlo; their 95 %
    error bars are smaller than the markers.

    Alt text: Line chart of sparsity against bias from −4 to 4. Softmax is flat at 0.61 and
    decay at 0.39; signed linear is a symmetric valley with its bottom at 0.80; squared ReLU
    rises from 0 to 0.9; nonnegative linear rises from 0.61 to 0.98. Monte Carlo points lie on
    the curves.
    """
    # Drawn on linear axes, with names at the right ends.
    ax = plotting.axes(canvas, "bias  β", plotting.SPARSITY, right=0.77)
    ax.set(xlim=(-4.15, 4.15), ylim=(-0.01, 1.03))
    plotting.curves(ax, data)
    plotting.name_ends(ax, data, gap=16)
    plotting.key(ax, loc="lower right")


BIAS = Figure.from_docstring("bias", compute_bias, draw_bias)
