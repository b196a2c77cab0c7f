"""What can be asked of a row: each quantity a record, and the explicit tuples of all."""

from __future__ import annotations

import functools

from sparsity.calls import did_you_mean
from sparsity.errors import InputError
from sparsity.parsing import parse_number
from sparsity.quantities.base import Family, Quantity
from sparsity.quantities.base import RowSums as RowSums
from sparsity.quantities.largest import (
    below,
    gini,
    keys_for_mass,
    mass_below,
    max_weight,
    recall,
    support,
    tiles_below,
    tiles_mass_below,
    top_k_mass,
)
from sparsity.quantities.laws import BelowLaw as BelowLaw
from sparsity.quantities.laws import Integral as Integral
from sparsity.quantities.laws import KeysLaw as KeysLaw
from sparsity.quantities.laws import RankLaw as RankLaw
from sparsity.quantities.marked import (
    needle_largest,
    needle_mass,
    needle_odds_above,
    needle_recall,
    needle_signal,
    needle_snr_above,
    sink_mass,
    sink_mass_above,
    weight,
)
from sparsity.quantities.pairs import overlap, top_k_overlap
from sparsity.quantities.powers import POWERS_OF_S_AND_N as POWERS_OF_S_AND_N
from sparsity.quantities.powers import (
    S,
    abs_sum,
    entropy,
    hoyer,
    kl_uniform,
    n_eff,
    participation,
    power_sum,
    square_sum,
    varentropy,
)

ALL: tuple[Quantity, ...] = (
    *(S, n_eff, participation, entropy, kl_uniform, varentropy),
    *(max_weight, gini, hoyer, sink_mass, support),
    *(needle_mass, needle_signal, needle_largest),
)
FAMILIES: tuple[Family, ...] = (
    *(top_k_mass, keys_for_mass, power_sum, sink_mass_above),
    *(needle_odds_above, needle_snr_above, needle_recall, weight),
    *(overlap, top_k_overlap),
    *(below, mass_below, tiles_below, tiles_mass_below),
)
# Of weights whose |a| do not add up to 1, and of maps that leave keys out.
OF_MAPS: tuple[Quantity, ...] = (square_sum, abs_sum, recall)


def default(random_rows: bool) -> Quantity:
    """Return what is meant where no quantity is named: n_eff of random rows of n tokens, else S."""
    return n_eff if random_rows else S


def named(of: str | Quantity) -> Quantity:
    """Return the quantity of that name; a `Quantity` is returned as it is.

    Args:
        of: "n_eff" or another of `ALL` or `OF_MAPS`, or a member of a family: "top_k_mass:8".

    Raises:
        InputError: no such quantity, or a number outside the domain of its family.
    """
    if isinstance(of, Quantity):
        return of
    if not isinstance(of, str):
        raise InputError("of", of, "give the name of one quantity, or a `Quantity`")
    if of.lower() == "ess":  # Kish's effective sample size, as importance sampling calls it
        return n_eff
    names = [quantity.name for quantity in (*ALL, *OF_MAPS)]
    if of in names:
        return (*ALL, *OF_MAPS)[names.index(of)]
    name, colon, number = of.partition(":")
    if name in [family.name for family in FAMILIES]:
        return _member(name, number if colon else None)
    families = [f"{family.name}:{family.symbol}" for family in FAMILIES]
    every = [*names, *families]
    if of.partition(",")[0] in names:
        raise InputError("of", of, "give one quantity; sweep takes several")
    hint = did_you_mean(of, every).rstrip()
    raise InputError("of", of, hint or f"the quantities are {', '.join(every)}")


@functools.lru_cache(maxsize=64)
def _of(family: Family, *numbers: float) -> Quantity:
    """Return a member, the same record for the same numbers: it is looked up by identity."""
    return family.named(*numbers)


def _member(name: str, text: str | None) -> Quantity:
    """Return the member of a family that the numbers after the colon name."""
    family = next(known for known in FAMILIES if known.name == name)
    try:
        numbers = [parse_number(part, "of") for part in (text or "").split(",")]
    except InputError:
        numbers = []
    if len(numbers) != family.count or not family.admits(*numbers):
        said = name if text is None else f"{name}:{text}"
        fix = f"{family.symbol} must be {family.domain}, such as {name}:{family.example}"
        raise InputError("of", said, fix)
    return _of(family, *numbers)
