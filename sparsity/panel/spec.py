"""One curve of the panel: a quantity of a kernel under a row law, and what it depends on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sparsity import kernels, quantities
from sparsity.axes.controls import CONTROLS
from sparsity.axes.row_choices import Rows
from sparsity.kernels import Kernel, Law, RowMap
from sparsity.kernels.row_map import SHIFTED
from sparsity.quantities import Quantity
from sparsity.rows.row import Row


@dataclass(frozen=True)
class Spec:
    """One curve: a quantity of a kernel, a row law and the values that it depends on.

    Args:
        kernel: the kernel or row map.
        law: the row law; that of independent scores for kernels that are no function of a score.
        values: (parameter, value) of everything it depends on, and nothing else.
        query: the query family of nonnegative features, else "".
        of: the quantity, by name.
    """

    kernel: Kernel | RowMap
    law: Rows
    values: tuple[tuple[str, float], ...]
    query: str = ""
    of: str = "n_eff"

    def __hash__(self) -> int:
        """By name: hashing a kernel's definition takes longer than drawing its curve."""
        return hash((self.kernel.name, self.rows, self.values, self.query, self.of))

    @property
    def rows(self) -> str:
        return self.law.name

    @property
    def quantity(self) -> Quantity:
        return quantities.named(self.of)

    @property
    def score(self) -> bool:
        """Whether the weight is a function of the score."""
        return self.kernel.law is Law.SCORE

    @property
    def whole(self) -> bool:
        """Whether there are random rows of n of it."""
        return self.kernel.law in (Law.SCORE, Law.ROW)

    def row(self) -> Row:
        """The row of a kernel of scores, or of a map of whole rows.

        Raises:
            InputError: a value outside the domain of the row law.
        """
        if isinstance(self.kernel, Kernel):
            return self.law.row(self.kernel, self.given())
        own: dict[str, Any] = {name: value for name, value in self.values if name != "length"}
        return Row(self.kernel, **own)

    def at(self, name: str, x: float) -> Spec:
        """The same with one value changed, if it is one of its own."""
        return replace(self, values=tuple((k, x if k == name else v) for k, v in self.values))

    def given(self) -> dict[str, Any]:
        """The values by name; a bias that does not matter is 0."""
        return ({"beta": 0.0} if self.score else {}) | dict(self.values)

    def title(self, without: str = "") -> str:
        """The curve in words: kernel, row law, values."""
        parts = [self.kernel.name]
        if self.rows != "iid":
            parts.append(self.law.title)
        for name, value in self.values:
            if name != without:
                parts.append(f"{CONTROLS[name].symbol} = {value:.6g}".replace("-", "−"))
        if self.query:
            parts.append(f"{self.query} query")
        return ", ".join(parts)


def uses(kernel: Kernel | RowMap, rows: Rows) -> set[str]:
    """The parameters that its quantities depend on."""
    if isinstance(kernel, RowMap):
        level = {"beta"} if kernel.parameters is SHIFTED else set[str]()
        return {x.name for x in kernel.parameters} - level | {"length"}
    if kernel.law is not Law.SCORE:
        return {x.name for x in kernel.parameters} - {"query"}
    names = {"beta", "gamma", "length", *rows.controls}
    if kernel.weight == kernels.exp.weight and rows.level:
        names -= {"beta"}  # a factor e^β on every token
    return names
