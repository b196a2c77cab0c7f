"""Squared ReLU needs a negative bias to attend to few tokens

Against n: n_eff and √(n_eff/n) of rows of n weights max(s, 0)² or s, s ~ N(β, γ²)

At n = 100 000 squared ReLU attends to 522 tokens with β = −2γ and to 16 668 with β = 0; the
identity to 63 662 with β = 0 and to 81 364 with β = 2γ. Solid: exact law. Dashed: the limit of long
rows, n·S² on the left and S on the right, where √(n_eff/n) is drawn. Shaded: what no row can reach,
n_eff below 1 and S below 1/√n. Points: Monte Carlo with whole rows; their 95 % error bars are
smaller than the markers.

Alt text: Two line charts against row length from 1 to 100 000, logarithmic axes. Left, effective
tokens: four curves start at 1 and end at 522, 16 668, 63 662 and 81 364, each on its dashed limit.
Right, sparsity: the same curves fall from 1 to 0.07, 0.41, 0.80 and 0.90. Monte Carlo points lie on
the curves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sparsity import plotting
from sparsity.exact_law.exact import exact, exact_grid
from sparsity.figures.figure import Canvas, Context, Data, Figure
from sparsity.kernels import identity, relu2
from sparsity.limit.evaluation import evaluate
from sparsity.quantities import n_eff
from sparsity.sampling import draw as sample
from sparsity.series import Point, Series

CURVES = (
    *((relu2, -2.0, "relu2, β = −2γ"), (relu2, 0.0, "relu2, β = 0")),
    *((identity, 0.0, "identity, β = 0"), (identity, 2.0, "identity, β = 2γ")),
)
SAMPLED = 256  # tokens
REL_ERROR = 0.02  # of n_eff: a whole row is one draw
_ENDS = 1.0, 1e5


def data(context: Context) -> Data:
    """Compute n_eff(n) of every curve with √(n_eff/n) beside it, and the limits of both."""
    n = np.unique(np.rint(np.geomspace(*_ENDS, 81)))
    tokens, sparse, limits = [], [], []
    for kernel, beta, label in CURVES:
        point: dict[str, Any] = {"beta": beta, "gamma": 1.0}  # S depends on β/γ alone
        law = exact_grid(kernel, {name: np.array([v]) for name, v in point.items()}, n, n_eff)
        log, at = np.log(law.value.ravel()), np.array([SAMPLED], float)
        theory = exact(kernel, length=at, **point).log_value
        settings = context.sampling(kernel.name, beta, SAMPLED, rel_error=REL_ERROR)
        drawn = sample(
            kernel, replace(settings, max_samples=1e7), length=SAMPLED, of=n_eff, **point
        )
        of_tokens = Point.of(drawn)
        held = {"kernel": kernel.name, **point}
        curve = Series.line(label, n, log).named("length", "n_eff", "tokens", **held)
        tokens.append(curve.with_points(theory, {float(SAMPLED): of_tokens}))
        # The same draws once more, as a root: δS/S = ½ δn_eff/n_eff.
        S = np.sqrt(drawn.value / SAMPLED)
        root = of_tokens._replace(estimate=S, stderr=S * drawn.stderr / drawn.value / 2)
        rooted = Series.line(f"S, {label}", n, (log - np.log(n)) / 2)
        rooted = rooted.named("length", "S_rms", **held)
        sparse.append(rooted.with_points((theory - np.log(at)) / 2, {float(SAMPLED): root}))
        log_S = np.full(2, float(evaluate(kernel, **point).log_S))
        limit = Series.line(f"limit of S, {label}", _ENDS, log_S)
        limits.append(limit.named("length", "S", **held))
    return (*tokens, *sparse, *limits)


def draw(data: Data, canvas: Canvas) -> None:
    """Draw n_eff at the left and S at the right, with the limits dashed."""
    count = len(CURVES)
    tokens, sparse, limits = (data[i * count : (i + 1) * count] for i in range(3))
    boxes = ((0.085, 0.13, 0.3, 0.655), (0.475, 0.13, 0.3, 0.655))
    titles = (plotting.TOKENS, plotting.SPARSITY)
    for box, title, curves in zip(boxes, titles, (tokens, sparse), strict=True):
        ax = plotting.panel(canvas, box, title)
        ax.set(xscale="log", yscale="log", xlim=_ENDS, xlabel="row length  n")
        plotting.plain_ticks(ax.xaxis, (1, 100, 1e4))
        of_S = curves is sparse
        ax.set_ylim(*((0.02, 1.3) if of_S else (0.5, 1.5e5)))
        plotting.plain_ticks(ax.yaxis, (1, 0.3, 0.1, 0.03) if of_S else (1, 10, 100, 1e3, 1e4, 1e5))
        n = curves[0].x
        ax.fill_between(n, 1e-3, n**-0.5 if of_S else n**0.0, color=plotting.SHADE, zorder=0)
        for curve, limit, look in zip(curves, limits, plotting.LOOKS, strict=False):
            factor = 1.0 if of_S else limit.theory * limit.x
            ax.plot(limit.x, factor * limit.theory, color=look.color, lw=1.2, ls=plotting.DASHED)
            plotting.curve(ax, curve, look)
        if of_S:
            named = [replace(c, label=label) for c, (*_, label) in zip(curves, CURVES, strict=True)]
            plotting.name_ends(ax, named, fontsize=9.5)
            plotting.inline(ax, 2.2, 0.05, "no row has\nS < 1/√n", plotting.GREY, ha="left")
        else:
            place = {"loc": "upper left", "fontsize": 9, "handlelength": 2.0, "borderaxespad": 0.2}
            dashed = plotting.Look(plotting.GREY, plotting.DASHED, "")
            plotting.key(ax, line="exact law", lines=[("limit n·S²", dashed)], **place)


FIGURE = Figure.from_docstring(__doc__, "lengths", data, draw)
