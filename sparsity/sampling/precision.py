"""How far rounding in the sampler's precision can carry S: no number of draws undoes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from sparsity.kernels import Kernel, Law
from sparsity.kernels.lowering import jax_log_abs, numpy_log_abs_as_given
from sparsity.sampling.proposals import Table
from sparsity.sampling.supports import DEPTH, POWERS

SUMMING = 8.0  # units in the last place by which the mean of a batch may be off
_MOST = 1e99  # whose square is a float


def rounding(
    kernel: Kernel,
    parameters: Mapping[str, float],
    table: Table,
    real: np.dtype,
    *,
    compare: bool,
) -> float:
    """The relative error of S from rounding, about.

    From the size of scores and exponents; `compare` also holds f as the device computes it against
    f in the next wider precision on the host, which sees a cancellation inside f.

    Args:
        kernel: of law SCORE or POSITION.
        parameters: the kernel's, as plain floats.
        table: of the same.
        real: the sampler's dtype.
        compare: for an f whose arithmetic is not known.
    """
    eps = float(np.finfo(real).eps)
    if kernel.law is Law.POSITION:
        return eps * DEPTH
    beta, gamma = parameters["beta"], parameters["gamma"]
    reach = float(np.abs(table.edges[[0, -1]]).max())
    size = min(eps * max(reach**2, 1.0, abs(beta), abs(beta) / gamma), _MOST)
    return max(size, _carried(kernel, beta, gamma, table, real)) if compare else size


def _carried(kernel: Kernel, beta: float, gamma: float, table: Table, real: np.dtype) -> float:
    """Mean |f_device/f_wide − 1| under the laws of both moments, as S feels it."""
    wide: Any = np.float64 if real == np.float32 else np.longdouble
    t = (table.edges[:-1] + table.edges[1:]) / 2
    device = jax.jit(jax_log_abs(kernel))(
        (real.type(beta) + real.type(gamma) * t.astype(real)).astype(real)
    )
    with np.errstate(all="ignore"):
        try:
            host = np.asarray(numpy_log_abs_as_given(kernel)(wide(beta) + wide(gamma) * wide(t)))
        except (AttributeError, TypeError):  # a function that has no wider kind
            return 0.0
        power = POWERS[:, None]
        share = np.exp(power * host - t * t / 2 - (power * host - t * t / 2).max(axis=-1)[:, None])
        share = np.where(np.isfinite(share), share, 0) * np.diff(table.edges)
        off = np.abs(np.expm1(power * (np.asarray(device).astype(wide) - host)))
        carried = (np.where(off < 1, off, 1) * share).sum(axis=1) / share.sum(axis=1)
    return float(carried @ [1.0, 0.5])
