"""CoCA narrows attention, dynamic NTK widens it again

Against n: effective tokens n_eff of softmax rows, keys of equal |q||k| and γ

The query and the lengths of the keys are those of the figure before, with little noise (t has a
standard deviation of an eighth of its mean), so that nearly everything depends on position. Keys
without position: every token counts. RoPE with mean keys of one random direction: about half of the
context. CoCA: the near tokens, until the context is so long that the many far ones weigh more. With
dynamic NTK beyond 512 tokens both keep about the share of the context that they attend to there.
Lines: the exact law of rows. Points: Monte Carlo with rotated vectors; their 95 % error bars are
smaller than the markers.

Alt text: Chart of the effective tokens n_eff against the context length from 16 to 32768, both axes
logarithmic. Without position it is nearly the context length. The curve of RoPE runs below it,
about parallel, and with dynamic NTK a little closer to it. CoCA is far lower at thousands of tokens
and then rises again; with dynamic NTK its curve leaves that of CoCA at 512 tokens and runs parallel
to the one without position. Monte Carlo points lie on the curves.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sparsity import plotting
from sparsity.exact_law.exact import exact
from sparsity.figures.figure import Canvas, Context, Data, Figure
from sparsity.figures.rope import matched
from sparsity.rows.rope_scaling import DynamicNtkScaling
from sparsity.rows.row import Row
from sparsity.rows.steps import Coca, Rope
from sparsity.sampling.row_sampling import sample_rows
from sparsity.series import Point, Series

LENGTHS = np.unique(np.round(2.0 ** np.arange(4, 15.1, 0.5)).astype(int))
SAMPLED = (64, 1024)
REL_ERROR = 1.5e-3  # a whole row is one draw
TRAINED = 512  # tokens, from which on dynamic NTK changes the angles
TURN = 1  # seed of the random direction of RoPE's mean key


def laws() -> dict[str, Rope | Coca]:
    """Return the laws by label: one query and matched keys, each without and with dynamic NTK."""
    coca, (rope,) = matched(1 / 8, (TURN,))
    rule = DynamicNtkScaling(1.0, TRAINED)
    scaled = {"CoCA + NTK": replace(coca, scaling=rule), "RoPE + NTK": replace(rope, scaling=rule)}
    return {"CoCA": coca, "RoPE": rope} | scaled


def data(context: Context) -> Data:
    """Compute n_eff against n for every law, with sampled rows; then for keys without position.

    The curves with dynamic NTK begin at the trained length; up to it they are those without.
    """
    found, known = [], laws()
    for label, law in known.items():
        first = LENGTHS[0] if law.scaling is None else TRAINED
        lengths = LENGTHS[LENGTHS >= first]
        sampled = [n for n in SAMPLED if n >= first]
        row = Row("exp", steps=(law,))
        log = exact(row, length=[*lengths, *sampled]).log_value
        points = {}
        for length in sampled:
            settings = context.sampling(label, length, rel_error=REL_ERROR)
            drawn = Point.of(sample_rows(row, length, settings))
            points[float(length)] = drawn._replace(method="rows of rotated vectors")
        line = Series.line(label, lengths, log[: len(lengths)])
        line = line.named("length", "n_eff", "tokens", kernel="exp", positions=label)
        theory = log[len(lengths) :]
        found.append(line.with_points(theory, points))
    flat = exact("exp", length=LENGTHS, gamma=float(known["CoCA"].gamma(0)))
    line = Series.line("no position", LENGTHS, flat.log_value)
    return (*found, line.named("length", "n_eff", "tokens", kernel="exp", positions="none"))


def draw(data: Data, canvas: Canvas) -> None:
    """Draw on logarithmic axes; the last series, without position, is grey."""
    ax = plotting.axes(canvas, "context length  n", plotting.TOKENS, right=0.8)
    ax.set(xscale="log", yscale="log", xlim=(16, 32768), ylim=(8, 5e4))
    plotting.plain_ticks(ax.xaxis, (16, 128, 512, 2048, 8192, 32768))
    plotting.plain_ticks(ax.yaxis, (10, 100, 1000, 1e4))
    *laws, flat = data
    ax.plot(flat.x, flat.theory, color=plotting.GREY, lw=1.2)
    plotting.curves(ax, laws)
    grey = plotting.Look(plotting.GREY, "-", "")
    plotting.name_ends(ax, data, (*plotting.LOOKS[: len(laws)], grey))
    plotting.key(ax, line="exact law", loc="upper left")


FIGURE = Figure.from_docstring(__doc__, "context", data, draw)
