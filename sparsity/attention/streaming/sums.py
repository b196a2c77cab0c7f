"""What a row of logits adds up to, block by block: sums that merge in any order."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Sums(NamedTuple):
    """Sums over the keys that a row has seen so far; None for what nobody asked for.

    Weights are e^(s − top), so nothing overflows. Rows that have seen no key have top = −∞.

    Args:
        count: n, the keys seen, int32 [..., rows].
        top: the largest logit.
        z: Σ e^(s − top).
        y: Σ e^(2(s − top)).
        w: Σ (s − top) e^(s − top).
        mean: mean of s; 0 for no key.
        m2: Σ (s − mean)².
        place: position of the largest logit, the first of equal ones; −1 for no key.
        first: position of the first key; `NONE` for no key.
        opening: the logit of that key.
        largest: the k largest logits, falling, [..., rows, k]; −∞ where there are fewer.
    """

    count: Any
    top: Any
    z: Any = None
    y: Any = None
    w: Any = None
    mean: Any = None
    m2: Any = None
    place: Any = None
    first: Any = None
    opening: Any = None
    largest: Any = None


FIELDS = frozenset(Sums._fields) - {"count", "top"}
NONE = 2**31 - 1  # beyond all positions


def empty(shape: tuple[int, ...], fields: Set[str], dtype: Any, most: int = 0) -> Sums:
    """The sums of rows that have seen nothing.

    Args:
        shape: of the rows.
        fields: which of `FIELDS` are wanted.
        dtype: of the sums.
        most: k, of `largest`.
    """
    zero = jnp.zeros(shape, dtype)
    found: dict[str, Any] = dict.fromkeys(fields, zero)
    if "place" in fields:
        found["place"] = jnp.full(shape, -1, "int32")
    if "first" in fields:
        found["first"] = jnp.full(shape, NONE, "int32")
    if "largest" in fields:
        found["largest"] = jnp.full((*shape, most), -jnp.inf, dtype)
    return Sums(jnp.zeros(shape, "int32"), jnp.full(shape, -jnp.inf, dtype), **found)


def base(top: Any) -> Any:
    """The logit that weights are relative to; no result depends on it, so it has no gradient."""
    top = jax.lax.stop_gradient(top)
    return jnp.where(jnp.isfinite(top), top, 0)


def of_block(s: Any, seen: Any, first: Any, fields: Set[str], most: int = 0) -> Sums:
    """The sums over one block of keys.

    Args:
        s: logits [..., rows, keys], finite.
        seen: which of them a row sees, broadcasts with `s`.
        first: position of the first key.
        fields: as in `empty`.
        most: likewise.
    """
    hidden = jnp.where(seen, s, -jnp.inf)
    count = jnp.broadcast_to(seen, s.shape).sum(-1, dtype="int32")
    top = hidden.max(-1)
    found: dict[str, Any] = {}
    if fields & {"z", "y", "w"}:
        low = base(top)[..., None]
        away = jnp.where(seen, s - low, 0)
        weight = jnp.where(seen, jnp.exp(away), 0)
        # XLA adds up a bare product of two arrays one by one, and three times as slowly.
        each = jnp.where(weight > 0, away * weight, 0)
        terms = {"z": weight, "y": weight * weight, "w": each}
        found |= {name: x.sum(-1) for name, x in terms.items() if name in fields}
    if fields & {"mean", "m2"}:
        mean = jnp.where(seen, s, 0).sum(-1) / jnp.maximum(count, 1)
        off = jnp.where(seen, s - mean[..., None], 0)
        found |= {"mean": mean, "m2": (off * off).sum(-1)}
    if "place" in fields:
        place = jnp.argmax(hidden, axis=-1).astype("int32") + first
        found["place"] = jnp.where(count > 0, place, -1)
    if "first" in fields:
        at = jnp.argmax(jnp.broadcast_to(seen, s.shape), axis=-1)
        found["first"] = jnp.where(count > 0, at.astype("int32") + first, NONE)
        opening = jnp.take_along_axis(s, at[..., None], axis=-1)[..., 0]
        found["opening"] = jnp.where(count > 0, opening, 0)
    if "largest" in fields:
        kept = jax.lax.top_k(hidden, min(most, s.shape[-1]))[0]
        pad = [(0, 0)] * (s.ndim - 1) + [(0, most - kept.shape[-1])]
        found["largest"] = jnp.pad(kept, pad, constant_values=-jnp.inf)
    return Sums(count, top, **{name: x for name, x in found.items() if name in fields})


def merge(a: Sums, b: Sums) -> Sums:
    """The sums over the keys of both; associative, and commutative but for equal largest logits."""
    count, top = a.count + b.count, jnp.maximum(a.top, b.top)
    down = [jnp.where(x.count > 0, base(x.top) - base(top), 0) for x in (a, b)]
    shares = [jnp.exp(x) for x in down]
    found: dict[str, Any] = {}
    if a.w is not None:
        found["w"] = shares[0] * (a.w + down[0] * a.z) + shares[1] * (b.w + down[1] * b.z)
    if a.z is not None:
        found["z"] = shares[0] * a.z + shares[1] * b.z
    if a.y is not None:
        found["y"] = shares[0] ** 2 * a.y + shares[1] ** 2 * b.y
    if a.m2 is not None:
        part = b.count / jnp.maximum(count, 1).astype(top.dtype)
        gap = b.mean - a.mean
        found["mean"] = a.mean + gap * part
        found["m2"] = a.m2 + b.m2 + gap * gap * part * a.count
    if a.place is not None:
        found["place"] = jnp.where((b.top > a.top) | (a.place < 0), b.place, a.place)
    if a.first is not None:
        found["first"] = jnp.minimum(a.first, b.first)
        found["opening"] = jnp.where(b.first < a.first, b.opening, a.opening)
    if a.largest is not None:
        both = jnp.concatenate([a.largest, b.largest], axis=-1)
        found["largest"] = jax.lax.top_k(both, a.largest.shape[-1])[0]
    return Sums(count, top, **found)


def relative(sums: Sums, low: Any) -> Sums:
    """The same with z, y and w relative to another logit, which is finite."""
    down = jnp.where(sums.count > 0, base(sums.top) - low, 0)
    share = jnp.exp(down)
    w = None if sums.w is None else share * (sums.w + down * sums.z)
    z = None if sums.z is None else share * sums.z
    y = None if sums.y is None else share**2 * sums.y
    return sums._replace(z=z, y=y, w=w)
