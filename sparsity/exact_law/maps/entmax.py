"""The exact law of entmax-1.5 rows: support and participation.

Entmax of order 1.5 is the threshold map of weights p = (x/c)², c = 2/γ; the scheme is
`threshold_maps`. The exponent zx² leaves a normal density, so that all means over one key are Mills
ratios (`gaussian_tail`). Where every key has a weight, powers of γ take the place of the integral.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsity.exact_law.integration import refuse_unresolved
from sparsity.exact_law.maps.gaussian_tail import of_squared_excess
from sparsity.exact_law.maps.threshold_maps import (
    KeyMeans,
    SupportAndParticipation,
    ThresholdMap,
)

_ALL_IN = 14.0  # c/√n from which every key has a weight


class EntmaxThreeHalves(ThresholdMap):
    """The means over one key of p = x²/c², with z in units of 1/c²."""

    q = 2.0
    points = 241
    bisections = 44

    def __init__(self, gamma: float) -> None:
        self.c = 2 / gamma
        self.total = self.c**2

    def means(self, t: np.ndarray, z: np.ndarray) -> KeyMeans:
        """Return the means over one key; the slope of x² is 2x."""
        g, log_h, h = of_squared_excess(t, z)
        square = self.c**4
        return KeyMeans(g[0], 2 * g[1], g[4] / square, 2 * g[5] / square, log_h, h)

    def means_on_axis(self, t: np.ndarray, z: np.ndarray) -> tuple[KeyMeans, Any, Any]:
        """Return these at real arguments, in units of x."""
        g, log_h, h = of_squared_excess(t, z)
        return KeyMeans(g[0], 2 * g[1], g[4], 2 * g[5], log_h, h), g[2], 2 * g[3]

    def bracket(self, t: np.ndarray, n: np.ndarray) -> Any:
        """Return ends in ln(1 + 2z): z > −½, where the density ends."""
        most = 1 + 2 * (4 * (n + 4) / self.c**2 + 2 * np.abs(t) / self.c + 10)
        high = np.log(np.broadcast_to(most, t.shape))
        return np.full(t.shape, -60.0), high, lambda x: 0.5 * np.expm1(x)


def _every_key_in(gamma: float, n: np.ndarray) -> np.ndarray:
    """Return E K and E Y₂ of rows of which every key has a weight, [2, lengths].

    The weights are then squares of x = s − mean + √((c² − Σ(s − mean)²)/n), and Σp² a polynomial of
    the scores. Means over rows of Σs²/n, its square and Σs⁴/n are those of χ² of n − 1 degrees of
    freedom.
    """
    square = (gamma * n**0.5) ** 2
    second, both = square * (n - 1) / n, square**2 * (n * n - 1) / n**2
    return np.stack([n, (1 + second - 0.3125 * both + 0.1875 * second**2) / n])


def support_and_participation(gamma: float, length: np.ndarray) -> SupportAndParticipation:
    """Return the means over rows of the support size K and of the participation Y₂ = Σp².

    Args:
        gamma: spread γ > 0 of the scores.
        length: row lengths n ≥ 1, [lengths].

    Raises:
        InputError: a spread at which the law is not resolved.
    """
    row, n = EntmaxThreeHalves(gamma), np.asarray(length, dtype=np.float64)
    error = np.where(row.c >= _ALL_IN * np.sqrt(n), 1e-15, np.inf)
    error[n == 1] = 0.0
    means = SupportAndParticipation(
        _every_key_in(gamma, n), np.stack([error, error]), np.ones(n.shape)
    )
    some = np.isinf(error)
    if some.any():
        means.replace(some, row.support_and_participation(n[some]))
    refuse_unresolved(means.error, gamma, "entmax-1.5")
    return means
