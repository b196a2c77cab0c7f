"""What the theory says of Gaussian logits: the limit law, and the exact law of finite rows.

The exact law is computed on a grid of (n, γ) and interpolated by splines, since a model has as many
different (n, γ̂) as rows.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from scipy.interpolate import RectBivariateSpline

from sparsity import kernels, quantities
from sparsity.finite.exact import exact_grid
from sparsity.theory.evaluation import evaluate

ERROR = 1e-6  # of log S, from the interpolation; 2e-7 was measured
WIDEST = 200.0  # γ of the grid; there a row of 10⁶ tokens has its mass on one
_SHORT, _GROWTH = 16, 1.12  # every n up to there, then this factor
_STEP = 1 / 16  # of asinh γ


def log_limit(gamma: Any) -> np.ndarray:
    """Log S = −γ²/2, the limit law of softmax attention over many Gaussian logits; 0 at γ = 0."""
    gamma = np.asarray(gamma, np.float64)
    log_S, known = np.where(gamma == 0, 0.0, np.nan), (gamma > 0) & (gamma < np.inf)
    log_S[known] = evaluate("exp", gamma=gamma[known]).log_S
    return log_S


def _at(length: int, stop: int) -> np.ndarray:
    """Log S at every γ of the grid, for lengths given by the grid up to `length`."""
    n, x = _lengths(length), _STEP * np.arange(1, stop)
    grids = {"beta": np.zeros(1), "gamma": np.sinh(x)}
    found = exact_grid(kernels.exp, grids, n, quantities.n_eff)  # [1, spreads, lengths]
    return np.concatenate([np.zeros((len(n), 1)), np.log(found.S_rms[0]).T], axis=1)


def _lengths(longest: int) -> np.ndarray:
    geometric = _SHORT * _GROWTH ** np.arange(
        np.ceil(np.log(longest / _SHORT) / np.log(_GROWTH)) + 1
    )
    return np.unique([*range(2, _SHORT), *np.round(geometric)])


@functools.lru_cache(maxsize=16)  # a report asks of several lengths, with and without sinks
def _spline(longest: int, stop: int) -> RectBivariateSpline:
    n = _lengths(longest)
    return RectBivariateSpline(np.log(n), _STEP * np.arange(stop), _at(longest, stop), kx=5, ky=5)


def exact(length: Any, gamma: Any) -> np.ndarray:
    """S_rms = √(E[n_eff]/n) of rows of n Gaussian logits of standard deviation γ.

    Args:
        length: n, whole numbers ≥ 1.
        gamma: γ, broadcasts with `length`.

    Returns:
        float64, interpolated to a relative error of `ERROR`; NaN where γ is, or is beyond `WIDEST`.
    """
    n, gamma = np.broadcast_arrays(np.asarray(length, np.float64), np.asarray(gamma, np.float64))
    log_S = np.where(n == 1, 0.0, np.nan)
    known = (n > 1) & (gamma >= 0) & (gamma <= WIDEST)
    if known.any():
        # Powers of two, so that rows of similar lengths and spreads share a table.
        longest = 2 ** int(np.ceil(np.log2(max(n[known].max(), 64))))
        widest = float(np.arcsinh(max(gamma[known].max(), 8.0)))
        stop = 16 * int(np.ceil(widest / _STEP / 16)) + 4
        log_S[known] = _spline(longest, stop).ev(np.log(n[known]), np.arcsinh(gamma[known]))
    return np.exp(np.minimum(log_S, 0.0))
