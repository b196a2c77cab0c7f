"""Output: files written whole or not at all; values as JSON, CSV and powers of ten."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sparsity.arguments import path as read_path
from sparsity.errors import InputError


def refusal(path: Path, error: OSError, argument: str = "out") -> InputError:
    """What the system refused, in one line."""
    reason = os.strerror(error.errno).lower() if error.errno else "the system refused"
    return InputError(argument, path, f"cannot be written ({reason}); choose another place")


def _behind_links(path: Path) -> Path:
    """The file that a symbolic link leads to, there or not; any other path as it is."""
    if not path.is_symlink():
        return path
    try:
        return Path(os.path.realpath(path, strict=True))
    except FileNotFoundError:
        return Path(os.path.realpath(path))
    except OSError as error:
        raise refusal(path, error) from None


def netcdf(path: str | os.PathLike[str]) -> Path:
    """The path of a netCDF file to write.

    Raises:
        InputError: its name does not end in .nc, as other formats would be taken for granted.
    """
    path = read_path("out", path, "give a path")
    if path.suffix.lower() != ".nc" and not path.is_dir():
        fix = f"is written as netCDF; give a name that ends in .nc, such as {path.stem}.nc"
        raise InputError("out", path, fix)
    return path


def folder(path: str | os.PathLike[str], argument: str = "out") -> Path:
    """The folder, made if it is not there; `argument` gave it.

    Raises:
        InputError: it cannot be made.
    """
    path = read_path(argument, path, "give a path")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise refusal(path, error, argument) from None
    return path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary file beside `path` to write to; it takes the place of `path` at the end.

    Args:
        path: the file; an existing one is replaced in one step, and kept if anything fails. Of a
            symbolic link it is the file that the link leads to.

    Raises:
        InputError: the file cannot be written, or is no regular file; nothing is left behind.
    """
    path = _behind_links(read_path("out", path, "give a path"))
    if path.is_dir():
        raise InputError("out", path, "is a folder; give a file")
    if path.exists() and not path.is_file():
        raise InputError("out", path, "is a device or a pipe; give a file")
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        part.touch()  # a missing or closed folder is told as such, whatever the writer would say
        yield part
        os.replace(part, path)
    except OSError as error:
        raise refusal(path, error) from None
    finally:
        with suppress(OSError):
            part.unlink()


def write(path: str | os.PathLike[str], content: bytes | str) -> None:
    """Write a file whole or not at all, text as UTF-8.

    Raises:
        InputError: as `replacing`.
    """
    with replacing(path) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


class _Unused(Exception):
    """Nothing is to be written yet."""


def refuse_unwritable(path: str | os.PathLike[str]) -> None:
    """Find out before the work whether the file can be written.

    Raises:
        InputError: as `replacing`.
    """
    with suppress(_Unused), replacing(path):
        raise _Unused


def plain(value: Any) -> Any:
    """The value in JSON's own types; what JSON cannot say (NaN, ±∞) becomes null."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def json_text(value: Any) -> str:
    """The value as a JSON document."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """The rows as CSV, a line feed after each."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def power_of_ten(power: int) -> str:
    """10 with a raised power, such as 10⁻³."""
    return "10" + str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
