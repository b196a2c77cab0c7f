"""n_eff, the effective number of attended tokens."""

from __future__ import annotations

from sparsity import metric
from sparsity.quantities.base import Integral, Quantity

n_eff = Quantity(
    name="n_eff",
    symbol="n_eff",
    title="effective number of attended tokens",
    average="E[(Σ|a|)²/Σa²] over rows that are not all zero",
    unit="tokens",
    of=lambda row: metric.effective(row.l1, row.l2),
    limit=lambda rows: rows.product((1, 2.0), (2, -1.0)),
    # ∫ [Σ m2_j/φ_j + (Σ m1_j/φ_j)² − Σ (m1_j/φ_j)²] Πφ dt, by 1/x = ∫ e^(−tx) dt
    integral=Integral(
        power=2,
        moments=(0.5, 1.0),
        sums=(
            (lambda m1, m2: m2, "token"),
            (lambda m1, m2: m1, "token"),
            (lambda m1, m2: m1 * m1, "token"),
        ),
        combine=lambda scale, s2, s1, s11: s2 + scale * (s1 * s1 - s11),
        units=False,
        ends=lambda n, seen, unit: (1.0, seen),
    ),
)
