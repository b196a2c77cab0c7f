"""Independent tasks in this process, or on any `concurrent.futures` executor.

A process pool, Dask's `Client.get_executor()` and `mpi4py.futures` hand out futures, which are
waited for; submitit hands out jobs, which are asked now and then.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any, NamedTuple, Protocol

from sparsity.errors import InputError

# Between looks at jobs that cannot be waited for: shorter asks a scheduler more often, longer
# leaves workers idle.
_POLL_SECONDS = 0.05
_SILENCE_SECONDS = 120.0  # without an answer, after which the log says so: most tasks take seconds
_LOG = logging.getLogger(__name__)


class TaskExecutor(Protocol):
    """What runs tasks: `submit` gives an object with `done()`, `result()` and `cancel()`."""

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Any: ...


def process_pool(workers: int) -> futures.ProcessPoolExecutor:
    """Return a pool of processes of this machine, started afresh, as JAX must not be forked.

    Args:
        workers: processes, at least 1.

    Raises:
        InputError: fewer.
    """
    from sparsity.checks import check_whole  # the command line is up before NumPy is

    count = check_whole("workers", workers, 1)
    spawn = multiprocessing.get_context("spawn")
    return futures.ProcessPoolExecutor(count, spawn, initializer=_start_worker)


def _start_worker() -> None:
    """Have this worker leave Ctrl-C to the process that started it, and end with that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back: a process that is started meanwhile has it blocked while it imports."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _end_with_parent() -> None:
    """Wait until the process that started this one has ended, however it did, and end."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # `sys.exit` in a thread ends the thread alone


class _Answer(NamedTuple):
    """What a task came to: an executor that returns anything else did not run it."""

    value: Any


def _run_in_precision(work: Callable[[Any], Any], task: Any, float64: bool | None) -> _Answer:
    """Run one task with JAX's float64 as it is in the process that gave it out."""
    if float64 is None or float64 == has_float64():
        return _Answer(work(task))
    import jax

    with jax.enable_x64(float64):
        return _Answer(work(task))


def has_float64() -> bool:
    """Return whether JAX has float64 enabled."""
    import jax

    return bool(jax.dtypes.canonicalize_dtype("float64") == "float64")


def run_all_tasks(
    work: Callable[[Any], Any],
    tasks: Sequence[Any],
    executor: TaskExecutor | None = None,
    progress: Callable[[int, int], Any] | None = None,
    *,
    threads: int = 0,
    before: int = 0,
) -> Iterator[tuple[int, Any]]:
    """Run `work` on every task, in any order, and yield index and value of each as it comes.

    Args:
        work: a function that can be pickled.
        tasks: which can be, too.
        executor: where they run, with JAX's float64 as it is here; None runs them in this process.
        progress: called with (tasks done, tasks in all).
        threads: of this process, for None as the executor; 0 runs one task after the other.
        before: tasks that were done earlier, which count as well.

    Raises:
        InputError: the executor takes no tasks, loses or cancels them, or answers something else.
        Exception: what `work` raises first.
    """
    pool = futures.ThreadPoolExecutor(threads) if threads and executor is None else None
    tell, total = progress or (lambda done, total: None), before + len(tasks)
    try:
        tell(before, total)
        for done, answer in enumerate(_answers(work, tasks, executor or pool), before + 1):
            yield answer
            tell(done, total)
    finally:  # after Ctrl-C a pool would else run all that waits before it ends
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


def _answers(
    work: Callable[[Any], Any], tasks: Sequence[Any], executor: TaskExecutor | None
) -> Iterator[tuple[int, Any]]:
    """Yield index and value of each task, in any order."""
    if executor is None:
        for index, task in enumerate(tasks):
            yield index, work(task)
        return
    float64 = has_float64() if "jax" in sys.modules else None
    jobs: dict[Any, int] = {}
    name = type(executor).__name__
    try:
        with _interrupts_held():
            for index, task in enumerate(tasks):
                jobs[_submitted(executor, work, task, float64)] = index
        for job in _as_completed(list(jobs)):
            answer = job.result()
            if not isinstance(answer, _Answer):
                fix = f"answers {type(answer).__name__}, not what the task returned"
                raise InputError("executor", name, fix)
            yield jobs[job], answer.value
    except futures.BrokenExecutor:
        fix = "lost its workers; use fewer, or give them more memory"
        raise InputError("executor", name, fix) from None
    except futures.CancelledError:
        raise InputError("executor", name, "cancelled a task; give one that runs them") from None
    finally:
        for job in jobs:
            job.cancel()


def _submitted(executor: TaskExecutor, work: Any, task: Any, float64: bool | None) -> Any:
    """Return the job of a task."""
    name = type(executor).__name__
    try:
        job = executor.submit(_run_in_precision, work, task, float64)
    except futures.BrokenExecutor:
        raise
    except Exception as error:
        fix = f"takes no task: {type(error).__name__}: {error}"
        raise InputError("executor", name, fix) from error
    if not all(hasattr(job, needed) for needed in ("done", "result", "cancel")):
        fix = f"its submit returns {type(job).__name__}, not a job with done() and result()"
        raise InputError("executor", name, fix)
    return job


def _as_completed(jobs: list[Any]) -> Iterator[Any]:
    """Yield each job when it is done; of a long silence the log has a line."""
    waiting, silence = jobs, 0.0
    while waiting:
        done = [job.done() for job in waiting]  # what was cancelled wakes nobody
        if any(done):
            yield from itertools.compress(waiting, done)
            waiting = [job for job, ended in zip(waiting, done, strict=True) if not ended]
            silence = 0.0
            continue
        if silence >= _SILENCE_SECONDS:
            _LOG.warning("%d tasks wait, none has ended for a while: has it workers?", len(done))
            silence = 0.0
        futures_alone = all(isinstance(job, futures.Future) for job in waiting)
        seconds = _SILENCE_SECONDS if futures_alone else _POLL_SECONDS
        if futures_alone:
            futures.wait(waiting, seconds, futures.FIRST_COMPLETED)
        else:
            time.sleep(seconds)
        silence += seconds
