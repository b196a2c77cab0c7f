"""Writing a sweep's dataset to a file: netCDF, Zarr or CSV, by the ending of its name."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

from sparsity.errors import InputError
from sparsity.output import folder_beside, netcdf_bytes, refuse_unwritable, write

if TYPE_CHECKING:
    import xarray

SUFFIXES = (".nc", ".zarr", ".csv")


def writable(path: str | os.PathLike[str]) -> Path:
    """Return the path, if a dataset can be written there; the command line asks before the work.

    Raises:
        InputError: it ends in none of `SUFFIXES`, or cannot be written.
    """
    place = Path(path)
    if not os.fspath(path):
        raise InputError("out", "", "give a path")
    suffix = place.suffix.lower()
    if suffix not in SUFFIXES and not place.is_dir():
        fix = f"give a name that ends in .nc, .zarr or .csv, such as {place.stem}.nc"
        raise InputError("out", path, fix)
    if suffix != ".zarr":
        refuse_unwritable(place)
        return place
    # A Zarr group is a folder, which `save` replaces whole: never one that holds something else.
    if importlib.util.find_spec("zarr") is None:
        raise InputError("out", path, "Zarr is not installed: pip install 'sparsity[zarr]'")
    if place.exists() and not any((place / name).is_file() for name in (".zgroup", "zarr.json")):
        raise InputError("out", path, "exists and is not a Zarr group; give another name")
    if not place.parent.is_dir() or not os.access(place.parent, os.W_OK):
        fix = "cannot be written (no such folder, or a closed one); choose another place"
        raise InputError("out", path, fix)
    return place


def save(dataset: xarray.Dataset, path: str | os.PathLike[str]) -> Path:
    """Write a dataset as its name ends, .nc, .zarr or .csv, whole or not at all.

    Args:
        dataset: as `sweep` returns it.
        path: the file, of Zarr the folder; an existing one is replaced.

    Returns:
        The path.

    Raises:
        InputError: the path cannot be written, or ends in something else; nothing is left behind.
    """
    place = writable(path)
    dataset = dataset.drop_encoding()  # of the file that it was opened from
    if place.suffix.lower() == ".zarr":
        # No rename replaces a folder that is not empty: the old one is moved away first, and goes
        # with the folder beside it.
        with folder_beside(place) as home:
            dataset.to_zarr(home / "new", mode="w", zarr_format=2, consolidated=True)
            if place.exists():
                os.replace(place, home / "old")
            os.replace(home / "new", place)
    elif place.suffix.lower() == ".csv":
        # Of one cell there is no dimension to make rows of.
        table = (dataset if dataset.sizes else dataset.expand_dims("cell")).to_dataframe()
        table, names = table.reset_index(), [str(name) for name in dataset.coords]
        write(place, table[[*names, *map(str, dataset.data_vars)]].to_csv(index=False))
    else:
        write(place, netcdf_bytes(dataset))
    return place
