"""Whether what was given is a layer: arrays, masks and options, checked and made into a source."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sparsity.arguments import number, reals
from sparsity.errors import InputError
from sparsity.measurement.sources import Logits, Weights, finite
from sparsity.rows import rotation


def array(name: str, value: Any) -> Any:
    """A NumPy array, or a JAX array where it lies on an accelerator; at least single precision.

    Raises:
        InputError: not real numbers.
    """
    value = reals(name, value)
    if not hasattr(value, "devices") or {d.platform for d in value.devices()} == {"cpu"}:
        value = np.asarray(value)
    if value.dtype.kind in "iu":
        return value.astype(np.float64)
    return value.astype(np.float32) if value.dtype.itemsize < 4 else value


def _mask(mask: Any, heads: int, length: int) -> Any:
    if mask is None:
        return None
    fix = "give bool, or numbers that are added"
    mask = np.asarray(reals("mask", mask, fix, bools=True))
    if mask.dtype.kind not in "bf" or mask.shape not in (
        (length, length),
        (1, length, length),
        (heads, length, length),
    ):
        fix = f"give bool or additive numbers [{length}, {length}], for all heads or each"
        raise InputError("mask", f"array of {mask.dtype}, shape {mask.shape}", fix)
    if not np.all(mask < np.inf):
        raise InputError("mask", f"array of {mask.dtype}", "holds NaN or +infinity; give -infinity")
    return mask if mask.ndim == 3 else mask[None]


def _batch(x: Any) -> str:
    return f"; of {x.shape[0]} texts measure one at a time" if x.ndim == 4 else ""


def of_weights(weights: Any, *, causal: bool = True, mask: Any = None) -> Weights:
    """A layer of attention weights [heads, T, T], queries before keys, as `measure` takes it.

    Raises:
        InputError: not such arrays.
    """
    x = array("attention", weights)
    if x.ndim != 3 or x.shape[1] != x.shape[2] or 0 in x.shape:
        fix = "give [heads, tokens, tokens] in each layer, queries before keys" + _batch(x)
        raise InputError("attention", f"array of shape {x.shape}", fix)
    mask = _mask(mask, *x.shape[:2])
    if mask is not None and mask.dtype.kind == "f":
        raise InputError("mask", f"array of {mask.dtype}", "of weights, give bool")
    return Weights(x, causal, mask)


def of_queries(
    queries: Any,
    keys: Any,
    *,
    scale: float | None = None,
    rope: float | None = None,
    pairing: str = "half",
    causal: bool = True,
    mask: Any = None,
    softcap: float | None = None,
) -> Logits:
    """A layer of queries [heads, T, d] and keys [kv heads, T, d], options as `measure` has them.

    Args:
        queries: [heads, T, d].
        keys: [kv heads, T, d].
        scale: as in `measure`, and so are the next four.
        rope: base of rotary positions to be applied.
        pairing: of their planes.
        causal: whether a query looks back only.
        mask: bool, or numbers to add.
        softcap: the cap of cap·tanh(s/cap), applied to scaled logits before the mask is added.

    Raises:
        InputError: not such arrays.
    """
    q, k = array("queries", queries), array("keys", keys)
    shapes = f"arrays of shape {q.shape} and {k.shape}"
    if q.ndim != 3 or k.ndim != 3 or q.shape[1:] != k.shape[1:] or 0 in (*q.shape, *k.shape):
        fix = "give [heads, tokens, dim] in each layer" + _batch(q)
        raise InputError("queries and keys", shapes, fix)
    if q.shape[0] % k.shape[0]:
        raise InputError("queries and keys", shapes, "key heads must divide query heads")
    finite("queries", q)
    finite("keys", k)
    heads, length, dim = q.shape
    scale = 1 / math.sqrt(dim) if scale is None else scale
    number("scale", scale, "give one finite number")
    if pairing not in ("half", "interleaved"):
        raise InputError("pairing", pairing, "choose half or interleaved")
    if rope is not None:
        number("rope", rope, "give the base, a number > 0", lambda x: x > 0)
        at = np.arange(length)
        q, k = (rotation.rotate(x, at, pairing, base=rope) for x in (q, k))
    if softcap is not None:
        number("softcap", softcap, "give the cap, a number > 0", lambda x: x > 0)
    return Logits(q, k, float(scale), causal, _mask(mask, heads, length), softcap)
