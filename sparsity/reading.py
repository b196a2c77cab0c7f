"""Numbers as typed: plain decimal notation, and nothing that Python reads besides.

`float` and `int` also take digits of other scripts and underscores between digits; a typing error
must not become another number.
"""

from __future__ import annotations

import re

from sparsity.errors import InputError

_SPACE = " \t"
_DECIMAL = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?"
_NUMBER = re.compile(rf"[+-]?(?:{_DECIMAL}|nan|inf|infinity)", re.IGNORECASE | re.ASCII)
_WHOLE = re.compile(r"[+-]?[0-9]+")


def number(text: str, argument: str, fix: str = "give a number") -> float:
    """The number that a text writes in decimal notation.

    Raises:
        InputError: it writes none.
    """
    if not _NUMBER.fullmatch(text.strip(_SPACE)):
        raise InputError(argument, text, fix)
    return float(text)


def whole(text: str, argument: str) -> int:
    """The whole number that a text writes in decimal digits.

    Raises:
        InputError: it writes none.
    """
    if not _WHOLE.fullmatch(text.strip(_SPACE)):
        raise InputError(argument, text, "give a whole number")
    try:
        return int(text)
    except ValueError:  # of thousands of digits
        raise InputError(argument, f"{text[:20]}…", "give a smaller number") from None
