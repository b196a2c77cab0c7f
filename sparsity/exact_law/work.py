"""What an exact law costs is known before it starts: one that takes too long is refused."""

from __future__ import annotations

from typing import Any

from sparsity.errors import TooFine

# Seconds of a processor core of 2020, about; measured.
EXPONENTIAL = 1.5e-8  # of an array, with what is done to it
PRODUCT = 1e-9  # a multiplication within a convolution or a product of matrices
_LONGEST = 8.0  # seconds, as counted on a busy machine
_MOST = 1e8  # numbers held at once: 0.8 GB
_FIX = "its exact law takes too long at these parameters; use less extreme ones, or estimate"


def plan(argument: str, value: Any, seconds: float, held: float = 0.0) -> None:
    """Refuse work that would take too long or too much memory, before it starts.

    Args:
        argument: the parameter that makes it long.
        value: of the parameter.
        seconds: of the work, about.
        held: numbers that it holds at once.

    Raises:
        TooFine: more than a few seconds, or than a gigabyte.
    """
    if not (seconds <= _LONGEST and held <= _MOST):
        raise TooFine(argument, value, _FIX)
