"""One pass over all queries and keys, in blocks: never the matrix."""

from __future__ import annotations

import functools
from collections.abc import Set
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sparsity.attention.streaming import scores as scoring
from sparsity.attention.streaming.scores import Rows, Scores
from sparsity.attention.streaming.sums import Sums, empty, merge, of_block

BLOCK = (128, 256)  # queries, keys: with what is made of them they fit a core's cache


class Layout(NamedTuple):
    """What is fixed of a pass.

    Args:
        scores: of the logits.
        fields: of the sums.
        most: of the largest logits.
        block: queries and keys at a time.
    """

    scores: Scores
    fields: Set[str]
    most: int
    block: tuple[int, int]


def _begin(i: Any, size: int, total: int) -> Any:
    """First member of a block; the last block lies over the one before, so that all are alike."""
    return jnp.minimum(i * size, total - size)


def _slice(x: Any, begin: Any, size: int, heads: tuple[int, ...]) -> Any:
    """Some tokens of [..., heads, tokens, d], reshaped to [groups, *heads, tokens, d].

    Reshaping the whole array would copy it.
    """
    part = jax.lax.dynamic_slice_in_dim(x, begin, size, axis=-2)
    return part.reshape(-1, *heads, size, x.shape[-1])


def _row_block(layout: Layout, rows: Rows, k: Any, first: Any) -> Sums:
    """The sums of a block of queries over all keys; `first` is the position of the first key."""
    scores, fields, most, (_, size) = layout
    total = k.shape[-2]
    size = min(size, total)

    def work(sums: Sums, j: Any) -> Sums:
        begin = _begin(j, size, total)
        at = first + begin + jnp.arange(size, dtype="int32")
        s, seen = scoring.logits(scores, rows, _slice(k, begin, size, ()), at)
        fresh = at >= first + j * size  # the others were in the block before
        return merge(sums, of_block(s, seen & fresh, at[0], fields, most))

    @functools.partial(jax.checkpoint, prevent_cse=False)  # derivatives make the blocks anew
    def step(sums: Sums, j: Any) -> tuple[Sums, None]:
        begin = first + _begin(j, size, total)
        here = scoring.reaches(scores, rows, begin, begin + size - 1)
        return jax.lax.cond(here, work, lambda sums, j: sums, sums, j), None

    wide = jnp.promote_types(rows.q.dtype, "float32")
    start = empty(rows.q.shape[:3], fields, wide, most)
    return jax.lax.scan(step, start, jnp.arange(-(-total // size), dtype="int32"))[0]


def reduced(layout: Layout, rows: Rows, k: Any, first: Any, sinks: Any) -> tuple[Sums, Sums | None]:
    """The sums of all queries over all keys, and over the sinks: each [groups, heads, rows].

    Args:
        layout: what is fixed.
        rows: the queries, [..., heads, rows, d].
        k: keys [..., groups, keys, d], at the positions from `first` on.
        first: the position of the first key.
        sinks: positions of the keys that are looked at as sinks, int32; None for none.
    """
    total, first = rows.q.shape[-2], jnp.asarray(first, "int32")
    size, together = min(layout.block[0], total), rows.q.shape[-3] // k.shape[-3]
    if sinks is not None:
        here = (sinks >= first) & (sinks < first + k.shape[-2])
        apart = k[..., jnp.clip(sinks - first, 0, k.shape[-2] - 1), :]
        apart = apart.reshape(-1, *apart.shape[-2:])

    def block(i: Any) -> tuple[Sums, Sums | None]:
        begin = _begin(i, size, total)
        own = rows._replace(
            q=_slice(rows.q, begin, size, (together,)),
            at=jax.lax.dynamic_slice_in_dim(rows.at, begin, size),
        )
        if rows.text is not None:
            own = own._replace(text=jax.lax.dynamic_slice_in_dim(rows.text, begin, size))
        if sinks is None:
            return _row_block(layout, own, k, first), None
        s, seen = scoring.logits(layout.scores, own, apart, sinks)
        of_sinks = of_block(s, seen & here, 0, frozenset({"z"}))
        return _row_block(layout, own, k, first), of_sinks

    count = -(-total // size)
    every = jax.lax.map(block, jnp.arange(count, dtype="int32"))

    def joined(x: Any) -> Any:  # [blocks, groups, heads, size, …]
        x = jnp.moveaxis(x, 0, 2)
        whole = x[:, :, :-1].reshape(*x.shape[:2], -1, *x.shape[4:])
        return jnp.concatenate([whole, x[:, :, -1, size * count - total :]], axis=2)

    return jax.tree.map(joined, every)
