"""At γ = 2 only whole-row maps attend to few keys in long rows

Against n and γ: participation 1/E Σp² of six ways of attending, scores ~ N(0, γ²)

Left: at γ = 2 every kernel f(s) spreads over more keys as the row grows, most of them in proportion
to n, and softmax more slowly until it does so too. Sparsemax and top-8 softmax take the whole row
into account and stay at a few keys at any length. Right: softmax focuses in rows of 4096 at the
cost of a larger spread. Squared ReLU and signed linear attention do not depend on γ at all without
a bias. Sigmoid attention with the bias −ln n follows softmax up to about γ = 1.5, attends to about
130 keys at best, and to more again beyond, where it saturates. Lines: the exact law. Points: Monte
Carlo with whole rows of 4096; their 95 % error bars are smaller than the markers.

Alt text: Two line charts of the participation on one logarithmic scale. Against row
length from 2 to 65536: signed linear, squared ReLU and sigmoid rise in proportion, softmax more
slowly; top-8 softmax and sparsemax stay below eight. Against the spread
from 0.25 to 6 in rows of 4096 tokens: softmax falls from thousands to about two, sigmoid to about
130 and then rises again; squared ReLU and signed linear are level.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sparsity import plotting
from sparsity.exact_law.exact import exact
from sparsity.report.figures.figure import Canvas, Context, Data, Figure
from sparsity.rows.row import Row
from sparsity.rows.steps import LengthBias
from sparsity.sampling.row_sampling import sample_rows
from sparsity.series import Point, Series

GAMMA, LENGTH = 2.0, 4096  # what each panel holds fixed
LENGTHS = np.unique(np.round(2.0 ** np.arange(1, 16.1, 0.5)).astype(int))
GAMMAS = np.linspace(0.25, 6.0, 24)
SAMPLED = (1.0, GAMMA, 4.0)  # γ, in rows of LENGTH
REL_ERROR = 1.5e-2  # a whole row is one draw
OF = "participation"

MECHANISMS: dict[str, Callable[[float], Row]] = {
    "softmax": lambda gamma: Row("exp", gamma=gamma),
    "relu²": lambda gamma: Row("relu2", beta=0.0, gamma=gamma),
    "sigmoid, b = −ln n": lambda gamma: Row(
        "sigmoid", beta=0.0, gamma=gamma, steps=(LengthBias(),)
    ),
    "signed linear": lambda gamma: Row("identity", beta=0.0, gamma=gamma),
    "top-8 softmax": lambda gamma: Row("topk:8", beta=0.0, gamma=gamma),
    "sparsemax": lambda gamma: Row("sparsemax", beta=0.0, gamma=gamma),
}


def data(context: Context) -> Data:
    """Compute 1/E Σp² of every mechanism against n, then against γ."""
    over_n, over_gamma = [], []
    for label, row in MECHANISMS.items():
        points = {}
        for gamma in SAMPLED:
            settings = context.sampling(label, gamma, rel_error=REL_ERROR)
            found = sample_rows(row(gamma), LENGTH, settings, OF)
            # An inverse has the same relative error, to first order.
            value = 1 / found.value
            inverse = Point.of(found)._replace(estimate=value, stderr=value * found.rel_stderr)
            points[gamma] = inverse
        log = -exact(row(GAMMA), length=LENGTHS, of=OF).log_value
        laws = [exact(row(float(g)), length=LENGTH, of=OF).log_value for g in GAMMAS]
        laws = -np.array(laws, dtype=float)
        logs = laws[np.isin(GAMMAS, SAMPLED)]
        at = SAMPLED.index(GAMMA)
        here = {float(LENGTH): points[GAMMA]}
        own = row(GAMMA).described()
        of = {"kernel": own["kernel"], **own["params"], "steps": " ".join(own["steps"])}
        line = Series.line(label, LENGTHS, log).named("length", f"1/{OF}", "tokens", **of)
        over_n.append(line.with_points([logs[at]], here))
        of = {name: value for name, value in of.items() if name != "gamma"} | {"length": LENGTH}
        line = Series.line(f"{label}, n = {LENGTH}", GAMMAS, laws)
        line = line.named("gamma", f"1/{OF}", "tokens", **of)
        over_gamma.append(line.with_points(logs, points))
    return (*over_n, *over_gamma)


def draw(data: Data, canvas: Canvas) -> None:
    """Draw against the length at the left and against the spread at the right, on one scale."""
    count = len(MECHANISMS)
    left = plotting.panel(canvas, (0.09, 0.125, 0.32, 0.6), f"at γ = {GAMMA:g}")
    right = plotting.panel(canvas, (0.485, 0.125, 0.29, 0.6), f"at n = {LENGTH}")
    for ax, series in ((left, data[:count]), (right, data[count:])):
        ax.set(yscale="log", ylim=(0.9, 7e4))
        plotting.plain_ticks(ax.yaxis, (1, 10, 100, 1e3, 1e4))
        plotting.curves(ax, series)
    left.set(xscale="log", xlim=(2, 65536), xlabel="row length  n")
    left.set_ylabel("participation  1/E Σp²")
    plotting.length_ticks(left.xaxis, 2, 65536, most=5)
    right.set(xlim=(0, 6), xlabel="spread of scores  γ")
    right.tick_params(labelleft=False)
    names = zip(data[count:], MECHANISMS, plotting.LOOKS, strict=False)
    ends = [(float(each.theory[-1]), label, look.color) for each, label, look in names]
    plotting.end_labels(right, ends, fontsize=9.5)
    ax = canvas.add_axes((0.025, 0.78, 0.9, 0.06))
    ax.set_axis_off()
    plotting.key(ax, line="exact law", loc="center left", ncols=2, columnspacing=1.6)


FIGURE = Figure.from_docstring("mechanisms", data, draw, __doc__)
