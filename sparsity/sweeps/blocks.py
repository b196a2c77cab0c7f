"""What a sweep was asked for, and how it is cut: groups of variables, each into blocks of cells.

    Request ─> variable_groups ─> cut_into_blocks

A group is what one call computes together: the limit, the exact law of one quantity, its samples.
How it is cut follows from the request alone, never from who computes it or in which order.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sparsity import quantities
from sparsity._version import __version__
from sparsity.exact_law.capabilities import capabilities
from sparsity.kernels import RowMap, elementwise
from sparsity.quantities import Quantity
from sparsity.rows.score_laws import Empirical
from sparsity.sweeps.variables import Cell, Grid, Variables, cell_seed

if TYPE_CHECKING:
    from sparsity.results import Estimate
    from sparsity.sampling import Sampling

# Cells of a block, of the dimensions along which a group may be cut. A larger block has less work
# around it and shares more nodes and draws; a smaller one loses less when a run ends, and leaves
# work for more processes. They are the chunks of a store, too, which holds one version of this
# library only (`results`), so that a release may change them.
CELLS_AT_ONCE = 2**16  # by theory in arrays
CELLS_OF_ROWS = 1024  # by theory, of independent scores, each with all lengths
CELLS_ONE_BY_ONE = 16  # each computed alone
CELLS_OF_A_CURVE = 64  # sampled in one call
MAX_BLOCKS = 2**12  # of a group, about: each is several files of a store


@dataclass(frozen=True)
class Request:
    """Everything that the numbers of a sweep depend on.

    Args:
        cells: the row and its grids.
        asked: quantities of rows of n.
        limit: whether the limit S is asked for.
        sampling: how cells are sampled, with the seed of the sweep; None if they are not.
    """

    cells: Grid
    asked: tuple[Quantity, ...]
    limit: bool
    sampling: Sampling | None

    def sampling_of(self, cell: Cell, weights: int = 1) -> Sampling:
        """Return how one cell is sampled: with a seed of its own, and so many weights a draw."""
        assert self.sampling is not None
        labels = (self.cells.kernel.name, *map(repr, self.cells.steps), *cell.items())
        # The budget is of weights; one row is drawn in any case.
        most = max(1.0, self.sampling.max_samples / weights)
        seed = cell_seed(self.sampling.seed, *labels)
        return replace(self.sampling, seed=seed, max_samples=most)

    def of_block(self, block: Block) -> Request:
        """Return the request for the cells of a block alone: what is sent to another process."""
        cut = {name: self.cells.grids[name][start:stop] for name, start, stop in block.ranges}
        return replace(self, cells=replace(self.cells, grids=self.cells.grids | cut))

    def describe(self) -> dict[str, str]:
        """Return in words all but the values of the grids: the same for the same results."""
        kernel, grids = self.cells.kernel, self.cells.grids
        weight = kernel.formula if isinstance(kernel, RowMap) else kernel.weight
        # NumPy's repr leaves out the middle of long arrays and rounds: two steps would look the
        # same. That of a sample of scores is without its values; `typed` has their digest.
        with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
            steps = [x.typed if isinstance(x, Empirical) else repr(x) for x in self.cells.steps]
        return {
            "kernel": f"{kernel.name}: {weight}",
            "steps": ", ".join(steps) or "none",
            "grids": ", ".join(f"{name} of {len(grid)}" for name, grid in grids.items()),
            "of": ", ".join(["S"] * self.limit + [quantity.name for quantity in self.asked]),
            "montecarlo": str(self.sampling),
            "sparsity": __version__,  # as any release may change last digits
        }


@dataclass(frozen=True)
class VariableGroup:
    """Variables of a sweep that are computed together.

    A group never leaves its process: a worker gets a request and makes the same groups of it, so
    that `compute` need not be pickled.

    Args:
        name: the dataset's attribute that says the method.
        compute: request -> the variables in all its cells, and the method that ran.
        split: the dimensions along which it may be cut.
        most: the most cells of these dimensions in a block.
    """

    name: str
    compute: Callable[[Request], tuple[Variables, str]]
    split: tuple[str, ...]
    most: int


@dataclass(frozen=True)
class Block:
    """Some cells of a group of variables.

    Args:
        group: the number of the group.
        number: of the block in its group.
        ranges: (dimension, first cell, the one after the last) of each dimension that is cut; a
            block has all cells of the others.
    """

    group: int
    number: int
    ranges: tuple[tuple[str, int, int], ...]

    def slices(self, dims: tuple[str, ...]) -> tuple[slice, ...]:
        """Return where the block's values lie in an array of these dimensions."""
        ranges = {name: slice(start, stop) for name, start, stop in self.ranges}
        return tuple(ranges.get(name, slice(None)) for name in dims)


