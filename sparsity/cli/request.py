"""A request typed at the prompt: a row, its length and a quantity; and the theory of an estimate.

The quantity S is the limit E|a|/√(E a²); with a length it is the mean of ‖a‖₁/(√n‖a‖₂) over rows,
shown as E S_n.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sparsity
from sparsity import kernels, quantities
from sparsity.cli.common import PARAMETERS, fields_of, without_none
from sparsity.errors import InputError
from sparsity.kernels import Law, RowMap
from sparsity.kernels.parameters import LENGTH
from sparsity.kernels.typesetting import typeset_weight
from sparsity.quantities import Quantity
from sparsity.results import Comparison, Estimate
from sparsity.rows import score_laws
from sparsity.rows.row import Row
from sparsity.rows.steps import Decay, SinkLogit, parse


@dataclass(frozen=True)
class Request:
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
    def of_limit_S(self) -> bool:
        """Whether it is S of long rows."""
        return not self.of_rows and self.quantity is quantities.S

    @property
    def shown(self) -> str:
        """What is printed for the quantity: its name; for the S of rows E S_n."""
        return "E S_n" if self.of_rows and self.quantity is quantities.S else self.quantity.name

    @property
    def params(self) -> dict[str, Any]:
        """The parameters by name as plain numbers."""
        numbers: dict[str, Any] = dict(self.row.params)
        # To weights by position alone the length is a parameter like λ, and is printed as one. A
        # decay of scores was typed as a parameter, too, though a `Row` has it as a step.
        if self.row.kernel.law is Law.POSITION:
            numbers["length"] = self.length
        if self.decay:
            numbers["decay"] = self.row.steps[0].decay  # type: ignore[attr-defined]
        return numbers if self.dim is None else numbers | {"dim": self.dim}

    @property
    def steps(self) -> list[str]:
        """The other steps, as typed."""
        return self.row.described()["steps"][self.decay :]

    def described(self) -> dict[str, Any]:
        """Return the keys of JSON that say which row it is."""
        return {"kernel": self.row.kernel.name, "params": self.params, "steps": self.steps}

    def text(self, length: bool = True) -> str:
        """Return the row in one line, with its length or without."""
        shown = [f"{name} = {value}" for name, value in self.params.items()]
        shown += self.steps
        if self.of_rows and length:
            shown.append(f"n = {self.length}")
        return f"{kernels.name_with_title(self.row.kernel)} at {', '.join(shown)}"

    @property
    def definition(self) -> str:
        """The quantity of this row as a formula, with the law of its scores and its steps."""
        # Printed beside each number: "n_eff" alone would not say whether it is the mean of 1/Σp²
        # or the inverse of a mean, nor what a_j is under these steps.
        kernel, average = self.row.kernel, self.quantity.average
        under = f", steps {' '.join(self.steps)}" if self.steps else ""
        if self.of_limit_S:
            return f"E|a| / √(E a²), a = {typeset_weight(kernel)}, {self.row.random}{under}"
        if isinstance(kernel, RowMap):
            if kernel.residual_mass:
                average += ", what no key takes standing for the sink logits"
            return f"{average}, a_j = {kernel.formula}, {self.row.random}"
        if not self.of_rows:
            return f"{average}, a = {typeset_weight(kernel)}, {self.row.random}{under}"
        if self.quantity.units and any(isinstance(x, SinkLogit) for x in self.row.steps):
            average += " (and those of sink logits alone, with p = 0)"
        factor = "λ^(n−j) f(s_j)" if self.decay else "f(s_j)"
        return f"{average}, a_j = {factor}, f = {typeset_weight(kernel)}, {self.row.random}{under}"

    def limit(self) -> sparsity.Evaluation:
        """Return the quantity in long rows; of tokens that differ, that of all n of them.

        Raises:
            InputError: it cannot be had at these parameters.
        """
        return sparsity.evaluate(self.row, of=self.quantity, length=self.length)

    def estimate(self, **settings: Any) -> Estimate:
        """Sample the quantity.

        Raises:
            InputError: a bad value, or settings that do not go together.
        """
        settings |= {} if self.dim is None else {"dim": self.dim}
        return sparsity.estimate(self.row, length=self.length, of=self.quantity, **settings)

    def theory_beside(self, estimate: Estimate) -> tuple[dict[str, Any], str]:
        """Return the theory of the quantity that was estimated, where there is one.

        Returns:
            The quantity, its definition and its theory in JSON's types, with z, the standard errors
            of the logarithm that the estimate lies above theory; then the same as a line.
        """
        answer = {"quantity": self.quantity.name, "definition": self.definition}
        try:
            if self.of_limit_S:
                predicted = self.limit()
            else:
                assert self.length is not None  # or it would be of long rows
                predicted = sparsity.exact(self.row, length=self.length, of=self.quantity)
        # The estimate may have taken minutes: a law that is unknown, or Ctrl-C while it is
        # computed, must not lose it.
        except (InputError, KeyboardInterrupt) as error:
            why = str(error) if isinstance(error, InputError) else "interrupted"
            line = f"theory: {self.shown} cannot be had: {why}"
            return answer | {"theory": None, "z": math.nan}, line
        z = Comparison(estimate, predicted).z
        line = (
            f"theory: {self.shown} = {float(predicted):.8g} ({predicted.method}, "
            f"{predicted.error_in_words}), z = {z:+.2f}"
        )
        theory = {"value": float(predicted), "error_bound": float(predicted.error_bound)}
        theory |= fields_of(predicted, "method", "error_kind")
        return answer | {"theory": theory, "z": z}, line


def read_request(
    kernel: str,
    given: Mapping[str, Any],
    steps: Sequence[str] = (),
    of: str | None = None,
    *,
    limit: bool = False,
    keys: bool = False,
) -> Request:
    """Check what was typed.

    Args:
        kernel: its name.
        given: its parameters, and for score kernels `length`, `dim` and `decay`, by name.
        steps: as typed.
        of: the name of a quantity; None is n_eff of an estimate of rows, else S.
        limit: whether its limit for long rows is asked for, which may not need a length.
        keys: whether whole keys may be drawn, which have a dimension.

    Raises:
        InputError: an unknown name, a value outside its domain or more than one, a decay without a
            length, a quantity of rows without one, or a dimension where no keys are drawn.
    """
    record = kernels.named(kernel)
    made = [parse(step) for step in steps]
    parameters = score_laws.with_defaults(dict(given), tuple(made))
    parameters, extra = record.bind_row(parameters)
    if "decay" in extra:
        made.insert(0, Decay(float(extra["decay"])))
    n, dim = parameters.pop(LENGTH.name, extra.get("length")), extra.get("dim")
    # `keys` tells `estimate`, which asks for rows of n where a length is given, from `eval`.
    of_rows = keys and n is not None and record.law is not Law.POSITION
    quantity = quantities.default(of_rows) if of is None else quantities.named(of)
    # A `Row` takes the law of the scores apart from its steps: at the prompt --scores came first.
    law = next((step for step in made if isinstance(step, score_laws.Scores)), None)
    rest = tuple(step for step in made if step is not law)
    row = Row(record, scores=law, steps=rest, **parameters)
    if n is None and quantity is not quantities.S and not limit:
        fix = f"{quantity.name} is a mean over rows of n tokens; give their length"
        raise InputError("length", None, fix)
    if dim is not None and not keys:
        fix = f"{record.name} does not take it: S is the same in every dimension; leave it out"
        raise InputError("dim", given["dim"], fix)
    n, dim = (None if x is None else int(x) for x in (n, dim))
    return Request(row, n, dim, quantity, "decay" in extra)


def refuse_grid(verb: str, kernel: str, options: dict[str, Any]) -> None:
    """Refuse a list or range of values where a command takes one; `exact` takes lists of lengths.

    Args:
        verb: the command.
        kernel: its kernel, as typed.
        options: all options by name, the parameters of kernels among them.

    Raises:
        InputError: there is one.
    """
    for name, text in without_none({name: options[name] for name in PARAMETERS}).items():
        listed = "," in text and not (verb == "exact" and name == "length")
        if ":" in text or listed:
            line = f"sparsity sweep {shlex.quote(kernel)} --{name.replace('_', '-')} {text} …"
            raise InputError(name, text, f"{verb} takes one value; for a grid type: {line}")
