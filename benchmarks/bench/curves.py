"""A Monte Carlo curve over γ, every point to a relative standard error; and one estimate's cost.

Ours is `sweep`, given the target and no more; theory and checks are inside its time. A peer is
given the exact number of draws of every point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from benchmarks.bench.grid import Task
from benchmarks.bench.peers import Peer
from benchmarks.bench.tables import seconds, table
from benchmarks.bench.target import FAR, SLACK, best
from benchmarks.bench.throughput import OURS
from benchmarks.bench.timing import paired, ratio
from sparsity import kernels
from sparsity.kernels import Kernel
from sparsity.sampling import estimate
from sparsity.sweeps.curves import sweep

ONE_LINERS = ("numpy", "jax", "torch")

_NUDGE = 1e-6  # between rounds: no point is drawn twice


@dataclass(frozen=True)
class Curve:
    """A score kernel over a range of γ."""

    kernel: Kernel
    beta: float
    low: float
    high: float

    @property
    def label(self) -> str:
        """As written in tables."""
        return f"{self.kernel.name} β={self.beta:g} γ={self.low:g}…{self.high:g}"

    def gammas(self, points: int) -> np.ndarray:
        """Evenly spaced in log γ."""
        return np.geomspace(self.low, self.high, points)

    def cells(self, points: int) -> list[Task]:
        """Its points."""
        return [Task(self.kernel, self.beta, gamma) for gamma in self.gammas(points).tolist()]


CURVES = (
    Curve(kernels.exp, 0.0, 0.1, 1.0),
    Curve(kernels.exp, 0.0, 1.0, 6.0),
    Curve(kernels.relu2, 1.0, 0.3, 3.0),
    Curve(kernels.relu2, -1.0, 0.2, 2.0),
    Curve(kernels.identity, 1.0, 0.2, 2.0),
    Curve(kernels.identity, 0.0, 0.1, 10.0),
)


def _ours(curve: Curve, points: int, rel_error: float) -> Callable[[int], Any]:
    def work(round_: int) -> Any:
        gammas = curve.gammas(points) * (1 + _NUDGE * (round_ + 1))
        return sweep(
            curve.kernel,
            beta=curve.beta,
            gamma=gammas,
            montecarlo=True,
            rel_error=rel_error,
            seed=round_,
        )

    work(10_000)  # compiles
    return work


def _judged(times: list[float], found: Sequence[Any], rel_error: float) -> dict[str, Any]:
    error = np.array([x["stderr_mc"].values / x["S_mc"].values for x in found])
    off = np.array([np.log(x["S_mc"].values) - x["log_S"].values for x in found]) / error
    return {
        "seconds": median(times),
        "rel_stderr": float(error.max()),
        "worst_z": float(off.flat[np.abs(off).argmax()]),
        "reached": bool(error.max() <= SLACK * rel_error and np.abs(off).max() <= FAR),
    }


def timed(
    curve: Curve,
    points: int,
    rel_error: float,
    peers: Sequence[Peer],
    speed: Mapping[tuple[str, str], float],
    *,
    dtype: str,
    budget: float,
    rounds: int,
) -> dict[str, Any]:
    """Time of a curve, ours and the peers' interleaved.

    Args:
        curve: which.
        points: of it.
        rel_error: the target at every point.
        peers: against whom.
        speed: draws per second by (peer, kernel).
        dtype: of the peers' arithmetic.
        budget: seconds a peer may take to be measured.
        rounds: timings of each.

    Returns:
        A row as of `target.timed`, in which a peer is "measured" or "computed".
    """
    cells = curve.cells(points)
    contestants = {OURS: _ours(curve, points, rel_error)}
    peer_seconds = {}
    for peer in peers:
        draws = [peer.draws(cell, rel_error) for cell in cells]
        peer_seconds[peer.name] = sum(draws) / speed[peer.name, curve.kernel.name]
        if peer_seconds[peer.name] <= budget:
            works = [
                peer.prepare(cell, math.ceil(count), dtype)
                for cell, count in zip(cells, draws, strict=True)
            ]
            contestants[peer.name] = lambda r, works=works: [work(r) for work in works]
    done = paired(contestants, rounds)
    mine = done.seconds[OURS]
    row: dict[str, Any] = {
        "cell": curve.label,
        "points": points,
        "rel_error": rel_error,
        "ours": _judged(mine, done.results[OURS], rel_error),
        "peers": {},
    }
    for name, computed in peer_seconds.items():
        times = done.seconds.get(name)
        row["peers"][name] = {
            "how": "measured" if times else "computed",
            "seconds": median(times) if times else computed,
            "ratio": ratio(times, mine) if times else computed / median(mine),
        }
    row["best"] = best(row)
    return row


def rows(
    count: int, points: int, rel_error: float, peers: Sequence[Peer], speed: Any, **how: Any
) -> Iterator[dict[str, Any]]:
    """A row for each of the first `count` curves, against those peers that are one-liners."""
    rivals = [peer for peer in peers if peer.name in ONE_LINERS]
    for curve in CURVES[:count]:
        yield timed(curve, points, rel_error, rivals, speed, **how)


def single(cell: Task, rel_error: float, dtype: str, repeats: int) -> dict[str, Any]:
    """Seconds of one warm estimate: the same again, and at a γ not seen before."""

    def at(gamma: float, seed: int) -> Any:
        law: Any = {"beta": cell.beta * gamma / cell.gamma, "gamma": gamma}
        return estimate(cell.kernel, rel_error=rel_error, seed=seed, dtype=dtype, **law)

    at(cell.gamma, 0)
    works = {
        "again": lambda r: at(cell.gamma, r),
        "new": lambda r: at(cell.gamma * (1 + _NUDGE * (r + 1)), r),
    }
    done = paired(works, repeats)
    return {
        "cell": cell.label,
        "rel_error": rel_error,
        "again_seconds": median(done.seconds["again"]),
        "new_seconds": median(done.seconds["new"]),
        "slowest_seconds": max(done.seconds["again"]),
        "samples": median(x.samples for x in done.results["again"]),
    }


def text(
    curves: Sequence[Mapping[str, Any]], singles: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """The tables for readers."""
    names = list(curves[0]["peers"])
    target = f"{curves[0]['rel_error']:g}"
    yield f"A Monte Carlo curve of {curves[0]['points']} points, each to {target}, through sweep"
    shown: list[Sequence[str]] = [("", OURS, *names, "ratio", "best peer")]
    for row in curves:
        marks = {"measured": "", "computed": "*"}
        peers = [seconds(p["seconds"]) + marks[p["how"]] for p in row["peers"].values()]
        mine = seconds(row["ours"]["seconds"]) + "!" * (not row["ours"]["reached"])
        name, times = row["best"] or ("—", math.nan)
        shown.append((row["cell"], mine, *peers, f"{times:.3g}", name))
    yield from table(shown)
    yield ""
    yield "One warm estimate, repeated"
    shown = [("", "to", "again", "slowest", "at a new γ", "draws")]
    for row in singles:
        times = (seconds(row[f"{x}_seconds"]) for x in ("again", "slowest", "new"))
        shown.append((row["cell"], f"{row['rel_error']:g}", *times, f"{row['samples']:.3g}"))
    yield from table(shown)
