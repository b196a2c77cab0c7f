"""The arguments of `stream`, checked before anything is traced, and the rows that are looked at.

Whatever may be traced (arrays, a learned temperature) is checked by shape and type alone: under
`jax.jit` it has no value yet.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from sparsity.attention.streaming.reduce import QueryRows
from sparsity.checks import (
    check_choice,
    check_flag,
    check_function,
    check_heads,
    check_number,
    check_pair,
    check_positions,
    check_reals,
    check_whole,
    is_traced,
)
from sparsity.errors import InputError
from sparsity.rows.rope_planes import PAIRINGS

_MOST = float(np.finfo(np.float32).max)
_FINITE = "give numbers that are finite in float32"
_PRECISIONS = ("default", "high", "highest")


def check_options(heads: int, **given: Any) -> dict[str, Any]:
    """Return options of `stream` or `measure` by name, as plain values; what is traced stays.

    Args:
        heads: how many query heads there are.
        given: options by name; None stays None where it is the default.

    Raises:
        InputError: one that is not what it should be.
    """
    required = ("causal", "pairing", "block")
    options = {
        name: None if x is None and name not in required else _CHECKS[name](name, x)
        for name, x in given.items()
    }
    for name in ("slopes", "sink_logits"):
        by_head: Any = options.get(name)
        if by_head is not None and by_head.shape not in ((), (heads,)):
            fix = f"give one number or one for each of {heads} heads"
            raise InputError(name, f"array of shape {by_head.shape}", fix)
    return options


def _check_scale(name: str, value: Any) -> Any:
    """Return a number, or a traced one: a temperature may be learned."""
    if isinstance(value, jax.core.Tracer) and value.shape == ():
        return check_reals(name, value, traced=True)
    return float(check_number(name, value, _FINITE, lambda x: abs(x) <= _MOST))


def _check_by_head(name: str, value: Any) -> Any:
    numbers = check_reals(name, value, _FINITE, traced=True)
    traced = isinstance(numbers, jax.core.Tracer)
    if not (traced or np.all(abs(np.asarray(numbers, np.float64)) <= _MOST)):
        raise InputError(name, value, _FINITE)
    return numbers


def _check_block(name: str, value: Any) -> tuple[int, int]:
    fix = "give how many queries and keys to take at a time, at least 1"
    queries, keys = check_pair(name, value, fix, lambda *x: all(n >= 1 and n % 1 == 0 for n in x))
    return int(queries), int(keys)


def _check_axis(name: str, value: Any) -> Any:
    """Return the name of an axis, or a tuple of names, of the `shard_map` around the call."""
    several = value if isinstance(value, tuple) else (value,)
    if not all(isinstance(axis, str) for axis in several):
        raise InputError(name, value, "give the name of an axis of shard_map")
    try:
        jax.lax.axis_size(value)
    except NameError:
        raise InputError(name, value, "is no axis of a shard_map around it") from None
    return value


_SINKS = "give positions of keys, whole numbers >= 0"
_CHECKS = {
    "scale": _check_scale,
    "causal": check_flag,
    "window": lambda name, x: check_whole(name, x, 1),
    "softcap": lambda name, x: check_number(
        name, x, "must be > 0 and finite in float32", lambda x: 0 < x <= _MOST
    ),
    "slopes": _check_by_head,
    "sink_logits": _check_by_head,
    "mask": lambda name, x: check_function(name, x, "give a function (i, j) -> bool of positions"),
    "sinks": lambda name, x: tuple(check_positions(name, x, _SINKS).tolist()),
    "rope": lambda name, x: float(check_number(name, x, "must be finite and > 1", lambda x: x > 1)),
    "pairing": lambda name, x: check_choice(name, x, PAIRINGS),
    "axis_name": _check_axis,
    "block": _check_block,
    "precision": lambda name, x: check_choice(name, x, _PRECISIONS),
}


def check_arrays(queries: Any, keys: Any) -> tuple[jax.Array, jax.Array]:
    """Return queries and keys as JAX arrays of one floating type.

    Raises:
        InputError: they are not arrays of the shapes that `stream` takes.
    """
    fix = "give floating numbers [..., heads, tokens, dim]"
    q, k = (
        jnp.asarray(check_reals(name, x, fix, traced=True))
        for name, x in (("queries", queries), ("keys", keys))
    )
    fix = "give [..., heads, tokens, dim], at least one each, with the same leading axes and dim"
    check_heads("queries and keys", q, k, fix)
    if not all(jnp.issubdtype(x.dtype, jnp.floating) for x in (q, k)):
        raise InputError("queries and keys", f"{q.dtype} and {k.dtype}", "give floating numbers")
    wide = jnp.promote_types(q.dtype, k.dtype)
    return q.astype(wide), k.astype(wide)


def check_query_positions(queries: int, keys: int, positions: Any, sharded: bool) -> Any:
    """Return the positions of the queries, [queries].

    Args:
        queries: how many there are.
        keys: how many keys there are on this device.
        positions: as `stream` takes them.
        sharded: whether the keys are split over devices.

    Raises:
        InputError: not one position for each query.
    """
    if positions is None:
        if not sharded and queries != keys:
            fix = f"there are {queries} queries and {keys} keys: give their positions"
            raise InputError("positions", None, fix)
        return np.arange(queries)
    fix = f"give one whole number for each of {queries} queries"
    if not is_traced(positions):
        positions = check_positions("positions", positions, fix)
    if np.shape(positions) != (queries,) or not jnp.issubdtype(positions.dtype, jnp.integer):
        given = f"array of {positions.dtype}, shape {np.shape(positions)}"
        raise InputError("positions", given, fix)
    return positions


def segments_of(segments: Any, k: Any) -> jax.Array:
    """Return the numbers of the texts that keys belong to, int32 [keys] or [..., keys].

    Raises:
        InputError: not one whole number or bool for each key.
    """
    *lead, _, keys, _ = k.shape
    fix = "give whole numbers"
    x = jnp.asarray(check_reals("segments", segments, fix, bools=True, traced=True))
    if x.dtype.kind not in "biu" or x.shape not in ((keys,), (*lead, keys)):
        fix = f"give whole numbers or bool [{keys}], or of each text {[*lead, keys]}"
        raise InputError("segments", f"array of {x.dtype}, shape {x.shape}", fix)
    return x.astype("int32")


def choose_rows(q: jax.Array, at: Any, rows: Any, texts: Any) -> QueryRows:
    """Return the queries that are looked at, with their positions and the numbers of their texts.

    Args:
        q: all queries.
        at: their positions, [T].
        rows: as `stream` takes them.
        texts: the numbers of the texts of all keys, or None.

    Raises:
        InputError: rows that are not positions of queries.
    """
    if np.ndim(rows) > 1:
        lead, rows = q.shape[:-3], jnp.asarray(rows)
        if rows.shape[:-1] != lead or rows.dtype.kind not in "iu":
            fix = f"give positions [rows], or of each text {[*lead, 'rows']}"
            raise InputError("rows", f"array of {rows.dtype}, shape {rows.shape}", fix)
        # −1 stands for no row: some query takes its place, so that shapes stay, and text 0 makes it
        # padding, which sees nothing.
        texts = jnp.broadcast_to(texts, (*lead, texts.shape[-1]))
        known = jnp.clip(rows, 0, q.shape[-2] - 1)
        q = jnp.take_along_axis(q, known[..., None, :, None], axis=-2)
        at = jnp.asarray(at)[known]
        text = jnp.where(rows >= 0, jnp.take_along_axis(texts, at, axis=-1), 0)
        return QueryRows(q, at, text=text, texts=texts)
    if rows is not None:
        rows = check_row_positions(q.shape[-2], rows)
        at, q = at[rows], jnp.take(q, rows, axis=-2, mode="clip")
    return QueryRows(q, at, text=None if texts is None else texts[..., at], texts=texts)


def check_row_positions(length: int, rows: Any) -> np.ndarray:
    """Return positions of queries as an array.

    Raises:
        InputError: none, or not whole numbers from 0 to T − 1.
    """
    fix = f"give whole numbers from 0 to {length - 1}"
    return check_positions("rows", rows, fix, 0, length - 1)


def log_spaced(length: int, count: int) -> np.ndarray:
    """Return positions of at most `count` queries of T, evenly in ln(position + 1), with the last.

    Args:
        length: T.
        count: at most so many, from 1 to T.

    Raises:
        InputError: numbers out of range.
    """
    length = check_whole("length", length, 1)
    count = check_whole("count", count, 1, length)
    first = 1 if count > 1 else length  # of one the last
    return np.unique(np.round(np.geomspace(first, length, count)).astype(int)) - 1


def log_spaced_by_text(text: Any, count: int) -> jax.Array:
    """Return `log_spaced` tokens of each text, for `rows`: [..., count], −1 for none.

    Args:
        text: which queries are tokens of a text and no padding, bool [..., T].
        count: at most so many rows of each.

    Raises:
        InputError: no bools, or no number of rows.
    """
    fix = "give bool [..., tokens]"
    text = jnp.asarray(check_reals("text", text, fix, bools=True, traced=True))
    if text.ndim == 0 or text.dtype != bool:
        raise InputError("text", f"array of {text.dtype}, shape {text.shape}", fix)
    length = text.shape[-1]
    count = min(check_whole("count", count, 1), length)
    # The length of a text is known only when the program runs: a table holds the rows of every one,
    # of which a text then takes its own line.
    table = np.full((length + 1, count), -1, np.int32)
    for n in range(1, count):
        places = log_spaced(n, n)
        table[n, : len(places)] = places
    last = np.arange(count, length + 1)
    long = np.round(np.geomspace(1 if count > 1 else last, last, count, axis=-1)).astype(int) - 1
    table[count:] = np.where(np.diff(long, prepend=-1, axis=-1) > 0, long, -1)
    place = jnp.asarray(table)[jnp.sum(text, axis=-1)]
    # Sorted stably by "is padding", the tokens of the text come first and in order, wherever they
    # lie.
    order = jnp.argsort(~text, axis=-1, stable=True)
    positions = jnp.take_along_axis(order, jnp.maximum(place, 0), axis=-1)
    return jnp.where(place >= 0, positions, -1).astype("int32")
