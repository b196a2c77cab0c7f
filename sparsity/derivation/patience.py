"""A limit on the time that a derivation may take: SymPy has none of its own."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sparsity.errors import NoClosedForm

Found = TypeVar("Found")


class _TooLong(BaseException):
    """Raised where the work is, and not caught by what catches every `Exception`."""


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise `_TooLong` in this thread after so many seconds, at its next step of Python code."""
    thread, lock, over = threading.get_ident(), threading.Lock(), threading.Event()

    def ring() -> None:
        with lock:
            if not over.is_set():
                raising = ctypes.pythonapi.PyThreadState_SetAsyncExc
                raising(ctypes.c_ulong(thread), ctypes.py_object(_TooLong))

    timer = threading.Timer(seconds, ring)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            over.set()
        timer.cancel()


def within(seconds: float, work: Callable[[], Found]) -> Found:
    """What some work gives, if it does in time.

    Args:
        seconds: the limit; `math.inf` is none.
        work: in Python, called without arguments.

    Raises:
        NoClosedForm: it took longer.
    """
    if seconds > threading.TIMEOUT_MAX:
        return work()
    try:
        with _alarm(seconds):
            return work()
    except _TooLong:
        reason = f"it takes longer than {seconds:g} s (max_seconds allows more)"
        raise NoClosedForm("the derivation", reason) from None
