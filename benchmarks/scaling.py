"""What large sweeps cost, and where a scheduler breaks: measured blocks, 1,000 simulated workers.

    python benchmarks/scaling.py [--out benchmarks/results]

Measures the seconds and bytes of a block of each kind, of handing out a task, and of keeping a
block; then simulates one coordinator that hands out tasks and keeps results one after the other,
and workers of which one task in a hundred is lost with its worker. Writes scaling.md.
"""

from __future__ import annotations

import argparse
import functools
import heapq
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sparsity import kernels
from sparsity.bench.machine import describe
from sparsity.output import write
from sparsity.sweeps import curves, parts
from sparsity.sweeps.store import Store
from sparsity.sweeps.variables import Grid
from sparsity.tasks import Workers, completed

LOST = 0.01  # of all tasks, with their worker
RESTART = 10.0  # seconds until a lost worker is back
WORKERS = (10, 100, 1000)
TASKS = 100  # of the trial of handing out


class Kind(NamedTuple):
    """Blocks of one kind: what they are, cells of each, seconds of several, and what keeps one."""

    title: str
    cells: int
    seconds: np.ndarray
    keep: float
    bytes: float


def _request(**asked: Any) -> parts.Request:
    lengths = {"length": [4096]} if asked.pop("rows", True) else {}
    gammas = np.geomspace(0.1, 8, asked.pop("points"))
    cells = Grid(kernels.exp, (), curves.grids_of(kernels.exp, {"gamma": gammas, **lengths}))
    settings = {"seed": 0, "rel_error": 1e-2, "most": 3e7, "dtype": None, "float64": False}
    return parts.asked(cells, None, **(settings | asked))


def measured(title: str, request: parts.Request, which: int, count: int, folder: Path) -> Kind:
    """Seconds of `count` blocks of a part, after one to warm up, and of keeping them."""
    every = parts.parts(request)
    blocks = parts.blocks(which, every[which], request.cells)[: count + 1]
    store = Store(folder, request, every, functools.partial(curves.labelled, request.cells))
    seconds, keep = [], []
    for block in blocks:
        start = time.perf_counter()
        found = parts.compute(request, block)
        middle = time.perf_counter()
        store.put(block, *found)
        seconds.append(middle - start)
        keep.append(time.perf_counter() - middle)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    cells = int(np.prod([stop - start for _, start, stop in blocks[0].ranges]))
    return Kind(title, cells, np.array(seconds[1:]), float(np.median(keep[1:])), size / len(blocks))


def handing_out() -> float:
    """Seconds that a task costs the coordinator, beside its work."""
    with Workers(1) as workers:
        list(completed(abs, range(2), workers))
        start = time.process_time()
        done = sum(1 for _ in completed(abs, range(TASKS), workers))
    assert done == TASKS
    return (time.process_time() - start) / TASKS


def simulated(
    kind: Kind, blocks: int, together: int, workers: int, task: float, seed: int = 0
) -> float:
    """Work over workers times duration, of a sweep of so many blocks.

    The coordinator hands out a task, or keeps one, at a time; a lost task is handed out again.
    """
    random = np.random.default_rng(seed)
    waiting, free, busy = -(-blocks // together), [0.0] * workers, []
    clock = work = 0.0
    while waiting or busy:
        if waiting and free and (not busy or free[0] <= busy[0][0]):
            clock = max(clock, heapq.heappop(free)) + task
            waiting -= 1
            seconds = float(random.choice(kind.seconds, together).sum())
            lost = random.random() < LOST
            ends = clock + seconds * (random.random() if lost else 1)
            heapq.heappush(busy, (ends, lost, seconds))
            continue
        ends, lost, seconds = heapq.heappop(busy)
        if lost:
            waiting += 1
            heapq.heappush(free, ends + RESTART)
            continue
        work += seconds
        heapq.heappush(free, ends)
        clock = max(clock, ends) + together * kind.keep
    return work / (workers * clock)


def _table(kinds: list[Kind], task: float) -> list[str]:
    lines = [
        "| block | cells | seconds | to keep it | bytes a cell | 10⁶ cells, core-hours | 10⁸ |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind in kinds:
        hours = kind.seconds.mean() / kind.cells * 1e6 / 3600
        lines.append(
            f"| {kind.title} | {kind.cells} | {kind.seconds.mean():.3g} | {kind.keep * 1e3:.1f} ms "
            f"| {kind.bytes / kind.cells:.0f} | {hours:.2g} | {hours * 100:.2g} |"
        )
    lines += ["", f"Handing out a task costs the coordinator {task * 1e3:.2f} ms.", ""]
    lines += [
        f"| 10⁶ cells | {' | '.join(f'{n} workers' for n in WORKERS)} | full from |",
        "|---|" + "---|" * (len(WORKERS) + 1),
    ]
    for kind in kinds:
        blocks = int(1e6 / kind.cells)
        mean = kind.seconds.mean()
        together = max(int(min(0.5 / mean, blocks / 32)), 1)
        if blocks < 1000:
            shown = ["(too few blocks)"] * len(WORKERS)
        else:
            shown = [f"{simulated(kind, blocks, together, n, task):.0%}" for n in WORKERS]
        most = mean / (kind.keep + task / together)
        lines.append(f"| {kind.title} | {' | '.join(shown)} | {most:.0f} workers |")
    return lines


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    out = reader.parse_args().out
    with tempfile.TemporaryDirectory() as home:
        place = Path(home)
        plain = _request(points=200_000, rows=False, montecarlo=False)
        rows = _request(points=4096, montecarlo=True)  # four whole blocks of the exact law
        kinds = [
            measured("closed forms", plain, 0, 2, place / "a"),
            measured("exact law, rows of 4096", rows, 1, 3, place / "b"),
            measured("S by sampling, to 1e-2", rows, 2, 10, place / "c"),
            measured("rows of 4096 by sampling, to 1e-2", rows, 3, 10, place / "d"),
        ]
    task = handing_out()
    where = describe()
    about = f"{where['cpu']}, {where['cores']} cores, Python {where['python']}; one process."
    text = "\n".join(["# Large sweeps", "", about, "", *_table(kinds, task), "", NOTES])
    write(out / "scaling.md", text)
    print(text)


NOTES = """Efficiency is the work done over workers times duration, with one task in a hundred lost
with its worker, which is back after 10 s. "Full from" is where the one process that hands out tasks
and writes the store is busy all the time: with more workers they wait for it. Cells that are dearer
(a smaller error, longer rows, wider spreads) move it up in proportion. These are simulations of
measured blocks; no cluster was at hand.
"""

if __name__ == "__main__":
    main()
