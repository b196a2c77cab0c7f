"""The sums over a row of logits, which merge block by block, and the statistics read from them.

`Sums` merge in any order: they are the running maximum and rescaled sums of online softmax
(Milakov and Gimelshein, 2018), with the moments of the logits by Chan's update. A `Statistic` is a
record with the sums that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sparsity import quantities
from sparsity.errors import InputError
from sparsity.quantities import Quantity, RowSums


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
        first: position of the first key; `NO_POSITION` for no key.
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


NO_POSITION = 2**31 - 1  # beyond all positions: what `first` holds before there is a key


def empty(shape: tuple[int, ...], fields: Set[str], dtype: Any, most: int = 0) -> Sums:
    """Return the sums of rows that have seen nothing.

    Args:
        shape: of the rows.
        fields: which fields beside count and top are wanted.
        dtype: of the sums.
        most: k, of `largest`.
    """
    zero = jnp.zeros(shape, dtype)
    sums: dict[str, Any] = dict.fromkeys(fields, zero)
    if "place" in fields:
        sums["place"] = jnp.full(shape, -1, "int32")
    if "first" in fields:
        sums["first"] = jnp.full(shape, NO_POSITION, "int32")
    if "largest" in fields:
        sums["largest"] = jnp.full((*shape, most), -jnp.inf, dtype)
    return Sums(jnp.zeros(shape, "int32"), jnp.full(shape, -jnp.inf, dtype), **sums)


def base(top: Any) -> Any:
    """Return the logit that weights are relative to.

    No result depends on it, so it has no gradient. Rows without a key have the top −∞; weights are
    then relative to 0, since −∞ − (−∞) would be NaN.
    """
    top = jax.lax.stop_gradient(top)
    return jnp.where(jnp.isfinite(top), top, 0)


def of_block(s: Any, seen: Any, first: Any, fields: Set[str], most: int = 0) -> Sums:
    """Return the sums over one block of keys.

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
    sums: dict[str, Any] = {}
    if fields & {"z", "y", "w"}:
        # `where` before and after exp: a hidden logit far above the top would overflow, and the
        # derivative of an overflow is NaN even where the other branch is taken.
        low = base(top)[..., None]
        away = jnp.where(seen, s - low, 0)
        weight = jnp.where(seen, jnp.exp(away), 0)
        # XLA adds up a bare product of two arrays one by one, and three times as slowly; behind a
        # condition it does not.
        product = jnp.where(weight > 0, away * weight, 0)
        terms = {"z": weight, "y": weight * weight, "w": product}
        sums |= {name: x.sum(-1) for name, x in terms.items() if name in fields}
    if fields & {"mean", "m2"}:
        mean = jnp.where(seen, s, 0).sum(-1) / jnp.maximum(count, 1)
        off = jnp.where(seen, s - mean[..., None], 0)
        sums |= {"mean": mean, "m2": (off * off).sum(-1)}
    if "place" in fields:
        place = jnp.argmax(hidden, axis=-1).astype("int32") + first
        sums["place"] = jnp.where(count > 0, place, -1)
    if "first" in fields:
        at = jnp.argmax(jnp.broadcast_to(seen, s.shape), axis=-1)
        sums["first"] = jnp.where(count > 0, at.astype("int32") + first, NO_POSITION)
        opening = jnp.take_along_axis(s, at[..., None], axis=-1)[..., 0]
        sums["opening"] = jnp.where(count > 0, opening, 0)
    if "largest" in fields:
        kept = jax.lax.top_k(hidden, min(most, s.shape[-1]))[0]
        pad = [(0, 0)] * (s.ndim - 1) + [(0, most - kept.shape[-1])]
        sums["largest"] = jnp.pad(kept, pad, constant_values=-jnp.inf)
    return Sums(count, top, **{name: x for name, x in sums.items() if name in fields})


