"""Running a sampler in independent batches, on every device, and keeping what comes of them.

Why the batches are as they are:

- A batch is what one key draws: batch i uses fold_in(key(seed), i), so its numbers depend on the
  seed and on i alone, and not on how many batches one call draws, nor on which device. threefry is
  a cipher of a counter: there is no state to hand on, and batch 10⁶ costs no more than batch 0.
  Splitting a key into as many as there are batches would need their number beforehand.
- A batch returns three numbers a moment (mean, mean square, maximum), never its draws: memory does
  not grow with the number of samples. The scatter of the means between batches gives the error bar,
  which is therefore honest for stratified draws too: each draw has a stratum of its own, so that
  the scatter within a batch is mostly that between strata, which is no error. Mean squares give the
  effective sample size, maxima the index of the tail.
- A batch is as large as fits a core's cache (`NORMALS_PER_BATCH`). Batches that are smaller than
  that (`is_small`) are drawn a few side by side, for vectors to be long enough.
- A chunk is CHUNK batches: the grain of progress, of Ctrl-C, and of spreading over devices. 32 can
  be shared evenly by 2, 4, 8, 16 or 32 devices, and 32 batches know their error bar to 13 %.
- A call draws one chunk on a CPU, or up to 32 of small batches where several estimations begin
  together (`draw_pilots`): what begins and ends a call takes longer than drawing one. On an
  accelerator, where launching is dear, it draws up to 4096, and what is asked for of large batches
  is rounded up to calls that are full (`full_calls`).
- The host adds batches up in the order of i. The same seed, machine and number of devices give the
  same bits; other ones the same estimate within its error bar.
- Of a run that goes on beyond MAX_BATCHES_KEPT batches each chunk is kept as one batch
  (`fold_chunks`), which bounds the memory at the cost of degrees of freedom nobody misses by then.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from sparsity.sampling.combining import Combined, combine
from sparsity.sampling.devices import CHUNK, jitted, runs_on_cpu, sharded
from sparsity.sampling.random_numbers import key_of
from sparsity.xla import LLVM_FOR_LONG_RUNS, LLVM_FOR_SMALL_BATCHES

# Of small batches on a CPU: 32 chunks take 2.8 ms in one call, twice to thrice that in 32.
_SMALL_CHUNKS_PER_CALL = 32
MAX_BATCHES_KEPT = 2**17  # 3 MB a moment; folded, they are 4096, enough for any error bar
# Of an accelerator. Each size is a program of its own, compiled once, in about a second.
_CHUNKS_PER_CALL = (4096, 512, 64, 1)
# Fewer take an accelerator less time than launching them: 0.4 ms for keys of 64 entries on an H200,
# where 130 calls for 8064 chunks took half of the time of an estimation.
_LEAST_CHUNKS_PER_CALL = 64
_MAX_NUMBERS_PER_CALL = 2**32  # random numbers: about a tenth of a second of an accelerator
_MAX_NUMBERS_HELD = 2**26  # by an accelerator at once
NORMALS_PER_BATCH = 2**16  # of keys, features or rows: 256 kB in float32 fit a core's cache
# In one draw, from which on a batch is a single draw: eight of them would be 32 MB and more.
_NORMALS_OF_A_BATCH_OF_ONE = 2**20
# A batch of at most so many numbers is small: a CPU draws four of them side by side, as the arrays
# of a single one are short for its vectors. Four of the largest hold half of what fits the cache.
_SMALL_BATCH, _SMALL_BATCHES_ABREAST = 2**13, 4


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

    def __call__(self, key: jax.Array, arguments: Any) -> jax.Array:
        """Draw one batch."""
        ...


def batch_size(normals_per_draw: int) -> int:
    """Return the draws of a batch of about NORMALS_PER_BATCH numbers; 8 at least if they fit."""
    least = 8 if normals_per_draw < _NORMALS_OF_A_BATCH_OF_ONE else 1
    return max(least, NORMALS_PER_BATCH // normals_per_draw)


def is_small(sampler: Sampler) -> bool:
    """Return whether a chunk takes less time than calling it."""
    return sampler.numbers <= _SMALL_BATCH


def summary(*moments: jax.Array) -> jax.Array:
    """Return mean, mean square and maximum of each moment's draws, which the host gets."""
    v = jax.lax.optimization_barrier(jnp.stack(moments))  # else XLA draws anew for each
    v = v.reshape(len(moments), -1)
    return jnp.stack([v.mean(axis=1), (v * v).mean(axis=1), v.max(axis=1)])


def summary_of_products(*moments: jax.Array) -> jax.Array:
    """Do `summary` for draws that end in a product of matrices, which XLA never does twice.

    Without the barrier a GPU does not write the draws out once more, and keys of 64 entries are
    drawn 1.15 times as fast. A CPU, whose cache holds a batch, keeps it: keys of 16 entries take
    1.2 times as long without, longer ones as long as with it.
    """
    if runs_on_cpu():
        return summary(*moments)
    means, squares = [v.mean() for v in moments], [(v * v).mean() for v in moments]
    return jnp.stack([jnp.stack(part) for part in (means, squares, [v.max() for v in moments])])


