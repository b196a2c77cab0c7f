"""The participation ratio Y₂ = Σp²."""

from __future__ import annotations

from sparsity import metric
from sparsity.quantities.base import Integral, Quantity

participation = Quantity(
    name="participation",
    symbol="E Y₂",
    title="participation ratio Σp², 1 for one-hot",
    average="E Σp_j² over tokens, p_j = |a_j|/(Σ|a| + e^b of sink logits), over nonzero rows",
    unit="1",
    of=lambda row: metric.participation(row.l1 + row.unit, row.l2),
    units=True,
    limit=lambda rows: rows.product((2, 1.0), total=-2.0),
    # Σ_j ∫ t E[a_j² e^(−t|a_j|)]/φ_j Πφ dt, by 1/x² = ∫ t e^(−tx) dt
    integral=Integral(
        power=1,
        moments=(2.0,),
        sums=((lambda m2: m2, "token"),),
        combine=lambda scale, s2: s2,
        units=True,
        ends=lambda n, seen, unit: (0.0 if unit else 1 / seen, 1.0),
    ),
)
