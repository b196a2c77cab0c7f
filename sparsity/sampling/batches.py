"""Running a sampler in independent batches, on every device.

Batch i uses the key fold_in(key(seed), i) and returns a few means; the host adds them up in the
order of i. The same seed therefore gives the same bits on one device, two or four, and on those of
several processes (`jax.distributed`), each of which makes the same calls and gets all the means. On
a CPU that holds for two threads of XLA or more: on one, as the commands `verify`, `claims` and
`reproduce` have it, it sums in another order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from sparsity.arguments import float_type
from sparsity.errors import InputError
from sparsity.sampling.compiling import LITTLE, MUCH, compiled
from sparsity.sampling.devices import CHUNK, mesh, replicated, sharded, to_host_arrays, to_keys
from sparsity.sampling.threefry import IMPL, fold_in

_CALLS = (4096, 64, 1)  # chunks that one call of an accelerator may take: launching is dear
_CALL_NUMBERS = 2**32  # random numbers of a call: a tenth of a second, about
_BATCH_NORMALS = 2**16  # normals of a batch of keys, features or rows: fits a core's cache
_ALONE = 2**20  # normals of one draw beyond which a batch is a single draw
_CACHE = 2**13  # numbers in a batch below which a CPU draws the batches of a chunk side by side
_ABREAST = 4  # so many
TOGETHER = 32  # chunks of small batches that one call draws
_MEMORY = 2**26  # numbers that an accelerator holds at once


class Sampler(Hashable, Protocol):
    """A batch of `size` draws: (key, arguments) -> [3, moments] of mean, mean square, maximum."""

    @property
    def size(self) -> int:
        """Draws in a batch."""
        ...

    @property
    def numbers(self) -> int:
        """Random numbers that a batch holds at once."""
        ...

    @property
    def dtype(self) -> str:
        """The precision they are drawn in."""
        ...

    def __call__(self, key: jax.Array, arguments: Any) -> jax.Array:
        """Draw one batch."""
        ...


def batch_size(normals_per_draw: int) -> int:
    """Draws in a batch of about _BATCH_NORMALS numbers; 8 at least, where they fit."""
    return max(8 if normals_per_draw < _ALONE else 1, _BATCH_NORMALS // normals_per_draw)


def small(sampler: Sampler) -> bool:
    """Whether a chunk takes less time than calling it."""
    return sampler.numbers <= _CACHE


def _level(sampler: Sampler) -> int | None:
    return LITTLE if small(sampler) else MUCH


def summary(*moments: jax.Array) -> jax.Array:
    """Mean, mean square and maximum of each moment's draws: what a batch hands to the host."""
    v = jax.lax.optimization_barrier(jnp.stack(moments))  # else XLA draws anew for each
    v = v.reshape(len(moments), -1)
    return jnp.stack([v.mean(axis=1), (v * v).mean(axis=1), v.max(axis=1)])


def resolve_dtype(dtype: Any) -> np.dtype:
    """The sampling precision: float64 where JAX has it enabled, else float32, unless given.

    Raises:
        InputError: not a float dtype, or float64 asked for while JAX has it disabled.
    """
    available = jax.dtypes.canonicalize_dtype(np.float64)
    if dtype is None:
        return np.dtype(available)
    wanted = float_type(dtype)
    if wanted == np.float64 and available != wanted:
        fix = "JAX has it disabled; call jax.config.update('jax_enable_x64', True) first"
        raise InputError("dtype", "float64", fix)
    return wanted


