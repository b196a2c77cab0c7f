"""Rows of queries and keys in one compiled pass: sums of each row, and what the keys receive."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sparsity.attention.measurement.sources import Logits
from sparsity.attention.streaming.sums import Sums, base, empty, merge, of_block
from sparsity.errors import InputError

FIELDS = frozenset({"z", "y", "w", "mean", "m2"})
BLOCK = 2**20  # logits of a block, at most: fewer and larger blocks are faster
ROWS, KEYS = 128, 256  # of a block, at most, and at a time


class Layout(NamedTuple):
    """What is fixed of a block.

    Args:
        groups: key heads.
        rows: queries.
        keys: at a time.
        length: keys there are; the arrays may hold more.
        causal: whether a query sees only itself and the keys before it.
        softcap: the cap of cap·tanh(s/cap), before the mask; None for none.
    """

    groups: int
    rows: int
    keys: int
    length: int
    causal: bool
    softcap: float | None


class Place(NamedTuple):
    """Which block it is.

    Args:
        group: the first key head.
        start: the first query that counts; those of a block that reaches beyond the last lie
            before it.
        stop: the query after the last that counts.
        tiles: how often `Layout.keys` hold all keys that these see.
        sink: position of the key that is set apart; of each row, [1 or groups, 1 or heads, rows].
    """

    group: Any
    start: Any
    stop: Any
    tiles: Any
    sink: Any


class Mask(NamedTuple):
    """What a mask says of a block, [1 or groups, 1 or heads, rows, keys]; None for nothing.

    Args:
        seen: which keys the rows see.
        added: what is added to their logits.
        unit: the logits of learned sinks, [groups, heads, 1].
    """

    seen: Any = None
    added: Any = None
    unit: Any = None


class Found(NamedTuple):
    """What a block comes to, [groups, heads, …].

    Args:
        rest: sums over the keys other than the sink, [rows].
        sink: the sink's logit, −∞ where it is not seen, NaN where it is not finite, [rows].
        received: Σ of the weights that the rows that count give a key, [keys].
        last: the weights of the last row that counts, [keys].
    """

    rest: Sums
    sink: Any
    received: Any
    last: Any


def _part(x: Any, at: Any, size: int) -> Any:
    return jax.lax.dynamic_slice_in_dim(x, at, size, axis=-1)


@functools.partial(jax.jit, static_argnums=0)
def block(layout: Layout, q: Any, k: Any, scale: Any, place: Place, mask: Mask) -> Found:
    """The block of queries [groups, heads, T, d] and keys [groups, keys, d] at some place."""
    (groups, size, width, length, causal, cap), dtype = layout, q.dtype
    first = jnp.minimum(place.start, length - size)  # blocks are all of one size
    own = jax.lax.dynamic_slice_in_dim(q, place.group, groups, axis=0)
    own = scale * jax.lax.dynamic_slice_in_dim(own, first, size, axis=2)
    beside = jax.lax.dynamic_slice_in_dim(k, place.group, groups, axis=0)
    at = first + jnp.arange(size, dtype="int32")
    by_row = place.sink.ndim > 0

    def logits(start: Any, count: int) -> tuple[Any, Any]:
        keys = jax.lax.dynamic_slice_in_dim(beside, start, count, axis=1)
        s = jnp.einsum("ghrd,gkd->ghrk", own, keys, precision="highest")
        if cap is not None:
            s = cap * jnp.tanh(s / cap)
        j = start + jnp.arange(count, dtype="int32")
        seen = j < length
        if causal:
            seen = seen & (j <= at[:, None])
        if mask.seen is not None:
            seen = seen & _part(mask.seen, start, count)
        if mask.added is not None:
            s = s + jnp.where(seen, _part(mask.added, start, count), 0)
        return s, seen

    def is_sink(tile: Any) -> Any:
        return tile * width + jnp.arange(width, dtype="int32") == place.sink[..., None]

    def add(tile: Any, carry: tuple[Sums, Any, Any]) -> tuple[Sums, Any, Any]:
        sums, kept, sink = carry
        s, seen = logits(tile * width, width)
        if by_row:
            of_sink = jnp.where(jnp.isfinite(s), s, jnp.nan)
            of_sink = jnp.where(is_sink(tile) & seen, of_sink, -jnp.inf).max(-1)
            sink = jnp.maximum(sink, of_sink)  # NaN stays
        seen = seen & ~is_sink(tile)
        sums = merge(sums, of_block(s, seen, 0, FIELDS))
        s = jnp.where(seen, s, -jnp.inf)
        return sums, jax.lax.dynamic_update_slice_in_dim(kept, s, tile * width, axis=-1), sink

    shape = own.shape[:3]
    start = empty(shape, FIELDS, dtype), jnp.full((*shape, k.shape[1]), -jnp.inf, dtype)
    rest, kept, sink = jax.lax.fori_loop(
        0, place.tiles, add, (*start, jnp.full(shape, -jnp.inf, dtype))
    )
    if not by_row:
        s, seen = logits(place.sink, 1)
        sink = jnp.where(seen, jnp.where(jnp.isfinite(s), s, jnp.nan), -jnp.inf)[..., 0]
    low, some = base(rest.top), rest.count > 0
    odds = sink - low - jnp.log(jnp.where(some, rest.z, 1))
    mass = jnp.where(some, jax.nn.sigmoid(odds), jnp.where(jnp.isfinite(sink), 1, 0))
    each = jnp.where(some, jax.nn.sigmoid(-odds) / jnp.where(some, rest.z, 1), 0)
    if mask.unit is not None:
        log_z = jnp.where(some, low + jnp.log(jnp.where(some, rest.z, 1)), -jnp.inf)
        left = jax.nn.sigmoid(jnp.logaddexp(log_z, sink) - mask.unit)
        mass, each = mass * left, each * left
    counts = (at >= place.start) & (at < place.stop)

    def give(tile: Any, received: Any) -> Any:
        weight = jnp.exp(_part(kept, tile * width, width) - low[..., None])
        share = jnp.einsum("ghr,ghrk->ghk", each * counts, weight, precision="highest")
        if by_row:
            share = share + jnp.where(is_sink(tile), (mass * counts)[..., None], 0).sum(2)
        return jax.lax.dynamic_update_slice_in_dim(received, share, tile * width, axis=-1)

    received = jax.lax.fori_loop(0, place.tiles, give, jnp.zeros_like(kept[:, :, 0]))
    end = place.stop - 1 - first
    of_last = lambda x: jax.lax.dynamic_index_in_dim(x, end, axis=2, keepdims=False)  # noqa: E731
    last = jnp.exp(of_last(kept) - of_last(low)[..., None]) * of_last(each)[..., None]
    if by_row:
        where = jnp.arange(k.shape[1]) == of_last(place.sink)[..., None]
        return Found(rest, sink, received, jnp.where(where, of_last(mass)[..., None], last))
    return Found(
        rest,
        sink,
        received.at[..., place.sink].set((mass * counts).sum(-1)),
        last.at[..., place.sink].set(of_last(mass)),
    )


class Arrays(NamedTuple):
    """Queries [groups, heads, T, d] and keys [groups, keys, d] on the device, and how to go."""

    layout: Layout
    q: Any
    k: Any
    scale: Any


def arrays(source: Logits) -> Arrays:
    """The layer on the device, to be gone through in blocks."""
    groups, length, dim = source.keys.shape
    heads = source.shape[0] // groups
    size = int(np.clip(BLOCK // (heads * length), min(8, length), min(ROWS, length)))
    most = int(np.clip(BLOCK // (heads * size * length), 1, groups))
    together = max(count for count in range(1, most + 1) if groups % count == 0)
    width = min(KEYS, length)
    with jax.enable_x64(source.dtype == np.float64):
        q, k = source.queries, source.keys  # NumPy's are laid out by NumPy: nothing is compiled
        k = k.__array_namespace__().pad(k, ((0, 0), (0, -length % width), (0, 0)))
        q = q.reshape(groups, heads, length, dim)
        q, k = (jax.device_put(x.astype(source.dtype)) for x in (q, k))
        layout = Layout(together, size, width, length, source.causal, source.softcap)
        return Arrays(layout, q, k, np.asarray(source.scale, source.dtype))


def blocks(held: Arrays, cuts: Sequence[int]) -> list[tuple[slice, int, int]]:
    """Heads, first row, row after the last: row by row, none across a cut."""
    groups, heads = held.q.shape[:2]
    rows, together = held.layout.rows, held.layout.groups
    firsts = range(0, groups, together)
    return [
        (slice(first * heads, (first + together) * heads), start, min(start + rows, b))
        for a, b in itertools.pairwise([0, *cuts])
        for start in range(a, b, rows)
        for first in firsts
    ]


def run(
    held: Arrays, source: Logits, sink: Any, heads: slice, start: int, stop: int
) -> tuple[Found, Any]:
    """One block as NumPy arrays [heads, …], and how many of its rows see each key.

    Raises:
        InputError: logits too large for the type of the arrays.
    """
    layout, length = held.layout, held.layout.length
    first = min(start, length - layout.rows)  # as in `block`
    own, seen, added, unit = source.part(heads), None, None, None
    if source.hides:
        seen, added = own.masks(first, first + layout.rows)
        added = None if added is None else added.astype(source.dtype)  # else it is compiled anew
    if isinstance(sink, int):
        at = np.int32(sink)
    else:
        at = own.first[:, first : first + layout.rows].astype(np.int32)
        at = at.reshape(*((1, 1) if len(at) == 1 else (layout.groups, held.q.shape[1])), -1)
    if own.units is not None:
        unit = own.units.astype(source.dtype).reshape(layout.groups, -1, 1)
    tiles = -(-(stop if layout.causal else length) // layout.keys)
    place = Place(heads.start // held.q.shape[1], start, stop, tiles, at)
    mask = Mask(_by_group(seen, held), _by_group(added, held), unit)
    with jax.enable_x64(held.q.dtype == np.float64):
        found = jax.device_get(block(layout, held.q, held.k, held.scale, place, mask))
    found = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), found)
    rest, of_sink = jax.tree.map(lambda x: x[:, start - first : stop - first], found[:2])
    if not (np.isfinite(rest.mean) & np.isfinite(rest.m2)).all() or np.isnan(of_sink).any():
        shape = (source.shape[0], length, length)
        raise InputError("logits", f"array of shape {shape}", "holds NaN or infinite values")
    if seen is not None:
        counts = seen[:, start - first : stop - first].sum(-2)
    elif layout.causal:
        counts = np.clip(stop - np.maximum(np.arange(length), start), 0, None)
    else:
        counts = np.full(length, stop - start)
    ends = (x[:, :length] for x in found[2:])
    return Found(rest, of_sink, *ends), counts


def _by_group(x: Any, held: Arrays) -> Any:
    """Of a mask [1 or heads, rows, keys]: [1 or groups, 1 or heads, rows, keys], as many as k."""
    if x is None:
        return None
    x = np.pad(x, ((0, 0), (0, 0), (0, held.k.shape[1] - x.shape[-1])))
    lead = (1, 1) if len(x) == 1 else (held.layout.groups, held.q.shape[1])
    return x.reshape(*lead, *x.shape[1:])