def _sample_limit(request: Request) -> tuple[Variables, str]:
    from sparsity.sampling import draw_each  # with JAX: a sweep of theory alone never loads it

    def scalars(cells: list[Cell]) -> Iterator[Estimate]:
        settings = list(map(request.sampling_of, cells))
        return draw_each(elementwise(request.cells.kernel), cells, settings)

    return request.cells.sampled(scalars)


def _sample_rows(request: Request, quantity: Quantity) -> tuple[Variables, str]:
    from sparsity.sampling.row_sampling import sample_rows

    def rows(cells: list[Cell]) -> Iterator[Estimate]:
        for cell in cells:
            n = int(cell["length"])
            settings = request.sampling_of(cell, n)
            yield sample_rows(request.cells.row(cell), n, settings, quantity)

    return request.cells.sampled(rows, quantity)


def variable_groups(request: Request) -> tuple[VariableGroup, ...]:
    """Return the groups of a request, in the order that their variables have in the dataset.

    Raises:
        InputError: quantities of rows without a length.
    """
    cells = request.cells
    plain, rows, every = (tuple(grids) for grids in (cells.own_grids, cells.row_grids, cells.grids))
    # Rows with steps, and maps, have no call that takes a whole grid: each cell is a row. Of plain
    # kernels the limit does not depend on n, and one law serves all lengths: neither is cut there.
    by_row = bool(cells.steps) or isinstance(cells.kernel, RowMap)
    for quantity in request.asked:
        cells.lengths(quantity)
    groups = []
    # By default rows of a map without a limit are asked for n_eff alone.
    known = not request.asked or capabilities(cells.first_row, quantities.S).limit
    limit = request.limit and known
    if limit:
        where = (every, CELLS_ONE_BY_ONE) if by_row else (plain, CELLS_AT_ONCE)
        groups.append(VariableGroup("method", lambda request: request.cells.limit(), *where))
    for quantity in request.asked:
        if capabilities(cells.first_row, quantity).exact or request.sampling is None:
            # One without a law is sampled only; where nothing is sampled, the law says why not.
            # The first group's method is that of the dataset.
            name = "method" if not groups else f"method_{quantity.name}"
            most = CELLS_ONE_BY_ONE if by_row else CELLS_OF_ROWS
            groups.append(VariableGroup(name, lambda r, of=quantity: r.cells.exact(of), rows, most))
    if request.sampling is not None:
        if limit and not by_row:
            groups.append(VariableGroup("method_mc", _sample_limit, plain, CELLS_OF_A_CURVE))
        for quantity in request.asked:
            draw = functools.partial(_sample_rows, quantity=quantity)
            name = f"method_{quantity.name}_mc"
            groups.append(VariableGroup(name, draw, every, CELLS_ONE_BY_ONE))
    return tuple(groups)


def block_sizes(group: VariableGroup, cells: Grid) -> dict[str, int]:
    """Return the number of cells of a block along each dimension of the group.

    The last dimension is taken whole before an earlier one is.
    """
    count = math.prod(len(cells.grids[name]) for name in group.split)
    room, sizes = max(group.most, -(-count // MAX_BLOCKS)), {}  # −(−a // b) is a/b rounded up
    # Neighbours along the last dimension lie side by side on disk, and often share nodes or draws.
    for name in reversed(group.split):
        sizes[name] = min(len(cells.grids[name]), max(room, 1))
        room //= len(cells.grids[name])
    return sizes


def cut_into_blocks(number: int, group: VariableGroup, cells: Grid) -> list[Block]:
    """Return the blocks of the group of that number, in the order of its cells."""
    sizes = block_sizes(group, cells)
    ranges = [
        [(name, i, min(i + sizes[name], len(cells.grids[name]))) for i in starts]
        for name in group.split
        for starts in [range(0, len(cells.grids[name]), sizes[name])]
    ]
    return [Block(number, i, place) for i, place in enumerate(itertools.product(*ranges))]


def compute_block(task: tuple[int, Request]) -> tuple[Variables, str]:
    """Return the variables of one group in all cells of a request, and the method that ran."""
    group, request = task
    return variable_groups(request)[group].compute(request)
