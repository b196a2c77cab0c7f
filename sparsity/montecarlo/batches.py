"""Running a sampler in independent batches, on every device.

Batch i uses the key fold_in(key(seed), i) and returns a few means; the host adds them up in the
order of i. The same seed therefore gives the same bits on one device, two or four, and on those of
several processes (`jax.distributed`), each of which makes the same calls and gets all the means. On
a CPU that holds for two threads of XLA or more: on one, as the commands `verify`, `claims` and
`reproduce` have it, it sums in another order.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from sparsity.errors import InputError
from sparsity.montecarlo.compiling import LITTLE, MUCH, compiled
from sparsity.montecarlo.threefry import IMPL, fold_in

CHUNK = 32  # batches a call: the grain of progress, of interruption and of spreading over devices
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
    try:
        wanted = np.dtype(dtype)
    except TypeError:
        wanted = None
    if wanted not in (np.float32, np.float64):
        raise InputError("dtype", dtype, "choose float32 or float64")
    if wanted == np.float64 and available != wanted:
        fix = "JAX has it disabled; call jax.config.update('jax_enable_x64', True) first"
        raise InputError("dtype", "float64", fix)
    return wanted


@functools.cache
def _mesh() -> jax.sharding.Mesh:
    """As many devices as share a chunk evenly.

    Raises:
        InputError: some of several processes would be left without one.
    """
    devices = jax.devices()
    count = math.gcd(len(devices), CHUNK)
    if jax.process_count() > 1 and count < len(devices):
        fix = f"the devices of all processes together must divide {CHUNK}"
        raise InputError("devices", len(devices), fix)
    return jax.sharding.Mesh(np.array(devices[:count]), ("batch",))


def _given(keys: jax.Array, arguments: Any) -> tuple[Any, Any]:
    """What a call takes: of several processes plain numbers, the same in each."""
    if jax.process_count() == 1:
        return keys, arguments
    return np.asarray(jax.random.key_data(keys)), jax.tree.map(np.asarray, arguments)


def _keyed(keys: Any) -> Any:
    """Keys, from what `_given` makes of them."""
    if jnp.issubdtype(keys.dtype, jax.dtypes.prng_key):
        return keys
    return jax.random.wrap_key_data(keys, impl=IMPL)


def _everywhere(found: Any) -> Any:
    """What a call returns, whole in every process."""
    if jax.process_count() == 1:
        return found
    whole = jax.sharding.NamedSharding(_mesh(), PartitionSpec())
    return jax.lax.with_sharding_constraint(found, whole)


def agreed(*numbers: float) -> list[float]:
    """What the first process says, where several must go on alike."""
    if jax.process_count() == 1:
        return list(numbers)
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.broadcast_one_to_all(np.array(numbers))).tolist()


def _at_once(sampler: Sampler, batches: int) -> int:
    """How many batches are drawn side by side."""
    if _mesh().devices.flat[0].platform == "cpu":
        # The same width on any number of devices: XLA's sums depend on it in the last bit.
        return _ABREAST if small(sampler) else 1
    return min(max(_MEMORY // sampler.numbers, 1), batches)


def _call_sizes(sampler: Sampler) -> tuple[int, ...]:
    """Chunks that a call may take, the most first; each size compiles once."""
    if _mesh().devices.flat[0].platform == "cpu":
        return (1,)
    most = _CALL_NUMBERS // (CHUNK * sampler.numbers)
    return tuple(size for size in _CALLS if size <= max(most, 1))


def _spread(share: Callable[..., Any], others: int) -> Callable[..., Any]:
    """A function of batch numbers and other arguments, the numbers spread over all devices."""
    return jax.shard_map(
        share,
        mesh=_mesh(),
        in_specs=(PartitionSpec("batch"), *(PartitionSpec() for _ in range(others))),
        out_specs=PartitionSpec("batch"),
        check_vma=False,
    )


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

    drawn = _everywhere(_spread(share, 1)(_keyed(keys), arguments))
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
    width, keys = _at_once(sampler, CHUNK), _keyed(keys)
    own = jax.tree.map(lambda x: x[0], arguments)
    one = jax.eval_shape(sampler, keys[0, 0], own)

    def share(keys: jax.Array, count: jax.Array, arguments: Any) -> jax.Array:
        def draw(i: Any, found: jax.Array) -> jax.Array:
            own = jax.tree.map(lambda x: x[i], arguments)
            return found.at[:, i].set(_batches(sampler, keys[:, i], own, width))

        empty = jnp.zeros((*keys.shape, *one.shape), one.dtype)
        return jax.lax.fori_loop(0, count, draw, empty)

    return _everywhere(_spread(share, 2)(keys, count, arguments))


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
        keys, own = _given(_keys(*numbers, CHUNK), own)
        draw = compiled(_call_each, ("sampler",), _level(sampler))
        parts.append((count, draw(sampler, np.int32(count), keys, own)))

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
        draw = compiled(_call, ("sampler", "fold"), _level(sampler))
        parts.append(draw(sampler, *_given(keys, arguments), there))
        first, chunks = first + count * CHUNK, chunks - count
    found = np.concatenate([np.asarray(part, dtype=np.float64) for part in parts])
    return folded(found) if fold and not there else found
