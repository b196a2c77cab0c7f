"""What of a row can be moved: its parameters, and the numbers of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from sparsity.arguments import as_float64
from sparsity.axes import row_choices as rowlaws
from sparsity.errors import InputError
from sparsity.kernels import Kernel, Law, RowMap
from sparsity.kernels.parameters import LENGTH
from sparsity.rows.row import Row


def names_of(step: Any) -> list[str]:
    """The fields of a step."""
    return [field.name for field in fields(step)]


def lever_of(row: Row, name: str) -> tuple[int, str] | None:
    """(index, field) of the step's number of that name: a field's, or that of its control."""
    for i, step in enumerate(row.steps):
        law = next((law for law in rowlaws.ALL if law.name == step.name), None)
        if law is not None and name in law.controls and law.name != "rope":
            return i, names_of(step)[0]
    for i, step in enumerate(row.steps):
        if name in names_of(step) and isinstance(getattr(step, name), (int, float)):
            return i, name
    return None


def takes(row: Row | Kernel | RowMap) -> list[str]:
    """The names that a row, or one of a kernel, takes values of."""
    kernel, steps = (row.kernel, row.steps) if isinstance(row, Row) else (row, ())
    found = [p.name for p in kernel.parameters]
    if kernel.law is not Law.FEATURES and LENGTH.name not in found:
        found.append(LENGTH.name)
    for step in steps:
        law = next((law for law in rowlaws.ALL if law.name == step.name), None)
        found += law.controls if law and law.name != "rope" else () if law else names_of(step)
    return found


def at(row: Row, name: str, value: Any) -> Row:
    """The row with another value of one of its parameters, or of a number of its steps.

    Raises:
        InputError: it has none of that name, or a value outside its domain.
    """
    if name in row.params:
        return row.replace(**{name: value})
    lever = lever_of(row, name)
    if lever is None:
        fix = f"a row of {row.kernel.name} here does not take it; it takes {', '.join(takes(row))}"
        raise InputError(name, value, fix)
    index, field = lever
    step: Any = row.steps[index]
    number = float(as_float64(value, name, "give a number"))
    whole = isinstance(getattr(step, field), int) and number.is_integer()
    changed = replace(step, **{field: int(number) if whole else number})
    steps = (*row.steps[:index], changed, *row.steps[index + 1 :])
    return Row(row.kernel, steps=steps, **row.params)


def is_whole(name: str, rows: Sequence[Row | Kernel | RowMap]) -> bool:
    """Whether values of a parameter are whole numbers."""
    for each in rows:
        kernel = each.kernel if isinstance(each, Row) else each
        if any(p.name == name and p.integer for p in (*kernel.parameters, LENGTH)):
            return True
        lever = lever_of(each, name) if isinstance(each, Row) else None
        if isinstance(each, Row) and lever is not None:
            return isinstance(getattr(each.steps[lever[0]], lever[1]), int)
    return False
