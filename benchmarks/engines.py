"""The same sweep in one process and on executors: the same bytes of its stores, and the time.

    python -m benchmarks.engines [--points 500] [--rel-error 1e-3]

10⁴ cells of the exact law and as many of Monte Carlo as asked for, each into a store; every engine
in a process of its own, on an idle machine. A process on one core is what workers of one core each
are compared with: XLA spreads the sampling of a single process over the cores it finds.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

SETTINGS = {  # of every process: see docs/cluster.md
    "NPROC": "1", "MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "134217728",
}  # fmt: skip
ENGINES = ("one process, one core", "one process", "2 processes", "Dask", "submitit")


def executor(engine: str, home: Path, held: ExitStack) -> Any:
    """What the engine computes on; None for this process."""
    if engine == "2 processes":
        from sparsity.tasks import Workers

        return held.enter_context(Workers(2))
    if engine == "Dask":
        dask = importlib.import_module("distributed")  # which may not be installed
        settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
        cluster = held.enter_context(dask.LocalCluster(**settings))
        return held.enter_context(dask.Client(cluster)).get_executor()
    if engine == "submitit":
        found = importlib.import_module("submitit").LocalExecutor(folder=home / "log")
        found.update_parameters(timeout_min=60)
        return found
    return None


def digest(folder: Path) -> str:
    """Of all files, with their names."""
    found = hashlib.sha256()
    for path in sorted(x for x in folder.rglob("*") if x.is_file()):
        found.update(f"{path.relative_to(folder)} ".encode() + path.read_bytes())
    return found.hexdigest()[:16]


def run(engine: str, points: int, rel_error: float) -> None:
    """In a process of its own: both sweeps; seconds and digests."""
    if engine.endswith("one core"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import sparsity

    exact: dict[str, Any] = {"gamma": "0.1:8:5000:log", "length": [64, 4096], "of": "n_eff"}
    drawn: dict[str, Any] = {"gamma": f"0.5:2:{points}", "length": 256, "of": "n_eff"}
    drawn |= {"montecarlo": True, "rel_error": rel_error}
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name, ExitStack() as held:
        home = Path(name)
        on = executor(engine, home, held)
        for part, asked in (("exact", exact), ("sampled", drawn)):
            start = time.perf_counter()
            sparsity.sweep("exp", **asked, executor=on, store=home / part)
            found[part] = {"seconds": time.perf_counter() - start, "bytes": digest(home / part)}
    print(json.dumps(found))


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--points", type=int, default=500)
    reader.add_argument("--rel-error", type=float, default=1e-3)
    reader.add_argument("--engine", choices=ENGINES)
    given = reader.parse_args()
    if given.engine:
        run(given.engine, given.points, given.rel_error)
        return
    print(f"| engine | 10⁴ exact, s | {given.points} sampled, s | digests |\n|---|---|---|---|")
    digests = set()
    for engine in ENGINES:
        line = [
            sys.executable,
            "-m",
            "benchmarks.engines",
            "--engine",
            engine,
            "--points",
            str(given.points),
        ]
        line += ["--rel-error", str(given.rel_error)]
        settings = os.environ | SETTINGS
        done = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True, env=settings)
        found = json.loads(done.stdout.splitlines()[-1])
        digests.add(own := f"{found['exact']['bytes']} {found['sampled']['bytes']}")
        seconds = " | ".join(f"{found[part]['seconds']:.1f}" for part in ("exact", "sampled"))
        print(f"| {engine} | {seconds} | {own} |", flush=True)
    print("the same bytes" if len(digests) == 1 else "NOT the same bytes")
    sys.exit(len(digests) != 1)


if __name__ == "__main__":
    main()
