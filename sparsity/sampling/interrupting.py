"""Ctrl-C as a request to finish early, where there is something valid to return."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def deferred_interrupt(wanted: bool) -> Iterator[Callable[[], bool]]:
    """Within it the first Ctrl-C is noted rather than raised; a second one is raised at once.

    Args:
        wanted: False leaves Ctrl-C as it is. So does any thread but the main one, which alone may
            handle signals.

    Yields:
        Whether Ctrl-C was pressed.
    """
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    pressed: list[int] = []

    def note(number: int, frame: Any) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    previous = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, previous)
