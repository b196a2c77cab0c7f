"""The largest attention weight of a row."""

from __future__ import annotations

from sparsity.quantities.base import Quantity
from sparsity.quantities.top_k_mass import largest

max_weight = Quantity(
    name="max_weight",
    symbol="E max p",
    title="largest weight max p, 1 for one-hot",
    average="E max p_j over tokens, p_j = |a_j|/(Σ|a| + e^b of sink logits), over nonzero rows",
    unit="1",
    of=lambda row: row.weights.max(-1) / (row.l1 + row.unit),
    units=True,
    whole=True,
    layers=largest(1),
)
