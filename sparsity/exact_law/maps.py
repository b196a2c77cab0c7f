"""The exact laws of rows whose weights depend on the whole row, one for each family of maps."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sparsity import quantities
from sparsity.errors import InputError
from sparsity.exact_law import (
    differential,
    differential_abs,
    engine,
    entmax,
    entmax_focus,
    entmax_order,
    forgetting,
    router,
    sparsemax,
    sparsemax_focus,
    sparsemax_largest,
    stick_breaking,
    stick_focus,
    top_k,
)
from sparsity.kernels import RowMap, exp
from sparsity.quantities import Quantity
from sparsity.rows.row import Row

Columns = tuple[np.ndarray, np.ndarray, np.ndarray]  # value, P(row ≠ 0), relative error bound


class MapLaw(NamedTuple):
    """The exact law of a family.

    Args:
        has: whether it has a quantity.
        columns: (row, quantity, lengths [n]) -> the mean over rows, and its error bound.
    """

    has: Callable[[Quantity], bool]
    columns: Callable[[Row, Quantity, np.ndarray], tuple[np.ndarray, np.ndarray]]


@functools.lru_cache(maxsize=16)
def _both(
    law: Callable[..., sparsemax.Law], own: tuple[float, ...], lengths: tuple[int, ...]
) -> sparsemax.Law:
    """Of support and participation, which come together and are asked for one by one."""
    return law(*own, np.array(lengths))


def _one_of_both(
    law: Callable[..., sparsemax.Law], own: tuple[float, ...], quantity: Quantity, n: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    found = _both(law, own, tuple(n.tolist()))
    which = ("support", "participation").index(quantity.name)
    return found.value[which].copy(), found.error[which].copy()


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
    if quantity is quantities.max_weight:
        return sparsemax_largest.law(row.gamma, n)
    if quantity is quantities.n_eff:
        return sparsemax_focus.law(row.gamma, n, 1.0)
    if quantity is quantities.S:
        value, error = sparsemax_focus.law(row.gamma, n, 0.5)
        return value / np.sqrt(n), error
    return _one_of_both(sparsemax.law, (row.gamma,), quantity, n)


def _entmax(row: Row, quantity: Quantity, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    kernel: Any = row.kernel
    alpha = kernel.weights.alpha if kernel.family == "entmax" else 1.5
    if quantity.name in _POWERS:
        value, error = entmax_focus.law(alpha, row.gamma, n, _POWERS[quantity.name])
        return value / (np.sqrt(n) if quantity is quantities.S else 1.0), error
    if alpha == 1.5:
        return _one_of_both(entmax.law, (row.gamma,), quantity, n)
    return _one_of_both(entmax_order.law, (alpha, row.gamma), quantity, n)


def _stick_breaking(row: Row, quantity: Quantity, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if quantity is quantities.support:
        return n, np.zeros(n.shape)
    if quantity in (quantities.n_eff, quantities.max_weight):
        return stick_focus.law(quantity.name, row.beta, row.gamma, n)
    of = {"participation": stick_breaking.participation, "entropy": stick_breaking.entropy}
    return of[quantity.name](row.beta, row.gamma, n)


def _differential(row: Row, quantity: Quantity, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    own: Any = row.params
    law = differential.square_sum
    if quantity is quantities.abs_sum:
        law = differential_abs.abs_sum
    return law(own["gamma"], own["gamma2"], own["rho"], own["mix"], n)


def _forgetting(row: Row, quantity: Quantity, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    own: Any = row.params
    return forgetting.law(own["gate"], own["gate_spread"], own["gamma"], n, quantity)


def _router(row: Row, quantity: Quantity, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    kernel, own = row.kernel, row.params
    k = kernel.weights.k  # type: ignore[union-attr]
    value, error = np.ones(n.shape), np.zeros(n.shape)
    short = n <= k  # softmax of them all
    if short.any() and quantity is not quantities.abs_sum:
        found = engine.law(Row(exp, gamma=own["gamma"]), quantity, n[short])
        value[short], error[short] = found[0], found[2]
    if not short.all():
        whole: Any = (quantity.name, k, own["gamma"], own["rho"])
        value[~short], error[~short] = router.law(*whole, n[~short])
    return value, error


def _among(*members: Quantity) -> Callable[[Quantity], bool]:
    return lambda quantity: quantity in members


def _softmax_has(quantity: Quantity) -> bool:
    whole = quantity.integral is not None and not quantity.sinks
    return whole or quantity is quantities.support


_ONE_HOT = 1e17  # (α − 1)γ from which on a second key has no weight, but for a chance of 1e−15
_WIDEST = 1e100  # γ whose square is in float64
_POWERS = {"n_eff": 1.0, "S": 0.5, "max_weight": None}  # of 1/Y₂
_ENTMAX = (
    *(quantities.S, quantities.n_eff, quantities.participation),
    *(quantities.max_weight, quantities.support),
)
_STICKS = (
    *(quantities.n_eff, quantities.participation, quantities.entropy),
    *(quantities.max_weight, quantities.support),
)

_ROUTED = (quantities.n_eff, quantities.participation, quantities.S)

_LAWS: dict[str, MapLaw] = {
    "sparsemax": MapLaw(_among(*_ENTMAX), _sparsemax),
    "entmax1.5": MapLaw(_among(*_ENTMAX), _entmax),
    "entmax": MapLaw(_among(*_ENTMAX), _entmax),
    "topk": MapLaw(_softmax_has, _top_k),
    "stick-breaking": MapLaw(_among(*_STICKS), _stick_breaking),
    "differential": MapLaw(_among(*quantities.OF_MAPS), _differential),
    "forgetting": MapLaw(forgetting.has, _forgetting),
    "router": MapLaw(_among(quantities.abs_sum, *_ROUTED), _router),
}


def has(kernel: RowMap, quantity: Quantity) -> bool:
    """Whether the mean of a quantity over rows is known exactly."""
    if quantity.linear is not None:
        return has(kernel, quantity.linear.of)
    return kernel.family in _LAWS and _LAWS[kernel.family].has(quantity)


def slow(kernel: RowMap, quantity: Quantity) -> bool:
    """Whether the law of a length takes seconds."""
    of = quantity if quantity.linear is None else quantity.linear.of
    whole = kernel.family in ("entmax", "entmax1.5") and of.name in _POWERS
    return whole or of is quantities.abs_sum


def known(kernel: RowMap) -> tuple[str, ...]:
    """Names of the quantities without a number whose mean over rows is known exactly."""
    every = (*quantities.ALL, *quantities.OF_MAPS)
    return tuple(quantity.name for quantity in every if has(kernel, quantity))


def law(row: Row, quantity: Quantity, n: np.ndarray) -> Columns:
    """The mean of a quantity over rows of n under a row map, exactly.

    Args:
        row: of a `RowMap`, without steps.
        quantity: one that it `has`.
        n: row lengths, checked, any shape.

    Raises:
        InputError: a quantity or a map that has no exact law, or parameters out of its reach.
    """
    kernel = row.kernel
    assert isinstance(kernel, RowMap)
    if not has(kernel, quantity):
        names = ", ".join(known(kernel))
        others = f"{kernel.name} has the exact laws of {names}"
        fix = others if names else f"no exact law of {kernel.name} is known"
        raise InputError("of", quantity.name, f"{fix}; use estimate")
    if row.steps:
        fix = f"the exact laws of {kernel.name} are of Gaussian scores; use estimate"
        raise InputError("scores", row.described()["steps"][0], fix)
    if not n.size:
        raise InputError("length", n, "give at least one")
    if row.gamma > _WIDEST:
        raise InputError("gamma", row.gamma, f"must be at most {_WIDEST:g} here")
    if quantity.linear is not None:
        found = law(row, quantity.linear.of, n)
        return tuple(quantity.linear.columns(found, n))  # type: ignore[return-value]
    order = {"sparsemax": 2.0, "entmax1.5": 1.5}.get(kernel.family)
    order = getattr(kernel.weights, "alpha", order) if kernel.family == "entmax" else order
    if order is not None and (order - 1) * row.gamma > _ONE_HOT:
        value = 1 / np.sqrt(n) if quantity is quantities.S else np.ones(n.shape)
        return value, np.ones(n.shape), np.full(n.shape, 1e-13)
    value, error = _LAWS[kernel.family].columns(row, quantity, n.reshape(-1))
    return value.reshape(n.shape), np.ones(n.shape), error.reshape(n.shape)