def merge(a: Sums, b: Sums) -> Sums:
    """Return the sums over the keys of both.

    This is associative, and commutative but for the place of equal largest logits.
    """
    count, top = a.count + b.count, jnp.maximum(a.top, b.top)
    a, b = (relative(x, base(top)) for x in (a, b))
    names = [name for name in ("z", "y", "w") if getattr(a, name) is not None]
    sums: dict[str, Any] = {name: getattr(a, name) + getattr(b, name) for name in names}
    if a.m2 is not None:
        # Chan, Golub and LeVeque (1983): squares within both, and between the two means.
        part = b.count / jnp.maximum(count, 1).astype(top.dtype)
        gap = b.mean - a.mean
        sums["mean"] = a.mean + gap * part
        sums["m2"] = a.m2 + b.m2 + gap * gap * part * a.count
    if a.place is not None:
        sums["place"] = jnp.where((b.top > a.top) | (a.place < 0), b.place, a.place)
    if a.first is not None:
        sums["first"] = jnp.minimum(a.first, b.first)
        sums["opening"] = jnp.where(b.first < a.first, b.opening, a.opening)
    if a.largest is not None:
        both = jnp.concatenate([a.largest, b.largest], axis=-1)
        sums["largest"] = jax.lax.top_k(both, a.largest.shape[-1])[0]
    return Sums(count, top, **sums)


def relative(sums: Sums, low: Any) -> Sums:
    """Return the sums with z, y and w relative to another logit, which is finite."""
    # w = Σ(s − top)e^(s − top) moves by z as well, as every exponent in it does; y has squared
    # weights, so the squared share.
    down = jnp.where(sums.count > 0, base(sums.top) - low, 0)
    share = jnp.exp(down)
    w = None if sums.w is None else share * (sums.w + down * sums.z)
    z = None if sums.z is None else share * sums.z
    y = None if sums.y is None else share**2 * sums.y
    return sums._replace(z=z, y=y, w=w)


class FinishedRows(NamedTuple):
    """Rows at the end of their keys; what rows without a key hold is finite and means nothing.

    Args:
        sums: over the keys; z, y and w are relative to `low`.
        low: the logit of weight 1.
        learned_sink_weight: the weight of the learned sink beside the keys, 0 for none.
        sink_keys: the weight of the keys that are looked at as sinks; None where nobody asked.
    """

    sums: Sums
    low: Any
    learned_sink_weight: Any
    sink_keys: Any

    @property
    def n(self) -> Any:
        """The number of keys as a floating number, at least 1."""
        return jnp.maximum(self.sums.count, 1).astype(self.low.dtype)

    @property
    def row(self) -> RowSums:
        """The sums as `quantities` takes them."""
        z, y = (self.where_seen(x, 1.0) for x in (self.sums.z, self.sums.y))
        sink = None if self.sink_keys is None else self.sink_keys + self.learned_sink_weight
        return RowSums(self.n, z, y, sink, self.learned_sink_weight)

    @property
    def total(self) -> Any:
        """The weight of the keys and of the learned sink."""
        return self.where_seen(self.sums.z, 1.0) + self.learned_sink_weight

    def where_seen(self, x: Any, other: float = 0.0) -> Any:
        """Return a sum where there is a key: derivatives then stay finite where there is none."""
        return other if x is None else jnp.where(self.sums.count > 0, x, other)


@dataclass(frozen=True)
class Statistic:
    """One statistic of a row.

    Args:
        name: as in `of=`.
        title: what it is.
        needs: the fields of `Sums` beside count and top.
        value: of rows at the end of their keys.
        least: the keys without which it has no value.
        most: how many of the largest logits it needs.
    """

    name: str
    title: str
    needs: tuple[str, ...]
    value: Callable[[FinishedRows], Any]
    least: int = 1
    most: int = 0


def _entropy(rows: FinishedRows) -> Any:
    # −Σ p ln p over the keys with p = e^(s − low)/total: (z ln total − w)/total, where the learned
    # sink is in the total and not among the keys.
    z, w = rows.row.l1, rows.where_seen(rows.sums.w)
    return jnp.maximum((z * jnp.log(rows.total) - w) / rows.total, 0)


def _gamma(rows: FinishedRows) -> Any:
    # The derivative of √m2 at 0 is infinite: equal logits take the root of 1, and 0 is put in
    # after.
    m2 = rows.where_seen(rows.sums.m2)
    spread = jnp.sqrt(jnp.where(m2 == 0, 1.0, m2) / jnp.maximum(rows.n - 1, 1))
    return jnp.where(m2 == 0, 0, spread)  # of logits that overflow NaN, as it is


