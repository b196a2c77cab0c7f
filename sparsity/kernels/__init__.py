"""The kernels: each a short record of its definition, and the explicit tuples of them.

`ALL` are those of the article, which the reference grid, the figures and the report show; `ZOO` are
further elementwise ones. Beside these functions f(s) stand the maps of whole rows, `MAPS`.

    base ──> article (ALL), zoo (ZOO)        records of f(s) in SymPy, with parameters and symbols
    row_map ──> threshold_maps, mechanisms, router   (MAPS) weights of rows, for NumPy and JAX alike
    text, typesetting                        formulas that are typed, and printed
    formulas, lowering ──> numeric/          symmetries of f; f for arrays, intervals and boxes
"""

from __future__ import annotations

import functools

import sympy

from sparsity.calls import did_you_mean
from sparsity.errors import InputError
from sparsity.kernels import text, zoo
from sparsity.kernels.base import Kernel, Law, score_kernel
from sparsity.kernels.mechanisms import differential, forgetting, performer, stick_breaking
from sparsity.kernels.router import block_router, router, tile_softmax
from sparsity.kernels.row_map import RowMap, refused
from sparsity.kernels.threshold_maps import entmax, entmax15, sparsemax, top_k
from sparsity.kernels.zoo import ZOO, decayed, exp, identity, nonnegative, relu2

__all__ = [
    "ALL",
    "MAPS",
    "ZOO",
    "Kernel",
    "Law",
    "RowMap",
    "block_router",
    "decayed",
    "differential",
    "elementwise",
    "entmax",
    "entmax15",
    "exp",
    "forgetting",
    "identity",
    "in_python",
    "known",
    "named",
    "nonnegative",
    "performer",
    "relu2",
    "router",
    "score_kernel",
    "sparsemax",
    "stick_breaking",
    "tile_softmax",
    "top_k",
    "zoo",
]

ALL: tuple[Kernel, ...] = (exp, relu2, identity, nonnegative, decayed)
MAPS: tuple[RowMap, ...] = (
    *(sparsemax, top_k(8), stick_breaking, entmax15, entmax(1.25)),
    # Of more than a score a token.
    *(differential, forgetting, performer, router(64), block_router((4, 16)), tile_softmax(16)),
)


def known() -> tuple[Kernel, ...]:
    """Every kernel that has a name."""
    return (*ALL, *ZOO)


def as_listed() -> tuple[Kernel | RowMap, ...]:
    """Every kernel and map that has a name, those that people type first in front."""
    first = [named(alias) for alias in text.ALIASES]
    rest = [kernel for kernel in (*known(), *MAPS) if kernel not in first]
    return (*dict.fromkeys(first), *rest)


def aliases(kernel: Kernel | RowMap) -> list[str]:
    """Return the other names that a kernel may be typed by, "softmax" for exp."""
    return [alias for alias in text.ALIASES if named(alias) is kernel and "**" not in alias]


@functools.lru_cache(maxsize=256)
def _typed(formula: str) -> Kernel:
    """The kernel that a formula writes; one that has a name if it is the same function."""
    typed = Kernel.parse(formula)
    same = [typed.weight]
    if len(typed.weight.atoms(sympy.Piecewise)) == 1:  # elu(s) + 1; several would multiply
        same.append(sympy.piecewise_fold(typed.weight))
    return next((kernel for kernel in known() if kernel.weight in same), typed)


def _map_named(name: str) -> RowMap | None:
    """The map of whole rows of that name, such as "sparsemax" or "topk:16"; None if there is none.

    Raises:
        InputError: a family with a bad number.
    """
    family, colon, number = name.partition(":")
    for row_map in MAPS:
        if row_map.name == name:
            return row_map
        if row_map.with_number is not None and row_map.family == family:
            if not colon:
                raise InputError("kernel", name, f"give its number, such as {row_map.name}")
            return row_map.with_number(row_map.parse_number(number, family))
    return None


def name_with_title(kernel: Kernel | RowMap) -> str:
    """Return "exp (softmax)"; the name alone where the title begins with it, as of "gelu"."""
    word = kernel.name.split(":")[0].rstrip("0123456789.+").casefold()
    repeats = kernel.title.casefold().startswith(word)
    return kernel.name if repeats else f"{kernel.name} ({kernel.title})"


def named(kernel: str | Kernel | RowMap) -> Kernel | RowMap:
    """The kernel or row map of that name, or the kernel that a formula of the score writes.

    Args:
        kernel: a name, a text such as "log(1 + exp(s))", or a record, returned as it is.

    Raises:
        InputError: no such kernel, the nearest name is suggested; or a mistake in the formula.
    """
    if isinstance(kernel, (Kernel, RowMap)):
        return kernel
    if not isinstance(kernel, str):
        fix = "give a kernel, its name, or a formula of the score s as text, such as 's**2'"
        raise InputError("kernel", "a function" if callable(kernel) else kernel, fix)
    names = [k.name for k in known()]
    spelled = kernel.strip().lower()  # ReLU2 is relu2, Softmax is softmax
    if spelled in names:
        return known()[names.index(spelled)]
    kernel = spelled if spelled in text.ALIASES else kernel
    if (row_map := _map_named(spelled)) is not None:
        return row_map
    names += [m.name for m in MAPS]
    hint = did_you_mean(kernel, [*names, *text.ALIASES])
    if text.is_formula(kernel, bool(hint)) and not (hint and ":" in kernel):
        return _typed(kernel)
    first = ", ".join(k.name for k in ALL)
    fix = f"{hint}the kernels are {first}, those of `sparsity list`, or a formula of the score s"
    raise InputError("kernel", kernel if len(kernel) <= 80 else f"{kernel[:80]} …", fix)


def elementwise(kernel: str | Kernel | RowMap) -> Kernel:
    """As `named`, for instruments that take weights of single scores, features or positions.

    Raises:
        InputError: as `named`, or a map of whole rows.
    """
    record = named(kernel)
    if isinstance(record, RowMap):
        raise refused(record)
    return record


def in_python(kernel: Kernel | RowMap) -> str:
    """What Python code calls it: its name in quotes where `named` finds it, else its bare name."""
    try:
        return repr(kernel.name) if named(kernel.name) == kernel else kernel.name
    except InputError:
        return kernel.name


def __dir__() -> list[str]:
    return sorted(__all__)
