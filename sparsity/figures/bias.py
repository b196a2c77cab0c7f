"""Figure 4: what the bias does to each kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sympy import Piecewise
from sympy import exp as e

from sparsity import plotting
from sparsity.curves import cell_seed, sweep
from sparsity.evaluation import evaluate
from sparsity.figures.record import Canvas, Context, Data, Figure
from sparsity.kernels import score_kernel
from sparsity.kernels.queries import named
from sparsity.kernels.symbols import s
from sparsity.quadrature import moment
from sparsity.series import Series, from_sweeps

SCORES = {"exp": "softmax", "relu2": "squared ReLU", "identity": "signed linear"}
DECAY, LENGTH, DIM = 0.95, 256, 8
_LINE, _POINTS = np.linspace(-4, 4, 161), np.linspace(-4, 4, 9)

elu1 = score_kernel("elu+1", Piecewise((s + 1, s > 0), (e(s), True)))  # the usual feature map


def _log_features(beta: np.ndarray) -> np.ndarray:
    """Log S of a one-hot query on features elu(k) + 1, k ~ N(β, 1), from their first moments."""
    (m1, _), (m2, _) = (moment(elu1, p, beta, 1.0) for p in (1, 2))
    ratio = np.sqrt(np.expm1(m2 - 2 * m1))
    return evaluate("nonnegative", ratio=ratio, dim=DIM, query="one-hot").log_S


def _features(context: Context) -> Series:
    from sparsity.montecarlo import Sampling, estimators

    estimates, method = {}, ""
    for beta in _POINTS:
        sampling = Sampling(context.rel_error, seed=cell_seed(context.seed, "elu+1", beta))
        query = named("one-hot").vector(DIM)
        found = estimators.features(elu1, query, float(beta), 1.0, sampling)
        estimates[float(beta)] = (found.S, found.stderr, found.samples, found.seed)
        method = found.method
    line = Series.line("nonnegative linear", _LINE, _log_features(_LINE))
    return line.with_points(_log_features(_POINTS), estimates, method)


def data(context: Context) -> Data:
    """S(β) at spread 1; decay does not see β, so it is sampled once."""
    found: list[Series] = []
    for kernel, label in SCORES.items():
        lines = sweep(kernel, beta=_LINE, gamma=1.0)
        points = context.sample(kernel, beta=_POINTS, gamma=1.0)
        found += from_sweeps(lines, points, "beta", lambda key, label=label: label)
    found.append(_features(context))
    decayed = context.sample("decayed", decay=DECAY, length=LENGTH)
    estimate = [decayed[f"{name}_mc"].item() for name in ("S", "stderr", "samples", "seed")]
    log = decayed["log_S"].item()
    constant = Series.line("exponential decay", _LINE, np.full(_LINE.shape, log))
    method = decayed.attrs["method_mc"]
    found.append(constant.with_points([log], {0.0: estimate}, method))
    return tuple(found)


def draw(data: Sequence[Series], canvas: Canvas) -> None:
    """Linear axes; names at the right ends."""
    x = "bias  β = q·μ  (of the scores; of the features for nonnegative linear)"
    ax = plotting.axes(canvas, x, "sparsity  S", right=0.775)
    ax.set(xlim=(-4, 4), ylim=(-0.01, 1.03))
    for series, look in zip(data, plotting.LOOKS, strict=False):
        plotting.curve(ax, series, look)
    looks = zip(data, plotting.LOOKS, strict=False)
    plotting.end_labels(ax, [(d.theory[-1], d.label, look.color) for d, look in looks], gap=16)
    plotting.key(ax, loc="lower right")


FIGURE = Figure(
    name="bias",
    title="A bias decides over squared ReLU and does nothing for softmax",
    subtitle="Sparsity against the bias, at spread γ = 1, in the limit of long rows",
    caption=(
        "Softmax and decay do not see the bias. Signed linear attention is sparsest without one. "
        "Squared ReLU goes to 0 with a negative bias and to 1 with a positive one. Nonnegative "
        "linear attention is shown at its sparsest, a one-hot query on features elu(k) + 1 of keys "
        "k ~ N(β, 1): a negative bias brings it to softmax, no further. Decay: λ = 0.95, n = 256. "
        "Lines: closed forms (the features' moments by quadrature). Points: Monte Carlo; their "
        "95 % error bars are smaller than the markers."
    ),
    alt=(
        "Line chart of sparsity against bias from −4 to 4. Softmax is flat at 0.61 and decay at "
        "0.39; signed linear is a symmetric valley with its bottom at 0.80; squared ReLU rises "
        "from 0 to 0.9; nonnegative linear rises from 0.61 to 0.98. Monte Carlo points lie on the "
        "curves."
    ),
    data=data,
    draw=draw,
)
