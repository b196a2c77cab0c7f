"""The focus of attention from queries and keys in one pass, without ever making the matrix.

How a number passes through the modules:

    queries, keys, options ── inputs ──> QueryRows, keys, PassPlan
                                              │
                     reduce: block of queries × block of keys ──> logits, seen
                                              │
                     sums:   of_block, merge ─┴──> Sums of every row
                                              │      (`merged` over devices)
                              FinishedRows ───┴──> n_eff, entropy, gamma, … (`ALL`)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparsity.attention.streaming import inputs
from sparsity.attention.streaming.inputs import log_spaced, log_spaced_by_text, segments_of
from sparsity.attention.streaming.reduce import (
    BLOCK,
    LogitRule,
    Mask,
    PassPlan,
    QueryRows,
    sum_rows_over_keys,
)
from sparsity.attention.streaming.sums import (
    ALL,
    FinishedRows,
    Statistic,
    Sums,
    base,
    evaluate_statistics,
    merge,
    needed_sums,
    no_value,
    relative,
    statistic_named,
)
from sparsity.calls import public
from sparsity.checks import check_reals, check_several
from sparsity.errors import InputError
from sparsity.rows import rope_planes

__all__ = [
    "ALL", "Mask", "Statistic", "Sums", "log_spaced", "log_spaced_by_text", "merge", "merged",
    "segments_of", "stream",
]  # fmt: skip

OF = ("n_eff", "entropy", "gamma", "max_logit", "sink_mass")


@public
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
    """Return how focused softmax attention is, row by row, in one pass over blocks of keys.

    Logits are s = scale·q·k, capped, less slope·|i − j|; weights p = e^s/(Σe^s + e^b), which with a
    learned sink of logit b add up to less than 1 over the keys. Works under
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
        sinks: positions of the keys whose share is `sink_mass`, with that of `sink_logits`; None
            for the first key that a row sees.
        segments: which text each key belongs to, [keys] or [..., keys]: whole numbers, 0 or less
            for padding, or a bool mask of one text. A query sees only its own text, and one of
            padding nothing. So texts may be padded on either side or packed one after the other.
        rope: base of rotary positions still to be applied; None where they are, or none are.
        pairing: of the rotary planes, "half" or "interleaved".
        rows: which of the queries to look at, [rows], or of each text, [..., rows], −1 for none of
            them; None for all. `log_spaced` and `log_spaced_by_text` give some.
        positions: of the queries, [T], whole numbers ≥ 0; needed where there are not as many keys
            as queries.
        axis_name: inside `shard_map`, the axis over which keys are split evenly; positions run on
            through all parts.
        block: queries and keys at a time.
        precision: of the products, as JAX names it.

    Returns:
        By name, [..., heads, rows], float32 or wider, of lengths and positions of keys int32; NaN
        for rows with too few keys, of whole numbers 0 and −1. Where
        `jax_debug_nans` is on, which ends a program at a NaN, it is −infinity.

    Raises:
        InputError: arrays that do not fit, or an unknown statistic.
    """
    names = (of,) if isinstance(of, str) else check_several("of", of, "give names of statistics")
    wanted = [statistic_named(name) for name in names]
    if not wanted:
        raise InputError("of", None, "give at least one statistic")
    q, k = inputs.check_arrays(queries, keys)
    given = inputs.check_options(
        q.shape[-3], scale=scale, causal=causal, window=window, softcap=softcap, slopes=slopes,
        mask=mask, sink_logits=sink_logits, sinks=sinks, rope=rope, pairing=pairing,
        axis_name=axis_name, block=block, precision=precision,
    )  # fmt: skip
    if rows is not None:
        rows = check_reals("rows", rows, "give whole numbers, positions of queries", traced=True)
    # Positions of all queries are known before rows are chosen from them, and rotations come last,
    # on as few queries as are looked at.
    by_text = rows is not None and rows.ndim > 1  # whether every text has rows of its own
    sharded = axis_name is not None
    if rope is not None and sharded:
        fix = "rotate queries and keys before they are sharded, and leave it out"
        raise InputError("rope", given["rope"], fix)
    if sharded and (segments is not None or by_text):
        fix = "keys are sharded: give a mask on positions, which run on through all parts"
        raise InputError("segments", "given", fix)
    at = inputs.check_query_positions(q.shape[-2], k.shape[-2], positions, sharded)
    texts = None if segments is None else segments_of(segments, k)
    if by_text and texts is None:  # rows that are none of a text are padding
        texts = jnp.ones(k.shape[-2], "int32")
    rotate = functools.partial(rope_planes.rotate, pairing=given["pairing"], base=given["rope"])
    if rope is not None:
        k = rotate(k, np.arange(k.shape[-2]))
        q = rotate(q, at) if by_text else q  # else only the chosen rows are, which is less work
    chosen = inputs.choose_rows(q, at, rows, texts)
    if rope is not None and not by_text:
        chosen = chosen._replace(q=rotate(chosen.q, chosen.at))
    if chosen.text is not None and chosen.text.ndim > 1:
        chosen = chosen._replace(at=jnp.broadcast_to(jnp.asarray(chosen.at), chosen.text.shape))
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else given["scale"]
    chosen = chosen._replace(scale=scale, slopes=given["slopes"])
    first = jax.lax.axis_index(axis_name) * k.shape[-2] if sharded else 0
    rule = LogitRule(*(given[x] for x in ("causal", "window", "softcap", "mask", "precision")))
    needed, sink_keys = needed_sums(wanted), None
    if "sink" in needed:
        # Without masks the first key in sight is the first of all, and is summed up by itself; with
        # them it differs from row to row, and the sums keep the first logit instead.
        hides = chosen.text is not None or rule.window is not None or rule.mask is not None
        if given["sinks"] is not None or not hides:
            sink_keys = tuple(sorted(set(given["sinks"] or (0,))))
        needed = needed - {"sink"} | (frozenset() if sink_keys else {"first", "opening"})
    plan = PassPlan(rule, needed, max(statistic.most for statistic in wanted), given["block"])
    fixed = (plan, tuple(statistic.name for statistic in wanted), sink_keys, axis_name)
    values = _stream_compiled(*fixed, chosen, k, first, given["sink_logits"], no_value())
    return {statistic.name: values[statistic.name] for statistic in wanted}


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _stream_compiled(
    plan: PassPlan,
    names: tuple[str, ...],
    sink_keys: tuple[int, ...] | None,
    axis_name: str | None,
    rows: QueryRows,
    k: Any,
    first: Any,
    learned_sinks: Any,
    missing: Any,
) -> dict[str, jax.Array]:
    """Return the statistics by name, [..., heads, rows], in one program: it copies no array.

    Args:
        plan: what is fixed of the pass.
        names: of the statistics.
        sink_keys: positions of keys; None for the first of each row, or where nobody asked.
        axis_name: as in `stream`.
        rows: the queries, with slopes as `stream` takes them.
        k: the keys.
        first: the position of the first key.
        learned_sinks: the sink logits, as `stream` takes them.
        missing: what rows with too few keys have.
    """
    if rows.text is not None and rows.text.ndim > 1:  # of each text: mapped over them
        lead, own_fields = rows.q.shape[:-3], ("q", "at", "text", "texts")
        one_text = functools.partial(_stream_compiled, plan, names, sink_keys, axis_name)

        def flat(x: Any) -> Any:
            return jnp.reshape(x, (-1, *x.shape[len(lead) :]))

        axes = rows._replace(scale=None, slopes=None, **dict.fromkeys(own_fields, 0))
        of_texts = rows._replace(**{x: flat(getattr(rows, x)) for x in own_fields})
        each_text = jax.vmap(one_text, in_axes=(axes, 0, None, None, None))
        values = each_text(of_texts, flat(k), first, learned_sinks, missing)
        return {name: x.reshape(*lead, *x.shape[1:]) for name, x in values.items()}
    lead, heads, groups = rows.q.shape[:-3], rows.q.shape[-3], k.shape[-3]
    wide = jnp.promote_types(rows.q.dtype, "float32")

    def by_group(x: Any) -> Any:  # [heads] -> [batch · groups, heads of a group]
        if x is None:
            return None
        x = jnp.broadcast_to(jnp.asarray(x, wide), (heads,)).reshape(groups, -1)
        return jnp.broadcast_to(x, (*lead, *x.shape)).reshape(-1, x.shape[-1])

    at, scale = (jnp.asarray(x, kind) for x, kind in ((rows.at, "int32"), (rows.scale, wide)))
    rows = rows._replace(at=at, scale=scale, slopes=by_group(rows.slopes))
    sink_positions = None if sink_keys is None else jnp.asarray(sink_keys, "int32")
    every, of_sinks = sum_rows_over_keys(plan, rows, k, first, sink_positions)
    if axis_name is not None:
        every, of_sinks = merged(every, axis_name), of_sinks and merged(of_sinks, axis_name)
    wanted = [statistic_named(name) for name in names]
    learned = None if learned_sinks is None else by_group(learned_sinks)[..., None]
    values = evaluate_statistics(wanted, _finish_rows(every, of_sinks, learned), missing)
    return {name: x.reshape(*lead, heads, -1) for name, x in values.items()}


def _finish_rows(every: Sums, sinks: Sums | None, learned: Any) -> FinishedRows:
    """Return rows at the end of their keys, relative to the largest of their logits."""
    # The learned sink may be above all logits: weights relative to the larger of both cannot
    # overflow.
    if learned is None:
        low = base(every.top)
        weight = jnp.zeros_like(low)
    else:
        low = base(jnp.maximum(every.top, learned))
        weight = jnp.exp(learned - low)
    of_sink = None if sinks is None else relative(sinks, low).z
    if every.opening is not None:
        some = every.count > 0
        of_sink = jnp.where(some, jnp.exp(jnp.where(some, every.opening - low, 0)), 0)
    return FinishedRows(relative(every, low), low, weight, of_sink)


def merged(sums: Sums, axis_name: str) -> Sums:
    """Return the sums over the keys of all devices along an axis of `shard_map`, alike on each."""
    # Not by `psum`, which adds: maxima and rescaled sums merge by `merge`, in the order of the
    # axis, so that every device has the same bits.
    every = jax.lax.all_gather(sums, axis_name)
    parts = [jax.tree.map(lambda x, i=i: x[i], every) for i in range(jax.lax.axis_size(axis_name))]
    return functools.reduce(merge, parts)


def __dir__() -> list[str]:
    return sorted(__all__)
