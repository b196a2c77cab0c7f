"""A sweep's results in a Zarr store that outlives the run.

A store is a Zarr group that xarray opens lazily at any time, with NaN (of whole numbers 0) where
nothing is computed yet. Its subgroup `manifest` holds

    request.json           what the sweep was asked for, in words and digests
    ready.json             that coordinates and attributes are written
    GROUP.START.json       the mark of a block that is done (`blocks`)
    TOKEN.run              a run that is going on

Two runs of one request in one store write the same bytes, so that they may go on side by side: only
beginning, tidying up and the last look take a lock. No file is trusted because it is there: a disk
that was full or lost power ends in a block computed anew, or in one line that says so.
"""

from __future__ import annotations

import os
import secrets
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.errors import InputError
from sparsity.output import folder, json_text, require_regular_file, write
from sparsity.reading import json_file
from sparsity.sweeps.blocks import (
    MANIFEST,
    Blocks,
    Label,
    damaged,
    hash_arrays,
    system_refusals,
    zarr_errors,
)
from sparsity.sweeps.plan import (
    Block,
    Request,
    VariableGroup,
    block_sizes,
    cut_into_blocks,
    describe_request,
)

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

if TYPE_CHECKING:
    import xarray

_READY = "ready.json"
# A name is the longest entry of an array: four bytes a character. A damaged header that says more
# would have Zarr ask for as much memory.
_MAX_ENTRY_BYTES = 256
_RUN = ".run"
_UNFINISHED = (_RUN, ".part", ".partial")  # suffixes of files: of a run, of ours, of Zarr


