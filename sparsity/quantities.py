"""What is asked of a kernel at given parameters: S of long rows, and E S_n and n_eff of rows of n.

One name means one thing: S is the limit E|a|/√(E a²), E S_n the mean of ‖a‖₁/(√n‖a‖₂) over rows.
Score kernels take a length, and with it a decay: rows a_j = λ^(n−j) f(s_j), those of retention.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import sparsity
from sparsity import kernels
from sparsity.errors import InputError
from sparsity.finite import finite_length, finite_rows
from sparsity.kernels import Kernel, Law
from sparsity.kernels.parameters import DIM, LENGTH
from sparsity.results import Estimate, Evaluation
from sparsity.rows.steps import Decay, RowLaw

__all__ = ["Beside", "Question", "Rows", "Theory", "ask"]


@dataclass(frozen=True)
class Theory:
    """A quantity by theory.

    Args:
        value: the quantity; may underflow to 0 where its logarithm does not.
        log_value: its logarithm.
        error_bound: bound on the error of the logarithm, hence on the relative error of the value.
        method: the route that ran.
    """

    value: float
    log_value: float
    error_bound: float
    method: str


@dataclass(frozen=True)
class Rows:
    """Exact laws of rows of n weights that are not all zero.

    Args:
        n: tokens.
        n_eff: E[‖a‖₁²/‖a‖₂²].
        n_eff_error_bound: bound on its relative error.
        S_rms: √(n_eff/n).
        S_n: E[‖a‖₁/(√n‖a‖₂)].
        S_n_error_bound: bound on its relative error.
    """

    n: int
    n_eff: float
    n_eff_error_bound: float
    S_rms: float
    S_n: float
    S_n_error_bound: float


@dataclass(frozen=True)
class Question:
    """A kernel at given parameters, which have been checked.

    Args:
        kernel: the kernel.
        own: the kernel's own parameters, scalars by name.
        extra: of score kernels, the `length`, `dim` and `decay` that were given.
    """

    kernel: Kernel
    own: dict[str, Any]
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def length(self) -> int | None:
        """The n of the rows, None for the limit of long rows."""
        n = self.own.get("length", self.extra.get("length"))
        return None if n is None else int(n)

    @property
    def params(self) -> dict[str, Any]:
        """The parameters by name as plain numbers: the kernel's own, then the decay and dim."""
        whole = {p.name for p in (LENGTH, DIM)}
        given = self.own | {k: self.extra[k] for k in ("decay", "dim") if k in self.extra}
        return {
            name: value if isinstance(value, str) else int(value) if name in whole else float(value)
            for name, value in given.items()
        }

    def text(self) -> str:
        """The kernel and its parameters in one line."""
        shown = [f"{name} = {value}" for name, value in self.params.items()]
        if "length" in self.extra:
            shown.append(f"n = {self.length}")
        return f"{self.kernel.name} ({self.kernel.title}) at {', '.join(shown)}"

    @property
    def quantity(self) -> str:
        """What an estimate of it is an estimate of."""
        return "E S_n" if "length" in self.extra else "S"

    @property
    def definition(self) -> str:
        """The quantity in one line."""
        weight, law = str(self.kernel.weight), self.kernel.law
        if "length" not in self.extra:
            return f"E|a| / √(E a²), a = {weight}, {law.value}"
        factor = "λ^(n−j) f(s_j)" if "decay" in self.extra else "f(s_j)"
        return (
            "E[‖a‖₁ / (√n ‖a‖₂)] over rows a_1 … a_n that are not all zero, "
            f"a_j = {factor}, f = {weight}, {law.value}"
        )

    def _law(self) -> RowLaw:
        decay = float(self.extra.get("decay", 1.0))
        return RowLaw(float(self.own["beta"]), float(self.own["gamma"]), (Decay(decay),))

    def limit(self) -> Evaluation:
        """S of long rows; with a decay its limit form, from the moments of all n tokens together.

        Raises:
            InputError: S cannot be had at these parameters.
        """
        if "decay" in self.extra:
            return finite_rows.limit(self.kernel, self._law(), self.length)
        return sparsity.evaluate(self.kernel, **self.own)

    def _sparsity(self) -> tuple[Any, Any]:
        if "decay" in self.extra:
            return finite_rows.row_sparsity(self.kernel, self._law(), self.length)
        return finite_length.row_sparsity(self.kernel, self.length, **self.own)

    def rows(self) -> Rows | None:
        """The exact laws of its rows, None where no length was given.

        Raises:
            InputError: they cannot be had at these parameters.
        """
        n = self.length
        if n is None:
            return None
        if self.kernel.law is Law.POSITION:  # one row, and nothing random in it
            found = self.limit()
            S, error = float(found.S), float(found.error_bound)
            return Rows(n, math.exp(2 * float(found.log_S)) * n, 2 * error, S, S, error)
        if "decay" in self.extra:
            law = finite_rows.n_eff(self.kernel, self._law(), n)
        else:
            law = finite_length.n_eff(self.kernel, n, **self.own)
        S_n, error = map(float, self._sparsity())
        return Rows(
            n, float(law.n_eff), float(law.error_bound), float(law.S_rms), S_n, error
        )  # fmt: skip

    def theory(self) -> Theory:
        """The quantity by theory.

        Raises:
            InputError: it cannot be had at these parameters.
        """
        if "length" in self.extra:
            value, error = map(float, self._sparsity())
            return Theory(value, math.log(value), error, "exact law of rows")
        found = self.limit()
        return Theory(float(found.S), float(found.log_S), float(found.error_bound), found.method)

    def beside(self, estimate: Estimate) -> Beside:
        """An estimate of the quantity beside its theory, where there is one."""
        try:
            theory = self.theory()
        except InputError as error:
            return Beside(self, None, math.nan, str(error))
        except KeyboardInterrupt:  # the estimate is there, and is not to be lost
            return Beside(self, None, math.nan, "interrupted")
        difference = estimate.log_S - theory.log_value
        error = math.hypot(estimate.rel_stderr, theory.error_bound)
        if difference == 0:
            return Beside(self, theory, 0.0)
        return Beside(self, theory, difference / error if error > 0 else math.inf * difference)


@dataclass(frozen=True)
class Beside:
    """What an estimate is of, and the theory of the same quantity.

    Args:
        question: what was asked.
        theory: None where it cannot be had.
        z: standard errors, of log S, that the estimate lies above it; NaN where it cannot be had.
        why: why there is no theory.
    """

    question: Question
    theory: Theory | None
    z: float
    why: str = ""

    def summary(self) -> dict[str, Any]:
        """In JSON's types."""
        value = None
        if self.theory is not None:
            value = asdict(self.theory)
            del value["log_value"]
        return {
            "quantity": self.question.quantity,
            "definition": self.question.definition,
            "theory": value,
            "z": self.z,
        }

    def text(self) -> str:
        """In a line."""
        name, theory = self.question.quantity, self.theory
        if theory is None:
            return f"theory: {name} cannot be had: {self.why}"
        return (
            f"theory: {name} = {theory.value:.8g} ({theory.method}, relative error ≤ "
            f"{theory.error_bound:.1e}), z = {self.z:+.2f}"
        )


def ask(kernel: str | Kernel, given: Mapping[str, Any]) -> Question:
    """Check a kernel's parameters, and for score kernels `length`, `dim` and `decay` besides.

    Raises:
        InputError: an unknown kernel or parameter, a value outside its domain or more than one, or
            a decay without a length.
    """
    kernel = kernels.named(kernel)
    return Question(kernel, *kernel.bind_row(given))
