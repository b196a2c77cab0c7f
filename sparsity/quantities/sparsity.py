"""S, the l1/l2 sparsity of a row."""

from __future__ import annotations

import math

from sparsity import metric
from sparsity.quantities.base import Integral, Quantity

S = Quantity(
    name="S",
    symbol="S",
    title="l1/l2 sparsity, small is focused",
    average="E[‖a‖₁/(√n‖a‖₂)] over rows that are not all zero",
    unit="1",
    of=lambda row: metric.from_moments(row.l1 / row.count, row.l2 / row.count),
    limit=lambda rows: rows.product((1, 1.0), (2, -0.5), count=-0.5),
    # E[Σ|a|/√Σa²] = ∫ t^(−½) Σ_j E|a_j|e^(−ta_j²)/φ_j Πφ dt/√π, by 1/√x = ∫ t^(−½)e^(−tx) dt/√π
    integral=Integral(
        power=2,
        moments=(0.5,),
        sums=((lambda m1: m1, "token"),),
        combine=lambda scale, s1: s1,
        units=False,
        factor=lambda n: 1 / math.sqrt(math.pi * n),
        slow=True,
        ends=lambda n, seen, unit: (n**-0.5, math.sqrt(seen / n)),
    ),
)
