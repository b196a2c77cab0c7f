"""The exact law of sparsemax rows: support, participation and the largest weight.

Sparsemax is the threshold map of q = 1: the weights are p = x/c, c = 1/γ, their slope is constant,
and all means over one key are error functions (`gaussian_tail`). The scheme is `threshold_maps`.

The largest weight is the largest score less the threshold, E max p = γ(E max ε − E t), and both
have a law: the first one that of order statistics; E(t − t₀) is a mean like any other, with t₀
amid the thresholds. Where they cancel, the bound says how much.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sparsity.exact_law.integration import refuse_unresolved
from sparsity.exact_law.maps.gaussian_tail import ROOT_2_PI, of_excess
from sparsity.exact_law.maps.threshold_maps import (
    DEPTH,
    KeyMeans,
    Place,
    SupportAndParticipation,
    ThresholdMap,
    integrate,
)
from sparsity.quantities.base import within
from sparsity.special import log_ndtr, ndtri_exp

_DEEPEST = 36.0  # of √(t² − (t + z)²), beyond which e^(half its square) leaves float64
ALL_IN = 11.0  # standard deviations below the mean that no score of a row has
_MAXIMUM_STEP = 0.02  # of the largest score
_ROUNDING_OF_T = 3e-14  # of a mean over thresholds, per standard deviation of the scores


class Sparsemax(ThresholdMap):
    """The means over one key of p = x/c, with z in units of 1/c: z·Σx = zc at the threshold."""

    q = 1.0
    rounding = np.array([[3e-13], [3e-12]])  # of E K, and of E Y₂, in whose J₂ digits cancel
    held = 2**17

    def __init__(self, gamma: float) -> None:
        self.c = self.total = 1 / gamma

    def means(self, t: np.ndarray, z: np.ndarray) -> KeyMeans:
        """Return the means over one key, by the Mills ratio; the slope is 1 above the threshold."""
        excess = of_excess(t, z)
        square = excess.second / self.c**2
        return KeyMeans(excess.above, excess.above, square, square, excess.log_all, excess.all)

    def means_on_axis(self, t: np.ndarray, z: np.ndarray) -> tuple[KeyMeans, Any, Any]:
        """Return these at real arguments, in units of x, and E[x e^(−zx); ε > t]."""
        # 1 − yJ₀ loses digits as y grows, (J₀ − J₂)/y as it goes to 0: they change places at 2.
        excess, y = of_excess(t, z), t + z
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # by J₁ = 1 − yJ₀ and J₂ = J₀ − yJ₁
            near = np.exp(-0.5 * t * t) / ROOT_2_PI - y * excess.above
            first = np.where(np.abs(y) < 2, near, (excess.above - excess.second) / y)
        above, second, log_all, all_ = excess
        return KeyMeans(above, above, second, second, log_all, all_), first, first

    def bracket(self, t: np.ndarray, n: np.ndarray) -> Any:
        """Return ends between −c and n/c in t + z, of which the coordinate is the arsinh."""
        low = np.arcsinh(np.maximum(-self.c, -np.sqrt(t * t + _DEEPEST**2)))
        high = np.arcsinh(np.broadcast_to(n / self.c, t.shape)) + 1e-3
        return low, high, lambda x: np.sinh(x) - t


def support_and_participation(gamma: float, length: np.ndarray) -> SupportAndParticipation:
    """Return the means over rows of the support size K and of the participation Y₂ = Σp².

    Args:
        gamma: spread γ > 0 of the scores.
        length: row lengths n ≥ 1, [lengths].

    Raises:
        InputError: a spread at which the law is not resolved.
    """
    n, row = np.asarray(length, dtype=np.float64), Sparsemax(gamma)
    # Where no score is as far as 1/n below the mean, every key has a weight: p = 1/n + s − mean.
    value = np.stack([n, 1 / n + gamma**2 * (n - 1)])
    means = SupportAndParticipation(value, np.full(value.shape, 1e-15), np.ones(n.shape))
    means.error[:, n == 1] = 0.0
    some = (n > 1) & (row.c < ALL_IN * n)
    if some.any():
        means.replace(some, row.support_and_participation(n[some]))
        refuse_unresolved(means.error, gamma, "sparsemax")
    return means


def expected_maximum(n: float, power: int = 1) -> float:
    """Return E of a power of the largest of n standard normals."""
    low, high = float(ndtri_exp(-DEPTH / n)), -float(ndtri_exp(-DEPTH - math.log(n)))
    # The density nφΦ^(n−1) of the largest is analytic and falls at both ends. Dividing by its own
    # sum takes out what the rule loses of 1.
    step = min(_MAXIMUM_STEP, (high - low) / 400)
    x = np.arange(low, high + step, step)
    share = np.exp(math.log(n) - 0.5 * x * x + (n - 1) * log_ndtr(x)) / ROOT_2_PI
    return float((x**power * share).sum() / share.sum())


def _likeliest(place: Place) -> np.ndarray:
    """Return the threshold of each length at which the integrand is largest, [lengths, 1]."""
    return place.t[np.arange(len(place.t)), place.log_size.argmax(axis=1)][:, None]


def _max_by_threshold(row: Sparsemax, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return E max p and a bound on its absolute error."""
    n = n[:, None]

    def integrands(place: Place, m: np.ndarray) -> np.ndarray:
        """Return those of 1 and t − t₀."""
        z, share = row.contour(place)
        excess = of_excess(place.t[..., None], z)
        body: Any = np.exp(z * row.c + (m[..., None] - 1) * excess.log_all + np.log(m)[..., None])
        body = (body * excess.above * share).real
        body = np.where(np.isfinite(body), body, 0.0)  # far out, where h or e^(zc) is nothing
        return np.stack([body, body * (place.t - _likeliest(place))[..., None]])

    # t is taken from its likeliest value, so that E t keeps the digits of the width of its law, in
    # long rows much less than t.
    place = row.places(n)
    start = _likeliest(place)
    (total, shift), *coarse = integrate(place, n, integrands, row.held)
    off = sum(np.abs(other[1] - shift) for other in coarse)
    off += np.abs(total - 1) * np.abs(place.t - start).max(axis=1)
    off += _ROUNDING_OF_T * (1 + np.abs(start[:, 0]))
    top = np.array([expected_maximum(m) for m in n[:, 0].tolist()])
    return (top - start[:, 0] - shift) / row.c, off / row.c


def max_weight(gamma: float, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of the largest weight over rows, and a bound on its relative error.

    Args:
        gamma: spread γ > 0 of the scores.
        length: row lengths n ≥ 1, [lengths].

    Raises:
        InputError: a spread at which the law is not resolved.
    """
    n, row = np.asarray(length, dtype=np.float64), Sparsemax(gamma)
    value, error = np.ones(n.shape), np.zeros(n.shape)
    whole = (n > 1) & (row.c >= ALL_IN * n)  # where p = 1/n + s − mean
    value[whole] = [1 / m + gamma * expected_maximum(m) for m in n[whole].tolist()]
    error[whole] = 1e-14
    some = (n > 1) & ~whole
    if some.any():
        with np.errstate(all="ignore"):  # far out, where nothing falls
            value[some], off = _max_by_threshold(row, n[some])
        error[some] = off / value[some]
    refuse_unresolved(error, gamma, "sparsemax")
    return within(value, error, (1 / n, np.ones(n.shape))), error
