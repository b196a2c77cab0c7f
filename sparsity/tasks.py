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
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import nullcontext
from typing import Any, NamedTuple, Protocol

from sparsity.errors import InputError

# Given out and not yet back: more would keep a larger cluster busy, and costs memory for each.
_MAX_TASKS_UNDER_WAY = 4096
MAX_ATTEMPTS = 5  # of a task that is lost with its worker,
_ATTEMPTS_BESIDE_OTHERS = 2  # the first of them while others are under way
# Between looks at jobs that cannot be waited for: shorter asks a scheduler more often, longer
# leaves workers idle.
_POLL_SECONDS = 0.05


def cores() -> int:
    """Return how many CPU cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class TaskExecutor(Protocol):
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
        precision = nullcontext()
        if float64 is not None and float64 != has_float64():
            import jax

            precision = jax.enable_x64(float64)
        with precision:
            value, error = work(task), None
    except Exception as raised:  # noqa: BLE001
        value, error = None, raised
    return Outcome(index, value, error, time.perf_counter() - start)


def has_float64() -> bool:
    """Return whether JAX has float64 enabled."""
    import jax

    return bool(jax.dtypes.canonicalize_dtype("float64") == "float64")


def run_tasks(
    work: Callable[[Any], Any], tasks: Sequence[Any], executor: TaskExecutor | None = None
) -> Iterator[Outcome]:
    """Run `work` on every task, in any order, and yield each outcome as it comes.

    A task that was lost twice is suspected of ending its worker. It waits until nothing else is
    under way, and is tried alone, so that it takes nothing with it.

    Args:
        work: a function that can be pickled.
        tasks: which can be, too; those appended to a list while it goes on are run as well.
        executor: where they run, with JAX's float64 as it is here; None runs them here, one after
            the other.
    """
    if executor is None:
        for index, task in enumerate(tasks):
            yield _attempt(work, index, task)
        return
    given: dict[Any, tuple[int, int]] = {}  # future -> index, attempts
    suspects: list[tuple[int, int]] = []
    begun, float64 = 0, has_float64() if "jax" in sys.modules else None

    def give(index: int, attempt: int) -> None:
        given[executor.submit(_attempt, work, index, tasks[index], float64)] = index, attempt

    try:
        while given or suspects or begun < len(tasks):
            while begun < len(tasks) and len(given) < _MAX_TASKS_UNDER_WAY:
                give(begun, 1)
                begun += 1
            if not given:
                give(*suspects.pop())
            for future in wait_for_some(list(given)):
                index, attempt = given.pop(future)
                try:
                    outcome = future.result()
                # `_attempt` returns what the work raises: one here is a lost worker's.
                except Exception as lost:  # noqa: BLE001
                    if attempt < _ATTEMPTS_BESIDE_OTHERS:
                        give(index, attempt + 1)
                        continue
                    if attempt < MAX_ATTEMPTS:
                        suspects.append((index, attempt + 1))
                        continue
                    outcome = Outcome(index, None, lost, 0.0)
                yield outcome
    finally:
        for future in given:
            future.cancel()


def run_all_tasks(
    work: Callable[[Any], Any], tasks: Sequence[Any], executor: TaskExecutor | None = None
) -> Iterator[tuple[int, Any]]:
    """Do `run_tasks` where every task is needed: yield index and value of each as it comes.

    Raises:
        InputError: the executor lost its workers.
        Exception: what `work` raises first.
    """
    try:
        for index, value, error, _ in run_tasks(work, tasks, executor):
            if error is not None:
                raise error
            yield index, value
    except futures.BrokenExecutor:
        fix = "lost its workers; use fewer, or give them more memory"
        raise InputError("executor", type(executor).__name__, fix) from None


def wait_for_some(given: list[Any]) -> list[Any]:
    """Wait until one is done, and return all that are."""
    if isinstance(given[0], futures.Future):
        return list(futures.wait(given, return_when=futures.FIRST_COMPLETED).done)
    while not (done := [job for job in given if job.done()]):
        time.sleep(_POLL_SECONDS)
    return done


class Workers(futures.Executor):
    """So many processes of this machine, started afresh (JAX must not be forked).

    They end with this process, however it ends. One that is lost takes its own task with it and no
    other, and is replaced.

    Args:
        count: processes, at least 1.

    Raises:
        InputError: fewer.
    """

    def __init__(self, count: int) -> None:
        from sparsity.arguments import whole  # the command line is up before NumPy is

        count = whole("workers", count, 1)
        self._context = multiprocessing.get_context("spawn")
        self._stop = self._context.Event()
        self._threads = futures.ThreadPoolExecutor(count)  # each with a process of its own
        self._own = threading.local()
        self._processes: list[futures.ProcessPoolExecutor] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        return self._threads.submit(self._run, fn, args, kwargs)

    def _run(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run in the process that belongs to this thread."""
        # One pool of one process for each thread: in a pool of many, the death of one process
        # breaks the pool, and the tasks of all the others are lost with it.
        own = getattr(self._own, "process", None)
        if own is None:
            own = self._own.process = futures.ProcessPoolExecutor(
                1, self._context, initializer=_attend, initargs=(self._stop,)
            )
            self._processes.append(own)
        try:
            return own.submit(fn, *args, **kwargs).result()
        except futures.BrokenExecutor:
            self._own.process = None
            self._processes.remove(own)
            raise

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End, at once if what is under way is to be given up."""
        self._threads.shutdown(wait=False, cancel_futures=cancel_futures)
        if cancel_futures:
            self._stop.set()
        self._threads.shutdown(wait)
        for process in list(self._processes):
            process.shutdown(wait)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool | None:
        self.shutdown(cancel_futures=kind is not None)
        return None


def _attend(stop: Any) -> None:
    """Prepare a worker: the first process hears Ctrl-C; this one ends with it, or when told."""
    # Threads, because the main thread may be in compiled code for minutes, where it hears nothing.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    for ended in (stop.wait, *([] if parent is None else [parent.join])):
        threading.Thread(target=_leave, args=(ended,), daemon=True).start()


def _leave(ended: Callable[[], Any]) -> None:
    """End this process when `ended` returns."""
    ended()
    os._exit(1)  # `sys.exit` in a thread ends the thread alone
