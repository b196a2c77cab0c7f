"""Blocks of a sweep in a Zarr group, written by whoever computes them.

Each is a chunk of its own of every variable, so that no two writers share a file. It is written
first, and marked then by a file in the subgroup `manifest`, with the hash of its values. Both come
into their places by a rename: whatever ends a run leaves whole blocks and blocks to be done.
"""

from __future__ import annotations

import functools
import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sparsity.errors import InputError
from sparsity.output import json_text, unwritable_error, write
from sparsity.reading import json_file
from sparsity.sweeps.parts import Block
from sparsity.sweeps.variables import Variables

MANIFEST = "manifest"


class Blocks:
    """The blocks in a group whose arrays are there.

    Args:
        path: its folder.
        names: of the parts that the blocks are of.
        root: the group, opened.
    """

    def __init__(self, path: Path, names: tuple[str, ...], root: Any) -> None:
        self.path, self._names, self._root = path, names, root
        self._arrays: dict[str, Any] = {}
        self._damaged: list[str] = []  # blocks that are not what was written

    def _mark(self, block: Block) -> Path:
        place = ".".join(str(start) for _, start, _ in block.ranges) or "0"
        return self.path / MANIFEST / f"{self._names[block.part]}.{place}.json"

    def has(self, block: Block) -> bool:
        """Whether the block is done, and is what was written: else it is to be done again."""
        try:
            mark = json_file(self._mark(block))
        except FileNotFoundError:
            return False
        except (OSError, ValueError):
            mark = None
        try:
            if mark is not None:
                same = _hash(self._stored(mark["variables"], block)) == mark["sha256"]
                if same and isinstance(mark["method"], str):
                    return True
        except Exception:  # noqa: BLE001 # whatever a damaged file makes of itself
            pass
        self._damaged.append(self._mark(block).stem)
        return False

    def tell(self) -> None:
        """Warn of what was damaged and has been computed again."""
        for name in self._damaged:
            text = f"store {self.path}: {name} was damaged; it was computed again"
            warnings.warn(text, stacklevel=2)
        self._damaged.clear()

    def _stored(self, names: list[str], block: Block) -> Iterator[tuple[str, np.ndarray]]:
        for name in names:
            array: Any = self._root[name]
            self._compare(name, array, block)
            yield name, np.asarray(array[block.place(array.metadata.dimension_names)])

    def put(self, block: Block, found: Variables, method: str) -> None:
        """Write the block, then mark it.

        Raises:
            InputError: it cannot be written.
        """
        with told(self.path):
            for name, (dims, values, attributes) in found.items():
                with readable(self.path):
                    array = self._array(name, dims, values.dtype, attributes, block)
                    array[block.place(dims)] = values
            values = [(name, x[1]) for name, x in found.items()]
            mark = {"variables": list(found), "sha256": _hash(values), "method": method}
            write(self._mark(block), json_text(mark))

    def _compare(self, name: str, array: Any, block: Block) -> None:
        """Refuse an array of other sizes than the sweep has, before any of it is read."""

    def _array(self, name: str, dims: Any, dtype: Any, attributes: Any, block: Block) -> Any:
        """The array of a variable."""
        if name not in self._arrays:
            self._arrays[name] = self._root[name]
        return self._arrays[name]

    def keeps(self, block: Block, found: Variables, method: str) -> bool:
        """Write and mark the block, if that can be done."""
        try:
            self.put(block, found, method)
        except Exception:  # noqa: BLE001 # the caller of the sweep will tell
            return False
        return True


@functools.lru_cache(maxsize=1)
def seen(token: Path, names: tuple[str, ...]) -> Blocks | None:
    """In a worker: the store of a run, where its token is seen; None without that disk, or Zarr."""
    try:
        import zarr

        path = token.parent.parent
        return Blocks(path, names, zarr.open_group(path, mode="r+")) if token.exists() else None
    except (ImportError, OSError):
        return None


def _hash(values: Any) -> str:
    """Of named arrays, with their types and shapes."""
    found = hashlib.sha256()
    for name, array in values:
        found.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


@contextmanager
def told(path: Path) -> Iterator[None]:
    """What the system refuses, in one line."""
    try:
        yield
    except OSError as error:
        raise unwritable_error(path, error, "store") from None


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """What Zarr makes of damaged files, which are errors of many kinds, in one line."""
    try:
        yield
    except (InputError, OSError):
        raise
    except Exception as error:
        raise damaged(path, "Zarr cannot read it") from error


def damaged(path: Path, what: str) -> InputError:
    """The refusal of a store."""
    return InputError("store", path, f"is damaged: {what}; give another folder")
