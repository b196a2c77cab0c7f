"""What `design` answers: the parameter, its check, the reach, and other lengths."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sparsity.errors import InputError, WrongAttribute
from sparsity.kernels import name_with_title
from sparsity.results import ESTIMATED
from sparsity.rows.row import Row
from sparsity.tables import html_table

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Reach:
    """The values of a quantity that a row of n was seen to have.

    Args:
        low: the least.
        high: the most.
        reason: where they were looked for.
    """

    low: float
    high: float
    reason: str

    def __str__(self) -> str:
        return f"from {self.low:.7g} to {self.high:.7g} {self.reason}"


class Impossible(InputError):
    """The wanted value was not seen; says what was, and where it was looked for."""

    def __init__(self, row: Row, length: float, quantity: str, wanted: float, reach: Reach) -> None:
        self.reach = reach
        where = f"{name_with_title(row.kernel)} in a row of {length:.0f} tokens"
        fix = f"impossible for {where}, where it is {reach}"
        super().__init__(quantity, f"{wanted:.10g}", fix)


@dataclass(frozen=True)
class Requirement:
    """What one length requires.

    Args:
        length: n.
        value: the parameter; None where the wanted value is out of reach.
        low: the least that was seen at this length.
        high: the most.
    """

    length: int
    value: float | None
    low: float
    high: float


@dataclass(frozen=True)
class Design:
    """The parameter that gives the wanted value, at this length and at others.

    Args:
        row: the row with that parameter.
        length: n.
        quantity: the name of what was asked for.
        wanted: its value.
        parameter: what was free, as in `free=`.
        value: what it must be.
        check: the quantity by the exact law at this value.
        error_bound: estimated bound on its relative error.
        p_nonzero: probability that a row is not all zero; the quantity is given that it is not.
        reach: what was seen at this length, and where it was looked for.
        requirements: the parameter at other lengths, for the same value of the quantity.
        also: other values of the parameter that give the same.
        looks: values of the parameter that were looked at, in the range that `reach.reason` names:
            others may solve it between two of them.
    """

    row: Row
    length: int
    quantity: str
    wanted: float
    parameter: str
    value: float
    check: float
    error_bound: float
    p_nonzero: float
    reach: Reach
    requirements: tuple[Requirement, ...]
    also: tuple[float, ...] = ()
    looks: int = 0
    error_kind: ClassVar[str] = ESTIMATED  # of the exact law

    def __repr__(self) -> str:
        """Say in one line what is needed for what was asked."""
        wanted = f"{self._of} = {self.wanted:g} of n = {self.length}"
        held = [f"{name} = {x}" for name, x in self.parameters.items() if name != self.parameter]
        needs = f"{self.parameter} = {self.value:.6g}"
        at = f" at {', '.join(held)}" if held else ""
        return f"Design({self.kernel}: {wanted} needs {needs}{at})"

    def _repr_html_(self) -> str:
        """Return a table of the parameter at this length and at others."""
        rows: list[tuple[Any, ...]] = [(self.length, self.value)]
        rows += [(one.length, self._said(one)) for one in self.requirements]
        return html_table(("n", self.parameter), rows, f"{self!r}.")

    def to_dataframe(self) -> pandas.DataFrame:
        """Return the parameter and the reach of the quantity at the other lengths."""
        import pandas

        return pandas.DataFrame([asdict(one) for one in self.requirements])

    @property
    def _of(self) -> str:
        """The quantity for people: a threshold in it is the answer, which stands beside it."""
        return re.sub(r"-\d+\.\d{5,}", lambda number: f"{float(number[0]):.5g}", self.quantity)

    @property
    def kernel(self) -> str:
        return self.row.kernel.name

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the kernel, as `eval` takes them."""
        return self.row.params

    @property
    def n_eff(self) -> float:
        """The check of a wanted n_eff."""
        if self.quantity != "n_eff":
            raise WrongAttribute(f"this design is of {self.quantity}; see check")
        return self.check

    def summary(self) -> dict[str, Any]:
        """Return everything by name, in JSON's types."""
        described, fields = self.row.described(), vars(self)
        asked = ("length", "quantity", "wanted", "parameter", "value")
        return {
            "kernel": self.kernel,
            **{name: fields[name] for name in asked},
            "also": list(self.also),
            "looks": self.looks,
            "parameters": described["params"],
            "steps": described["steps"],
            self.quantity: self.check,
            **{name: fields[name] for name in ("error_bound", "p_nonzero")},
            "error_kind": self.error_kind,
            "reach": asdict(self.reach),
            "requirements": [asdict(one) for one in self.requirements],
        }

    def text(self) -> str:
        """Say for people the answer and its check, then the requirement against length."""
        name = self._of
        given = [f"{key} = {value!r}" for key, value in self.parameters.items()]
        given += map(repr, self.row.steps)
        of = "of" if name == "n_eff" else "in rows of"
        lines = [
            f"{self.kernel}: {name} = {self.wanted:.10g} {of} n = {self.length} tokens needs "
            f"{self.parameter} = {self.value:.12g}",
            f"check    {name} = {self.check:.12g} ± {self.error_bound:.0e} at {', '.join(given)}",
            f"reach    {name} {self.reach}",
        ]
        if self.also:
            others = ", ".join(f"{value:.12g}" for value in self.also)
            lines.append(f"also     {self.parameter} = {others}")
        if self.p_nonzero < 0.9995:
            lines.append(f"nonzero  only {self.p_nonzero:.4g} of the rows; {name} is of those")
        if self.requirements:
            lines += ["", f"{'n':>9}  {self.parameter}"]
        lines += [f"{one.length:>9}  {self._said(one)}" for one in self.requirements]
        return "\n".join(lines)

    def _said(self, one: Requirement) -> str:
        """Say what one length requires."""
        if one.value is not None:
            return f"{one.value:.8g}"
        if one.high <= self.wanted:
            return f"impossible: {self._of} ≤ {one.high:.6g}"
        return f"impossible: {self._of} ≥ {one.low:.6g}"
