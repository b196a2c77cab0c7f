"""What theory says of a row of logits: the limit law, the exact law, and the law of a real head.

All three give S of a row from its length n and the spread γ̂ of its logits. The limit law is that of
many Gaussian logits, the exact law of n of them. The law of a real head is given the largest logit
of the row as well.

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

import functools
from typing import Any

import numpy as np
from scipy.interpolate import RectBivariateSpline
from scipy.special import erfcx, log_ndtr

from sparsity import kernels, quantities
from sparsity.exact_law.exact import exact_grid

# A model has as many different (n, γ̂) as rows, so the exact law is tabulated and interpolated by
# quintic splines in ln n and asinh γ.
TABLE_ERROR = 1e-6  # of log S, from the interpolation with the steps below; 2e-7 was measured
MAX_GAMMA = 200.0  # of the table; there a row of 10⁶ tokens has its mass on one
EVERY_LENGTH_TO, LENGTH_GROWTH = 16, 1.12  # every n up to there, then this factor
GAMMA_STEP, STEPS_AT_A_TIME = 1 / 16, 16  # of asinh γ; and how many steps are computed at a time
SPARE_STEPS = 4  # beyond the widest that is asked for: at its end a spline is less exact
FIRST_LONGEST, LONGEST_GROWTH = 512, 8  # the longest row of a table, and of each that follows


def log_limit_law(gamma: Any) -> np.ndarray:
    """Return log S = −γ²/2, the limit law of softmax over many Gaussian logits."""
    return -(np.asarray(gamma, np.float64) ** 2) / 2


def exact_law(length: Any, gamma: Any) -> np.ndarray:
    """Return S_rms = √(E[n_eff]/n) of rows of n Gaussian logits of standard deviation γ.

    Args:
        length: n, whole numbers ≥ 1.
        gamma: γ, broadcasts with `length`.

    Returns:
        float64, interpolated to a relative error of `TABLE_ERROR`; NaN where γ is, or is beyond
        `MAX_GAMMA`.
    """
    n, gamma = np.broadcast_arrays(np.asarray(length, np.float64), np.asarray(gamma, np.float64))
    log_S = np.where(n == 1, 0.0, np.nan)
    # A table is made as large as is asked for, in coarse steps of both sizes, so that a few tables
    # serve all layers of a run. Rows of one key have S = 1 and need none.
    known = (n > 1) & (gamma >= 0) & (gamma <= MAX_GAMMA)
    if known.any():
        longest, widest = FIRST_LONGEST, float(np.arcsinh(max(gamma[known].max(), 8.0)))
        while longest < n[known].max():  # few tables, which rows of similar lengths share
            longest = min(longest * LONGEST_GROWTH, 2**53)
        table = _fit_spline(longest, int(np.ceil(widest / (GAMMA_STEP * STEPS_AT_A_TIME))))
        log_S[known] = table.ev(np.log(n[known]), np.arcsinh(gamma[known]))
    return np.exp(np.minimum(log_S, 0.0))  # near γ = 0 a spline may pass 0 by its error


@functools.lru_cache(maxsize=16)
def _fit_spline(longest: int, chunks: int) -> RectBivariateSpline:
    """Return the table of that many chunks of spreads; a wider one takes over its columns."""
    # The first column is γ = 0, where S = 1. In asinh γ the law is smooth at both ends: like γ near
    # 0, where log S ≈ −γ²/2, and like ln γ where rows freeze.
    n = np.log(_table_lengths(longest))
    columns = [np.zeros((len(n), 1)), *(_tabulate_chunk(longest, i) for i in range(chunks))]
    log_S = np.concatenate(columns, axis=1)
    return RectBivariateSpline(n, GAMMA_STEP * np.arange(log_S.shape[1]), log_S, kx=5, ky=5)


@functools.lru_cache(maxsize=64)
def _tabulate_chunk(longest: int, chunk: int) -> np.ndarray:
    """Return log S of a chunk of spreads at all lengths of the table, [lengths, spreads]."""
    # Columns are cached by chunk: a wider spline is fitted anew, its exact laws are not.
    first = chunk * STEPS_AT_A_TIME + SPARE_STEPS if chunk else 1
    stop = (chunk + 1) * STEPS_AT_A_TIME + SPARE_STEPS
    grids = {"beta": np.zeros(1), "gamma": np.sinh(GAMMA_STEP * np.arange(first, stop))}
    law = exact_grid(kernels.exp, grids, _table_lengths(longest), quantities.n_eff)
    return np.log(law.S_rms[0]).T  # of [1, spreads, lengths]


def _table_lengths(longest: int) -> np.ndarray:
    """Return the lengths of the table; the last is at or beyond `longest`."""
    # Short rows are tabulated one by one, since log S bends most in ln n there.
    steps = np.ceil(np.log(longest / EVERY_LENGTH_TO) / np.log(LENGTH_GROWTH)) + 1
    geometric = EVERY_LENGTH_TO * LENGTH_GROWTH ** np.arange(steps)
    return np.unique([*range(2, EVERY_LENGTH_TO), *np.round(geometric)])


def head_law(length: Any, gamma: Any, top_logit: Any, kappa: Any = 1.0) -> np.ndarray:
    """Return S of n softmax weights, of which the largest logit is given: the formula above.

    Args:
        length: n ≥ 1, the keys of each row.
        gamma: γ̂ ≥ 0, the standard deviation of its logits.
        top_logit: its largest logit less the mean of all.
        kappa: κ > 0 of its head, by which γ̂ is multiplied. All broadcast.

    Returns:
        float64 in [1/√n, 1]; NaN outside of the domain.
    """
    return np.exp(log_head_law(length, gamma, top_logit, kappa))


def log_head_law(length: Any, gamma: Any, top_logit: Any, kappa: Any = 1.0) -> np.ndarray:
    """Return log S of `head_law`, with the same arguments."""
    n, gamma, top, kappa = np.broadcast_arrays(
        *(np.asarray(x, np.float64) for x in (length, gamma, top_logit, kappa))
    )
    gamma = kappa * gamma
    log_r = []
    with np.errstate(all="ignore"):
        for k in (1, 2):
            # What the formula has as 0/0 or ∞ − ∞: at γ = 0 the others are all at β or, where that
            # is above it, at s_max; with γ or s_max infinite they have no weight; and at
            # s_max = −∞ they crowd at it.
            mean = _log_mean_weight(k, gamma, top)
            mean = np.where(gamma > 0, mean, -k * np.maximum(top, 0))
            mean = np.where((gamma == np.inf) | (top == np.inf), -np.inf, mean)
            log_r.append(np.where(top == -np.inf, 0.0, np.minimum(mean, 0.0)))
        one, two = (np.logaddexp(0, np.log(n - 1) + r) for r in log_r)
        log_S = np.clip(one - two / 2 - np.log(n) / 2, -np.log(n) / 2, 0.0)
    known = (n >= 1) & (gamma >= 0) & ~np.isnan(top)
    return np.where(known, log_S, np.nan)


def _log_mean_weight(k: int, gamma: np.ndarray, top: np.ndarray) -> np.ndarray:
    """Return log r_k = log R(kγ − ζ) − log R(−ζ), with ζ = top/γ and 0 < γ < ∞."""
    # Three forms of one ratio, each where its parts neither overflow nor cancel: `bulk` where both
    # arguments of R lie left of 0, `low` where ζ < 0 puts both right of it, `beyond` between.
    zeta, half = top / gamma, np.sqrt(0.5)
    x = k * gamma - zeta
    # R(x) is erfcx(x/√2) but for a constant, and e^(x²/2) Φ(−x) where erfcx would overflow.
    right = np.log(erfcx(half * np.maximum(x, 0)))
    low = right - np.log(erfcx(half * np.maximum(-zeta, 0)))
    beyond = right - np.log(2) - zeta**2 / 2 - log_ndtr(zeta)
    # x ≤ 0: of the squares only k²γ²/2 − kγζ is left.
    bulk = (k * gamma) ** 2 / 2 - k * top + log_ndtr(-x) - log_ndtr(zeta)
    return np.where(x <= 0, bulk, np.where(zeta < 0, low, beyond))
