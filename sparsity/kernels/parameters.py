"""The parameters of the kernels: symbol, meaning, domain, and the check at the edge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sympy import Symbol

from sparsity.errors import InputError
from sparsity.kernels import queries, symbols
from sparsity.reading import as_float64, inexact


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    Args:
        name: the keyword, and the command line's option.
        meaning: what it is, in words.
        domain: the admissible set, as printed in errors.
        admits: elementwise test of the domain on a float64 array.
        symbol: the SymPy symbol, None for a choice by name.
        integer: whether values must be whole numbers.
        default: the value when not given; None makes the parameter required.
    """

    name: str
    meaning: str
    domain: str
    admits: Callable[[np.ndarray], np.ndarray]
    symbol: Symbol | None = None
    integer: bool = False
    default: float | None = None

    def check(self, value: Any) -> Any:
        """Return `value` as a float64 array inside the domain (a choice: as its name).

        Raises:
            InputError: not numeric, not finite, not whole where it must be, or outside the domain.
        """
        if self is QUERY:
            return queries.named(value).name
        array = as_float64(value, self.name, f"give a number: {self.domain}")
        holds = [
            (np.isfinite(array), f"must be finite, {self.domain}"),
            (self.admits(array), f"must be {self.domain}"),
        ]
        if self.integer:
            same = (array == np.floor(array)) & ~inexact(value)
            holds.insert(1, (same, f"must be a whole number {self.domain}"))
        for good, fix in holds:
            if not np.all(good):
                shown = np.asarray(value)[~good].flat[0] if array.ndim else value
                raise InputError(self.name, shown, fix)
        return array

    def one(self, value: Any) -> float:
        """The one number in the domain that `value` is.

        Raises:
            InputError: several, or as for `check`.
        """
        found = self.check(value)
        if np.ndim(found):
            raise InputError(self.name, value, "give one number")
        return float(found)


def _count(x: np.ndarray) -> np.ndarray:
    return (x >= 1) & (x <= 2.0**53)  # beyond, float64 has no longer every whole number


BETA = Parameter("beta", "bias β = q·μ", "any real number", np.isfinite, symbols.beta)
GAMMA = Parameter("gamma", "spread γ = σ‖q‖", "> 0", lambda x: x > 0, symbols.gamma)
DECAY = Parameter(
    "decay", "decay λ per token", "in (0, 1]", lambda x: (x > 0) & (x <= 1), symbols.decay
)
LENGTH = Parameter("length", "row length n", ">= 1, at most 2^53", _count, symbols.n, integer=True)
RATIO = Parameter(
    "ratio", "noise-to-signal ratio σ̃/μ̃ of a feature", "> 0", lambda x: x > 0, symbols.ratio
)
DIM = Parameter("dim", "dimension d", ">= 1, at most 2^53", _count, symbols.d, integer=True)
QUERY = Parameter("query", "query family", "|".join(queries.NAMES), np.isfinite)

ALL = (BETA, GAMMA, DECAY, RATIO, DIM, QUERY, LENGTH)
