"""How many digits of a number are the same on every processor, and so are worth writing to a file.

The last bits of a computed number differ between processors, whose sums and exponentials go by
vectors of other widths. Theory is written to 9 significant digits, three or more fewer than it has,
and an estimate to a tenth of its standard error. A number that is about 0 has no such digits: what
is less than the rounding of numbers of its scale is written as 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

DIGITS = 9
# Of numbers of scale 1: some hundred roundings of float64, and a tenth of the error of most theory.
NOTHING = 1e-13
# Of numbers that may be means of float32 draws without a standard error beside them: on two kinds
# of processor those of the claims differ by up to 1.4e−7 of their value.
DIGITS_OF_DRAWS = 5
# A logarithm is off by the relative error of its number, whatever its own size.
DECIMALS_OF_LOG = DIGITS
_ERRORS = ("stderr", "rel_stderr", "bound", "detectable", "smallest_detectable", "tail_index")
_DIGITS_OF_ERRORS = 2


def significant(value: float, digits: int = DIGITS) -> float:
    """Return a number to so many significant digits, and 0 for −0."""
    return float(f"{value:.{digits}g}") + 0.0


def beside_error(value: float, error: float) -> float:
    """Return an estimate to a tenth of its standard error, and to `DIGITS` digits at most."""
    error = significant(error, _DIGITS_OF_ERRORS)
    if not (error > 0 and math.isfinite(error) and math.isfinite(value)):
        return significant(value)
    return round(significant(value), 1 - math.floor(math.log10(error))) + 0.0


def column(values: np.ndarray, scale: float | None = None, digits: int = DIGITS) -> np.ndarray:
    """Return numbers of one scale, with 0 for what is only rounding.

    Args:
        values: the numbers, any of them NaN.
        scale: of what they are differences of, 0 where they are none; None for the largest of them.
        digits: how many significant ones are kept.
    """
    finite = np.abs(values[np.isfinite(values)])
    least = NOTHING * (float(finite.max(initial=0.0)) if scale is None else scale)
    rounded = np.array([significant(value, digits) for value in values.tolist()], float)
    return np.where(np.abs(rounded) < least, 0.0, rounded).reshape(values.shape)


def logarithms(values: np.ndarray) -> np.ndarray:
    """Return logarithms to `DIGITS` significant digits, and to `DECIMALS_OF_LOG` at most."""
    return column(np.round(values, DECIMALS_OF_LOG) + 0.0, scale=0.0)


def record(value: Any, name: str = "", digits: int = DIGITS) -> Any:
    """Return what JSON holds with as many digits as are the same everywhere.

    Numbers are about of scale 1, or beside a standard error; of a z there are two decimals.

    Args:
        value: of JSON's types.
        name: its key.
        digits: significant ones of a number that is not whole.
    """
    if isinstance(value, Mapping):
        rounded = {key: record(item, key, digits) for key, item in value.items()}
        error = value.get("stderr")
        for key in ("value", "estimate"):
            if isinstance(error, float) and isinstance(value.get(key), float):
                rounded[key] = beside_error(value[key], error)
        return rounded
    if isinstance(value, (list, tuple)):
        return [record(item, name, digits) for item in value]
    if not isinstance(value, float):
        return value
    if name == "z" or name.endswith("_z"):
        return round(value, 2) + 0.0
    if name in _ERRORS:
        return significant(value, _DIGITS_OF_ERRORS)
    if value.is_integer():
        return value + 0.0
    return 0.0 if abs(value) < NOTHING else significant(value, digits)
