"""Numbers as typed, in plain decimal notation.

`float` and `int` also take digits of other scripts and underscores between digits; a typing error
must not become another number. NumPy is not imported: the command line reads numbers before it says
how many threads NumPy may start.
"""

from __future__ import annotations

import re

from sparsity.errors import InputError

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
