"""What RoPE and CoCA make of position alone: the weight of a key, and n_eff of the context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sparsity import plotting
from sparsity.exact_law.exact import exact
from sparsity.report.figures.figure import Canvas, Context, Data, Figure
from sparsity.rows.rope_planes import join, planes
from sparsity.rows.rope_scaling import DynamicNtkScaling
from sparsity.rows.row import Row
from sparsity.rows.steps import Coca, Rope
from sparsity.rows.steps.rope_and_coca import rectified_moments
from sparsity.sampling.row_sampling import sample_rows
from sparsity.sampling.row_sources import rotary_scores
from sparsity.series import Point, Series

DIM, STRENGTH = 64, 6.0  # head dimension; mean collinear score of a key beside the query
# The figure `rope`.
SLACK_AT = 4096
DISTANCES = np.arange(256)  # farther on the waves are closer than a line is thick
SAMPLED_DISTANCES = (0, 3, 12, 32, 80, 200)
REL_ERROR_OF_KEYS = 1e-3  # of a sampled point at the least: a whole rotated key is one draw


def collinear_mean(coca: Coca, turn: np.ndarray) -> np.ndarray:
    """Return the mean key of a `Rope` with the |q_i||μ_i| of a CoCA law, turned away from q.

    Args:
        coca: the law to match.
        turn: Θ_i, [d/2]; zeros give CoCA's own mean score.

    Returns:
        μ, [d].
    """
    # CoCA's key in plane i is t·q_i with t rectified, of mean E t: μ_i = E t·q_i, turned by Θ_i.
    mean, _ = rectified_moments(coca.center, coca.spread)
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


def laws_at_distances() -> dict[str, Rope | Coca]:
    """Return CoCA, RoPE and the slack form, with one query and matched keys."""
    coca, (rope,) = matched(1 / 2, [3])
    return {"CoCA": coca, "RoPE": rope, "CoCA, slack form": replace(coca, slack_at=SLACK_AT)}


def compute_rope(context: Context) -> Data:
    """Compute for each law the typical weight e^β_m, with points, and its band e^(β_m ± γ_m)."""
    # The error falls like 1/√chunks: ten of them at the least error, 1e−3, and never less than two.
    chunks = max(2, int(np.ceil(1e-5 / max(context.rel_error, REL_ERROR_OF_KEYS) ** 2)))
    curves: list[Series] = []
    for label, law in laws_at_distances().items():
        beta, gamma = law.beta(DISTANCES), law.gamma(DISTANCES)
        settings = context.sampling(label)
        drawn = rotary_scores(law, SAMPLED_DISTANCES, settings, chunks)
        mean = np.exp(drawn.beta)
        how = drawn.samples, settings.seed, "scores of rotated vectors"
        rows = zip(SAMPLED_DISTANCES, mean, mean * drawn.beta_stderr, strict=True)
        points = {m + 1.0: Point(y, error, *how) for m, y, error in rows}
        theory = law.beta(np.array(SAMPLED_DISTANCES))
        line = Series.line(label, DISTANCES + 1.0, beta)
        curves += [
            line.with_points(theory, points),
            Series.line(f"{label} − γ", DISTANCES + 1.0, beta - gamma),
            Series.line(f"{label} + γ", DISTANCES + 1.0, beta + gamma),
        ]
    return tuple(curve.named("distance", "exp(score)", kernel="exp") for curve in curves)


def draw_rope(data: Data, canvas: Canvas) -> None:
    """Collinear keys let position alone favour the near tokens

    Against distance: weight of a key, RoPE and CoCA of equal |q||k| in every plane

    One query in 64 dimensions, and keys of the same length in every plane. With RoPE and keys
    of random direction (red) half of the planes start by rising and the mean score varies
    around zero. With CoCA (blue) every plane starts at its maximum, and the score falls, though
    not at every step. The slack form that the published code computes (green, query at position
    4096) is another function, and depends on the absolute position. The band is one standard
    deviation of a key's score. Lines: exact. Points: Monte Carlo with rotated vectors; their 95
    % error bars are smaller than the markers.

    Alt text: Two charts of weight against distance, both axes logarithmic. Left: the curve of
    CoCA starts near 400 and falls, wobbling, to about 30 at a distance of 250; that of RoPE wobbles
    about 1 throughout. Right: the slack form starts far below the exact one and follows another
    course. Monte Carlo points lie on the curves.
    """
    # Drawn CoCA and RoPE at the left, the slack form of CoCA and the exact one at the right.
    blue, red, green = plotting.LOOKS[:3]
    coca, rope, slack = data[:3], data[3:6], data[6:]
    left = plotting.panel(canvas, (0.11, 0.13, 0.39, 0.655), "RoPE, and collinear keys")
    right = plotting.panel(canvas, (0.585, 0.13, 0.39, 0.655), "CoCA: exact, and slack")
    for ax, shown in ((left, ((coca, blue), (rope, red))), (right, ((coca, blue), (slack, green)))):
        ax.set(xscale="log", yscale="log", xlim=(1, len(DISTANCES)), ylim=(0.03, 2e3))
        ax.set_xlabel("1 + distance of the key")
        plotting.plain_ticks(ax.xaxis, (1, 4, 16, 64, 256))
        plotting.plain_ticks(ax.yaxis, (0.1, 1, 10, 100, 1e3))
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


ROPE = Figure.from_docstring("rope", compute_rope, draw_rope)

# The figure `context`.
_OCTAVES = *np.arange(4, 10, 1 / 8), *np.arange(10, 13.1, 1 / 4)  # RoPE turns: the curves wave
LENGTHS = np.unique(np.round(np.exp2(_OCTAVES)).astype(int))
SAMPLED_LENGTHS = (64, 1024)
REL_ERROR_OF_ROWS = 3e-3  # a whole row is one draw, of 64 numbers a token
TRAINED = 512  # tokens, from which on dynamic NTK changes the angles
TURN = 1  # seed of the random direction of RoPE's mean key


def laws_of_context() -> dict[str, Rope | Coca]:
    """Return the laws by label: one query and matched keys, each without and with dynamic NTK."""
    coca, (rope,) = matched(1 / 8, (TURN,))
    rule = DynamicNtkScaling(1.0, TRAINED)
    scaled = {"CoCA + NTK": replace(coca, scaling=rule), "RoPE + NTK": replace(rope, scaling=rule)}
    return {"CoCA": coca, "RoPE": rope} | scaled


def compute_context(context: Context) -> Data:
    """Compute n_eff against n for every law, with sampled rows; then for keys without position.

    The curves with dynamic NTK begin at the trained length; up to it they are those without.
    """
    curves, known = [], laws_of_context()
    for label, law in known.items():
        first = LENGTHS[0] if law.scaling is None else TRAINED
        lengths = LENGTHS[LENGTHS >= first]
        sampled = [n for n in SAMPLED_LENGTHS if n >= first]
        row = Row("exp", steps=(law,))
        log = exact(row, length=[*lengths, *sampled]).log_value
        points = {}
        for length in sampled:
            settings = context.sampling(label, length, rel_error=REL_ERROR_OF_ROWS)
            drawn = Point.of(sample_rows(row, length, settings))
            points[float(length)] = drawn._replace(method="rows of rotated vectors")
        line = Series.line(label, lengths, log[: len(lengths)])
        line = line.named("length", "n_eff", "tokens", kernel="exp", positions=label)
        theory = log[len(lengths) :]
        curves.append(line.with_points(theory, points))
    flat = exact("exp", length=LENGTHS, gamma=float(known["CoCA"].gamma(0)))
    line = Series.line("no position", LENGTHS, flat.log_value)
    return (*curves, line.named("length", "n_eff", "tokens", kernel="exp", positions="none"))


def draw_context(data: Data, canvas: Canvas) -> None:
    """CoCA narrows attention, dynamic NTK widens it again

    Against n: effective tokens n_eff of softmax rows, keys of equal |q||k| and γ

    The query and the lengths of the keys are those of the figure before, with little noise (t
    has a standard deviation of an eighth of its mean), so that nearly everything depends on
    position. Keys without position: every token counts. RoPE with mean keys of one random
    direction: about half of the context. CoCA: the near tokens, until the context is so long
    that the many far ones weigh more. With dynamic NTK beyond 512 tokens both keep about the
    share of the context that they attend to there. Lines: the exact law of rows. Points: Monte
    Carlo with rotated vectors; their 95 % error bars are smaller than the markers.

    Alt text: Chart of the effective tokens n_eff against the context length from 16 to 8192,
    both axes logarithmic. Without position it is nearly the context length. The curve of RoPE
    runs below it, about parallel, and with dynamic NTK a little closer to it. CoCA is far lower
    at thousands of tokens and then rises again; with dynamic NTK its curve leaves that of CoCA
    at 512 tokens and runs parallel to the one without position. Monte Carlo points lie on the
    curves.
    """
    # Drawn on logarithmic axes; the last series, without position, is grey.
    ax = plotting.axes(canvas, "context length  n", plotting.TOKENS, right=0.8)
    ax.set(xscale="log", yscale="log", xlim=(16, 8192), ylim=(8, 1.2e4))
    plotting.length_ticks(ax.xaxis, 16, 8192)
    plotting.plain_ticks(ax.yaxis, (10, 100, 1000, 1e4))
    *rotated, flat = data
    ax.plot(flat.x, flat.theory, color=plotting.GREY, lw=1.2)
    plotting.curves(ax, rotated)
    grey = plotting.Look(plotting.GREY, "-", "")
    plotting.name_ends(ax, data, (*plotting.LOOKS[: len(rotated)], grey))
    plotting.key(ax, line="exact law", loc="upper left")


CONTEXT = Figure.from_docstring("context", compute_context, draw_context)
