"""Weights that depend on the whole row of scores: what stands beside a kernel f(s)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sparsity.errors import InputError
from sparsity.kernels.base import Law
from sparsity.kernels.parameters import BETA, DIM, GAMMA, LENGTH, Parameter, one_of_each

# Of maps that a constant added to every score does not move.
SHIFTED = (replace(BETA, default=0.0), GAMMA)


@dataclass(frozen=True)
class RowMap:
    """Attention weights p_1 … p_n ≥ 0 of a row of scores, Σp ≤ 1, none a function of its own alone.

    Its rows have scores s_j ~ N(β, γ²), independent. Weights without a law over single scores have
    no limit S: a row map is asked with a length.

    Args:
        name: identifier, as used on the command line; "family:number" for a member of a family.
        title: the name a reader knows it by.
        weights: its definition: scores -> p, rows along the last axis, with the arrays' own
            operators (NumPy and JAX).
        formula: the definition in a line of text.
        source: where it is defined.
        parameters: of its scores, in the order of the command line.
        left: scores -> 1 − Σp to full precision; None where the weights add up to 1.
        member: of a family, the map of another number.
    """

    name: str
    title: str
    weights: Callable[[Any], Any]
    formula: str
    source: str
    parameters: tuple[Parameter, ...] = SHIFTED
    left: Callable[[Any], Any] | None = None
    member: Callable[[int], RowMap] | None = None
    law: ClassVar[Law] = Law.ROW

    @property
    def family(self) -> str:
        """The name without its number."""
        return self.name.partition(":")[0]

    def bind(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """One value of each parameter by name, as `Kernel.bind`.

        Raises:
            InputError: a parameter that it does not take, a missing one, a bad value, or several.
        """
        return one_of_each(self.name, self.parameters, (), given)[0]

    def bind_row(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The same, and the `length` and `dim` of whole keys if given, as `Kernel.bind_row`.

        Raises:
            InputError: as `bind`.
        """
        return one_of_each(self.name, self.parameters, (LENGTH, DIM), given)


def refused(record: RowMap) -> InputError:
    """The error of an instrument that takes weights of single scores only."""
    fix = "its weights depend on the whole row; use exact, estimate or verify with a length"
    return InputError("kernel", record.name, fix)
