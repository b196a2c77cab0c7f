"""Output: files written whole or not at all; values as JSON, CSV and powers of ten."""

from __future__ import annotations

import csv
import errno
import io
import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsity.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import xarray

TABLE_HEADER = "series,x,theory,"  # how a table of curves begins


def unwritable_error(path: Path, error: OSError, argument: str = "out") -> InputError:
    """Return the error that says in one line what the system refused."""
    reason = os.strerror(error.errno).lower() if error.errno else "the system refused"
    return InputError(argument, path, f"cannot be written ({reason}); choose another place")


def _path_of(argument: str, path: Any) -> Path:
    """Return the path that an argument names.

    Raises:
        InputError: no name that a file can have.
    """
    from sparsity.checks import check_path  # the command line is up before NumPy is

    return check_path(argument, path, "give a path")


def netcdf_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a netCDF file to write.

    Raises:
        InputError: its name does not end in .nc, as other formats would be taken for granted.
    """
    path = _path_of("out", path)
    if path.suffix.lower() != ".nc" and not path.is_dir():
        fix = f"is written as netCDF; give a name that ends in .nc, such as {path.stem}.nc"
        raise InputError("out", path, fix)
    return path


def require_regular_file(path: Path, argument: str) -> Path:
    """Return the path, of a file or a folder if it is there: of a pipe one would wait for ever.

    Raises:
        InputError: it is a device or a pipe.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(argument, path, "is a device or a pipe; give a file")
    return path


def refuse_missing(argument: str, path: str | os.PathLike[str], fix: str) -> None:
    """Refuse a file or folder to read that is not there, before the work and what it imports.

    Raises:
        InputError: it is not there; `fix` says what to give.
    """
    if not os.path.exists(path):
        raise InputError(argument, path, f"no such file; {fix}")


def refuse_unwritable_folder(path: str | os.PathLike[str], argument: str = "out") -> None:
    """Find out before the work whether a folder can be made and written to; none is made.

    Raises:
        InputError: a part of the path is no folder, or closed.
    """
    place = _path_of(argument, path)
    home = next(above for above in (place, *place.absolute().parents) if above.exists())
    reason = errno.ENOTDIR if not home.is_dir() else errno.EACCES
    if reason == errno.ENOTDIR or not os.access(home, os.W_OK | os.X_OK):
        raise unwritable_error(place, OSError(reason, ""), argument)


