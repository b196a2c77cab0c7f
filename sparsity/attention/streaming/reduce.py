"""The one pass over blocks of keys: logits are made, summed up and forgotten, never the matrix.

`sum_over_keys` is the pass itself: it merges the sums of one block of keys after another.
`sparsity.stream` and `sparsity.measure` both run it, on a block of queries at a time; what they do
besides they do in `sum_rows_over_keys` here and in `attention.measurement.logit_blocks`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sparsity.attention.streaming.sums import Sums, empty, merge, of_block
from sparsity.errors import InputError

# Queries and keys at a time: with what is made of them they fit a core's cache. Larger blocks leave
# it and skip less above the diagonal; smaller ones repeat the cost of a step of the loop.
BLOCK = (128, 256)

Mask = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class LogitRule:
    """How logits are made: s = cap·tanh(scale·q·k/cap) − slope·|i − j| of query i and key j.

    Args:
        causal: whether a query sees only itself and the keys before it.
        window: how many keys up to itself it sees at most; None for all.
        softcap: the cap; None for none.
        mask: (i, j) -> bool, which keys a query sees besides; positions [rows, 1] and [1, keys].
        precision: of the product, as JAX names it.
    """

    causal: bool = True
    window: int | None = None
    softcap: float | None = None
    mask: Mask | None = None
    precision: str = "highest"


class QueryRows(NamedTuple):
    """Queries and what belongs to each.

    Args:
        q: queries [groups, heads of a group, rows, d].
        at: their positions, int32 [rows].
        scale: the factor of q·k; None where `q` already has it.
        slopes: the slopes of ALiBi, [groups, heads]; None for none.
        text: the number of the text that each query belongs to, int32 [rows], 0 or less for
            padding; None where all is one text.
        texts: the same numbers of all keys, [keys].
    """

    q: Any
    at: Any
    scale: Any = None
    slopes: Any = None
    text: Any = None
    texts: Any = None


class PassPlan(NamedTuple):
    """What is fixed when a pass is compiled.

    Args:
        rule: how logits are made.
        fields: the fields of `Sums` that are wanted.
        most: how many of the largest logits are kept.
        block: queries and keys at a time.
    """

    rule: LogitRule
    fields: Set[str]
    most: int
    block: tuple[int, int]


def make_logits(rule: LogitRule, rows: QueryRows, k: Any, at: Any) -> tuple[Any, Any]:
    """Return logits [groups, heads, rows, keys] and which of them are seen, [rows, keys].

    Args:
        rule: how they are made.
        rows: the queries.
        k: keys [groups, keys, d].
        at: the positions of the keys, int32 [keys].
    """
    # Half precision is summed up in float32, as fused kernels do; the cap comes before the bias and
    # the mask, in the order in which models apply them.
    wide = jnp.promote_types(rows.q.dtype, "float32")
    s = jnp.einsum(
        "ghrd,gkd->ghrk", rows.q, k, precision=rule.precision, preferred_element_type=wide
    )
    if rows.scale is not None:
        s = rows.scale.astype(wide) * s
    if rule.softcap is not None:
        s = rule.softcap * jnp.tanh(s / rule.softcap)
    i, j = rows.at[:, None], at[None, :]
    if rows.slopes is not None:
        s = s - rows.slopes[:, :, None, None] * jnp.abs(i - j)
    seen = jnp.ones(jnp.broadcast_shapes(i.shape, j.shape), bool)
    if rule.causal:
        seen = seen & (j <= i)
    if rule.window is not None:
        seen = seen & (jnp.abs(i - j) < rule.window)
    if rule.mask is not None:
        if getattr(visible := rule.mask(i, j), "dtype", None) != jnp.dtype("bool"):
            raise InputError("mask", visible, "must return an array of bools for positions i, j")
        seen = seen & visible
    if rows.text is not None:
        text = rows.text[:, None]
        seen = seen & (text == rows.texts[at]) & (text > 0)
    return s, seen


def sum_over_keys(
    score_block: Callable[[Any], tuple[Any, Any, Any, Any]],
    reaches: Callable[[Any], Any],
    start: Sums,
    blocks: int,
    fields: Set[str],
    most: int = 0,
) -> tuple[Sums, Any]:
    """Merge the sums of one block of keys after another; blocks out of reach cost next to nothing.

    Args:
        score_block: takes the number of a block and returns its logits [..., rows, keys], which of
            them count, the position of its first key, and arrays to be kept of it.
        reaches: whether any row may see a key of the block of that number.
        start: the sums before the first block.
        blocks: how many there are.
        fields: the fields of `Sums` that are wanted.
        most: how many of the largest logits are kept.

    Returns:
        The sums; and what was kept, one block beside the other along a first axis, −∞ for blocks
        out of reach.
    """

    def add_block(sums: Sums, block: Any) -> tuple[Sums, Any]:
        s, counts, first, kept = score_block(block)
        return merge(sums, of_block(s, counts, first, fields, most)), kept

    def skip_block(sums: Sums, block: Any) -> tuple[Sums, Any]:
        kept = jax.eval_shape(score_block, block)[3]
        return sums, jax.tree.map(lambda x: jnp.full(x.shape, -jnp.inf, x.dtype), kept)

    # Derivatives make the blocks anew: kept for the way back, they would be the whole matrix.
    # `prevent_cse` guards against what `scan` rules out by itself, and costs time.
    @functools.partial(jax.checkpoint, prevent_cse=False)
    def step(sums: Sums, block: Any) -> tuple[Sums, Any]:
        return jax.lax.cond(reaches(block), add_block, skip_block, sums, block)

    return jax.lax.scan(step, start, jnp.arange(blocks, dtype="int32"))


def _block_start(number: Any, size: int, total: int) -> Any:
    """Return the first member of a block; the last block overlaps the one before it.

    So all blocks are of one size, which is compiled once.
    """
    return jnp.minimum(number * size, total - size)


def _take_tokens(x: Any, begin: Any, size: int, heads: tuple[int, ...]) -> Any:
    """Return some tokens of [..., heads, tokens, d] as [groups, *heads, tokens, d].

    The slice is taken first: reshaping the whole array would copy it.
    """
    part = jax.lax.dynamic_slice_in_dim(x, begin, size, axis=-2)
    return part.reshape(-1, *heads, size, x.shape[-1])


def _sum_row_block(plan: PassPlan, rows: QueryRows, k: Any, first: Any) -> Sums:
    """Return the sums of a block of queries over all keys; the first key is at `first`."""
    rule, fields, most, (_, size) = plan
    total = k.shape[-2]
    size = min(size, total)

    def score_block(j: Any) -> tuple[Any, Any, Any, Any]:
        begin = _block_start(j, size, total)
        at = first + begin + jnp.arange(size, dtype="int32")
        s, seen = make_logits(rule, rows, _take_tokens(k, begin, size, ()), at)
        # The last block begins earlier so as to be of full size: keys that the block before has had
        # are not counted again.
        fresh = at >= first + j * size
        return s, seen & fresh, at[0], ()

    def reaches(j: Any) -> Any:
        # By the outermost positions of the rows alone: a mask of the caller's is not asked.
        begin = first + _block_start(j, size, total)
        last, reached = begin + size - 1, jnp.asarray(True)
        if rule.causal:
            reached = reached & (begin <= rows.at.max())
        if rule.window is not None:
            reached = reached & (last > rows.at.min() - rule.window)
            reached = reached & (begin < rows.at.max() + rule.window)
        return reached

    wide = jnp.promote_types(rows.q.dtype, "float32")
    start = empty(rows.q.shape[:3], fields, wide, most)
    return sum_over_keys(score_block, reaches, start, -(-total // size), fields, most)[0]


def sum_rows_over_keys(
    plan: PassPlan, rows: QueryRows, k: Any, first: Any, sinks: Any
) -> tuple[Sums, Sums | None]:
    """Return the sums of all queries over all keys, and over the sinks: [groups, heads, rows] each.

    Args:
        plan: what is fixed.
        rows: the queries, [..., heads, rows, d].
        k: keys [..., groups, keys, d], at the positions from `first` on.
        first: the position of the first key.
        sinks: positions of the keys that are looked at as sinks, int32; None for none.
    """
    total, first = rows.q.shape[-2], jnp.asarray(first, "int32")
    size, heads = min(plan.block[0], total), rows.q.shape[-3] // k.shape[-3]
    # Sinks are summed up in a pass of their own, over these few keys. On a device that does not
    # hold a sink's position some key stands in for it, and `here` leaves it out.
    if sinks is not None:
        here = (sinks >= first) & (sinks < first + k.shape[-2])
        sink_keys = k[..., jnp.clip(sinks - first, 0, k.shape[-2] - 1), :]
        sink_keys = sink_keys.reshape(-1, *sink_keys.shape[-2:])

    def sum_block(i: Any) -> tuple[Sums, Sums | None]:
        begin = _block_start(i, size, total)
        part = rows._replace(
            q=_take_tokens(rows.q, begin, size, (heads,)),
            at=jax.lax.dynamic_slice_in_dim(rows.at, begin, size),
        )
        if rows.text is not None:
            part = part._replace(text=jax.lax.dynamic_slice_in_dim(rows.text, begin, size))
        if sinks is None:
            return _sum_row_block(plan, part, k, first), None
        s, seen = make_logits(plan.rule, part, sink_keys, sinks)
        of_sinks = of_block(s, seen & here, 0, frozenset({"z"}))
        return _sum_row_block(plan, part, k, first), of_sinks

    count = -(-total // size)
    by_block = jax.lax.map(sum_block, jnp.arange(count, dtype="int32"))

    def join_blocks(x: Any) -> Any:  # [blocks, groups, heads, size, …]; the last block overlaps
        x = jnp.moveaxis(x, 0, 2)
        whole = x[:, :, :-1].reshape(*x.shape[:2], -1, *x.shape[4:])
        return jnp.concatenate([whole, x[:, :, -1, size * count - total :]], axis=2)

    return jax.tree.map(join_blocks, by_block)
