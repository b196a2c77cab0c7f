"""More i.i.d. features never sharpen nonnegative attention

Against d: sparsity of a = q̃ᵀk̃, i.i.d. nonnegative features of noise-to-signal ratio σ̃/μ̃

S = 1/√(1 + (σ̃ρ/μ̃)²) with ρ = ‖q̃‖₂/‖q̃‖₁ between 1/√d and 1. The sparsest query is one-hot, ρ =
1, and its S is that of a single feature in every dimension; dense queries (uniform, half-normal)
only get flatter as d grows. What helps is noise: a larger σ̃/μ̃. Lines: the closed form. Points:
Monte Carlo with whole ReLU features of Gaussian keys; their 95 % error bars are smaller than the
markers.

Alt text: Line chart of sparsity against feature dimension from 1 to 1024. For noise-to-signal
ratios one half, one and two the one-hot query gives flat lines at 0.89, 0.71 and 0.45; the
half-normal and uniform queries start there at d = 1 and rise to 1. Monte Carlo points lie on the
curves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import brentq

from sparsity import plotting
from sparsity.figures.figure import Canvas, Context, Data, Figure
from sparsity.kernels import Kernel
from sparsity.kernels.queries import named
from sparsity.kernels.zoo import relu
from sparsity.limit.evaluation import evaluate
from sparsity.limit.quadrature import moment
from sparsity.sampling import estimators
from sparsity.series import Point, from_sweeps
from sparsity.sweeps.curves import sweep

RATIOS = {0.5: "½", 1.0: "1", 2.0: "2"}
DIMS = (2, 8, 32)  # sampled
QUERIES = ("one-hot", "half-normal", "uniform")
_MARKERS = ("o", "^", "s")


# Points here, and in figures that show such features beside other kernels, are keys drawn whole:
# real features h(k) of Gaussian keys.


def noise_ratio(feature: Kernel, mean: Any) -> np.ndarray:
    """Return σ̃/μ̃ of h(k), k ~ N(mean, 1), by quadrature of its first two moments."""
    # σ̃²/μ̃² = E h²/(E h)² − 1, from the logarithms of both moments: expm1 keeps the digits of a
    # small ratio, where the quotient is nearly 1.
    (m1, _), (m2, _) = (moment(feature, p, mean, 1.0) for p in (1, 2))
    return np.sqrt(np.expm1(m2 - 2 * m1))


def sample_features(context: Context, feature: Kernel, mean: float, query: str, dim: int) -> Point:
    """Sample S of q̃ᵀh(k), k ~ N(mean, 1)."""
    settings = context.sampling(feature.name, mean, query, dim)
    return Point.of(estimators.features(feature, named(query).vector(dim), mean, 1.0, settings))


def sample_noisy_features(context: Context, ratio: float, query: str, dim: int) -> Point:
    """Sample ReLU features whose keys have the mean that gives them the ratio σ̃/μ̃."""

    def excess(mean: float) -> Any:
        return np.log(noise_ratio(relu, mean) / ratio)

    # The ratio of relu falls with the mean, from over 200 at −4 to 1/20 at 20.
    mean: Any = brentq(excess, -4, 20, xtol=1e-12)
    return sample_features(context, relu, float(mean), query, dim)


def data(context: Context) -> Data:
    """Compute S(d) for every σ̃/μ̃ and query family."""
    lines = sweep("nonnegative", ratio=list(RATIOS), query=QUERIES, dim="1:1024:120:log")
    found = []
    for curve in from_sweeps(
        lines, None, "dim", lambda key: f"σ̃/μ̃ = {RATIOS[key['ratio']]}, {key['query']}"
    ):
        ratio, query = curve.key["ratio"], curve.key["query"]
        points = {float(d): sample_noisy_features(context, ratio, query, d) for d in DIMS}
        log = evaluate("nonnegative", ratio=ratio, dim=DIMS, query=query).log_S
        found.append(curve.with_points(log, points))
    return tuple(found)


def draw(data: Data, canvas: Canvas) -> None:
    """Draw with the colour telling σ̃/μ̃, the marker the query family."""
    ax = plotting.axes(canvas, "dimension of the features  d", plotting.SPARSITY, right=0.855)
    ax.set(xscale="log", xlim=(1, 1024), ylim=(0.4, 1.015))
    plotting.plain_ticks(ax.xaxis, (1, 4, 16, 64, 256, 1024))
    colors = [look.color for look in plotting.LOOKS[:3]]
    plotting.curves(ax, data, [plotting.Look(c, "-", m) for c in colors for m in _MARKERS])
    floors = zip(data[:: len(QUERIES)], colors, strict=True)
    plotting.end_labels(ax, [(d.theory[-1], d.label.split(",")[0], c) for d, c in floors])
    families = [
        (f"{query} query", plotting.Look(plotting.GREY, "-", marker))
        for query, marker in zip(QUERIES, _MARKERS, strict=True)
    ]
    plotting.key(ax, lines=families, loc="lower right", bbox_to_anchor=(1.0, 0.13))


FIGURE = Figure.from_docstring(__doc__, "nonnegative", data, draw)
