"""How many keys hold a given share of the attention."""

from __future__ import annotations

from typing import Any

from sparsity import metric
from sparsity.quantities.base import Family, LongRows, Quantity, RowSums


def _member(name: str, share: float) -> Quantity:
    def limit(rows: LongRows) -> tuple[float, float]:
        keys, error = rows.keys(share)
        return rows.n * keys, rows.n * error

    def of(row: RowSums) -> Any:
        xp = row.weights.__array_namespace__()
        held = xp.flip(metric.ascending(row.weights), axis=-1).cumsum(-1)
        return 1.0 + (held < share * row.l1[..., None]).sum(-1)

    return Quantity(
        name=name,
        symbol=f"keys for {share:g}",
        title=f"fewest keys that hold {share:g} of the mass of all tokens",
        average="E of the least m whose m largest |a_j| add up to p·Σ|a|, over nonzero rows",
        unit="tokens",
        of=of,
        whole=True,
        limit=limit,
    )


keys_for_mass = Family(
    name="keys_for_mass",
    symbol="p",
    title="fewest keys that hold the share p of the mass, 1 for one-hot",
    domain="a share between 0 and 1",
    admits=lambda share: 0 < share < 1,
    member=_member,
    example="0.9",
)
