"""What was asked at the prompt: a row, its length and a quantity; and the theory of an estimate.

The quantity S is the limit E|a|/√(E a²); with a length it is the mean of ‖a‖₁/(√n‖a‖₂) over rows,
shown as E S_n.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sparsity
from sparsity import kernels, quantities
from sparsity.errors import InputError
from sparsity.kernels import Law, RowMap
from sparsity.kernels.parameters import LENGTH
from sparsity.quantities import Quantity
from sparsity.results import Estimate
from sparsity.rows.row import Row
from sparsity.rows.scores import Scores
from sparsity.rows.steps import Decay, SinkLogit, parse


@dataclass(frozen=True)
class Asked:
    """A quantity of a row, all of it checked.

    Args:
        row: the row, with its steps.
        length: n; None for the limit of long rows.
        dim: d of whole keys, for an estimate.
        quantity: what is asked of it.
        decay: whether the first step is the λ that was given as a parameter.
    """

    row: Row
    length: int | None
    dim: int | None
    quantity: Quantity
    decay: bool = False

    @property
    def of_rows(self) -> bool:
        """Whether it is a mean over random rows of n tokens."""
        return self.length is not None and self.row.kernel.law in (Law.SCORE, Law.ROW)

    @property
    def shown(self) -> str:
        """What is printed for the quantity: its name; for the S of rows E S_n."""
        return "E S_n" if self.of_rows and self.quantity is quantities.S else self.quantity.name

    @property
    def params(self) -> dict[str, Any]:
        """The parameters by name as plain numbers."""
        found: dict[str, Any] = dict(self.row.params)
        if self.row.kernel.law is Law.POSITION:
            found["length"] = self.length
        if self.decay:
            found["decay"] = self.row.steps[0].decay  # type: ignore[attr-defined]
        return found if self.dim is None else found | {"dim": self.dim}

    @property
    def steps(self) -> list[str]:
        """The other steps, as typed."""
        return self.row.described()["steps"][self.decay :]

    def described(self) -> dict[str, Any]:
        return {"kernel": self.row.kernel.name, "params": self.params, "steps": self.steps}

    def text(self, length: bool = True) -> str:
        """The row in one line, with its length or without."""
        shown = [f"{name} = {value}" for name, value in self.params.items()]
        shown += self.steps
        if self.of_rows and length:
            shown.append(f"n = {self.length}")
        kernel = self.row.kernel
        title = f" ({kernel.title})" if kernel.title != kernel.name else ""
        return f"{kernel.name}{title} at {', '.join(shown)}"

    @property
    def definition(self) -> str:
        kernel = self.row.kernel
        under = f", steps {' '.join(self.steps)}" if self.steps else ""
        if not self.of_rows and self.quantity is quantities.S:
            weight = kernel.formula if isinstance(kernel, RowMap) else kernel.weight
            return f"E|a| / √(E a²), a = {weight}, {self.row.random}{under}"
        if isinstance(kernel, RowMap):
            rest = (
                ", what no key takes standing for the sink logits" if kernel.residual_mass else ""
            )
            return f"{self.quantity.average}{rest}, a_j = {kernel.formula}, {self.row.random}"
        average = self.quantity.average
        if not self.of_rows:
            return f"{average}, a = {kernel.weight}, {self.row.random}{under}"
        if self.quantity.units and any(isinstance(x, SinkLogit) for x in self.row.steps):
            average += " (and those of sink logits alone, with p = 0)"
        factor = "λ^(n−j) f(s_j)" if self.decay else "f(s_j)"
        weight = f"a_j = {factor}, f = {kernel.weight}, {self.row.random}"
        return f"{average}, {weight}{under}"

    def limit(self) -> Any:
        """The quantity in long rows, an `Evaluation`; of tokens that differ, from all n of them.

        Raises:
            InputError: it cannot be had at these parameters.
        """
        if self.quantity is not quantities.S:
            return sparsity.evaluate(self.row, of=self.quantity, length=self.length)
        return sparsity.evaluate(self.row, **self._place())

    def _place(self) -> dict[str, Any]:
        """The length, for a limit that depends on it."""
        kernel = self.row.kernel
        alike = not isinstance(kernel, RowMap) or kernel.identically_distributed
        needs = kernel.law is Law.POSITION or self.row.steps or not alike
        return {"length": self.length} if needs and self.length is not None else {}

    def estimate(self, **settings: Any) -> Estimate:
        """The quantity by sampling.

        Raises:
            InputError: a bad value, or settings that do not go together.
        """
        settings |= {} if self.dim is None else {"dim": self.dim}
        return sparsity.estimate(self.row, length=self.length, of=self.quantity, **settings)

    def _theory(self) -> tuple[dict[str, Any], float]:
        """The quantity by theory, in JSON's types, and its logarithm."""
        if not self.of_rows and self.quantity is quantities.S:
            found = self.limit()
            value, log_value = found.S, found.log_S
        else:
            found = sparsity.exact(self.row, length=self.length, of=self.quantity)
            value, log_value = found.value, found.log_value
        numbers = {"value": float(value), "error_bound": float(found.error_bound)}
        return numbers | {"method": found.method}, float(log_value)

    def beside(self, estimate: Estimate) -> tuple[dict[str, Any], str]:
        """What an estimate is of, and the theory of the same quantity where it can be had.

        Returns:
            In JSON's types, with z, the standard errors of the logarithm that the estimate lies
            above theory; and in a line.
        """
        answer = {"quantity": self.quantity.name, "definition": self.definition}
        try:
            theory, log_value = self._theory()
        except (InputError, KeyboardInterrupt) as error:  # the estimate is not to be lost
            why = str(error) if isinstance(error, InputError) else "interrupted"
            line = f"theory: {self.shown} cannot be had: {why}"
            return answer | {"theory": None, "z": math.nan}, line
        difference = estimate.log_value - log_value
        error = math.hypot(estimate.rel_stderr, theory["error_bound"])
        z = math.copysign(math.inf, difference) if difference else 0.0
        z = difference / error if error > 0 else z
        line = (
            f"theory: {self.shown} = {theory['value']:.8g} ({theory['method']}, relative error ≤ "
            f"{theory['error_bound']:.1e}), z = {z:+.2f}"
        )
        return answer | {"theory": theory, "z": z}, line


