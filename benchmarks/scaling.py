"""What large sweeps and corpora cost, measured, and where a scheduler breaks, simulated.

    python -m benchmarks.scaling [--model FILE.gguf --text FILE.txt] [--out benchmarks/results]

Measures the processor seconds and the bytes of a block of each kind, of handing out a task, and of
keeping a block; of a million closed forms; and, with a model, of a text. Then simulates workers of
which one task in a hundred is lost with its worker, and the one process that hands out their tasks.
Writes scaling.md. Seconds are the processor's, so that other work on the machine counts little.
"""

from __future__ import annotations

import argparse
import functools
import heapq
import subprocess
import sys
import tempfile
import time
from concurrent import futures
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.bench.machine import describe
from sparsity import kernels
from sparsity.output import folder, write
from sparsity.sweeps import curves, plan, work
from sparsity.sweeps.grids import grids_of
from sparsity.sweeps.store import Store
from sparsity.sweeps.variables import Grid
from sparsity.tasks import Workers, run_tasks

LOST = 0.01  # of all tasks, with their worker
RESTART = 10.0  # seconds until a lost worker is back
WORKERS = (10, 100, 1000, 10_000)
CELLS = 10**6
TASKS = 200  # of the trial of handing out


class Kind(NamedTuple):
    """Blocks of one kind: cells of each, seconds of several, and what keeps one."""

    title: str
    cells: int
    seconds: np.ndarray
    keep: float
    bytes: float
    most: int


def _request(**asked: Any) -> plan.Request:
    lengths = {"length": [4096]} if asked.pop("rows", True) else {}
    gammas = np.geomspace(0.1, 8, asked.pop("points"))
    cells = Grid(kernels.exp, (), grids_of(kernels.exp, {"gamma": gammas, **lengths}))
    settings = {"seed": 0, "rel_error": 1e-2, "most": 3e7, "dtype": None, "float64": False}
    return plan.build_request(cells, None, **(settings | asked))


