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
from sparsity.errors import InputError
from sparsity.rows import rotation
from sparsity.streaming import statistics
from sparsity.streaming.options import checked
from sparsity.streaming.reduce import BLOCK, Layout, reduced
from sparsity.streaming.scores import Mask, Rows, Scores
from sparsity.streaming.statistics import ALL, Ended, Statistic
from sparsity.streaming.sums import Sums, base, merge, relative

__all__ = ["ALL", "Mask", "Statistic", "Sums", "merge", "merged", "spaced", "stream"]

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
    sinks: Sequence[int] = (0,),
    rope: float | None = None,
    pairing: str = "half",
    rows: Any = None,
    positions: Any = None,
    axis_name: str | None = None,
    block: tuple[int, int] = BLOCK,
    precision: str = "highest",
) -> dict[str, jax.Array]:
    """How focused softmax attention is, row by row, in one pass over blocks of keys.

    Logits are s = scale·q·k, capped, less slope·|i − j|; weights p = e^s/(Σe^s + e^b). Works under
    `jax.jit`, `vmap`, `grad` and `shard_map`; every derivative is finite. Memory: the arrays given,
    one block, and what is returned.

    Args:
        queries: [..., heads, T, d]; float32, bfloat16 or float64.
        keys: [..., kv heads, T, d], each shared by consecutive query heads.
        of: names of `sparsity.streaming.ALL`, or "top_k_mass:K".
        scale: of q·k; None for 1/√d.
        causal: whether a query sees only itself and the keys before it.
        window: only keys fewer positions away than this; where causal, so many keys at most.
        softcap: the cap of cap·tanh(s/cap).
        slopes: of ALiBi, [heads].
        mask: (i, j) -> bool on arrays of positions: a further condition on the keys that a query
            sees.
        sink_logits: b of a learned sink beside the keys, one number or [heads].
        sinks: positions of the keys whose share is `sink_mass`, with that of `sink_logits`.
        rope: base of rotary positions still to be applied; None where they are, or none are.
        pairing: of the rotary planes, "half" or "interleaved".
        rows: which of the queries to look at; None for all. `spaced` gives some.
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
    at, q = _chosen(q, k, rows, positions, axis_name)
    if rope is not None:
        if axis_name is not None:
            raise InputError(
                "rope", rope, "rotate queries and keys before they are sharded, and leave it out"
            )
        q = rotation.rotate(q, at, pairing, base=rope)
        k = rotation.rotate(k, np.arange(k.shape[-2]), pairing, base=rope)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    own = Rows(q, at, scale, slopes)
    first = 0 if axis_name is None else jax.lax.axis_index(axis_name) * k.shape[-2]
    scores = Scores(causal, window, softcap, mask, precision)
    most = max(each.most for each in wanted)
    layout = Layout(scores, statistics.fields(wanted), most, block)
    fixed = (layout, tuple(each.name for each in wanted), tuple(sorted(set(sinks))), axis_name)
    found = _passed(*fixed, own, k, first, sink_logits)
    return {each.name: found[each.name] for each in wanted}


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _passed(
    layout: Layout,
    names: tuple[str, ...],
    sinks: tuple[int, ...],
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
        sinks: positions of keys.
        axis_name: as in `stream`.
        rows: the queries, with slopes as `stream` takes them.
        k: the keys.
        first: the position of the first key.
        unit: the sink logits, as `stream` takes them.
    """
    lead, heads, groups = rows.q.shape[:-3], rows.q.shape[-3], k.shape[-3]
    wide = jnp.promote_types(rows.q.dtype, "float32")

    def by_group(x: Any) -> Any:  # [heads] -> [batch · groups, heads of a group]
        if x is None:
            return None
        x = jnp.broadcast_to(jnp.asarray(x, wide), (heads,)).reshape(groups, -1)
        return jnp.broadcast_to(x, (*lead, *x.shape)).reshape(-1, x.shape[-1])

    at, scale = (jnp.asarray(x, kind) for x, kind in ((rows.at, "int32"), (rows.scale, wide)))
    rows = rows._replace(at=at, scale=scale, slopes=by_group(rows.slopes))
    every, of_sinks = reduced(layout, rows, k, first, jnp.asarray(sinks, "int32"))
    if axis_name is not None:
        every, of_sinks = merged(every, axis_name), merged(of_sinks, axis_name)
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


def _chosen(
    q: jax.Array, k: jax.Array, rows: Any, positions: Any, axis_name: str | None
) -> tuple[Any, jax.Array]:
    """Positions of the queries that are looked at, and these."""
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
    if rows is None:
        return positions, q
    rows = within(length, rows)
    return positions[rows], jnp.take(q, rows, axis=-2, mode="clip")


def within(length: int, rows: Any) -> np.ndarray:
    """Positions of queries as an array.

    Raises:
        InputError: none, or not whole numbers from 0 to T − 1.
    """
    return checked_positions(
        "rows", rows, f"give whole numbers from 0 to {length - 1}", 0, length - 1
    )


def _ended(every: Sums, sinks: Sums, unit: Any) -> Ended:
    """Rows at the end of their keys, relative to the largest of their logits."""
    if unit is None:
        low = base(every.top)
        weight = jnp.zeros_like(low)
    else:
        low = base(jnp.maximum(every.top, unit))
        weight = jnp.exp(unit - low)
    return Ended(relative(every, low), low, weight, relative(sinks, low).z)


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
