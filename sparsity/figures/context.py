"""Position alone: CoCA narrows attention, RoPE hardly does

Effective number of attended tokens of softmax rows, keys of equal |q||k| and γ

The query and the lengths of the keys are those of the figure before, with little noise (t has a
standard deviation of an eighth of its mean), so that nearly everything depends on position. Keys
without position: every token counts. RoPE with mean keys of random direction (two draws): about
half of the context. CoCA: the near tokens, until the context is so long that the many far ones
weigh more. Lines: the exact law of rows. Points: Monte Carlo with rotated vectors; their 95 % error
bars are smaller than the markers.

Alt text: Chart of the effective number of attended tokens against the context length from 16 to
32768, both axes logarithmic. Without position it is nearly the context length. The two curves of
RoPE run below it, about parallel. CoCA is far lower at a thousand tokens and then rises again.
Monte Carlo points lie on the curves.
"""

from __future__ import annotations

import numpy as np

from sparsity.exact_law.exact import exact
from sparsity.figures import plotting
from sparsity.figures.figure import Canvas, Context, Data, Figure, Series, sampled_columns
from sparsity.figures.rope import matched
from sparsity.rows.row import Row
from sparsity.rows.steps import Coca, Rope
from sparsity.sampling.row_sampling import sample_rows

LENGTHS = np.unique(np.round(2.0 ** np.arange(4, 15.1, 0.5)).astype(int))
SAMPLED = (64, 256)
REL_ERROR = 1.5e-3  # a whole row is one draw
TURNS = (1, 2)  # seeds of the random directions of RoPE's mean key


def laws() -> dict[str, Rope | Coca]:
    """Return the laws by label: one query and matched keys."""
    coca, ropes = matched(1 / 8, TURNS)
    named = zip(TURNS, ropes, strict=True)
    return {"CoCA": coca} | {f"RoPE, keys {seed}": rope for seed, rope in named}


def data(context: Context) -> Data:
    """Compute n_eff against n for every law, with sampled rows; then for keys without position."""
    found, known = [], laws()
    for label, law in known.items():
        row = Row("exp", steps=(law,))
        log = exact(row, length=[*LENGTHS, *SAMPLED]).log_value
        points = {}
        for length in SAMPLED:
            settings = context.sampling(label, length, rel_error=REL_ERROR)
            points[float(length)] = sampled_columns(sample_rows(row, length, settings))
        line = Series.line(label, LENGTHS, log[: len(LENGTHS)])
        theory = log[len(LENGTHS) :]
        found.append(line.with_points(theory, points, "rows of rotated vectors"))
    flat = exact("exp", length=LENGTHS, gamma=float(known["CoCA"].gamma(0)))
    return (*found, Series.line("no position", LENGTHS, flat.log_value))


def draw(data: Data, canvas: Canvas) -> None:
    """Draw on logarithmic axes; the last series, without position, is dashed grey."""
    ax = plotting.axes(canvas, "context length  n", "attended tokens  n·S²", right=0.8)
    ax.set(xscale="log", yscale="log", xlim=(16, 32768), ylim=(8, 5e4))
    plotting.plain_ticks(ax.xaxis, (16, 128, 512, 2048, 8192, 32768))
    plotting.plain_ticks(ax.yaxis, (10, 100, 1000, 1e4))
    *laws, flat = data
    ax.plot(flat.x, flat.theory, color=plotting.GREY, lw=1.2, ls=plotting.DASHED)
    plotting.curves(ax, laws)
    grey = plotting.Look(plotting.GREY, plotting.DASHED, "")
    plotting.name_ends(ax, data, (*plotting.LOOKS[: len(laws)], grey))
    plotting.key(ax, line="exact law", loc="upper left")


FIGURE = Figure.from_docstring(__doc__, "context", data, draw)
