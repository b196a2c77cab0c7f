"""The errors a caller can meet, each one line that names the argument and says the fix."""

from __future__ import annotations

from typing import Any

_MOST_SHOWN, _MOST_OF_VALUE = 1000, 300  # characters of a message, and of a value in it


def printable(text: str, most: int = _MOST_SHOWN) -> str:
    """The text as one line for a terminal: what is no character to see is escaped, and the middle
    of a long text is left out. Files name themselves, and a terminal obeys what it is sent.
    """

    def cut(text: str) -> str:
        return text if len(text) <= most else f"{text[: most // 2]} … {text[-(most // 3) :]}"

    line = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode()
        for c in " ".join(cut(text).split())
    )
    return cut(line)


def _shown(value: Any) -> str:
    try:
        return printable(str(value), _MOST_OF_VALUE)
    except Exception:  # noqa: BLE001  a number of thousands of digits; an object without words
        return f"of type {type(value).__name__}"


class InputError(ValueError):
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
        """Pickled by what it was made of, to come back from another process."""
        return type(self), (self.argument, self.value, self.fix)


class TooFine(InputError):
    """A function with more structure than can be resolved."""


class TooRare(InputError):
    """A chance that is not 0, and too small for float64."""


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