def folder(path: str | os.PathLike[str], argument: str = "out") -> Path:
    """Return the folder, made if it is not there; `argument` gave it.

    Raises:
        InputError: it cannot be made.
    """
    path = _path_of(argument, path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable_error(path, error, argument) from None
    return path


@contextmanager
def _folder_beside(path: Path) -> Iterator[Path]:
    """Give an empty folder on the disk of `path`, which is removed with all that is left in it.

    Raises:
        InputError: it cannot be made, or what is done with it fails for the system.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=".", suffix=".part", dir=path.parent) as home:
            yield Path(home)
    except OSError as error:
        raise unwritable_error(path, error) from None


def _file_to_write(path: str | os.PathLike[str]) -> Path:
    """Return the file that a path names or links to.

    Raises:
        InputError: a folder, a device or a pipe.
    """
    path = _path_of("out", path)
    path = Path(os.path.realpath(path)) if path.is_symlink() else path
    if path.is_dir():
        raise InputError("out", path, "is a folder; give a file")
    return require_regular_file(path, "out")


def refuse_unwritable(path: str | os.PathLike[str]) -> None:
    """Find out before the work whether the file can be written.

    Raises:
        InputError: as `replacing`.
    """
    with _folder_beside(_file_to_write(path)):
        pass


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give the path of a file to write, which takes the place of `path` at the end.

    Args:
        path: the file; an existing one is replaced in one step, and kept if anything fails. Of a
            symbolic link it is the file that the link leads to.

    Raises:
        InputError: the file cannot be written, or is no regular file; nothing is left behind.
    """
    path = _file_to_write(path)
    # In a folder of its own beside `path`: a rename is one step only within a file system, and a
    # file that is opened there has the permissions of any new file.
    with _folder_beside(path) as home:
        yield home / path.name
        os.replace(home / path.name, path)


def write_together(contents: Mapping[Any, bytes | str]) -> None:
    """Write several files, all or none of them, text as UTF-8.

    Args:
        contents: path -> content; they come into place in this order.

    Raises:
        InputError: as `replacing`.
    """
    # All are written before the first rename. A stack is left last in, first out: the files are
    # entered in reverse, so that they come into place in the order that was given.
    with ExitStack() as stack:
        for path, content in reversed(list(contents.items())):
            part = stack.enter_context(replacing(path))
            # Names of files that are not UTF-8 are written as Python shows them.
            text = isinstance(content, str)
            part.write_bytes(content.encode("utf-8", "backslashreplace") if text else content)


def write(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Write a file whole or not at all, text as UTF-8.

    Raises:
        InputError: as `replacing`.
    """
    write_together({path: content})


def netcdf_bytes(data: xarray.Dataset, encoding: Mapping[str, Any] | None = None) -> bytes:
    """Return the dataset as a netCDF file, made in memory: HDF5 crashes where a disk is full.

    Args:
        data: the dataset; the same one gives the same bytes.
        encoding: of variables, as `to_netcdf` has it.
    """
    import h5netcdf
    from xarray.backends import H5NetCDFStore

    memory = io.BytesIO()
    with h5netcdf.File(memory, "w") as file:
        data.dump_to_store(H5NetCDFStore(file), encoding=dict(encoding or {}))
    return memory.getvalue()


def json_ready(value: Any) -> Any:
    """Return the value in JSON's own types; what JSON cannot say (NaN, ±∞) becomes null."""
    if isinstance(value, dict):
        return {key: json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item) for item in value]
    if hasattr(value, "tolist"):  # arrays, and NumPy's numbers
        return json_ready(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def json_text(value: Any) -> str:
    """Return the value as a JSON document."""
    return json.dumps(json_ready(value), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Return the rows as CSV, a line feed after each."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def power_of_ten(power: int) -> str:
    """Return 10 with a raised power, such as 10⁻³."""
    return "10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def length_label(length: float) -> str:
    """Return a row length as models state theirs, in powers of 1024: 512, 8K, 128K, 1M."""
    for power, letter in ((40, "T"), (30, "G"), (20, "M"), (10, "K")):
        if length >= 2**power and length % 2**power == 0:
            return f"{length / 2**power:g}{letter}"
    return f"{length:g}".replace("-", "−")


def powers_of_two(low: float, high: float, most: int = 7) -> list[float]:
    """Return evenly spaced powers of two between two lengths, `most` at most."""
    first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
    steps = (range(-(-first // k) * k, last + 1, k) for k in (1, 2, 4, 5, 8, 10, 20, 50, 200))
    return [2.0**power for power in next(s for s in steps if len(s) <= most)]


def json_file(path: Path) -> Any:
    """Return the value in a file of JSON.

    Raises:
        OSError: it cannot be read.
        ValueError: it holds no JSON, or JSON that is nested too deeply.
    """
    try:
        return json.loads(path.read_text("utf-8"))
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def npy_file(path: Path) -> np.ndarray:
    """Return the array in NumPy's .npy file: of numbers, and no larger than the file.

    Raises:
        OSError: it cannot be read.
        ValueError: it holds no such array.
    """
    # The command line reads numbers before it says how many threads NumPy may start.
    import numpy as np

    try:
        # Mapped first: this compares the shape with the size of the file, before memory is taken.
        array = np.load(path, mmap_mode="r")
        if isinstance(array, np.ndarray) and array.dtype.kind in "biufc":
            return np.array(array)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001  a header is a Python expression: errors of any kind
        raise ValueError(str(error)) from None
    raise ValueError("holds no array of numbers")
