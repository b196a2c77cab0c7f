"""Run a sweep: every block that is not there yet, here or on an executor."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor

from sparsity.errors import InputError
from sparsity.sweeps.parts import Block, Request, blocks, compute, describe
from sparsity.sweeps.parts import parts as parts_of
from sparsity.sweeps.store import Memory, Store
from sparsity.sweeps.variables import Variables
from sparsity.tasks import Submits, completed

SECONDS = 0.5  # of work in one task, about
JOB_SECONDS = 60.0  # of work in one job of a queue
_SHARES = 32  # tasks of a part at least, where it has as many blocks
_SHOWN = 3  # failures told

Progress = Callable[[int, int], None]
Group = Sequence[Block]


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
        executor: where they are computed; None is here.
        progress: called with (blocks done, blocks in all).

    Raises:
        InputError: the executor lost its workers; blocks failed, told when the others are in the
            store. Into memory the first that fails is raised as it is.
    """
    parts = parts_of(request)
    every = [blocks(i, part, request.cells) for i, part in enumerate(parts)]
    todo = [[block for block in own if not target.has(block)] for own in every]
    total = sum(map(len, every))
    done = total - sum(map(len, todo))
    failed: list[tuple[Block, Exception]] = []

    def take(block: Block, found: tuple[Variables, str] | Exception) -> None:
        nonlocal done
        if isinstance(found, Exception):
            if isinstance(target, Memory):
                raise found
            failed.append((block, found))
        else:
            target.put(block, *found)
            done += 1
        if progress is not None:
            progress(done, total)

    try:
        for group, found in _computed(request, todo, executor):
            for block, one in zip(group, found, strict=True):
                take(block, one)
    except BrokenExecutor:
        fix = "lost its workers; with a store, run again to go on from what is done"
        raise InputError("executor", type(executor).__name__, fix) from None
    if failed:
        raise _failure(failed, request)


def _computed(
    request: Request, todo: list[list[Block]], executor: Submits | None
) -> Iterator[tuple[Group, list[tuple[Variables, str] | Exception]]]:
    """Groups of blocks, with what came of each."""
    work = functools.partial(_each, request)
    groups: list[Group] = []
    for own in todo:
        if executor is None or not own:
            groups += [(block,) for block in own]
            continue
        # The first of a part here: a mistake in the request shows at once, and what a block costs.
        (first,) = completed(work, [own[:1]])
        yield own[:1], _found(first.value, first.error, 1)
        size = _together(first.seconds, len(own), executor)
        groups += [own[i : i + size] for i in range(1, len(own), size)]
    for index, value, error, _ in completed(work, groups, executor):
        yield groups[index], _found(value, error, len(groups[index]))


def _together(seconds: float, count: int, executor: Submits) -> int:
    """Blocks of a task: worth handing over, and enough tasks for many workers."""
    if not isinstance(executor, Executor):  # jobs of a queue, each a process of its own
        return max(int(JOB_SECONDS / max(seconds, 1e-6)), 1)
    return max(int(min(SECONDS / max(seconds, 1e-6), count / _SHARES)), 1)


def _each(request: Request, group: Group) -> list[tuple[Variables, str] | Exception]:
    """What came of every block: one that fails does not take the others along."""
    found: list[tuple[Variables, str] | Exception] = []
    for block in group:
        try:
            found.append(compute(request, block))
        except Exception as error:  # noqa: BLE001
            found.append(error)
    return found


def _found(value: list | None, error: Exception | None, size: int) -> list:
    return value if value is not None else [error] * size


def _failure(failed: list[tuple[Block, Exception]], request: Request) -> InputError:
    """All that failed, the first of them in words."""
    told = [describe(error, request, block) for block, error in failed]
    more = f"; {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    fix = "; ".join(f"{each.value} {each.fix}" for each in told[:_SHOWN]) + more
    count = f"{len(told)} block{'s' if len(told) > 1 else ''}"
    return InputError("cells", count, f"{fix}; the others are in the store")
