"""A sweep as work: parts that are computed alike, each cut into blocks of cells.

How it is cut follows from the request alone: the same bits come out in whatever order the
blocks are computed, and wherever, on processors of one kind.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sparsity.errors import InputError
from sparsity.exact_law import maps
from sparsity.kernels import Kernel, RowMap, elementwise
from sparsity.quantities import Quantity
from sparsity.sweeps.variables import Cell, Grid, Variables, cell_seed

if TYPE_CHECKING:
    from sparsity.results import Estimate

# Cells of a block, of the dimensions along which a part may be cut.
AT_ONCE = 2**16  # by theory, arrays at once
ROWS = 1024  # rows of independent scores, each with all lengths
EACH = 16  # what is computed one by one
CURVE = 64  # points of a curve, sampled in one call
BLOCKS = 2**14  # of a part, about, at most: each is several files of a store


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
        """How one cell is sampled: from a stream of its own."""
        from sparsity.sampling import Sampling

        labels = (self.cells.kernel.name, *map(repr, self.cells.steps), *cell.items())
        own = cell_seed(self.seed, *labels)
        return Sampling(self.rel_error, seed=own, max_samples=most, dtype=self.dtype)


Compute = Callable[[Request, Grid, Any], tuple[Variables, str]]


@dataclass(frozen=True)
class Part:
    """Variables of a sweep that are computed together.

    Args:
        name: of the attribute that tells the method, and in a store.
        compute: (request, some of its cells, quantity) -> the variables there, and the method.
        split: the dimensions along which it may be cut.
        most: cells of these in a block.
        quantity: that it is of; None for the limit S.
    """

    name: str
    compute: Compute
    split: tuple[str, ...]
    most: int
    quantity: Quantity | None = None


@dataclass(frozen=True)
class Block:
    """Some cells of a part.

    Args:
        part: its number.
        ranges: dimension -> first cell, and the one after the last; all cells of the others.
    """

    part: int
    ranges: tuple[tuple[str, int, int], ...]

    def of(self, grid: Grid) -> Grid:
        """The grid of these cells."""
        cut = {name: grid.grids[name][start:stop] for name, start, stop in self.ranges}
        return replace(grid, grids=grid.grids | cut)

    def place(self, dims: tuple[str, ...]) -> tuple[slice, ...]:
        """Where its values lie in an array of these dimensions."""
        ranges = {name: slice(start, stop) for name, start, stop in self.ranges}
        return tuple(ranges.get(name, slice(None)) for name in dims)


def _limit(request: Request, cells: Grid, quantity: None) -> tuple[Variables, str]:
    return cells.sparsity()


def _exact(request: Request, cells: Grid, quantity: Quantity) -> tuple[Variables, str]:
    return cells.exact(quantity)


def _sampled_limit(request: Request, cells: Grid, quantity: None) -> tuple[Variables, str]:
    from sparsity.sampling import draw_each

    def scalars(every: list[Cell]) -> Iterator[Estimate]:
        settings = [request.sampling(cell, request.most) for cell in every]
        return draw_each(elementwise(cells.kernel), every, settings)

    return cells.sampled(scalars)


def _sampled_rows(request: Request, cells: Grid, quantity: Quantity) -> tuple[Variables, str]:
    from sparsity.sampling.row_sampling import sample_rows

    def rows(every: list[Cell]) -> Iterator[Estimate]:
        for cell in every:
            n = int(cell["length"])
            settings = request.sampling(cell, max(1.0, request.most / n))
            yield sample_rows(cells.row(cell), n, settings, quantity)

    return cells.sampled(rows, quantity)


def _has_law(kernel: Kernel | RowMap, quantity: Quantity) -> bool:
    """Whether some rows of it have an exact law."""
    return maps.has(kernel, quantity) if isinstance(kernel, RowMap) else quantity.has_law


def parts(request: Request) -> tuple[Part, ...]:
    """What is to be computed, in the order of the variables.

    Raises:
        InputError: quantities of rows without a length.
    """
    cells = request.cells
    own, rows, every = (tuple(grids) for grids in (cells.limit, cells.rows, cells.grids))
    each = bool(cells.steps) or isinstance(cells.kernel, RowMap)
    for quantity in request.asked:
        cells.lengths(quantity)
    found = []
    if request.limit:
        found.append(Part("method", _limit, every if each else own, EACH if each else AT_ONCE))
    for quantity in request.asked:
        if _has_law(cells.kernel, quantity) or not request.montecarlo:  # else it is sampled only
            name = "method" if not found else f"method_{quantity.name}"
            found.append(Part(name, _exact, rows, EACH if each else ROWS, quantity))
    if request.montecarlo:
        if request.limit and not each:
            found.append(Part("method_mc", _sampled_limit, own, CURVE))
        for quantity in request.asked:
            name = f"method_{quantity.name}_mc"
            found.append(Part(name, _sampled_rows, every, EACH, quantity))
    return tuple(found)


def edges(part: Part, cells: Grid) -> dict[str, int]:
    """Cells of a block along each dimension of the part: whole later dimensions first."""
    count = math.prod(len(cells.grids[name]) for name in part.split)
    room, sizes = max(part.most, -(-count // BLOCKS)), {}
    for name in reversed(part.split):
        sizes[name] = min(len(cells.grids[name]), max(room, 1))
        room //= len(cells.grids[name])
    return sizes


def blocks(number: int, part: Part, cells: Grid) -> list[Block]:
    """The part, cut."""
    sizes = edges(part, cells)
    ranges = [
        [(name, i, min(i + sizes[name], len(cells.grids[name]))) for i in starts]
        for name in part.split
        for starts in [range(0, len(cells.grids[name]), sizes[name])]
    ]
    return [Block(number, each) for each in itertools.product(*ranges)]


def cut(request: Request, block: Block) -> Request:
    """The same of the cells of a block alone: what is sent to be computed elsewhere."""
    return replace(request, cells=block.of(request.cells))


def compute(request: Request, number: int) -> tuple[Variables, str]:
    """The variables of a part in all cells, and the method that ran.

    Raises:
        InputError: what its cells raise.
    """
    part = parts(request)[number]
    return part.compute(request, request.cells, part.quantity)


def asked(cells: Grid, of: tuple[Quantity, ...] | None, **settings: Any) -> Request:
    """The request of a sweep: without `of` it is the limit S, and n_eff of rows of n."""
    from sparsity import quantities

    default = (quantities.n_eff,) if cells.of_rows else ()
    return Request(cells, default if of is None else of, of is None, **settings)


def describe(error: Exception, request: Request, block: Block) -> InputError:
    """What failed, with the parameters of the block."""
    grid = block.of(request.cells)
    shown = ", ".join(
        f"{name} {values[0]:g}" + (f" … {values[-1]:g}" if len(values) > 1 else "")
        if values.dtype.kind in "fi"
        else f"{name} {values[0]}"
        for name, values in grid.grids.items()
    )
    return InputError("cells", shown, f"failed: {' '.join(str(error).split())}")