def _shares(rows: FinishedRows, logits: Any) -> Any:
    """Return the shares of keys of given logits, −∞ for none, along a last axis of their own."""
    low, total = (x[..., None] for x in (rows.low, rows.total))
    away = jnp.where(jnp.isfinite(logits), logits - low, 0)
    return jnp.where(jnp.isfinite(logits), jnp.exp(away), 0) / total


def _as_statistic(quantity: Quantity, *needs: str) -> Statistic:
    """Return the statistic of a quantity whose own definition takes these sums."""
    return Statistic(quantity.name, quantity.title, needs, lambda rows: quantity.of(rows.row))


ALL: tuple[Statistic, ...] = (
    Statistic("length", "keys in sight n", (), lambda rows: rows.sums.count, least=0),
    _as_statistic(quantities.S, "z", "y"),
    _as_statistic(quantities.n_eff, "z", "y"),
    _as_statistic(quantities.participation, "z", "y"),
    Statistic("entropy", quantities.entropy.title, ("z", "w"), _entropy),
    Statistic(
        "max_weight", quantities.max_weight.title, ("z",),
        lambda rows: _shares(rows, rows.sums.top[..., None])[..., 0],
    ),
    _as_statistic(quantities.sink_mass, "z", "sink"),
    Statistic("max_logit", "largest logit", (), lambda rows: rows.where_seen(rows.sums.top)),
    Statistic("max_key", "position of the largest logit", ("place",), lambda rows: rows.sums.place),
    Statistic(
        "log_sum_exp", "ln Σe^s, that of sink logits in it", ("z",),
        lambda rows: rows.low + jnp.log(rows.total),
    ),
    Statistic(
        "beta", "mean β̂ of the logits", ("mean", "m2"), lambda rows: rows.where_seen(rows.sums.mean)
    ),
    Statistic("gamma", "standard deviation γ̂ of the logits", ("mean", "m2"), _gamma, least=2),
    Statistic(
        "gamma_ratio", "γ̂/√(2 ln n), 1 where a few keys begin to take all", ("mean", "m2"),
        lambda rows: _gamma(rows) / jnp.sqrt(2 * jnp.log(jnp.maximum(rows.n, 2))), least=2,
    ),
)  # fmt: skip


def statistic_named(name: str) -> Statistic:
    """Return the statistic of that name: one of `ALL`, or "top_k_mass:8".

    Raises:
        InputError: no such statistic.
    """
    names = [statistic.name for statistic in ALL]
    if isinstance(name, str) and name in names:
        return ALL[names.index(name)]
    if isinstance(name, str) and name.startswith("top_k_mass"):
        quantity = quantities.named(name)
        k = int(float(quantity.name.partition(":")[2]))
        return Statistic(
            quantity.name, quantity.title, ("z", "largest"),
            lambda rows: _shares(rows, rows.sums.largest[..., :k]).sum(-1), most=k,
        )  # fmt: skip
    raise InputError("of", name, f"choose among {', '.join(names)}, top_k_mass:K")


def needed_sums(wanted: Iterable[Statistic]) -> frozenset[str]:
    """Return the sums that some statistics need, and what these need to merge."""
    needed = {field for statistic in wanted for field in statistic.needs}
    return frozenset(needed | ({"z"} if "w" in needed else set()))


def no_value() -> float:
    """Return what stands for no value: NaN, unless JAX is to end at the first NaN that it sees."""
    debug: Any = jax.config
    return -np.inf if debug.jax_debug_nans else np.nan


def evaluate_statistics(
    wanted: Iterable[Statistic], rows: FinishedRows, missing: Any
) -> dict[str, Any]:
    """Return statistics by name; `missing` for rows with too few keys, −1 for positions."""
    values = {}
    for statistic in wanted:
        value = statistic.value(rows)
        if not np.issubdtype(value.dtype, np.integer):
            value = jnp.where(rows.sums.count >= statistic.least, value, missing)
        values[statistic.name] = value
    return values
