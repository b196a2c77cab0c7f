"""A cell: what is asked of the library, the reference, and the error of today."""

from __future__ import annotations

import csv
import json
import math
import statistics
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath
import numpy as np

FILE = Path(__file__).parent.parent / "results" / "recorded_errors.csv"
COLUMNS = ("member", "asked", "unit", "reference", "error", "bound", "origin")
# An error may be so many times the recorded one, or the median of its member where that is more:
# a cell that happens to be exact today may be off by a rounding tomorrow, on another processor.
MULTIPLE = 8.0
LEAST = 2.0**-53  # of the recorded errors: rounding the answer alone is off by that
_DIGITS = 50  # an error is computed with: the references have 30 or more


@dataclass
class Cell:
    """One question.

    Args:
        member: the route that answers, such as "closed form: relu2".
        asked: the call of the library, as `ask` takes it.
        unit: the error is "relative", or "log": of a logarithm l, over max(1, |l|).
        reference: decimal of 30 digits or more; "" before it is known.
        error: of today; NaN before it is known.
        bound: that the library states with the answer, in the same unit.
        origin: "chosen", or "found" by the search for worst cases.
    """

    member: str
    asked: dict[str, Any]
    unit: str
    reference: str = ""
    error: float = math.nan
    bound: float = math.nan
    origin: str = "chosen"

    @property
    def key(self) -> str:
        """The question as text."""
        return f"{self.member} {json.dumps(self.asked, sort_keys=True)}"


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


def ask(asked: dict[str, Any]) -> tuple[float, float]:
    """Return the library's answer to a cell, and its bound on the error in the cell's unit.

    Args:
        asked: "call" is "evaluate", "exact" or "laplace"; "steps" are pairs of a name and numbers;
            the rest are arguments of that call.
    """
    given = dict(asked)
    call, steps = given.pop("call"), given.pop("steps", [])
    if call == "laplace":
        return _transform(**given)
    import sparsity
    from sparsity.rows.steps import ALL

    kernel = given.pop("kernel")
    if call == "evaluate":
        found = sparsity.evaluate(kernel, **given)
        bound = float(found.error_bound)
        if given.get("of", "S") == "S":
            log_S = float(found.log_S)
            closed = found.method == "closed form" and "of" not in given
            return log_S, bound / (abs(log_S) or 1.0 if closed else max(1.0, abs(log_S)))
        return float(found.value), bound
    own = {name: given.pop(name) for name in ("length", "of")}
    made = tuple({step.name: step for step in ALL}[name](*own) for name, own in steps)
    row = sparsity.Row(kernel, steps=made, **given)
    answer = sparsity.exact(row, **own)
    return float(answer.value), float(answer.error_bound)


def _transform(
    kernel: str, beta: float, gamma: float, power: int, order: float | None, u: float
) -> tuple[float, float]:
    """Return E[1 − e^(−x)], or of an order E[x^order e^(−x)], x = e^u |f|^power."""
    from sparsity import kernels
    from sparsity.exact_law.laplace import laplace

    own = laplace(kernels.elementwise(kernel), beta, gamma, power, (1.0 if order is None else order,))
    psi, moments = own.at(np.array([u]))
    found = psi if order is None else moments[0]
    return float(found[0] * np.exp(own.top)), float(own.family.transform_error)


def load(path: Path = FILE) -> list[Cell]:
    """Return the stored cells; none where there is no file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Cell(
                row["member"], json.loads(row["asked"]), row["unit"], row["reference"],
                float(row["error"]), float(row["bound"]), row["origin"],
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip


def save(cells: Iterable[Cell], path: Path = FILE) -> None:
    """Write the cells, one a line, whole or not at all."""
    spare = path.with_suffix(".tmp")
    with spare.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for cell in cells:
            asked = json.dumps(cell.asked)
            numbers = f"{cell.error:.3g}", f"{cell.bound:.3g}"
            writer.writerow([cell.member, asked, cell.unit, cell.reference, *numbers, cell.origin])
    spare.replace(path)


def allowed(cells: list[Cell]) -> dict[str, float]:
    """Return how far each cell may be off, by its key: `MULTIPLE` times what is recorded."""
    by_member: dict[str, list[float]] = {}
    for cell in cells:
        by_member.setdefault(cell.member, []).append(cell.error)
    usual = {member: statistics.median(errors) for member, errors in by_member.items()}
    return {cell.key: MULTIPLE * max(cell.error, usual[cell.member], LEAST) for cell in cells}
