"""What a sweep computes in the cells of its grids, by theory and by sampling."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.errors import InputError
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

_LIMIT = {  # field of an evaluation, and what it is
    "S": "sparsity S of long rows",
    "log_S": "log S of long rows",
    "error_bound": "error bound of log S",
}
_OF_LIMIT = {"S": "S_limit", "log_S": "log_S_limit", "error_bound": "error_bound_S_limit"}
_SAMPLED = {  # field of an estimate, and what it is
    "stderr": "standard error of {}_mc",
    "samples": "draws behind {}_mc",
    "seed": "seed of {}_mc",
    "trusted": "whether the error bar of {}_mc may be believed",
}


def variable(dims: Any, values: np.ndarray, words: str) -> Any:
    """A variable without unit, as xarray takes it."""
    return dims, values, {"long_name": words, "units": "1"}


def cell_seed(seed: int, *labels: Any) -> int:
    """A seed of its own for one cell: independent streams, the same for the same labels."""
    texts = [str(label).encode() for label in labels]
    # What NumPy makes of whole numbers: words of 32 bits, the lowest first, one at least.
    padded = [text + bytes(-len(text) % 4 if text else 4) for text in texts]
    words = np.frombuffer(operator.index(seed).to_bytes(4, "little") + b"".join(padded), "<u4")
    return int(np.random.SeedSequence(words.astype(np.uint32)).generate_state(1)[0])


@dataclass(frozen=True)
class Grid:
    """The outer product of the grids of one row's parameters and lengths.

    Args:
        kernel: of the row.
        steps: of the row.
        grids: values by parameter, `length` last.
    """

    kernel: Kernel | RowMap
    steps: tuple[Step, ...]
    grids: Grids

    @property
    def limit(self) -> Grids:
        """The grids of the kernel's own parameters."""
        return {p.name: self.grids[p.name] for p in self.kernel.parameters}

    @property
    def rows(self) -> Grids:
        """The grids of everything but the length."""
        return {name: grid for name, grid in self.grids.items() if name != LENGTH.name}

    def row(self, cell: Cell) -> Row:
        own = {name: value for name, value in cell.items() if name != LENGTH.name}
        return Row(self.kernel, steps=self.steps, **own)

    @property
    def of_rows(self) -> bool:
        """Whether there are rows of n: S is then of these, and the limit is `S_limit`."""
        return self.kernel.law in (Law.SCORE, Law.ROW) and LENGTH.name in self.grids

    def lengths(self, quantity: Quantity) -> np.ndarray:
        """The lengths n of the rows that it is a quantity of.

        Raises:
            InputError: none are given.
        """
        if LENGTH.name not in self.grids:
            raise InputError(
                "length", None, f"{quantity.name} is a mean over rows of n tokens; give n"
            )
        return self.grids[LENGTH.name]

    def sparsity(self) -> tuple[Variables, str]:
        """The limit S, its logarithm and the error bound, and the route that ran."""
        each = self.steps or isinstance(self.kernel, RowMap)
        found, method = self._of_steps() if each else self._of_kernel()
        if self.of_rows:
            found = {_OF_LIMIT[name]: found[name] for name in _LIMIT}
        return found, method

    def _of_kernel(self) -> tuple[Variables, str]:
        grids, dims = self.limit, tuple(self.limit)
        names = [name for name in grids if name != QUERY.name]
        mesh: Cell = dict(zip(names, np.ix_(*(grids[name] for name in names)), strict=True))
        if QUERY.name not in grids:
            found = evaluate(elementwise(self.kernel), **mesh)
            return {
                name: variable(dims, getattr(found, name), words) for name, words in _LIMIT.items()
            }, found.method
        each = [
            evaluate(elementwise(self.kernel), query=str(query), **mesh)
            for query in grids[QUERY.name]
        ]
        axis = dims.index(QUERY.name)
        return {
            name: variable(dims, np.stack([getattr(e, name) for e in each], axis), words)
            for name, words in _LIMIT.items()
        }, each[0].method

    def _of_steps(self) -> tuple[Variables, str]:
        """The limit form: of each length where there are lengths, as tokens may differ."""
        place: Cell = {LENGTH.name: self.grids[LENGTH.name]} if LENGTH.name in self.grids else {}
        found = [evaluate(self.row(cell), **place) for cell in _cells(self.rows)]
        fields = {name: (name, words) for name, words in _LIMIT.items()}
        return _stacked(self.grids, found, fields), found[0].method

    def exact(self, quantity: Quantity) -> tuple[Variables, str]:
        """A quantity of rows of n by the exact law, with the bound, and the route that ran."""
        lengths = self.lengths(quantity)
        alike = self.of_rows and not self.steps and isinstance(self.kernel, Kernel)
        if alike and quantity.integral is not None and not quantity.sinks:
            laws = [exact_grid(elementwise(self.kernel), self.rows, lengths, quantity)]
        else:
            laws = [exact(self.row(c), length=lengths, of=quantity) for c in _cells(self.rows)]
        name, words = quantity.name, quantity.title
        bound = f"relative error bound of {name}"
        fields = {name: ("value", words), f"error_bound_{name}": ("error_bound", bound)}
        if name == "n_eff":
            fields["S_rms"] = ("S_rms", "√(n_eff/n)")
        return _stacked(self.grids, laws, fields), laws[0].method

    def sampled(
        self, run: Callable[[list[Cell]], Iterable[Estimate]], quantity: Quantity | None = None
    ) -> tuple[Variables, str]:
        """One estimate for each cell, of the limit S or of rows, and the estimator that ran."""
        name = quantity.name if quantity else "S_limit" if self.of_rows else "S"
        tag = f"{name}_" if quantity or self.of_rows else ""
        grids = self.grids if quantity else self.limit
        fields = {f"{name}_mc": ("value", f"Monte Carlo estimate of {name}")}
        fields |= {f"{x}_{tag}mc": (x, words.format(name)) for x, words in _SAMPLED.items()}
        estimates = list(run(_cells(grids)))
        return _stacked(grids, estimates, fields), estimates[0].method


def _cells(grids: Grids) -> list[Cell]:
    """Every cell of the outer product, in order, as plain Python values."""
    columns = [grid.tolist() for grid in grids.values()]
    return [dict(zip(grids, cell, strict=True)) for cell in itertools.product(*columns)]


def _stacked(grids: Grids, found: Sequence[Any], fields: dict[str, tuple[str, str]]) -> Variables:
    """Fields of one result a cell, or a row of lengths, in the shape of the grids."""
    dims, shape = tuple(grids), [len(grid) for grid in grids.values()]
    return {
        name: variable(dims, np.reshape([getattr(one, field) for one in found], shape), words)
        for name, (field, words) in fields.items()
    }
