"""Run a sweep: every block that is not there yet, here or on an executor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor
from pathlib import Path
from typing import NamedTuple

from sparsity.errors import InputError
from sparsity.sweeps.blocks import seen
from sparsity.sweeps.parts import Block, Request, blocks, compute, cut, describe
from sparsity.sweeps.parts import parts as parts_of
from sparsity.sweeps.store import Memory, Store
from sparsity.sweeps.variables import Variables
from sparsity.tasks import Submits, completed

# Work in one task: worth handing over, and little enough to be lost or waited for.
SECONDS, MOST_SECONDS = 0.5, 60.0
JOB_SECONDS = 60.0  # in one job of a queue, a process of its own
_TASKS = 10_000  # of a part, about, between these: ten for each of a thousand workers
_SHARES = 32  # at least, where there are as many blocks
_SHOWN = 3  # failures told

Progress = Callable[[int, int], None]


class Task(NamedTuple):
    """Blocks to be computed one after the other.

    Args:
        blocks: with the request for their own cells alone.
        token: of the store to keep them in, where it is seen; None to bring them back.
    """

    blocks: tuple[tuple[Block, Request], ...]
    token: Path | None


class Done(NamedTuple):
    """What came of a block.

    Args:
        found: variables and method; None where it failed, or is in the store already.
        error: why it failed.
        seconds: that it took.
    """

    found: tuple[Variables, str] | None
    error: Exception | None
    seconds: float


def run(
    request: Request,
    target: Memory | Store,
    executor: Submits | None = None,
    progress: Progress | None = None,
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
    every = [blocks(i, part, request.cells) for i, part in enumerate(parts_of(request))]
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
                elif isinstance(target, Memory):
                    raise error
                else:
                    failed.append((block, error))
                if progress is not None:
                    progress(done, total)
    except BrokenExecutor:
        fix = "lost its workers; with a store, run again to go on from what is done"
        raise InputError("executor", type(executor).__name__, fix) from None
    if failed:
        raise _failure(failed, request)
    target.tell()


def _computed(
    request: Request, todo: list[list[Block]], executor: Submits | None, token: Path | None
) -> Iterator[tuple[Block, Done]]:
    """Every block with what came of it."""

    def task(group: list[Block], token: Path | None = None) -> Task:
        return Task(tuple((block, cut(request, block)) for block in group), token)

    if executor is None:
        for block in (block for own in todo for block in own):
            yield block, _each(task([block]))[0]
        return
    # Of every part first two blocks, each a task of its own and brought back: their arrays are made
    # here, and the quicker says what a block costs.
    begun = [own for own in todo if own]
    parts = [i for i, own in enumerate(begun) for _ in own[:2]]
    tasks = [task([block]) for own in begun for block in own[:2]]
    costs: list[list[float]] = [[] for _ in begun]
    for index, value, error, _ in completed(_each, tasks, executor):
        own = [block for block, _ in tasks[index].blocks]
        each = value if error is None else [Done(None, error, 0.0)] * len(own)
        yield from zip(own, each, strict=True)
        if index >= len(parts):
            continue
        i = parts[index]
        costs[i].append(each[0].seconds)
        if len(costs[i]) == len(begun[i][:2]):
            rest = begun[i][2:]
            size = _together(min(costs[i]), len(rest), executor)
            tasks += [task(rest[k : k + size], token) for k in range(0, len(rest), size)]


def _together(seconds: float, count: int, executor: Submits) -> int:
    """Blocks of a task, of so many that take so long each: the results do not depend on it."""
    seconds = max(seconds, 1e-6)
    if not isinstance(executor, Executor):
        return max(int(JOB_SECONDS / seconds), 1)
    aim = min(max(seconds * count / _TASKS, SECONDS), MOST_SECONDS)
    return max(int(min(aim / seconds, count / _SHARES)), 1)


def _each(task: Task) -> list[Done]:
    """What came of every block: one that fails does not take the others along."""
    names = tuple(part.name for part in parts_of(task.blocks[0][1]))
    store, done = None if task.token is None else seen(task.token, names), []
    for block, request in task.blocks:
        start, found, error = time.perf_counter(), None, None
        try:
            found = compute(request, block.part)
        except Exception as raised:  # noqa: BLE001
            error = raised
        if found is not None and store is not None and store.keeps(block, *found):
            found = None
        done.append(Done(found, error, time.perf_counter() - start))
    return done


def _failure(failed: list[tuple[Block, Exception]], request: Request) -> InputError:
    """All that failed, the first of them in words."""
    told = [describe(error, request, block) for block, error in failed]
    more = f"; {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    fix = "; ".join(f"{each.value} {each.fix}" for each in told[:_SHOWN]) + more
    count = f"{len(told)} block{'s' if len(told) > 1 else ''}"
    return InputError("cells", count, f"{fix}; the others are in the store")
