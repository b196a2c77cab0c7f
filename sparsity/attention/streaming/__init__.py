"""The focus of attention from queries and keys in one pass, without ever making the matrix."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparsity.arguments import positions as checked_positions
from sparsity.arguments import reals, several, whole
from sparsity.attention.streaming import statistics
from sparsity.attention.streaming.options import checked
from sparsity.attention.streaming.reduce import BLOCK, Layout, reduced
from sparsity.attention.streaming.scores import Mask, Rows, Scores
from sparsity.attention.streaming.statistics import ALL, Ended, Statistic
from sparsity.attention.streaming.sums import Sums, base, merge, relative
from sparsity.errors import InputError
from sparsity.rows import rotation

__all__ = [
    "ALL", "Mask", "Statistic", "Sums", "merge", "merged", "segments_of", "spaced", "spaced_each",
    "stream",
]  # fmt: skip

OF = ("n_eff", "entropy", "gamma", "max_logit", "sink_mass")


def stream(
    queries: Any,
    keys: Any,
    of: str | Sequence[str] = OF,
    *,
    scale: float | None = None,
    causal: bool = True,
    window: int | None = None,
    softcap: float | None = None,
    slopes: Any = None,
    mask: Mask | None = None,
    sink_logits: Any = None,
    sinks: Sequence[int] | None = None,
    segments: Any = None,
    rope: float | None = None,
    pairing: str = "half",
    rows: Any = None,
    positions: Any = None,
    axis_name: str | None = None,
    block: tuple[int, int] = BLOCK,
    precision: str = "highest",
) -> dict[str, jax.Array]:
    """How focused softmax attention is, row by row, in one pass over blocks of keys.

    Logits are s = scale·q·k, capped, less slope·|i − j|; weights p = e^s/(Σe^s + e^b), which with a
    learned sink of logit b add up to less than 1 over the keys. Works under
    `jax.jit`, `vmap`, `grad` and `shard_map`; every derivative is finite. Memory: the arrays given,
    one block, and what is returned.

    Args:
        queries: [..., heads, T, d]; float32, bfloat16 or float64.
        keys: [..., kv heads, T, d], each shared by consecutive query heads.
        of: names of `sparsity.attention.streaming.ALL`, or "top_k_mass:K".
        scale: of q·k; None for 1/√d.
        causal: whether a query sees only itself and the keys before it.
        window: only keys fewer positions away than this; where causal, so many keys at most.
        softcap: the cap of cap·tanh(s/cap).
        slopes: of ALiBi, [heads].
        mask: (i, j) -> bool on arrays of positions: a further condition on the keys that a query
            sees.
        sink_logits: b of a learned sink beside the keys, one number or [heads].
        sinks: positions of the keys whose share is `sink_mass`, with that of `sink_logits`; None
            for the first key that a row sees.
        segments: which text each key belongs to, [keys] or [..., keys]: whole numbers, 0 or less
            for padding, or a bool mask of one text. A query sees only its own text, and one of
            padding nothing. So texts may be padded on either side or packed one after the other.
        rope: base of rotary positions still to be applied; None where they are, or none are.
        pairing: of the rotary planes, "half" or "interleaved".
        rows: which of the queries to look at, [rows], or of each text, [..., rows], −1 for none of
            them; None for all. `spaced` and `spaced_each` give some.
        positions: of the queries, [T]; needed where there are not as many keys as queries.
        axis_name: inside `shard_map`, the axis over which keys are split evenly; positions run on
            through all parts.
        block: queries and keys at a time.
        precision: of the products, as JAX names it.

    Returns:
        By name, [..., heads, rows], float32 or wider; NaN for rows with too few keys.

    Raises:
        InputError: arrays that do not fit, or an unknown statistic.
    """
    names = (of,) if isinstance(of, str) else several("of", of, "give names of statistics")
    wanted = [statistics.named(each) for each in names]
    if not wanted:
        raise InputError("of", None, "give at least one statistic")
    q, k = _arrays(queries, keys)
    heads = q.shape[-3]
    fit = checked(
        heads, scale=scale, causal=causal, window=window, softcap=softcap, slopes=slopes,
        mask=mask, sink_logits=sink_logits, sinks=sinks, rope=rope, pairing=pairing,
        axis_name=axis_name, block=block, precision=precision,
    )  # fmt: skip
    scale, causal, window, softcap, slopes = (
        fit[name] for name in ("scale", "causal", "window", "softcap", "slopes")
    )
    sink_logits, sinks, block = fit["sink_logits"], fit["sinks"], fit["block"]
    if rows is not None:
        rows = reals("rows", rows, "give whole numbers, positions of queries", traced=True)
    if rope is not None and axis_name is not None:
        fix = "rotate queries and keys before they are sharded, and leave it out"
        raise InputError("rope", rope, fix)
    each = rows is not None and rows.ndim > 1  # whether every text has rows of its own
    if axis_name is not None and (segments is not None or each):
        fix = "keys are sharded: give a mask on positions, which run on through all parts"
        raise InputError("segments", "given", fix)
    at = _positions(q, k, positions, axis_name)
    if rope is not None:
        k = rotation.rotate(k, np.arange(k.shape[-2]), pairing, base=rope)
        if each:
            q = rotation.rotate(q, at, pairing, base=rope)
    texts = None if segments is None else segments_of(segments, k)
    if each and texts is None:  # rows that are none of a text are padding
        texts = jnp.ones(k.shape[-2], "int32")
    own = _chosen(q, at, rows, texts)
    if rope is not None and not each:
        own = own._replace(q=rotation.rotate(own.q, own.at, pairing, base=rope))
    if own.text is not None and own.text.ndim > 1:
        own = own._replace(at=jnp.broadcast_to(jnp.asarray(own.at), own.text.shape))
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    own = own._replace(scale=scale, slopes=slopes)
    first = 0 if axis_name is None else jax.lax.axis_index(axis_name) * k.shape[-2]
    scores = Scores(causal, window, softcap, mask, precision)
    most = max(each.most for each in wanted)
    needed, apart = statistics.fields(wanted), None
    if "sink" in needed:  # without masks the first key in sight is the first of all
        hides = own.text is not None or window is not None or mask is not None
        apart = None if sinks is None and hides else tuple(sorted(set(sinks or (0,))))
        needed = needed - {"sink"} | (frozenset() if apart else {"first", "opening"})
    layout = Layout(scores, needed, most, block)
    fixed = (layout, tuple(each.name for each in wanted), apart, axis_name)
    found = _passed(*fixed, own, k, first, sink_logits)
    return {each.name: found[each.name] for each in wanted}


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _passed(
    layout: Layout,
    names: tuple[str, ...],
    sinks: tuple[int, ...] | None,
    axis_name: str | None,
    rows: Rows,
    k: Any,
    first: Any,
    unit: Any,
) -> dict[str, jax.Array]:
    """The statistics by name, [..., heads, rows], in one program: it copies no array.

    Args:
        layout: what is fixed of the pass.
        names: of the statistics.
        sinks: positions of keys; None for the first of each row, or where nobody asked.
        axis_name: as in `stream`.
        rows: the queries, with slopes as `stream` takes them.
        k: the keys.
        first: the position of the first key.
        unit: the sink logits, as `stream` takes them.
    """
    if rows.text is not None and rows.text.ndim > 1:  # of each text
        whole, lead = functools.partial(_passed, layout, names, sinks, axis_name), rows.q.shape[:-3]

        def flat(x: Any) -> Any:
            return jnp.reshape(x, (-1, *x.shape[len(lead) :]))

        each = rows._replace(**dict.fromkeys(("q", "at", "text", "texts"), 0))
        own = rows._replace(**{x: flat(getattr(rows, x)) for x in ("q", "at", "text", "texts")})
        each = each._replace(scale=None, slopes=None)
        found = jax.vmap(whole, in_axes=(each, 0, None, None))(own, flat(k), first, unit)
        return {name: x.reshape(*lead, *x.shape[1:]) for name, x in found.items()}
    lead, heads, groups = rows.q.shape[:-3], rows.q.shape[-3], k.shape[-3]
    wide = jnp.promote_types(rows.q.dtype, "float32")

    def by_group(x: Any) -> Any:  # [heads] -> [batch · groups, heads of a group]
        if x is None:
            return None
        x = jnp.broadcast_to(jnp.asarray(x, wide), (heads,)).reshape(groups, -1)
        return jnp.broadcast_to(x, (*lead, *x.shape)).reshape(-1, x.shape[-1])

    at, scale = (jnp.asarray(x, kind) for x, kind in ((rows.at, "int32"), (rows.scale, wide)))
    rows = rows._replace(at=at, scale=scale, slopes=by_group(rows.slopes))
    apart = None if sinks is None else jnp.asarray(sinks, "int32")
    every, of_sinks = reduced(layout, rows, k, first, apart)
    if axis_name is not None:
        every, of_sinks = merged(every, axis_name), of_sinks and merged(of_sinks, axis_name)
    wanted = [statistics.named(name) for name in names]
    ended = _ended(every, of_sinks, None if unit is None else by_group(unit)[..., None])
    found = statistics.values(wanted, ended)
    return {name: x.reshape(*lead, heads, -1) for name, x in found.items()}


def _arrays(queries: Any, keys: Any) -> tuple[jax.Array, jax.Array]:
    """Queries and keys as JAX arrays of one floating type."""
    q, k = (
        jnp.asarray(reals(name, x, "give floating numbers [..., heads, tokens, dim]", traced=True))
        for name, x in (("queries", queries), ("keys", keys))
    )
    shapes = f"arrays of shape {q.shape} and {k.shape}"
    if min(q.ndim, k.ndim) < 3 or q.shape[:-3] != k.shape[:-3] or q.shape[-1] != k.shape[-1]:
        fix = "give [..., heads, tokens, dim] with the same leading axes and dim"
        raise InputError("queries and keys", shapes, fix)
    if 0 in (*q.shape, *k.shape):
        raise InputError("queries and keys", shapes, "give at least one head, token and dimension")
    if q.shape[-3] % k.shape[-3]:
        raise InputError("queries and keys", shapes, "key heads must divide query heads")
    if not all(jnp.issubdtype(x.dtype, jnp.floating) for x in (q, k)):
        raise InputError("queries and keys", f"{q.dtype} and {k.dtype}", "give floating numbers")
    wide = jnp.promote_types(q.dtype, k.dtype)
    return q.astype(wide), k.astype(wide)


def _positions(q: jax.Array, k: jax.Array, positions: Any, axis_name: str | None) -> Any:
    """Positions of the queries."""
    length = q.shape[-2]
    if positions is None:
        if axis_name is None and length != k.shape[-2]:
            fix = f"there are {length} queries and {k.shape[-2]} keys: give their positions"
            raise InputError("positions", None, fix)
        positions = np.arange(length)
    fix = f"give one for each of {length} queries"
    positions = reals("positions", positions, fix, traced=True)
    if np.shape(positions) != (length,):
        raise InputError("positions", f"array of shape {np.shape(positions)}", fix)
    return positions


def segments_of(segments: Any, k: Any) -> jax.Array:
    """The numbers of the texts that keys belong to, int32 [keys] or [..., keys].

    Raises:
        InputError: not one whole number or bool for each key.
    """
    *lead, _, keys, _ = k.shape
    x = jnp.asarray(reals("segments", segments, "give whole numbers", bools=True, traced=True))
    if x.dtype.kind not in "biu" or x.shape not in ((keys,), (*lead, keys)):
        fix = f"give whole numbers or bool [{keys}], or of each text {[*lead, keys]}"
        raise InputError("segments", f"array of {x.dtype}, shape {x.shape}", fix)
    return x.astype("int32")


def _chosen(q: jax.Array, at: Any, rows: Any, texts: Any) -> Rows:
    """The queries that are looked at, with their positions and the numbers of their texts.

    Args:
        q: all queries.
        at: their positions, [T].
        rows: as `stream` takes them.
        texts: the numbers of the texts of all keys, or None.
    """
    if np.ndim(rows) > 1:
        lead, rows = q.shape[:-3], jnp.asarray(rows)
        if rows.shape[:-1] != lead or rows.dtype.kind not in "iu":
            fix = f"give positions [rows], or of each text {[*lead, 'rows']}"
            raise InputError("rows", f"array of {rows.dtype}, shape {rows.shape}", fix)
        texts = jnp.broadcast_to(texts, (*lead, texts.shape[-1]))
        some = jnp.clip(rows, 0, q.shape[-2] - 1)
        q = jnp.take_along_axis(q, some[..., None, :, None], axis=-2)
        at = jnp.asarray(at)[some]
        text = jnp.where(rows >= 0, jnp.take_along_axis(texts, at, axis=-1), 0)
        return Rows(q, at, 0, text=text, texts=texts)
    if rows is not None:
        rows = within(q.shape[-2], rows)
        at, q = at[rows], jnp.take(q, rows, axis=-2, mode="clip")
    if texts is None:
        return Rows(q, at, 0)
    return Rows(q, at, 0, text=texts[..., at], texts=texts)


def within(length: int, rows: Any) -> np.ndarray:
    """Positions of queries as an array.

    Raises:
        InputError: none, or not whole numbers from 0 to T − 1.
    """
    return checked_positions(
        "rows", rows, f"give whole numbers from 0 to {length - 1}", 0, length - 1
    )


def _ended(every: Sums, sinks: Sums | None, unit: Any) -> Ended:
    """Rows at the end of their keys, relative to the largest of their logits."""
    if unit is None:
        low = base(every.top)
        weight = jnp.zeros_like(low)
    else:
        low = base(jnp.maximum(every.top, unit))
        weight = jnp.exp(unit - low)
    of_sink = None if sinks is None else relative(sinks, low).z
    if every.opening is not None:
        some = every.count > 0
        of_sink = jnp.where(some, jnp.exp(jnp.where(some, every.opening - low, 0)), 0)
    return Ended(relative(every, low), low, weight, of_sink)


def merged(sums: Sums, axis_name: str) -> Sums:
    """The sums over the keys of all devices along an axis of `shard_map`, the same on each."""
    every = jax.lax.all_gather(sums, axis_name)
    parts = [jax.tree.map(lambda x, i=i: x[i], every) for i in range(jax.lax.axis_size(axis_name))]
    return functools.reduce(merge, parts)


def spaced(length: int, count: int) -> np.ndarray:
    """Positions of at most `count` queries of T, evenly in ln(position + 1), with the last."""
    length = whole("length", length, 1)
    count = whole("count", count, 1, length)
    return np.unique(np.round(np.geomspace(1, length, count)).astype(int)) - 1


def spaced_each(text: Any, count: int) -> jax.Array:
    """What `spaced` gives of the tokens of each text, for `rows`: [..., count], −1 for none.

    Args:
        text: which queries are tokens of a text and no padding, bool [..., T].
        count: at most so many rows of each.

    Raises:
        InputError: no bools, or no number of rows.
    """
    fix = "give bool [..., tokens]"
    text = jnp.asarray(reals("text", text, fix, bools=True, traced=True))
    if text.ndim == 0 or text.dtype != bool:
        raise InputError("text", f"array of {text.dtype}, shape {text.shape}", fix)
    length = text.shape[-1]
    count = min(whole("count", count, 1), length)
    # Of every length there may be: which length it is, is known when the program runs.
    table = np.full((length + 1, count), -1, np.int32)
    for n in range(1, count):
        own = spaced(n, n)
        table[n, : len(own)] = own
    long = np.round(np.geomspace(1, np.arange(count, length + 1), count, axis=-1)).astype(int) - 1
    table[count:] = np.where(np.diff(long, prepend=-1, axis=-1) > 0, long, -1)
    place = jnp.asarray(table)[jnp.sum(text, axis=-1)]
    order = jnp.argsort(~text, axis=-1, stable=True)
    found = jnp.take_along_axis(order, jnp.maximum(place, 0), axis=-1)
    return jnp.where(place >= 0, found, -1).astype("int32")
