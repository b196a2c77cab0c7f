"""A first look at S for drawing, while the proven value is on its way: no bound, and no table."""

from __future__ import annotations

import numpy as np

from sparsity.kernels.base import Kernel
from sparsity.kernels.lowering import numpy_log_abs

# Nodes t = sinh u in equal steps of u: dense around the mean, where no node
# lies, and far enough for what grows.
_U = np.linspace(-4.6, 4.6, 230)
_T, _LOG_WEIGHT = np.sinh(_U), np.log(np.cosh(_U))


def _log_sum(x: np.ndarray) -> np.ndarray:
    top = x.max(axis=-1)
    return top + np.log(np.exp(x - top[..., None]).sum(axis=-1))


def preview(kernel: Kernel, beta: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """Log S of a kernel in float64, to about what an eye can see where the kernel is smooth.

    Args:
        kernel: a kernel of Law.SCORE.
        beta: biases, [points].
        gamma: spreads > 0, [points].

    Returns:
        log S, [points]; NaN where float64 does not serve.
    """
    with np.errstate(all="ignore"):
        log_f = numpy_log_abs(kernel)(beta[:, None] + gamma[:, None] * _T)
        base = _LOG_WEIGHT - _T * _T / 2
        first, second = (_log_sum(p * log_f + base) for p in (1, 2))
        log_S = first - second / 2 - _log_sum(base) / 2
    return np.where(np.isfinite(log_S), log_S, np.nan)
