"""The errors a caller can meet, each one line that names the argument and says the fix."""

from __future__ import annotations

from typing import Any

__all__ = ["InputError", "NoClosedForm"]


class InputError(ValueError):
    """A bad argument: its name, the value as given, and what would be right."""

    def __init__(self, argument: str, value: Any, fix: str) -> None:
        self.argument, self.value, self.fix = argument, value, fix
        shown = f"{argument} is missing" if value is None else f"{argument} = {value!s}"
        super().__init__(f"{shown}: {fix}")


class NoClosedForm(Exception):
    """No closed form was found: which step failed, on what, and the route that remains."""

    def __init__(self, step: str, reason: str) -> None:
        self.step, self.reason = step, reason
        super().__init__(
            f"no closed form: {step} failed: {reason}; use evaluate(method='quadrature')"
        )