class Store(Blocks):
    """Blocks in a Zarr store, with the request that they are of.

    Args:
        path: its folder; made if it is not there.
        request: what was asked for.
        groups: its groups of variables.
        label: makes the dataset of variables, with its coordinates.

    Raises:
        InputError: Zarr is not installed, the folder cannot be written, holds something else, or
            the results of another request.
    """

    outlives_run = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        request: Request,
        groups: tuple[VariableGroup, ...],
        label: Label,
    ) -> None:
        try:
            import zarr
        except ImportError:
            fix = "stores need Zarr: pip install 'sparsity[zarr]'"
            raise InputError("store", path, fix) from None
        if not os.fspath(path):  # which `Path` would take for the working directory
            raise InputError("store", "", "give a folder")
        self._zarr: Any = zarr
        self._request, self._groups, self._label = request, groups, label
        self._begun = time.time()
        self._damaged: list[str] = []  # blocks that are not what was written
        self.path = Path(path)
        with system_refusals(self.path):
            folder(self.path, "store")
            for home in (self.path, self.path / MANIFEST):
                for file in home.glob("*"):
                    require_regular_file(file, "store")
            # Of two runs that start at once the second finds the request of the first.
            with _locked(self.path, wait=True):
                self._claim(describe_request(request))
                if not (self.path / MANIFEST / _READY).exists() or not self._has_coordinates():
                    self._begin()
            super().__init__(self.path, tuple(group.name for group in groups), self._opened())

    def has(self, block: Block) -> bool:
        """Return whether the block is done and its values are those that were written."""
        try:
            mark = json_file(self._mark(block))
        except FileNotFoundError:
            return False
        except (OSError, ValueError):
            mark = None
        # The mark is written after its block, yet a disk that lost power may keep it alone.
        try:
            if mark is not None:
                same = hash_arrays(self._stored(mark["variables"], block)) == mark["sha256"]
                if same and isinstance(mark["method"], str):
                    return True
        except Exception:  # noqa: BLE001 # whatever a damaged file makes of itself
            pass
        self._damaged.append(self._mark(block).stem)
        return False

    def _stored(self, names: list[str], block: Block) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the values of a block, by variable.

        Raises:
            InputError: an array has another size than the sweep, and is not read.
        """
        for name in names:
            array: Any = self._root[name]
            self._refuse_other_size(name, array, block)
            yield name, np.asarray(array[block.slices(array.metadata.dimension_names)])

    def warn_of_damage(self) -> None:
        """Warn of blocks that were damaged and have been computed again."""
        for name in self._damaged:
            text = f"store {self.path}: {name} was damaged; it was computed again"
            warnings.warn(text, stacklevel=2)
        self._damaged.clear()

    def _claim(self, asked: dict[str, Any]) -> None:
        """Write the request into a new folder, or hold it against the one that is there."""
        request = self.path / MANIFEST / "request.json"
        # Asked twice: where folders cannot be locked, another run may write it in between.
        if not request.exists() and self._foreign() and not request.exists():
            fix = "holds something that is no sweep; give a new folder"
            raise InputError("store", self.path, fix)
        if request.exists():
            self._refuse_other_request(asked)
            return
        folder(self.path / MANIFEST, "store")
        write(request, json_text(asked))

    def _foreign(self) -> bool:
        """Return whether the folder holds more than a run that ended as it began leaves."""
        there = [*self.path.iterdir()] if self.path.is_dir() else []
        if [each.name for each in there] == [MANIFEST] and there[0].is_dir():
            there = [each for each in there[0].iterdir() if each.suffix != ".part"]
        return bool(there)

    def _begin(self) -> None:
        """Write coordinates and attributes. A run that ends in here leaves it to the next one."""
        empty = self._label({}, {})
        with zarr_errors(self.path):
            for group in (self.path / MANIFEST, self.path):
                self._zarr.open_group(group, mode="a", zarr_format=3)
            empty.to_zarr(self.path, mode="a", zarr_format=3, consolidated=False)
        write(self.path / MANIFEST / _READY, json_text(True))

    def _has_coordinates(self) -> bool:
        """Return whether the coordinates are those of the request; no mark holds their hash."""
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
        """Return the Zarr group.

        Raises:
            InputError: its own file is damaged.
        """
        # Releases of Zarr take different JSON for a group, some an empty list or object: looked at
        # before Zarr does.
        try:
            there = json_file(self.path / "zarr.json")
            if not isinstance(there, dict) or there.get("node_type") != "group":
                raise ValueError("describes no group")
            return self._zarr.open_group(self.path, mode="r+", zarr_format=3)
        except OSError:
            raise
        except Exception:  # noqa: BLE001
            raise damaged(self.path, "its zarr.json") from None

    def _refuse_other_request(self, asked: dict[str, Any]) -> None:
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
        """Return the array of a variable, which is made at its first block."""
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
        except self._zarr.errors.ContainsArrayError:  # of an earlier run, or of one beside us
            made = self._root[name]
            self._refuse_other_size(name, made, block)
        self._arrays[name] = made
        return made

    def _sizes(self, dims: Any, block: Block) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shape of an array over these dimensions, and that of its chunks."""
        sizes = block_sizes(self._groups[block.group], self._request.cells)
        lengths = {dim: len(grid) for dim, grid in self._request.cells.grids.items()}
        return tuple(lengths[x] for x in dims), tuple(sizes.get(x, lengths[x]) for x in dims)

    def _refuse_other_size(self, name: str, array: Any, block: Block) -> None:
        if not _of_size(array, *self._sizes(array.metadata.dimension_names, block)):
            raise damaged(self.path, f"its array {name}")

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """Keep, while blocks are written, a file by which workers know that they see this store."""
        # A random name: another disk of another machine may have a store at the same path.
        token = self.path / MANIFEST / f"{secrets.token_hex(8)}{_RUN}"
        with ExitStack() as held:
            with system_refusals(self.path):
                if held.enter_context(_locked(self.path / MANIFEST, wait=False)):
                    self._tidy()
                token.touch()
            try:
                yield token
            finally:
                with suppress(OSError):
                    token.unlink()

    def _tidy(self) -> None:
        """Remove unfinished files of earlier runs; younger ones may be another run's at work."""
        for path in self.path.rglob("*"):
            if path.suffix in _UNFINISHED and path.stat().st_mtime < self._begun:
                path.unlink()

    def dataset(self) -> xarray.Dataset:
        """Return the store, opened lazily."""
        import xarray

        methods, names = {}, []
        # What a run half wrote is no part of a store.
        with system_refusals(self.path), _locked(self.path, wait=True), zarr_errors(self.path):
            for i, group in enumerate(self._groups):
                first = cut_into_blocks(i, group, self._request.cells)[0]
                mark = json_file(self._mark(first))
                methods[group.name] = mark["method"]
                names += mark["variables"]
            # Attributes are written last, as the methods are known only now.
            self._root.attrs.put(dict(self._label({}, methods).attrs))
            stored = xarray.open_zarr(self.path, chunks=None, consolidated=False)[names]
            # Zarr's coordinates come as the disk lists them; those of the request are the same.
            return stored.drop_vars(stored.coords).assign_coords(self._label({}, {}).coords)


def _of_size(array: Any, shape: tuple[int, ...], chunks: tuple[int, ...]) -> bool:
    """Return whether an array of numbers or texts has this shape, in no larger chunks."""
    small = all(0 < own <= most for own, most in zip(array.chunks, chunks, strict=True))
    plain = array.dtype.kind in "biufU" and array.dtype.itemsize <= _MAX_ENTRY_BYTES
    return array.shape == shape and small and plain


@contextmanager
def _locked(folder: Path, *, wait: bool) -> Iterator[bool]:
    """Lock a folder against other runs, where folders can be locked; yield whether that was done.

    Args:
        folder: that is there.
        wait: whether to wait until no other run has it; else it is held beside others.
    """
    if fcntl is None:
        yield False
        return
    place, alone = os.open(folder, os.O_RDONLY), False
    try:
        with suppress(OSError):
            fcntl.flock(place, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            alone = True
        if not wait:
            # Shared from here on: several runs may write, and none of them may tidy, for which a
            # run would have to be alone.
            with suppress(OSError):
                fcntl.flock(place, fcntl.LOCK_SH)
        yield alone
    finally:
        os.close(place)
