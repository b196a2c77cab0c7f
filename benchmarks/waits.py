"""Waiting times, against what is promised. Each wait in a fresh process, three times.

    python -m benchmarks.waits [--out DIR] [--tries N]

Takes two minutes. Writes waits.md; exits with 1 where the median is over its promise. The panel in
a browser: panel.py. Notebooks: `pytest -m notebook -s` prints their seconds.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.bench.machine import describe


class Wait(NamedTuple):
    """Code that a user runs; `ready` is done before the clock starts."""

    what: str
    promise: float  # seconds
    code: str
    ready: str = ""


_NO_FORM = """
import sympy
from sympy import Max, exp, erf, log, sin, tanh
from sparsity import NoClosedForm, derive, score_kernel
s = sympy.Symbol("s")
none = [log(1 + exp(s)), tanh(s), 1 / (1 + exp(-s)), s * (1 + erf(s / 2)), exp(-(s**4)),
        sin(s), s + exp(s), (1 + s) ** 1000, Max(s**5 - s + exp(s), 0)]
"""
_REFUSE = """
for f in none:
    try:
        derive(score_kernel("user", f))
    except NoClosedForm:
        continue
    raise SystemExit(f"{f} has a closed form")
"""
_NAMES = """
import numpy as np
import sympy
from sparsity import Alibi, Decay, Row, Sink, Window, evaluate, exact, score_kernel
s = sympy.Symbol("s")
softplus = score_kernel("softplus", sympy.log(1 + sympy.exp(s)))
lengths = np.unique(np.geomspace(2, 1e6, 400).round())
row = Row("exp", gamma=2, steps=(Alibi(.01), Decay(.999), Window(512), Sink(4)))
"""
_PANEL = """
import threading
import time
from sparsity.panel.background import fill_samples
from sparsity.panel.picture import picture
from sparsity.kernels import ALL
from sparsity.panel.state import edit, initial
from sparsity.panel.store import Store
names = tuple(kernel.name for kernel in ALL)
first = initial(ALL, names, "gamma")
def sample():
    for _ in fill_samples(edit(first, "length", 96), Store(), lambda: None):
        pass
store = Store()
picture(first, store)
threading.Thread(target=sample, daemon=True).start()
time.sleep(0.5)
"""
_TICKS = """
for k in range(60):
    picture(edit(first, "gamma", 1 + k / 100), store)
"""

WAITS = (
    Wait("`import sparsity`", 0.3, "import sparsity"),
    Wait("every built-in kernel derived", 10, "for k in kernels.ALL: derive(k)",
         "from sparsity import derive, kernels"),
    Wait("nine kernels without a closed form refused", 2, _REFUSE, _NO_FORM),
    Wait("n_eff of 400 lengths to 10⁶", 1, "exact('exp', length=lengths, gamma=3)", _NAMES),
    Wait("n_eff of a row with four steps, n = 4096", 2, "exact(row, length=4096)", _NAMES),
    Wait("25 points of softplus", 1,
         "evaluate(softplus, beta=-1, gamma=np.geomspace(0.1, 10, 25))", _NAMES),
    Wait("60 pictures of the panel while it samples", 6, _TICKS, _PANEL),
)  # fmt: skip

_TIMED = """
import os, sys, time
_began = time.perf_counter()
{code}
print(time.perf_counter() - _began, flush=True)
os._exit(0)
"""


def seconds(wait: Wait) -> float:
    """By the clock of a process of its own."""
    code = wait.ready + _TIMED.format(code=wait.code)
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    return float(done.stdout.split()[-1])


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--tries", type=int, default=3)
    options = parser.parse_args()
    where = describe()
    lines = [
        "# Waiting times",
        "",
        f"`python -m benchmarks.waits`, on {where['cpu']}, {where['cores']} cores, "
        f"Python {where['python']}, median of {options.tries} fresh processes each.",
        "",
        "| | seconds | promised | |",
        "|---|---:|---:|---|",
    ]
    broken = 0
    for wait in WAITS:
        took = statistics.median(seconds(wait) for _ in range(options.tries))
        broken += took > wait.promise
        kept = "kept" if took <= wait.promise else "broken"
        lines.append(f"| {wait.what} | {took:.3g} | {wait.promise:g} | {kept} |")
        print(lines[-1], flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "waits.md").write_text("\n".join([*lines, ""]), "utf-8")
    return int(broken > 0)


if __name__ == "__main__":
    raise SystemExit(main())
