"""A time limit that also holds inside Arb's integrator, which lets no exception through."""

from __future__ import annotations

import time

__all__ = ["DEADLINE", "Deadline", "Infinite", "NoReference", "NotReal"]


class NoReference(Exception):
    """No value to 30 digits; says why."""


class Infinite(Exception):
    """A moment that does not exist."""


class NotReal(Exception):
    """A kernel that is not a real number at some score that counts."""


class Deadline:
    """When to give up; none at first."""

    def __init__(self) -> None:
        self.at = float("inf")

    def set(self, seconds: float) -> None:
        self.at = time.monotonic() + seconds

    def passed(self) -> bool:
        return time.monotonic() > self.at

    def check(self) -> None:
        """Raise TimeoutError once the time is over."""
        if self.passed():
            raise TimeoutError("time")


DEADLINE = Deadline()
