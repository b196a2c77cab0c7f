"""A function called in a process of its own, which is ended and started anew when it hangs."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["Died", "Late", "Worker"]


class Late(Exception):
    """No answer within the limit."""


class Died(Exception):
    """The process ended without an answer."""


def _serve(connection: Connection, task: Callable[..., Any]) -> None:
    while True:
        try:
            limit, *arguments = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        # Seconds of processors, so that the load of a machine decides nothing: SIGPROF ends it.
        signal.setitimer(signal.ITIMER_PROF, limit)
        answer = task(*arguments)
        signal.setitimer(signal.ITIMER_PROF, 0)
        connection.send(answer)


class Worker:
    """A process that answers calls of one function.

    Args:
        task: a function of a module, which never raises.
        warm: arguments of a first call, not timed, in each new process.
    """

    def __init__(self, task: Callable[..., Any], warm: tuple[Any, ...]) -> None:
        self.task, self.warm = task, warm
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, self.task), daemon=True)
        self.process.start()
        other.close()
        self(0, *self.warm)

    def __call__(self, limit: float, *arguments: Any) -> Any:
        """The task's answer.

        Raises:
            Late: it took more than `limit` seconds of processors, where that is not 0; the next
                call meets a fresh process.
            Died: the process is gone, likewise.
        """
        self.connection.send((limit, *arguments))
        try:
            return self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            status = self.process.exitcode
            self.close()
            self._start()
            raise Late if status == -signal.SIGPROF else Died(f"exit status {status}") from None

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()
