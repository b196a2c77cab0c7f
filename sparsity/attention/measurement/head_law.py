"""The law of a real head: S of a row from its length, its spread and its largest logit.

Of n logits the largest, s_max, is given. The others are taken as independent and Gaussian,
N(β, γ²), below it. With ζ = (s_max − β)/γ, a standard normal ε < ζ has

    E[e^(kγε) | ε < ζ] = e^(k²γ²/2) Φ(ζ − kγ)/Φ(ζ)

(complete the square in kγε − ε²/2). Over e^(ks_max), with Mills' ratio R(x) = (1 − Φ(x))/φ(x):

    r_k = E[e^(k(s − s_max)) | s < s_max] = R(kγ − ζ)/R(−ζ)

since φ(kγ − ζ) = φ(ζ) e^(kγζ − k²γ²/2). As the limit law, it is a ratio of means, of Σe^s and
Σe^(2s):

    n S² = [1 + (n − 1) r₁]² / [1 + (n − 1) r₂],

β cancels. From r₁² ≤ r₂ ≤ r₁ it lies between one-hot and uniform, 1/√n ≤ S ≤ 1.

Cases. (n − 1)(1 − Φ(ζ)) about 1, as in Gaussian rows: for n → ∞ at γ fixed, ζ → ∞ and
S → e^(−γ²/2), the limit law; beyond freezing, γ > ζ, R(x) ~ 1/x makes (n − 1) r_k → ζ/(kγ − ζ),
so that n S² → γ(γ − ζ/2)/(γ − ζ)². ζ → ∞ at n fixed, or γ → ∞: S → 1/√n. ζ → −∞, below what n
numbers can have, the smallest 1/√n: the others crowd at s_max, S → 1. γ → 0: the others are all
at β, or at s_max where that is lower.

One constant of a head, κ, makes γ = κ γ̂ of what was measured; s_max − β̂ stays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import erfcx, log_ndtr

_HALF = np.sqrt(0.5)


def _log_mean(k: int, gamma: np.ndarray, top: np.ndarray) -> np.ndarray:
    """Log r_k = log R(kγ − ζ) − log R(−ζ), with ζ = top/γ and 0 < γ < ∞."""
    zeta = top / gamma
    x = k * gamma - zeta
    # R(x) is erfcx(x/√2) but for a constant, and e^(x²/2) Φ(−x) where erfcx would overflow.
    right = np.log(erfcx(_HALF * np.maximum(x, 0)))
    low = right - np.log(erfcx(_HALF * np.maximum(-zeta, 0)))
    beyond = right - np.log(2) - zeta**2 / 2 - log_ndtr(zeta)
    # x ≤ 0: of the squares only k²γ²/2 − kγζ is left.
    bulk = (k * gamma) ** 2 / 2 - k * top + log_ndtr(-x) - log_ndtr(zeta)
    return np.where(x <= 0, bulk, np.where(zeta < 0, low, beyond))


def log_head_law(length: Any, gamma: Any, top_logit: Any, kappa: Any = 1.0) -> np.ndarray:
    """Log S of `head_law`."""
    n, gamma, top, kappa = np.broadcast_arrays(
        *(np.asarray(x, np.float64) for x in (length, gamma, top_logit, kappa))
    )
    gamma = kappa * gamma
    log_r = []
    with np.errstate(all="ignore"):
        for k in (1, 2):
            mean = _log_mean(k, gamma, top)
            mean = np.where(gamma > 0, mean, -k * np.maximum(top, 0))
            mean = np.where((gamma == np.inf) | (top == np.inf), -np.inf, mean)
            log_r.append(np.where(top == -np.inf, 0.0, np.minimum(mean, 0.0)))
        one, two = (np.logaddexp(0, np.log(n - 1) + r) for r in log_r)
        log_S = np.clip(one - two / 2 - np.log(n) / 2, -np.log(n) / 2, 0.0)
    known = (n >= 1) & (gamma >= 0) & ~np.isnan(top)
    return np.where(known, log_S, np.nan)


def head_law(length: Any, gamma: Any, top_logit: Any, kappa: Any = 1.0) -> np.ndarray:
    """S of n softmax weights, of which the largest logit is given: the formula above.

    Args:
        length: n ≥ 1, the keys of each row.
        gamma: γ̂ ≥ 0, the standard deviation of its logits.
        top_logit: its largest logit less the mean of all.
        kappa: κ > 0 of its head, by which γ̂ is multiplied. All broadcast.

    Returns:
        float64 in [1/√n, 1]; NaN outside of the domain.
    """
    return np.exp(log_head_law(length, gamma, top_logit, kappa))
