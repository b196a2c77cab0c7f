"""Blocks of rows of queries and keys, each in one compiled pass: sums of rows, and what keys get.

The sums are those of `streaming`, by its own pass over the keys (`sum_over_keys`). One key is set
apart, the sink key, so that nothing cancels where it takes almost all of the weight. Beside the
sums the logits of a block are kept until the sums are known: only then are they weights, which are
added up over the rows by key, for the importance of every key.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sparsity.attention.measurement.attention_layers import LogitLayer
from sparsity.attention.streaming.reduce import LogitRule, QueryRows, make_logits, sum_over_keys
from sparsity.attention.streaming.sums import Sums, base, empty
from sparsity.errors import InputError

FIELDS = frozenset({"z", "y", "w", "mean", "m2"})
SINK = "logit of the sink key"  # beside the sums of a block
MAX_LOGITS = 2**20  # of a block: fewer and larger blocks are faster, until they leave the cache
MAX_ROWS, MAX_KEYS = 128, 256  # of a block, and at a time: as `streaming.reduce.BLOCK`


class BlockPlan(NamedTuple):
    """What is fixed when blocks are compiled.

    Args:
        groups: key heads of a block.
        rows: queries of a block.
        keys: keys at a time.
        length: keys there are; the arrays may hold more.
        rule: how logits are made, before what a mask adds.
    """

    groups: int
    rows: int
    keys: int
    length: int
    rule: LogitRule


class RowBlock(NamedTuple):
    """One block of rows.

    Args:
        group: the first key head.
        start: the first query that counts; those of a block that reaches beyond the last lie
            before it.
        stop: the query after the last that counts.
        sink: position of the sink key; of each row, [1 or groups, 1 or heads, rows].
        seen: which keys a mask lets the rows see, [1 or groups, 1 or heads, rows, keys]; None for
            all.
        added: what a mask adds to their logits, likewise; None for nothing.
        learned: the logits of learned sinks, [groups, heads, 1]; None for none.
    """

    group: Any
    start: Any
    stop: Any
    sink: Any
    seen: Any = None
    added: Any = None
    learned: Any = None


@functools.partial(jax.jit, static_argnums=0)
def _sum_block(plan: BlockPlan, q: Any, k: Any, rows: RowBlock) -> tuple[Sums, Any, Any]:
    """Return the sums of a block, of queries [groups, heads, T, d] and keys [groups, keys, d].

    They are, [groups, heads, …], the sums over the keys other than the sink key, [rows]; the logit
    of the sink key, [rows], −∞ where it is not seen and NaN where not finite; and Σ of the weights
    that the rows that count give each key, [keys].

    The sink key often has nearly all of the weight, 1 − 10⁻⁸ say. Had it a part in the sums, the
    others would be what rounding leaves of a difference. So sums run over the others alone, and the
    sink key joins by the logit of its share: with odds = s_sink − ln Σ_others e^s its share is
    σ(odds) and that of the others σ(−odds), each to all its digits. Here that is for `received`;
    the `sink_mass` of a row is made of the same sums by `row_focus`.
    """
    groups, size, width, length, rule = plan
    # The last block begins earlier rather than being shorter: all are of one size, compiled once.
    # Its first rows were in the block before, and `counts` below leaves them out.
    first = jnp.minimum(rows.start, length - size)
    queries = jax.lax.dynamic_slice_in_dim(q, rows.group, groups, axis=0)
    queries = jax.lax.dynamic_slice_in_dim(queries, first, size, axis=2)
    own_keys = jax.lax.dynamic_slice_in_dim(k, rows.group, groups, axis=0)
    shape, tiles = queries.shape[:3], k.shape[1] // width
    at = first + jnp.arange(size, dtype="int32")
    sink_at = jnp.broadcast_to(rows.sink, shape)

    def score_tile(tile: Any) -> tuple[Any, Any, Any, Any]:
        begin = tile * width
        part = functools.partial(
            jax.lax.dynamic_slice_in_dim, start_index=begin, slice_size=width, axis=-1
        )
        keys = jax.lax.dynamic_slice_in_dim(own_keys, begin, width, axis=1)
        j = begin + jnp.arange(width, dtype="int32")
        s, seen = make_logits(rule, QueryRows(queries, at), keys, j)
        seen = seen & (j < length)
        if rows.seen is not None:
            seen = seen & part(rows.seen)
        if rows.added is not None:
            s = s + jnp.where(seen, part(rows.added), 0)
        # A logit that overflows becomes NaN, so that the maximum over tiles below keeps it and the
        # caller can refuse it; −∞ means "not in this tile".
        known = jnp.where(seen, jnp.where(jnp.isfinite(s), s, jnp.nan), -jnp.inf)
        place = sink_at - begin
        sink = jnp.take_along_axis(known, jnp.clip(place, 0, width - 1)[..., None], -1)[..., 0]
        sink = jnp.where((place >= 0) & (place < width), sink, -jnp.inf)
        seen = seen & (j != rows.sink[..., None])  # the others
        return s, seen, 0, (jnp.where(seen, s, -jnp.inf), sink)

    def reaches(tile: Any) -> Any:
        return jnp.asarray(True) if not rule.causal else tile * width < rows.stop

    start = empty(shape, FIELDS, queries.dtype)
    others, (kept, sink) = sum_over_keys(score_tile, reaches, start, tiles, FIELDS)
    sink = sink.max(0)  # it is in one tile, and −∞ in the others; NaN stays
    low, some = base(others.top), others.count > 0
    log_z = low + jnp.log(jnp.where(some, others.z, 1))
    odds = sink - log_z
    # Without any other key the sink key has all, if it is seen; `over_weight` turns the weights
    # e^(s − low) of the others into p.
    # Of the sink key, for `received` only; `sink_mass` is `row_focus`'s, in float64.
    given_to_sink = jnp.where(some, jax.nn.sigmoid(odds), jnp.where(jnp.isfinite(sink), 1, 0))
    over_weight = jnp.where(some, jax.nn.sigmoid(-odds) / jnp.where(some, others.z, 1), 0)
    if rows.learned is not None:
        log_sum = jnp.logaddexp(jnp.where(some, log_z, -jnp.inf), sink)
        left = jax.nn.sigmoid(log_sum - rows.learned)  # what the learned sink leaves to the keys
        given_to_sink, over_weight = given_to_sink * left, over_weight * left
    # A second pass over the kept logits, now that each row's sum is known: Σ over rows of p by key.
    counts = (at >= rows.start) & (at < rows.stop)

    def give_tile(tile: Any) -> Any:
        weight = jnp.exp(kept[tile] - low[..., None])  # 0 for the sink key
        return jnp.einsum("ghr,ghrk->ghk", over_weight * counts, weight, precision="highest")

    def skip_tile(tile: Any) -> Any:
        return jnp.zeros((*shape[:2], width), queries.dtype)

    # Tiles above the diagonal are skipped here as in the first pass: they hold −∞ alone.
    given = jax.lax.map(  # [tiles, groups, heads, keys at a time]
        lambda i: jax.lax.cond(reaches(i), give_tile, skip_tile, i), jnp.arange(tiles)
    )
    received = jnp.moveaxis(given, 0, 2).reshape(*shape[:2], -1)
    g, h = np.ogrid[: shape[0], : shape[1]]
    received = received.at[g[..., None], h[..., None], sink_at].add(given_to_sink * counts)
    return others, sink, received


class DeviceLayer(NamedTuple):
    """A layer on the device: queries [groups, heads, T, d] and keys [groups, keys, d].

    Args:
        plan: how it is cut into blocks.
        q: the queries, times the factor of q·k.
        k: the keys, with zeros up to a whole number of keys at a time.
    """

    plan: BlockPlan
    q: Any
    k: Any


def place_on_device(layer: LogitLayer) -> DeviceLayer:
    """Return the layer on the device, with its plan for going through it in blocks."""
    groups, length, dim = layer.keys.shape
    heads = layer.shape[0] // groups
    # As many rows as keep the logits of one key head's queries within MAX_LOGITS; where the texts
    # are so short that MAX_ROWS is reached first, several key heads go together. Their number
    # divides all, so that every block is of one shape.
    size = int(np.clip(MAX_LOGITS // (heads * length), min(8, length), min(MAX_ROWS, length)))
    most = int(np.clip(MAX_LOGITS // (heads * size * length), 1, groups))
    together = max(count for count in range(1, most + 1) if groups % count == 0)
    width = min(MAX_KEYS, length)
    rule = LogitRule(causal=layer.causal, softcap=layer.softcap)
    with jax.enable_x64(layer.dtype == np.float64), np.errstate(over="ignore"):
        q, k = layer.queries, layer.keys  # NumPy's are laid out by NumPy: nothing is compiled
        k = k.__array_namespace__().pad(k, ((0, 0), (0, -length % width), (0, 0)))
        q = q.reshape(groups, heads, length, dim)
        q, k = (x.astype(layer.dtype) for x in (q, k))
        q, k = map(jax.device_put, (q * np.asarray(layer.scale, layer.dtype), k))
        return DeviceLayer(BlockPlan(together, size, width, length, rule), q, k)


def sum_block(
    held: DeviceLayer, layer: LogitLayer, sink: Any, heads: slice, start: int, stop: int
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Return one block: sums and the sink key's logit by name, [heads, rows]; and of each key.

    That is what it receives from these rows, [heads, keys], and how many of them see it, [1 or
    heads, keys].

    Args:
        held: the layer on the device.
        layer: the same layer.
        sink: position of the sink key; not a whole number for the first key that each row sees.
        heads: of the block, all that share its key heads.
        start: its first row.
        stop: the row after its last.

    Raises:
        InputError: logits too large for the type of the arrays.
    """
    # Masks and sink positions are cut on the host, since only the rows of this block are needed;
    # queries and keys are cut on the device, where they are.
    plan, (_, together) = held.plan, held.q.shape[:2]
    length = plan.length
    first = min(start, length - plan.rows)  # as in `_sum_block`
    part, seen, added, learned = layer.take_heads(heads), None, None, None

    # An axis of length 1 stands for all heads and stays so: what a mask shares is not copied.
    def by_group(x: Any) -> Any:  # [1 or heads, rows, …] -> [1 or groups, 1 or heads, rows, …]
        lead = (1, 1) if len(x) == 1 else (plan.groups, together)
        return x.reshape(*lead, *x.shape[1:])

    def padded(mask: Any) -> Any:
        return by_group(np.pad(mask, ((0, 0), (0, 0), (0, held.k.shape[1] - mask.shape[-1]))))

    if layer.hides:
        seen = part.visible_keys(first, first + plan.rows, length)
        if layer.mask_adds:  # in the type of the logits: else it is compiled anew
            added = part.mask[:, first : first + plan.rows].astype(layer.dtype)
    if isinstance(sink, int):
        at = np.full((1, 1, 1), sink, np.int32)
    else:
        at = by_group(part.first[:, first : first + plan.rows].astype(np.int32))
    if layer.learned_sinks is not None:
        learned = layer.learned_sinks[heads].astype(layer.dtype).reshape(plan.groups, -1, 1)
    seen_by_group, added = (None if x is None else padded(x) for x in (seen, added))
    block = RowBlock(heads.start // together, start, stop, at, seen_by_group, added, learned)
    with jax.enable_x64(held.q.dtype == np.float64):
        sums = jax.device_get(_sum_block(plan, held.q, held.k, block))
    *sums, received = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), sums)
    others, of_sink = jax.tree.map(lambda x: x[:, start - first : stop - first], sums)
    # Sums of softmax hide an overflow (the largest logit has weight 1); means and squares show it.
    if not (np.isfinite(others.mean) & np.isfinite(others.m2)).all() or np.isnan(of_sink).any():
        shape = (layer.shape[0], length, length)
        raise InputError("logits", f"array of shape {shape}", "holds NaN or infinite values")
    if seen is not None:
        counts = seen[:, start - first : stop - first].sum(-2)
    elif layer.causal:  # key j is seen by the rows of the block from j on
        counts = np.clip(stop - np.maximum(np.arange(length), start), 0, None)
    else:
        counts = np.full(length, stop - start)
    by_name = {name: x for name, x in others._asdict().items() if x is not None}
    return by_name | {SINK: of_sink}, received[:, :length], np.atleast_2d(counts)
