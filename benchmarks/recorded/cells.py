"""A cell: what is asked of the library, the reference, and the error of today."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import statistics
import sys
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import mpmath
import numpy as np

FILE = Path(__file__).parent.parent / "results" / "recorded_errors.csv.gz"
# How many times the recorded error a cell may be off: another processor or libm rounds otherwise,
# and one operation in another order moves an error by a factor of a few, but not by two digits.
MULTIPLE = 8.0
# No recorded error counts as less than half a unit in the last place, by which rounding the answer
# alone is off. With `MULTIPLE` the floor is four units in the last place.
LEAST = 2.0**-53
CLOSED_FORMS = ("exp", "relu2", "identity", "abs", "nonnegative", "decayed")
_DIGITS = 50  # an error is computed with: the references have 30 or more


@dataclass
class Cell:
    """One question.

    Args:
        asked: the call of the library, as `ask` takes it.
        reference: decimal of 30 digits or more; "" before it is known.
        error: of today; NaN before it is known.
        bound: that the library states with the answer, in the same unit.
        scipy, mpmath: the errors of plain formulas (`naive`); NaN where there are none.
        evaluations: that the search spent to find this worst case; 0 of a cell that was chosen.
    """

    asked: dict[str, Any]
    reference: str = ""
    error: float = math.nan
    bound: float = math.nan
    scipy: float = math.nan
    mpmath: float = math.nan
    evaluations: int = 0

    @property
    def key(self) -> str:
        """The question as text."""
        return json.dumps(self.asked, sort_keys=True)

    @property
    def member(self) -> str:
        """The route that answers, such as "closed form: relu2"."""
        kernel, of = self.asked["kernel"], self.asked.get("of", "S").partition(":")[0]
        step = "".join(f" with {name}" for name, _ in self.asked.get("steps", []))
        if self.asked["call"] == "laplace":
            return f"transform: {kernel}"
        if self.asked["call"] == "exact":
            return f"exact law: {of} of {kernel}{step}"
        if "method" in self.asked:
            return f"quadrature: {kernel}"
        if of != "S":
            return f"limit: {of}"
        closed = kernel in CLOSED_FORMS and not step
        return f"{'closed form' if closed else 'limit'}: {kernel}{step}"

    @property
    def unit(self) -> str:
        """The error is "relative", or "log": of a logarithm l, over max(1, |l|)."""
        of_S = self.asked["call"] == "evaluate" and self.asked.get("of", "S") == "S"
        return "log" if of_S and not self.member.startswith("closed form") else "relative"


_NUMBERS = ("error", "bound", "scipy", "mpmath")


def extended_error(value: float, reference: str, unit: str = "relative") -> float:
    """Return |value − reference| over the reference: finite for 0 and ∞, and never NaN.

    Beside a reference of 0 the difference is taken over the least normal number; an infinite value
    counts as the largest finite one, and one that is no number is off by ∞.

    Args:
        value: of the library.
        reference: decimal, "inf" or "-inf".
        unit: as of a `Cell`.
    """
    largest, least = sys.float_info.max, sys.float_info.min
    if math.isnan(value):
        return math.inf
    with mpmath.workdps(_DIGITS):
        truth = mpmath.mpf(reference)
        if truth == value:
            return 0.0
        if mpmath.isinf(truth):
            truth = mpmath.mpf(math.copysign(largest, float(truth)))
        off = abs(mpmath.mpf(max(-largest, min(largest, value))) - truth)
        size = max(abs(truth), 1 if unit == "log" else mpmath.mpf(least))
        return float(min(off / size, largest))


def ask(cell: Cell) -> tuple[float, float]:
    """Return the library's answer to a cell, and its bound on the error in the cell's unit.

    In `asked`, "call" is "evaluate", "exact" or "laplace", "steps" are pairs of a name and numbers,
    and the rest are arguments of that call.
    """
    import sparsity
    from sparsity.rows.steps import ALL

    given = dict(cell.asked)
    call, kernel = given.pop("call"), given.pop("kernel")
    if call == "laplace":
        return _transform(kernel, **given)
    steps = given.pop("steps", [])
    if steps or call == "exact":
        by_name = {step.name: step for step in ALL}
        kept = {name: given.pop(name) for name in ("length", "of") if name in given}
        made = tuple(by_name[name](*numbers) for name, numbers in steps)
        kernel, given = sparsity.Row(kernel, steps=made, **given), kept
    found = getattr(sparsity, call)(kernel, **given)
    bound = float(found.error_bound)
    if call == "exact" or given.get("of", "S") != "S":
        return float(found.value), bound
    log_S = float(found.log_S)  # the bound is on |Δ log S|
    size = abs(log_S)
    return log_S, bound / (max(size, 1.0) if cell.unit == "log" else size or 1.0)


def _transform(
    kernel: str, beta: float, gamma: float, power: int, order: float | None, u: float
) -> tuple[float, float]:
    """Return E[1 − e^(−x)], or of an order E[x^order e^(−x)], x = e^u |f|^power."""
    from sparsity import kernels
    from sparsity.errors import InputError
    from sparsity.exact_law.transforms.laplace import laplace

    own = laplace(
        kernels.elementwise(kernel), beta, gamma, power, (1.0 if order is None else order,)
    )
    if u > own.law_nodes.right:
        raise InputError("u", u, "is where no law asks: nothing is left of any row's integrand")
    psi, moments = own.at(np.array([u]))
    found = psi if order is None else moments[0]
    return float(found[0] * np.exp(own.top)), float(own.law_nodes.transform_error)


def load(path: Path = FILE) -> list[Cell]:
    """Return the stored cells; none where there is no file."""
    if not path.exists():
        return []
    text = gzip.decompress(path.read_bytes()).decode("utf-8")
    found = []
    for row in csv.DictReader(io.StringIO(text)):
        numbers = {name: float(row[name] or math.nan) for name in _NUMBERS}
        spent = int(row["evaluations"])
        found.append(Cell(json.loads(row["asked"]), row["reference"], evaluations=spent, **numbers))
    return found


def save(cells: Iterable[Cell], path: Path = FILE) -> None:
    """Write the cells, sorted by member and one a line, whole or not at all."""
    file = io.StringIO()
    writer = csv.DictWriter(file, [field.name for field in fields(Cell)], lineterminator="\n")
    writer.writeheader()
    for cell in sorted(cells, key=lambda cell: cell.member):
        numbers = {name: getattr(cell, name) for name in _NUMBERS}
        shown = {name: "" if math.isnan(x) else f"{x:.3g}" for name, x in numbers.items()}
        writer.writerow({**vars(cell), "asked": json.dumps(cell.asked), **shown})
    spare = path.with_suffix(".tmp")
    spare.write_bytes(gzip.compress(file.getvalue().encode("utf-8"), mtime=0))
    spare.replace(path)


def allowed(cells: list[Cell]) -> dict[str, float]:
    """Return how far each cell may be off, by its key: `MULTIPLE` times what is recorded.

    A cell that happens to be exact today may be off by what is usual tomorrow: no error counts as
    less than the median of its member, or than `LEAST`.
    """
    by_member: dict[str, list[float]] = {}
    for cell in cells:
        by_member.setdefault(cell.member, []).append(cell.error)
    usual = {member: statistics.median(errors) for member, errors in by_member.items()}
    return {cell.key: MULTIPLE * max(cell.error, usual[cell.member], LEAST) for cell in cells}
