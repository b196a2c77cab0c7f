"""Bias makes or breaks squared ReLU; softmax ignores it

Against β: sparsity at γ = 1; for nonnegative linear, β is the mean of the keys

Softmax and decay do not depend on the bias. Signed linear attention is sparsest without one.
Squared ReLU goes to 0 with a negative bias and to 1 with a positive one. Nonnegative linear
attention is shown at its sparsest, a one-hot query on features elu(k) + 1 of keys k ~ N(β, 1): a
negative bias brings it to softmax, no further. Decay: λ = 0.95, n = 256. Lines: closed forms (the
features' moments by quadrature). Points: Monte Carlo; their 95 % error bars are smaller than the
markers.

Alt text: Line chart of sparsity against bias from −4 to 4. Softmax is flat at 0.61 and decay at
0.39; signed linear is a symmetric valley with its bottom at 0.80; squared ReLU rises from 0 to 0.9;
nonnegative linear rises from 0.61 to 0.98. Monte Carlo points lie on the curves.
"""

from __future__ import annotations

import numpy as np

from sparsity import plotting
from sparsity.figures.figure import Canvas, Context, Data, Figure
from sparsity.figures.nonnegative import noise_ratio, sample_features
from sparsity.kernels.zoo import elu1
from sparsity.limit.evaluation import evaluate
from sparsity.series import Point, Series, from_sweeps
from sparsity.sweeps.curves import sweep

SCORES = {"exp": "softmax", "relu2": "squared ReLU", "identity": "signed linear"}
DECAY, LENGTH, DIM = 0.95, 256, 2
_LINE, _POINTS = np.linspace(-4, 4, 81), np.linspace(-4, 4, 9)


def _log_S_of_features(beta: np.ndarray) -> np.ndarray:
    """Return log S of the sparsest query on features elu(k) + 1."""
    ratio = noise_ratio(elu1, beta)
    return evaluate("nonnegative", ratio=ratio, dim=DIM, query="one-hot").log_S


def data(context: Context) -> Data:
    """Compute S(β) at spread 1; decay does not see β, so it is sampled once."""
    found: list[Series] = []
    for kernel, label in SCORES.items():
        lines = sweep(kernel, beta=_LINE, gamma=1.0)
        points = context.sample(kernel, beta=_POINTS, gamma=1.0)
        found += from_sweeps(lines, points, "beta", lambda key, label=label: label)
    points = {b: sample_features(context, elu1, b, "one-hot", DIM) for b in _POINTS.tolist()}
    line = Series.line("nonnegative linear", _LINE, _log_S_of_features(_LINE))
    line = line.named("beta", "S", kernel="nonnegative", dim=DIM, query="one-hot")
    found.append(line.with_points(_log_S_of_features(_POINTS), points))
    # Decay has no β: one sampled point, put where no other stands in its way.
    decayed = context.sample("decayed", decay=DECAY, length=LENGTH)
    drawn = [decayed[f"{name}_mc"].item() for name in ("S", "stderr", "samples", "seed")]
    log = decayed["log_S"].item()
    constant = Series.line("exponential decay", _LINE, np.full(_LINE.shape, log))
    point = Point(*drawn, method=decayed.attrs["method_mc"])
    constant = constant.named("beta", "S", kernel="decayed", decay=DECAY, length=LENGTH)
    found.append(constant.with_points([log], {-3.0: point}))
    return tuple(found)


def draw(data: Data, canvas: Canvas) -> None:
    """Draw on linear axes, with names at the right ends."""
    ax = plotting.axes(canvas, "bias  β", plotting.SPARSITY, right=0.77)
    ax.set(xlim=(-4.15, 4.15), ylim=(-0.01, 1.03))
    plotting.curves(ax, data)
    plotting.name_ends(ax, data, gap=16)
    plotting.key(ax, loc="lower right")


FIGURE = Figure.from_docstring(__doc__, "bias", data, draw)
