"""The Shannon entropy of the attention weights."""

from __future__ import annotations

import math

import numpy as np

from sparsity import metric
from sparsity.quantities.base import Integral, LogMoment, Quantity


def _most(seen: float, unit: bool) -> float:
    """Return the largest entropy that m tokens can have.

    m equal shares that sum to P have −Σp ln p = P ln(m/P). Without a unit P = 1; beside one, P may
    be less, and where m < e the largest is m/e, at P = m/e.
    """
    return seen / math.e if unit and seen < math.e else math.log(seen)


entropy = Quantity(
    name="entropy",
    symbol="E H",
    title="Shannon entropy −Σp ln p in nats, 0 for one-hot",
    average="E[−Σp_j ln p_j] over tokens, p_j = |a_j|/(Σ|a| + e^b of sink logits), nonzero rows",
    unit="nat",
    of=lambda row: metric.entropy(row.weights, row.unit),
    units=True,
    whole=True,
    limit=lambda rows: rows.entropy(),
    # p ln(1/p) = ∫ a e^(−tZ) (−ln(ta) − γ_E) dt with Euler's γ_E, since ∫ e^(−v) ln v dv = −γ_E.
    integral=Integral(
        power=1,
        moments=(1.0, LogMoment(1.0)),
        sums=((lambda m1, log1: -log1 - np.euler_gamma * m1, "token"),),
        combine=lambda scale, s: s,
        units=True,
        ends=lambda n, seen, unit: (0.0, _most(seen, unit)),
        excess_of_abs=2.0,  # 2γ_E + 2 ∫₁^∞ e^(−v) ln v dv = 1.59
    ),
)
