"""The mass on the sinks."""

from __future__ import annotations

from sparsity.quantities.base import Integral, Quantity

sink_mass = Quantity(
    name="sink_mass",
    symbol="sink mass",
    title="share of the attention that goes to sinks",
    average="E[Σ_sinks|a|/(Σ|a| + sink logits)] over rows that are not all zero",
    unit="1",
    of=lambda row: row.sink / (row.l1 + row.unit),
    units=True,
    sinks=True,
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
