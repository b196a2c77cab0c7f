"""The exact law of differential rows: E Σa² of a = p⁽¹⁾ − λ p⁽²⁾, by one integral over two times.

E Σa² = E Σ(p⁽¹⁾)² + λ² E Σ(p⁽²⁾)² − 2λ E Σ p⁽¹⁾p⁽²⁾: the first two are the participation of softmax
rows. With x_i = t_i e^(s_i) of a token, φ(t₁, t₂) = E e^(−x₁ − x₂) and 1/Z = ∫ e^(−tZ) dt twice,

    E Σ p⁽¹⁾p⁽²⁾ = n ∫∫ E[x₁x₂ e^(−x₁ − x₂)] φ^(n−1) du₁ du₂,    u = ln t.

The trapezoidal rule converges exponentially in u and in the normals behind the scores; the bound
holds the rule of twice the step. Σ|a| is in `differential_abs`; ratios of it to Σa² are sampled.
"""

from __future__ import annotations

import math

import numpy as np

from sparsity import kernels, quantities
from sparsity.errors import RESOLVED, InputError
from sparsity.exact_law import engine
from sparsity.exact_law.trapezoid import DEPTH, FAR, STEP, count_pairs, pairs, times, widest
from sparsity.exact_law.work import EXPONENTIAL, PRODUCT, plan
from sparsity.rows.row import Row

_ROUNDING = 1e-13


def _cross(spreads: tuple[float, float], rho: float, n: np.ndarray, step: float) -> np.ndarray:
    """E Σ p⁽¹⁾p⁽²⁾ of rows of n ≥ 2, [lengths], by the rule of a step in u."""
    (g1, g2), most = spreads, float(n.max())
    first, second = count_pairs(spreads, rho, step)
    along = [(DEPTH + math.log(most) + 2 * FAR * spread) / step for spread in spreads]
    numbers = second * along[1] + first * along[0] + along[0] * along[1]
    seconds = EXPONENTIAL * (first * second * along[1] + along[0] * along[1] * len(n))
    plan(*widest(spreads), seconds + PRODUCT / 10 * first * along[0] * along[1], 2 * numbers)
    own, z, share, y, weight = pairs(spreads, rho, step)
    u1, u2 = (times(spread, most, step) for spread in spreads)
    x = np.exp(np.minimum(u1[:, None] + g1 * z, 700.0))
    lost2, once2 = np.empty((len(z), len(u2))), np.empty((len(z), len(u2)))
    for i, at in enumerate(rho * g2 * z):  # the second score, given the first
        of = np.exp(np.minimum(u2[:, None] + at + own * y, 700.0))
        lost2[i], once2[i] = -np.expm1(-of) @ weight, (of * np.exp(-of)) @ weight
    kept = np.exp(-x) * share
    lost = (-np.expm1(-x) @ share)[:, None] + kept @ lost2  # 1 − φ
    log_phi = np.log1p(-np.minimum(lost, 1 - 1e-16))
    both = (x * kept) @ once2
    return np.array([m * (both * np.exp((m - 1) * log_phi)).sum() for m in n]) * step**2


def square_sum(
    gamma: float, gamma2: float, rho: float, mix: float, length: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """E Σa² over rows of n, and a bound on its relative error.

    Args:
        gamma: spread γ₁ > 0 of the first scores.
        gamma2: spread γ₂ > 0 of the second.
        rho: their correlation, in [−1, 1].
        mix: λ ≥ 0.
        length: row lengths n ≥ 1, [lengths].

    Raises:
        TooFine: spreads at which the law takes more than seconds.
        InputError: maps that cancel to rounding.
    """
    n = np.asarray(length, dtype=np.float64)
    if mix == 0:
        softmax = engine.law(Row(kernels.exp, gamma=gamma), quantities.participation, n)
        return softmax[0], softmax[2]
    law = engine.laws(
        kernels.exp, np.zeros(2), np.array([gamma, gamma2]), quantities.participation, n
    )
    (first, second), (off, gap) = law[0], law[2]
    cross, error = np.ones(n.shape), np.zeros(n.shape)
    if (several := n > 1).any():
        fine, coarse = (_cross((gamma, gamma2), rho, n[several], step) for step in (STEP, 2 * STEP))
        cross[several], error[several] = fine, np.abs(coarse / fine - 1)
    value = first + mix**2 * second - 2 * mix * cross
    size = first * off + mix**2 * second * gap + 2 * mix * cross * error
    size += _ROUNDING * (first + mix**2 * second)
    if not (size < RESOLVED * value).all():
        fix = "the two maps cancel to within the rounding of the law; use a mix that differs"
        raise InputError("mix", mix, fix)
    return value, size / value
