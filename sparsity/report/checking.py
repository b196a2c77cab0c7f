"""A run of `reproduce` held against another, file by file.

Files of one machine are the same bytes. On another kind of processor a number may differ by one in
its last digit, and with it a coordinate or the shade of a pixel; anything else is another result.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sparsity.errors import InputError
from sparsity.output import json_file

SAME, ROUNDED, OTHER = "same", "same to rounding", "other"
MISSING, UNKNOWN = "missing", "not written by this version"
MACHINE = "of the machine: not compared"
ENVIRONMENT = "environment.json"
_SUFFIXES = (".csv", ".html", ".json", ".png", ".svg")
_NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
# Of 255: a line that moves by a millionth of a point changes the shade of its edge by less.
_SHADE = 8


class Check(NamedTuple):
    """What a run is beside another.

    Args:
        verdicts: what each file is.
    """

    verdicts: dict[str, str]

    @property
    def same(self) -> bool:
        """Whether every file is the same, or the same to rounding."""
        return all(verdict in (SAME, ROUNDED, MACHINE) for verdict in self.verdicts.values())

    def summary(self) -> dict[str, Any]:
        """Return the outcome in JSON's types."""
        return {"same": self.same, "files": self.verdicts}

    def text(self) -> str:
        """Return a line for each file that is not the same bytes, and how many are."""
        width = max(map(len, self.verdicts), default=0)
        lines = [f"{name:<{width}}  {said}" for name, said in self.verdicts.items() if said != SAME]
        count = sum(verdict == SAME for verdict in self.verdicts.values())
        return "\n".join([*lines, f"{count} of {len(self.verdicts)} files are the same bytes"])


def compare_folders(there: Path, here: Path, names: Iterable[str]) -> Check:
    """Compare the files of a run with those of the same names in another folder.

    Args:
        there: what it is held against.
        here: the folder of this run.
        names: the files of this run.

    Raises:
        InputError: no folder to compare with.
    """
    if not there.is_dir():
        raise InputError("check", there, "is no folder; give one that `sparsity reproduce` wrote")
    names = sorted(names)
    verdicts = {name: _compare(there, here, name) for name in names}
    left = [path.name for path in there.iterdir() if path.suffix in _SUFFIXES]
    return Check(verdicts | dict.fromkeys(sorted(set(left) - set(names)), UNKNOWN))


def _compare(there: Path, here: Path, name: str) -> str:
    """Return what one file is."""
    if not (there / name).is_file():
        return MISSING
    if name == ENVIRONMENT:
        return MACHINE
    old, new = (there / name).read_bytes(), (here / name).read_bytes()
    if old == new:
        return SAME
    if name.endswith(".png"):
        return ROUNDED if _same_pixels(there / name, here / name) else OTHER
    texts = (_without_machine(home, text.decode()) for home, text in ((there, old), (here, new)))
    return ROUNDED if _same_text(*texts) else OTHER


def _without_machine(folder: Path, text: str) -> str:
    """Return a page without the versions and the device that its run names."""
    path = folder / ENVIRONMENT
    for name, value in (json_file(path) if path.is_file() else {}).items():
        if name != "seed":
            text = text.replace(escape(value), name)
    return text


def _same_text(old: str, new: str) -> bool:
    """Return whether two texts differ by one in the last digit of some numbers, at most."""
    if _NUMBER.sub("#", old) != _NUMBER.sub("#", new):
        return False
    pairs = zip(_NUMBER.findall(old), _NUMBER.findall(new), strict=True)
    return all(a == b or _same_number(a, b) for a, b in pairs)


def _same_number(old: str, new: str) -> bool:
    """Return whether two numbers differ by one in the last digit of the longer one, at most."""
    if old.isdecimal() and new.isdecimal():  # counts and seeds
        return False
    a, b = (float(text.replace("−", "-")) for text in (old, new))
    return abs(a - b) <= 1.001 * min(_last_digit(old), _last_digit(new))


def _last_digit(text: str) -> float:
    """Return what one in the last digit of a number is."""
    mantissa, _, power = text.partition("e")
    return math.pow(10.0, int(power or 0) - len(mantissa.partition(".")[2]))


def _same_pixels(old: Path, new: Path) -> bool:
    """Return whether two pictures have the same size and nearly the same shades."""
    from matplotlib.image import imread

    pictures = [np.asarray(imread(path), float) for path in (old, new)]
    if pictures[0].shape != pictures[1].shape:
        return False
    return float(np.abs(pictures[0] - pictures[1]).max()) <= _SHADE / 255
