"""Evaluates every stored cell with the library and tells where its bound does not hold.

    python -m benchmarks.campaign.run [--sample N] [--limit SECONDS] [--out FILE]

Exit status 1 where there is a silent violation, a crash or an answer that comes too late.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from tqdm import tqdm

from benchmarks.campaign.cells import FILE, Cell, load
from benchmarks.campaign.judge import Verdict, ask, judge
from benchmarks.campaign.worker import Died, Late, Worker

__all__ = ["FAILURES", "report", "verdicts"]

FAILURES = ("violated", "crashed", "late")
OUTCOMES = ("agreed", *FAILURES, "refused", "refused rightly", "unjudged")
LIMIT = 10.0  # CPU seconds a cell


def verdicts(cells: Iterable[Cell], limit: float = LIMIT) -> list[Verdict]:
    """Each cell asked in a process of its own and judged; progress on the error stream."""
    worker = Worker(ask, ("s", "0x0p+0", "0x1p+0"))
    found: list[Verdict] = []
    counts: Counter[str] = Counter()
    try:
        for cell in (bar := tqdm(list(cells), mininterval=2)):
            try:
                found.append(judge(cell, worker(limit, *cell.key)))
            except Late:
                found.append(judge(cell, None))
            except Died as error:
                found.append(Verdict(cell, "crashed", math.inf, math.inf, str(error), math.nan))
            counts[found[-1].outcome] += 1
            bar.set_postfix({name: counts[name] for name in FAILURES}, refresh=False)
    finally:
        worker.close()
    return found


def _where(verdict: Verdict) -> str:
    cell = verdict.cell
    kernel = cell.kernel if len(cell.kernel) <= 90 else cell.kernel[:87] + "…"
    kernel = kernel.replace("|", "\\|")
    return f"`{kernel}` | {float.fromhex(cell.beta):.6g} | {float.fromhex(cell.gamma):.6g}"


def _share(verdict: Verdict) -> float:
    """By how much a bound is exceeded; a bound of 0 or NaN by any amount."""
    ratio = verdict.gap / verdict.bound if verdict.bound > 0 else math.inf
    return math.inf if math.isnan(ratio) else ratio


def _failures(found: list[Verdict], shown: int) -> list[str]:
    lines = []
    violated = sorted((v for v in found if v.outcome == "violated"), key=lambda v: -v.gap)
    if violated:
        lines += ["", "## Silent violations, worst first", ""]
        lines += ["| kernel | β | γ | gap | bound | gap / bound | log S |"]
        lines += ["| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
        for v in violated[:shown]:
            truth = v.cell.method if v.cell.log_S is None else f"{float(v.cell.log_S):.6g}"
            numbers = f"{v.gap:.1e} | {v.bound:.1e} | {_share(v):.1e} | {truth}"
            lines.append(f"| {_where(v)} | {numbers} |")
    broken = [v for v in found if v.outcome in ("late", "crashed")]
    if broken:
        lines += [
            "",
            "## Late or crashed",
            "",
            "| kernel | β | γ | |",
            "| --- | ---: | ---: | --- |",
        ]
        lines += [f"| {_where(v)} | {v.outcome} {v.reason} |" for v in broken[:shown]]
    return lines


def _distribution(found: list[Verdict]) -> list[str]:
    bounds = np.array([v.bound for v in found if v.outcome in ("agreed", "violated", "unjudged")])
    edges = [0, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-8, 1e-6, 1e-3, math.inf]
    lines = ["", "## Bounds", "", "| bound | cells |", "| --- | ---: |"]
    for low, high in itertools.pairwise(edges):
        count = int(np.sum((bounds >= low) & (bounds < high)))
        lines.append(f"| {low:g} to {high:g} | {count} |")
    lines.append(f"| infinite or not a number | {int(np.sum(~np.isfinite(bounds)))} |")
    return lines


def report(found: list[Verdict], shown: int = 40) -> str:
    """The table of a run, as Markdown."""
    counts = Counter(v.outcome for v in found)
    methods = Counter(v.cell.method.split(":")[0] for v in found)
    seconds = [v.seconds for v in found if not math.isnan(v.seconds)]
    lines = ["# Campaign", "", "Every stored cell by `evaluate`, against references to 30 digits."]
    lines += ["Written by `python -m benchmarks.campaign.run`.", ""]
    lines += ["| outcome | cells |", "| --- | ---: |", f"| all | {len(found)} |"]
    lines += [f"| {name} | {counts[name]} |" for name in OUTCOMES]
    lines += ["", "References: " + ", ".join(f"{n} {m}" for m, n in methods.most_common()) + "."]
    if seconds:
        middle, most = float(np.median(seconds)), max(seconds)
        lines.append(f"Seconds a cell: median {middle:.3f}, at most {most:.2f}.")
    reasons = Counter(v.reason for v in found if v.outcome == "refused")
    if reasons:
        lines += ["", "## Refusals of cells that have a value", "", "| reason | cells |"]
        lines += ["| --- | ---: |", *(f"| {r} | {n} |" for r, n in reasons.most_common())]
    return "\n".join([*lines, *_failures(found, shown), *_distribution(found), ""])


def sample(cells: list[Cell], count: int) -> list[Cell]:
    """So many cells, evenly spread over the list; always the same."""
    if count >= len(cells):
        return cells
    return [cells[int(i)] for i in np.linspace(0, len(cells) - 1, count).round()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--sample", type=int, default=None, help="so many cells, evenly spread")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds a cell")
    parser.add_argument("--out", type=Path, default=FILE.with_suffix(".md"), help="the report")
    options = parser.parse_args()
    cells = load()
    found = verdicts(sample(cells, options.sample or len(cells)), options.limit)
    text = report(found)
    options.out.write_text(text, encoding="utf-8")
    print(text)
    return 1 if any(v.outcome in FAILURES for v in found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
