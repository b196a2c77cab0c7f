"""To hold half of the mass a sink’s logit must grow like ln n

Against n: logit b of a sink that takes half of the attention beside n scores s ~ N(0, γ²)

Solid: the exact logit, from E[exp(b)/(exp(b) + Σ exp(s))] = ½. Dashed: ln n + γ²/2, as if the sum
of the other weights were its mean. For γ ≤ 1 the two agree to 0.02 from n = 100 on; wide scores
need less of a sink in short rows, because the sum of their weights is mostly well below its mean,
and catch up in long ones. A sink of fixed logit loses its share in longer contexts. This figure is
theory alone; the cross-check compares the mass itself with sampled rows.

Alt text: Line chart of the logit of a sink against the number of other tokens from ten to a billion
on a logarithmic axis. Four solid curves for spreads 1 to 4 rise to between 21 and 29. The dashed
straight lines of ln n plus half of the squared spread run on them for spread 1 and above them at
the left for the wider spreads, where they then meet.
"""

from __future__ import annotations

import numpy as np

from sparsity import plotting
from sparsity.design_search.monotone import sink_logit
from sparsity.figures.figure import Canvas, Context, Data, Figure
from sparsity.limit.long_rows import log_total
from sparsity.rows.row import Row
from sparsity.series import Series

MASS = 0.5
GAMMAS = (1.0, 2.0, 3.0, 4.0)
LENGTHS = np.unique(np.round(np.geomspace(10, 1e9, 25))).astype(int)


def data(context: Context) -> Data:
    """Compute for every γ the logit for half of the mass; then ln n + γ²/2 for each."""
    # Annealed: with Σ exp(s) at its mean n·exp(γ²/2), half of the mass is at exp(b) equal to it.
    ends, exact, annealed = LENGTHS[[0, -1]], [], []
    for g in GAMMAS:
        row = Row("exp", gamma=g)
        logit = np.log(sink_logit(MASS, row, length=LENGTHS))
        exact.append(Series.line(f"γ = {g:g}", LENGTHS, logit))
        logit = np.log([log_total(row, n) for n in ends.tolist()])
        annealed.append(Series.line(f"ln n + γ²/2, γ = {g:g}", ends, logit))
    return tuple(
        line.named("length", "logit", kernel="exp", gamma=g, sink_mass=MASS)
        for lines in (exact, annealed)
        for line, g in zip(lines, GAMMAS, strict=True)
    )


def draw(data: Data, canvas: Canvas) -> None:
    """Draw the exact logits solid, the annealed ones dashed."""
    ax = plotting.axes(canvas, "tokens beside the sink  n", "logit of the sink  b", right=0.88)
    ax.set(xscale="log", xlim=(10, 1e9), ylim=(0, 30))
    plotting.plain_ticks(ax.xaxis, (10, 1e3, 1e5, 1e7, 1e9))
    exact, annealed = data[: len(GAMMAS)], data[len(GAMMAS) :]
    for curve, straight, look in zip(exact, annealed, plotting.LOOKS, strict=False):
        # ln n + γ²/2 is straight on these axes: its two ends are all of it
        ax.plot(straight.x, straight.theory, color=look.color, lw=1.1, ls=plotting.DASHED)
        plotting.curve(ax, curve, look)
    plotting.name_ends(ax, exact)
    limits = [("ln n + γ²/2", plotting.Look(plotting.GREY, plotting.DASHED, ""))]
    plotting.key(ax, line="exact, half of the mass", points=(), lines=limits, loc="lower right")


FIGURE = Figure.from_docstring(__doc__, "sinks", data, draw)
