"""Independent tasks on whatever runs them: this process, or any `concurrent.futures.Executor`.

A process pool, Dask's `Client.get_executor()`, `mpi4py.futures` and Ray's are executors; submitit's
hands out jobs that can be asked in the same way. A task that is lost with its worker is given out
again; one that fails is told as failed, and the others go on.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from contextlib import nullcontext
from typing import Any, NamedTuple, Protocol

from sparsity.errors import whole

AT_ONCE = 4096  # tasks given out and not yet back
ATTEMPTS = 5  # of a task that is lost with its worker
_POLL = 0.05  # seconds between looks at jobs that cannot be waited for


class Submits(Protocol):
    """What runs tasks: `submit` gives an object with `done()` and `result()`."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any: ...


class Outcome(NamedTuple):
    """What came of a task.

    Args:
        index: of the task.
        value: what the work returned; None where it failed.
        error: why it failed; None where it did not.
        seconds: that it ran.
    """

    index: int
    value: Any
    error: Exception | None
    seconds: float


def _attempt(
    work: Callable[[Any], Any], index: int, task: Any, float64: bool | None = None
) -> Outcome:
    """Run one task; what it raises is its answer, so that anything else raised is a lost worker."""
    start = time.perf_counter()
    try:
        with _precision(float64):
            value, error = work(task), None
    except Exception as raised:  # noqa: BLE001
        value, error = None, raised
    return Outcome(index, value, error, time.perf_counter() - start)


def wide() -> bool:
    """Whether JAX has float64 enabled."""
    import jax

    return bool(jax.dtypes.canonicalize_dtype("float64") == "float64")


def _precision(float64: bool | None) -> Any:
    """JAX with float64 as it is where the tasks come from; None where that does not matter."""
    if float64 is None or wide() == float64:
        return nullcontext()
    import jax

    return jax.enable_x64(float64)


def completed(
    work: Callable[[Any], Any], tasks: Iterable[Any], executor: Submits | None = None
) -> Iterator[Outcome]:
    """Run `work` on every task, in any order; each outcome as it comes.

    Args:
        work: a function that can be pickled.
        tasks: which can be, too.
        executor: where they run, with JAX's float64 as it is here; None runs them here, one after
            the other.
    """
    numbered = enumerate(tasks)
    if executor is None:
        for index, task in numbered:
            yield _attempt(work, index, task)
        return
    given: dict[Any, tuple[int, Any, int]] = {}  # future -> index, task, attempts
    float64 = wide() if "jax" in sys.modules else None

    def arguments(index: int, task: Any) -> tuple[Any, ...]:
        return _attempt, work, index, task, float64

    most = executor.at_once if isinstance(executor, Workers) else AT_ONCE
    try:
        while True:
            for index, task in numbered:
                given[_submitted(executor, arguments(index, task))] = index, task, 1
                if len(given) >= most:
                    break
            if not given:
                return
            for future in _some_done(list(given)):
                if future not in given:
                    continue
                index, task, attempt = given.pop(future)
                try:
                    yield future.result()
                except Exception as lost:  # noqa: BLE001
                    if attempt == ATTEMPTS:
                        yield Outcome(index, None, lost, 0.0)
                        continue
                    given[_submitted(executor, arguments(index, task))] = index, task, attempt + 1
    finally:
        for future in given:
            future.cancel()


def _submitted(executor: Submits, arguments: tuple[Any, ...]) -> Any:
    """Give a task out; a pool of ours whose workers were lost starts new ones first."""
    try:
        return executor.submit(*arguments)
    except futures.BrokenExecutor:
        if not isinstance(executor, Workers):
            raise
        executor.renew()
        return executor.submit(*arguments)


def _some_done(given: list[Any]) -> list[Any]:
    """Those that are done, one at least; waits for it."""
    if isinstance(given[0], futures.Future):
        return list(futures.wait(given, return_when=futures.FIRST_COMPLETED).done)
    while not (done := [job for job in given if job.done()]):
        time.sleep(_POLL)
    return done


class Workers(futures.Executor):
    """So many processes of this machine, started afresh (JAX must not be forked).

    They end with this process, however it ends; lost ones are replaced.

    Args:
        count: processes, at least 1.

    Raises:
        InputError: fewer.
    """

    def __init__(self, count: int) -> None:
        self._count = whole("workers", count, 1)
        self._context = multiprocessing.get_context("spawn")
        self.at_once = 2 * self._count  # what is lost when one of them is lost: all are ended then
        self.renew()

    def renew(self) -> None:
        """Leave the processes that are there, and start others."""
        self._stop = self._context.Event()
        self._pool = futures.ProcessPoolExecutor(
            self._count, self._context, initializer=_attend, initargs=(self._stop,)
        )

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End; at once, if what is under way is to be given up."""
        if cancel_futures:
            self._stop.set()
        self._pool.shutdown(wait, cancel_futures=cancel_futures)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool | None:
        self.shutdown(cancel_futures=kind is not None)
        return None


def _attend(stop: Any) -> None:
    """In a worker: Ctrl-C is the first process's to hear; end with that process, or when told."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    for ended in (stop.wait, *([] if parent is None else [parent.join])):
        threading.Thread(target=_leave, args=(ended,), daemon=True).start()


def _leave(ended: Callable[[], Any]) -> None:
    ended()
    os._exit(1)
