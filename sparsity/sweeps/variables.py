"""What a sweep computes in the cells of its grids, by theory and by sampling.

Where an instrument takes arrays, all cells are one call: kernels elementwise, laws that share their
nodes between β and γ, all lengths of one row. Elsewhere each cell is a row.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity import rounding
from sparsity.errors import InputError
from sparsity.exact_law.capabilities import capabilities
from sparsity.exact_law.exact import exact, exact_grid
from sparsity.kernels import Kernel, Law, RowMap, elementwise
from sparsity.kernels.parameters import LENGTH, QUERY
from sparsity.limit.evaluation import evaluate
from sparsity.quantities import Quantity
from sparsity.rows.row import Row
from sparsity.rows.tokens import Step

if TYPE_CHECKING:
    from sparsity.results import Estimate

Cell = dict[str, Any]
Grids = dict[str, np.ndarray]
Variables = dict[str, Any]  # (dimensions, values, attributes) by name

# A number with a point or an exponent, as Python writes floats.
_NUMBER = re.compile(r"-?\d+(?:\.\d*(?:e[-+]?\d+)?|e[-+]?\d+)")
_LIMIT = {  # field of an evaluation, and what it is
    "S": "sparsity S of long rows",
    "log_S": "log S of long rows",
    "error_bound": "{} error bound of log S",  # proven, or estimated
}
# With rows of n in the dataset, S could be taken for theirs.
_OF_LIMIT = {"S": "S_limit", "log_S": "log_S_limit", "error_bound": "error_bound_S_limit"}
_SAMPLED = {  # field of an estimate, and what it is
    "stderr": "standard error of {}_mc",
    "samples": "draws behind {}_mc",
    "seed": "seed of {}_mc",
    "trusted": "whether the error bar of {}_mc may be believed",
}


def variable(dims: Any, values: np.ndarray, words: str) -> Any:
    """Return a dimensionless variable, as xarray takes it."""
    return dims, values, {"long_name": words, "units": "1"}


def _label_number(match: re.Match[str]) -> str:
    """Return a number as written, to 9 significant digits; 0 for what is only rounding of it."""
    value = float(match[0])
    return repr(rounding.significant(value) if abs(value) >= rounding.NOTHING else 0.0)


def label_cell(what: Any) -> str:
    """Return what a cell is as text, with 9 significant digits of every number in it.

    The last bits of a number from `geomspace` or a root differ between processors, and the 0 in the
    middle of a `linspace` may be the rounding of its ends.
    """
    return _NUMBER.sub(_label_number, str(what))


def cell_seed(seed: int, *labels: Any) -> int:
    """Return the seed of one cell: independent for different labels, the same for the same ones.

    Args:
        seed: the user's seed, 0 to 2³² − 1.
        *labels: what the cell is: names, (parameter, value) pairs, rows; see `label_cell`.
    """
    # It goes by what the cell is, not by its number in the grid: a cell has the same draws in every
    # sweep that has it, and in a block of it. `SeedSequence` mixes its words, so that neighbouring
    # values get unrelated seeds; Python's `hash` of a text differs from process to process.
    texts = [label_cell(label).encode() for label in labels]
    # What NumPy makes of whole numbers: words of 32 bits, the lowest first, one at least.
    padded = [text + bytes(-len(text) % 4 if text else 4) for text in texts]
    words = np.frombuffer(operator.index(seed).to_bytes(4, "little") + b"".join(padded), "<u4")
    return int(np.random.SeedSequence(words.astype(np.uint32)).generate_state(1)[0])


@dataclass(frozen=True)
class Grid:
    """The outer product of the grids of one row's parameters and lengths.

    Args:
        kernel: the kernel of the row, or its map.
        steps: the steps of the row.
        grids: the values of each parameter, `length` last.
    """

    kernel: Kernel | RowMap
    steps: tuple[Step, ...]
    grids: Grids

    @property
    def own_grids(self) -> Grids:
        """The grids of the kernel's own parameters."""
        return {p.name: self.grids[p.name] for p in self.kernel.parameters}

    @property
    def row_grids(self) -> Grids:
        """The grids of everything but the length."""
        return {name: grid for name, grid in self.grids.items() if name != LENGTH.name}

    @property
    def of_rows(self) -> bool:
        """Whether there are rows of n: S is then of these, and the limit is `S_limit`."""
        return self.kernel.law in (Law.SCORE, Law.ROW) and LENGTH.name in self.grids

    def row(self, cell: Cell) -> Row:
        """Return the row of one cell."""
        numbers = {name: value for name, value in cell.items() if name != LENGTH.name}
        return Row(self.kernel, steps=self.steps, **numbers)

    @property
    def first_row(self) -> Row:
        """The row of the first cell, which is of the same kind as all others."""
        return self.row({name: grid[:1].tolist()[0] for name, grid in self.grids.items()})

    def lengths(self, quantity: Quantity) -> np.ndarray:
        """Return the lengths n of the rows that a quantity is a mean over.

        Raises:
            InputError: none are given.
        """
        if LENGTH.name not in self.grids:
            fix = f"{quantity.name} is a mean over rows of n tokens; give n"
            raise InputError("length", None, fix)
        return self.grids[LENGTH.name]

    def limit(self) -> tuple[Variables, str]:
        """Return the limit S, its logarithm and the error bound, and the method that ran."""
        if self.steps or isinstance(self.kernel, RowMap):
            # Tokens that differ, such as by their distance, make the limit depend on the length.
            place: Cell = {k: self.grids[k] for k in (LENGTH.name,) if k in self.grids}
            laws = [evaluate(self.row(cell), **place) for cell in _cells(self.row_grids)]
            kind = laws[0].error_kind
            fields = {name: (name, words.format(kind)) for name, words in _LIMIT.items()}
            columns, method = _stack(self.grids, laws, fields), laws[0].method
        else:
            columns, method = self._limit_in_arrays()
        if self.of_rows:
            columns = {_OF_LIMIT[name]: columns[name] for name in _LIMIT}
        return columns, method

    def _limit_in_arrays(self) -> tuple[Variables, str]:
        """Return the limit S of a kernel without steps, and the method that ran."""
        # Numbers go in as an open mesh, in one call. A query is a word, which no array of numbers
        # holds: one call each, stacked where its axis is.
        grids, kernel = self.own_grids, elementwise(self.kernel)
        dims, numbers = tuple(grids), [name for name in grids if name != QUERY.name]
        mesh: Cell = dict(zip(numbers, np.ix_(*(grids[name] for name in numbers)), strict=True))
        if QUERY.name not in grids:
            one = evaluate(kernel, **mesh)
            values = {name: getattr(one, name) for name in _LIMIT}
        else:
            laws = [evaluate(kernel, query=str(query), **mesh) for query in grids[QUERY.name]]
            one, axis = laws[0], dims.index(QUERY.name)
            values = {name: np.stack([getattr(e, name) for e in laws], axis) for name in _LIMIT}
        words = {name: words.format(one.error_kind) for name, words in _LIMIT.items()}
        return {x: variable(dims, values[x], words[x]) for x in _LIMIT}, one.method

    def exact(self, quantity: Quantity) -> tuple[Variables, str]:
        """Return a quantity of rows of n by the exact law, with its bound, and the method."""
        lengths = self.lengths(quantity)
        if capabilities(self.first_row, quantity).shares_nodes:
            laws = [exact_grid(elementwise(self.kernel), self.row_grids, lengths, quantity)]
        else:
            rows = map(self.row, _cells(self.row_grids))
            laws = [exact(row, length=lengths, of=quantity) for row in rows]
        name, words = quantity.name, quantity.title
        bound = f"{laws[0].error_kind} relative error bound of {name}"
        fields = {name: ("value", words), f"error_bound_{name}": ("error_bound", bound)}
        if name == "n_eff":
            fields["S_rms"] = ("S_rms", "√(n_eff/n)")
        return _stack(self.grids, laws, fields), laws[0].method

    def sampled(
        self, run: Callable[[list[Cell]], Iterable[Estimate]], quantity: Quantity | None = None
    ) -> tuple[Variables, str]:
        """Return the estimates of all cells, and the estimator that ran.

        Args:
            run: cells -> their estimates, in the same order.
            quantity: the quantity of rows of n; None for the limit S.
        """
        # Of a limit alone they are S_mc, stderr_mc, …; with rows of n beside it each column says
        # what it is of: S_limit_mc, stderr_S_limit_mc, ….
        name = quantity.name if quantity else "S_limit" if self.of_rows else "S"
        tag = f"{name}_" if quantity or self.of_rows else ""
        grids = self.grids if quantity else self.own_grids
        fields = {f"{name}_mc": ("value", f"Monte Carlo estimate of {name}")}
        fields |= {f"{x}_{tag}mc": (x, words.format(name)) for x, words in _SAMPLED.items()}
        estimates = list(run(_cells(grids)))
        return _stack(grids, estimates, fields), estimates[0].method


def _cells(grids: Grids) -> list[Cell]:
    """Return every cell of the outer product, the last grid fastest, as plain Python values."""
    columns = [grid.tolist() for grid in grids.values()]
    return [dict(zip(grids, cell, strict=True)) for cell in itertools.product(*columns)]


def _stack(grids: Grids, results: Sequence[Any], fields: dict[str, tuple[str, str]]) -> Variables:
    """Return fields of results as variables in the shape of the grids.

    Args:
        grids: the grids.
        results: one for each cell in order, or one for several: all lengths, or all cells.
        fields: (field of a result, long name) by the name of the variable.
    """
    dims, shape = tuple(grids), [len(grid) for grid in grids.values()]
    return {
        name: variable(dims, np.reshape([getattr(one, field) for one in results], shape), words)
        for name, (field, words) in fields.items()
    }
