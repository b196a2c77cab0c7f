"""Collinear keys let position alone favour the near tokens

Against distance: weight of a key, RoPE and CoCA of equal |q||k| in every plane

One query in 64 dimensions, and keys of the same length in every plane. With RoPE and keys of random
direction (red) half of the planes start by rising and the mean score varies around zero. With CoCA
(blue) every plane starts at its maximum, and the score falls, though not at every step. The slack
form that the published code computes (green, query at position 4096) is another function, and
depends on the absolute position. The band is one standard deviation of a key's score. Lines: exact.
Points: Monte Carlo with rotated vectors; their 95 % error bars are smaller than the markers.

Alt text: Two charts of weight against distance, both axes logarithmic. Left: the curve of CoCA
starts near 400 and falls, wobbling, to about 1 at a distance of 4000; that of RoPE wobbles about 1
throughout. Right: the slack form starts far below the exact one and follows another course. Monte
Carlo points lie on the curves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sparsity import plotting
from sparsity.figures.figure import Canvas, Context, Data, Figure
from sparsity.rows.rotation import join, planes
from sparsity.rows.steps import Coca, Rope
from sparsity.rows.steps.rotary import rectified
from sparsity.sampling.row_sources import rotary_scores
from sparsity.series import Point, Series

DIM, STRENGTH = 64, 6.0  # head dimension; mean collinear score of a key beside the query
SLACK_AT = 4096
DISTANCES = np.unique(np.geomspace(1, SLACK_AT + 1, 300).astype(int)) - 1
SAMPLED = (0, 3, 12, 60, 300, 1500)
REL_ERROR = 1e-3  # of a sampled point at the least: a whole rotated key is one draw


def collinear_mean(coca: Coca, turn: np.ndarray) -> np.ndarray:
    """Return the mean key of a `Rope` with the |q_i||μ_i| of a CoCA law, turned away from q.

    Args:
        coca: the law to match.
        turn: Θ_i, [d/2]; zeros give CoCA's own mean score.

    Returns:
        μ, [d].
    """
    # CoCA's key in plane i is t·q_i with t rectified, of mean E t: μ_i = E t·q_i, turned by Θ_i.
    mean, _ = rectified(coca.center, coca.spread)
    mu = mean * planes(coca.query, coca.pairing) * np.exp(-1j * turn)
    return join(mu.real, mu.imag, coca.pairing)


def matched(share: float, seeds: Sequence[int]) -> tuple[Coca, list[Rope]]:
    """Return CoCA of a random query, ‖q‖² = d, and RoPE of equal |q_i||μ_i| and γ at distance 0.

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
    """Return CoCA, RoPE and the slack form, with one query and matched keys."""
    coca, (rope,) = matched(1 / 2, [3])
    return {"CoCA": coca, "RoPE": rope, "CoCA, slack form": replace(coca, slack_at=SLACK_AT)}


def data(context: Context) -> Data:
    """Compute for each law the typical weight e^β_m, with points, and its band e^(β_m ± γ_m)."""
    # The error falls like 1/√chunks: ten of them at the least error, 1e−3, and never less than two.
    chunks = max(2, int(np.ceil(1e-5 / max(context.rel_error, REL_ERROR) ** 2)))
    found: list[Series] = []
    for label, law in laws().items():
        beta, gamma = law.beta(DISTANCES), law.gamma(DISTANCES)
        settings = context.sampling(label)
        drawn = rotary_scores(law, SAMPLED, settings, chunks)
        mean = np.exp(drawn.beta)
        how = drawn.samples, settings.seed, "scores of rotated vectors"
        each = zip(SAMPLED, mean, mean * drawn.beta_stderr, strict=True)
        points = {m + 1.0: Point(y, error, *how) for m, y, error in each}
        theory = law.beta(np.array(SAMPLED))
        line = Series.line(label, DISTANCES + 1.0, beta)
        found += [
            line.with_points(theory, points),
            Series.line(f"{label} − γ", DISTANCES + 1.0, beta - gamma),
            Series.line(f"{label} + γ", DISTANCES + 1.0, beta + gamma),
        ]
    return tuple(each.named("distance", "exp(score)", kernel="exp") for each in found)


def draw(data: Data, canvas: Canvas) -> None:
    """Draw CoCA and RoPE at the left, the slack form of CoCA and the exact one at the right."""
    blue, red, green = plotting.LOOKS[:3]
    coca, rope, slack = data[:3], data[3:6], data[6:]
    left = plotting.panel(canvas, (0.11, 0.13, 0.39, 0.655), "RoPE, and collinear keys")
    right = plotting.panel(canvas, (0.585, 0.13, 0.39, 0.655), "CoCA: exact, and slack")
    for ax, shown in ((left, ((coca, blue), (rope, red))), (right, ((coca, blue), (slack, green)))):
        ax.set(xscale="log", yscale="log", xlim=(1, SLACK_AT), ylim=(0.01, 2e3))
        ax.set_xlabel("1 + distance of the key")
        plotting.plain_ticks(ax.xaxis, (1, 10, 100, 1000), ("1", "10", "100", "1000"))
        ticks = (0.1, 1, 10, 100, 1000)
        plotting.plain_ticks(ax.yaxis, ticks, ("0.1", "1", "10", "100", "1000"))
        for (middle, low, high), look in shown:
            ax.fill_between(low.x, low.theory, high.theory, color=look.color, alpha=0.18, lw=0)
            once = ax is left or look is not blue  # the points of CoCA stand at the left
            plotting.curve(ax, middle, look, points=once, linewidth=1.3)
    left.set_ylabel("typical weight  exp(score)")
    plotting.inline(left, 4, 700, "CoCA", blue.color)
    plotting.inline(left, 4, 0.25, "RoPE", red.color)
    plotting.key(left, line="exp(β), exp(β ± γ)", loc="lower right")
    plotting.inline(right, 6, 450, "exact", blue.color)
    plotting.inline(right, 3, 9, "slack", green.color)


FIGURE = Figure.from_docstring(__doc__, "rope", data, draw)
