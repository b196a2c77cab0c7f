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
- A call draws one chunk on a CPU. On an accelerator, where launching is dear, it draws up to 4096,
  and what is asked for of large batches is rounded up to calls that are full (`full_calls`).
- The host adds batches up in the order of i. The same seed therefore gives the same bits on one
  device, two or four, and on those of several processes. On a CPU that holds for two threads of XLA
  or more: on one, as the commands `verify`, `claims` and `reproduce` have it, XLA sums in another
  order.
- A chunk of each of up to ESTIMATIONS_PER_CALL estimations of one sampler is one call
  (`dispatch_each`): a curve of sixty points compiles once and is called twice. Each estimation has
  the bits that it would have alone.
- Of a run that goes on beyond MAX_BATCHES_KEPT batches each chunk is kept as one batch
  (`fold_chunks`), which bounds the memory at the cost of degrees of freedom nobody misses by then.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from sparsity.sampling.combining import Combined, combine
from sparsity.sampling.devices import (
    CHUNK,
    program_of,
    replicated,
    runs_on_cpu,
    sharded,
    to_host,
)
from sparsity.sampling.random_numbers import IMPL, fold_in
from sparsity.xla import LLVM_FOR_LONG_RUNS, LLVM_FOR_SMALL_BATCHES

# Fewer need more calls for a curve. More make a call that is not full stack and send more laws for
# nothing, and delay the first point of a curve.
ESTIMATIONS_PER_CALL = 32
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


def fold_chunks(batches: Any) -> Any:
    """Return each chunk of batches as one batch, in NumPy or JAX with the same bits.

    All batches have as many draws, so that the mean of their means is the mean of all draws. It is
    taken of pairs, and then of pairs of those: each step adds two numbers, which every library does
    alike, whereas `mean(axis=1)` adds in an order of its own. The maximum has no order.
    """
    chunks = batches.reshape(-1, CHUNK, *batches.shape[1:])
    means, highest = chunks[:, :, :2], chunks[:, :, 2:].max(axis=1)
    while means.shape[1] > 1:
        means = (means[:, ::2] + means[:, 1::2]) / 2
    return batches.__array_namespace__().concat([means[:, 0], highest], axis=1)


def _level(sampler: Sampler) -> int | None:
    return LLVM_FOR_SMALL_BATCHES if is_small(sampler) else LLVM_FOR_LONG_RUNS