def fold_chunks(batches: np.ndarray) -> np.ndarray:
    """Return each chunk of batches as one batch.

    All batches have as many draws, so that the mean of their means is the mean of all draws.
    """
    chunks = batches.reshape(-1, CHUNK, *batches.shape[1:])
    means, highest = chunks[:, :, :2].mean(axis=1), chunks[:, :, 2:].max(axis=1)
    return np.concatenate([means, highest], axis=1)


def _batches_abreast(sampler: Sampler, batches: int) -> int:
    """Return how many batches are drawn side by side."""
    if runs_on_cpu():
        return _SMALL_BATCHES_ABREAST if is_small(sampler) else 1
    return min(max(_MAX_NUMBERS_HELD // sampler.numbers, 1), batches)


def call_sizes(sampler: Sampler) -> tuple[int, ...]:
    """Return the numbers of chunks that a call may draw, largest first."""
    if runs_on_cpu():
        return (1,)
    most = _MAX_NUMBERS_PER_CALL // (CHUNK * sampler.numbers)
    return tuple(size for size in _CHUNKS_PER_CALL if size <= max(most, 1))


def full_calls(sampler: Sampler, chunks: int) -> int:
    """Return that many chunks, on an accelerator up to 63 or an eighth more: few, full calls."""
    size = next(x for x in call_sizes(sampler) if x <= max(chunks // 8, _LEAST_CHUNKS_PER_CALL))
    return -(-chunks // size) * size


def _draw_batches(
    sampler: Sampler, indices: jax.Array, seed: jax.Array, arguments: Any, width: int
) -> Any:
    """Draw the batches of these indices, `width` at a time: [batches, 3, moments].

    `lax.map`, not `vmap`, goes over them: a vmap of all would hold the draws of all in memory.
    """

    def batch(index: jax.Array) -> jax.Array:
        with jax.default_matmul_precision("highest"):  # accelerators round float32 otherwise
            return sampler(jax.random.fold_in(key_of(seed), index), arguments)

    return jax.lax.map(batch, indices, batch_size=width if width > 1 else None)


def _call(sampler: Sampler, indices: jax.Array, seed: jax.Array, arguments: Any) -> jax.Array:
    """Draw the batches of one estimation, [batches, 3, moments]."""
    width = _batches_abreast(sampler, len(indices))

    def share(indices: jax.Array, given: tuple[jax.Array, Any]) -> jax.Array:
        return _draw_batches(sampler, indices, *given, width)

    return sharded(share)(indices, (seed, arguments))


def _call_chunks(
    sampler: Sampler, count: jax.Array, indices: jax.Array, seeds: jax.Array, arguments: Any
) -> jax.Array:
    """Draw the first `count` chunks, of any estimations, [batches, chunks, 3, moments]."""
    width = _batches_abreast(sampler, CHUNK)
    drawn_once = jax.eval_shape(sampler, key_of(0), jax.tree.map(lambda x: x[0], arguments))

    def share(indices: jax.Array, given: tuple[jax.Array, jax.Array, Any]) -> jax.Array:
        count, *columns = given

        # A loop over chunks, not a vmap: each then has the bits that it has alone.
        def draw(i: Any, drawn: jax.Array) -> jax.Array:
            seed, values = jax.tree.map(lambda column: column[i], columns)
            batches = _draw_batches(sampler, indices[:, i], seed, values, width)
            return drawn.at[:, i].set(batches)

        empty = jnp.zeros((*indices.shape, *drawn_once.shape), drawn_once.dtype)
        return jax.lax.fori_loop(0, count, draw, empty)

    return sharded(share)(indices, (count, seeds, arguments))


_Chunk = tuple[Any, int, int]  # to be drawn: the arguments, the seed, the index of the first batch


def _collect_chunks(sampler: Sampler, chunks: Sequence[_Chunk]) -> list[np.ndarray]:
    """Draw chunks of small batches, whose arguments have one shape, with the bits of `collect`."""
    draw, parts = jitted(_call_chunks, LLVM_FOR_SMALL_BATCHES, sampler=sampler), []
    for start in range(0, len(chunks), _SMALL_CHUNKS_PER_CALL):
        several = list(chunks[start : start + _SMALL_CHUNKS_PER_CALL])
        # So that it compiles once; what fills it up is not drawn.
        padding = [several[-1]] * (_SMALL_CHUNKS_PER_CALL - len(several))
        arguments, seeds, firsts = zip(*several, *padding, strict=True)
        drawn = draw(
            count=np.int32(len(several)),
            indices=np.add.outer(np.arange(CHUNK), firsts).astype(np.uint32),
            seeds=np.array(seeds, dtype=np.uint32),
            arguments=jax.tree.map(lambda *values: np.stack(values), *arguments),
        )
        parts += [*np.moveaxis(np.asarray(drawn, np.float64), 1, 0)[: len(several)]]
    return parts


class Pilot(NamedTuple):
    """The first chunks of an estimation, drawn with those of others, and its share of the time."""

    chunks: list[np.ndarray]
    seconds: float


def draw_pilots(
    sampler: Sampler, arguments: Sequence[Any], seeds: Sequence[int], chunks: int
) -> list[Pilot]:
    """Draw on a CPU the pilots, of so many chunks, of estimations with small batches."""
    started = time.perf_counter()
    pairs, firsts = zip(arguments, seeds, strict=True), range(0, chunks * CHUNK, CHUNK)
    drawn = _collect_chunks(sampler, [(*pair, first) for pair in pairs for first in firsts])
    seconds = (time.perf_counter() - started) / len(seeds)
    return [Pilot(drawn[i : i + chunks], seconds) for i in range(0, len(drawn), chunks)]


def collect(
    sampler: Sampler, arguments: Any, *, seed: int, first: int, chunks: int, fold: bool = False
) -> np.ndarray:
    """Draw `chunks`·CHUNK batches, from batch index `first` on.

    Args:
        sampler: the sampler; it compiles once for each of its values.
        arguments: its arguments, traced.
        seed: of the whole estimation.
        first: index of the first batch.
        chunks: how many chunks.
        fold: whether each chunk is returned as one batch.

    Returns:
        float64 [chunks · CHUNK, 3, moments], in the order of the batches; folded: [chunks, …].
    """
    sizes, parts = call_sizes(sampler), []
    level = LLVM_FOR_SMALL_BATCHES if is_small(sampler) else LLVM_FOR_LONG_RUNS
    draw = jitted(_call, level, sampler=sampler)
    while chunks:
        count = next(size for size in sizes if size <= chunks)
        indices = np.arange(first, first + count * CHUNK, dtype=np.uint32)
        parts.append(draw(indices=indices, seed=np.uint32(seed), arguments=arguments))
        first, chunks = first + count * CHUNK, chunks - count
    batches = np.concatenate([np.asarray(part, dtype=np.float64) for part in parts])
    return fold_chunks(batches) if fold else batches


LeastKnown = tuple[tuple[float, ...], Combined]  # exponents, and the product of means


class BatchLog:
    """The batches of one estimation so far, in bounded memory.

    Args:
        sampler: the sampler.
        arguments: its arguments, traced.
        seed: of the estimation.
        pilot: the chunks of its first call to `draw`, where they have been drawn.
    """

    def __init__(
        self, sampler: Sampler, arguments: Any, seed: int, pilot: Pilot | None = None
    ) -> None:
        """Begin with nothing drawn."""
        self.sampler, self.arguments, self.seed, self.pilot = sampler, arguments, seed, pilot
        self.chunks = 0
        self.batches_in_one = 1  # batches of the sampler in one that is kept: 1 or CHUNK
        self._parts: list[np.ndarray] = []

    def draw(self, chunks: int, most: int) -> int:
        """Draw that many chunks more, in full calls if `most` allows, and return how many are."""
        chunks = min(full_calls(self.sampler, chunks), most)
        if self.batches_in_one == 1 and (self.chunks + chunks) * CHUNK > MAX_BATCHES_KEPT:
            self.batches_in_one = CHUNK
            self._parts = [fold_chunks(np.concatenate(self._parts))] if self._parts else []
        fold, first = self.batches_in_one == CHUNK, self.chunks * CHUNK
        if self.pilot and not first:
            self._parts += self.pilot.chunks
        elif self.pilot and chunks <= _SMALL_CHUNKS_PER_CALL and not fold:
            # For a few, the program of the pilots is compiled, and that of `collect` may not be.
            firsts = range(first, first + chunks * CHUNK, CHUNK)
            more = [(self.arguments, self.seed, i) for i in firsts]
            self._parts += _collect_chunks(self.sampler, more)
        else:
            named = {"seed": self.seed, "first": first, "chunks": chunks, "fold": fold}
            self._parts.append(collect(self.sampler, self.arguments, **named))
        self.chunks += chunks
        return self.chunks

    def batches(self) -> np.ndarray:
        """Return all of them, [batches, 3, moments]."""
        return np.concatenate(self._parts)

    def least_known(self, goals: Sequence[tuple[float, ...]]) -> LeastKnown:
        """Return the product of powers of means with the largest error bar, and its exponents."""
        batches, size = self.batches(), self.sampler.size * self.batches_in_one
        products = [(powers, combine(batches, powers, size)) for powers in goals]
        return max(products, key=lambda product: product[1].rel_stderr)
