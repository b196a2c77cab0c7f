"""What a row gives to its sinks and to its needle, tokens that a step has marked, and to any token.

The needle is the one key that the query looks for, among n − 1 others. With a* its weight and
values of zero mean, independent from key to key, the row reads out a*·v* and noise of standard
deviation √(Σ_others a²). So

    odds = a*/Σ_others|a|,   SNR = a*/√(Σ_others a²) = odds·√n_eff of the others.

Where other weights can all be zero, odds and SNR have no mean. So their laws are asked for: the
chance to exceed a number, or the mean of what is between 0 and 1.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import numpy as np

from sparsity.quantities.base import Family, Quantity, RowSums
from sparsity.quantities.laws import Exceeds, Integral, NeedleLaw
from sparsity.special import ndtr

_MOST_VALUES = 10**6  # beyond, the table of recall would be too coarse where it is steep
_TABLE = 8193  # points: linear interpolation between them is off by less than 3e-7
_REACH = 8.5  # standard deviations beyond which a normal has no mass
# The rule of ∫ φ(z) … dz: trapezoidal, with an error below 1e-14.
_Z = np.linspace(-_REACH, _REACH, 545)
_DENSITY = np.exp(-0.5 * _Z * _Z) * (_Z[1] - _Z[0]) / math.sqrt(2 * math.pi)


def _share_of(whose: str, power: int) -> Integral:
    """Return the mean of Σ_whose|a|^power/Σ|a|^power; units stand among weights, not squares."""
    # ∫ Σ_whose E[|a_j|^p e^(−t|a_j|^p)]/φ_j Πφ dt, by 1/x = ∫ e^(−tx) dt
    units = power == 1
    return Integral(
        power=power,
        moments=(1.0,),
        sums=((lambda m1: m1, whose),),
        units=units,
        # A single token without a unit is the sink, or the needle, itself.
        ends=lambda n, seen, unit: (0.0 if seen > 1 or (unit and units) else 1.0, 1.0),
    )


needle_mass = Quantity(
    name="needle_mass",
    symbol="needle mass",
    title="share of the attention that the needle gets",
    average="E[|a*|/(Σ|a| + sink logits)] over rows that are not all zero",
    of=lambda row: row.needle / (row.l1 + row.unit),
    units=True,
    needs="needle",
    limit=lambda rows: rows.product(needle=1.0, total=-1.0),
    integral=_share_of("needle", 1),
)


def _weight(name: str, token: float) -> Quantity:
    j = int(token)

    def of(row: RowSums) -> Any:
        a_j = row.weights[..., j - 1] if j <= row.weights.shape[-1] else math.nan
        return a_j / (row.l1 + row.unit)

    return replace(
        needle_mass,
        name=name,
        symbol=f"p_{j}",
        title=f"share of the attention that token {j} gets, counted from the first",
        average="E[|a_j|/(Σ|a| + sink logits)] over rows that are not all zero",
        of=of,
        needs=None,
        token=j,
        limit=None,
        whole=True,
    )


weight = Family(
    name="weight",
    symbol="j",
    title="share of the attention that token j gets, counted from the first",
    domain="a whole number >= 1",
    admits=lambda token: float(token).is_integer() and 1 <= token <= 2**53,
    member=_weight,
    example="1",
)


needle_signal = Quantity(
    name="needle_signal",
    symbol="signal share",
    title="needle's share of the power that a row reads out",
    average="E[a*²/Σa²] over tokens of rows that are not all zero, SNR²/(1 + SNR²) of a row",
    of=lambda row: row.needle**2 / (row.needle**2 + row.others_l2),
    needs="needle",
    limit=lambda rows: rows.product((2.0, -1.0), needle=2.0),
    integral=_share_of("needle", 2),
)


needle_largest = Quantity(
    name="needle_largest",
    symbol="P(needle is the largest)",
    title="chance that no key weighs more than the needle",
    average="share of the rows with |a*| = max|a|, of rows that are not all zero",
    of=lambda row: (row.needle >= row.weights.max(-1)).astype(row.weights.dtype),
    needs="needle",
    whole=True,
    needle_law=NeedleLaw(),
    chance=True,
)


def _odds_above(name: str, odds: float) -> Quantity:
    def of(row: RowSums) -> Any:
        return (row.needle > odds * row.others_l1).astype(row.l1.dtype)

    return Quantity(
        name=name,
        symbol=f"P(odds > {odds:g})",
        title=f"chance that the needle weighs more than {odds:g} of all others",
        average="share of the rows with |a*| > x·Σ_others|a|, of rows that are not all zero",
        of=of,
        needs="needle",
        chance=True,
        above=Exceeds("needle", odds, units=False),
    )


needle_odds_above = Family(
    name="needle_odds_above",
    symbol="x",
    title="chance that the odds of the needle are more than x",
    domain="a number > 0",
    admits=lambda odds: 0 < odds < math.inf,
    member=_odds_above,
    example="1",
)


def _snr_above(name: str, snr: float) -> Quantity:
    def of(row: RowSums) -> Any:
        return (row.needle > snr * row.others_l2**0.5).astype(row.l2.dtype)

    return Quantity(
        name=name,
        symbol=f"P(SNR > {snr:g})",
        title=f"chance that the needle's signal is {snr:g} times the noise",
        average="share of the rows with a*² > x²·Σ_others a², of rows that are not all zero",
        of=of,
        needs="needle",
        chance=True,
        above=Exceeds("needle", snr**2, power=2, units=False),
    )


needle_snr_above = Family(
    name="needle_snr_above",
    symbol="x",
    title="chance that the needle's signal-to-noise ratio is more than x",
    domain="a number > 0, at most 1e6",
    admits=lambda snr: 0 < snr <= 1e6,
    member=_snr_above,
    example="1",
)


def recall(snr: Any, values: int) -> np.ndarray:
    """Return the chance that the needle's value is read out: its entry of Σ a_j v_j is the largest.

    The needle's value is one of V unit vectors, and those of the other keys are N(0, I/V). An entry
    is noise N(0, σ²) with σ² = Σ_others a²/V, and the needle's has a* besides:

        ∫ φ(z) Φ(z + √V·SNR)^(V−1) dz.

    Where every key holds one of the V values at random, the entries have the same covariance, apart
    from a noise that all of them share, but are no longer normal: with two keys a value (n = 64,
    V = 32) recall is 0.706 for the 0.766 here, with 32 (n = 1024) 0.099 for 0.112,
    ± 0.005 and 0.003: identity, d = 16.

    Args:
        snr: a*/√(Σ_others a²) ≥ 0, any shape.
        values: V ≥ 2, whole.
    """
    return ndtr(_Z + math.sqrt(values) * np.asarray(snr)[..., None]) ** (values - 1) @ _DENSITY


def recall_slope(scaled: np.ndarray, values: int) -> np.ndarray:
    """Return the derivative of the recall by √V·SNR, [points]."""
    at = _Z + scaled[..., None]
    inner = np.exp(-0.5 * at * at) / math.sqrt(2 * math.pi) * ndtr(at) ** (values - 2)
    return (values - 1) * (inner @ _DENSITY)


@functools.lru_cache(maxsize=8)
def recall_table(values: int) -> tuple[np.ndarray, np.ndarray]:
    """Return √V·SNR from 0 up to where the value is surely read out, and the recall there."""
    # All V − 1 noise entries lie below √(2 ln V) + _REACH, and the needle's own is no lower than
    # _REACH below its mean. In parts, since points times nodes of the rule are held at once.
    scaled = np.linspace(0.0, 2 * _REACH + math.sqrt(2 * math.log(values)), _TABLE)
    chances = [recall(part / math.sqrt(values), values) for part in np.array_split(scaled, 16)]
    return scaled, np.concatenate(chances)


def _needle_recall(name: str, values: float) -> Quantity:
    count = int(values)

    def of(row: RowSums) -> Any:
        xp = row.l2.__array_namespace__()
        # No noise would be a division by 0; SNR = 10¹⁵ instead is beyond the table's end as well.
        noise = xp.maximum(row.others_l2, 1e-30 * row.needle**2)
        noise = xp.where(noise > 0, noise, 1)  # a row without any weight
        scaled, chances = (x.astype(row.l2.dtype) for x in recall_table(count))
        return xp.interp(math.sqrt(count) * row.needle / noise**0.5, scaled, chances)

    return Quantity(
        name=name,
        symbol=f"recall of {count}",
        title=f"chance that the needle's value, one of {count}, is read out",
        average="E ∫ φ(z) Φ(z + √V·SNR)^(V−1) dz, the chance over values N(0, I/V) of the others",
        of=of,
        needs="needle",
        needle_law=NeedleLaw(count),
    )


needle_recall = Family(
    name="needle_recall",
    symbol="V",
    title="chance that the needle's value, one of V, is read out",
    domain="a whole number from 2 to 1000000",
    admits=lambda values: float(values).is_integer() and 2 <= values <= _MOST_VALUES,
    member=_needle_recall,
    example="32",
)


sink_mass = Quantity(
    name="sink_mass",
    symbol="sink mass",
    title="share of the attention that goes to sinks",
    average="E[Σ_sinks|a|/(Σ|a| + sink logits)] over rows that are not all zero",
    of=lambda row: row.sink / (row.l1 + row.unit),
    units=True,
    needs="sink",
    limit=lambda rows: rows.product(sinks=1.0, total=-1.0),
    integral=_share_of("sink", 1),
)


def _sink_mass_above(name: str, share: float) -> Quantity:
    def of(row: RowSums) -> Any:
        return (row.sink > share * (row.l1 + row.unit)).astype(row.l1.dtype)

    return Quantity(
        name=name,
        symbol=f"P(sink > {share:g})",
        title=f"chance that the sinks of a row take more than {share:g}",
        average="share of the rows with Σ_sinks|a| > ε·(Σ|a| + sink logits), of rows not all zero",
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
