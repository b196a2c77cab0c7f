"""Output: files written whole or not at all; values as JSON, CSV and powers of ten."""

from __future__ import annotations

import csv
import errno
import io
import itertools
import json
import math
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsity.errors import InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

if TYPE_CHECKING:
    import xarray


def unwritable_error(path: Path, error: OSError, argument: str = "out") -> InputError:
    """Return the error that says in one line what the system refused."""
    reason = os.strerror(error.errno).lower() if error.errno else "the system refused"
    return InputError(argument, path, f"cannot be written ({reason}); choose another place")


def _behind_links(path: Path) -> Path:
    """Return the file that a symbolic link leads to, there or not; any other path as it is."""
    if not path.is_symlink():
        return path
    try:
        return Path(os.path.realpath(path, strict=True))
    except FileNotFoundError:
        return Path(os.path.realpath(path))
    except OSError as error:
        raise unwritable_error(path, error) from None


def _path_of(argument: str, path: Any) -> Path:
    """Return the path that an argument names.

    Raises:
        InputError: no name that a file can have.
    """
    from sparsity.arguments import path as read_path  # the command line is up before NumPy is

    return read_path(argument, path, "give a path")


TABLE_HEADER = "series,x,theory,"  # how a table of curves begins


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
    """Return the path of a file to read: of a pipe one would wait for ever.

    Raises:
        InputError: it is a device or a pipe.
    """
    try:
        kind = path.stat().st_mode  # asked once: between two questions another run may remove it
    except (OSError, ValueError):
        return path
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise InputError(argument, path, "is a device or a pipe; give a file")
    return path


def refuse_missing(argument: str, path: str | os.PathLike[str], fix: str) -> None:
    """Refuse a file or folder to read that is not there, before the work and what it imports.

    Raises:
        InputError: it is not there; `fix` says what to give.
    """
    if not os.path.exists(path):
        raise InputError(argument, path, f"is not there; {fix}")


def refuse_unwritable_folder(path: str | os.PathLike[str], argument: str = "out") -> None:
    """Find out before the work whether a folder can be made and written to; none is made.

    Raises:
        InputError: a part of the path is no folder, or closed.
    """
    place = _path_of(argument, path)
    home = next(each for each in (place, *place.absolute().parents) if each.exists())
    reason = errno.ENOTDIR if not home.is_dir() else errno.EACCES
    if reason == errno.ENOTDIR or not os.access(home, os.W_OK | os.X_OK):
        raise unwritable_error(place, OSError(reason, ""), argument)


def refuse_pipe(path: str | os.PathLike[str], argument: str = "out") -> None:
    """Refuse a device or a pipe: reading goes on for ever, and no file can be put in its place.

    Raises:
        InputError: it is one, or a folder that has one in it.
    """
    path = Path(path)
    for each in [path, *(path.iterdir() if path.is_dir() else ())]:
        require_regular_file(each, argument)


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


def _still(place: int, part: Path) -> bool:
    """Tell whether the open part still has its name: it may be renamed, or removed as abandoned.

    Args:
        place: its descriptor; −1 where there are no locks, and then the answer is always yes.
        part: its name.
    """
    try:
        return place < 0 or os.path.samestat(os.fstat(place), os.lstat(part))
    except FileNotFoundError:
        return False


def _remove(part: Path) -> None:
    """Remove a file or a folder as far as the system allows."""
    with suppress(OSError):
        shutil.rmtree(part) if part.is_dir() else part.unlink()


def _remove_abandoned(part: Path) -> None:
    """Remove a part whose writer is dead: a living one holds its lock."""
    if fcntl is None:
        return
    # A lock that a process held is gone with it: whoever can take it knows that the writer is dead.
    with suppress(OSError):  # a link, another's, or a disk without locks: it stays
        place = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _still(place, part):
                _remove(part)
        finally:
            os.close(place)


def _make(part: Path, as_folder: bool) -> int | None:
    """Make a part anew, open and lock it; None where another run has or had one of that name."""
    try:
        if as_folder:
            part.mkdir()
            if fcntl is None:
                return -1
            place = os.open(part, os.O_RDONLY)
        else:
            place = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    except (FileExistsError, FileNotFoundError):  # a folder is gone if it was taken for abandoned
        if part.parent.is_dir():
            return None
        raise
    if fcntl is None:
        os.close(place)
        return -1
    with suppress(OSError):  # no lock on such a disk: it is this run's alone all the same
        fcntl.flock(place, fcntl.LOCK_EX)
    # Between opening and locking another run could take the lock and remove the part as abandoned:
    # only a part that has its name after the lock is this run's.
    if _still(place, part):
        return place
    os.close(place)
    return None


@contextmanager
def part_of(path: Path, *, as_folder: bool = False) -> Iterator[Path]:
    """Give a file or folder beside `path` that this run alone writes to, gone at the end.

    Those that killed runs left are removed. Names are numbered, so that these are found without a
    look through the folder, of which each of thousands of blocks would take one.
    """
    place, tried = None, itertools.count()
    while place is None:
        part = path.with_name(f".{path.name}.{next(tried)}.part")
        _remove_abandoned(part)
        place = _make(part, as_folder)
    try:
        while os.path.lexists(other := path.with_name(f".{path.name}.{next(tried)}.part")):
            _remove_abandoned(other)
        yield part
    finally:
        if _still(place, part):  # not another run's of this name, if this one was renamed
            _remove(part)
        if place >= 0:
            os.close(place)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary file beside `path` to write to; it takes the place of `path` at the end.

    Args:
        path: the file; an existing one is replaced in one step, and kept if anything fails. Of a
            symbolic link it is the file that the link leads to.

    Raises:
        InputError: the file cannot be written, or is no regular file; nothing is left behind.
    """
    path = _behind_links(_path_of("out", path))
    if path.is_dir():
        raise InputError("out", path, "is a folder; give a file")
    refuse_pipe(path)
    try:
        # Beside `path`, as a rename is one step only within a file system.
        with part_of(path) as part:
            yield part
            os.replace(part, path)
    except OSError as error:
        raise unwritable_error(path, error) from None


def _utf8(text: str) -> bytes:
    """Return the text as bytes; what a file name has that is not UTF-8, as Python writes it."""
    return text.encode("utf-8", "backslashreplace")


def write_together(contents: Mapping[Any, bytes | str]) -> None:
    """Write several files, all or none of them, text as UTF-8.

    Args:
        contents: path -> content; they come into place in this order.

    Raises:
        InputError: as `replacing`.
    """
    # All parts are written before the first rename. A stack is left last in, first out: the files
    # are entered in reverse, so that they come into place in the order that was given.
    with ExitStack() as held:
        for path, content in reversed(list(contents.items())):
            part = held.enter_context(replacing(path))
            part.write_bytes(_utf8(content) if isinstance(content, str) else content)


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


class _Unused(Exception):
    """It leaves `replacing` before the rename, so that the part is removed and the file is kept."""


def refuse_unwritable(path: str | os.PathLike[str]) -> None:
    """Find out before the work whether the file can be written.

    Raises:
        InputError: as `replacing`.
    """
    with suppress(_Unused), replacing(path):
        raise _Unused


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
