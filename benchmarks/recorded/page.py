"""The page with the table: for each member how many inputs, the worst of them, the worst found."""

from __future__ import annotations

import math

from benchmarks.recorded.cells import FILE, LEAST, MULTIPLE, Cell

PAGE = FILE.with_name("recorded_errors.md")

_HEAD = f"""# Recorded errors

What every closed form, limit, quadrature, transform and exact law is off by, held against
references of 30 digits that are computed without the library: `benchmarks/recorded` writes kernels,
laws and maps anew, in ball arithmetic (Arb) and in mpmath. No bound for all would see a route lose
digits that it has, so the tests hold each input to {MULTIPLE:g} times the error recorded here. No
error counts as less than the median of its member, or than {LEAST:.1e}, half a unit in the last
place: an input that happens to be exact may be off by a rounding on another processor.

The error is relative; of log S by quadrature, or of a map, it is |Δ log S| / max(1, |log S|). The
worst of each member is also *searched*: boxes of its parameters are halved where the greatest error
was found, every third time the largest box, for as many evaluations as the table says. What was
found is an input from then on. Members without a number there have references that take seconds.

The last two columns are what one would type instead, in the same places: the published formula in
float64 with `scipy.special`, or `scipy.integrate.quad` of the definition; and the same in mpmath at
its 15 digits. 1.8e+308 stands for an overflow, ∞ for no number.

Written by `python -m benchmarks.recorded record`.

| member | inputs | worst recorded | worst searched | evaluations | SciPy | mpmath |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""


def _shown(errors: list[float]) -> str:
    """Return the greatest of the errors that there are."""
    worst = max((x for x in errors if not math.isnan(x)), default=math.nan)
    return "" if math.isnan(worst) else "∞" if math.isinf(worst) else f"{worst:.1e}"


def page(cells: list[Cell]) -> str:
    """Return the page of a table of cells."""
    by_member: dict[str, list[Cell]] = {}
    for cell in cells:
        by_member.setdefault(cell.member, []).append(cell)
    lines = []
    for member, own in by_member.items():
        evaluations = sum(cell.evaluations for cell in own)
        columns = (
            *(member, len(own), _shown([cell.error for cell in own if not cell.evaluations])),
            _shown([cell.error for cell in own if cell.evaluations]),
            f"{evaluations:,}" if evaluations else "",
            *(_shown([cell.scipy for cell in own]), _shown([cell.mpmath for cell in own])),
        )
        lines.append(f"| {' | '.join(map(str, columns))} |")
    spent = sum(cell.evaluations for cell in cells)
    total = (
        f"{len(cells):,} inputs of {len(by_member)} members; {spent:,} evaluations of the search."
    )
    return _HEAD + "\n".join(lines) + f"\n\n{total}\n"
