"""What `design` answers: the parameter, its check, the reach, and other lengths."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sparsity.errors import InputError, WrongAttribute
from sparsity.kernels import name_with_title
from sparsity.rows.row import Row
from sparsity.tables import html_table

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Reach:
    """The values of a quantity that a row of n can have.

    Args:
        low: the least.
        high: the most.
        low_attained: whether `low` itself can be had; else it is only approached.
        high_attained: the same of `high`.
        reason: what sets the two, or where they were looked for.
    """

    low: float
    high: float
    low_attained: bool
    high_attained: bool
    reason: str

    def __contains__(self, value: float) -> bool:
        above = value >= self.low if self.low_attained else value > self.low
        return above and (value <= self.high if self.high_attained else value < self.high)

    def __str__(self) -> str:
        left, right = "[" if self.low_attained else "(", "]" if self.high_attained else ")"
        return f"{left}{self.low:.7g}, {self.high:.7g}{right}"


class Impossible(InputError):
    """The wanted value is out of the row's reach; says what the reach is and what sets it."""

    def __init__(self, row: Row, length: float, quantity: str, wanted: float, reach: Reach) -> None:
        self.kernel, self.length, self.reach = row.kernel, length, reach
        fix = (
            f"impossible for {name_with_title(row.kernel)} in a row of {length:.0f} tokens, "
            f"which can attend to {reach} of them: {reach.reason}"
        )
        if row.steps or quantity != "n_eff":
            fix = f"impossible for {row} of {length:.0f} tokens, within {reach}: {reach.reason}"
        super().__init__(quantity, f"{wanted:.10g}", fix)


@dataclass(frozen=True)
class Requirement:
    """What one length requires.

    Args:
        length: n.
        value: the parameter; None where the wanted value is out of reach.
        low: the least that the row can have at this length.
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
        parameter: what was free, as in `free=`; "scale" without such a step is s in γ = γ₀·s·ln n.
        value: what it must be.
        check: the quantity by the exact law at this value.
        error_bound: bound on its relative error.
        p_nonzero: probability that a row is not all zero; the quantity is given that it is not.
        reach: all that the row can have at this length.
        requirements: the parameter at other lengths, for the same value of the quantity.
        also: other values of the parameter that give the same.
        looks: values of the parameter that were looked at, in the range that `reach.reason` names;
            0 where the quantity is known to rise or fall in it.
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

    def __repr__(self) -> str:
        """Say in one line what is needed for what was asked."""
        wanted = f"{self.quantity} = {self.wanted:g} of n = {self.length}"
        free = "gamma" if self.parameter == "scale" else self.parameter
        held = [f"{name} = {x}" for name, x in self.parameters.items() if name != free]
        needs = f"{self.parameter} = {self.value:.6g}"
        at = f" at {', '.join(held)}" if held else ""
        return f"Design({self.kernel}: {wanted} needs {needs}{at})"

    def _repr_html_(self) -> str:
        """Return a table of the parameter at this length and at others."""
        rows = [
            (one.length, "out of reach" if one.value is None else one.value, one.low, one.high)
            for one in (
                Requirement(self.length, self.value, self.reach.low, self.reach.high),
                *self.requirements,
            )
        ]
        head = ("n", self.parameter, f"least {self.quantity}", f"most {self.quantity}")
        return html_table(head, rows, f"{self!r}.")

    def to_dataframe(self) -> pandas.DataFrame:
        """Return the parameter and the reach of the quantity at the other lengths."""
        import pandas

        return pandas.DataFrame([asdict(one) for one in self.requirements])

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
            "reach": asdict(self.reach),
            "requirements": [asdict(one) for one in self.requirements],
        }

    def text(self) -> str:
        """Say for people the answer and its check, then the requirement against length."""
        name = self.quantity
        given = [f"{key} = {value!r}" for key, value in self.parameters.items()]
        given += map(repr, self.row.steps)
        of = "of" if name == "n_eff" else "in rows of"
        lines = [
            f"{self.kernel}: {name} = {self.wanted:.10g} {of} n = {self.length} tokens needs "
            f"{self.parameter} = {self.value:.12g}",
            f"check    {name} = {self.check:.12g} ± {self.error_bound:.0e} at {', '.join(given)}",
            f"reach    {self.reach}: {self.reach.reason}",
        ]
        if self.parameter == "scale" and not any(hasattr(x, "scale") for x in self.row.steps):
            lines.insert(1, "scale    is that of a factor scale·ln n on all scores")
        if self.also:
            others = ", ".join(f"{value:.12g}" for value in self.also)
            lines.append(f"also     {self.parameter} = {others}")
        if self.looks:
            more = f"more solutions may lie where {name} turns between two of them"
            lines.append(f"tried    {self.looks} values; {more}")
        if self.p_nonzero < 0.9995:
            lines.append(f"nonzero  only {self.p_nonzero:.4g} of the rows; {name} is of those")
        if self.requirements:
            lines += ["", f"{'n':>9}  {self.parameter}"]
        for row in self.requirements:
            short = f"impossible: {name} ≥ {row.low:.6g}"
            if row.high <= self.wanted:
                short = f"impossible: {name} ≤ {row.high:.6g}"
            lines.append(f"{row.length:>9}  {short if row.value is None else f'{row.value:.8g}'}")
        return "\n".join(lines)
