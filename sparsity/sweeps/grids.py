"""Grids as a user types them, `start:stop:count[:log]`, `a,b,c` or one value, and as arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sparsity.calls import NotTaken
from sparsity.checks import as_float64, check_several
from sparsity.errors import InputError, printable
from sparsity.kernels import Kernel, Law, RowMap
from sparsity.kernels.parameters import LENGTH, QUERY, Parameter
from sparsity.parsing import parse_number

# Points of one grid, and cells of a product of grids. A mistyped count would otherwise first fill
# the memory: each variable of a dataset takes 8 bytes a cell, so that this is 8 MB of each.
_MAX_POINTS = 1_000_000


def parse_grid(text: str, argument: str = "grid", *, whole: bool = False) -> np.ndarray:
    """Return the numbers of a grid: `start:stop:count[:log]`, `a,b,c` or one value.

    Args:
        text: the grid as it was typed; ranges include both ends.
        argument: the name that a refusal gives it.
        whole: whether to round the points of a range to whole numbers and to drop repeats, for
            lengths and dimensions; values listed one by one are taken as they are.

    Returns:
        At least one value, all finite, as float64.

    Raises:
        InputError: not of these forms, not finite, a count that is not 1 … 10⁶, or a logarithmic
            range with an end ≤ 0.
    """
    if ":" not in text:
        return np.array([_number(item, text, argument) for item in text.split(",")])
    fields = text.split(":")
    if len(fields) not in (3, 4):
        raise InputError(argument, text, "a range is start:stop:count or start:stop:count:log")
    start, stop, count, *scale = fields
    log = bool(scale)
    if log and scale[0].strip() != "log":
        fix = f"the fourth field of a range may only be log, not {scale[0].strip()!r}"
        raise InputError(argument, text, fix)
    low, high = (_number(end, text, argument) for end in (start, stop))
    count = count.strip()
    if not (count.isascii() and count.isdecimal() and 1 <= float(count) <= _MAX_POINTS):
        fix = f"the count {count!r} must be a whole number from 1 to {_MAX_POINTS}"
        raise InputError(argument, text, fix)
    if log and min(low, high) <= 0:
        raise InputError(argument, text, "both ends of a logarithmic range must be > 0")
    if not math.isfinite(high - low):
        raise InputError(argument, text, "its ends are too far apart for float64")
    values = (np.geomspace if log else np.linspace)(low, high, int(count))
    # Whole numbers spread logarithmically repeat at the short end: 1, 1, 2, 2, 3, …
    return np.unique(np.rint(values)) if whole else values


def _number(field: str, text: str, argument: str) -> float:
    """Return one number of a grid; a refusal shows all of its `text`.

    Raises:
        InputError: it is empty, no number or not finite.
    """
    if not field.strip():
        fix = "an item is empty; write start:stop:count[:log], a list a,b,c or one number"
        raise InputError(argument, repr(text), fix)
    field = field.strip()
    try:
        value = parse_number(field, argument)
    except InputError:
        raise InputError(argument, text, f"{printable(field, 40)!r} is not a number") from None
    if not math.isfinite(value):
        raise InputError(argument, text, f"{field!r} is not finite")
    return value


def read_values(name: str, given: Any, whole: bool) -> list[Any]:
    """Return the values of a parameter: given as one, a sequence, or text as it is typed.

    Args:
        name: the parameter.
        given: what the user gave.
        whole: whether the points of a range are rounded to whole numbers.

    Raises:
        InputError: it is malformed or empty.
    """
    fix = "give one value or a flat, nonempty list"
    if name == QUERY.name:
        values = given.split(",") if isinstance(given, str) else check_several(name, given, fix)
        values = [x.strip() if isinstance(x, str) else x for x in values]
    elif isinstance(given, str):
        return parse_grid(given, name, whole=whole).tolist()
    else:
        values = np.atleast_1d(as_float64(given, name, fix))
    if not len(values) or any(np.iterable(x) and not isinstance(x, str) for x in values):
        raise InputError(name, given, fix)
    return list(values)


def _check_grid(parameter: Parameter, given: Any) -> np.ndarray:
    """Return the values of one dimension, from text, a sequence or a scalar.

    Raises:
        InputError: it is malformed, or a value is outside the parameter's domain.
    """
    values = read_values(parameter.name, given, parameter.integer)
    if parameter == QUERY:
        return np.array([parameter.check(name) for name in values])
    return parameter.check(values).astype(np.int64 if parameter.integer else np.float64)


def grids_of(kernel: Kernel | RowMap, given: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the grids of the kernel's parameters, in their order, and of rows a given `length`.

    Args:
        kernel: the kernel or map of whole rows.
        given: what the user gave, by name; a parameter that is not there has its default.

    Raises:
        InputError: an unknown or missing parameter, a malformed grid, or too many cells.
    """
    taken = {p.name: p for p in kernel.parameters}
    if kernel.law in (Law.SCORE, Law.ROW) and "length" in given:
        taken["length"] = LENGTH
    for name, value in given.items():
        if name not in taken:
            raise NotTaken(name, value, kernel.name, taken)
    grids: dict[str, np.ndarray] = {}
    for name, p in taken.items():
        value = given.get(name, p.default)
        if value is None:
            raise InputError(name, None, f"{kernel.name} needs {name} ({p.meaning})")
        grids[name] = _check_grid(p, value)
    if math.prod(map(len, grids.values())) > _MAX_POINTS:
        sizes = " × ".join(f"{name} {len(grid)}" for name, grid in grids.items())
        raise InputError("grids", sizes, f"at most {_MAX_POINTS} cells in all; use fewer points")
    return grids
