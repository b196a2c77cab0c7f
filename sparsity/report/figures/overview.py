"""Softmax and squared ReLU can focus; signed linear cannot

Against γ, β, σ̃/μ̃ or n: each kernel by the one parameter that might lower its S

All on one scale; lower is sharper. Softmax and squared ReLU reach any sparsity a row allows (grey:
below 1/√n for n = 1024, in reach of longer rows alone), the first by a larger spread of its scores,
the second by a negative bias. Signed linear attention stays above 0.80. Nonnegative linear
attention needs noisy features and a query that uses few of them. Decay sharpens by position
alone, whatever the keys say. Lines: the limit of long rows, in closed form. Points: Monte Carlo;
their 95 % error bars are smaller than the markers.

Alt text: Five small line charts of sparsity on one logarithmic scale. Softmax falls without limit
as its spread grows; squared ReLU falls as its bias becomes negative; signed linear stays between
0.8 and 1; nonnegative linear falls only with noisy features, later with 32 features than with one;
decay falls with the row length.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from sparsity import plotting
from sparsity.limit.evaluation import evaluate
from sparsity.output import length_label
from sparsity.report.figures.figure import Canvas, Context, Data, Figure
from sparsity.report.figures.kernels import sample_noisy_features
from sparsity.series import Series, from_sweeps
from sparsity.sweeps.curves import sweep

LENGTH = 1024  # the row whose floor is shown


def _curve(
    context: Context, kernel: str, along: str, label: str, line: Any, points: Any, **fixed: Any
) -> Series:
    # A line needs many values and no sampling, the points few and all the work: two sweeps.
    lines = sweep(kernel, **{along: line}, **fixed)
    sampled = context.sample(kernel, **{along: points}, **fixed)
    return from_sweeps(lines, sampled, along, lambda _: label)[0]


def _noisy(context: Context, label: str, query: str, dim: int) -> Series:
    """Compute S of nonnegative linear attention against the noise of its features."""
    noise, at = np.geomspace(0.1, 100, 120), (0.25, 0.5, 1.0, 2.0, 4.0)
    theory = [evaluate("nonnegative", ratio=r, dim=dim, query=query).log_S for r in (noise, at)]
    points = {ratio: sample_noisy_features(context, ratio, query, dim) for ratio in at}
    line = Series.line(label, noise, theory[0])
    line = line.named("ratio", "S", kernel="nonnegative", dim=dim, query=query)
    return line.with_points(theory[1], points)


def data(context: Context) -> Data:
    """Compute S of each kernel against the parameter that moves it; then the floor of a row."""
    spread, some = np.linspace(0.02, 4, 120), np.arange(0.5, 4, 0.5)
    bias, biases = np.linspace(-4, 4, 161), np.arange(-3.5, 4, 1.0)
    lengths = "1:10000:120:log"
    return (
        _curve(context, "exp", "gamma", "softmax", spread, some),
        _curve(context, "relu2", "beta", "squared ReLU", bias, biases, gamma=1),
        _curve(context, "identity", "beta", "signed linear", bias, biases, gamma=1),
        _noisy(context, "1 feature", "one-hot", 2),
        _noisy(context, "32 features", "uniform", 32),
        _curve(context, "decayed", "length", "λ = 0.9", lengths, [3, 30, 300, 3000], decay=0.9),
        _curve(context, "decayed", "length", "λ = 0.99", lengths, [10, 100, 1000], decay=0.99),
        Series.line("floor", [0.0, 1.0], np.full(2, -0.5 * np.log(LENGTH))).named(
            "gamma", "S", length=LENGTH
        ),
    )


class _Member(NamedTuple):
    """A series in a panel: its place in the data, its look, and where its name stands."""

    index: int
    look: plotting.Look
    name_at: tuple[float, float, str] | None = None


class _Panel(NamedTuple):
    """One kernel: the verdict, what to do to it with the axis of that, and the curves."""

    verdict: str
    advice: str
    scale: str
    ticks: tuple[float, ...]
    members: tuple[_Member, ...]


_BLUE, _RED, _GREEN, _PURPLE, _ORANGE = plotting.LOOKS[:5]
_BIASES = (-4, -2, 0, 2, 4)
_NOISES = (
    _Member(3, _PURPLE, (3.6, 0.14, "right")),
    _Member(4, replace(_PURPLE, marker="v"), (6.6, 0.72, "left")),
)
_DECAYS = (
    _Member(5, _ORANGE, (350, 0.14, "right")),
    _Member(6, replace(_ORANGE, marker="D"), (3700, 0.85, "right")),
)
_PANELS = (
    _Panel("Softmax: yes", "raise the spread  γ", "linear", (0, 1, 2, 3, 4), (_Member(0, _BLUE),)),
    _Panel("Squared ReLU: yes", "push the bias down  β/γ", "linear", _BIASES, (_Member(1, _RED),)),
    _Panel("Signed linear: no", "no bias helps  β/γ", "linear", _BIASES, (_Member(2, _GREEN),)),
    _Panel("Nonnegative: if noisy", "raise the noise  σ̃/μ̃", "log", (0.1, 1, 10, 100), _NOISES),
    _Panel("Decay: by position", "lengthen the row  n", "log", (1, 16, 256, 4096), _DECAYS),
)


def draw(data: Data, canvas: Canvas) -> None:
    """Draw five panels on one scale of S; the sixth cell explains them."""
    for i, panel in enumerate(_PANELS):
        column, row = i % 3, i // 3
        ax = plotting.panel(canvas, (0.105 + 0.307 * column, 0.54 - 0.43 * row, 0.26, 0.275))
        ax.set(xscale=panel.scale, xlim=(panel.ticks[0], panel.ticks[-1]), xlabel=panel.advice)
        ax.set(yscale="log", ylim=(0.01, 1.35))
        color = panel.members[0].look.color
        ax.set_title(panel.verdict, loc="left", fontsize=11, fontweight="bold", color=color)
        plotting.plain_ticks(ax.xaxis, panel.ticks, list(map(length_label, panel.ticks)))
        plotting.plain_ticks(ax.yaxis, (1, 0.1, 0.01))
        if column == 0:
            ax.set_ylabel(f"S  ({plotting.SMALL})")
        else:
            ax.tick_params(labelleft=False)
        ax.axhspan(0.001, data[-1].theory[0], color=plotting.SHADE, zorder=0)
        for member in panel.members:
            series = data[member.index]
            plotting.curve(ax, series, member.look)
            if member.name_at is not None:
                x, y, side = member.name_at
                plotting.inline(ax, x, y, series.label, color, ha=side, fontsize=9)
    ax = canvas.add_axes((0.7, 0.11, 0.28, 0.275))
    ax.set_axis_off()
    shade = f"only rows longer\nthan {LENGTH} tokens"
    plotting.key(ax, shade=shade, loc="center", labelspacing=0.8)


FIGURE = Figure.from_docstring("overview", data, draw, __doc__, size=(7.2, 5.4))
