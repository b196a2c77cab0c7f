"""Commands of two trees in turn: CPU seconds, wall, and what the two are as a ratio.

    python -m benchmarks.pairs OLD NEW [--tries N] [--only WORD]

OLD and NEW are checkouts; A B, B A, … so that a machine that drifts slows both. Median of each.
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMANDS = (
    "exact exp --gamma 2 --length 4096",
    "plot exp --gamma 2 --out plot.png",
    "estimate exp --gamma 2 --length 131072 --rel-error 0.01",
    "design exp --length 4096 --of top_k_mass:8 --value 0.5",
    "sweep exp --gamma 0.1:10:1000:log --montecarlo --out sweep.nc",
)
PICTURE = "README's first picture"
_CODE = """
import matplotlib
matplotlib.use("Agg")
import sparsity
sparsity.plot(["exp", "log(1 + exp(s))"], gamma=2, montecarlo=True).figure.savefig("focus.png")
"""


def timed(tree: Path, command: str, folder: str) -> tuple[float, float]:
    """Run a command of a tree, and return its CPU seconds and its wall seconds."""
    code = ["-c", _CODE] if command == PICTURE else ["-m", "sparsity", *shlex.split(command)]
    environment = os.environ | {"PYTHONPATH": str(tree.resolve()), "PYTHONPYCACHEPREFIX": folder}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled
    for name in [x for x in environment if x.startswith(("JAX_COMPILATION", "JAX_PERSISTENT"))]:
        environment.pop(name)  # and nothing else has been, by XLA
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *code], cwd=folder, env=environment, check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.perf_counter() - started


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--only", default="", help="commands that contain it")
    given = parser.parse_args()
    print("| command | CPU s before | now | ratio | wall s before | now |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for command in (each for each in (*COMMANDS, PICTURE) if given.only in each):
        found: dict[Path, list[tuple[float, float]]] = {given.old: [], given.new: []}
        with tempfile.TemporaryDirectory() as folder:
            for tree in found:  # bytecode is compiled before the clock starts
                timed(tree, command, folder)
            for turn in range(given.tries):
                for tree in list(found)[:: -1 if turn % 2 else 1]:
                    found[tree].append(timed(tree, command, folder))
        old, new = ([statistics.median(x) for x in zip(*each, strict=True)]
                    for each in found.values())  # fmt: skip
        print(f"| `{command}` | {old[0]:.2f} | {new[0]:.2f} | {new[0] / old[0]:.2f} "
              f"| {old[1]:.2f} | {new[1]:.2f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
