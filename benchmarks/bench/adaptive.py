"""Beside vegas, which adapts to its integrand: time to an error of S, and its χ² from run to run.

The other sampling peers draw from the law of the score. Vegas learns from where to draw, as ours
knows it, and is given the definition: E|f|^p = ∫ |f(β + γε)|^p φ(ε) dε for p = 1 and 2, each by an
integrator of its own, for a grid adapts to one integrand.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from benchmarks.bench.grid import Task
from benchmarks.bench.tables import seconds, table
from benchmarks.bench.target import judged, nudged_estimate
from benchmarks.bench.throughput import OURS, is_wrong
from benchmarks.bench.timing import Paired, paired, ratio

WHAT = "vegas: 5 iterations to adapt and 3 that count, of the fewest evaluations that do"
_REACH = 40.0  # of ε: holds all but e^−300 of every integrand of the grid
_ADAPTING, _COUNTED = 5, 3  # iterations; χ² needs two that count
# Evaluations of an iteration that reach a target in every cell of the grid. A quarter of them never
# does: χ² per degree of freedom is then 5 to 100, and the error bars are false.
_EVALUATIONS = {1e-2: 1000, 1e-3: 1000, 1e-4: 4000}
_UNLIKELY = 1e-6  # a chance of χ² below which the iterations of a run contradict each other


class Run(NamedTuple):
    """What one run of vegas found: log S, its standard error, χ²/dof and its chance, the worse."""

    log_S: float
    rel_stderr: float
    chi2: float
    chance: float


def installed() -> bool:
    """Return whether vegas is there."""
    return importlib.util.find_spec("vegas") is not None


def _weight(name: str) -> Callable[[np.ndarray], np.ndarray]:
    return {"exp": np.exp, "relu2": lambda s: np.maximum(s, 0) ** 2, "identity": np.abs}[name]


def vegas_run(cell: Task, evaluations: int) -> Callable[[int], Run]:
    """Return a run of vegas from a seed.

    Args:
        cell: of the grid.
        evaluations: of an iteration.
    """
    import gvar  # pyright: ignore[reportMissingImports]
    import vegas  # pyright: ignore[reportMissingImports]

    weight = _weight(cell.kernel.name)

    def moment(p: int) -> Any:
        def integrand(x: np.ndarray) -> np.ndarray:
            t = x[:, 0]
            a = weight(cell.beta + cell.gamma * t)
            return a**p * np.exp(-0.5 * t * t) / math.sqrt(2 * math.pi)

        integrator = vegas.Integrator([[-_REACH, _REACH]])
        batch = vegas.lbatchintegrand(integrand)
        integrator(batch, nitn=_ADAPTING, neval=evaluations)
        return integrator(batch, nitn=_COUNTED, neval=evaluations)

    def work(seed: int) -> Run:
        gvar.ranseed(seed + 1)
        first, second = moment(1), moment(2)
        log_S = math.log(first.mean) - 0.5 * math.log(second.mean)
        error = math.hypot(first.sdev / first.mean, 0.5 * second.sdev / second.mean)
        worse = min((first, second), key=lambda found: found.Q)
        return Run(log_S, error, worse.chi2 / worse.dof, worse.Q)

    return work


def rows(
    cells: Sequence[Task], rel_errors: Sequence[float], dtype: str, rounds: int
) -> Iterator[dict[str, Any]]:
    """Return a row for each target and cell, ours and vegas in turns; none where it is missing."""
    if not installed():
        return
    for rel_error in rel_errors:
        for cell in cells:
            run = vegas_run(cell, _EVALUATIONS[rel_error])
            run(10_000)
            works = {OURS: nudged_estimate(cell, rel_error, dtype), "vegas": run}
            yield row(cell, rel_error, paired(works, rounds))


def row(cell: Task, rel_error: float, done: Paired) -> dict[str, Any]:
    """Return what both took and found; whether vegas is wrong, and whether χ² says so."""
    mine, theirs = done.seconds[OURS], done.seconds["vegas"]
    found: list[Run] = done.results["vegas"]
    error = median(run.rel_stderr for run in found)
    wrong = is_wrong(cell.log_S, [(run.log_S, run.rel_stderr) for run in found])
    return {
        "cell": cell.label,
        "rel_error": rel_error,
        "ours": judged(cell, rel_error, mine, done.results[OURS]),
        "vegas": {
            "seconds": median(theirs),
            "rel_stderr": error,
            "chi2": median(run.chi2 for run in found),
            "chance": min(run.chance for run in found),
            "contradicts_itself": min(run.chance for run in found) < _UNLIKELY,
            "wrong": wrong,
        },
        "ratio": ratio(theirs, mine),
    }


def text(section: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Return the table for readers."""
    yield "Time to a relative standard error beside vegas, which adapts; both given the target"
    if not section:
        yield "vegas is not installed"
        return
    shown: list[Sequence[str]] = [
        ("", "to", OURS, "error", "vegas", "error", "χ²/dof", "least Q", "ratio")
    ]
    for row in section:
        ours, peer = row["ours"], row["vegas"]
        mine = seconds(ours["seconds"]) + "!" * (not ours["reached"])
        marked = seconds(peer["seconds"]) + "!" * (peer["wrong"] or peer["contradicts_itself"])
        errors = (f"{x['rel_stderr']:.1e}" for x in (ours, peer))
        own = (mine, next(errors), marked, next(errors))
        spread = (f"{peer['chi2']:.2f}", f"{peer['chance']:.1e}")
        shown.append((row["cell"], f"{row['rel_error']:g}", *own, *spread, f"{row['ratio']:.3g}"))
    yield from table(shown)
    yield WHAT
    yield (
        "χ²/dof: of its iterations, median of the runs; Q: the chance of that χ², least of the "
        f"runs; ! not reached, wrong, or Q below {_UNLIKELY:g}"
    )
