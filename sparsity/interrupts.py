"""Ctrl-C at the prompt: it ends a command wherever it falls, and is neither lost nor misread.

Falling into an import, it leaves modules half-made: compiled ones turn it into an ImportError, or
crash. Falling into a finaliser or a callback of the garbage collector, it is printed and forgotten.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_SOON = 0.02  # seconds until it is tried again


def _importing(frame: Any) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


@contextmanager
def raised_in_time() -> Iterator[None]:
    """Within it Ctrl-C is raised where it can be caught: after an import, and once more if lost.

    It does nothing where another handler is in force, in other threads, and without timers.
    """
    handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    alone = threading.current_thread() is threading.main_thread()
    if not (handled and alone and hasattr(signal, "setitimer")):
        yield
        return

    def press(number: int, frame: Any) -> None:
        if _importing(frame):
            signal.setitimer(signal.ITIMER_REAL, _SOON)
        else:
            raise KeyboardInterrupt

    def again(number: int, frame: Any) -> None:
        signal.raise_signal(signal.SIGINT)  # to whichever handler is in force by then

    def lost(what: Any) -> None:
        if isinstance(what.exc_value, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, _SOON)
        else:
            shown(what)

    shown, sys.unraisablehook = sys.unraisablehook, lost
    alarm = signal.signal(signal.SIGALRM, again)
    signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, alarm)
        sys.unraisablehook = shown
