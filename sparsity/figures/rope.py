"""Figure: what RoPE and CoCA make of the score at each distance, and the slack form of CoCA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sparsity.figures import plotting
from sparsity.figures.record import Canvas, Context, Data, Figure
from sparsity.figures.series import Series
from sparsity.rows.rectified import rectified
from sparsity.rows.rotation import join, planes
from sparsity.rows.steps import Coca, Rope
from sparsity.sampling import Sampling
from sparsity.sampling.row_sources import rotary_scores
from sparsity.sweeps.variables import cell_seed

DIM, STRENGTH = 64, 6.0  # head dimension; mean collinear score of a key beside the query
SLACK_AT = 4096
DISTANCES = np.unique(np.geomspace(1, SLACK_AT + 1, 300).astype(int)) - 1
SAMPLED = (0, 3, 12, 60, 300, 1500)


def collinear_mean(coca: Coca, turn: np.ndarray) -> np.ndarray:
    """Mean key of a `Rope` with the |q_i||μ_i| of a CoCA law, turned away from q by Θ_i = `turn`.

    Args:
        coca: the law to match.
        turn: Θ_i, [d/2]; zeros give CoCA's own mean score.

    Returns:
        μ, [d].
    """
    mean, _ = rectified(coca.center, coca.spread)
    mu = mean * planes(coca.query, coca.pairing) * np.exp(-1j * turn)
    return join(mu.real, mu.imag, coca.pairing)


def matched(share: float, seeds: Sequence[int]) -> tuple[Coca, list[Rope]]:
    """CoCA of a random query, ‖q‖² = d, and RoPE of equal |q_i||μ_i| and γ at distance 0.

    Args:
        share: spread of t over its center.
        seeds: of the random directions of RoPE's mean keys.
    """
    query = np.random.default_rng(0).standard_normal(DIM)
    query *= DIM**0.5 / np.linalg.norm(query)
    center = STRENGTH / float(query @ query)
    coca = Coca(query, center, center * share)
    spread = float(coca.gamma(0)) / float(np.linalg.norm(query))
    turns = (np.random.default_rng(seed).uniform(0, 2 * np.pi, DIM // 2) for seed in seeds)
    return coca, [Rope(query, collinear_mean(coca, turn), spread) for turn in turns]


def laws() -> dict[str, Rope | Coca]:
    """CoCA, RoPE and the slack form, with one query and matched keys."""
    coca, (rope,) = matched(1 / 2, [3])
    return {"CoCA": coca, "RoPE": rope, "CoCA, slack form": replace(coca, slack_at=SLACK_AT)}


def _series(label: str, law: Rope | Coca, context: Context, chunks: int) -> tuple[Series, ...]:
    """e^β_m with points, then e^(β_m − γ_m) and e^(β_m + γ_m)."""
    seed = cell_seed(context.seed, label)
    beta, gamma = law.beta(DISTANCES), law.gamma(DISTANCES)
    found = rotary_scores(law, SAMPLED, Sampling(seed=seed, dtype=np.float32), chunks)
    mean = np.exp(found.beta)
    drawn = zip(SAMPLED, mean, mean * found.beta_stderr, strict=True)
    points = {m + 1.0: (*pair, found.samples, seed) for m, *pair in drawn}
    x, theory = DISTANCES + 1.0, law.beta(np.array(SAMPLED))
    line = Series.line(label, x, beta)
    return (
        line.with_points(theory, points, "scores of rotated vectors"),
        Series.line(f"{label} − γ", x, beta - gamma),
        Series.line(f"{label} + γ", x, beta + gamma),
    )


def data(context: Context) -> Data:
    """For CoCA, RoPE and the slack form the typical weight e^β_m and its band e^(β_m ± γ_m)."""
    chunks = max(2, int(np.ceil(1e-5 / context.rel_error**2)))
    found: list[Series] = []
    for label, law in laws().items():
        found += _series(label, law, context, chunks)
    return tuple(found)


def draw(data: Sequence[Series], canvas: Canvas) -> None:
    """Left: CoCA and RoPE. Right: the slack form of CoCA and the exact one."""
    panels: Any = (
        ((0, 3), "RoPE, and collinear keys"),
        ((0, 6), "CoCA: exact, and slack"),
    )
    for left, (shown, title) in zip((0.11, 0.585), panels, strict=True):
        ax = plotting.calm(canvas.add_axes((left, 0.13, 0.39, 0.655)))
        ax.set(xscale="log", yscale="log", xlim=(1, SLACK_AT), ylim=(0.01, 2e3))
        ax.set_xlabel("1 + distance of the key")
        ax.set_title(title, loc="left", fontsize=11)
        plotting.plain_ticks(ax.xaxis, (1, 10, 100, 1000), ("1", "10", "100", "1000"))
        ticks = (0.1, 1, 10, 100, 1000)
        plotting.plain_ticks(ax.yaxis, ticks, ("0.1", "1", "10", "100", "1000"))
        for at in shown:
            middle, low, high = data[at : at + 3]
            look = plotting.LOOKS[at // 3]
            ax.fill_between(low.x, low.theory, high.theory, color=look.color, alpha=0.18, lw=0)
            solid = plotting.Look(look.color, "-", look.marker)
            once = left < 0.5 or at > 0  # the points of CoCA stand at the left
            plotting.curve(ax, middle, solid, points=once, linewidth=1.3)
        if left < 0.5:
            ax.set_ylabel("typical weight  exp(score)")
            plotting.inline(ax, 4, 700, "CoCA", plotting.LOOKS[0].color)
            plotting.inline(ax, 4, 0.25, "RoPE", plotting.LOOKS[1].color)
            plotting.key(ax, line="exp(β), exp(β ± γ)", loc="lower right")
        else:
            plotting.inline(ax, 6, 450, "exact", plotting.LOOKS[0].color)
            plotting.inline(ax, 3, 9, "slack", plotting.LOOKS[2].color)


FIGURE = Figure(
    name="rope",
    title="Collinear keys let position alone favour the near tokens",
    subtitle="Weight of a key at each distance: RoPE and CoCA of equal |q||k| in every plane",
    caption=(
        "One query in 64 dimensions, and keys of the same length in every plane. With RoPE and "
        "keys of random direction (red) half of the planes start by rising and the mean score "
        "varies around zero. With CoCA (blue) every plane starts at its maximum, and the score "
        "falls, though not at every step. The slack form that the published code computes (green, "
        "query at position 4096) is another function, and depends on the absolute position. The "
        "band is one standard deviation of a key's score. Lines: exact. Points: Monte Carlo with "
        "rotated vectors; their 95 % error bars are smaller than the markers."
    ),
    alt=(
        "Two charts of weight against distance, both axes logarithmic. Left: the curve of CoCA "
        "starts near 400 and falls, wobbling, to about 1 at a distance of 4000; that of RoPE "
        "wobbles about 1 throughout. Right: the slack form starts far below the exact one and "
        "follows another course. Monte Carlo points lie on the curves."
    ),
    data=data,
    draw=draw,
)
