"""The kernels: each a short file with its definition, and the explicit tuple of all."""

from __future__ import annotations

import difflib
import functools

from sparsity.errors import InputError
from sparsity.kernels import text
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
    "in_python",
    "named",
    "nonnegative",
    "relu2",
    "score_kernel",
]

ALL: tuple[Kernel, ...] = (exp, relu2, identity, nonnegative, decayed)


@functools.lru_cache(maxsize=256)
def _typed(formula: str) -> Kernel:
    """The kernel that a formula writes; a built-in one if it is the same function."""
    typed = Kernel.parse(formula)
    return next((known for known in ALL if known.weight == typed.weight), typed)


def named(kernel: str | Kernel) -> Kernel:
    """The built-in kernel of that name, or the one that a formula of the score writes.

    Args:
        kernel: a name, a text such as "log(1 + exp(s))", or a `Kernel`, returned as it is.

    Raises:
        InputError: no such kernel, the nearest name is suggested; or a mistake in the formula.
    """
    if isinstance(kernel, Kernel):
        return kernel
    names = [known.name for known in ALL]
    if kernel in names:
        return ALL[names.index(kernel)]
    near = difflib.get_close_matches(str(kernel), [*names, *text.ALIASES], n=1)
    if isinstance(kernel, str) and text.is_formula(kernel, near):
        return _typed(kernel)
    hint = f"did you mean {near[0]}? " if near else ""
    fix = f"{hint}the kernels are {', '.join(names)}, or give a formula of the score s"
    shown = str(kernel)
    raise InputError("kernel", shown if len(shown) <= 80 else f"{shown[:80]} …", fix)


def in_python(kernel: Kernel) -> str:
    """What Python code calls it: its name in quotes where `named` finds it, else its bare name."""
    try:
        return repr(kernel.name) if named(kernel.name) == kernel else kernel.name
    except InputError:
        return kernel.name
