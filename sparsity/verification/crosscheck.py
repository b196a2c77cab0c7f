"""Agreement between theory and sampling over the reference grid, with honest statistics.

Each statistical cell compares log Ŝ with log S in units of its standard error. With m cells, one
cell raises a false alarm with probability α/m (two-sided Student's t), so the whole run does with
probability at most α (Bonferroni). A cell could have seen a relative error of
(t_{1−α/2m} + t_{0.999}) standard errors with probability 0.999: its detectable error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import stats

from sparsity.errors import InputError, check_seed
from sparsity.kernels import Kernel
from sparsity.montecarlo import Sampling
from sparsity.results import Estimate
from sparsity.theory.evaluation import evaluate
from sparsity.verification import reference_grid
from sparsity.verification.reference_grid import Checked

__all__ = ["Cell", "CrossCheck", "ExactCell", "check", "check_exact", "verify"]

_DETECTABLE = 1e-3  # a cell that could not see a relative error of this size proves nothing
_REL_ERROR = 1.1e-4  # hence the standard error that it is sampled to
_POWER = 0.999
_WORKERS = 2  # threads: one compiles while another samples


@dataclass(frozen=True)
class Cell:
    """One statistical comparison.

    Args:
        kernel: the kernel's name.
        quantity: "S", "n_eff", "participation" or "sink_mass".
        parameters: values by name.
        route: the sampler.
        theory: log of the quantity by theory.
        estimate: the same by sampling (its S field holds the quantity).
        z: (log estimate − log theory) / standard error.
        critical: the |z| beyond which the cell disagrees.
        detectable: the relative error it would have seen with probability 0.999.
        verdict: "agree", "disagree" or "not enough evidence".
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


@dataclass(frozen=True)
class ExactCell:
    """Closed form against quadrature of the definition: they must agree within their bounds."""

    kernel: str
    parameters: dict[str, Any]
    closed_form: float
    quadrature: float
    bound: float
    verdict: str


@dataclass(frozen=True)
class CrossCheck:
    """The outcome of a run.

    Args:
        agree: whether every cell agrees; a cell without enough evidence does not count as one.
        cells: the statistical comparisons.
        exact: the closed forms against quadrature.
        false_alarm_rate: probability that a run of true theory disagrees anywhere, at most.
        smallest_detectable: the relative error that every cell would have seen (power 0.999).
        seed: the seed.
    """

    agree: bool
    cells: tuple[Cell, ...]
    exact: tuple[ExactCell, ...]
    false_alarm_rate: float
    smallest_detectable: float
    seed: int

    @property
    def disagreements(self) -> tuple[Cell | ExactCell, ...]:
        """Every cell that does not agree."""
        return tuple(c for c in (*self.cells, *self.exact) if c.verdict != "agree")

    def summary(self) -> dict[str, Any]:
        """The outcome in JSON's types; `cells` counts the statistical comparisons."""
        return {
            "agree": self.agree,
            "cells": len(self.cells),
            "exact_cells": len(self.exact),
            "false_alarm_rate": self.false_alarm_rate,
            "smallest_detectable": self.smallest_detectable,
            "largest_z": max(abs(cell.z) for cell in self.cells),
            "disagreements": [asdict(cell) for cell in self.disagreements],
            "seed": self.seed,
        }

    def text(self) -> str:
        """The outcome for a terminal: one line a route, then every cell that does not agree."""
        lines = []
        for route in dict.fromkeys((c.kernel, c.route) for c in self.cells):
            cells = [c for c in self.cells if (c.kernel, c.route) == route]
            agreeing = sum(c.verdict == "agree" for c in cells)
            largest = max(abs(c.z) for c in cells)
            lines.append(
                f"{route[0]:12} {route[1]:22} {agreeing:3} of {len(cells):3} agree   "
                f"largest |z| {largest:.2f}"
            )
        exact = sum(c.verdict == "agree" for c in self.exact)
        lines.append(f"closed form against quadrature: {exact} of {len(self.exact)} agree")
        for c in self.disagreements:
            z = f" z = {c.z:.2f}" if isinstance(c, Cell) else ""
            lines.append(f"{c.verdict}: {c.kernel} {c.parameters}{z}")
        lines.append(
            f"{'AGREE' if self.agree else 'NOT IN AGREEMENT'}: {len(self.cells)} cells, "
            f"false-alarm rate of the whole run <= {self.false_alarm_rate:g}, "
            f"relative errors >= {self.smallest_detectable:.2g} would have been seen in every cell"
        )
        return "\n".join(lines)


