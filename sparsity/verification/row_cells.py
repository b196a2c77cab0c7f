"""Cells of whole rows for the cross-check: row laws and rotary rows, theory against sampling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsity.finite import finite_rows
from sparsity.finite.rotary_laws import Coca, Rope
from sparsity.kernels import Kernel, exp, identity, relu2
from sparsity.montecarlo import Sampling, rotary_sampling
from sparsity.montecarlo.scores_sampling import sample_rows
from sparsity.results import Estimate
from sparsity.rows.steps import Alibi, Decay, LogScaled, RowLaw, Sink, Spherical, Unit, Window

__all__ = ["ROTARY_CELLS", "RotaryCell", "RowCell", "reference_cells"]


@dataclass(frozen=True)
class RowCell:
    """One cell of the cross-check: a quantity of rows of a row law, by theory and by sampling.

    Args:
        kernel: the kernel.
        law: the row law.
        length: n.
        quantity: one of `QUANTITIES`.
    """

    kernel: Kernel
    law: RowLaw
    length: int
    quantity: str

    @property
    def parameters(self) -> dict[str, Any]:
        """What identifies the cell, JSON-ready."""
        steps = (
            f"{type(step).__name__}({', '.join(f'{value:g}' for value in vars(step).values())})"
            for step in self.law.steps
        )
        law = " ".join(steps) or "i.i.d."
        return {
            "beta": self.law.beta,
            "gamma": self.law.gamma,
            "length": self.length,
            "law": law,
        }

    def theory(self) -> float:
        """Log of the quantity by the exact law (S: by the limit form)."""
        if self.quantity == "n_eff":
            value: Any = finite_rows.n_eff(self.kernel, self.law, self.length).n_eff
        elif self.quantity == "S":
            return float(finite_rows.limit(self.kernel, self.law, self.length).log_S)
        else:
            exact = getattr(finite_rows, self.quantity)
            value, _ = exact(self.kernel, self.law, self.length)
        return float(np.log(value))

    def sample(self, sampling: Sampling) -> Estimate:
        """The quantity by sampling."""
        rows = sample_rows(self.kernel, self.law, self.length, sampling, self.quantity)
        return getattr(rows, self.quantity)


def reference_cells() -> tuple[RowCell, ...]:
    """The cells of row laws for the reference grid: every step, every quantity, three kernels.

    Cells of one kernel share their length where they can: they compile once.
    """
    mixed = (Decay(0.9), Alibi(0.05), Window(4), Sink(1.0, 0.3))
    return tuple(
        RowCell(kernel, RowLaw(beta, gamma, steps), length, quantity)
        for kernel, beta, gamma, steps, length, quantity in (
            (exp, 0.0, 0.5, (), 8, "participation"),
            (exp, 0.0, 0.4, (Decay(0.8),), 8, "n_eff"),
            (identity, 2.0, 0.5, (Decay(0.7),), 6, "n_eff"),
            (exp, 0.0, 0.4, (Alibi(0.3),), 8, "n_eff"),
            (relu2, 2.0, 0.3, (Alibi(0.2),), 6, "n_eff"),
            (identity, 0.0, 1.0, (Alibi(0.2),), 6, "S"),
            (exp, 0.0, 0.5, (Window(4),), 8, "n_eff"),
            (relu2, 1.0, 0.3, (Window(4),), 6, "n_eff"),
            (exp, 0.0, 0.7, (LogScaled(),), 8, "n_eff"),
            (exp, 0.0, 0.4, (Unit(),), 8, "sink_mass"),
            (exp, 0.0, 0.4, (Unit(1.5),), 8, "participation"),
            (exp, 0.0, 0.7, (Unit(math.log(8) + 0.7**2 / 2),), 8, "sink_mass"),  # about ½
            (relu2, 1.5, 0.4, (Unit(2.0),), 6, "sink_mass"),
            (exp, 0.0, 0.7, (Sink(2.0),), 8, "sink_mass"),
            (exp, 0.0, 0.5, (Sink(1.0, 0.3),), 8, "n_eff"),
            (exp, 0.0, 0.5, (Spherical(4),), 4, "n_eff"),
            (relu2, 1.5, 0.3, (Spherical(2),), 4, "n_eff"),
            (exp, 0.0, 0.5, (Spherical(4),), 4, "S"),
            (exp, 0.5, 0.5, (*mixed, Unit(1.0)), 8, "sink_mass"),
            (relu2, 1.5, 0.4, mixed, 6, "n_eff"),
        )
    )


@dataclass(frozen=True)
class RotaryCell:
    """A cell of the cross-check: the exact n_eff of a row against whole rows from first principles.

    Args:
        kernel: the kernel.
        form: "rope", "coca" or "slack".
        length: n.
        dim: d.
        pairing: which entries make a plane.
        spread: γ of the scores (rope), or spread/center of t (coca, slack).
        seed: of the query and the mean key.
    """

    kernel: Kernel
    form: str
    length: int
    dim: int
    pairing: str
    spread: float
    seed: int = 0

    @property
    def law(self) -> Rope | Coca:
        """The row law: ‖q‖ = 1, ‖μ‖ = 1 (rope); ‖q‖² = d/2, center 1/4 (coca)."""
        rng = np.random.default_rng([self.seed, self.dim])
        q, mu = rng.standard_normal((2, self.dim))
        q /= np.linalg.norm(q)
        if self.form == "rope":
            return Rope(q, mu / np.linalg.norm(mu), self.spread, self.pairing)
        at = 3 * self.length if self.form == "slack" else None
        q *= (self.dim / 2) ** 0.5
        return Coca(q, 0.25, 0.25 * self.spread, self.pairing, slack_at=at)

    @property
    def quantity(self) -> str:
        """What is compared."""
        return "n_eff"

    @property
    def parameters(self) -> dict[str, Any]:
        """What identifies the cell, JSON-ready."""
        return {name: value for name, value in vars(self).items() if name != "kernel"}

    def theory(self) -> float:
        """Log of n_eff by the exact law."""
        return float(np.log(self.law.n_eff(self.length, self.kernel).n_eff))

    def sample(self, sampling: Sampling) -> Estimate:
        """The same by Monte Carlo."""
        return rotary_sampling.rows(self.law, self.length, sampling, self.kernel)


ROTARY_CELLS: tuple[RotaryCell, ...] = (
    RotaryCell(exp, "rope", 16, 8, "interleaved", 0.15),
    RotaryCell(relu2, "rope", 4, 4, "half", 0.07, seed=5),
    RotaryCell(exp, "coca", 16, 8, "half", 0.1),
    RotaryCell(exp, "coca", 16, 8, "half", 0.6),
    RotaryCell(identity, "coca", 16, 8, "interleaved", 0.1),
    RotaryCell(exp, "slack", 16, 8, "half", 0.35),
)
