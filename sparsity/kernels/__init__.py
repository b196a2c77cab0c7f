"""The kernels: each a short file with its definition, and the explicit tuple of all."""

from __future__ import annotations

import difflib

from sparsity.errors import InputError
from sparsity.kernels.base import Kernel, Law, score_kernel
from sparsity.kernels.decayed import decayed
from sparsity.kernels.exp import exp
from sparsity.kernels.identity import identity
from sparsity.kernels.nonnegative import nonnegative
from sparsity.kernels.relu2 import relu2

__all__ = [
    "ALL",
    "Kernel",
    "Law",
    "decayed",
    "exp",
    "identity",
    "named",
    "nonnegative",
    "relu2",
    "score_kernel",
]

ALL: tuple[Kernel, ...] = (exp, relu2, identity, nonnegative, decayed)


def named(kernel: str | Kernel) -> Kernel:
    """The built-in kernel of that name; a `Kernel` is returned as it is.

    Raises:
        InputError: no such kernel; the nearest name is suggested.
    """
    if isinstance(kernel, Kernel):
        return kernel
    names = [known.name for known in ALL]
    if kernel in names:
        return ALL[names.index(kernel)]
    near = difflib.get_close_matches(str(kernel), names, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise InputError("kernel", kernel, f"{hint}the kernels are {', '.join(names)}")
