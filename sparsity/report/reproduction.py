"""Everything in one folder: figures, cross-check, claims; and the page again from those files."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from sparsity import browser, figures, report
from sparsity import claims_ledger as ledger
from sparsity.arguments import check_seed
from sparsity.crosscheck.outcome import Cell, CrossCheck, ExactCell
from sparsity.crosscheck.verify import verify
from sparsity.errors import InputError
from sparsity.figures import Plate
from sparsity.output import folder, json_text, require_regular_file, write, write_together
from sparsity.reading import json_file
from sparsity.results import Estimate
from sparsity.tasks import TaskExecutor, cores

UNFINISHED = "Not finished"  # how index.html begins while a run is under way
CROSSCHECK, CLAIMS, ENVIRONMENT = "crosscheck.json", "claims.json", "environment.json"
EXPLORE = "explore.html"  # the page with sliders, which index.html links


def _read(path: Path, reader: Callable[[Path], Any]) -> Any:
    """Return what a function reads from a file of an earlier run.

    Raises:
        InputError: the file cannot be read, or is not JSON.
    """
    try:
        return reader(path)
    except OSError as error:
        raise InputError("out", path, "cannot be read; `sparsity reproduce` writes it") from error
    except ValueError as error:
        fix = "is not JSON; run `sparsity reproduce` to write it again"
        raise InputError("out", path, fix) from error


def _parse_cell(record: dict[str, Any]) -> Cell | ExactCell:
    """Return one comparison of a cross-check from its record."""
    # JSON has lists for tuples. Its record of an estimate has properties beside the fields.
    told: dict[str, Any] = record | {"instruments": tuple(record["instruments"])}
    if "estimate" not in record:
        told["values"] = tuple(record["values"])
        return ExactCell(**told)
    known = {field.name for field in fields(Estimate)}
    given = {name: value for name, value in record["estimate"].items() if name in known}
    given["seconds"] = math.nan  # which are not recorded
    told["estimate"] = Estimate(**given)
    return Cell(**told)


def crosscheck(found: dict[str, Any]) -> CrossCheck:
    """Return the outcome of `verify` from its record."""
    cells = [_parse_cell(record) for record in found["cells"]]
    return CrossCheck(
        agree=found["agree"],
        cells=tuple(cell for cell in cells if isinstance(cell, Cell)),
        exact=tuple(cell for cell in cells if isinstance(cell, ExactCell)),
        false_alarm_rate=found["false_alarm_rate"],
        smallest_detectable=found["smallest_detectable"],
        seed=found["seed"],
        left_out=tuple(found["left_out"]),
    )


def record(found: CrossCheck) -> dict[str, Any]:
    """Return the record of a cross-check, without seconds: the same bytes again."""
    cells = [asdict(cell) for cell in (*found.cells, *found.exact)]
    for cell in cells:
        cell.get("estimate", {}).pop("seconds", None)
    return found.summary() | {"cells": cells}


def plates(folder: Path) -> list[Plate]:
    """Return the figures from their files; titles and captions are those of this version."""
    return [
        Plate(
            *(figure.name, figure.title, figure.caption, figure.alt),
            {
                suffix: _read(folder / f"{figure.name}.{suffix}", Path.read_bytes)
                for suffix in ("svg", "csv")
            },
        )
        for figure in figures.ALL
    ]


def page(folder: str | os.PathLike[str]) -> Path:
    """Write index.html again from the figures, cross-check and claims in the folder.

    The page with sliders beside it is written too.

    Args:
        folder: where `reproduce` wrote them.

    Returns:
        The page.

    Raises:
        InputError: one of the files is not there, or cannot be read.
    """
    home = Path(folder)
    for file in home.glob("*"):
        require_regular_file(file, "out")
    last = home / "index.html"
    if last.exists() and last.read_bytes().startswith(UNFINISHED.encode()):
        fix = "its last run did not finish; run `sparsity reproduce` to the end"
        raise InputError("out", home, fix)
    drawn = plates(home)
    check, records, meta = (
        _read(home / name, json_file) for name in (CROSSCHECK, CLAIMS, ENVIRONMENT)
    )
    try:
        told, seed = crosscheck(check), str(meta["seed"])
        judged = [record["key"] for record in records]
        whole = told.cells and told.exact and seed == str(told.seed)
        if not whole or judged != [claim.key for claim in ledger.ALL]:
            fix = "its files are not of one whole run of this version; run `sparsity reproduce`"
            raise InputError("out", home, fix)
        sliders = browser.html(browser.Start())
        written = {home / EXPLORE: sliders, last: report.render(drawn, told, records, meta)}
        write_together(written)
    except InputError:
        raise
    # JSON of the wrong shape, edited or from another version, fails anywhere and in any way.
    except Exception as error:
        fix = f"its files cannot be used ({type(error).__name__}); run `sparsity reproduce`"
        raise InputError("out", home, fix) from error
    return last


# The parts, with their shares of the progress bar in per cent: roughly of the work.
_PARTS = {"figures": 25.0, "cross-check": 55.0, "claims": 20.0}


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
    """Run the parts at once; return their results, and the seconds after which each was done.

    Args:
        works: for each of `_PARTS`, called with its own (steps done, steps in all) to report to.
        progress: called with (per cent done, 100).
    """
    started = time.perf_counter()
    seconds, steps, stop = {}, dict.fromkeys(_PARTS, 0.0), threading.Event()
    failed: list[BaseException] = []

    def timed(name: str, work: Callable[..., Any]) -> Any:
        # A thread cannot be ended from outside: each part ends itself at its next step.
        def step(done: int, total: int) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            steps[name] = _PARTS[name] * done / total
            if progress is not None:
                progress(round(sum(steps.values())), 100)

        step(0, 1)  # a part that waited for its turn while another failed does not begin
        try:
            result = work(step)
        except BaseException as error:
            # Here and not where it is waited for: this thread takes up the next part sooner, which
            # happened on Python 3.13. The first error is why the others end.
            failed.append(error)
            stop.set()
            raise
        seconds[name] = time.perf_counter() - started
        return result

    # Drawing is Python on one core, compiling and sampling are not. A part has threads of its own:
    # with more parts than cores they wait for each other, which took a fourteenth of the work.
    with ThreadPoolExecutor(min(len(_PARTS), max(cores(), 2))) as pool:
        try:
            parts = [pool.submit(timed, *part) for part in zip(_PARTS, works, strict=True)]
            wait(parts, return_when=FIRST_EXCEPTION)
            if failed:
                raise failed[0]
            return [part.result() for part in parts], seconds
        except BaseException:  # Ctrl-C included: the other parts end at their next step
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


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
        lambda step: ledger.claims(seed, executor=executor, progress=step),
    )
    (plates, crosscheck, claims), seconds = run_side_by_side(works, progress)
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
