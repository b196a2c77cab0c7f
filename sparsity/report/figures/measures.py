"""At γ = 2.5 softmax attends to 38, 17 or 10 of 512 tokens

Against γ: the same rows by six measures of focus

The same rows of softmax weights. Left, as numbers of tokens: e to the mean Shannon entropy, n_eff =
E 1/Σp², and 1/E Σp², which is not the same. Right: the Gini coefficient, and the mass of the 8
largest weights and of the largest one. Solid: the exact law. Dashed, at the left: the limit of
long rows, which is good up to about γ = 1.8, half of √(2 ln n). It falls below one token at γ = 2.5
for the two lower curves, which share it, and at 3.5 for the entropy. Points: Monte Carlo with whole
rows, the same rows for all measures; their 95 % error bars are smaller than the markers.

Alt text: Two line charts against the spread of scores from 0 to 6. Left, logarithmic: number of
tokens, from 512 down to about 3 by the entropy and 2 by the mean sum of squares. Dashed limits
leave the solid curves near a spread of 2 and fall below one token. Right: shares from 0 to 1; the
Gini coefficient rises first, then the mass of the 8 largest weights, and the largest weight reaches
0.64.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from sparsity import plotting
from sparsity.exact_law.exact import exact
from sparsity.limit.evaluation import evaluate
from sparsity.report.figures.figure import Canvas, Context, Data, Figure
from sparsity.rows.row import Row
from sparsity.sampling.row_sampling import draw_rows
from sparsity.series import Point, Series

LENGTH, KEYS = 512, 8
GAMMAS = np.concatenate([[0.04], np.arange(0.25, 6.1, 0.25)])
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

    def drawn(self, value: float, error: float = 0.0) -> tuple[float, float]:
        """Return what is drawn, and its standard error."""
        # Errors are carried along to first order: δe^H = e^H δH, δx^p = p x^(p−1) δx.
        if self.raised:
            return math.exp(value), math.exp(value) * error
        return value**self.power, value**self.power * error / value


TOKENS = {
    "e to the entropy": Measure("entropy", raised=True),
    "n_eff, E 1/Σp²": Measure("n_eff"),
    "1/E Σp²": Measure("participation", power=-1),
}
SHARES = {
    "Gini": Measure("gini", limit=False),
    f"{KEYS} largest": Measure(f"top_k_mass:{KEYS}", limit=False),
    "largest": Measure("max_weight", limit=False),
}


def _named(measure: Measure, line: Series) -> Series:
    """Return the curve with the names of its columns."""
    of = f"exp({measure.of})" if measure.raised else measure.of
    of = of if measure.power == 1 else f"1/{measure.of}"
    unit = "tokens" if measure in TOKENS.values() else "1"
    return line.named("gamma", of, unit, kernel="exp", length=LENGTH)


def data(context: Context) -> Data:
    """Compute the exact law of each measure with sampled rows; then the limits of long rows."""
    # The same rows serve all measures, so that their points differ by what they measure alone.
    every, drawn = TOKENS | SHARES, {}
    for gamma in SAMPLED:
        settings = context.sampling("measures", gamma, rel_error=REL_ERROR)
        also = [measure.of for measure in every.values()]
        drawn[gamma] = draw_rows(Row("exp", gamma=gamma), LENGTH, settings, also=also)
    laws, limits, gammas = [], [], np.unique([*GAMMAS, *SAMPLED])
    for label, measure in every.items():
        points = {}
        for gamma, rows in drawn.items():
            point = Point.of(rows.estimate(measure.of))
            value, error = measure.drawn(point.estimate, point.stderr)
            points[gamma] = point._replace(estimate=value, stderr=error)
        rows_of = [exact("exp", gamma=float(g), length=LENGTH, of=measure.of) for g in gammas]
        log = np.log([measure.drawn(float(law.value))[0] for law in rows_of])
        at_points = log[np.isin(gammas, SAMPLED)]
        named = functools.partial(_named, measure)
        laws.append(named(Series.line(label, gammas, log)).with_points(at_points, points))
        if measure.limit:
            far = [evaluate("exp", gamma=float(g), length=LENGTH, of=measure.of) for g in GAMMAS]
            log = np.log([measure.drawn(float(limit.value))[0] for limit in far])
            limits.append(named(Series.line(f"limit, {label}", GAMMAS, log)))
    return (*laws, *limits)


def draw(data: Data, canvas: Canvas) -> None:
    """Draw numbers of tokens at the left, shares at the right."""
    left = plotting.panel(canvas, (0.075, 0.115, 0.29, 0.61), "as a number of tokens")
    right = plotting.panel(canvas, (0.605, 0.115, 0.28, 0.61), "as a share")
    left.set(yscale="log", ylim=(0.8, 600))
    right.set(ylim=(0.0, 1.03))
    plotting.plain_ticks(left.yaxis, (1, 10, 100, 512), ("1", "10", "100", "512"))
    _draw_measures(left, TOKENS, data)
    _draw_measures(right, SHARES, data)
    ax = canvas.add_axes((0.025, 0.78, 0.9, 0.06))
    ax.set_axis_off()
    dashed = plotting.Look(plotting.GREY, plotting.DASHED, "")
    plotting.key(
        ax,
        line=f"exact law of n = {LENGTH} tokens",
        lines=[("limit of long rows", dashed)],
        loc="center left",
        ncols=3,
        columnspacing=1.6,
    )


def _draw_measures(ax: plotting.Axes, names: Iterable[str], data: Data) -> None:
    """Draw some of the measures on axes of their own."""
    ax.set(xlim=(0, 6), xlabel="spread of scores  γ")
    known = {series.label: series for series in data}
    shown = [known[name] for name in names]
    for series, look in zip(shown, plotting.LOOKS, strict=False):
        if limit := known.get(f"limit, {series.label}"):
            ax.plot(limit.x, limit.theory, color=look.color, lw=1.2, ls=plotting.DASHED)
        plotting.curve(ax, series, look)
    plotting.name_ends(ax, shown, fontsize=9.5)


FIGURE = Figure.from_docstring("measures", data, draw, __doc__)
