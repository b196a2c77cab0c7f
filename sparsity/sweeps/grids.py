"""Grids as typed by a user: `start:stop:count`, `start:stop:count:log`, `a,b,c` or one value."""

from __future__ import annotations

import math

import numpy as np

from sparsity.arguments import inexact
from sparsity.errors import InputError
from sparsity.reading import expand_token_count, parse_number

MOST = 1_000_000  # points of one grid, and cells of a product of grids


def parse_grid(text: str, argument: str = "grid", *, whole: bool = False) -> np.ndarray:
    """The numbers of a grid: `start:stop:count`, `start:stop:count:log`, `a,b,c` or one value.

    Args:
        text: as typed; ranges include both ends.
        argument: the name to report when it is malformed.
        whole: round the points of a range to whole numbers and drop repeats, for lengths and
            dimensions; values listed one by one are taken as they are.

    Returns:
        float64, at least one value, all finite.

    Raises:
        InputError: not of these forms, not finite, a count that is not 1 … 10⁶, or a logarithmic
            range with an end ≤ 0.
    """
    if ":" not in text:
        values = [_number(item, text, argument, whole) for item in text.split(",")]
        if len(values) > MOST:
            raise InputError(argument, f"{text[:40]}…", f"give at most {MOST} values")
        return np.array(values)
    start, stop, count, log = _fields(text, argument)
    low, high = (_number(end, text, argument, whole) for end in (start, stop))
    if not (count.strip().isascii() and count.strip().isdecimal() and 1 <= float(count) <= MOST):
        fix = f"the count {count.strip()!r} must be a whole number from 1 to {MOST}"
        raise InputError(argument, text, fix)
    if log and min(low, high) <= 0:
        raise InputError(argument, text, "both ends of a logarithmic range must be > 0")
    if log:
        values = np.geomspace(low, high, int(count))
    elif math.isfinite(high - low):
        values = np.linspace(low, high, int(count))
    else:  # the range is beyond float64, its points are not
        share = np.linspace(0, 1, int(count))
        values = low * (1 - share) + high * share
    return np.unique(np.rint(values)) if whole else values


def _fields(text: str, argument: str) -> tuple[str, str, str, bool]:
    fields = text.split(":")
    if len(fields) not in (3, 4):
        raise InputError(argument, text, "a range is start:stop:count or start:stop:count:log")
    if len(fields) == 4 and fields[3].strip() != "log":
        fix = f"the fourth field of a range may only be log, not {fields[3].strip()!r}"
        raise InputError(argument, text, fix)
    return fields[0], fields[1], fields[2], len(fields) == 4


def _number(field: str, text: str, argument: str, whole: bool) -> float:
    if not field.strip():
        fix = "an item is empty; write start:stop:count[:log], a list a,b,c or one number"
        raise InputError(argument, repr(text), fix)
    field = expand_token_count(field) if argument == "length" else field.strip()
    try:
        value = parse_number(field, argument)
    except InputError:
        raise InputError(argument, text, f"{field!r} is not a number") from None
    if not math.isfinite(value):
        raise InputError(argument, text, f"{field!r} is not finite")
    if whole and inexact(field):
        fix = f"float64 does not hold {field!r}; give whole numbers of at most 2^53"
        raise InputError(argument, text, fix)
    return value
