"""E Σ p⁽¹⁾p⁽²⁾ of two softmax maps over the same keys, whose scores are correlated.

With X = te^x, Y = ue^y of a key of scores x, y, φ(t, u) = E e^(−X−Y) and 1/Z = ∫ e^(−tZ) dt twice,

    E Σ p⁽¹⁾p⁽²⁾ = n ∫∫ E[XY e^(−X−Y)] φ^(n−1) d ln t d ln u.

Means over both scores are products of matrices; every rule is trapezoidal. E Σa² of differential
rows, or what two heads read alike, is made of it.
"""

from __future__ import annotations

import math

import numpy as np

from sparsity.exact_law.integration import (
    DEPTH,
    EXPONENTIAL,
    FAR,
    PRODUCT,
    STEP_OF_U,
    log_times,
    normal_points,
    normal_step,
    refuse_slow,
)


def _mean_product(
    gamma: float, gamma2: float, rho: float, n: np.ndarray, step: float
) -> np.ndarray:
    """Return E Σ p⁽¹⁾p⁽²⁾ of rows of n ≥ 2, [lengths], by the rule of a step in ln t."""
    spreads, most = (gamma, gamma2), float(n.max())
    # Points of a normal behind both scores, and of what is the second's own, given the first.
    rest = gamma2 * math.sqrt((1 - rho) * (1 + rho))
    far = FAR + gamma + gamma2  # a weight in front of the density moves it by its spread
    steepest = max(gamma, abs(rho) * gamma2)
    first, second = (1 + 2 * far / normal_step(c, step) if c else 1.0 for c in (steepest, rest))
    along = [(DEPTH + math.log(most) + 2 * FAR * spread) / step for spread in spreads]
    numbers = second * along[1] + first * along[0] + along[0] * along[1]
    seconds = EXPONENTIAL * (first * second * along[1] + along[0] * along[1] * len(n))
    # Products of large matrices are ten times as fast as of small ones.
    seconds += PRODUCT / 10 * first * along[0] * along[1]
    widest, value = max(zip(("gamma", "gamma2"), spreads, strict=True), key=lambda pair: pair[1])
    refuse_slow(widest, value, seconds, 2 * numbers)
    z, share = normal_points(steepest, far, step)
    y, weight = normal_points(rest, far, step)
    u1, u2 = (log_times(spread, most, step) for spread in spreads)
    x = np.exp(np.minimum(u1[:, None] + gamma * z, 700.0))
    lost2, once2 = np.empty((len(z), len(u2))), np.empty((len(z), len(u2)))
    # Means over two normals as two matrix products: over the second's own part first, at each point
    # of what both share.
    for i, at in enumerate(rho * gamma2 * z):  # the second score, given the first
        of = np.exp(np.minimum(u2[:, None] + at + rest * y, 700.0))
        lost2[i], once2[i] = -np.expm1(-of) @ weight, (of * np.exp(-of)) @ weight
    kept = np.exp(-x) * share
    lost = (-np.expm1(-x) @ share)[:, None] + kept @ lost2  # 1 − φ, with its digits
    log_phi = np.log1p(-np.minimum(lost, 1 - 1e-16))
    both = (x * kept) @ once2
    return np.array([m * (both * np.exp((m - 1) * log_phi)).sum() for m in n]) * step**2


def mean_product(
    gamma: float, gamma2: float, rho: float, length: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return E Σ p⁽¹⁾p⁽²⁾ over rows of n, and the relative difference to a rule twice as coarse.

    Args:
        gamma: spread γ₁ > 0 of the first scores.
        gamma2: spread γ₂ > 0 of the second.
        rho: their correlation, in [−1, 1].
        length: row lengths n ≥ 1, [lengths].

    Raises:
        TooFine: spreads at which it takes more than seconds.
    """
    n = np.asarray(length, dtype=np.float64)
    value, error = np.ones(n.shape), np.zeros(n.shape)
    if (several := n > 1).any():
        steps = STEP_OF_U, 2 * STEP_OF_U
        fine, coarse = (_mean_product(gamma, gamma2, rho, n[several], step) for step in steps)
        value[several], error[several] = fine, np.abs(coarse / fine - 1)
    return value, error
