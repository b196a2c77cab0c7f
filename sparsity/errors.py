"""The errors a caller can meet, each one line that names the argument and says the fix."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable
from typing import Any


class InputError(ValueError):
    """A bad argument: its name, the value as given, and what would be right."""

    def __init__(self, argument: str, value: Any, fix: str) -> None:
        self.argument, self.value, self.fix = argument, value, fix
        if value is None:
            shown = f"{argument} is missing"
        elif isinstance(value, str) and not value.strip():
            shown = f"{argument} is empty"
        else:
            shown = f"{argument} = {value!s}"
        super().__init__(f"{shown}: {fix}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by what it was made of, to come back from another process."""
        return type(self), (self.argument, self.value, self.fix)


class TooFine(InputError):
    """A function with more structure than can be resolved."""


class TooRare(InputError):
    """A chance that is not 0, and too small for float64."""


RESOLVED = 1e-3  # the relative error bound below which a value is an answer: three digits of it


def check_resolved(name: str, error: Any, **place: Any) -> None:
    """Refuse values whose relative error bounds say too little of them.

    Args:
        name: of the quantity.
        error: the bounds, any shape.
        **place: what the values belong to, such as the length, by name: arrays, which are named
            where they broadcast to the bounds.

    Raises:
        InputError: a bound is not below `RESOLVED`: where, and how many.
    """
    import numpy as np  # the command line is up before NumPy is

    bad = ~(np.asarray(error) < RESOLVED)
    if not bad.any():
        return
    worst = np.broadcast_to(error, bad.shape)[bad].max()
    first = {}
    for key, x in place.items():
        with contextlib.suppress(ValueError):
            first[key] = np.broadcast_to(x, bad.shape)[bad][0]
    where = " and ".join(f"{key} {float(x):.6g}" for key, x in first.items())
    many = f" and {bad.sum() - 1} more of {bad.size} values" if bad.sum() > 1 else ""
    fix = f"is not resolved{' at ' if where else ''}{where}{many}: its relative error bound is "
    others = "; leave that out" if bad.size > bad.sum() else ""
    raise InputError("of", name, f"{fix}{worst:.2g}, not below {RESOLVED:g}; use estimate{others}")


class NoClosedForm(Exception):
    """No closed form was found: which step failed, on what, and what to use instead."""

    def __init__(self, step: str, reason: str) -> None:
        self.step, self.reason = step, reason
        super().__init__(
            f"no closed form: {step} failed: {reason}; use evaluate(method='quadrature')"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """As `InputError`."""
        return type(self), (self.step, self.reason)


def check_seed(seed: Any) -> int:
    """The seed as an int from 0 to 2³²−1.

    Raises:
        InputError: anything else.
    """
    try:
        number = operator.index(seed)
    except TypeError:
        number = -1
    if not 0 <= number < 2**32:
        raise InputError("seed", seed, "must be a whole number from 0 to 2^32 - 1")
    return number


def number(
    name: str, value: Any, fix: str, holds: Callable[[float], bool] = lambda x: True
) -> None:
    """Refuse what is not one finite real number for which `holds`."""
    import numpy as np  # the command line is up before NumPy is

    real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    try:
        finite = real and math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        finite = False
    if not (finite and holds(float(value))):
        raise InputError(name, value, fix)


def whole(name: str, value: Any, least: int) -> int:
    """The whole number from `least` on that `value` is.

    Raises:
        InputError: anything else.
    """
    fix = f"must be a whole number >= {least}, at most 2^53"
    number(name, value, fix, lambda x: least <= x <= 2**53 and x == int(x) == value)
    return int(value)
