"""The exact laws of rows whose weights depend on the whole row, one for each family of maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sparsity import quantities
from sparsity.errors import InputError
from sparsity.finite import engine, sparsemax, sparsemax_focus, stick_breaking, top_k
from sparsity.kernels import RowMap, exp
from sparsity.quantities import Quantity
from sparsity.rows.row import Row

Columns = tuple[np.ndarray, np.ndarray, np.ndarray]  # value, P(row ≠ 0), relative error bound


class MapLaw(NamedTuple):
    """The exact law of a family.

    Args:
        names: of the quantities that it has.
        columns: (row, quantity, lengths [n]) -> the mean over rows, and its error bound.
    """

    names: tuple[str, ...]
    columns: Callable[[Row, Quantity, np.ndarray], tuple[np.ndarray, np.ndarray]]


def _top_k(row: Row, quantity: Quantity, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    kernel: Any = row.kernel
    k = kernel.weights.k
    if quantity is quantities.support:
        return np.minimum(n, k), np.zeros(n.shape)
    value, error = np.empty(n.shape), np.empty(n.shape)
    short = n <= k
    if short.any():  # softmax of them all
        found = engine.law(Row(exp, gamma=row.gamma), quantity, n[short])
        value[short], error[short] = found[0], found[2]
    if not short.all():
        assert quantity.integral is not None
        value[~short], error[~short] = top_k.law(k, row.gamma, n[~short], quantity.integral)
    return value, error


def _sparsemax(row: Row, quantity: Quantity, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if quantity is quantities.n_eff:
        return sparsemax_focus.law(row.gamma, n, 1.0)
    if quantity is quantities.S:
        value, error = sparsemax_focus.law(row.gamma, n, 0.5)
        return value / np.sqrt(n), error
    found = sparsemax.law(row.gamma, n)
    which = ("support", "participation").index(quantity.name)
    return found.value[which], found.error[which]


def _stick_breaking(row: Row, quantity: Quantity, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if quantity is quantities.support:
        return n, np.zeros(n.shape)
    of = {"participation": stick_breaking.participation, "entropy": stick_breaking.entropy}
    return of[quantity.name](row.beta, row.gamma, n)


_WIDEST = 1e100  # γ whose square is in float64

_INTEGRALS = tuple(q.name for q in quantities.ALL if q.integral is not None and not q.sinks)

_LAWS: dict[str, MapLaw] = {
    "sparsemax": MapLaw(("S", "n_eff", "participation", "support"), _sparsemax),
    "topk": MapLaw((*_INTEGRALS, "support"), _top_k),
    "stick-breaking": MapLaw(("participation", "entropy", "support"), _stick_breaking),
}


def known(kernel: RowMap) -> tuple[str, ...]:
    """Names of the quantities whose mean over rows is known exactly."""
    return _LAWS[kernel.family].names if kernel.family in _LAWS else ()


def law(row: Row, quantity: Quantity, n: np.ndarray) -> Columns:
    """The mean of a quantity over rows of n under a row map, exactly.

    Args:
        row: of a `RowMap`, without steps.
        quantity: one of those `known`.
        n: row lengths, checked, any shape.

    Raises:
        InputError: a quantity or a map that has no exact law, or parameters out of its reach.
    """
    kernel = row.kernel
    assert isinstance(kernel, RowMap)
    names = known(kernel)
    whole = kernel.family == "topk" and quantity.integral is not None and not quantity.sinks
    if quantity.name not in names and not whole:
        has = f"{kernel.name} has the exact laws of {', '.join(names)}"
        fix = has if names else f"no exact law of {kernel.name} is known"
        raise InputError("of", quantity.name, f"{fix}; use estimate")
    if not n.size:
        raise InputError("length", n, "give at least one")
    if row.gamma > _WIDEST:
        raise InputError("gamma", row.gamma, f"must be at most {_WIDEST:g} here")
    value, error = _LAWS[kernel.family].columns(row, quantity, n.reshape(-1))
    return value.reshape(n.shape), np.ones(n.shape), error.reshape(n.shape)
