"""Where the blocks of a sweep are kept: in memory, or in a Zarr group by whoever computes them.

In a group each block is a chunk of its own of every variable, so that no two writers share a file.
It is written first, and marked then by a file in the subgroup `manifest`, with the hash of its
values. Both come into their places by a rename: whatever ends a run leaves whole blocks and blocks
to be done.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.errors import InputError
from sparsity.output import json_text, unwritable_error, write
from sparsity.sweeps.variables import Variables

if TYPE_CHECKING:
    import xarray

    from sparsity.sweeps.plan import Block, Request, VariableGroup

Label = Callable[[Variables, dict[str, str]], "xarray.Dataset"]  # of variables and methods

MANIFEST = "manifest"


class MemoryStore:
    """Blocks in arrays of this process, with the face of `store.Store`.

    Args:
        request: what was asked for.
        groups: its groups of variables.
        label: makes the dataset of variables, with its coordinates.
    """

    outlives_run = False

    def __init__(self, request: Request, groups: tuple[VariableGroup, ...], label: Label) -> None:
        self._sizes = {name: len(grid) for name, grid in request.cells.grids.items()}
        self._groups, self._label = groups, label
        self._found: list[Variables] = [{} for _ in groups]
        self._methods: dict[str, str] = {}

    def has(self, block: Block) -> bool:
        """Return False: nothing is there at first."""
        return False

    def warn_of_damage(self) -> None:
        """Do nothing: there was no earlier run, damaged or not."""

    def put(self, block: Block, found: Variables, method: str) -> None:
        """Copy the block to its place."""
        # By group, as blocks come in any order and a dataset lists its variables by group. What
        # variables a group has, and of what type, is known from its first block only.
        kept = self._found[block.group]
        for name, (dims, values, attributes) in found.items():
            if name not in kept:
                shape = [self._sizes[dim] for dim in dims]
                kept[name] = dims, np.zeros(shape, values.dtype), attributes
            kept[name][1][block.slices(dims)] = values
        self._methods.setdefault(self._groups[block.group].name, method)

    def writing(self) -> AbstractContextManager[None]:
        """Return a context without a token: nothing is shared with workers."""
        return nullcontext()

    def dataset(self) -> xarray.Dataset:
        """Return what is kept as a dataset."""
        joined = {name: value for found in self._found for name, value in found.items()}
        names = [group.name for group in self._groups]
        return self._label(joined, {n: self._methods[n] for n in names if n in self._methods})


class Blocks:
    """The blocks in a Zarr group whose arrays are there: all that a worker needs of a store.

    Args:
        path: the folder of the Zarr group.
        names: the names of the groups of variables, by number.
        root: the Zarr group, opened.
    """

    def __init__(self, path: Path, names: tuple[str, ...], root: Any) -> None:
        self.path, self._names, self._root = path, names, root
        self._arrays: dict[str, Any] = {}

    def _mark(self, block: Block) -> Path:
        """Return the file that says that a block is done."""
        place = ".".join(str(start) for _, start, _ in block.ranges) or "0"
        return self.path / MANIFEST / f"{self._names[block.group]}.{place}.json"

    def put(self, block: Block, found: Variables, method: str) -> None:
        """Write the block, then mark it.

        Raises:
            InputError: it cannot be written.
        """
        with system_refusals(self.path):
            for name, (dims, values, attributes) in found.items():
                with zarr_errors(self.path):
                    array = self._array(name, dims, values.dtype, attributes, block)
                    array[block.slices(dims)] = values
            # Of the values as computed: a later run that reads back others computes the block anew.
            digest = hash_arrays((name, x[1]) for name, x in found.items())
            mark = {"variables": list(found), "sha256": digest, "method": method}
            write(self._mark(block), json_text(mark))

    def _array(self, name: str, dims: Any, dtype: Any, attributes: Any, block: Block) -> Any:
        """Return the array of a variable, which is opened once: that reads its metadata."""
        if name not in self._arrays:
            self._arrays[name] = self._root[name]
        return self._arrays[name]

    def try_put(self, block: Block, found: Variables, method: str) -> bool:
        """Write and mark the block if that can be done, and return whether it was."""
        try:
            self.put(block, found, method)
        except Exception:  # noqa: BLE001 # the caller of the sweep will tell
            return False
        return True


@functools.lru_cache(maxsize=1)
def open_in_worker(token: Path, names: tuple[str, ...]) -> Blocks | None:
    """Return the store of a run, in a worker that sees its token; else, or without Zarr, None."""
    # One run is at work in a worker at a time: the cache of one keeps the group open between tasks.
    try:
        import zarr

        path = token.parent.parent
        return Blocks(path, names, zarr.open_group(path, mode="r+")) if token.exists() else None
    except (ImportError, OSError):
        return None


def hash_arrays(named: Any) -> str:
    """Return the SHA-256 of pairs of a name and an array, with their types and shapes."""
    found = hashlib.sha256()
    for name, array in named:
        found.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


@contextmanager
def system_refusals(path: Path) -> Iterator[None]:
    """Raise what the system refuses as an `InputError` of one line."""
    try:
        yield
    except OSError as error:
        raise unwritable_error(path, error, "store") from None


@contextmanager
def zarr_errors(path: Path) -> Iterator[None]:
    """Raise what Zarr makes of damaged files, errors of many kinds, as one `InputError`."""
    try:
        yield
    except (InputError, OSError):
        raise
    except Exception as error:
        raise damaged(path, "Zarr cannot read it") from error


def damaged(path: Path, what: str) -> InputError:
    """Return the refusal of a damaged store."""
    return InputError("store", path, f"is damaged: {what}; give another folder")
