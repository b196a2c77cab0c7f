"""Running a sweep: its blocks, computed here or on an executor, and put where they are kept.

    cut_into_blocks ─> run ─> tasks of several blocks ─> MemoryStore, or the Store on disk

A block's numbers do not depend on the task that it is computed in, nor on the machine that it runs
on: tasks are sized by the clock, blocks (`plan`) never are.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sparsity.errors import InputError
from sparsity.sweeps.blocks import open_in_worker
from sparsity.sweeps.plan import Block, Request, cut_into_blocks, variable_groups
from sparsity.sweeps.variables import Variables
from sparsity.tasks import TaskExecutor, run_tasks

if TYPE_CHECKING:
    from sparsity.sweeps.blocks import MemoryStore
    from sparsity.sweeps.store import Store

# Seconds of work in one task: worth handing over, and little enough to be lost or waited for.
MIN_TASK_SECONDS, MAX_TASK_SECONDS = 0.5, 60.0
JOB_SECONDS = 60.0  # in one job of a queue, a process that first imports everything anew
TASKS_PER_GROUP = 10_000  # about, between these: ten for each of a thousand workers
_MIN_TASKS_PER_GROUP = 32  # where there are as many blocks: fewer would leave workers idle
_FAILURES_SHOWN = 3  # of the blocks that failed, in the one line of the refusal


class Task(NamedTuple):
    """Blocks to be computed one after the other.

    Args:
        blocks: each with the request for its own cells alone, so that a task carries no more of
            the grids than it computes.
        token: a file in the store to keep them in, if the worker sees it; None to bring them back.
    """

    blocks: tuple[tuple[Block, Request], ...]
    token: Path | None


class BlockOutcome(NamedTuple):
    """What came of a block.

    Args:
        found: its variables and the method; None where it failed, or is in the store already.
        error: why it failed; None if it did not.
        seconds: how long it took.
    """

    found: tuple[Variables, str] | None
    error: Exception | None
    seconds: float


def run(
    request: Request,
    target: MemoryStore | Store,
    executor: TaskExecutor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Compute every block that `target` does not have.

    Args:
        request: what is asked for.
        target: where blocks are put.
        executor: where they are computed, and put where workers see the store; None is here.
        progress: called with (blocks done, blocks in all).

    Raises:
        InputError: the executor lost its workers; blocks failed, told when the others are in the
            store. Into memory the first that fails is raised as it is.
    """
    # What a store has already is not computed again.
    groups = enumerate(variable_groups(request))
    every = [cut_into_blocks(i, group, request.cells) for i, group in groups]
    todo = [[block for block in own if not target.has(block)] for own in every]
    total = sum(map(len, every))
    done = total - sum(map(len, todo))
    failed: list[tuple[Block, Exception]] = []
    try:
        with target.writing() as token:
            for block, (found, error, _) in _computed(request, todo, executor, token):
                if error is None:
                    if found is not None:
                        target.put(block, *found)
                    done += 1
                elif not target.outlives_run:
                    raise error
                # A store keeps the other blocks for a run that is repeated: they are worth having.
                else:
                    failed.append((block, error))
                if progress is not None:
                    progress(done, total)
    except BrokenExecutor:
        fix = "lost its workers; with a store, run again to go on from what is done"
        raise InputError("executor", type(executor).__name__, fix) from None
    if failed:
        raise _failure(failed, request)
    target.warn_of_damage()


def _computed(
    request: Request, todo: list[list[Block]], executor: TaskExecutor | None, token: Path | None
) -> Iterator[tuple[Block, BlockOutcome]]:
    """Yield every block with what came of it.

    On an executor, two blocks of each group go first, as tasks of their own that bring them back.
    The quicker of the two says what a block costs, so that the others can be put together to tasks
    of some seconds.
    """

    def task(group: list[Block], token: Path | None = None) -> Task:
        return Task(tuple((block, request.of_block(block)) for block in group), token)

    if executor is None:
        for block in itertools.chain(*todo):
            yield block, _compute_each(task([block]))[0]
        return
    # They carry no token: the arrays of a store are made here with their values, so that no two
    # workers ever make one. The quicker one counts: a worker's first block may import and compile.
    begun = [own for own in todo if own]
    groups = [i for i, own in enumerate(begun) for _ in own[:2]]
    tasks = [task([block]) for own in begun for block in own[:2]]
    costs: list[list[float]] = [[] for _ in begun]
    for index, value, error, _ in run_tasks(_compute_each, tasks, executor):
        own = [block for block, _ in tasks[index].blocks]
        each = value if error is None else [BlockOutcome(None, error, 0.0)] * len(own)
        yield from zip(own, each, strict=True)
        if index >= len(groups):  # not one of the first two of a group
            continue
        # `run_tasks` takes what is appended to its list while it runs.
        i = groups[index]
        costs[i].append(each[0].seconds)
        if len(costs[i]) == len(begun[i][:2]):
            rest = begun[i][2:]
            size = _blocks_per_task(min(costs[i]), len(rest), executor)
            tasks += [task(rest[k : k + size], token) for k in range(0, len(rest), size)]


def _blocks_per_task(seconds: float, count: int, executor: TaskExecutor) -> int:
    """Return how many of `count` blocks, which take so long each, to put in a task.

    The results do not depend on it.
    """
    seconds = max(seconds, 1e-6)  # a clock may not have moved
    if not isinstance(executor, Executor):  # a queue such as submitit's: a task is a job there
        return max(int(JOB_SECONDS / seconds), 1)
    aim = max(seconds * count / TASKS_PER_GROUP, MIN_TASK_SECONDS)
    together = min(min(aim, MAX_TASK_SECONDS) / seconds, count / _MIN_TASKS_PER_GROUP)
    return max(int(together), 1)


def _compute_each(task: Task) -> list[BlockOutcome]:
    """Compute the blocks of a task: one that fails does not take the others along."""
    names = tuple(group.name for group in variable_groups(task.blocks[0][1]))
    store, done = None if task.token is None else open_in_worker(task.token, names), []
    for block, request in task.blocks:
        start, found, error = time.perf_counter(), None, None
        try:
            group = variable_groups(request)[block.group]
            found = group.compute(request)
        except Exception as raised:  # noqa: BLE001
            error = raised
        # What a worker cannot write it brings back: the caller writes it, or says why not.
        if found is not None and store is not None and store.try_put(block, *found):
            found = None
        done.append(BlockOutcome(found, error, time.perf_counter() - start))
    return done


def _failure(failed: list[tuple[Block, Exception]], request: Request) -> InputError:
    """Return the error that says how many blocks failed, and of the first ones where and why."""

    def words(block: Block, error: Exception) -> str:
        shown = ", ".join(
            f"{name} {values[0]:g}" + (f" … {values[-1]:g}" if len(values) > 1 else "")
            if values.dtype.kind in "fi"
            else f"{name} {values[0]}"
            for name, values in request.of_block(block).cells.grids.items()
        )
        return f"{shown} failed: {' '.join(str(error).split())}"

    more = len(failed) - _FAILURES_SHOWN
    fix = "; ".join(itertools.starmap(words, failed[:_FAILURES_SHOWN]))
    fix += f"; {more} more" if more > 0 else ""
    count = f"{len(failed)} block{'s' if len(failed) > 1 else ''}"
    return InputError("cells", count, f"{fix}; the others are in the store")
