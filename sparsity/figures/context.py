"""Figure: the effective number of attended tokens of softmax rows under RoPE and CoCA."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparsity.exact_law.exact import exact
from sparsity.figures import plotting
from sparsity.figures.record import Canvas, Context, Data, Figure
from sparsity.figures.rope import matched
from sparsity.figures.series import Series
from sparsity.rows.row import Row
from sparsity.rows.steps import Coca, Rope
from sparsity.sampling import Sampling
from sparsity.sampling.row_sampling import sample_rows
from sparsity.sweeps.variables import cell_seed

LENGTHS = np.unique(np.round(2.0 ** np.arange(4, 15.1, 0.5)).astype(int))
SAMPLED = (64, 256)
REL_ERROR = 1.5e-3  # a whole row is one draw
TURNS = (1, 2)  # seeds of the random directions of RoPE's mean key


def laws() -> dict[str, Rope | Coca]:
    """One query and matched keys."""
    coca, ropes = matched(1 / 8, TURNS)
    named = zip(TURNS, ropes, strict=True)
    return {"CoCA": coca} | {f"RoPE, keys {seed}": rope for seed, rope in named}


def data(context: Context) -> Data:
    """n_eff against n for every law, with sampled rows; then keys without position."""
    found = []
    for label, law in laws().items():
        row = Row("exp", steps=(law,))
        log = exact(row, length=[*LENGTHS, *SAMPLED]).log_value
        line = Series.line(label, LENGTHS, log[: len(LENGTHS)])
        points = {}
        for length in SAMPLED:
            seed = cell_seed(context.seed, label, length)
            to = max(context.rel_error, REL_ERROR)
            settings = Sampling(rel_error=to, seed=seed, dtype=np.float32)
            drawn = sample_rows(row, length, settings)
            points[float(length)] = (drawn.value, drawn.stderr, drawn.samples, seed)
        theory = log[len(LENGTHS) :]
        found.append(line.with_points(theory, points, "rows of rotated vectors"))
    gamma = float(laws()["CoCA"].gamma(0))
    flat = exact("exp", length=LENGTHS, gamma=gamma)
    return (*found, Series.line("no position", LENGTHS, flat.log_value))


def draw(data: Sequence[Series], canvas: Canvas) -> None:
    """Both axes logarithmic; the last series, without position, is dashed grey."""
    ax = plotting.axes(canvas, "context length  n", "attended tokens  n·S²", right=0.8)
    ax.set(xscale="log", yscale="log", xlim=(16, 32768), ylim=(8, 5e4))
    plotting.plain_ticks(ax.xaxis, (16, 128, 512, 2048, 8192, 32768))
    plotting.plain_ticks(ax.yaxis, (10, 100, 1000, 1e4))
    *laws, flat = data
    ax.plot(flat.x, flat.theory, color=plotting.GREY, lw=1.2, ls=(0, (5, 3)))
    for series, look in zip(laws, plotting.LOOKS, strict=False):
        plotting.curve(ax, series, look)
    ends = [(s.theory[-1], s.label, k.color) for s, k in zip(laws, plotting.LOOKS, strict=False)]
    plotting.end_labels(ax, [*ends, (flat.theory[-1], flat.label, plotting.GREY)])
    plotting.key(ax, line="exact law", loc="upper left")


FIGURE = Figure(
    name="context",
    title="Position alone: CoCA narrows attention, RoPE hardly does",
    subtitle="Effective number of attended tokens of softmax rows, keys of equal |q||k| and γ",
    caption=(
        "The query and the lengths of the keys are those of the figure before, with little noise "
        "(t has a standard deviation of an eighth of its mean), so that nearly everything depends "
        "on position. Keys without position: every token counts. RoPE with mean keys of random "
        "direction (two draws): about half of the context. CoCA: the near tokens, until the "
        "context is so long that the many far ones weigh more. Lines: the exact law of rows. "
        "Points: Monte Carlo with rotated vectors; their 95 % error bars are smaller than the "
        "markers."
    ),
    alt=(
        "Chart of the effective number of attended tokens against the context length from 16 to "
        "32768, both axes logarithmic. Without position it is nearly the context length. The two "
        "curves of RoPE run below it, about parallel. CoCA is far lower at a thousand tokens and "
        "then rises again. Monte Carlo points lie on the curves."
    ),
    data=data,
    draw=draw,
)
