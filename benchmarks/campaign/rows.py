"""Holds exact laws of rows of n against their definition, over rows drawn at random.

    python -m benchmarks.campaign.rows [--cells N] [--seed K] [--minutes M] [--out FILE]

A cell agrees where the answer is within its own bound of brute force, or within 5 standard errors
of a sample. Cells that were judged before are kept beside the report and not asked again. Exit
status 1 where there is a silent violation, a crash, or an answer that takes over 10 CPU seconds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import resource
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from benchmarks.campaign import map_reference, row_reference
from benchmarks.campaign.judge import _short
from benchmarks.campaign.row_cells import Cell, draw, row_of
from benchmarks.campaign.row_reference import Mean, tokens_of
from benchmarks.campaign.run import FAILURES
from benchmarks.campaign.worker import Died, Late, Worker

__all__ = ["Verdict", "ask", "holds", "judge", "judged", "reference", "report"]

FILE = Path(__file__).parents[1] / "results" / "campaign_rows.md"
LIMIT = 10.0  # CPU seconds of an answer
MEMORY = 6 * 2**30  # bytes that an answer may take
SPARE = 4.0  # times what the rules of the brute force differ by
ROUGH = 1e-5  # relative error of brute force from which a sample judges
ROUNDING = 2e-13  # of the reference, relative; and absolute of what is 1 minus something
FIRST, THRESHOLD = 4.0, 5.0  # standard errors: where a larger sample is drawn; where it convicts
OUTCOMES = ("agreed", *FAILURES, "refused", "unjudged")
NEAR_ZERO = ("hoyer", "gini", "kl_uniform")


class Verdict(NamedTuple):
    """One cell, judged.

    Args:
        cell: what was asked.
        outcome: one of `OUTCOMES`.
        reason: of a refusal or a crash.
        value: the library's.
        bound: on its relative error.
        mean: the reference's.
        error: of the reference: what it is uncertain by.
        sampled: whether the reference is a sample.
        seconds: of CPU time.
    """

    cell: Cell
    outcome: str
    reason: str = ""
    value: float = math.nan
    bound: float = math.nan
    mean: float = math.nan
    error: float = math.nan
    sampled: bool = False
    seconds: float = math.nan

    @property
    def line(self) -> str:
        return json.dumps([self.cell.key, *self[1:]])

    @classmethod
    def of_line(cls, line: str) -> Verdict:
        key, *others = json.loads(line)
        return cls(Cell.of_key(key), *others)


def ask(key: str) -> tuple[float | None, float, str, str, float]:
    """The library's answer: value, bound, why it was refused, how it crashed, CPU seconds."""
    from sparsity import exact
    from sparsity.errors import InputError

    warnings.simplefilter("ignore")
    cell, start = Cell.of_key(key), time.process_time()
    reason = crash = ""
    value, bound = None, math.nan
    try:
        found = exact(row_of(cell), length=cell.length, of=cell.of)
        value, bound = float(found.value), float(found.error_bound)
    except InputError as error:
        reason = f"{error.argument}: {_short(error.fix)}"
    except Exception as error:  # noqa: BLE001  # whatever it is, it is counted
        crash = f"{type(error).__name__}: {error}"[:120]
    return value, bound, reason, crash, time.process_time() - start


