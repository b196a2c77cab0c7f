"""The results of a sweep, block by block: in arrays, and in a Zarr group that outlives the run.

xarray opens the group at any time, with NaN (of whole numbers 0) where nothing is computed yet. Its
subgroup `sweep` says what was asked for and which blocks are written, each after its values: of a
run that was ended whole blocks are left, and the next one computes the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.errors import InputError
from sparsity.kernels import RowMap
from sparsity.kernels.parameters import ALL as PARAMETERS
from sparsity.kernels.parameters import OF_MAPS
from sparsity.output import folder, unwritable_error
from sparsity.rows.row import random_in
from sparsity.sweeps.blocks import Block, Request, VariableGroup, block_sizes
from sparsity.sweeps.variables import Variables, variable

if TYPE_CHECKING:
    import xarray


class Results:
    """The variables of a sweep in arrays of this process.

    Args:
        request: what was asked for.
        groups: its groups of variables.
    """

    def __init__(self, request: Request, groups: tuple[VariableGroup, ...]) -> None:
        self.request, self._groups = request, groups
        # By group, as blocks come in any order and a dataset lists its variables by group.
        self._variables: list[Variables] = [{} for _ in groups]
        self._methods: dict[str, str] = {}
        self.done: list[set[int]] = [set() for _ in groups]  # numbers of blocks

    def put(self, block: Block, variables: Variables, method: str) -> None:
        """Copy the values of a block to their places."""
        arrays, grids = self._variables[block.group], self.request.cells.grids
        for name, (dims, values, attributes) in variables.items():
            if name not in arrays:
                missing = np.nan if values.dtype.kind == "f" else 0
                shape = [len(grids[dim]) for dim in dims]
                arrays[name] = dims, np.full(shape, missing, values.dtype), attributes
            arrays[name][1][block.slices(dims)] = values
        if block.number == 0:  # the same block, whichever comes first
            self._methods[self._groups[block.group].name] = method
        self.done[block.group].add(block.number)

    def dataset(self) -> xarray.Dataset:
        """Return all variables with coordinates and attributes."""
        variables = {name: value for group in self._variables for name, value in group.items()}
        methods = {group.name: self._methods[group.name] for group in self._groups}
        return label(self.request, variables, methods)


class StoredResults(Results):
    """The same, kept in a Zarr group, from which another run goes on.

    Args:
        request: what was asked for.
        groups: its groups of variables.
        path: the folder of the Zarr group; made if it is not there.

    Raises:
        InputError: Zarr is not installed, the folder cannot be written, holds something else, or
            the results of another request.
    """

    def __init__(self, request: Request, groups: tuple[VariableGroup, ...], path: Path) -> None:
        super().__init__(request, groups)
        self._path = path
        folder(path, "store")
        with _store_errors(path):
            import zarr

            if any(path.iterdir()) and not (path / "sweep").is_dir():
                fix = "holds something that is no sweep; give a new folder"
                raise InputError("store", path, fix)
            for part in path.rglob("*"):  # a named pipe would be read for ever
                if not (part.is_file() or part.is_dir()):
                    raise InputError("store", part, "is no file; remove it")
            self._state = zarr.open_group(path, path="sweep", mode="a", zarr_format=2)
            if "request" not in self._state.attrs:
                self._state.attrs["request"] = request.describe()
            there: Any = self._state.attrs["request"]
            for name, value in request.describe().items():
                if there.get(name) != value:
                    self._refuse(f"{name} is {there.get(name)} there and {value} here")
            if "done" in self._state.attrs:
                self._load()

    def _refuse(self, difference: str) -> None:
        fix = f"holds another sweep: {difference}; give another folder"
        raise InputError("store", self._path, fix)

    def _load(self) -> None:
        """Read the blocks of earlier runs."""
        import xarray

        stored = xarray.load_dataset(self._path, engine="zarr", consolidated=False)
        for name, grid in self.request.cells.grids.items():
            # To nine digits: the last bit of a logarithmic grid differs between processors.
            same = np.array_equal if grid.dtype.kind == "U" else _equal_to_nine_digits
            if stored[name].shape != grid.shape or not same(stored[name].values, grid):
                self._refuse(f"the values of {name} are others")
        state: Any = self._state.attrs
        self.done, self._methods = list(map(set, state["done"])), state["methods"]
        for names, arrays in zip(state["variables"], self._variables, strict=True):
            for name in names:
                arrays[name] = stored[name].dims, stored[name].values, stored[name].attrs

    def put(self, block: Block, variables: Variables, method: str) -> None:
        """Copy the values of a block to their places, also in the store, and mark it there.

        Raises:
            InputError: it cannot be written.
        """
        import xarray

        super().put(block, variables, method)
        if len(self.done[block.group]) == 1:  # the arrays are made, with this block in them
            sizes = block_sizes(self._groups[block.group], self.request.cells)
            part = label(self.request, self._variables[block.group], self._methods)
            for array in part.data_vars.values():
                chunks = [sizes.get(str(dim), size) for dim, size in array.sizes.items()]
                array.encoding["chunks"] = tuple(chunks)
            where: Any = {"mode": "a"}
        else:
            part = xarray.Dataset(variables)
            where = {"region": {name: slice(start, stop) for name, start, stop in block.ranges}}
        with _store_errors(self._path):
            # Format 3 has no settled type for the words of a query.
            part.to_zarr(self._path, zarr_format=2, consolidated=False, **where)
            names, done = list(map(list, self._variables)), list(map(sorted, self.done))
            self._state.attrs.update({"variables": names, "methods": self._methods, "done": done})

    def dataset(self) -> xarray.Dataset:
        """Return all variables with coordinates and attributes, which the store then has, too."""
        dataset = super().dataset()
        with _store_errors(self._path):
            dataset.drop_vars([*dataset.variables]).to_zarr(
                self._path, mode="a", consolidated=False
            )
        return dataset


def _equal_to_nine_digits(stored: np.ndarray, grid: np.ndarray) -> bool:
    return np.allclose(stored, grid, rtol=1e-9, atol=0)


@contextmanager
def _store_errors(path: Path) -> Iterator[None]:
    """Raise what the system refuses, and what Zarr makes of damaged files, as one line."""
    try:
        yield
    except InputError:
        raise
    except ImportError:
        fix = "stores need Zarr: pip install 'sparsity[zarr]'"
        raise InputError("store", path, fix) from None
    except OSError as error:
        raise unwritable_error(path, error, "store") from None
    except Exception as error:  # Zarr and its codecs have errors of many kinds
        fix = f"cannot be read ({type(error).__name__}); give another folder"
        raise InputError("store", path, fix) from error


def label(request: Request, variables: Variables, methods: dict[str, str]) -> xarray.Dataset:
    """Return the dataset of variables, with coordinates and attributes.

    Args:
        request: what was asked for.
        variables: (dimensions, values, attributes) by name.
        methods: the method of each group of variables, by the name of its attribute.
    """
    import xarray

    cells, kernel = request.cells, request.cells.kernel
    attributes = {
        "title": f"l1/l2 sparsity of {kernel.title} attention",
        "kernel": kernel.name,
        "weight": kernel.formula if isinstance(kernel, RowMap) else str(kernel.weight),
        "random": random_in(kernel, cells.steps),
        "source": kernel.source,
        "method": "",  # of a sweep without theory; attributes keep this order
        **methods,
    }
    if cells.steps:
        attributes["steps"] = ", ".join(map(repr, cells.steps))
    words = {p.name: p.meaning for p in (*PARAMETERS, *OF_MAPS)}
    grids = {name: variable(name, grid, words[name]) for name, grid in cells.grids.items()}
    return xarray.Dataset(variables, coords=grids, attrs=attributes)
