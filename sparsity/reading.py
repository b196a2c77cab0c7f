"""Numbers as typed, in plain decimal notation; arrays and JSON as files hold them.

`float` and `int` also take digits of other scripts and underscores between digits; a typing error
must not become another number. A file may declare more than it holds, and is read no further then.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparsity.errors import InputError

if TYPE_CHECKING:
    import numpy as np

_SPACE = " \t"
# ASCII alone: `\d` and `float` also take the digits of other scripts.
_DECIMAL = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?"
_NUMBER = re.compile(rf"[+-]?(?:{_DECIMAL}|nan|inf|infinity)", re.IGNORECASE | re.ASCII)
_WHOLE = re.compile(r"[+-]?[0-9]+")
_TOKENS = re.compile(r"([0-9]{1,6})([kKM])")
_UNITS = {"k": 2**10, "K": 2**10, "M": 2**20}


def expand_token_count(text: str) -> str:
    """Return a count of tokens as people write it, in digits: "128k" is 131072.

    So it is in "a context of 128k". Any other text is returned as it is.
    """
    count = _TOKENS.fullmatch(text.strip(_SPACE))
    return str(int(count[1]) * _UNITS[count[2]]) if count else text


def parse_number(text: str, argument: str, fix: str = "give a number") -> float:
    """Return the number that a text writes in decimal notation.

    Raises:
        InputError: it writes none.
    """
    text = expand_token_count(text) if argument == "length" else text
    if not _NUMBER.fullmatch(text.strip(_SPACE)):
        raise InputError(argument, text, fix)
    return float(text)


def parse_whole(text: str, argument: str) -> int:
    """Return the whole number that a text writes in decimal digits.

    Raises:
        InputError: it writes none.
    """
    text = expand_token_count(text) if argument == "length" else text
    if not _WHOLE.fullmatch(text.strip(_SPACE)):
        raise InputError(argument, text, "give a whole number")
    try:
        return int(text)
    except ValueError:  # of thousands of digits
        raise InputError(argument, f"{text[:20]}…", "give a smaller number") from None


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
