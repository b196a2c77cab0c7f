"""`python -m benchmarks`: ours and the peers, paired, on the same work, in one run."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.bench.report import Report

__all__ = ["run"]

_FULL: dict[str, Any] = {
    "rel_errors": (1e-3, 1e-4),
    "rounds": 5,
    "raw_cells": 3,
    "raw_draws": 2**24,
    "calibration_draws": 2**22,
    "points": 10**6,
    "users": {"count": 8, "points": 400, "checked": 50},
    "curves": {"count": 6, "points": 60},
    "finite": {"count": 3, "points": 60, "biases": 2000},
    "repeats": 21,
    "memory": {"scalar": 10**8, "rows": 10**6, "keys": 4096},
    "scaling": {
        "draws": (10**6, 10**7, 10**8),
        "row length n": (10, 10**2, 10**3, 10**4, 10**5),
        "key dimension d": (10, 10**2, 10**3),
    },
}
_QUICK: dict[str, Any] = {
    "rel_errors": (1e-2,),
    "rounds": 1,
    "raw_cells": 1,
    "raw_draws": 2**16,
    "calibration_draws": 2**16,
    "points": 10**4,
    "users": {"count": 2, "points": 4, "checked": 1},
    "curves": {"count": 2, "points": 4},
    "finite": {"count": 1, "points": 4, "biases": 4},
    "repeats": 2,
    "memory": {"scalar": 10**5},
    "scaling": {"draws": (10**4, 10**6), "row length n": (10,), "key dimension d": (10,)},
}
_WHAT = {
    "scalar": "{:.0e} scalar draws",
    "rows": "whole rows of n = {:.0e}",
    "keys": "whole keys of d = {}",
}


def _processes(plan: dict[str, Any], rounds: int, tick: Callable[..., Any]) -> dict[str, Any]:
    """What is measured in processes of their own: the cold start, memory and devices."""
    from benchmarks.bench import resources

    return {
        "cold": [tick(resources.probe("cold", 1, "exp γ=2 to 1e-3"))],
        "memory": [
            tick(resources.probe(job, value, _WHAT[job].format(value)))
            for job, value in plan["memory"].items()
        ],
        "scaling": [
            row
            for what, sizes in plan["scaling"].items()
            for row in tick(resources.scaling(what, sizes, rounds))
        ],
    }


def _theory(
    plan: dict[str, Any], cells: Any, rounds: int, tick: Callable[..., Any]
) -> dict[str, Any]:
    """Closed forms, and quadrature against other integrators."""
    from benchmarks.bench import theory

    return {
        "closed_forms": tick(theory.closed_forms(plan["points"], rounds)),
        "integrators": tick(theory.integrators(cells, min(rounds, 3))),
    }


def _by_users(
    plan: dict[str, Any], cells: Any, rivals: Any, speed: Any, how: Any, tick: Callable[..., Any]
) -> dict[str, Any]:
    """What a user does: own kernels, exact laws, curves by sampling, one estimate again."""
    from benchmarks.bench import curves, finite, users

    error, rounds = plan["rel_errors"][0], how["rounds"]
    drawn = curves.rows(**plan["curves"], rel_error=error, peers=rivals, speed=speed, **how)
    return {
        "users": [tick(row) for row in users.rows(**plan["users"], rounds=rounds)],
        "finite": [tick(row) for row in finite.rows(**plan["finite"], rounds=rounds)],
        "curves": [tick(row) for row in drawn],
        "single": tick(
            [curves.single(cell, error, how["dtype"], plan["repeats"]) for cell in cells]
        ),
    }


def _refuse(budget_seconds: float, out: Any) -> None:
    """Refuse what is wrong now, not after minutes of work."""
    from sparsity.checks import check_number
    from sparsity.output import folder

    check_number("budget_seconds", budget_seconds, "must be > 0", lambda x: x > 0)
    if out is not None:
        folder(out)


def _ticking(progress: Callable[[int, int], None] | None, steps: int) -> Callable[..., Any]:
    """Count a step done, and hand on what it gave."""
    counter = itertools.count(1)

    def tick(done: Any = None) -> Any:
        if progress is not None:
            progress(next(counter), steps)
        return done

    return tick


def run(
    *,
    budget_seconds: float = 2.0,
    out: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    quick: bool = False,
) -> Report:
    """Measure ours against every installed peer: minutes, or seconds when quick.

    Args:
        budget_seconds: the most a peer may take in a cell to be measured there; what takes longer
            is computed from its measured rate and the exact number of draws it needs.
        out: folder for bench.json, bench.txt, bench.svg and bench.png; None writes nothing.
        progress: called with (steps done, steps in all).
        quick: a few cells, one round, tiny sizes: to see that all parts work, not to quote.

    Raises:
        InputError: a budget that is not positive; a folder that cannot be written.
    """
    from benchmarks.bench import adaptive, grid, machine, peers, target, throughput
    from benchmarks.bench.report import Report
    from sparsity.sampling.devices import resolve_dtype

    _refuse(budget_seconds, out)
    plan = _QUICK if quick else _FULL
    cells, rivals = grid.reference(quick), peers.available()
    tame = throughput.CELLS[: plan["raw_cells"]]
    dtype = resolve_dtype(None).name
    dtypes = ("float32", "float64") if dtype == "float64" else ("float32",)
    steps = len(dtypes) * len(tame) + len(cells) * len(plan["rel_errors"])
    steps += sum(plan[part]["count"] for part in ("users", "finite", "curves"))
    tick = _ticking(progress, steps + len(plan["memory"]) + len(plan["scaling"]) + 4)
    rounds = plan["rounds"]
    sections: dict[str, Any] = {
        "raw": [
            tick(throughput.rates(cell, kind, rivals, plan["raw_draws"], rounds))
            for kind in dtypes
            for cell in tame
        ],
        "ceiling": throughput.ceilings(dtypes, plan["raw_draws"], rounds),
    }
    speed = throughput.calibrate(cells, rivals, plan["calibration_draws"], rounds, dtype)
    how: dict[str, Any] = {"dtype": dtype, "budget": budget_seconds, "rounds": min(rounds, 3)}
    sections["target"] = [
        tick(target.timed(cell, error, rivals, speed, **how))
        for error in plan["rel_errors"]
        for cell in cells
    ]
    sections["adaptive"] = list(adaptive.rows(cells, plan["rel_errors"], dtype, min(rounds, 3)))
    sections["theory"] = _theory(plan, cells, rounds, tick)
    sections |= _by_users(plan, cells, rivals, speed, how, tick)
    sections |= _processes(plan, min(rounds, 3), tick)
    settings = {**plan, "budget_seconds": budget_seconds, "quick": quick, "dtype": dtype}
    names = {peer.name: peer.what for peer in rivals}
    names |= {row["name"]: row["what"] for row in sections["theory"]["integrators"]}
    report = Report(machine.describe(), settings, names, sections)
    if out is not None:
        report.write(out)
    return report
