"""The capacity of a kernel by drawing rows that grow until their noise outweighs the needle.

Key after key Σ a² rises, and the first number of keys at which it exceeds a*² is what one row can
hold. Its median over rows is the n at which P(SNR > 1) = ½. No moment of the weights enters.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sparsity import kernels
from sparsity.arguments import check_seed, number, whole
from sparsity.kernels import Kernel
from sparsity.kernels.lowering import jax_row, numpy_log_abs
from sparsity.sampling.random_numbers import fold_in, normal

_BLOCK = 2**20  # scores drawn at once, of all rows


class SampledCapacity(NamedTuple):
    """The median over rows of the number of keys that a row can hold.

    Args:
        value: the n that half of the rows hold, between whole numbers by a straight line.
        stderr: half of its 95 % interval over 1.96.
        ci95: the n that so many rows hold as half of all are, give or take 1.96 standard errors.
        rows: that were drawn.
        seed: of their keys.
        method: how.
    """

    value: float
    stderr: float
    ci95: tuple[float, float]
    rows: int
    seed: int
    method: str = "first passage of Σa²"


@functools.partial(jax.jit, static_argnames=("kernel", "rows", "block"))
def _grown(
    key: Any, kernel: Kernel, rows: int, block: int, query: Any, log_needle: Any, noise: Any
) -> Any:
    """Add a block of keys to each row: (noise over signal, keys until it exceeds 1 or `block`)."""
    log_f, _ = jax_row(kernel, query * normal(key, (rows, block), "float32"))
    total = noise[:, None] + jnp.cumsum(jnp.exp(2 * (log_f - log_needle)), axis=1)
    return total[:, -1], (total <= 1).sum(axis=1)


def sample_capacity(
    kernel: str | Kernel, *, dim: int, query: float = 1.0, rows: int = 1024, seed: int = 0
) -> SampledCapacity:
    """Return the median number of keys whose noise a needle outweighs, by drawing them.

    Args:
        kernel: a function of a score, by name or as a `Kernel`.
        dim: d ≥ 1: the needle scores t√d.
        query: t > 0, the length of the query: other keys score N(0, t²).
        rows: how many, ≥ 64.
        seed: of the keys.

    Raises:
        InputError: another kernel or a bad value.
    """
    record = kernels.elementwise(kernels.named(kernel))
    d, count, chosen = whole("dim", dim, 1), whole("rows", rows, 64), check_seed(seed)
    t = number("query", query, "give one number > 0", lambda x: x > 0)
    log_needle = float(numpy_log_abs(record)(np.array([t * math.sqrt(d)]))[0])
    key, block = jax.random.key(chosen, impl="threefry2x32"), max(1, _BLOCK // count)
    noise, held = jnp.zeros(count, "float32"), np.zeros(count)
    for number_of_block in range(2**16):
        noise, more = _grown(
            fold_in(key, number_of_block), record, count, block, t, log_needle, noise
        )
        held += np.asarray(more)
        if np.mean(np.asarray(noise) > 1) > 0.75:  # beyond the interval of the median
            break
    off = 1.96 * 0.5 / math.sqrt(count)  # of the share of rows, which is ½
    middle, low, high = (_held_by(held, 0.5 + part * off) for part in (0, 1, -1))
    return SampledCapacity(middle, (high - low) / 3.92, (low, high), count, chosen)


def _held_by(held: np.ndarray, share: float) -> float:
    """Return the n that a share of the rows holds, between whole numbers by a straight line."""
    low = float(np.quantile(held, 1 - share, method="lower"))
    while np.mean(held >= low) <= share:
        low -= 1
    above, below = np.mean(held >= low), np.mean(held >= low + 1)
    return low + float((above - share) / (above - below))
