"""The exact laws of what two softmax rows have in common, whose scores correlate by ρ over keys.

With X = te^x, Y = ue^y of a key of scores x, y, φ(t, u) = E e^(−X−Y) and 1/Z = ∫ e^(−tZ) dt twice,

    E Σ p p′ = n ∫∫ E[XY e^(−X−Y)] φ^(n−1) d ln t d ln u.

Every rule is trapezoidal, and means over both scores are products of matrices. What the second
score is beside its part of the first enters by ln u + ργz alone: a spline in it serves every u, z.

Of two sets of k largest the share in common is that of the k keys a proxy of correlation ρ reads,
of the k largest scores (`maps.router`). The weights do not matter to it.
"""

from __future__ import annotations

import math

import numpy as np

from sparsity.exact_law.integration import (
    PRODUCT,
    STEP_OF_U,
    grid_points,
    normal_points,
    refuse_slow,
    relative_gap,
)
from sparsity.exact_law.maps import router
from sparsity.quantities import Quantity
from sparsity.quantities.base import Means, clip_to_range
from sparsity.rows.classes import normal_law_in_sight
from sparsity.rows.row import Row

_STEP_V = 0.05  # of the spline: of order 7, in a strip of half-width π/2, it is right to 1e-14
_DEEP = 40.0  # e-folds below 1/n, about the value, down to which anything counts
_ROUNDING = 1e-12  # allowed for in every bound, beside the gap of the two rules


def _times_that_count(
    spread: float, n: np.ndarray, normals: tuple[np.ndarray, np.ndarray], step: float, depth: float
) -> np.ndarray:
    """Return points of u = ln t between which all but n·e^(−depth) of one map's integrand lies."""
    # ∫ X e^(−X) du over all u is 1 for every score. Of its mean, n·(1 − φ₁) is the part below u,
    # and above it φ^(n−1) is no more than φ₁^(n−1).
    z, share = normals
    far = spread * float(z[-1])
    u = grid_points(-far - depth - math.log(n.max()), far + 4.0, 4 * step)
    missing = -np.expm1(-np.exp(np.minimum(u[:, None] + spread * z, 700.0))) @ share
    with np.errstate(divide="ignore"):
        alive = (n.min() - 1) * np.log1p(-np.minimum(missing, 1 - 1e-16)) > -depth
        (counts,) = np.nonzero(alive & (np.log(n.max() * missing) > -depth))
    low, high = u[[max(counts[0] - 1, 0), min(counts[-1] + 1, len(u) - 1)]]
    return grid_points(low, high, step)


def _mean_product(
    gamma: float, gamma2: float, rho: float, n: np.ndarray, step: float
) -> np.ndarray:
    """Return E Σ p p′ of rows of n ≥ 2, [lengths], by the rule of a step in ln t."""
    from scipy.interpolate import make_interp_spline  # slow to import, and every law reads this

    # Points of a normal behind both scores, and of what is the second's own, given the first: what
    # is beyond them, in n keys, is less than n·e^(−depth).
    depth = _DEEP + 2 * math.log(n.max())
    far, rest = math.sqrt(2 * depth), gamma2 * math.sqrt((1 - rho) * (1 + rho))
    widest, value = max(("gamma", gamma), ("gamma2", gamma2), key=lambda pair: pair[1])
    points, along = 2 * far * value / step, (far * value + depth) / step
    refuse_slow(widest, value, PRODUCT * points * along * along, points * along)
    z, share = normal_points(max(gamma, abs(rho) * gamma2), far, step)
    y, weight = normal_points(rest, far, step)
    u1 = _times_that_count(gamma, n, (z, share), step, depth)
    u2 = _times_that_count(gamma2, n, normal_points(gamma2, far, step), step, depth)
    at = u2 + rho * gamma2 * z[:, None]
    points = grid_points(at.min() - 8 * _STEP_V, at.max() + 9 * _STEP_V, _STEP_V)
    of = np.exp(np.minimum(points[:, None] + rest * y, 700.0))
    table = np.transpose([-np.expm1(-of) @ weight, (of * np.exp(-of)) @ weight])
    lost2, once2 = np.moveaxis(make_interp_spline(points, table, k=7)(at), -1, 0)
    x = np.exp(np.minimum(u1[:, None] + gamma * z, 700.0))
    kept = np.exp(-x) * share
    lost = (-np.expm1(-x) @ share)[:, None] + kept @ lost2  # 1 − φ, with its digits
    log_phi = np.log1p(-np.minimum(lost, 1 - 1e-16))
    both = (x * kept) @ once2
    return np.array([m * (both * np.exp((m - 1) * log_phi)).sum() for m in n]) * step**2


def mean_product(
    gamma: float, gamma2: float, rho: float, length: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return E Σ p p′ over rows of n, and a bound on its relative error.

    Args:
        gamma: spread γ > 0 of the first scores.
        gamma2: spread γ′ > 0 of the second.
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
        lost = 10 * math.exp(-_DEEP) / n[several]  # at the ends of four rules
        with np.errstate(divide="ignore", over="ignore"):
            value[several] = fine
            error[several] = relative_gap(fine, coarse) + lost / fine + _ROUNDING
    return value, error


def mean_over_pairs(row: Row, quantity: Quantity, n: np.ndarray) -> Means:
    """Return the mean of a quantity of two rows of n, P(row ≠ 0) and relative error bounds.

    Args:
        row: of softmax weights of one law of Gaussian scores.
        quantity: of a pair.
        n: row lengths, [lengths].

    Raises:
        InputError: another row, or one too steep or too nearly the other.
    """
    pair = quantity.pair
    assert pair is not None
    value, error = np.empty(n.shape), np.empty(n.shape)
    for i, length in enumerate(n.tolist()):
        gamma, seen = normal_law_in_sight(row, int(length), quantity.name)
        m = np.array([seen])
        if pair.keys and (pair.keys >= seen or gamma == 0 or pair.rho == 1):
            value[i], error[i] = 1.0, 0.0  # of equal weights the first k are the largest
        elif pair.keys and pair.rho == -1:  # the largest of one row are the least of the other
            value[i], error[i] = pair.ends(seen)[0], 0.0
        elif gamma == 0:
            value[i], error[i] = 1 / seen, 0.0
        elif pair.keys:
            # Of the keys left out, as many are so in both rows as 2k − n less than are in both.
            left = seen - pair.keys
            few = int(min(pair.keys, left))
            share, off = (float(x[0]) for x in router.shared(few, pair.rho, m))
            more = max(pair.keys - left, 0.0)
            value[i] = (more + few * share) / pair.keys
            error[i] = off * few * share / (more + few * share) + _ROUNDING
        else:
            value[i], error[i] = (x[0] for x in mean_product(gamma, gamma, pair.rho, m))
        value[i] = clip_to_range(value[i], error[i], pair.ends(seen))
    return Means(value, np.ones(n.shape), error)
