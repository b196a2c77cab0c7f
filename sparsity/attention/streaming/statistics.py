"""What can be asked of the sums of a row: a record each, with the sums that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from sparsity import quantities
from sparsity.attention.streaming.sums import Sums
from sparsity.errors import InputError
from sparsity.quantities import Quantity, RowSums


class Ended(NamedTuple):
    """Rows at the end of their keys; what rows without a key hold is finite and means nothing.

    Args:
        sums: over the keys; z, y and w are relative to `low`.
        low: the logit of weight 1.
        unit: weight of the sink logit, 0 for none.
        sink: weight of the keys that are looked at as sinks; None where nobody asked.
    """

    sums: Sums
    low: Any
    unit: Any
    sink: Any

    @property
    def n(self) -> Any:
        """The keys, as floating numbers; at least 1."""
        return jnp.maximum(self.sums.count, 1).astype(self.low.dtype)

    @property
    def row(self) -> RowSums:
        """The same as `quantities` sees it."""
        z, y = (self.kept(x, 1.0) for x in (self.sums.z, self.sums.y))
        sink = None if self.sink is None else self.sink + self.unit
        return RowSums(self.n, z, y, sink, self.unit)

    @property
    def total(self) -> Any:
        """All weight there is."""
        return self.kept(self.sums.z, 1.0) + self.unit

    def kept(self, x: Any, other: float = 0.0) -> Any:
        """A sum where there is a key: so derivatives stay finite where there is none."""
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
    value: Callable[[Ended], Any]
    least: int = 1
    most: int = 0


def _entropy(rows: Ended) -> Any:
    z, w = rows.row.l1, rows.kept(rows.sums.w)
    return jnp.maximum((z * jnp.log(rows.total) - w) / rows.total, 0)


def _gamma(rows: Ended) -> Any:
    m2 = rows.kept(rows.sums.m2)
    spread = jnp.sqrt(jnp.where(m2 == 0, 1.0, m2) / jnp.maximum(rows.n - 1, 1))
    return jnp.where(m2 == 0, 0, spread)  # of logits that overflow NaN, as it is


def _weights(rows: Ended, logits: Any) -> Any:
    """The shares of keys of given logits, −∞ for none; along a last axis of their own."""
    low, total = (x[..., None] for x in (rows.low, rows.total))
    away = jnp.where(jnp.isfinite(logits), logits - low, 0)
    return jnp.where(jnp.isfinite(logits), jnp.exp(away), 0) / total


def _same(quantity: Quantity, *needs: str) -> Statistic:
    """A quantity whose own definition takes these sums."""
    return Statistic(quantity.name, quantity.title, needs, lambda rows: quantity.of(rows.row))


ALL: tuple[Statistic, ...] = (
    Statistic("length", "keys in sight n", (), lambda rows: rows.sums.count, least=0),
    _same(quantities.S, "z", "y"),
    _same(quantities.n_eff, "z", "y"),
    _same(quantities.participation, "z", "y"),
    Statistic("entropy", quantities.entropy.title, ("z", "w"), _entropy),
    Statistic(
        "max_weight", quantities.max_weight.title, ("z",),
        lambda rows: _weights(rows, rows.sums.top[..., None])[..., 0],
    ),
    _same(quantities.sink_mass, "z", "sink"),
    Statistic("max_logit", "largest logit", (), lambda rows: rows.kept(rows.sums.top)),
    Statistic("max_key", "position of the largest logit", ("place",), lambda rows: rows.sums.place),
    Statistic(
        "log_sum_exp", "ln Σe^s, that of sink logits in it", ("z",),
        lambda rows: rows.low + jnp.log(rows.total),
    ),
    Statistic(
        "beta", "mean β̂ of the logits", ("mean", "m2"), lambda rows: rows.kept(rows.sums.mean)
    ),
    Statistic("gamma", "standard deviation γ̂ of the logits", ("mean", "m2"), _gamma, least=2),
    Statistic(
        "gamma_ratio", "γ̂/√(2 ln n), 1 where a few keys begin to hold the row", ("mean", "m2"),
        lambda rows: _gamma(rows) / jnp.sqrt(2 * jnp.log(jnp.maximum(rows.n, 2))), least=2,
    ),
)  # fmt: skip


def _top_k(name: str, k: int) -> Statistic:
    title = quantities.named(name).title
    return Statistic(
        name, title, ("z", "largest"),
        lambda rows: _weights(rows, rows.sums.largest[..., :k]).sum(-1), most=k,
    )  # fmt: skip


def named(name: str) -> Statistic:
    """The statistic of that name: one of `ALL`, or "top_k_mass:8".

    Raises:
        InputError: no such statistic.
    """
    names = [each.name for each in ALL]
    if isinstance(name, str) and name in names:
        return ALL[names.index(name)]
    if isinstance(name, str) and name.startswith("top_k_mass"):
        quantity = quantities.named(name)
        return _top_k(quantity.name, int(float(quantity.name.partition(":")[2])))
    raise InputError("of", name, f"choose among {', '.join(names)}, top_k_mass:K")


def fields(wanted: Iterable[Statistic]) -> frozenset[str]:
    """The sums that some statistics need, and what these need to merge."""
    needed = {field for each in wanted for field in each.needs}
    return frozenset(needed | ({"z"} if "w" in needed else set()))


def values(wanted: Iterable[Statistic], rows: Ended) -> dict[str, Any]:
    """Statistics by name; NaN for rows with too few keys to have them, −1 for positions."""
    found = {}
    for each in wanted:
        value = each.value(rows)
        if not np.issubdtype(value.dtype, np.integer):
            value = jnp.where(rows.sums.count >= each.least, value, jnp.nan)
        found[each.name] = value
    return found
