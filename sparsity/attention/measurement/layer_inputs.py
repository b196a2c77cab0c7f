"""What `measure` is given of a layer: arrays, masks and options, checked and made into a layer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sparsity.attention.measurement.attention_layers import (
    LogitLayer,
    WeightLayer,
    check_finite,
    find_padding,
)
from sparsity.attention.streaming.inputs import check_options
from sparsity.checks import check_heads, check_reals
from sparsity.errors import InputError
from sparsity.rows import rope_planes

_ROWS_LOOKED_AT = 64  # of each head, for signs of dropout: more tell no more


def _as_array(name: str, value: Any) -> Any:
    """Return a NumPy array, or a JAX array where it lies on an accelerator, in float32 or float64.

    Raises:
        InputError: not real numbers.
    """
    value = check_reals(name, value, "give real numbers, what is hidden as mask= or segments=")
    # JAX arrays on a CPU share memory with NumPy; on an accelerator they stay where they are.
    if not hasattr(value, "devices") or {d.platform for d in value.devices()} == {"cpu"}:
        value = np.asarray(value)
    # float16 and bfloat16 widen to float32 without loss; whole numbers need float64 to be exact.
    if value.dtype.kind not in "iu" and value.dtype.itemsize < 4:
        return value.astype(np.float32)
    return value if value.dtype in (np.float32, np.float64) else value.astype(np.float64)


def _check_mask(mask: Any, heads: int, queries: int, keys: int) -> Any:
    """Return a mask as bool, or numbers to add, [1 or heads, queries, keys].

    Args:
        mask: as `measure` takes it of one text; PyTorch's batch axis of one may be there.
        heads: of the layer.
        queries: likewise.
        keys: likewise.

    Raises:
        InputError: whole numbers, which may mean either; another shape; NaN or +infinity.
    """
    if mask is None:
        return None
    mask = np.asarray(check_reals("mask", mask, "give bool, or numbers that are added", bools=True))
    if mask.dtype.kind in "iu":  # 0 hides in one convention and is what hides nothing in the other
        fix = "whole numbers may be either; give bool, or floating numbers that are added"
        raise InputError("mask", f"array of {mask.dtype}", fix)
    mask = mask if mask.dtype == bool else np.asarray(_as_array("mask", mask))
    shape = mask.shape[1:] if mask.ndim == 4 and len(mask) == 1 else mask.shape
    shape = (1,) * (3 - len(shape)) + shape
    if len(shape) != 3 or shape[0] not in (1, heads) or shape[1:] not in (
        (queries, keys), (1, keys),
    ):  # fmt: skip
        fix = f"give bool or additive numbers [{queries}, {keys}], for all heads or each"
        raise InputError("mask", f"array of {mask.dtype}, shape {mask.shape}", fix)
    if not np.all(mask < np.inf):  # false for NaN too
        raise InputError("mask", f"array of {mask.dtype}", "holds NaN or +infinity; give -infinity")
    return np.broadcast_to(mask.reshape(shape), (shape[0], queries, keys))


def _check_segments(segments: Any, length: int) -> np.ndarray | None:
    """Return the number of the text of each token; one token at least is no padding."""
    if segments is None:
        return None
    x = np.asarray(check_reals("segments", segments, "give whole numbers or bool", bools=True))
    if x.dtype.kind not in "biu" or x.shape != (length,):
        fix = f"give whole numbers [{length}], 0 for padding, or bool"
        raise InputError("segments", f"array of {x.dtype}, shape {x.shape}", fix)
    if not (x > 0).any():
        raise InputError("segments", f"array of {x.dtype}", "are all padding; give one token > 0")
    return x.astype(np.int64)


def layer_of_weights(
    weights: Any, *, causal: bool = True, mask: Any = None, segments: Any = None
) -> WeightLayer:
    """Return a layer of attention weights [heads, queries, keys], as `measure` takes it.

    Raises:
        InputError: not such arrays.
    """
    if isinstance(weights, tuple | list) and any(getattr(x, "ndim", 0) > 2 for x in weights):
        fix = "is layers again; of steps, as generate() has them, give one: attention=attentions[0]"
        raise InputError("attention", f"{len(weights)} arrays for one layer", fix)
    x = _as_array("attention", weights)
    if x.ndim != 3 or 0 in x.shape:
        fix = "give [heads, queries, keys] in each layer"
        raise InputError("attention", f"array of shape {x.shape}", fix)
    # A number for each token says both whose query and whose key it is: with other keys than
    # queries that is not one list.
    if x.shape[1] != x.shape[2] and segments is not None:
        fix = f"say which text each of as many queries as keys is of, not of {x.shape[1:]}; "
        raise InputError("segments", "given", fix + "give mask= instead")
    if causal and x.shape[1] > x.shape[2]:
        fix = "has more queries than keys, which do not look back; pass causal=False"
        raise InputError("attention", f"array of shape {x.shape}", fix)
    mask, segments = _check_mask(mask, *x.shape), _check_segments(segments, x.shape[1])
    return find_padding(WeightLayer(weights=x, causal=causal, mask=mask, segments=segments))


def note_of(layer: WeightLayer) -> str:
    """Return what the last rows of weights show of how they were made; empty for nothing."""
    heads, queries = layer.shape
    rows, seen = layer.block(max(0, queries - _ROWS_LOOKED_AT), queries, layer.key_count)
    rows = np.asarray(rows, np.float64)
    seen = np.broadcast_to(np.asarray(seen), rows.shape)
    some = seen.any(-1)
    uniform = rows.max(-1) == np.where(seen, rows, np.inf).min(-1)
    if heads > 1 and np.all(rows == rows[:1]) and not uniform[some].all():
        return f"all {heads} heads have the same weights: of one, or of their mean, repeated"
    sums, zeros = rows.sum(-1)[some], np.mean(rows[seen] == 0)
    # Dropout at a rate p leaves 1 on average, and at most 1/(1 − p) where nothing is dropped.
    mean_is_one = abs(sums.mean() - 1) < 4 * sums.std() / np.sqrt(len(sums)) + 0.01
    bounded = rows.min() >= 0 and 1.01 < sums.max() < 1.25 / (1 - zeros)
    if mean_is_one and bounded and sums.std() > 0.01 and 0 < zeros < 1:
        shares = f"{100 * zeros:.0f} % of the weights are 0, rows sum to {sums.min():.2f} … "
        fix = f"{sums.max():.2f}: as after dropout, which sharpens rows; call model.eval() first"
        return shares + fix
    return ""


def layer_of_queries(
    queries: Any,
    keys: Any,
    *,
    scale: float | None = None,
    rope: float | None = None,
    pairing: str = "half",
    causal: bool = True,
    mask: Any = None,
    segments: Any = None,
    softcap: float | None = None,
    sink_logits: Any = None,
) -> LogitLayer:
    """Return a layer of queries and keys, with the options that `measure` has.

    Args:
        queries: [heads, T, d].
        keys: [kv heads, T, d].
        scale: as in `measure`, and so are the next four.
        rope: base of rotary positions to be applied.
        pairing: of their planes.
        causal: whether a query looks back only.
        mask: bool, or numbers to add.
        segments: as in `measure`.
        softcap: the cap of cap·tanh(s/cap), applied to scaled logits before the mask is added.
        sink_logits: of learned sinks beside the keys, one number or [heads].

    Raises:
        InputError: not such arrays.
    """
    q, k = _as_array("queries", queries), _as_array("keys", keys)
    fix = "give [heads, tokens, dim] in each layer, of as many queries as keys; of others, "
    fix += "give the weights to measure(attention=…), or use stream(…, positions=…)"
    check_heads("queries and keys", q, k, fix, q.ndim == 3 and q.shape[1:] == k.shape[1:])
    heads, length, dim = q.shape
    segments = _check_segments(segments, length)
    if segments is not None:  # padding may hold NaN, which a product with 0 would not remove
        q, k = (x.__array_namespace__().where((segments > 0)[:, None], x, 0) for x in (q, k))
    check_finite("queries", q)
    check_finite("keys", k)
    given = check_options(
        heads, scale=scale, rope=rope, pairing=pairing, softcap=softcap, sink_logits=sink_logits
    )
    if rope is not None:
        at = np.arange(length)
        q, k = (rope_planes.rotate(x, at, pairing, base=given["rope"]) for x in (q, k))
    learned = given["sink_logits"]
    if learned is not None:
        learned = np.broadcast_to(np.asarray(learned, np.float64), (heads,))
    return find_padding(
        LogitLayer(
            queries=q, keys=k, causal=causal, segments=segments,
            scale=1 / math.sqrt(dim) if scale is None else given["scale"],
            softcap=given["softcap"], mask=_check_mask(mask, heads, length, length),
            learned_sinks=learned,
        )
    )  # fmt: skip
