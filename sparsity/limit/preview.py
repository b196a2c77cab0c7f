"""A first look at a limit for drawing, while the proven value is on its way: no bound, no table."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsity.kernels.base import Kernel
from sparsity.kernels.lowering import numpy_log_abs
from sparsity.quantities import Quantity, S

# Nodes t = sinh u in equal steps of u: dense around the mean, where no node
# lies, and far enough for what grows.
_U = np.linspace(-4.6, 4.6, 230)
_T, _LOG_WEIGHT = np.sinh(_U), np.log(np.cosh(_U))


def _log_sum(x: np.ndarray) -> np.ndarray:
    top = x.max(axis=-1)
    return top + np.log(np.exp(x - top[..., None]).sum(axis=-1))


class Sketch:
    """The sums of long rows, as `quantities.LongRows` describes them, at many points at once.

    Args:
        kernel: a kernel of Law.SCORE.
        beta: biases, [points].
        gamma: spreads > 0, [points].
        n: row lengths, [points] or one.
    """

    def __init__(self, kernel: Kernel, beta: np.ndarray, gamma: np.ndarray, n: Any) -> None:
        """Look at the weight at every node."""
        self.n = n
        self._log_f = numpy_log_abs(kernel)(beta[:, None] + gamma[:, None] * _T)
        base = _LOG_WEIGHT - _T * _T / 2
        self._log_p = base - _log_sum(base)

    def _moment(self, order: float) -> np.ndarray:
        """Return log E|f|^order."""
        return _log_sum(order * self._log_f + self._log_p)

    def product(self, *sums: tuple[float, float], count: float = 0.0, total: float = 0.0,
                sinks: float = 0.0, needle: float = 0.0) -> tuple[Any, float]:  # fmt: skip
        if sinks or needle:
            return np.full(len(self._log_f), np.nan), 0.0
        powers = [*sums, (1.0, total)]
        log = sum(power * (self._moment(order) + np.log(self.n)) for order, power in powers)
        return np.exp(log + count * np.log(self.n)), 0.0

    def entropy(self) -> tuple[Any, float]:
        log = self._log_f + self._log_p
        mass = np.exp(log - _log_sum(log)[:, None])  # the share of each node
        log = np.where(mass > 0, self._log_f, 0.0)
        return np.log(self.n) + self._moment(1.0) - (mass * log).sum(axis=-1), 0.0


def preview(
    kernel: Kernel, beta: np.ndarray, gamma: np.ndarray, of: Quantity = S, length: Any = 1.0
) -> np.ndarray:
    """Return a limit in float64, to about what an eye can see where the kernel is smooth.

    Args:
        kernel: a kernel of Law.SCORE.
        beta: biases, [points].
        gamma: spreads > 0, [points].
        of: a quantity with a limit in rows whose tokens are alike.
        length: row lengths n, [points] or one.

    Returns:
        The values, [points]; NaN where float64 does not serve.
    """
    if of.linear is not None:
        return of.linear(preview(kernel, beta, gamma, of.linear.of, length), length)
    assert of.limit is not None
    with np.errstate(all="ignore"):
        value, _ = of.limit(Sketch(kernel, beta, gamma, length))
    return np.where(np.isfinite(value), value, np.nan)
