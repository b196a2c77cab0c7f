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
from sparsity.exact_law.exact import exact_grid
from sparsity.limit.evaluation import evaluate

ERROR = 1e-6  # of log S, from the interpolation; 2e-7 was measured
WIDEST = 200.0  # γ of the grid; there a row of 10⁶ tokens has its mass on one
_SHORT, _GROWTH = 16, 1.12  # every n up to there, then this factor
_STEP, _CHUNK = 1 / 16, 16  # of asinh γ; how many steps are computed at a time
_MORE = 4  # steps beyond the widest that is asked for: at its end a spline is less exact
_FIRST, _FACTOR = 512, 8  # the longest row of a table, and of each that follows


def log_limit(gamma: Any) -> np.ndarray:
    """Log S = −γ²/2, the limit law of softmax attention over many Gaussian logits; 0 at γ = 0."""
    gamma = np.asarray(gamma, np.float64)
    log_S, known = np.where(gamma == 0, 0.0, np.nan), (gamma > 0) & (gamma < np.inf)
    log_S[known] = evaluate("exp", gamma=gamma[known]).log_S
    return log_S


def _lengths(longest: int) -> np.ndarray:
    geometric = _SHORT * _GROWTH ** np.arange(
        np.ceil(np.log(longest / _SHORT) / np.log(_GROWTH)) + 1
    )
    return np.unique([*range(2, _SHORT), *np.round(geometric)])


@functools.lru_cache(maxsize=64)
def _columns(longest: int, chunk: int) -> np.ndarray:
    """Log S of some spreads of the grid at all its lengths, [lengths, spreads]."""
    first, stop = chunk * _CHUNK + _MORE if chunk else 1, (chunk + 1) * _CHUNK + _MORE
    grids = {"beta": np.zeros(1), "gamma": np.sinh(_STEP * np.arange(first, stop))}
    found = exact_grid(kernels.exp, grids, _lengths(longest), quantities.n_eff)
    return np.log(found.S_rms[0]).T  # of [1, spreads, lengths]


@functools.lru_cache(maxsize=16)
def _spline(longest: int, chunks: int) -> RectBivariateSpline:
    """The table of that many chunks of spreads; a wider one takes over its columns."""
    n = np.log(_lengths(longest))
    columns = [np.zeros((len(n), 1)), *(_columns(longest, i) for i in range(chunks))]
    log_S = np.concatenate(columns, axis=1)
    return RectBivariateSpline(n, _STEP * np.arange(log_S.shape[1]), log_S, kx=5, ky=5)


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
        longest, widest = _FIRST, float(np.arcsinh(max(gamma[known].max(), 8.0)))
        while longest < n[known].max():  # few tables, which rows of similar lengths share
            longest *= _FACTOR
        table = _spline(longest, int(np.ceil(widest / (_STEP * _CHUNK))))
        log_S[known] = table.ev(np.log(n[known]), np.arcsinh(gamma[known]))
    return np.exp(np.minimum(log_S, 0.0))
