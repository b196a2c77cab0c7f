"""A sweep as work: groups of variables that are computed alike, each cut into blocks of cells.

    Request ─> variable_groups ─> cut_into_blocks ─> run: here or on an executor ─> Memory or Store

How it is cut follows from the request alone: the same bits come out in whatever order the
blocks are computed, and wherever, on processors of one kind.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sparsity.capabilities import capabilities
from sparsity.errors import InputError
from sparsity.kernels import RowMap, elementwise
from sparsity.quantities import Quantity
from sparsity.sweeps.blocks import open_in_worker
from sparsity.sweeps.variables import Cell, Grid, Variables, cell_seed
from sparsity.tasks import TaskExecutor, run_tasks

if TYPE_CHECKING:
    from sparsity.results import Estimate
    from sparsity.sweeps.store import Memory, Store

# Cells of a block, of the dimensions along which a group may be cut.
CELLS_AT_ONCE = 2**16  # by theory in arrays
CELLS_OF_ROWS = 1024  # by theory, of independent scores, each with all lengths
CELLS_ONE_BY_ONE = 16  # each computed alone
CELLS_OF_A_CURVE = 64  # sampled in one call
MAX_BLOCKS = 2**14  # of a group, about: each is several files of a store

# Seconds of work in one task: worth handing over, and little enough to be lost or waited for.
MIN_TASK_SECONDS, MAX_TASK_SECONDS = 0.5, 60.0
JOB_SECONDS = 60.0  # in one job of a queue, a process of its own
TASKS_PER_GROUP = 10_000  # about, between these: ten for each of a thousand workers
_MIN_TASKS_PER_GROUP = 32  # where there are as many blocks
_FAILURES_SHOWN = 3


@dataclass(frozen=True)
class Request:
    """What a sweep was asked for.

    Args:
        cells: the row and its grids.
        asked: quantities of rows of n.
        limit: whether the limit S is asked for.
        montecarlo: whether cells are sampled, too.
        seed: of the sampling.
        rel_error: relative standard error for it to reach.
        most: weights to draw in one cell, at most.
        dtype: its precision by name; None is JAX's own.
        float64: whether JAX has float64 enabled.
    """

    cells: Grid
    asked: tuple[Quantity, ...]
    limit: bool
    montecarlo: bool
    seed: int
    rel_error: float
    most: float
    dtype: str | None
    float64: bool

    def sampling(self, cell: Cell, most: float) -> Any:
        """Return how one cell is sampled: from a stream of its own."""
        from sparsity.sampling import Sampling

        labels = (self.cells.kernel.name, *map(repr, self.cells.steps), *cell.items())
        own = cell_seed(self.seed, *labels)
        return Sampling(self.rel_error, seed=own, max_samples=most, dtype=self.dtype)

    def of_block(self, block: Block) -> Request:
        """Return the request for the cells of a block alone: what is sent to another process."""
        cut = {name: self.cells.grids[name][start:stop] for name, start, stop in block.ranges}
        return replace(self, cells=replace(self.cells, grids=self.cells.grids | cut))


def build_request(cells: Grid, of: tuple[Quantity, ...] | None, **settings: Any) -> Request:
    """Return the request of a sweep: without `of` it is the limit S, and n_eff of rows of n."""
    from sparsity import quantities

    default = (quantities.n_eff,) if cells.of_rows else ()
    return Request(cells, default if of is None else of, of is None, **settings)


@dataclass(frozen=True)
class VariableGroup:
    """Variables of a sweep that are computed together.

    Args:
        name: of the attribute that tells the method, and in a store.
        compute: (request, quantity) -> the variables in its cells, and the method that ran.
        split: the dimensions along which it may be cut.
        most: cells of these in a block.
        quantity: that it is of; None for the limit S.
    """

    name: str
    compute: Callable[[Request, Any], tuple[Variables, str]]
    split: tuple[str, ...]
    most: int
    quantity: Quantity | None = None


@dataclass(frozen=True)
class Block:
    """Some cells of a group.

    Args:
        group: its number.
        ranges: dimension -> first cell, and the one after the last; all cells of the others.
    """

    group: int
    ranges: tuple[tuple[str, int, int], ...]

    def slices(self, dims: tuple[str, ...]) -> tuple[slice, ...]:
        """Return where its values lie in an array of these dimensions."""
        ranges = {name: slice(start, stop) for name, start, stop in self.ranges}
        return tuple(ranges.get(name, slice(None)) for name in dims)


def _limit(request: Request, quantity: None) -> tuple[Variables, str]:
    return request.cells.limit()


def _exact(request: Request, quantity: Quantity) -> tuple[Variables, str]:
    return request.cells.exact(quantity)


def _sampled_limit(request: Request, quantity: None) -> tuple[Variables, str]:
    from sparsity.sampling import draw_each

    def scalars(every: list[Cell]) -> Iterator[Estimate]:
        settings = [request.sampling(cell, request.most) for cell in every]
        return draw_each(elementwise(request.cells.kernel), every, settings)

    return request.cells.sampled(scalars)


def _sampled_rows(request: Request, quantity: Quantity) -> tuple[Variables, str]:
    from sparsity.sampling.row_sampling import sample_rows

    def rows(every: list[Cell]) -> Iterator[Estimate]:
        for cell in every:
            n = int(cell["length"])
            settings = request.sampling(cell, max(1.0, request.most / n))
            yield sample_rows(request.cells.row(cell), n, settings, quantity)

    return request.cells.sampled(rows, quantity)


def variable_groups(request: Request) -> tuple[VariableGroup, ...]:
    """Return what is to be computed, in the order of the variables.

    Raises:
        InputError: quantities of rows without a length.
    """
    cells, kernel = request.cells, request.cells.kernel
    own, rows, every = (tuple(grids) for grids in (cells.own_grids, cells.row_grids, cells.grids))
    each = bool(cells.steps) or isinstance(kernel, RowMap)
    for quantity in request.asked:
        cells.lengths(quantity)
    found = []
    if request.limit:
        where = (every, CELLS_ONE_BY_ONE) if each else (own, CELLS_AT_ONCE)
        found.append(VariableGroup("method", _limit, *where))
    for quantity in request.asked:
        if capabilities(cells.first_row, quantity).exact or not request.montecarlo:
            # One without a law is sampled only; where nothing is sampled, the law says why not.
            # The first group's method is that of the dataset.
            name = "method" if not found else f"method_{quantity.name}"
            most = CELLS_ONE_BY_ONE if each else CELLS_OF_ROWS
            found.append(VariableGroup(name, _exact, rows, most, quantity))
    if request.montecarlo:
        if request.limit and not each:
            found.append(VariableGroup("method_mc", _sampled_limit, own, CELLS_OF_A_CURVE))
        for quantity in request.asked:
            name = f"method_{quantity.name}_mc"
            found.append(VariableGroup(name, _sampled_rows, every, CELLS_ONE_BY_ONE, quantity))
    return tuple(found)


def block_sizes(group: VariableGroup, cells: Grid) -> dict[str, int]:
    """Return the cells of a block along each dimension of the group: whole later ones first."""
    count = math.prod(len(cells.grids[name]) for name in group.split)
    room, sizes = max(group.most, -(-count // MAX_BLOCKS)), {}
    # Neighbours along the last dimension lie side by side on disk, and often share nodes or draws.
    for name in reversed(group.split):
        sizes[name] = min(len(cells.grids[name]), max(room, 1))
        room //= len(cells.grids[name])
    return sizes


def cut_into_blocks(number: int, group: VariableGroup, cells: Grid) -> list[Block]:
    """Cut the group of that number."""
    sizes = block_sizes(group, cells)
    ranges = [
        [(name, i, min(i + sizes[name], len(cells.grids[name]))) for i in starts]
        for name in group.split
        for starts in [range(0, len(cells.grids[name]), sizes[name])]
    ]
    return [Block(number, each) for each in itertools.product(*ranges)]


def compute(request: Request, number: int) -> tuple[Variables, str]:
    """Return the variables of a group in all cells, and the method that ran.

    Raises:
        InputError: what its cells raise.
    """
    group = variable_groups(request)[number]
    return group.compute(request, group.quantity)


class Task(NamedTuple):
    """Blocks to be computed one after the other.

    Args:
        blocks: with the request for their own cells alone.
        token: of the store to keep them in, where it is seen; None to bring them back.
    """

    blocks: tuple[tuple[Block, Request], ...]
    token: Path | None


class BlockOutcome(NamedTuple):
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

    On an executor, first two blocks of every group are tasks of their own and brought back: their
    arrays are made here, and the quicker of the two says what a block costs, so that the others can
    be put together to tasks of some seconds.
    """

    def task(group: list[Block], token: Path | None = None) -> Task:
        return Task(tuple((block, request.of_block(block)) for block in group), token)

    if executor is None:
        for block in itertools.chain(*todo):
            yield block, _compute_each(task([block]))[0]
        return
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
    seconds = max(seconds, 1e-6)
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
            found = compute(request, block.group)
        except Exception as raised:  # noqa: BLE001
            error = raised
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
