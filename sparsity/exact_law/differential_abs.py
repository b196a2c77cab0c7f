"""The exact law of Σ|a| of differential rows, a = p − λq: one contour over two scales.

E Σ|a| = 1 + λ − 2 E Σ min(p, λq), and min(p, r) is a Mellin integral over z = ½ + iη,

    E min(p, λq) = (1/2πi) ∫ dz λ^z/(z(1 − z)) E q^z p^(1−z).

With Z^(−z) Γ(z) = ∫ u^(z−1) e^(−uZ) du for both totals, X = te^x, Y = ue^y of a key of scores x, y,
and φ(t, u) = E e^(−X−Y),

    E q^z p^(1−z) = (sin πz)/π ∫∫ E[X^(1−z) Y^z e^(−X−Y)] φ^(n−1) d ln t d ln u.

sin πz grows like e^(πη), which t and u cancel: less so, turned by e^(−iα) and e^(iα), which
leaves e^((π − 2α)η) of it. Means over both scores are products of matrices, one for each z, and all
lengths share them. Every rule is trapezoidal; |n E q^z p^(1−z)| ≤ 1 for 0 < Re z < 1, by Hölder.
The bound holds a rule of wider steps, and what the last η leaves. In short rows the integrand over
η falls slowly: rows of two or three tokens have a rule of their own.
"""

from __future__ import annotations

import math

import numpy as np

from sparsity.errors import RESOLVED, InputError
from sparsity.exact_law import differential_short
from sparsity.exact_law.trapezoid import FAR, count_pairs, pairs, widest
from sparsity.exact_law.work import EXPONENTIAL, PRODUCT, plan

_TURNED = 1.0  # α, below π/2
_RULES = ((0.14, 0.14), (0.18, 0.16))  # steps of ln t and of η: of the value, of its bound
_DEPTH = 46.0  # e-folds of t down to which √t counts
_FALL = 26.0  # e-folds down to which the integrand over η counts in long rows
_ALONG = (12.0, 40.0)  # η at least, for short rows, and at most
# Seconds of complex numbers, measured; and both rules together, in units of the finer one.
_COMPLEX, _PRODUCT, _BOTH = 4 * EXPONENTIAL, PRODUCT / 2, 1.5
_TAIL = 9.0  # standard deviations of one score, with n of which at once no row comes
_LARGE = 300.0  # ln of an X of which e^(−X) is nothing


def _range(spread: float, least: float, most: float) -> tuple[float, float]:
    """The range of ln t, for rows of `least` to `most` tokens."""
    low = -_DEPTH - math.log(most) - min(spread**2 / 2, FAR * spread)
    return low, 5.0 + min(FAR, _TAIL / math.sqrt(least)) * spread


def _less(
    spreads: tuple[float, float], rho: float, mix: float, n: np.ndarray, rule: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """E Σ min(p, λq) of rows of n ≥ 2, and what may lie beyond the last η, [lengths]."""
    (g1, g2), (step, along), most = spreads, rule, float(n.max())
    ranges = [_range(spread, float(n.min()), most) for spread in spreads]
    differs = math.sqrt(max(g1**2 + g2**2 - 2 * rho * g1 * g2, 1e-300))
    end = min(max(math.sqrt(2 * _FALL) / differs, _ALONG[0]), _ALONG[1])
    eta = np.arange(0.0, end, along)
    first, second = count_pairs(spreads, rho, step)
    count_t, count_u = ((high - low) / step for low, high in ranges)
    exponentials = second * count_u * first + count_t * (first + count_u * len(n)) * len(eta)
    products = first * count_u * (second + count_t) * len(eta)
    held = first * count_u * len(eta) + second * count_u + count_t * count_u * (2 + len(n))
    seconds = _BOTH * (_COMPLEX * exponentials + _PRODUCT * products)
    plan(*widest(spreads), seconds, 2 * held)
    own, x, share, y, weight = pairs(spreads, rho, step)
    t, u = (np.arange(low, high, step) for low, high in ranges)
    z, turn = 0.5 + 1j * eta, np.exp(1j * _TURNED)
    lost2 = np.empty((len(x), len(u)), complex)
    of2 = np.empty((len(eta), len(x), len(u)), complex)
    powers = np.exp(z * own * y[:, None]) * weight[:, None]
    for i, at in enumerate(rho * g2 * x):  # the second score, given the first
        log_y = u[:, None] + at + own * y
        big = np.exp(np.minimum(log_y, _LARGE)) * turn
        lost2[i] = -np.expm1(-big) @ weight
        of2[:, i] = ((np.exp(-big) @ powers) * np.exp(z * (u[:, None] + at + 1j * _TURNED))).T
    log_x = t[:, None] + g1 * x
    big = np.exp(np.minimum(log_x, _LARGE)) / turn
    kept = np.exp(-big) * share
    lost = (-np.expm1(-big) @ share)[:, None] + kept @ lost2  # 1 − φ
    with np.errstate(divide="ignore", invalid="ignore"):  # φ = 0 where both times are late
        log_phi = np.log1p(-lost).ravel()
        others = np.stack([m * np.exp((m - 1) * log_phi) for m in n])
    others = np.where(np.isfinite(others), others, 0.0)
    found, last = np.zeros(len(n)), np.zeros(len(n))
    for i, at in enumerate(z):
        both = (np.exp((1 - at) * (log_x - 1j * _TURNED)) * kept) @ of2[i]
        scale = mix**at / (0.25 + eta[i] ** 2) * math.cosh(math.pi * eta[i]) / math.pi**2
        term = scale * (others @ both.ravel()) * step**2
        found += (0.5 if i == 0 else 1.0) * term.real * along
        last = np.maximum(np.abs(term), 0.5 * last)  # one of them may be near a zero
    return found, last * end


def abs_sum(
    gamma: float, gamma2: float, rho: float, mix: float, length: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """E Σ|a| over rows of n, and a bound on its relative error.

    Args:
        gamma: spread γ₁ > 0 of the first scores.
        gamma2: spread γ₂ > 0 of the second.
        rho: their correlation, in [−1, 1].
        mix: λ ≥ 0.
        length: row lengths n ≥ 1, [lengths].

    Raises:
        TooFine: spreads at which the law takes more than seconds.
        InputError: maps so alike that the law is not resolved.
    """
    n = np.asarray(length, dtype=np.float64)
    value, error = np.full(n.shape, abs(1.0 - mix)), np.zeros(n.shape)
    if mix == 0:
        return np.ones(n.shape), error
    for few in {2, 3} & set(n.ravel().tolist()):
        law = differential_short.abs_sum(gamma, gamma2, rho, mix, int(few))
        value[n == few], error[n == few] = law
    several = n > 3
    if several.any():
        (fine, beyond), (coarse, _) = (
            _less((gamma, gamma2), rho, mix, n[several], rule) for rule in _RULES
        )
        value[several] = 1 + mix - 2 * fine
        error[several] = 2 * (np.abs(coarse - fine) + beyond) / np.abs(value[several]) + 1e-12
    if not (error < RESOLVED).all():
        fix = "the law of Σ|a| is not resolved where the maps are so alike; use estimate"
        raise InputError("length", n.tolist(), fix)
    return value, error
