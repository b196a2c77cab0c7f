"""Everything in one folder: figures, cross-check, claims, and the page of them all."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparsity import claims_ledger as ledger
from sparsity import report, rounding
from sparsity.checks import check_seed
from sparsity.crosscheck.outcome import CrossCheck
from sparsity.crosscheck.verify import verify
from sparsity.output import folder, json_ready, json_text, write, write_together
from sparsity.plots import browser
from sparsity.report import figures
from sparsity.report.checking import Check, compare_folders
from sparsity.tasks import TaskExecutor

UNFINISHED = "Not finished"  # how index.html begins while a run is under way
CROSSCHECK, CLAIMS, ENVIRONMENT = "crosscheck.json", "claims.json", "environment.json"
EXPLORE = "explore.html"  # the page with sliders, which index.html links
# The parts, with their shares of the progress bar in per cent: roughly of the work.
_PARTS = {"figures": 25.0, "cross-check": 55.0, "claims": 20.0}


def record(crosscheck: CrossCheck) -> dict[str, Any]:
    """Return the record of a cross-check, without seconds: the same bytes again."""
    cells = [asdict(cell) for cell in (*crosscheck.cells, *crosscheck.exact)]
    for cell in cells:
        cell.get("estimate", {}).pop("seconds", None)
    return crosscheck.summary() | {"cells": cells}


@dataclass(frozen=True)
class Reproduction:
    """A run of `reproduce`.

    Args:
        out: the folder.
        files: everything written, in order.
        crosscheck: the cross-check.
        claims: the judged claims.
        seconds: when each part was done, counted from the start.
    """

    out: Path
    files: tuple[Path, ...]
    crosscheck: CrossCheck
    claims: list[dict[str, Any]]
    seconds: dict[str, float]

    @property
    def agree(self) -> bool:
        """Whether every comparison of the cross-check agreed."""
        return self.crosscheck.agree

    def compared_with(self, folder: str | os.PathLike[str]) -> Check:
        """Return what each file is beside that of another run: same, same to rounding, or other.

        Raises:
            InputError: no folder of a run.
        """
        return compare_folders(Path(folder), self.out, [path.name for path in self.files])

    def summary(self) -> dict[str, Any]:
        """Return the outcome in JSON's types."""
        return {
            "agree": self.agree,
            "out": str(self.out),
            "files": [path.name for path in self.files],
            "crosscheck": self.crosscheck.summary(),
            "claims": {record["key"]: record["verdict"] for record in self.claims},
            "seconds": {name: round(value, 1) for name, value in self.seconds.items()},
        }

    def text(self) -> str:
        """Return the outcome for a terminal."""
        judged = [f"  {record['verdict']:<10} {record['claim']}" for record in self.claims]
        done = ", ".join(f"{name} {value:.1f} s" for name, value in self.seconds.items())
        lines = [self.crosscheck.text(), "", "Claims:", *judged, ""]
        lines += [
            f"Done after: {done}",
            f"Everything is in {self.out}; open {self.out / 'index.html'}",
        ]
        return "\n".join(lines)


def run_side_by_side(
    works: Sequence[Callable[[Callable[[int, int], None]], Any]],
    progress: Callable[[int, int], None] | None,
) -> tuple[list[Any], dict[str, float]]:
    """Run the parts two at a time; return their results, and the seconds until each was done.

    Args:
        works: for each of `_PARTS`, called with its own (steps done, steps in all) to report to.
        progress: called with (per cent done, 100).
    """
    started = time.perf_counter()
    seconds, done, stop = {}, dict.fromkeys(_PARTS, 0.0), threading.Event()

    def run(name: str, work: Callable[..., Any]) -> Any:
        # A thread cannot be ended from outside: each part ends itself at its next step.
        def step(count: int, total: int) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            done[name] = _PARTS[name] * count / total
            if progress is not None:
                progress(round(sum(done.values())), 100)

        step(0, 1)
        result = work(step)
        seconds[name] = time.perf_counter() - started
        return result

    # Two: drawing is Python on one core, sampling uses all of them.
    with ThreadPoolExecutor(2) as pool:
        parts = [pool.submit(run, *part) for part in zip(_PARTS, works, strict=True)]
        try:
            for part in as_completed(parts):
                part.result()
            return [part.result() for part in parts], seconds
        finally:  # after an error or Ctrl-C
            stop.set()


def reproduce(
    out: str | os.PathLike[str] = "figures",
    *,
    seed: int = 0,
    executor: TaskExecutor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Reproduction:
    """Draw every figure, cross-check every route, judge every claim, and write one page of it.

    Writes NAME.svg, NAME.png and NAME.csv of each figure, crosscheck.json, claims.json,
    environment.json, index.html and explore.html, a page with sliders. Each file is written whole
    or not at all.

    Args:
        out: the folder, made if need be.
        seed: of everything sampled.
        executor: where figures, cells and claims are computed, as in `sweep`; the same bytes
            likewise. None is here.
        progress: called with (steps done, steps in all).

    Raises:
        InputError: the folder cannot be written to, or a bad seed.
    """
    check_seed(seed)
    out, started = folder(out), time.perf_counter()
    # A folder that cannot be written to is refused now rather than after the work. And should the
    # run be killed, no page of an earlier run stands beside half of this one's files.
    write(out / "index.html", f"{UNFINISHED}: run `sparsity reproduce` to the end.\n")
    works = (
        lambda step: figures.write_all(out, seed=seed, executor=executor, progress=step),
        lambda step: verify(seed=seed, executor=executor, progress=step),
        lambda step: ledger.claims(seed=seed, executor=executor, progress=step),
    )
    (plates, crosscheck, claims), seconds = run_side_by_side(works, progress)
    # The page follows from the numbers that are written, which are the same on every processor.
    crosscheck = crosscheck.rounded()
    claims = rounding.record(json_ready(claims), digits=rounding.DIGITS_OF_DRAWS)
    environment = report.environment(seed)
    contents = {
        CROSSCHECK: json_text(record(crosscheck)),
        CLAIMS: json_text(claims),
        ENVIRONMENT: json_text(environment),
        EXPLORE: browser.html(browser.Start()),
        "index.html": report.render(plates, crosscheck, claims, environment),
    }
    write_together({out / name: content for name, content in contents.items()})
    names = [f"{plate.name}.{suffix}" for plate in plates for suffix in plate.files]
    files = tuple(out / name for name in (*names, *contents))
    seconds["in all"] = time.perf_counter() - started
    return Reproduction(out, files, crosscheck, claims, seconds)
