"""The exact law of top-k softmax rows: one integral more than softmax has, over the k-th score.

Given the k-th largest of n scores, ξ in standard deviations, the k − 1 above it are independent
with the law of ε given ε > ξ. So any quantity that has an integral over u = ln t (`Integral`) has
the mean F(ξ) of a row of k weights: k − 1 alike, e^(γ(ε−ξ)), and a fixed one of 1. F is smooth and
does not know n: it is computed at Chebyshev nodes, once for all lengths, and

    E F = ∫ F(ξ) φ(ξ) Φ(ξ)^(n−k) Φ̄(ξ)^(k−1) dξ / ∫ φ(ξ) Φ(ξ)^(n−k) Φ̄(ξ)^(k−1) dξ.

The bound holds half the nodes, and twice the steps in u and in ξ.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import chebval

from sparsity.exact_law import integration
from sparsity.exact_law.transforms.laplace import log_power_of, order_of, transforms
from sparsity.quantities import Integral
from sparsity.quantities.base import clip_to_range
from sparsity.special import log_ndtr

_NODES = 97  # of ξ for F, odd: every other one is a rule too
_PANEL = 16  # points of a panel of the excess ε − ξ
_WIDEST = 1.0  # panel, in standard deviations; in e-folds of the weight twice that
_POINTS = 257  # of ξ for the mean, odd
_DEPTH = 42.0  # e-folds down to which anything counts
_FAR = 40.0  # standard deviations that no score has
_ROUNDING = 1e-12  # allowed for in every bound, beside the gaps of the rules
_POINT = 1.2e-4  # seconds of a point of u, of all ξ; measured


def kth_scores(n: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return values of ξ and the probability of each, [lengths, points]."""

    def log_density(xi: np.ndarray) -> np.ndarray:
        return (n - k)[:, None] * log_ndtr(xi) + (k - 1) * log_ndtr(-xi) - 0.5 * xi**2

    ends = np.full(len(n), -_FAR), np.full(len(n), _FAR)
    low, high = integration.narrowed(*ends, log_density, depth=_DEPTH, points=_POINTS)
    xi = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, _POINTS)
    size = log_density(xi)
    return xi, np.exp(size - size.max(axis=1, keepdims=True))


def _chebyshev_series(values: np.ndarray) -> np.ndarray:
    """Return the coefficients of the series through values at −cos(πi/N), i = 0 … N."""
    from scipy.fft import dct  # slow to import, and every law reads this

    series: Any = dct(values[::-1] / (len(values) - 1), type=1, axis=0)
    series[[0, -1]] /= 2
    return series


def _means_given(
    xi: np.ndarray, k: int, gamma: float, integral: Integral
) -> tuple[np.ndarray, np.ndarray]:
    """Return F(ξ) but for its factor of n, by the rule over u and by twice its step, [nodes]."""
    steepness = integral.power * gamma
    lowest = float(xi.min())
    reach = -lowest + math.hypot(lowest, math.sqrt(2 * _DEPTH))  # an excess that no score has
    start = -_DEPTH * (2 if integral.sqrt_tail else 1) - math.log(k) - steepness * reach
    points = (math.log(_DEPTH) - start) / integration.STEP_OF_U
    panels = math.ceil(reach / min(_WIDEST, 2 * _WIDEST / steepness))
    # Of all ξ together, that each point's exponentials are taken once; two copies and more.
    held = len(xi) * (2 * (2 + len(integral.moments)) * points + 4 * _PANEL * panels)
    integration.refuse_slow("gamma", gamma, _POINT * points, held)
    edges = np.linspace(0, reach, panels + 1)
    excess, share = (x.ravel() for x in integration.gauss_panels(edges, _PANEL))
    # Given ξ the k − 1 scores above it are independent, of the density of the excess, φ(ξ +
    # e)/φ(ξ).
    share = share * np.exp(-xi[:, None] * excess - 0.5 * excess**2)
    u = integration.grid_points(start, math.log(_DEPTH), integration.STEP_OF_U)
    orders = (0.0, *integral.moments)
    share /= share.sum(axis=1, keepdims=True)
    missing, phi, *alike = transforms(steepness * excess, share, orders, u)
    with np.errstate(divide="ignore"):
        log_phi = integration.log_complement(missing, phi)
    t, over = np.exp(u), 1 / np.maximum(phi, 1e-290)
    alike = [moment * over for moment in alike]
    fixed = [t ** order_of(moment) * u ** log_power_of(moment) for moment in integral.moments]
    sums = [
        (k - 1) * function(*alike) + function(*fixed) if whose == "token" else 0.0 * u
        for function, whose in integral.sums
    ]
    body = integral.combine(1.0, *sums) * np.exp((k - 1) * log_phi - t)
    step = integration.STEP_OF_U
    return body.sum(axis=1) * step, body[:, ::2].sum(axis=1) * 2 * step


def top_k_mean(
    k: int, gamma: float, length: np.ndarray, integral: Integral
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of a quantity over rows of n > k tokens, and a bound on its relative error.

    Args:
        k: how many of the largest scores have a weight, ≥ 1.
        gamma: spread γ > 0 of the scores.
        length: row lengths n > k, [lengths].
        integral: of the quantity; none of its sums is over sinks.

    Raises:
        TooFine: a spread at which the law takes more than seconds.
    """
    n = np.asarray(length, dtype=np.float64)
    if k == 1:
        return np.array([integral.ends(m, k, False)[0] for m in n]), np.zeros(n.shape)
    xi, share = kth_scores(n, k)
    low, high = float(xi.min()), float(xi.max())
    nodes = low + (high - low) * (1 - np.cos(np.pi * np.arange(_NODES) / (_NODES - 1))) / 2
    means, coarse = _means_given(nodes, k, gamma, integral)
    # F is smooth in ξ and does not turn on n: a Chebyshev series of 97 values serves all lengths.
    # The same values at every other node are the series of half the degree: they bound the first.
    at = 2 * (xi - low) / (high - low) - 1
    curve, twice, half = (chebval(at, _chebyshev_series(x)) for x in (means, coarse, means[::2]))

    def mean(of: np.ndarray, step: int = 1) -> np.ndarray:
        part = slice(None, None, step)
        return (of[:, part] * share[:, part]).sum(axis=1) / share[:, part].sum(axis=1)

    value = mean(curve)
    error = integration.relative_gap(value, mean(half), mean(curve, 2), mean(twice)) + _ROUNDING
    value = value * [integral.factor(m) for m in n]
    return clip_to_range(value, error, np.transpose([integral.ends(m, k, False) for m in n])), error