def ask(
    kernel: str,
    given: Mapping[str, Any],
    steps: Sequence[str] = (),
    of: str | None = None,
    *,
    limit: bool = False,
) -> Asked:
    """Check what was typed.

    Args:
        kernel: its name.
        given: its parameters, and for score kernels `length`, `dim` and `decay`, by name.
        steps: as typed.
        of: the name of a quantity; None is S.
        limit: whether its limit for long rows is asked for, which may not need a length.

    Raises:
        InputError: an unknown name, a value outside its domain or more than one, a decay without a
            length, or a quantity of rows without one.
    """
    record = kernels.named(kernel)
    made = [parse(step) for step in steps]
    for step in made:  # a sample of scores has a β and γ of its own
        given = getattr(step, "own", {}) | dict(given)
    own, extra = record.bind_row(given)
    quantity = quantities.named("S" if of is None else of)
    if "decay" in extra:
        made.insert(0, Decay(float(extra["decay"])))
    n, dim = own.pop(LENGTH.name, extra.get("length")), extra.get("dim")
    law = next((step for step in made if isinstance(step, Scores)), None)
    rest = tuple(step for step in made if step is not law)
    row = Row(record, scores=law, steps=rest, **own)
    if n is None and quantity is not quantities.S and not limit:
        fix = f"{quantity.name} is a mean over rows of n tokens; give their length"
        raise InputError("length", None, fix)
    n, dim = (None if x is None else int(x) for x in (n, dim))
    return Asked(row, n, dim, quantity, "decay" in extra)
