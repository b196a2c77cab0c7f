"""Blocks of a sweep in a Zarr group, written by whoever computes them.

Each is a chunk of its own of every variable, so that no two writers share a file. It is written
first, and marked then by a file in the subgroup `manifest`, with the hash of its values. Both come
into their places by a rename: whatever ends a run leaves whole blocks and blocks to be done.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.errors import InputError
from sparsity.output import json_text, unwritable_error, write
from sparsity.sweeps.variables import Variables

if TYPE_CHECKING:
    from sparsity.sweeps.work import Block

MANIFEST = "manifest"


class Blocks:
    """The blocks in a group whose arrays are there.

    Args:
        path: its folder.
        names: of the groups of variables that the blocks are of.
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
            digest = hash_arrays((name, x[1]) for name, x in found.items())
            mark = {"variables": list(found), "sha256": digest, "method": method}
            write(self._mark(block), json_text(mark))

    def _array(self, name: str, dims: Any, dtype: Any, attributes: Any, block: Block) -> Any:
        """Return the array of a variable."""
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
    """Open the store of a run in a worker that sees its token; None without that disk, or Zarr."""
    try:
        import zarr

        path = token.parent.parent
        return Blocks(path, names, zarr.open_group(path, mode="r+")) if token.exists() else None
    except (ImportError, OSError):
        return None


def hash_arrays(named: Any) -> str:
    """Return the hash of pairs of a name and an array, with their types and shapes."""
    found = hashlib.sha256()
    for name, array in named:
        found.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


@contextmanager
def system_refusals(path: Path) -> Iterator[None]:
    """Say in one line what the system refuses."""
    try:
        yield
    except OSError as error:
        raise unwritable_error(path, error, "store") from None


@contextmanager
def zarr_errors(path: Path) -> Iterator[None]:
    """Say in one line what Zarr makes of damaged files, which are errors of many kinds."""
    try:
        yield
    except (InputError, OSError):
        raise
    except Exception as error:
        raise damaged(path, "Zarr cannot read it") from error


def damaged(path: Path, what: str) -> InputError:
    """Return the refusal of a store."""
    return InputError("store", path, f"is damaged: {what}; give another folder")