def measured(title: str, request: plan.Request, which: int, count: int, folder: Path) -> Kind:
    """Seconds of `count` blocks of a part, from all over the grid, and of keeping them."""
    every = plan.variable_groups(request)
    blocks = plan.cut_into_blocks(which, every[which], request.cells)
    some = [blocks[0], *blocks[:: max(len(blocks) // count, 1)][:count]]  # the first to warm up
    store = Store(folder, request, every, functools.partial(curves.labelled, request.cells))
    before = _bytes(folder)
    seconds, keep = [], []
    for block in some:
        start = time.process_time()
        cut = request.of_block(block)
        found = plan.variable_groups(cut)[which].compute(cut)
        middle = time.process_time()
        store.put(block, *found)
        seconds.append(middle - start)
        keep.append(time.process_time() - middle)
    size = (_bytes(folder) - before) / len({*some})
    cells = int(np.prod([stop - start for _, start, stop in blocks[0].ranges]))
    most = every[which].most
    return Kind(title, cells, np.array(seconds[1:]), float(np.median(keep[1:])), size, most)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def handing_out() -> float:
    """Seconds that a task costs the coordinator, beside its work."""
    with Workers(1) as workers:
        list(run_tasks(abs, range(2), workers))
        start = time.process_time()
        done = sum(1 for _ in run_tasks(abs, range(TASKS), workers))
    assert done == TASKS
    return (time.process_time() - start) / TASKS


class Plan(NamedTuple):
    """How a sweep of a million cells is run: tasks, blocks of each, seconds that these take."""

    tasks: int
    together: int
    seconds: np.ndarray


def planned(kind: Kind) -> Plan:
    """As `work` cuts it."""
    cells = max(kind.most, -(-CELLS // plan.MAX_BLOCKS))
    seconds = kind.seconds / kind.cells * cells
    blocks = -(-CELLS // cells)
    executor: Any = futures.Executor()
    together = work._blocks_per_task(float(seconds.mean()), blocks, executor)
    return Plan(-(-blocks // together), together, seconds)


def simulated(
    plan: Plan, workers: int, task: float, keep: float, shared: bool, seed: int = 0
) -> float:
    """Work over workers times duration.

    The coordinator hands out a task at a time; where workers do not see the store it keeps their
    blocks, too. A lost task is handed out again, and its worker is back after a while.
    """
    random = np.random.default_rng(seed)
    waiting, free, busy = plan.tasks, [0.0] * workers, []
    own = plan.together * keep
    clock = work = 0.0
    while waiting or busy:
        if waiting and free and (not busy or free[0] <= busy[0][0]):
            clock = max(clock, heapq.heappop(free)) + task
            waiting -= 1
            seconds = float(random.choice(plan.seconds, plan.together).sum())
            lost = random.random() < LOST
            takes = seconds + (own if shared else 0.0)
            ends = clock + takes * (random.random() if lost else 1)
            heapq.heappush(busy, (ends, lost, seconds))
            continue
        ends, lost, seconds = heapq.heappop(busy)
        if lost:
            waiting += 1
            heapq.heappush(free, ends + RESTART)
            continue
        work += seconds
        heapq.heappush(free, ends)
        if not shared:
            clock = max(clock, ends) + own
    return work / (workers * max(clock, max(free)))


def _costs(kinds: list[Kind], task: float) -> list[str]:
    lines = [
        "| block | cells | processor seconds | to keep it | bytes a cell | 10⁶ cells: core-hours "
        "| bytes | 10⁸: core-hours | bytes |",
        "|---" * 9 + "|",
    ]
    for kind in kinds:
        hours, size = kind.seconds.mean() / kind.cells * 1e6 / 3600, kind.bytes / kind.cells
        lines.append(
            f"| {kind.title} | {kind.cells} | {kind.seconds.mean():.3g} | {kind.keep * 1e3:.1f} ms "
            f"| {size:.0f} | {hours:.2g} | {size / 1e3:.2g} GB | {hours * 100:.2g} "
            f"| {size / 10:.2g} GB |"
        )
    return [*lines, "", f"Handing out a task costs the coordinator {task * 1e3:.2f} ms."]


def _efficiency(kinds: list[Kind], task: float, shared: bool) -> list[str]:
    lines = [
        f"| 10⁶ cells | tasks | seconds of each | {' | '.join(map(str, WORKERS))} | full from |",
        "|---|---|---|" + "---|" * (len(WORKERS) + 1),
    ]
    for kind in kinds:
        plan = planned(kind)
        mean = plan.together * float(plan.seconds.mean())
        if plan.tasks < 1000:
            continue
        shown = [f"{simulated(plan, n, task, kind.keep, shared):.0%}" for n in WORKERS]
        most = mean / (task + (0 if shared else plan.together * kind.keep))
        lines.append(
            f"| {kind.title} | {plan.tasks} | {mean:.2g} | {' | '.join(shown)} "
            f"| {most:.0f} workers |"
        )
    return lines


MILLION = """
import re, sys, tempfile, time
from pathlib import Path
import numpy as np, scipy.special, xarray, sparsity
from sparsity.sweeps import curves
status = Path("/proc/self/status")  # getrusage has the peak of the process that started this one
peak = lambda: int(re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1]) / 1024
sparsity.sweep("relu2", beta=[0.0], gamma=[1.0])
before, own, wall = peak(), time.process_time(), time.perf_counter()
with tempfile.TemporaryDirectory() as home:
    store = {"store": home + "/s"} if "store" in sys.argv else {}
    found = sparsity.sweep("relu2", beta="-2:2:1000", gamma="0.1:4:1000", **store)
    assert found.sizes == {"beta": 1000, "gamma": 1000}
    own, wall = time.process_time() - own, time.perf_counter() - wall
print(f"{own:.1f} | {wall:.1f} | {peak() - before:.0f} | {before:.0f}")
"""


def million() -> list[str]:
    """A million closed forms in memory and in a store."""
    lines = [
        "| 10⁶ closed forms | processor s | s | MiB over import | MiB of import |",
        "|---|---|---|---|---|",
    ]
    for where in ("memory", "store"):
        line = [sys.executable, "-c", MILLION, where]
        found = subprocess.run(line, capture_output=True, text=True, check=True)
        lines.append(f"| in {where} | {found.stdout.strip()} |")
    return lines


LARGE = {"parameters": 70e9, "layers": 80, "heads": 64, "texts": 10**4, "tokens": 512}


def corpus(model: str, text: str) -> list[str]:
    """A text through a model on one core's worth of seconds, and what that makes of a large one."""
    from sparsity.attention import checkpoints as models
    from sparsity.attention.checkpoints.llama import forward
    from sparsity.attention.measurement import corpus
    from sparsity.attention.measurement.runs import KeptPieces

    opened = models.load(model)
    ids = np.asarray(opened.encode(Path(text).read_text())[: LARGE["tokens"]], np.int32)
    config, spent = opened.config, {}
    for name in ("warm", "forward"):
        start = time.process_time()
        forward(opened, [ids], lambda *_: None)
        spent[name] = time.process_time() - start
    for name in ("warm", "measured"):
        start = time.process_time()
        (piece,) = corpus.measure_here(opened, 0, lambda _: None, [ids])
        spent[name] = time.process_time() - start
    with tempfile.TemporaryDirectory() as home:
        KeptPieces(home).put("one", piece, compressed=True)
        size = _bytes(Path(home))
    own = config.layers * config.heads
    shapes = [config.shape(x) for x in ("q", "k", "v", "o", "gate", "up", "down")]
    numbers = config.layers * sum(a * b for a, b in shapes) + config.vocabulary * config.dim
    rate = 2 * numbers * len(ids) / spent["forward"]
    head = max(spent["measured"] - spent["forward"], 0) / own
    heads = LARGE["layers"] * LARGE["heads"]
    run = 2 * LARGE["parameters"] * LARGE["tokens"] / rate
    each = run + head * heads
    hours, weights = each * LARGE["texts"] / 3600, 2 * LARGE["parameters"] / 1e9
    read = LARGE["texts"] / corpus.MAX_TOGETHER * weights / 1e3
    return [
        f"{opened.name}, {config.layers} × {config.heads} heads, a text of {len(ids)} tokens: "
        f"{spent['forward']:.1f} processor seconds to run it ({rate / 1e9:.1f} GFLOP a second), "
        f"{spent['measured'] - spent['forward']:.1f} to measure its heads ({head * 1e3:.0f} ms a "
        f"head); {size / 1e3:.0f} kB are kept ({size / own:.0f} bytes a head).",
        "",
        f"A model of {LARGE['parameters'] / 1e9:.0f}·10⁹ weights with {LARGE['layers']} × "
        f"{LARGE['heads']} heads, at that rate: {run:.0f} s to run a text and {head * heads:.0f} s "
        f"to measure it. 10⁴ texts take {hours:.2g} core-hours and keep "
        f"{size / own * heads * LARGE['texts'] / 1e9:.1f} GB. A worker reads the weights, "
        f"{weights:.0f} GB in 16 bits, layer by layer for every {corpus.MAX_TOGETHER} texts: "
        f"{read:.0f} TB in all, {read * 1e3 / hours / 3600:.2g} GB a second for each core that it "
        "keeps busy.",
    ]


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    reader.add_argument("--model")
    reader.add_argument("--text")
    given = reader.parse_args()
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
    lines = ["# Large sweeps", "", about, "", *_costs(kinds, task), "", *million(), ""]
    lines += ["Efficiency with so many workers that see the store:", ""]
    lines += [*_efficiency(kinds, task, shared=True), ""]
    lines += ["The same where they do not, and send their blocks back:", ""]
    lines += [*_efficiency(kinds, task, shared=False), "", NOTES]
    if given.model and given.text:
        lines += ["", "## A corpus", "", *corpus(given.model, given.text)]
    text = "\n".join(lines).rstrip() + "\n"
    print(text)
    write(folder(given.out) / "scaling.md", text)


NOTES = """Efficiency is the work done over workers times duration, with one task in a hundred lost
with its worker, which is back after 10 s. "Full from" is where the one process that hands out tasks
(and, without a shared disk, writes the store) is busy all the time: with more workers they wait for
it. Cells that are dearer (a smaller error, longer rows, wider spreads) move it up in proportion.
Kinds with fewer than 1,000 tasks are left out of the simulation: a machine does them in a minute.
One call takes 10⁶ cells at most; 10⁸ are a hundred stores. These are simulations of measured
blocks; no cluster was at hand."""

if __name__ == "__main__":
    main()
