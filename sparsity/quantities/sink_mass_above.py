"""How often the sinks take more than a given share of the attention."""

from __future__ import annotations

from typing import Any

from sparsity.quantities.base import Family, Quantity, RowSums


def _member(name: str, share: float) -> Quantity:
    def of(row: RowSums) -> Any:
        return (row.sink > share * (row.l1 + row.unit)).astype(row.l1.dtype)

    return Quantity(
        name=name,
        symbol=f"P(sink > {share:g})",
        title=f"chance that the sinks of a row take more than {share:g}",
        average="share of the rows with Σ_sinks|a| > ε·(Σ|a| + sink logits), of rows not all zero",
        unit="1",
        of=of,
        units=True,
        sinks=True,
        above=share,
    )


sink_mass_above = Family(
    name="sink_mass_above",
    symbol="ε",
    title="chance that the sinks of a row take more than the share ε",
    domain="a share between 0 and 1",
    admits=lambda share: 0 < share < 1,
    member=_member,
    example="0.5",
)
