"""Figure: every measure of focus of softmax rows, against the spread of their scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sparsity.exact_law.exact import exact
from sparsity.figures import plotting
from sparsity.figures.record import Canvas, Context, Data, Figure
from sparsity.figures.series import Series
from sparsity.limit.evaluation import evaluate
from sparsity.rows.row import Row
from sparsity.sampling import Sampling
from sparsity.sampling.row_sampling import draw_rows
from sparsity.sweeps.variables import cell_seed

LENGTH, KEYS = 512, 8
GAMMAS = np.linspace(0.04, 6.0, 25)
SAMPLED = (0.5, 1.5, 2.5, 3.5, 4.5, 5.5)
REL_ERROR = 1e-2  # of n_eff: a whole row is one draw


class Measure(NamedTuple):
    """A quantity, and what is drawn of it.

    Args:
        of: its name.
        limit: whether its limit for long rows is drawn.
        power: -1 draws its inverse.
        raised: whether e to its value is drawn.
    """

    of: str
    limit: bool = True
    power: int = 1
    raised: bool = False

    def drawn(self, value: float, error: float) -> tuple[float, float]:
        """What is drawn, and its standard error."""
        if self.raised:  # δe^H = e^H δH
            return math.exp(value), math.exp(value) * error
        return value**self.power, value**self.power * error / value


TOKENS = {
    "e to the entropy": Measure("entropy", raised=True),
    "n_eff, E 1/Σp²": Measure("n_eff"),
    "1/E Σp²": Measure("participation", power=-1),
}
SHARES = {
    "Gini": Measure("gini"),
    f"{KEYS} largest": Measure(f"top_k_mass:{KEYS}"),
    "largest": Measure("max_weight", limit=False),
}


def _line(label: str, measure: Measure) -> tuple[Series, np.ndarray]:
    """The exact law along γ, and its logarithm where rows are sampled."""
    gammas = np.unique([*GAMMAS, *SAMPLED])
    laws = [exact("exp", gamma=float(gamma), length=LENGTH, of=measure.of) for gamma in gammas]
    log = np.log([measure.drawn(float(law.value), 0.0)[0] for law in laws])
    return Series.line(label, gammas, log), log[np.isin(gammas, SAMPLED)]


def _limit(label: str, measure: Measure) -> Series:
    """What it tends to in long rows, along γ."""
    far = [evaluate("exp", gamma=float(g), length=LENGTH, of=measure.of) for g in GAMMAS]
    log = np.log([measure.drawn(float(found.value), 0.0)[0] for found in far])
    return Series.line(f"limit, {label}", GAMMAS, log)


def data(context: Context) -> Data:
    """Each measure: the exact law with sampled rows; then the limits of long rows."""
    every, drawn = TOKENS | SHARES, {}
    to = max(context.rel_error, REL_ERROR)
    for gamma in SAMPLED:
        seed = cell_seed(context.seed, "measures", gamma)
        settings = Sampling(rel_error=to, seed=seed, dtype=np.float32)
        also = [measure.of for measure in every.values()]
        drawn[gamma] = draw_rows(Row("exp", gamma=gamma), LENGTH, settings, also=also)
    laws, limits = [], []
    for label, measure in every.items():
        points, method = {}, ""
        for gamma, rows in drawn.items():
            found = rows.estimate(measure.of)
            value, error = measure.drawn(found.value, found.stderr)
            points[gamma], method = (value, error, found.samples, found.seed), found.method
        line, log = _line(label, measure)
        laws.append(line.with_points(log, points, method))
        if measure.limit:
            limits.append(_limit(label, measure))
    return (*laws, *limits)


def _panel(canvas: Canvas, left: float, width: float, title: str, names: Sequence[str],
           data: Sequence[Series], y: tuple[float, float]) -> None:  # fmt: skip
    """Some of the measures on axes of their own."""
    ax = plotting.calm(canvas.add_axes((left, 0.115, width, 0.63)))
    ax.set(yscale="log" if y[0] else "linear", xlim=(0, 6), ylim=y, xlabel="spread of scores  γ")
    ax.set_title(title, loc="left", fontsize=11)
    known = {series.label: series for series in data}
    ends = []
    for name, look in zip(names, plotting.LOOKS, strict=False):
        if f"limit, {name}" in known:
            limit = known[f"limit, {name}"]
            ax.plot(limit.x, limit.theory, color=look.color, lw=1.2, ls=(0, (4, 2.5)))
        series = known[name]
        solid = plotting.Look(look.color, "-", look.marker)
        plotting.curve(ax, series, solid)
        ends.append((float(series.theory[-1]), name, look.color))
    if y[0]:
        plotting.plain_ticks(ax.yaxis, (1, 10, 100, 512), ("1", "10", "100", "512"))
    plotting.end_labels(ax, ends, fontsize=9.5)


def draw(data: Sequence[Series], canvas: Canvas) -> None:
    """Numbers of tokens at the left, shares at the right."""
    _panel(canvas, 0.075, 0.29, "as a number of tokens", tuple(TOKENS), data, (0.8, 600))
    _panel(canvas, 0.605, 0.28, "as a share", tuple(SHARES), data, (0.0, 1.03))
    ax = canvas.add_axes((0.025, 0.815, 0.9, 0.06))
    ax.set_axis_off()
    dashed = plotting.Look(plotting.GREY, (0, (4, 2.5)), "")
    plotting.key(
        ax,
        line=f"exact law of n = {LENGTH} tokens",
        lines=[("limit of long rows", dashed)],
        loc="center left",
        ncols=3,
        columnspacing=1.6,
    )


FIGURE = Figure(
    name="measures",
    title="At γ = 2.5 softmax attends to 38, 17 or 10 of 512 tokens",
    subtitle="The same rows by six measures of focus",
    caption=(
        "The same rows of softmax weights. Left, as numbers of tokens: e to the mean Shannon "
        "entropy, n_eff = E 1/Σp², and 1/E Σp², which is not the same. Right: the Gini "
        "coefficient, and the mass of the 8 largest weights and of the largest one. Solid: the "
        "exact law. Dashed: the limit of long rows, which is good up to about γ = 1.8, half of "
        "√(2 ln n). In the left chart it falls below one token at γ = 2.5 for the two lower "
        "curves, which share it, and at 3.5 for the entropy. The largest weight has none. Points: "
        "Monte Carlo with whole rows, the same rows for all measures; their 95 % error bars are "
        "smaller than the markers."
    ),
    alt=(
        "Two line charts against the spread of scores from 0 to 6. Left, logarithmic: number of "
        "tokens, from 512 down to about 3 by the entropy and 2 by the mean sum of squares. Dashed "
        "limits leave the solid curves near a spread of 2 and fall below one token. Right: shares "
        "from 0 to 1; the Gini coefficient rises first, then the mass of the 8 largest weights, "
        "and the largest weight reaches 0.64."
    ),
    data=data,
    draw=draw,
    size=(7.2, 4.6),
)