def judge(spec: Any, theory: float, estimate: Estimate, alarm: float) -> Cell:
    """Compare one cell at a two-sided false-alarm probability `alarm`."""
    critical = float(stats.t.isf(alarm / 2, estimate.dof))
    detectable = (critical + float(stats.t.ppf(_POWER, estimate.dof))) * estimate.rel_stderr
    difference = estimate.log_S - theory
    if difference == 0:
        z = 0.0
    elif estimate.rel_stderr > 0:
        z = difference / estimate.rel_stderr
    else:
        z = math.copysign(math.inf, difference)
    if not math.isfinite(difference) or not estimate.trusted:
        verdict = "not enough evidence"
    elif abs(z) > critical:
        verdict = "disagree"
    else:
        verdict = "agree" if detectable <= _DETECTABLE else "not enough evidence"
    return Cell(
        kernel=spec.kernel.name,
        quantity=spec.quantity,
        parameters=spec.parameters,
        route=estimate.method,
        theory=theory,
        estimate=estimate,
        z=z,
        critical=critical,
        detectable=detectable,
        verdict=verdict,
    )


def check(
    specs: Sequence[Checked],
    *,
    theory: Callable[[Checked], float] = reference_grid.theory,
    seed: int = 0,
    false_alarm_rate: float = 1e-4,
    dtype: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Cell, ...]:
    """Sample every cell and compare it with `theory`.

    Args:
        specs: the cells.
        theory: log of a cell's quantity; a test plants wrong ones here.
        seed: each cell draws from a seed of its own, derived from this one.
        false_alarm_rate: of the whole family of cells.
        dtype: sampling precision; None takes float64 where JAX has it enabled.
        progress: called with (cells done, cells in all).
    """
    seeds = np.random.SeedSequence(seed).generate_state(len(specs))
    alarm = false_alarm_rate / max(len(specs), 1)

    def one(i: int) -> Cell:
        sampling = Sampling(rel_error=_REL_ERROR, seed=int(seeds[i]), dtype=dtype)
        return judge(specs[i], theory(specs[i]), reference_grid.sample(specs[i], sampling), alarm)

    cells = []
    with ThreadPoolExecutor(_WORKERS) as pool:
        try:
            for cell in pool.map(one, range(len(specs))):
                cells.append(cell)
                if progress is not None:
                    progress(len(cells), len(specs))
        except BaseException:  # Ctrl-C included: do not sample the rest first
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return tuple(cells)


def check_exact(points: Sequence[tuple[Kernel, dict[str, Any]]]) -> tuple[ExactCell, ...]:
    """Hold the closed form against quadrature, within the sum of their bounds."""
    cells = []
    for kernel, parameters in points:
        closed = evaluate(kernel, method="closed form", **parameters)
        numeric = evaluate(kernel, method="quadrature", **parameters)
        bound = float(closed.error_bound + numeric.error_bound)
        gap = abs(float(closed.log_S) - float(numeric.log_S))
        verdict = "agree" if gap <= bound else "disagree"
        cells.append(
            ExactCell(
                kernel.name, parameters, float(closed.log_S), float(numeric.log_S), bound, verdict
            )
        )
    return tuple(cells)


def verify(
    *names: str,
    seed: int = 0,
    false_alarm_rate: float = 1e-4,
    dtype: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> CrossCheck:
    """Cross-check closed forms, quadrature, exact laws and Monte Carlo over the reference grid.

    Args:
        *names: the kernels to check; none means all.
        seed: of the whole run.
        false_alarm_rate: family-wise, in (0, 1).
        dtype: sampling precision; None takes float64 where JAX has it enabled.
        progress: called with (cells done, cells in all).

    Returns:
        The verdict, every cell with its estimate, the false-alarm rate and the smallest relative
        error that every cell would have detected.

    Raises:
        InputError: an unknown kernel, or a value outside its domain.
    """
    if not 0 < false_alarm_rate < 1:
        raise InputError("false_alarm_rate", false_alarm_rate, "must be between 0 and 1")
    check_seed(seed)
    specs = reference_grid.reference_grid(names)
    cells = check(
        specs, seed=seed, false_alarm_rate=false_alarm_rate, dtype=dtype, progress=progress
    )
    wanted = {spec.kernel.name for spec in specs}
    exact = check_exact([p for p in reference_grid.exact_points() if p[0].name in wanted])
    return CrossCheck(
        agree=all(c.verdict == "agree" for c in (*cells, *exact)),
        cells=cells,
        exact=exact,
        false_alarm_rate=false_alarm_rate,
        smallest_detectable=max(cell.detectable for cell in cells),
        seed=seed,
    )