def _served(key: str) -> Any:
    """`ask`, in a process whose memory is limited."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    return ask(key)


def reference(cell: Cell, sampled: bool, times: int = 1) -> Mean | None:
    """The mean by brute force (None where that is out of reach), or by a sample."""
    seed = cell.seed * 64 + times
    if cell.mapped:
        own = (cell.kernel, cell.parameters, cell.length, cell.of)
        if sampled:
            return map_reference.by_sampling(*own, seed, times)
        return map_reference.by_nodes(*own)
    beta, gamma = (cell.parameters[name] for name in ("beta", "gamma"))
    tokens = tokens_of(beta, gamma, cell.steps, cell.length)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if sampled:
            own = (cell.kernel, cell.scores, tokens, cell.of)
            return row_reference.by_sampling(*own, seed, times)
        return row_reference.by_nodes(cell.kernel, cell.scores, tokens, cell.of)


def holds(cell: Cell, value: float, bound: float, mean: Mean) -> bool:
    """Whether a value is within its bound of the reference, as far as that is known."""
    gap, own = abs(value - mean.value), bound * abs(value)
    rounding = ROUNDING * (1.0 if cell.of in NEAR_ZERO else abs(mean.value))
    if mean.sampled:
        return gap <= THRESHOLD * math.hypot(mean.error, own) + rounding  # a NaN holds nothing
    return gap <= own + SPARE * mean.error + rounding


def judge(cell: Cell, answer: Any) -> Verdict:
    """Hold an answer, as of `ask`, against the reference."""
    value, bound, reason, crash, seconds = answer
    if crash:
        return Verdict(cell, "crashed", crash, seconds=seconds)
    if seconds > LIMIT:
        return Verdict(cell, "late", reason, seconds=seconds)
    if value is None:
        return Verdict(cell, "refused", reason, seconds=seconds)
    mean = reference(cell, False)
    if mean is None or not mean.error <= ROUGH * abs(mean.value):
        mean = reference(cell, True)
        assert mean is not None
        off = abs(value - mean.value) > FIRST * math.hypot(mean.error, bound * value)
        if off:  # another sample, sixteen times as large, decides alone
            mean = reference(cell, True, times=16)
            assert mean is not None
    known = math.isfinite(mean.error) and not math.isnan(mean.value)
    agrees = holds(cell, value, bound, mean)
    outcome = "unjudged" if not known else "agreed" if agrees else "violated"
    return Verdict(cell, outcome, "", value, bound, *mean, seconds)


def judged(cells: Iterable[Cell], until: float = math.inf) -> Iterable[Verdict]:
    """Each cell asked in a process of its own and judged, until a time of the clock."""
    warm = Cell("exp", {"beta": 0.0, "gamma": 1.0}, (), None, 8, "n_eff", 0).key
    worker = Worker(_served, (warm,))
    counts: Counter[str] = Counter()
    try:
        for cell in (bar := tqdm(list(cells), mininterval=5)):
            if time.time() > until:
                return
            try:
                verdict = judge(cell, worker(3 * LIMIT, cell.key))
            except Late:
                verdict = Verdict(cell, "late")
            except Died as error:
                verdict = Verdict(cell, "crashed", str(error))
            counts[verdict.outcome] += 1
            bar.set_postfix({name: counts[name] for name in FAILURES}, refresh=False)
            yield verdict
    finally:
        worker.close()


def _table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> list[str]:
    lines = [head, ("---",) * len(head), *rows]
    return ["", *("| " + " | ".join(map(str, line)) + " |" for line in lines)]


def _shown(v: Verdict) -> tuple[Any, ...]:
    numbers = f"{v.value:.12g}", f"{v.bound:.1e}", f"{v.mean:.12g}", f"{v.error:.1e}"
    return v.outcome, v.cell, v.cell.length, v.cell.of, *numbers, v.reason


def report(found: list[Verdict]) -> str:
    """The table of a run, as Markdown."""
    counts = Counter(v.outcome for v in found)
    lines = ["# Campaign over rows of n", "", "Exact laws against their definition, over kernels,"]
    lines += ["maps, steps, laws of scores, quantities and lengths drawn at random. Written by"]
    lines += ["`python -m benchmarks.campaign.rows`."]
    lines += _table(
        ("outcome", "cells"), [("all", len(found)), *((x, counts[x]) for x in OUTCOMES)]
    )
    held = [v for v in found if v.outcome in ("agreed", "violated")]
    brute = np.array([max(v.error, 0.0) / abs(v.mean or 1) for v in held if not v.sampled])
    edges = (0.0, 1e-12, 1e-9, ROUGH)
    rows = [
        (f"brute force, known to {high:g}", int(((brute >= low) & (brute < high)).sum()))
        for low, high in itertools.pairwise(edges)
    ]
    lines += _table(("judged by", "cells"), [*rows, ("a sample", sum(v.sampled for v in held))])
    of = Counter(v.cell.of.partition(":")[0] for v in held)
    lines += _table(("quantity", "cells judged"), of.most_common())
    seconds = [v.seconds for v in found if not math.isnan(v.seconds)]
    if seconds:
        lines += [
            "",
            f"CPU seconds a cell: median {np.median(seconds):.3f}, most {max(seconds):.2f}.",
        ]
    reasons = Counter(v.reason for v in found if v.outcome == "refused")
    lines += _table(("refused", "cells"), reasons.most_common())
    bad = [v for v in found if v.outcome in FAILURES]
    if bad:
        head = ("", "row", "n", "of", "value", "bound", "reference", "±", "")
        lines += _table(head, map(_shown, bad))
    return "\n".join([*lines, ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so many")
    parser.add_argument("--out", type=Path, default=FILE, help="the report")
    options = parser.parse_args()
    cells, kept = draw(options.cells, options.seed), options.out.with_suffix(".jsonl")
    lines = kept.read_text(encoding="utf-8").splitlines() if kept.exists() else []
    known = {verdict.cell.key: verdict for verdict in map(Verdict.of_line, lines)}
    with kept.open("a", encoding="utf-8") as file:
        new = [cell for cell in cells if cell.key not in known]
        for verdict in judged(new, time.time() + 60 * options.minutes):
            known[verdict.cell.key] = verdict
            print(verdict.line, file=file, flush=True)
    found = [known[cell.key] for cell in cells if cell.key in known]
    text = report(found)
    options.out.write_text(text, encoding="utf-8")
    print(text)
    return 1 if any(v.outcome in FAILURES for v in found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
