"""Rows of tokens of one law on a CPU: one program for all lengths, which it is given as numbers.

To compile a sampler takes as long as to draw some fifty million tokens, so that a curve against the
length would wait for XLA and little else if each length had a program of its own. Here the arrays
have the size of a batch, and where its rows lie in them is arithmetic.

Token j of row r, of R rows, has slot jR + r. The second half of the slots is added to the first,
and again, until one slot a row is left, with the sums of that row:

    tokens 0 1 2 3 4  ─>  0+3, 1+4, 2  ─>  0+3+2, 1+4  ─>  all five

An accelerator has a program for each length, as it would launch every pass by itself. So has a
quantity of a user's own, which may want the length as a number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparsity.kernels import Kernel
from sparsity.kernels.lowering import jax_log_abs
from sparsity.quantities import Quantity, RowSums
from sparsity.sampling.batches import NORMALS_PER_BATCH, batch_size
from sparsity.sampling.random_numbers import normal_of, words_of_normals

MOST_TOKENS = NORMALS_PER_BATCH // batch_size(NORMALS_PER_BATCH)  # longer rows have larger batches
_SLOTS = 2**11  # worked on at once: twice as many are as fast, four times as many a tenth slower
_ROWS = 2**10  # whose quantities are computed at once: the few of long rows waste little
_HELD = NORMALS_PER_BATCH + _SLOTS  # so that the last slots can be worked on like all others

_Sums = tuple[jax.Array, jax.Array, jax.Array]  # log of the largest |a|, Σ|a| and Σa² over it


def _write(arrays: _Sums, values: Any, at: Any) -> Any:
    """Return the arrays with values put in from a slot on."""
    return tuple(
        jax.lax.dynamic_update_slice(array, value, (at,))
        for array, value in zip(arrays, values, strict=True)
    )


def _read(arrays: _Sums, at: Any, count: int = _SLOTS) -> Any:
    """Return what stands in the arrays from a slot on."""
    return tuple(jax.lax.dynamic_slice(array, (at,), (count,)) for array in arrays)


def _blocks(slots: Any, size: int = _SLOTS) -> Any:
    """Return how many blocks hold so many slots."""
    return (slots + size - 1) // size


@dataclass(frozen=True)
class IidRowSampler:
    """Whole rows of n ≤ MOST_TOKENS tokens of one law with Gaussian scores, under retention.

    Moments: those of `RowSampler`.

    Args:
        kernel: any kernel of the score.
        quantities: functions of the count and the sums of a row, with a count that is traced.
        dtype: of the draws.
        length: n. It is not compared, as the compiled program is given it with its arguments.
    """

    kernel: Kernel
    quantities: tuple[Quantity, ...]
    dtype: str
    length: int = field(compare=False)

    @property
    def size(self) -> int:
        """Rows in a batch."""
        return batch_size(self.length)

    @property
    def numbers(self) -> int:
        """Random numbers held at once."""
        return NORMALS_PER_BATCH

    def __call__(self, key: jax.Array, arguments: Any) -> jax.Array:
        """Draw one batch; arguments = ((β, γ, −log λ), log scale, n and R as words)."""
        law, log_scale, n, rows = arguments
        sums = self._draw_pairs(key, law, n, rows)
        return self._moments(_add_up(sums, (n + 1) // 2, rows), log_scale, n, rows)

    def _draw_pairs(self, key: jax.Array, law: Any, n: jax.Array, rows: jax.Array) -> _Sums:
        """Draw every token, and add those of the second half of a row to those of the first."""
        beta, gamma, rate = law
        # Division by way of floats is quicker, and exact below 2¹⁷: the half keeps quotients 1/(2R)
        # away from whole numbers.
        per_row, kept = 1 / rows.astype("float32"), (n + 1) // 2

        def draw(block: Any, into: _Sums) -> _Sums:
            slot = block * _SLOTS + jax.lax.iota("uint32", _SLOTS)
            first = ((slot.astype("float32") + 0.5) * per_row).astype("uint32")
            # Words before normals: in one loop a core has too few registers for both.
            words = words_of_normals(jax.random.fold_in(key, block), (2, _SLOTS), self.dtype)

            def log_weight(token: tuple[jax.Array, jax.Array]) -> jax.Array:
                j, drawn = token
                log_f = jax_log_abs(self.kernel)(beta + gamma * normal_of(drawn))
                return jnp.where(j < n, log_f - (n - 1 - j).astype(self.dtype) * rate, -jnp.inf)

            # One half after the other: of both at once XLA would compute anew for each sum.
            pair = jax.lax.map(log_weight, (jnp.stack([first, first + kept]), words))
            one = jnp.ones_like(pair[0])
            return _write(into, _sum((pair[0], one, one), (pair[1], one, one)), block * _SLOTS)

        empty = (jnp.zeros(_HELD, self.dtype),) * 3
        return jax.lax.fori_loop(np.uint32(0), _blocks(kept * rows), draw, empty)

    def _moments(self, sums: _Sums, log_scale: jax.Array, n: jax.Array, rows: jax.Array) -> Any:
        """Return mean, mean square and maximum over rows, as `batches.summary` does."""
        count = n.astype(self.dtype)

        def add(block: Any, so_far: Any) -> Any:
            total, squares, highest = so_far
            peak, l1, l2 = _read(sums, block * _ROWS, _ROWS)
            there = block * _ROWS + jax.lax.iota("uint32", _ROWS) < rows
            seen = there & jnp.isfinite(peak)
            zero = jnp.zeros_like(peak)
            tokens = RowSums(count, jnp.where(seen, l1, 1), jnp.where(seen, l2, 1), zero, 0.0)
            values = [jnp.where(seen, q.of(tokens), 0) for q in self.quantities]
            # Rows without a nonzero token have no quantity, and a flag of 0.
            flag = seen.astype(self.dtype)
            common = jnp.where(seen, jnp.exp(peak - log_scale), 0)
            pooled = common * l1 / count, common**2 * l2 / count
            # A barrier, else XLA computes all of it for each of the three.
            v = jax.lax.optimization_barrier(jnp.stack([*values, flag, flag, *pooled]))
            high = jnp.where(there, v, -jnp.inf).max(axis=1)
            return total + v.sum(axis=1), squares + (v * v).sum(axis=1), jnp.maximum(highest, high)

        none = jnp.zeros(len(self.quantities) + 4, self.dtype)
        start = none, none, none - jnp.inf
        total, squares, highest = jax.lax.fori_loop(np.uint32(0), _blocks(rows, _ROWS), add, start)
        drawn = rows.astype(self.dtype)
        return jnp.stack([total / drawn, squares / drawn, highest])


def _sum(one: _Sums, other: _Sums) -> _Sums:
    """Return the sums of two parts of each row.

    The weights span more than a float's range: sums are kept over the largest of them, and those of
    the lesser part are shrunk.
    """
    peak = jnp.maximum(one[0], other[0])
    shrink = jnp.exp(jnp.minimum(one[0], other[0]) - peak)
    shrink = jnp.where(peak > -jnp.inf, shrink, 1)  # of two zeros, not a number
    a, b = (jnp.where(part[0] < peak, shrink, 1) for part in (one, other))
    return peak, one[1] * a + other[1] * b, one[2] * a**2 + other[2] * b**2


def _add_up(sums: _Sums, m: jax.Array, rows: jax.Array) -> _Sums:
    """Add up the m sums of every row, so that those of the whole row are in its first slot."""

    def halve(m: jax.Array, whole: _Sums, into: _Sums) -> tuple[jax.Array, _Sums]:
        """Make ⌈m/2⌉ sums of m, in other arrays: XLA would copy any that it reads and writes."""
        kept = (m + 1) // 2
        partners = (m - kept) * rows

        def add(block: Any, into: _Sums) -> _Sums:
            at = block * _SLOTS
            peak, *others = _read(whole, kept * rows + at)
            there = at + jax.lax.iota("uint32", _SLOTS) < partners
            other = (jnp.where(there, peak, -jnp.inf), *others)
            return _write(into, _sum(_read(whole, at), other), at)

        return kept, jax.lax.fori_loop(np.uint32(0), _blocks(kept * rows), add, into)

    def twice(state: Any) -> Any:
        m, one, other = state
        m, other = halve(m, one, other)
        m, one = halve(m, other, one)  # of a single sum it copies
        return m, one, other

    # Of m ≥ 2 sums, of at least three tokens, two fifths of the slots at most are left.
    spare = tuple(x[: NORMALS_PER_BATCH // 2 + _SLOTS] for x in sums)
    return jax.lax.while_loop(lambda state: state[0] > 1, twice, (m, sums, spare))[1]
