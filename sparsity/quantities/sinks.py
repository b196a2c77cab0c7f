"""The mass on the sinks, and how often it is more than a given share."""

from __future__ import annotations

from typing import Any

from sparsity.quantities.base import Exceeds, Family, Integral, Quantity, RowSums

sink_mass = Quantity(
    name="sink_mass",
    symbol="sink mass",
    title="share of the attention that goes to sinks",
    average="E[Σ_sinks|a|/(Σ|a| + sink logits)] over rows that are not all zero",
    unit="1",
    of=lambda row: row.sink / (row.l1 + row.unit),
    units=True,
    needs="sink",
    limit=lambda rows: rows.product(sinks=1.0, total=-1.0),
    # ∫ Σ_sinks E[|a_j|e^(−t|a_j|)]/φ_j Πφ dt, by 1/x = ∫ e^(−tx) dt
    integral=Integral(
        power=1,
        moments=(1.0,),
        sums=((lambda m1: m1, "sink"),),
        combine=lambda scale, s1: s1,
        units=True,
        # A single token without a unit is the sink itself.
        ends=lambda n, seen, unit: (0.0 if unit or seen > 1 else 1.0, 1.0),
    ),
)


def _sink_mass_above(name: str, share: float) -> Quantity:
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
        needs="sink",
        chance=True,
        above=Exceeds("sink", share / (1 - share)),
    )


sink_mass_above = Family(
    name="sink_mass_above",
    symbol="ε",
    title="chance that the sinks of a row take more than the share ε",
    domain="a share between 0 and 1",
    admits=lambda share: 0 < share < 1,
    member=_sink_mass_above,
    example="0.5",
)
