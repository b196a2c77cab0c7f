"""The capacity of a kernel or a map by drawing rows: the n at which P(SNR > 1) = ½.

Under a kernel a row grows until its noise outweighs the needle: key after key Σ a² rises, and the
first number of keys at which it exceeds a*² is what this row can hold; the median over rows is
wanted. Under a map each new key changes all weights, so that whole rows are drawn for each n that a
bisection tries. Only their largest scores are needed, and these rise with n when the same random
numbers serve every n. No moment of the weights enters.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import bisect
from scipy.special import log_ndtr, ndtri

from sparsity import kernels
from sparsity.checks import check_number, check_seed, check_whole
from sparsity.errors import InputError
from sparsity.kernels import Kernel, RowMap
from sparsity.kernels.lowering import jax_row, numpy_log_abs
from sparsity.sampling.random_numbers import key_of, normal

_BLOCK = 2**20  # scores drawn at once, of all rows
# Families of maps that weigh the largest scores as if the others, which have weight 0, were not
# there. No field of `RowMap` says so: a new map of that kind belongs here; else it is refused.
_BY_RANK = ("sparsemax", "entmax1.5", "entmax", "topk")
# Largest scores kept of a row; the next number for rows that weigh them all. Nearly all rows whose
# needle holds half of the weight are done with 8, at a quarter of the work that 32 take.
_SUPPORTS = (8, 32, 128, 512)
_XTOL = 1e-4  # of ln n: standard errors are larger up to 10⁷ rows


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
    kernel: str | Kernel | RowMap,
    *,
    dim: int,
    query: float = 1.0,
    rows: int = 1024,
    seed: int = 0,
) -> SampledCapacity:
    """Return the n of other keys at which half of the rows have SNR = a*/√(Σ a²) > 1.

    Args:
        kernel: a function of a score, or a map of which a row weighs only its largest scores
            (sparsemax, entmax, top-k), by name or as a record.
        dim: d ≥ 1: the needle scores t√d.
        query: t > 0, the length of the query: other keys score N(0, t²).
        rows: how many, ≥ 64.
        seed: of the keys.

    Raises:
        InputError: another kernel, a bad value, or a map that weighs too many keys of a row.
    """
    record = kernels.named(kernel)
    d, count, chosen = check_whole("dim", dim, 1), check_whole("rows", rows, 64), check_seed(seed)
    t = check_number("query", query, "give one number > 0", lambda x: x > 0)
    if isinstance(record, RowMap):
        if record.family not in _BY_RANK:
            raise InputError(
                "kernel", record.name, f"choose a kernel or one of {', '.join(_BY_RANK)}"
            )
        return _capacity_of_map(record, t * math.sqrt(d), t, count, chosen)
    record = kernels.elementwise(record)
    log_needle = float(numpy_log_abs(record)(np.array([t * math.sqrt(d)]))[0])
    key, block = key_of(chosen), max(1, _BLOCK // count)
    noise, held = jnp.zeros(count, "float32"), np.zeros(count)
    for number_of_block in range(2**16):
        noise, more = _grown(
            jax.random.fold_in(key, number_of_block), record, count, block, t, log_needle, noise
        )
        held += np.asarray(more)
        if np.mean(np.asarray(noise) > 1) > 0.75:  # beyond the interval of the median
            break
    middle, low, high = (_held_by(held, share) for share in _shares(count))
    return SampledCapacity(middle, (high - low) / 3.92, (low, high), count, chosen)


def _shares(rows: int) -> tuple[float, float, float]:
    """Return ½, and the shares of rows that a sample may show for it: 1.96 standard errors off."""
    off = 1.96 * 0.5 / math.sqrt(rows)
    return 0.5, 0.5 + off, 0.5 - off


def _capacity_of_map(
    record: RowMap, needle: float, spread: float, rows: int, seed: int
) -> SampledCapacity:
    """Return the n at which SNR > 1 in half of the rows, by bisection of ln n."""
    draws = np.random.default_rng(seed).standard_exponential((rows, _SUPPORTS[-1]))

    @functools.cache  # the three searches begin with the same steps
    def share(log_n: float) -> float:
        n, above = math.exp(log_n), 0
        left = np.arange(rows)  # rows of which more scores are wanted: few of them, mostly
        for most in _SUPPORTS:
            kept = min(most, int(n))
            # Rényi: the j-th smallest of n uniforms is 1 − exp(−Σ_{i≤j} e_i/(n − i + 1)).
            sums = np.cumsum(draws[left, :kept] / (n - np.arange(kept)), axis=1)
            others = -spread * ndtri(-np.expm1(-sums))  # the largest first
            weights = record.weights(np.column_stack([np.full(len(left), needle), others]))
            done = (weights[:, -1] == 0) | (kept == int(n))
            held = weights[:, 0] ** 2 > np.sum(weights[:, 1:] ** 2, axis=1)
            above += int(np.sum(held & done))
            left = left[~done]
            if not len(left):
                return above / rows
        fix = f"{record.name} weighs more than {_SUPPORTS[-1]} keys; give a longer query"
        raise InputError("query", spread, fix)

    # SNR > 1 needs the needle to be the largest, of chance Φ(√d)^n: ¼ or less at this n.
    most = math.log(math.log(4)) - float(log_ndtr(-needle / spread))
    roots: list[Any] = [
        bisect(lambda x, wanted=wanted: share(x) - wanted, 0.0, most, xtol=_XTOL)
        for wanted in _shares(rows)
    ]
    middle, low, high = map(math.exp, roots)
    method = "bisection over n"
    return SampledCapacity(middle, (high - low) / 3.92, (low, high), rows, seed, method)


def _held_by(held: np.ndarray, share: float) -> float:
    """Return the n that a share of the rows holds, between whole numbers by a straight line."""
    low = float(np.quantile(held, 1 - share, method="lower"))
    while np.mean(held >= low) <= share:
        low -= 1
    above, below = np.mean(held >= low), np.mean(held >= low + 1)
    return low + float((above - share) / (above - below))
