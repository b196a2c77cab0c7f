"""Running a sampler in independent batches, and the error bar that the batches give.

Batch i uses the key fold_in(key(seed), i) and returns a few means; the host adds them up with
`math.fsum` in the order of i. The same seed therefore gives the same bits however the batches are
spread. Every error bar comes from the scatter between batches, so it is honest for plain and for
stratified sampling alike.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from sparsity.errors import InputError

__all__ = ["CHUNK", "Combined", "Sampler", "collect", "combine", "resolve_dtype", "summary"]

CHUNK = 32  # batches per call of the device: the grain of progress and of interruption


class Sampler(Hashable, Protocol):
    """A batch of `size` draws: (key, arguments) -> [3, moments] of mean, mean square, maximum."""

    @property
    def size(self) -> int:
        """Draws in a batch."""
        ...

    @property
    def dtype(self) -> str:
        """The precision they are drawn in."""
        ...

    def __call__(self, key: jax.Array, arguments: Any) -> jax.Array:
        """Draw one batch."""
        ...


def summary(*moments: jax.Array) -> jax.Array:
    """Mean, mean square and maximum of each moment's draws: what a batch hands to the host."""
    return jnp.stack([jnp.stack([v.mean(), (v * v).mean(), v.max()]) for v in moments], axis=1)


def resolve_dtype(dtype: Any) -> np.dtype:
    """The sampling precision: float64 where JAX has it enabled, else float32, unless given.

    Raises:
        InputError: not a float dtype, or float64 asked for while JAX has it disabled.
    """
    available = jnp.zeros(()).dtype
    if dtype is None:
        return np.dtype(available)
    try:
        wanted = np.dtype(dtype)
    except TypeError:
        wanted = None
    if wanted is None or wanted.name not in ("float32", "float64"):
        raise InputError("dtype", dtype, "choose float32 or float64")
    if wanted == np.float64 and available != np.float64:
        fix = "JAX has it disabled; call jax.config.update('jax_enable_x64', True) first"
        raise InputError("dtype", "float64", fix)
    return wanted


@functools.partial(jax.jit, static_argnames=("sampler",))
def _chunk(sampler: Sampler, key: jax.Array, start: jax.Array, arguments: Any) -> jax.Array:
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(start + jnp.arange(CHUNK, dtype="uint32"))
    return jax.lax.map(lambda k: sampler(k, arguments), keys)


def collect(
    sampler: Sampler,
    arguments: Any,
    *,
    seed: int,
    first: int,
    chunks: int,
    progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """Run `chunks`·CHUNK batches, from batch number `first` on.

    Returns:
        float64 [batches, 3, moments].
    """
    key = jax.random.key(seed, impl="threefry2x32")
    parts = []
    for c in range(chunks):
        part = _chunk(sampler, key, jnp.uint32(first + c * CHUNK), arguments)
        parts.append(np.asarray(part, dtype=np.float64))
        if progress is not None:
            progress(c + 1, chunks)
    return np.concatenate(parts)


class Combined(NamedTuple):
    """log of a product of powers of means, with its standard error and health."""

    log_value: float
    rel_stderr: float
    dof: int
    ess: float
    largest_share: float


def combine(batches: np.ndarray, powers: tuple[float, ...], size: int) -> Combined:
    """Σ powers_i · log(mean_i), error by the delta method with the covariance between batches.

    Args:
        batches: [batches, 3, moments] of mean, mean square, maximum.
        powers: one exponent per moment: (1, −½) for S = m₁/√m₂, (1, −1) for a conditional mean.
        size: draws per batch.

    Returns:
        The logarithm; its standard error; degrees of freedom; the effective sample size
        (Σv)²/Σv² and the largest share max v/Σv of the worse moment that takes part.
    """
    count = len(batches)
    used = [i for i, power in enumerate(powers) if power]
    means = np.array([math.fsum(batches[:, 0, i]) / count for i in range(len(powers))])
    if not np.all(means[used] > 0) or not np.all(np.isfinite(means[used])):
        return Combined(math.nan, math.inf, count - 1, 0.0, 1.0)
    log_value = math.fsum(powers[i] * math.log(means[i]) for i in used)
    relative = np.sum([powers[i] * (batches[:, 0, i] / means[i] - 1) for i in used], axis=0)
    stderr = math.sqrt(math.fsum(relative**2) / (count - 1) / count)
    squares = np.array([math.fsum(batches[:, 1, i]) / count for i in range(len(powers))])
    total = count * size
    ess = min(total * means[i] ** 2 / squares[i] for i in used)
    share = max(batches[:, 2, i].max() / (total * means[i]) for i in used)
    return Combined(log_value, stderr, count - 1, ess, share)
