"""The kernels: each a short file with its definition, and the explicit tuples of them.

`ALL` are those of the article, which the reference grid, the figures and the report show; `ZOO` are
further elementwise ones. Every instrument takes both by name.
"""

from __future__ import annotations

import difflib
import functools

import sympy

from sparsity.errors import InputError
from sparsity.kernels import text, zoo
from sparsity.kernels.base import Kernel, Law, score_kernel
from sparsity.kernels.decayed import decayed
from sparsity.kernels.exp import exp
from sparsity.kernels.identity import identity
from sparsity.kernels.nonnegative import nonnegative
from sparsity.kernels.relu2 import relu2
from sparsity.kernels.zoo import ZOO

__all__ = [
    "ALL",
    "ZOO",
    "Kernel",
    "Law",
    "decayed",
    "exp",
    "identity",
    "in_python",
    "known",
    "named",
    "nonnegative",
    "relu2",
    "score_kernel",
    "zoo",
]

ALL: tuple[Kernel, ...] = (exp, relu2, identity, nonnegative, decayed)


def known() -> tuple[Kernel, ...]:
    """Every kernel that has a name."""
    return (*ALL, *ZOO)


@functools.lru_cache(maxsize=256)
def _typed(formula: str) -> Kernel:
    """The kernel that a formula writes; one that has a name if it is the same function."""
    typed = Kernel.parse(formula)
    same = [typed.weight]
    if len(typed.weight.atoms(sympy.Piecewise)) == 1:  # elu(s) + 1; several would multiply
        same.append(sympy.piecewise_fold(typed.weight))
    return next((kernel for kernel in known() if kernel.weight in same), typed)


def named(kernel: str | Kernel) -> Kernel:
    """The kernel of that name, or the one that a formula of the score writes.

    Args:
        kernel: a name, a text such as "log(1 + exp(s))", or a `Kernel`, returned as it is.

    Raises:
        InputError: no such kernel, the nearest name is suggested; or a mistake in the formula.
    """
    if isinstance(kernel, Kernel):
        return kernel
    names = [each.name for each in known()]
    if kernel in names:
        return known()[names.index(kernel)]
    near = difflib.get_close_matches(str(kernel), [*names, *text.ALIASES], n=1)
    if isinstance(kernel, str) and text.is_formula(kernel, near):
        return _typed(kernel)
    hint = f"did you mean {near[0]}? " if near else ""
    first = ", ".join(each.name for each in ALL)
    fix = f"{hint}the kernels are {first}, those of `sparsity list`, or a formula of the score s"
    shown = str(kernel)
    raise InputError("kernel", shown if len(shown) <= 80 else f"{shown[:80]} …", fix)


def in_python(kernel: Kernel) -> str:
    """What Python code calls it: its name in quotes where `named` finds it, else its bare name."""
    try:
        return repr(kernel.name) if named(kernel.name) == kernel else kernel.name
    except InputError:
        return kernel.name
