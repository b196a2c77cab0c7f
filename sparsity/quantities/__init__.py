"""What can be asked of a row: each quantity a short file, and the explicit tuple of all."""

from __future__ import annotations

import difflib

from sparsity.errors import InputError
from sparsity.quantities.base import Integral, LogMoment, Quantity, RowSums
from sparsity.quantities.entropy import entropy
from sparsity.quantities.max_weight import max_weight
from sparsity.quantities.n_eff import n_eff
from sparsity.quantities.participation import participation
from sparsity.quantities.sink_mass import sink_mass
from sparsity.quantities.sparsity import S
from sparsity.quantities.support import support

__all__ = [
    "ALL",
    "Integral",
    "LogMoment",
    "Quantity",
    "RowSums",
    "S",
    "entropy",
    "max_weight",
    "n_eff",
    "named",
    "participation",
    "sink_mass",
    "support",
]

ALL: tuple[Quantity, ...] = (S, n_eff, participation, entropy, max_weight, sink_mass, support)


def named(of: str | Quantity) -> Quantity:
    """The quantity of that name; a `Quantity` is returned as it is.

    Raises:
        InputError: no such quantity.
    """
    if isinstance(of, Quantity):
        return of
    names = [quantity.name for quantity in ALL]
    if of in names:
        return ALL[names.index(of)]
    near = difflib.get_close_matches(str(of), names, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise InputError("of", of, f"{hint}the quantities are {', '.join(names)}")
