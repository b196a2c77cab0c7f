"""Time to a relative standard error of S in every cell of the reference grid.

Ours is given a target and no more. A peer is given the exact number of draws it needs and runs
them where that takes at most the budget; beyond, its time is computed from that number and from
its measured rate, and marked so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.bench.grid import Task, delta
from benchmarks.bench.peers import Peer
from benchmarks.bench.throughput import OURS, is_wrong
from benchmarks.bench.timing import paired, ratio
from sparsity.results import Estimate
from sparsity.sampling import estimate

_NUDGE = 1e-9  # a cell never seen before, to the eye the same: nothing but compilation is warm
SLACK, FAR = 1.02, 5.0  # error bar over target, and standard errors from the truth, let pass
_MOST_ROUNDS = 21


def nudged_estimate(cell: Task, rel_error: float, dtype: str) -> Callable[[int], Estimate]:
    """Return ours, given the target: each time in a cell not seen before, warm."""

    def work(seed: int) -> Estimate:
        gamma = cell.gamma * (1 + _NUDGE * (seed + 1 + rel_error))
        return estimate(
            cell.kernel,
            rel_error=rel_error,
            seed=seed,
            dtype=dtype,
            beta=cell.beta * gamma / cell.gamma,
            gamma=gamma,
        )

    work(10_000)
    return work


def judged(cell: Task, rel_error: float, times: list[float], found: list[Estimate]) -> dict:
    """Return what ours took, found, and whether it reached the target with an honest error bar."""
    z = [(x.log_S - cell.log_S) / x.rel_stderr for x in found]
    worst = max(z, key=lambda value: abs(value) if math.isfinite(value) else math.inf)
    error = max(x.rel_stderr for x in found)
    warnings = sorted({x.warning for x in found if x.warning})
    return {
        "seconds": median(times),
        "slowest": max(times),
        "rel_stderr": error,
        "worst_z": worst,
        "samples": median(x.samples for x in found),
        "method": found[-1].method,
        "warning": warnings[0] if warnings else None,
        "reached": bool(not warnings and error <= SLACK * rel_error and abs(worst) <= FAR),
    }


def best(row: Mapping[str, Any]) -> tuple[str, float] | None:
    """The peer that ours is least ahead of, and by how much; a wrong peer does not count."""
    ratios = {n: p["ratio"] for n, p in row["peers"].items() if p["how"] != "wrong"}
    name = min(ratios, key=ratios.__getitem__, default=None)
    return None if name is None else (name, ratios[name])


def timed(
    cell: Task,
    rel_error: float,
    peers: Sequence[Peer],
    speed: Mapping[tuple[str, str], float],
    *,
    dtype: str,
    budget: float,
    rounds: int,
) -> dict[str, Any]:
    """Time to a target in a cell, ours and the peers' interleaved.

    Args:
        cell: of the grid.
        rel_error: the target.
        peers: against whom.
        speed: draws per second by (peer, kernel).
        dtype: of the arithmetic.
        budget: seconds a peer may take to be measured.
        rounds: timings of each, more where they are short.

    Returns:
        A row in which a peer is "measured", "computed", or "wrong" where its measured result lies
        further from the truth than its error bar allows.
    """
    draws = {peer.name: peer.draws(cell, rel_error) for peer in peers}
    computed = {n: count / speed[n, cell.kernel.name] for n, count in draws.items()}
    ours = nudged_estimate(cell, rel_error, dtype)
    contestants: dict[str, Callable[[int], Any]] = {OURS: ours}
    for peer in peers:
        if computed[peer.name] <= budget:
            work = peer.prepare(cell, math.ceil(draws[peer.name]), dtype)
            contestants[peer.name] = lambda r, w=work: delta(w(r))
    once = paired({OURS: ours}, 1).seconds[OURS][0]
    once += sum(computed[name] for name in contestants if name != OURS)
    done = paired(contestants, int(min(max(rounds, budget / once), _MOST_ROUNDS)))
    mine = done.seconds[OURS]
    row = {
        "rel_error": rel_error,
        "cell": cell.label,
        "log_S": cell.log_S,
        "variance": cell.variance,
        "ours": judged(cell, rel_error, mine, done.results[OURS]),
        "peers": {},
    }
    for name, seconds in computed.items():
        entry = {"how": "computed", "draws": draws[name], "seconds": seconds}
        entry["ratio"] = seconds / median(mine)
        if name in done.seconds:
            found = done.results[name]
            entry |= {
                "how": "wrong" if is_wrong(cell.log_S, found) else "measured",
                "seconds": median(done.seconds[name]),
                "ratio": ratio(done.seconds[name], mine),
                "rel_stderr": median(error for _, error in found),
                "computed_seconds": seconds,
            }
        row["peers"][name] = entry
    row["best"] = best(row)
    return row
