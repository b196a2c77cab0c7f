"""The table of recorded errors.

    python -m benchmarks.recorded references   # of questions that have none; goes on where stopped
    python -m benchmarks.recorded search       # worst cases, which join the table
    python -m benchmarks.recorded record       # the errors of today, anew, and the page
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import Counter
from dataclasses import asdict, astuple
from typing import Any

from tqdm import tqdm

from benchmarks.campaign.limits import NoReference
from benchmarks.recorded.cells import FILE, Cell, ask, extended_error, load, save
from benchmarks.recorded.inputs import questions
from benchmarks.recorded.naive import by_mpmath, by_scipy
from benchmarks.recorded.references import reference
from benchmarks.recorded.search import Space, find_worst, spaces
from sparsity.errors import InputError

_SAVED_EVERY = 20.0  # seconds
SEARCHED = FILE.with_name("recorded_search.json")


def _measured(cell: Cell) -> bool:
    """Set the error of a cell with a reference; return whether the library answers it."""
    try:
        value, cell.bound = ask(cell.asked)
    except InputError as refusal:
        tqdm.write(f"{cell.key}: {refusal}")
        return False
    cell.error = extended_error(value, cell.reference, cell.unit)
    if cell.error > cell.bound:
        tqdm.write(f"BEYOND ITS BOUND: {cell.key}: {cell.error:.1e} > {cell.bound:.1e}")
    return True


def find_references(part: str) -> int:
    """Fill in what has no reference; refused questions, and those without a value, stay out."""
    known = {cell.key: cell for cell in load()}
    new = [cell for cell in questions() if cell.key not in known and part in cell.member]
    out: Counter[str] = Counter()
    saved = time.monotonic()
    try:
        for cell in (bar := tqdm(new, mininterval=5)):
            bar.set_description(cell.member, refresh=False)
            try:
                ask(cell.asked)
                cell.reference = reference(cell)
            except (InputError, NoReference, ArithmeticError) as reason:
                out[f"{cell.member}: {type(reason).__name__}"] += 1
                continue
            if cell.reference and _measured(cell):
                known[cell.key] = cell
            if time.monotonic() - saved > _SAVED_EVERY:
                save(known.values())
                saved = time.monotonic()
    finally:
        save(known.values())
    print(f"{len(known)} cells in {FILE.name}, {FILE.stat().st_size / 1e3:.0f} kB")
    for reason, count in sorted(out.items()):
        print(f"left out: {count} of {reason}")
    return 0


def _found(space: Space) -> dict[str, Any]:
    """Search one space: the worst error, where, and the plain formulas' in the same places."""
    naive: dict[str, list[float]] = {"scipy": [], "mpmath": []}
    beyond = 0
    started = time.monotonic()

    def error_of(cell: Cell) -> float:
        nonlocal beyond
        try:
            value, cell.bound = ask(cell.asked)
            cell.reference = reference(cell)
        except (InputError, NoReference, ArithmeticError):
            return -math.inf
        if not cell.reference:
            return -math.inf
        cell.error = extended_error(value, cell.reference, cell.unit)
        beyond += cell.error > cell.bound
        if cell.member.startswith("closed form"):
            for name, of in (("scipy", by_scipy), ("mpmath", by_mpmath)):
                naive[name].append(extended_error(of(cell.asked), cell.reference, cell.unit))
        return cell.error

    cell, worst, refused = find_worst(space, error_of)
    return {
        "member": space.member, "axes": [astuple(axis) for axis in space.axes],
        "asked": space.budget, "refused": refused, "beyond": beyond, "worst": worst,
        **{name: sorted(errors)[-1] for name, errors in naive.items() if errors},
        **{f"{name}_median": sorted(errors)[len(errors) // 2] for name, errors in naive.items()
           if errors},
        "seconds": round(time.monotonic() - started, 1), "cell": asdict(cell),
    }  # fmt: skip


def search(part: str) -> int:
    """Search the spaces that have not been searched, one after the other."""
    found = json.loads(SEARCHED.read_text("utf-8")) if SEARCHED.exists() else []
    done = {each["member"] for each in found}
    new = [space for space in spaces() if space.member not in done and part in space.member]
    for space in (bar := tqdm(new, mininterval=1)):
        bar.set_description(space.member)
        found.append(_found(space))
        last = found[-1]
        tqdm.write(f"{space.member:40} {last['worst']:.1e} of {last['asked']}, {last['seconds']} s")
        if last["beyond"]:
            tqdm.write(f"BEYOND ITS BOUND {last['beyond']} times: {last['cell']}")
        spare = SEARCHED.with_suffix(".tmp")
        spare.write_text("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n", "utf-8")
        spare.replace(SEARCHED)
    return 0


def record() -> int:
    """Measure all errors anew, those of the worst cases found as well."""
    cells = load()
    known = {cell.key for cell in cells}
    found = json.loads(SEARCHED.read_text("utf-8")) if SEARCHED.exists() else []
    worst = [Cell(**{**each["cell"], "origin": "found"}) for each in found]
    cells += [cell for cell in worst if cell.key not in known]
    answered = [cell for cell in tqdm(cells, mininterval=5) if _measured(cell)]
    save(cells)
    return 0 if len(answered) == len(cells) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("what", choices=("references", "search", "record"))
    parser.add_argument("--only", default="", help="members with this in their name")
    options = parser.parse_args()
    if options.what == "references":
        return find_references(options.only)
    return search(options.only) if options.what == "search" else record()


if __name__ == "__main__":
    raise SystemExit(main())
