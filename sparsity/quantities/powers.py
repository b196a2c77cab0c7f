"""What powers of the weights add up to: S, n_eff, the participation ratio and kin; and entropy.

Each is a function of sums Σ|a|^p. The exact laws write x^(−s) as an integral of t^(s−1) e^(−tx)
over t, since the mean of e^(−t Σ|a|^p) over independent tokens is a product. Entropy is what they
come to at p → 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sparsity import metric
from sparsity.quantities.base import Family, Linear, Quantity, RowSums
from sparsity.quantities.laws import Integral, LogMoment

S = Quantity(
    name="S",
    symbol="S",
    title="l1/l2 sparsity, small is focused",
    average="E[‖a‖₁/(√n‖a‖₂)] over rows that are not all zero",
    of=lambda row: metric.from_moments(row.l1 / row.count, row.l2 / row.count),
    limit=lambda rows: rows.product((1, 1.0), (2, -0.5), count=-0.5),
    # E[Σ|a|/√Σa²] = ∫ t^(−½) Σ_j E|a_j|e^(−ta_j²)/φ_j Πφ dt/√π, by 1/√x = ∫ t^(−½)e^(−tx) dt/√π
    integral=Integral(
        power=2,
        moments=(0.5,),
        sums=((lambda m1: m1, "token"),),
        units=False,
        factor=lambda n: 1 / math.sqrt(math.pi * n),
        sqrt_tail=True,
        ends=lambda n, seen, unit: (n**-0.5, math.sqrt(seen / n)),
    ),
)


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


participation = Quantity(
    name="participation",
    symbol="E Y₂",
    title="participation ratio Σp², 1 for one-hot",
    average="E Σp_j² over tokens, p_j = |a_j|/(Σ|a| + e^b of sink logits), over nonzero rows",
    of=lambda row: metric.participation(row.l1 + row.unit, row.l2),
    units=True,
    limit=lambda rows: rows.product((2, 1.0), total=-2.0),
    # Σ_j ∫ t E[a_j² e^(−t|a_j|)]/φ_j Πφ dt, by 1/x² = ∫ t e^(−tx) dt
    integral=Integral(
        power=1,
        moments=(2.0,),
        sums=((lambda m2: m2, "token"),),
        units=True,
        ends=lambda n, seen, unit: (0.0 if unit else 1 / seen, 1.0),
    ),
)


hoyer = Quantity(
    name="hoyer",
    symbol="E Hoyer",
    title="Hoyer's index, 0 for uniform, 1 for one-hot; of a single token 0",
    average="E[(√n − ‖a‖₁/‖a‖₂)/(√n − 1)] over rows that are not all zero",
    of=lambda row: metric.hoyer_of(row.l1, row.l2, row.count),
    # (√n − √n S_n)/(√n − 1): as S, 1 − S in long rows
    linear=Linear(
        of=S,
        shift=lambda n: np.where(np.equal(n, 1), 1.0, 1 / (1 - np.maximum(n, 2.0) ** -0.5)),
        slope=lambda n: np.where(np.equal(n, 1), -1.0, -1 / (1 - np.maximum(n, 2.0) ** -0.5)),
    ),
)


# Of a row in which nothing is random, these are S^a n^b: the powers (a, b) by name.
POWERS_OF_S_AND_N = {"S": (1, 0), "n_eff": (2, 1), "participation": (-2, -1)}


def _one(row: RowSums) -> Any:
    """Return what a weight of 1 is in the sums of a row; of shares it is their sum."""
    return row.l1 + row.unit if row.one is None else row.one


square_sum = Quantity(
    name="square_sum",
    symbol="E Σa²",
    title="sum of squares of the weights as they are, not divided: the variance of Σa_j v_j",
    average="E Σa_j² over tokens, a_j = f(s_j) or the weights of a map; over nonzero rows",
    of=lambda row: metric.participation(_one(row), row.l2),
    moment=2,
)

abs_sum = Quantity(
    name="abs_sum",
    symbol="E Σ|a|",
    title="sum of |a| of the weights as they are, not divided",
    average="E Σ|a_j| over tokens, a_j = f(s_j) or the weights of a map; over nonzero rows",
    of=lambda row: row.l1 / _one(row),
    moment=1,
)


def _power_sum(name: str, order: float) -> Quantity:
    def ends(n: float, seen: float, unit: bool) -> tuple[float, float]:
        one_hot, uniform = 1.0, seen ** (1 - order)
        return 0.0 if unit else min(one_hot, uniform), max(one_hot, uniform)

    return Quantity(
        name=name,
        symbol=f"E Σp^{order:g}",
        title=f"power sum Σp^{order:g}; ln(Σp^α)/(1 − α) is the Rényi entropy",
        average="E Σp_j^α over tokens, p_j = |a_j|/(Σ|a| + e^b of sink logits), over nonzero rows",
        of=lambda row: ((row.weights / (row.l1 + row.unit)[..., None]) ** order).sum(-1),
        units=True,
        whole=True,
        limit=lambda rows: rows.product((order, 1.0), total=-order),
        # Σ_j ∫ t^(α−1) E[a_j^α e^(−t|a_j|)]/φ_j Πφ dt / Γ(α), by x^(−α) Γ(α) = ∫ t^(α−1) e^(−tx) dt
        integral=Integral(
            power=1,
            moments=(order,),
            sums=((lambda m: m, "token"),),
            units=True,
            factor=lambda n: 1 / math.gamma(order),
            ends=ends,
            sqrt_tail=order < 1,
        ),
    )


power_sum = Family(
    name="power_sum",
    symbol="α",
    title="power sum Σp^α, 1 for one-hot; its logarithm over 1 − α is the Rényi entropy",
    domain="an order from 0.5 to 8, but not 1",
    admits=lambda order: 0.5 <= order <= 8 and order != 1,
    member=_power_sum,
    example="3",
)


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
        units=True,
        ends=lambda n, seen, unit: (0.0, _most(seen, unit)),
        excess_of_abs=lambda n: 2.0,  # 2γ_E + 2 ∫₁^∞ e^(−v) ln v dv = 1.59
    ),
)


kl_uniform = Quantity(
    name="kl_uniform",
    symbol="E KL",
    title="divergence from uniform attention, ln n − H in nats, 0 for uniform",
    average="E[ln n + Σp_j ln p_j] over tokens, p_j as in entropy; over nonzero rows",
    unit="nat",
    of=lambda row: (
        row.l1.__array_namespace__().log(row.count) - metric.entropy(row.weights, row.unit)
    ),
    units=True,
    whole=True,
    linear=Linear(of=entropy, shift=np.log, slope=lambda n: np.full(np.shape(n), -1.0)),
)


def _most_varied(seen: float) -> float:
    """Return the largest varentropy on m points: one of them p, the others alike.

    It is (x + ln(m − 1))²/(4 cosh²(x/2)) at the logit x of p, largest where (x + ln(m − 1))·
    tanh(x/2) = 2.
    """
    if seen < 2:
        return 0.0
    from scipy.optimize import brentq  # a third of a second, which other quantities need not wait

    others = math.log(seen - 1)
    x: Any = brentq(lambda x: (x + others) * math.tanh(x / 2) - 2, 0.0, 4.0)
    return (x + others) ** 2 / (4 * math.cosh(x / 2) ** 2)


varentropy = Quantity(
    name="varentropy",
    symbol="E Var ln p",
    title="variance of ln p under p; of softmax that of the score, how a head answers temperature",
    average="E[Σp_j(ln p_j)² − (Σp_j ln p_j)²] over tokens, p_j = |a_j|/Σ|a|, over nonzero rows",
    unit="nat²",
    of=lambda row: metric.varentropy(row.weights),
    whole=True,
    # With x = t|a|, 1/Z = ∫ e^(−tZ) dt and 1/Z² = ∫ t e^(−tZ) dt: under these ln x is ln p + ln v,
    # v of a Gamma law of order 1 or 2, so that
    #     ∫ Σ x(ln x)² e^(−tZ) du = Σp(ln p)² + 2γ_E H + E(ln v₁)²,
    #     ∫ (Σ x ln x)² e^(−tZ) du = H² − 2(1 − γ_E)H + E(ln v₂)²,
    # and their difference is the varentropy + 2H + 2γ_E, H + γ_E = −∫ Σ x ln x e^(−tZ) du.
    integral=Integral(
        power=1,
        moments=(1.0, LogMoment(1.0), LogMoment(1.0, 2), 2.0, LogMoment(2.0, 2)),
        sums=(
            (lambda m1, log1, square1, m2, square2: square1 + 2 * log1 - square2, "token"),
            (lambda m1, log1, square1, m2, square2: log1, "token"),
            (lambda m1, log1, square1, m2, square2: log1 * log1, "token"),
        ),
        combine=lambda scale, s, s1, s11: s - scale * (s1 * s1 - s11),
        units=False,
        ends=lambda n, seen, unit: (0.0, _most_varied(seen)),
        # Σp(ln p + ln v)², of which the mean over rows is at most (ln n + 2)², and as much again.
        excess_of_abs=lambda n: 2 * (math.log(n) + 2) ** 2,
    ),
)
