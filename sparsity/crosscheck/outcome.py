"""The z-test of an estimate against theory, and what a run of the cross-check found."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from sparsity import rounding
from sparsity.errors import InputError
from sparsity.results import Estimate
from sparsity.tables import data_frame, html_table

if TYPE_CHECKING:
    import pandas
import math

import numpy as np
from scipy.special import stdtrit

from sparsity.results import z_score
from sparsity.sampling import Sampling

_POWER = 0.999  # the probability that a detectable error is seen


def _detectable_stderrs(dof: float, alarm: float) -> float:
    """Return how many standard errors an error must have to be seen with probability _POWER.

    Args:
        dof: degrees of freedom of the standard error; ∞ where it is known.
        alarm: false-alarm probability.
    """
    # The estimate of an error of d standard errors is about d with a spread of 1: to exceed the
    # critical value with that power, d has to be beyond it by the quantile of the power.
    return float(stdtrit(dof, _POWER) - stdtrit(dof, alarm / 2))  # the second is negative


@dataclass(frozen=True)
class Detecting(Sampling):
    """How an estimate is sampled until an error of a given size would be seen.

    Args:
        detectable: the relative error, in (0, 1).
        alarm: false-alarm probability.
    """

    detectable: float = 1e-3
    alarm: float = 1e-3

    def aim(self, dof: int) -> float:
        """Do `Sampling.aim`: an error bar that is known from few batches has to be smaller."""
        return self.detectable / _detectable_stderrs(dof, self.alarm)

    def foresee(self, share: float) -> None:
        """Refuse a run that would end at its budget without seeing the error."""
        if share > 1:
            draws, seen = share * self.max_samples, self.detectable * math.sqrt(share)
            fix = (
                f"takes {draws:.2g} draws, of at most {self.max_samples:.2g}; "
                f"give {1.1 * seen:.2g} or more, or shorter rows"
            )
            raise InputError("detectable", self.detectable, fix)


def detecting(
    detectable: float, alarm: float, seed: int, dtype: Any, max_samples: float = math.inf
) -> Detecting:
    """Return settings under which a relative error of that size is seen; args as in `Detecting`."""
    # `rel_error` is for a standard error that is known; `aim` asks for less from few batches.
    most = detectable / _detectable_stderrs(math.inf, alarm)
    budget = min(max_samples, Sampling.max_samples)
    return Detecting(most, budget, seed, dtype, detectable=detectable, alarm=alarm)


def compare(theory: float, estimate: Estimate, alarm: float) -> tuple[float, float, float]:
    """Compare in the log domain, two-sided, by Student's t.

    Args:
        theory: log of the quantity.
        estimate: the same by sampling.
        alarm: false-alarm probability.

    Returns:
        z, the difference in standard errors; the |z| from which the two disagree; and the relative
        error that would have been seen with probability 0.999.
    """
    z = z_score(estimate.log_value - theory, estimate.rel_stderr)
    seen = _detectable_stderrs(estimate.dof, alarm) * estimate.rel_stderr
    return z, -float(stdtrit(estimate.dof, alarm / 2)), seen


def compare_mean(draws: np.ndarray, mean: float, alarm: float) -> tuple[float, float]:
    """Compare the mean of independent draws with theory, two-sided, by Student's t.

    Args:
        draws: one number each.
        mean: by theory.
        alarm: false-alarm probability.

    Returns:
        z, and the |z| beyond which the two disagree.
    """
    error = draws.std(ddof=1) / math.sqrt(draws.size)
    critical = -float(stdtrit(draws.size - 1, alarm / 2))
    return z_score(float(draws.mean() - mean), float(error)), critical


@dataclass(frozen=True)
class Cell:
    """One statistical comparison.

    Args:
        kernel: the kernel's name.
        quantity: the name of one of `quantities.ALL`.
        parameters: values by name.
        route: the sampler.
        theory: log of the quantity by theory.
        estimate: the same by sampling.
        z: (log estimate − log theory) / standard error.
        critical: the |z| beyond which the cell disagrees.
        detectable: the relative error it would detect with probability 0.999.
        verdict: "agree", "disagree" or "not enough evidence".
        instruments: the theory, and what was sampled.
    """

    kernel: str
    quantity: str
    parameters: dict[str, Any]
    route: str
    theory: float
    estimate: Estimate
    z: float
    critical: float
    detectable: float
    verdict: str
    instruments: tuple[str, str]


@dataclass(frozen=True)
class ExactCell:
    """Two theories held against each other: they must agree within their bounds.

    Args:
        kernel: the kernel's name.
        quantity: its name.
        parameters: values by name.
        instruments: the two theories.
        values: log of the quantity by each.
        bound: on their difference.
        verdict: "agree" or "disagree".
    """

    kernel: str
    quantity: str
    parameters: dict[str, Any]
    instruments: tuple[str, str]
    values: tuple[float, float]
    bound: float
    verdict: str


def _rounded_cell(cell: Cell) -> Cell:
    """Return a comparison with the digits that are the same on every processor."""
    estimate, significant = cell.estimate, rounding.significant
    # A logarithm next to 0 has no digits of its own: it is off by the rounding of 1.
    error = max(estimate.rel_stderr, 100 * rounding.NOTHING)

    def ends(interval: tuple[float, float]) -> tuple[float, float]:
        low, high = (rounding.beside_error(end, estimate.stderr) for end in interval)
        return low, high

    rounded = replace(
        estimate,
        value=rounding.beside_error(estimate.value, estimate.stderr),
        log_value=rounding.beside_error(estimate.log_value, error),
        rel_stderr=significant(estimate.rel_stderr, 2),
        stderr=significant(estimate.stderr, 2),
        ci95=ends(estimate.ci95),
        anytime95=ends(estimate.anytime95),
        ess=significant(estimate.ess, 4),
        tail_index=round(estimate.tail_index, 2) + 0.0,
    )
    # Of draws that do not scatter, the difference is rounding alone.
    nothing = abs(cell.z) * estimate.rel_stderr < 100 * rounding.NOTHING
    return replace(
        cell,
        parameters={
            name: significant(value) if isinstance(value, float) else value
            for name, value in cell.parameters.items()
        },
        theory=significant(cell.theory),
        estimate=rounded,
        z=0.0 if nothing else round(cell.z, 2) + 0.0,
        critical=significant(cell.critical),
        detectable=significant(cell.detectable, 2),
    )


@dataclass(frozen=True, repr=False)
class CrossCheck:
    """The outcome of a run.

    Args:
        agree: whether every cell agrees; a cell without enough evidence does not count as one.
        cells: the statistical comparisons.
        exact: theories against each other.
        false_alarm_rate: probability that a run of true theory disagrees anywhere, at most.
        smallest_detectable: the relative error that every cell would detect (power 0.999).
        seed: the seed.
        left_out: comparisons that do not apply to the row, each with the reason.
    """

    agree: bool
    cells: tuple[Cell, ...]
    exact: tuple[ExactCell, ...]
    false_alarm_rate: float
    smallest_detectable: float
    seed: int
    left_out: tuple[str, ...] = ()

    @property
    def disagreements(self) -> tuple[Cell | ExactCell, ...]:
        """Every cell that does not agree."""
        return tuple(c for c in (*self.cells, *self.exact) if c.verdict != "agree")

    def rounded(self) -> CrossCheck:
        """Return the same with as many digits of each number as are the same on every processor."""
        return replace(
            self,
            cells=tuple(_rounded_cell(cell) for cell in self.cells),
            exact=tuple(
                replace(
                    cell,
                    values=tuple(rounding.beside_error(x, cell.bound) for x in cell.values),
                    bound=rounding.significant(cell.bound, 2),
                )
                for cell in self.exact
            ),
            smallest_detectable=rounding.significant(self.smallest_detectable, 2),
        )

    def __repr__(self) -> str:
        return f"CrossCheck({self.text().splitlines()[-1]})"

    def columns(self) -> dict[str, list[Any]]:
        """Return the statistical comparisons by name, theory and estimate as logarithms."""
        columns: dict[str, list[Any]] = {"kernel": [cell.kernel for cell in self.cells]}
        columns["parameters"] = [
            ", ".join(f"{k} = {v}" for k, v in cell.parameters.items()) for cell in self.cells
        ]
        for name in ("quantity", "route", "theory", "z", "critical", "detectable", "verdict"):
            columns[name] = [getattr(cell, name) for cell in self.cells]
        columns["estimate"] = [cell.estimate.log_value for cell in self.cells]
        columns["stderr"] = [cell.estimate.rel_stderr for cell in self.cells]
        return columns

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a row for each statistical comparison; theory and estimate are logarithms."""
        return data_frame(self.columns())

    def _repr_html_(self) -> str:
        """Return a table for a notebook: what disagrees first, then the rest."""
        head = ("verdict", "kernel", "parameters", "quantity", "theory", "estimate", "stderr", "z")
        columns = self.columns()
        rows = list(zip(*(columns[name] for name in head), strict=True))
        rows.sort(key=lambda row: row[0] == "agree")
        return html_table(head, rows, self.text().splitlines()[-1])

    def summary(self) -> dict[str, Any]:
        """Return the outcome in JSON's types; `cells` counts the statistical comparisons."""
        return {
            "agree": self.agree,
            "cells": len(self.cells),
            "exact_cells": len(self.exact),
            "false_alarm_rate": self.false_alarm_rate,
            "smallest_detectable": self.smallest_detectable,
            "largest_z": max(abs(cell.z) for cell in self.cells),
            "disagreements": [asdict(cell) for cell in self.disagreements],
            "seed": self.seed,
            "left_out": list(self.left_out),
        }

    def text(self) -> str:
        """Return the outcome for a terminal: a line for each route, then what does not agree."""
        lines = []
        for route in dict.fromkeys((c.kernel, c.route) for c in self.cells):
            cells = [c for c in self.cells if (c.kernel, c.route) == route]
            agreeing = sum(c.verdict == "agree" for c in cells)
            largest = max(abs(c.z) for c in cells)
            lines.append(
                f"{route[0]:12} {route[1]:22} {agreeing:3} of {len(cells):3} agree   "
                f"largest |z| {largest:.2f}"
            )
        for pair in dict.fromkeys(c.instruments for c in self.exact):
            exact = [c for c in self.exact if c.instruments == pair]
            agreeing = sum(c.verdict == "agree" for c in exact)
            lines.append(f"{pair[0]} against {pair[1]}: {agreeing} of {len(exact)} agree")
        lines += [f"left out: {what}" for what in self.left_out]
        for c in self.disagreements:
            z = f" z = {c.z:.2f}" if isinstance(c, Cell) else ""
            what = f"{c.quantity}, {' against '.join(c.instruments)}"
            lines.append(f"{c.verdict}: {c.kernel} {c.parameters} {what}{z}")
        # Sampled in float32, cells far out in a tail have no digit: that is no disagreement.
        short = sum(c.verdict == "not enough evidence" for c in self.disagreements)
        word = "AGREE" if self.agree else "NOT IN AGREEMENT"
        if 0 < short == len(self.disagreements):
            word = f"NOT ENOUGH EVIDENCE in {short} cells, no disagreement"
        lines.append(
            f"{word}: {len(self.cells)} cell{'s' * (len(self.cells) != 1)}, "
            f"false-alarm rate of the whole run <= {self.false_alarm_rate:g}, "
            f"every cell would detect a relative error of {self.smallest_detectable:.2g}"
        )
        return "\n".join(lines)
