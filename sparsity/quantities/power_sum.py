"""The power sum Σp^α, of which the Rényi entropy of order α is ln(Σp^α)/(1 − α)."""

from __future__ import annotations

import math

from sparsity.quantities.base import Family, Integral, Quantity


def _member(name: str, order: float) -> Quantity:
    def ends(n: float, seen: float, unit: bool) -> tuple[float, float]:
        one_hot, uniform = 1.0, seen ** (1 - order)
        return 0.0 if unit else min(one_hot, uniform), max(one_hot, uniform)

    return Quantity(
        name=name,
        symbol=f"E Σp^{order:g}",
        title=f"power sum Σp^{order:g}; ln(Σp^α)/(1 − α) is the Rényi entropy",
        average="E Σp_j^α over tokens, p_j = |a_j|/(Σ|a| + e^b of sink logits), over nonzero rows",
        unit="1",
        of=lambda row: ((row.weights / (row.l1 + row.unit)[..., None]) ** order).sum(-1),
        units=True,
        whole=True,
        limit=lambda rows: rows.product((order, 1.0), total=-order),
        # Σ_j ∫ t^(α−1) E[a_j^α e^(−t|a_j|)]/φ_j Πφ dt / Γ(α), by x^(−α) Γ(α) = ∫ t^(α−1) e^(−tx) dt
        integral=Integral(
            power=1,
            moments=(order,),
            sums=((lambda m: m, "token"),),
            combine=lambda scale, s: s,
            units=True,
            factor=lambda n: 1 / math.gamma(order),
            ends=ends,
            slow=order < 1,
        ),
    )


power_sum = Family(
    name="power_sum",
    symbol="α",
    title="power sum Σp^α, 1 for one-hot; its logarithm over 1 − α is the Rényi entropy",
    domain="an order from 0.5 to 8, but not 1",
    admits=lambda order: 0.5 <= order <= 8 and order != 1,
    member=_member,
    example="3",
)
