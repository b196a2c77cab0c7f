"""Where the blocks of a sweep are kept: in memory, or in a Zarr store that outlives the run.

A store is a Zarr group that xarray opens lazily at any time, with NaN (of whole numbers 0) where
nothing is computed yet. Its subgroup `manifest` holds the request, and the marks of the blocks that
are done (`blocks`). Two runs of one request in one store write the same bytes.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.errors import InputError
from sparsity.output import folder, json_text, refuse_pipe, write
from sparsity.reading import json_file
from sparsity.sweeps.blocks import MANIFEST, Blocks, damaged, readable, told
from sparsity.sweeps.describing import description
from sparsity.sweeps.parts import Block, Part, Request, blocks, edges
from sparsity.sweeps.variables import Variables

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

if TYPE_CHECKING:
    import xarray

READY = "ready.json"
_MOST_OF_NUMBER = 256  # bytes of an entry: names are the longest
_RUN = ".run"
_LEFT = (_RUN, ".part", ".partial")  # unfinished files: of a run, of ours, of Zarr
_INSTALL = "stores need Zarr: pip install 'sparsity[zarr]'"


class Memory:
    """Blocks in arrays of this process, by part.

    Args:
        request: what was asked for.
        parts: what it is made of.
    """

    def __init__(self, request: Request, parts: tuple[Part, ...]) -> None:
        self._sizes = {name: len(grid) for name, grid in request.cells.grids.items()}
        self._parts = parts
        self._found: list[Variables] = [{} for _ in parts]
        self._methods: dict[str, str] = {}

    def has(self, block: Block) -> bool:
        return False

    def tell(self) -> None:
        """Nothing of an earlier run was there, damaged or not."""

    def put(self, block: Block, found: Variables, method: str) -> None:
        kept = self._found[block.part]
        for name, (dims, values, attributes) in found.items():
            if name not in kept:
                shape = [self._sizes[dim] for dim in dims]
                kept[name] = dims, np.zeros(shape, values.dtype), attributes
            kept[name][1][block.place(dims)] = values
        self._methods.setdefault(self._parts[block.part].name, method)

    def writing(self) -> AbstractContextManager[None]:
        """Nothing to be shared."""
        return nullcontext()

    def dataset(self, label: Callable[[Variables, dict[str, str]], xarray.Dataset]) -> Any:
        """What is kept, labelled."""
        joined = {name: value for found in self._found for name, value in found.items()}
        order = [part.name for part in self._parts]
        return label(joined, dict(sorted(self._methods.items(), key=lambda x: order.index(x[0]))))


class Store(Blocks):
    """Blocks in a Zarr store, with the request that they are of.

    Args:
        path: its folder; made if it is not there.
        request: what was asked for.
        parts: what it is made of.
        label: (variables, methods) -> the dataset, with its coordinates.

    Raises:
        InputError: Zarr is not installed, the folder cannot be written, holds something else, or
            the results of another request.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        request: Request,
        parts: tuple[Part, ...],
        label: Callable[[Variables, dict[str, str]], xarray.Dataset],
    ) -> None:
        try:
            import zarr
        except ImportError:
            raise InputError("store", path, _INSTALL) from None
        self._zarr: Any = zarr
        self._parts, self._label = parts, label
        self._request, self._begun = request, time.time()
        if not os.fspath(path):
            raise InputError("store", "", "give a folder")
        self.path = Path(path)
        with told(self.path):
            folder(self.path, "store")
            for each in (self.path, self.path / MANIFEST):
                refuse_pipe(each, "store")
            with _alone(self.path):  # of two runs that start at once the second finds the first's
                self._claim(description(request))
                if not (self.path / MANIFEST / READY).exists() or not self._whole():
                    self._begin()
            super().__init__(self.path, tuple(part.name for part in parts), self._opened())

    def _claim(self, asked: dict[str, Any]) -> None:
        """Write the request into a new folder, or hold it against the one that is there."""
        request = self.path / MANIFEST / "request.json"
        if not request.exists() and self._foreign() and not request.exists():  # none beside us
            fix = "holds something that is no sweep; give a new folder"
            raise InputError("store", self.path, fix)
        if request.exists():
            self._refuse_another(asked)
            return
        folder(self.path / MANIFEST, "store")
        write(request, json_text(asked))

    def _foreign(self) -> bool:
        """Whether the folder holds anything but what a run leaves that ends as it writes that."""
        there = [*self.path.iterdir()] if self.path.is_dir() else []
        if [each.name for each in there] == [MANIFEST] and there[0].is_dir():
            there = [each for each in there[0].iterdir() if each.suffix != ".part"]
        return bool(there)

    def _begin(self) -> None:
        """Coordinates and attributes, and nothing else yet; as often as it takes."""
        empty = self._label({}, {})
        with readable(self.path):
            for group in (self.path / MANIFEST, self.path):
                self._zarr.open_group(group, mode="a", zarr_format=3)
            empty.to_zarr(self.path, mode="a", zarr_format=3, consolidated=False)
        write(self.path / MANIFEST / READY, json_text(True))

    def _whole(self) -> bool:
        """Whether the coordinates are those of the request: no mark speaks of them."""
        root, empty = self._opened(), self._label({}, {})
        try:
            found = [(root[str(name)], values.to_numpy()) for name, values in empty.coords.items()]
            return all(
                _of_size(array, values.shape, values.shape)
                and np.array_equal(np.asarray(array[...]), values)
                for array, values in found
            )
        except Exception:  # noqa: BLE001  Zarr and its codecs have errors of many kinds
            return False

    def _opened(self) -> Any:
        """The group; whatever a damaged file of its own makes of itself, in one line.

        Releases of Zarr take different JSON for a group, some of them an empty list or object.
        """
        try:
            there = json_file(self.path / "zarr.json")
            if not isinstance(there, dict) or there.get("node_type") != "group":
                raise ValueError("describes no group")
            return self._zarr.open_group(self.path, mode="r+", zarr_format=3)
        except OSError:
            raise
        except Exception:  # noqa: BLE001
            raise damaged(self.path, "its zarr.json") from None

    def _refuse_another(self, asked: dict[str, Any]) -> None:
        try:
            there = json_file(self.path / MANIFEST / "request.json")
        except ValueError:
            there = None
        if not isinstance(there, dict):
            raise damaged(self.path, "its request.json")
        for name in {**asked, **there}:
            if asked.get(name) != there.get(name):
                fix = (
                    f"holds another sweep: {name} is {there.get(name)} there and {asked.get(name)} "
                    "here; give another folder"
                )
                raise InputError("store", self.path, fix)

    def _array(self, name: str, dims: Any, dtype: Any, attributes: Any, block: Block) -> Any:
        """The array of a variable, made at its first block."""
        if name in self._arrays:
            return self._arrays[name]
        shape, chunks = self._sizes(dims, block)
        try:
            made = self._root.create_array(
                name,
                shape=shape,
                chunks=chunks,
                dtype=dtype,
                fill_value=np.nan if np.issubdtype(dtype, np.floating) else 0,
                dimension_names=dims,
                attributes=attributes,
            )
        except self._zarr.errors.ContainsArrayError:
            made = self._root[name]
            self._compare(name, made, block)
        self._arrays[name] = made
        return made

    def _sizes(self, dims: Any, block: Block) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shape of an array over these dimensions, and that of its chunks."""
        sizes = edges(self._parts[block.part], self._request.cells)
        lengths = {dim: len(grid) for dim, grid in self._request.cells.grids.items()}
        return tuple(lengths[x] for x in dims), tuple(sizes.get(x, lengths[x]) for x in dims)

    def _compare(self, name: str, array: Any, block: Block) -> None:
        if not _of_size(array, *self._sizes(array.metadata.dimension_names, block)):
            raise damaged(self.path, f"its array {name}")

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """While blocks are written: a file by which workers know that they see this very store."""
        token = self.path / MANIFEST / f"{secrets.token_hex(8)}{_RUN}"
        with ExitStack() as held:
            with told(self.path):
                if held.enter_context(_held(self.path / MANIFEST)):
                    self._tidy()
                token.touch()
            try:
                yield token
            finally:
                with suppress(OSError):
                    token.unlink()

    def _tidy(self) -> None:
        """Remove what runs left that were ended as they wrote."""
        for path in self.path.rglob("*"):
            if path.suffix in _LEFT and path.stat().st_mtime < self._begun:
                path.unlink()

    def dataset(self, label: Callable[[Variables, dict[str, str]], xarray.Dataset]) -> Any:
        """The store, opened lazily."""
        import xarray

        methods, names = {}, []
        # What a run half wrote is no part of a store.
        with told(self.path), _alone(self.path), readable(self.path):
            for i, part in enumerate(self._parts):
                first = next(iter(blocks(i, part, self._request.cells)))
                mark = json_file(self._mark(first))
                methods[part.name] = mark["method"]
                names += mark["variables"]
            self._root.attrs.put(dict(label({}, methods).attrs))
            stored = xarray.open_zarr(self.path, chunks=None, consolidated=False)[names]
            # Zarr's coordinates come as the disk lists them; those of the request are the same.
            return stored.drop_vars(stored.coords).assign_coords(label({}, {}).coords)


def _of_size(array: Any, shape: tuple[int, ...], chunks: tuple[int, ...]) -> bool:
    """Whether an array of numbers has this shape, in no larger chunks: else it is not read."""
    small = all(0 < own <= most for own, most in zip(array.chunks, chunks, strict=True))
    plain = array.dtype.kind in "biufU" and array.dtype.itemsize <= _MOST_OF_NUMBER
    return array.shape == shape and small and plain


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While no other run is here; where folders cannot be locked, at once."""
    if fcntl is None:
        yield
        return
    place = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(place, fcntl.LOCK_EX)
        yield
    finally:
        os.close(place)


@contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Whether no other run holds the folder, which is held until the end, beside others."""
    place = os.open(folder, os.O_RDONLY)
    try:
        if fcntl is None:
            yield False
            return
        alone = False
        with suppress(OSError):
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        with suppress(OSError):
            fcntl.flock(place, fcntl.LOCK_SH)
        yield alone
    finally:
        os.close(place)
