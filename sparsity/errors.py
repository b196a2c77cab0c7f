"""The errors a caller can meet, each one line that names the argument and says the fix."""

from __future__ import annotations

import contextlib
from typing import Any

# Of a message, and of a value in it: a value alone must not push the fix out of the message.
_MOST_CHARACTERS, _MOST_OF_VALUE = 1000, 100


def printable(text: str, most: int = _MOST_CHARACTERS) -> str:
    """Return the text as one line for a terminal, the middle of a long one left out.

    What is no character to see is escaped: files name themselves, and a terminal obeys what it is
    sent.
    """

    def cut(text: str) -> str:
        return text if len(text) <= most else f"{text[: most // 2]} … {text[-(most // 3) :]}"

    # Cut before, so that megabytes of text are not escaped one by one, and after, as an escape is
    # longer than its character.
    line = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode()
        for c in " ".join(cut(text).split())
    )
    return cut(line)


def _shown(value: Any) -> str:
    """Return the value as a message has it, or its type where it has no text."""
    try:
        return printable(str(value), _MOST_OF_VALUE)
    except Exception:  # noqa: BLE001  a number of thousands of digits; an object without words
        return f"of type {type(value).__name__}"


class _OneLine(Exception):
    """An error of which a notebook shows one line."""

    def _render_traceback_(self) -> list[str]:
        """Return what IPython and Jupyter show instead of a traceback: the one line."""
        return [f"{type(self).__name__}: {self}"]


class InputError(_OneLine, ValueError):
    """A bad argument: its name, the value as given, and what would be right, in one line."""

    def __init__(self, argument: str, value: Any, fix: str) -> None:
        self.argument, self.value, self.fix = argument, value, fix
        if value is None:
            shown = f"{argument} is missing"
        elif isinstance(value, str) and not value.strip():
            shown = f"{argument} is empty"
        else:
            shown = f"{argument} = {_shown(value)}"
        super().__init__(printable(f"{shown}: {fix}"))

    def __reduce__(self) -> tuple[Any, ...]:
        """Return its own arguments: pickle would call the class with the message alone."""
        return type(self), (self.argument, self.value, self.fix)


class WrongAttribute(_OneLine, AttributeError):
    """A name that a result or the package does not have."""


class WrongType(_OneLine, TypeError):
    """A result is not what it was taken for."""


class NotInstalled(_OneLine, ModuleNotFoundError):
    """A library of an extra is not installed: says how to install it."""


class TooFine(InputError):
    """A function has more structure than the rules of integration can resolve."""


class TooRare(InputError):
    """The probability of an event is positive and too small for float64."""


RESOLVED = 1e-3  # the relative error bound below which a value is an answer: three digits of it


def check_resolved(name: str, error: Any, **place: Any) -> None:
    """Refuse values whose relative error bounds say too little of them.

    Args:
        name: of the quantity.
        error: the bounds, any shape.
        **place: what the values belong to, such as the length, by name: arrays, which are named
            where they broadcast to the bounds.

    Raises:
        TooFine: a bound is not below `RESOLVED`: where, and how many.
    """
    import numpy as np  # the command line is up before NumPy is

    bad = ~(np.asarray(error) < RESOLVED)  # so that NaN is refused too
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
    raise TooFine("of", name, f"{fix}{worst:.2g}, not below {RESOLVED:g}; use estimate{others}")


class NoClosedForm(_OneLine):
    """No closed form was found: which step failed, on what, and what to use instead."""

    def __init__(self, step: str, reason: str) -> None:
        self.step, self.reason = step, reason
        super().__init__(
            f"no closed form: {step} failed: {reason}; use evaluate(method='quadrature')"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what it was made of, as `InputError` does."""
        return type(self), (self.step, self.reason)
