"""The exact law of Σ|a| of differential rows of two or three tokens: one joint chance, by levels.

E Σ|a| = 1 + λ − 2n E min(p, λq) for one key's p = σ(−U) and q = σ(−V), where U is ln Σ e^x of the
other keys less this key's x, V the same of the scores y. For λ ≥ 1 (else the maps change places)

    E min(p, λq) = ∫ P(p > t, λq > t) dt = ∫ σ'(w) P(U < w, V < v(w)) dw,  v = ln(λ − 1 + λe^w).

Of two tokens (U, V) is normal. Of three, U is a normal plus ln 2cosh(D/2), D = x₂ − x₃, which does
not depend on it: the chance is a mean over the two D of normal chances, each by Owen's T.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit, ndtr, owens_t

from sparsity.errors import InputError, TooFine
from sparsity.exact_law.trapezoid import widest

_FAR = 9.0  # standard deviations that count of one score
_JOINT = 8.5  # and of both D
_EDGE = 45.0  # |w| beyond which σ' is nothing
_RULES = ((16, 0.15), (12, 0.2))  # points of a panel, step of D: of the value, of its bound
_KINK = 4.0  # spread from which ln 2cosh turns within a step of D
_MOST = 8e6  # normal chances in all
_AT_ONCE = 2**16  # of them
_ALIKE = 0.99  # |ρ| beyond which the chance turns within a panel, and no bound holds
_TINY = 1e-150


def normal_chance(h: np.ndarray, k: np.ndarray, rho: float) -> np.ndarray:
    """P(A < h, B < k) of two standard normals of correlation ρ (Owen 1956)."""
    h, k = np.where(h == 0, _TINY, h), np.where(k == 0, _TINY, k)
    rest = max(math.sqrt((1 - rho) * (1 + rho)), _TINY)
    apart = owens_t(h, (k - rho * h) / (h * rest)) + owens_t(k, (h - rho * k) / (k * rest))
    return (ndtr(h) + ndtr(k)) / 2 - apart - np.where((h < 0) != (k < 0), 0.5, 0.0)


def _between(
    n: int, spreads: tuple[float, float], rho: float, h: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the other keys, ln Σ e^x about their mean in both maps, and weights, by steps h of D."""
    if n == 2:
        return np.zeros(1), np.zeros(1), np.ones(1)
    z = h * np.arange(-math.ceil(_JOINT / h), math.ceil(_JOINT / h) + 1)
    first, second = (side.ravel() for side in np.meshgrid(z, z, indexing="ij"))
    kept = (first**2 + second**2 < _JOINT**2) & (first >= 0)  # −D is as likely as D
    first, second = first[kept], second[kept]
    weight = np.exp(-(first**2 + second**2) / 2) * np.where(first == 0, 1.0, 2.0)
    second = rho * first + math.sqrt((1 - rho) * (1 + rho)) * second
    x, y = (math.sqrt(0.5) * g * side for g, side in zip(spreads, (first, second), strict=True))
    return np.logaddexp(x, -x), np.logaddexp(y, -y), weight / weight.sum()


def _less(
    n: int, spreads: tuple[float, float], rho: float, mix: float, rule: tuple[int, float]
) -> float:
    """E min(p, λq) of one key, λ ≥ 1; infinite where that takes more than seconds."""
    (points, step), (g1, g2) = rule, spreads
    reach = _FAR * math.sqrt(2)
    low = max(-reach * g1, -_EDGE)  # below, U < w has no chance
    top = math.log(n - 1) + reach * g2  # of V, which is v(w) at `over`
    over = top + math.log1p(max((1 - mix) * math.exp(-top), -0.999)) - math.log(mix)
    high = min(max(math.log(n - 1) + reach * g1, over, low + 1e-9), _EDGE)  # above, both are sure
    panels = math.ceil((high - low) / min(2 * g1, 2 * g2, 2.0))
    h = step * min(1.0, _KINK / max(spreads))
    if panels * points * (1.0 if n == 2 else math.pi / 2 * (_JOINT / h) ** 2) > _MOST:
        return math.inf
    x, y, weight = _between(n, spreads, rho, h)
    at, share = np.polynomial.legendre.leggauss(points)
    ends = np.linspace(low, high, panels + 1)
    half = np.diff(ends)[:, None] / 2
    w, share = (ends[:-1, None] + half * (1 + at)).ravel(), (half * share).ravel()
    v = np.logaddexp(math.log(mix - 1), math.log(mix) + w) if mix > 1 else w
    spread = math.sqrt(n / (n - 1))  # of the mean of the others less one's own, in units of γ
    blocks = math.ceil(len(w) * len(weight) / _AT_ONCE)
    chance = [
        normal_chance((a - x) / (spread * g1), (b - y) / (spread * g2), rho) @ weight
        for a, b in zip(*(np.array_split(t[:, None], blocks) for t in (w, v)), strict=True)
    ]
    return float(share @ (expit(w) * expit(-w) * np.concatenate(chance)) + expit(-high))


def abs_sum(gamma: float, gamma2: float, rho: float, mix: float, n: int) -> tuple[float, float]:
    """E Σ|a| over rows of two or three tokens, and a bound on its relative error.

    Args:
        gamma: spread γ₁ > 0 of the first scores.
        gamma2: spread γ₂ > 0 of the second.
        rho: their correlation, in [−1, 1].
        mix: λ > 0.
        n: 2 or 3.

    Raises:
        InputError: maps so alike, or so opposite, that the law is not resolved.
        TooFine: spreads at which the law takes more than seconds.
    """
    if abs(rho) > _ALIKE:
        fix = f"the law of Σ|a| of {n} tokens needs |ρ| ≤ {_ALIKE}; use estimate"
        raise InputError("rho", rho, fix)
    spreads, own, scale = (gamma, gamma2), mix, 1.0
    if mix < 1:
        spreads, own, scale = (gamma2, gamma), 1 / mix, mix
    fine, coarse = (scale * _less(n, spreads, rho, own, rule) for rule in _RULES)
    if math.isinf(fine):
        fix = "its exact law takes too many points at these; use estimate"
        raise TooFine(*widest((gamma, gamma2)), fix)
    value = 1 + mix - 2 * n * fine
    return value, (4 * n * abs(coarse - fine) + 1e-13 * (1 + mix)) / max(abs(value), _TINY)
