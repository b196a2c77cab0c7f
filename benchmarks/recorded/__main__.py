"""The table of recorded errors.

python -m benchmarks.recorded references   # of questions that have none; goes on where stopped
python -m benchmarks.recorded search       # worst cases, which join the table; likewise
python -m benchmarks.recorded record       # the errors of today, anew, and the page
"""

from __future__ import annotations

import argparse
import fcntl
import math
import time
from collections import Counter
from pathlib import Path

from tqdm import tqdm

from benchmarks.campaign.limits import NoReference
from benchmarks.recorded import naive
from benchmarks.recorded.cells import FILE, Cell, ask, extended_error, load, save
from benchmarks.recorded.inputs import questions
from benchmarks.recorded.page import PAGE, page
from benchmarks.recorded.references import reference
from benchmarks.recorded.search import find_worst, spaces
from sparsity.errors import InputError

_SAVED_EVERY = 20.0  # seconds


def _measure(cell: Cell) -> None:
    """Set the error of a cell that has a reference, and the bound on it."""
    value, cell.bound = ask(cell)
    cell.error = extended_error(value, cell.reference, cell.unit)
    if cell.error > cell.bound:
        tqdm.write(f"BEYOND ITS BOUND: {cell.key}: {cell.error:.1e} > {cell.bound:.1e}")


def _answer(cell: Cell) -> str:
    """Set reference and error of a cell; return why there are none, or nothing."""
    try:
        cell.reference = reference(cell)
        if not cell.reference:
            return "no reference"
        _measure(cell)
    except (InputError, NoReference, ArithmeticError) as reason:
        return type(reason).__name__
    return ""


def _join(cells: list[Cell]) -> None:
    """Add cells to the table, in the place of those with the same question."""
    with Path(__file__).open() as lock:  # another command may be at it
        fcntl.flock(lock, fcntl.LOCK_EX)
        save({cell.key: cell for cell in (*load(), *cells)}.values())


def find_references(part: str) -> None:
    """Fill in what has no reference."""
    known, found = {cell.key for cell in load()}, []
    new = [cell for cell in questions() if cell.key not in known and part in cell.member]
    out: Counter[str] = Counter()
    saved = time.monotonic()
    for cell in (bar := tqdm(new, mininterval=5)):
        bar.set_description(cell.member, refresh=False)
        if why := _answer(cell):
            out[f"{cell.member}: {why}"] += 1
            continue
        naive.compare(cell)
        found.append(cell)
        if time.monotonic() - saved > _SAVED_EVERY:
            _join(found)
            saved = time.monotonic()
    _join(found)
    print(f"{len(load())} cells in {FILE.name}, {FILE.stat().st_size / 1e3:.0f} kB")
    for reason, count in sorted(out.items()):
        print(f"left out: {count} of {reason}")


def search(part: str) -> None:
    """Search the spaces that have not been searched, and add the worst case of each."""
    done = {cell.member for cell in load() if cell.evaluations}
    new = [space for space in spaces() if space.member not in done and part in space.member]

    def error_of(cell: Cell) -> float:
        return -math.inf if _answer(cell) else cell.error

    for space in tqdm(new, mininterval=1):
        started = time.process_time()
        worst, refused = find_worst(space, error_of)
        worst.evaluations = space.budget
        naive.compare(worst)
        tqdm.write(
            f"{space.member:40} {worst.error:.1e}, bound {worst.bound:.1e}, of {space.budget}, "
            f"{refused} refused, {time.process_time() - started:.0f} CPU s: {worst.asked}"
        )
        _join([worst])


def record() -> None:
    """Measure all errors anew, those of what is no longer asked left out, and write the page."""
    asked = {cell.key for cell in questions()}
    cells = [cell for cell in load() if cell.evaluations or cell.key in asked]
    for cell in tqdm(cells, mininterval=5):
        _measure(cell)
        if math.isnan(cell.scipy):  # these do not depend on the library
            naive.compare(cell)
    save(cells)
    PAGE.write_text(page(load()), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recorded", description=__doc__)
    parser.add_argument("what", choices=("references", "search", "record"))
    parser.add_argument("--only", default="", help="members with this in their name")
    options = parser.parse_args()
    if options.what == "record":
        record()
    else:
        {"references": find_references, "search": search}[options.what](options.only)


if __name__ == "__main__":
    main()