def _batches_abreast(sampler: Sampler, batches: int) -> int:
    """Return how many batches are drawn side by side."""
    if runs_on_cpu():
        # The same width on any number of devices: XLA's sums depend on it in the last bit.
        return _SMALL_BATCHES_ABREAST if is_small(sampler) else 1
    return min(max(_MAX_NUMBERS_HELD // sampler.numbers, 1), batches)


def call_sizes(sampler: Sampler) -> tuple[int, ...]:
    """Return the numbers of chunks that a call may draw, largest first."""
    if runs_on_cpu():
        return (1,)
    most = _MAX_NUMBERS_PER_CALL // (CHUNK * sampler.numbers)
    return tuple(size for size in _CHUNKS_PER_CALL if size <= max(most, 1))


def full_calls(sampler: Sampler, chunks: int) -> int:
    """Return that many chunks, on an accelerator up to 63 or an eighth more: few, full calls.

    Of small batches it is that many: estimations of a grid, which begin together, draw as many as
    each would alone.
    """
    if is_small(sampler):
        return chunks
    size = next(x for x in call_sizes(sampler) if x <= max(chunks // 8, _LEAST_CHUNKS_PER_CALL))
    return -(-chunks // size) * size


def _draw_batches(
    sampler: Sampler, seed: jax.Array, indices: jax.Array, arguments: Any, width: int
) -> Any:
    """Draw the batches of these indices, `width` at a time: [batches, 3, moments].

    `lax.map`, not `vmap`, goes over them: a vmap of all would hold the draws of all in memory.
    """
    key = jax.random.key(seed, impl=IMPL)

    def batch(index: jax.Array) -> jax.Array:
        with jax.default_matmul_precision("highest"):  # accelerators round float32 otherwise
            return sampler(fold_in(key, index), arguments)

    return jax.lax.map(batch, indices, batch_size=width if width > 1 else None)


def _call(sampler: Sampler, seed: jax.Array, indices: jax.Array, arguments: Any, fold: bool) -> Any:
    """Draw the batches of one estimation, [batches, 3, moments], folded if asked."""
    width = _batches_abreast(sampler, len(indices))

    def share(indices: jax.Array, seed: jax.Array, arguments: Any) -> jax.Array:
        return _draw_batches(sampler, seed, indices, arguments, width)

    drawn = replicated(sharded(share, 2)(indices, seed, arguments))
    if not fold:
        return drawn
    return fold_chunks(drawn.astype(jax.dtypes.canonicalize_dtype(np.float64)))


def _call_each(
    sampler: Sampler, count: jax.Array, seeds: jax.Array, indices: jax.Array, arguments: Any
) -> Any:
    """Draw a chunk of each of `count` estimations, [batches, estimations, 3, moments]."""
    width = _batches_abreast(sampler, CHUNK)
    # A loop over estimations, not a vmap: each then has the bits that it has alone.
    first = jax.tree.map(lambda x: x[0], arguments)
    one = jax.eval_shape(sampler, jax.random.key(0, impl=IMPL), first)

    def share(indices: jax.Array, count: jax.Array, seeds: jax.Array, arguments: Any) -> jax.Array:
        def draw(i: Any, found: jax.Array) -> jax.Array:
            own = jax.tree.map(lambda x: x[i], arguments)
            batches = _draw_batches(sampler, seeds[i], indices[:, i], own, width)
            return found.at[:, i].set(batches)

        empty = jnp.zeros((*indices.shape, *one.shape), one.dtype)
        return jax.lax.fori_loop(0, count, draw, empty)

    return replicated(sharded(share, 3)(indices, count, seeds, arguments))


def _indices(first: Any, count: int) -> np.ndarray:
    """Return the indices of `count` batches from each first one on, along the first axis."""
    return np.add.outer(np.arange(count, dtype=np.uint32), np.asarray(first, dtype=np.uint32))


def dispatch_each(
    sampler: Sampler, arguments: Sequence[Any], seeds: Sequence[int], firsts: Sequence[int]
) -> Callable[[], list[np.ndarray]]:
    """Begin to draw a chunk of each of several estimations, with the bits of `collect`.

    A call always has room for ESTIMATIONS_PER_CALL estimations, the last one repeated, so that it
    compiles once; how many of them it draws is a traced number.

    Args:
        sampler: the sampler, of small batches.
        arguments: of each estimation, all of the same shapes.
        seeds: of each estimation.
        firsts: index of the first batch of each.

    Returns:
        A function that waits for the chunks: float64 [CHUNK, 3, moments] each.
    """
    parts = []
    for start in range(0, len(seeds), ESTIMATIONS_PER_CALL):
        count = min(len(seeds) - start, ESTIMATIONS_PER_CALL)
        rows = [start + (i if i < count else 0) for i in range(ESTIMATIONS_PER_CALL)]
        own = jax.tree.map(lambda *x: np.stack(x), *(arguments[i] for i in rows))
        draw = program_of(_call_each, _level(sampler), sampler=sampler)
        drawn = draw(
            count=np.int32(count),
            seeds=np.array([seeds[i] for i in rows], dtype=np.uint32),
            indices=_indices([firsts[i] for i in rows], CHUNK),
            arguments=to_host(own),
        )
        parts.append((count, drawn))

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
    fold_there = fold and sizes != (1,)  # an accelerator folds what it would have to send
    draw = program_of(_call, _level(sampler), sampler=sampler, fold=fold_there)
    while chunks:
        count = next(size for size in sizes if size <= chunks)
        indices = _indices(first, count * CHUNK)
        parts.append(draw(seed=np.uint32(seed), indices=indices, arguments=to_host(arguments)))
        first, chunks = first + count * CHUNK, chunks - count
    found = np.concatenate([np.asarray(part, dtype=np.float64) for part in parts])
    return fold_chunks(found) if fold and not fold_there else found


LeastKnown = tuple[tuple[float, ...], Combined]  # exponents, and the product of means


class Prefetched(NamedTuple):
    """The first chunks of an estimation, drawn together with those of others.

    Args:
        batches: [batches, 3, moments].
        least_known: what `BatchLog.least_known` says of them.
        seconds: its share of the time that drawing them took.
    """

    batches: np.ndarray
    least_known: LeastKnown
    seconds: float


class BatchLog:
    """The batches of one estimation so far, in bounded memory.

    Args:
        sampler: the sampler.
        arguments: its arguments, traced.
        seed: of the estimation.
        begun: the first chunks, where they have been drawn.
    """

    def __init__(
        self, sampler: Sampler, arguments: Any, seed: int, begun: Prefetched | None = None
    ) -> None:
        """Begin with nothing drawn."""
        self.sampler, self.arguments, self.seed, self.begun = sampler, arguments, seed, begun
        self.chunks = 0
        self.batches_in_one = 1  # batches of the sampler in one that is kept: 1 or CHUNK
        self._parts: list[np.ndarray] = []

    def draw(self, chunks: int, most: int) -> int:
        """Draw that many chunks more, in full calls if `most` allows, and return how many are."""
        chunks = min(full_calls(self.sampler, chunks), most)
        if self.batches_in_one == 1 and (self.chunks + chunks) * CHUNK > MAX_BATCHES_KEPT:
            self.batches_in_one = CHUNK
            self._parts = [fold_chunks(np.concatenate(self._parts))] if self._parts else []
        # What was prefetched comes first, then what is missing.
        fold, first, missing = self.batches_in_one == CHUNK, self.chunks * CHUNK, chunks
        if self.begun is not None and not first:
            begun = self.begun.batches
            self._parts.append(fold_chunks(begun) if fold else begun)
            first, missing = len(begun), missing - len(begun) // CHUNK
        if self.begun is not None and not fold and 0 < missing <= ESTIMATIONS_PER_CALL:
            # The program that began the estimation is compiled, and that of `collect` may not be:
            # for a few chunks it is quicker to use the one for several estimations, each chunk of
            # this one standing in for an estimation.
            firsts = range(first, first + missing * CHUNK, CHUNK)
            own = [self.arguments] * missing, [self.seed] * missing
            self._parts += dispatch_each(self.sampler, *own, firsts)()
        elif missing:
            own = {"seed": self.seed, "first": first, "chunks": missing, "fold": fold}
            self._parts.append(collect(self.sampler, self.arguments, **own))
        self.chunks += chunks
        return self.chunks

    def batches(self) -> np.ndarray:
        """Return all of them, [batches, 3, moments]."""
        return np.concatenate(self._parts)

    def least_known(self, goals: Sequence[tuple[float, ...]]) -> LeastKnown:
        """Return the product of powers of means with the largest error bar, and its exponents."""
        begun = self.begun
        if (
            begun is not None
            and self.batches_in_one == 1
            and len(begun.batches) == self.chunks * CHUNK  # no more than these was drawn
            and tuple(goals) == (begun.least_known[0],)
        ):
            return begun.least_known
        batches, size = self.batches(), self.sampler.size * self.batches_in_one
        every = [(powers, combine(batches, powers, size)) for powers in goals]
        return max(every, key=lambda each: each[1].rel_stderr)