def _at_once(sampler: Sampler, batches: int) -> int:
    """How many batches are drawn side by side."""
    if mesh().devices.flat[0].platform == "cpu":
        # The same width on any number of devices: XLA's sums depend on it in the last bit.
        return _ABREAST if small(sampler) else 1
    return min(max(_MEMORY // sampler.numbers, 1), batches)


def _call_sizes(sampler: Sampler) -> tuple[int, ...]:
    """Chunks that a call may take, the most first; each size compiles once."""
    if mesh().devices.flat[0].platform == "cpu":
        return (1,)
    most = _CALL_NUMBERS // (CHUNK * sampler.numbers)
    return tuple(size for size in _CALLS if size <= max(most, 1))


@functools.partial(jax.jit, static_argnames=("count",))
def _keys(seeds: jax.Array, starts: jax.Array, count: int) -> jax.Array:
    """The keys of `count` batches of each seed, [batches, seeds]: apart, it compiles but once."""
    numbers = jnp.arange(count, dtype="uint32")[:, None] + starts

    def key(seed: jax.Array, number: jax.Array) -> jax.Array:
        return fold_in(jax.random.key(seed, impl=IMPL), number)

    return jax.vmap(jax.vmap(key), (None, 0))(seeds, numbers)


def _batches(sampler: Sampler, keys: jax.Array, arguments: Any, width: int) -> Any:
    """Batches of one estimation, [batches, 3, moments]."""

    def batch(key: jax.Array) -> jax.Array:
        with jax.default_matmul_precision("highest"):  # accelerators round float32 otherwise
            return sampler(key, arguments)

    return jax.lax.map(batch, keys, batch_size=width if width > 1 else None)


def _call(sampler: Sampler, keys: jax.Array, arguments: Any, fold: bool) -> Any:
    width = _at_once(sampler, len(keys))

    def share(keys: jax.Array, arguments: Any) -> jax.Array:
        return _batches(sampler, keys[:, 0], arguments, width)

    drawn = replicated(sharded(share, 1)(to_keys(keys), arguments))
    return folded(drawn.astype(jax.dtypes.canonicalize_dtype(np.float64))) if fold else drawn


def folded(batches: Any) -> Any:
    """Each chunk of batches as one batch, NumPy's or JAX's: pairs of pairs, so the bits are one."""
    chunks = batches.reshape(-1, CHUNK, *batches.shape[1:])
    means, highest = chunks[:, :, :2], chunks[:, :, 2:].max(axis=1)
    while means.shape[1] > 1:
        means = (means[:, ::2] + means[:, 1::2]) / 2
    return batches.__array_namespace__().concat([means[:, 0], highest], axis=1)


def _call_each(sampler: Sampler, count: jax.Array, keys: jax.Array, arguments: Any) -> Any:
    """A chunk of each of `count` estimations, [batches, estimations, 3, moments]."""
    width, keys = _at_once(sampler, CHUNK), to_keys(keys)
    own = jax.tree.map(lambda x: x[0], arguments)
    one = jax.eval_shape(sampler, keys[0, 0], own)

    def share(keys: jax.Array, count: jax.Array, arguments: Any) -> jax.Array:
        def draw(i: Any, found: jax.Array) -> jax.Array:
            own = jax.tree.map(lambda x: x[i], arguments)
            return found.at[:, i].set(_batches(sampler, keys[:, i], own, width))

        empty = jnp.zeros((*keys.shape, *one.shape), one.dtype)
        return jax.lax.fori_loop(0, count, draw, empty)

    return replicated(sharded(share, 2)(keys, count, arguments))


def dispatch_each(
    sampler: Sampler, arguments: Sequence[Any], seeds: Sequence[int], firsts: Sequence[int]
) -> Callable[[], list[np.ndarray]]:
    """Begin to draw a chunk of each of several estimations of one sampler; the bits of `collect`.

    Args:
        sampler: the sampler, of small batches; it compiles once for this.
        arguments: of each estimation, all of the same shapes.
        seeds: likewise.
        firsts: number of the first batch, likewise.

    Returns:
        What waits for them: float64 [CHUNK, 3, moments] each.
    """
    parts = []
    for start in range(0, len(seeds), TOGETHER):
        count = min(len(seeds) - start, TOGETHER)
        rows = [start + (i if i < count else 0) for i in range(TOGETHER)]
        own = jax.tree.map(lambda *x: np.stack(x), *(arguments[i] for i in rows))
        numbers = (np.array([x[i] for i in rows], dtype=np.uint32) for x in (seeds, firsts))
        keys, own = to_host_arrays(_keys(*numbers, CHUNK), own)
        draw = compiled(_call_each, _level(sampler), sampler=sampler)
        parts.append((count, draw(count=np.int32(count), keys=keys, arguments=own)))

    def wait() -> list[np.ndarray]:
        return [
            chunk
            for count, drawn in parts
            for chunk in np.moveaxis(np.asarray(drawn, dtype=np.float64), 1, 0)[:count]
        ]

    return wait


def collect(
    sampler: Sampler, arguments: Any, *, seed: int, first: int, chunks: int, fold: bool = False
) -> np.ndarray:
    """Run `chunks`·CHUNK batches, from batch number `first` on.

    Args:
        sampler: the sampler; it compiles once for each of its values.
        arguments: its arguments, traced.
        seed: of the whole estimation.
        first: number of the first batch.
        chunks: how many chunks.
        fold: whether each chunk is returned as one batch.

    Returns:
        float64 [chunks · CHUNK, 3, moments], in the order of the batches; folded: [chunks, …].
    """
    sizes, parts = _call_sizes(sampler), []
    there = fold and sizes != (1,)  # an accelerator folds what it would have to send
    while chunks:
        count = next(size for size in sizes if size <= chunks)
        number = np.array([first], dtype=np.uint32)
        keys = _keys(np.array([seed], dtype=np.uint32), number, count * CHUNK)
        draw = compiled(_call, _level(sampler), sampler=sampler, fold=there)
        keys, own = to_host_arrays(keys, arguments)
        parts.append(draw(keys=keys, arguments=own))
        first, chunks = first + count * CHUNK, chunks - count
    found = np.concatenate([np.asarray(part, dtype=np.float64) for part in parts])
    return folded(found) if fold and not there else found
