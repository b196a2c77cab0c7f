"""The exact laws of rows whose weights depend on the whole row, one for each family of maps."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sparsity import quantities
from sparsity.errors import InputError
from sparsity.exact_law import below, engine
from sparsity.exact_law.maps import entmax, routed_weights, router, sparsemax, top_k
from sparsity.kernels import RowMap, exp
from sparsity.quantities import BelowLaw, Quantity
from sparsity.quantities.base import Means
from sparsity.rows.row import Row

Bounded = tuple[np.ndarray, np.ndarray]  # the mean over rows, and its relative error bound

# (α − 1)γ from which on a second key of entmax has no weight, but for a chance of 1e−15.
_ONE_HOT = 1e17
_WIDEST = 1e100  # γ whose square is in float64
NO_LAW = "no exact law; estimate samples it"  # what is said of a map without one
_POWERS = {"n_eff": 1.0, "S": 0.5, "max_weight": None}  # of 1/Y₂
_OF_POWERS = tuple(map(quantities.named, _POWERS))
_OF_THRESHOLDS = (*_OF_POWERS, quantities.participation, quantities.support)


class MapLaw(NamedTuple):
    """The exact law of a family.

    Args:
        has: whether it has a quantity.
        mean: (row, quantity, lengths [n]) -> the mean over rows, and its relative error bound.
        slow: whether the law of a quantity takes seconds a length; None where none does.
        order: of a map with a threshold, its order α: where (α − 1)γ leaves float64 its
            rows are their largest key, and `mean` is not asked.
    """

    has: Callable[[Quantity], bool]
    mean: Callable[[Row, Quantity, np.ndarray], Bounded]
    slow: Callable[[Quantity], bool] | None = None
    order: float | None = None


@functools.lru_cache(maxsize=16)
def _support_and_participation(alpha: float, gamma: float, lengths: tuple[int, ...]) -> Bounded:
    """Return the law of both, cached: they come from one integral and are asked for one by one."""
    of_map = sparsemax.Sparsemax if alpha == 2 else entmax.EntmaxThreeHalves
    return of_map(gamma).support_and_participation(np.array(lengths, dtype=np.float64))


def _threshold(row: Row, quantity: Quantity, n: np.ndarray) -> Bounded:
    """Return the law of a map with a threshold: sparsemax, of order 2, or entmax-1.5."""
    kernel: Any = row.kernel
    alpha = _LAWS[kernel.family].order
    assert alpha is not None
    if quantity.name not in _POWERS:
        both = _support_and_participation(alpha, row.gamma, tuple(n.tolist()))
        which = ("support", "participation").index(quantity.name)
        return both[0][which].copy(), both[1][which].copy()
    power = _POWERS[quantity.name]
    if alpha < 2:
        value, error = entmax.powers_and_largest(row.gamma, n, power)
    elif power is None:
        value, error = sparsemax.max_weight(row.gamma, n)
    else:
        value, error = sparsemax.n_eff_powers(row.gamma, n, power)
    return value / (np.sqrt(n) if quantity is quantities.S else 1.0), error


def _top_k(row: Row, quantity: Quantity, n: np.ndarray) -> Bounded:
    """Return the law of top-k softmax; rows of at most k tokens are softmax rows."""
    kernel: Any = row.kernel
    k = kernel.weights.k
    if quantity is quantities.support:
        return np.minimum(n, k), np.zeros(n.shape)
    value, error = np.empty(n.shape), np.empty(n.shape)
    short = n <= k
    if short.any():  # softmax of them all
        means = engine.mean_over_rows(Row(exp, gamma=row.gamma), quantity, n[short])
        value[short], error[short] = means.value, means.error
    if not short.all():
        assert quantity.integral is not None
        of_long = top_k.top_k_mean(k, row.gamma, n[~short], quantity.integral)
        value[~short], error[~short] = of_long
    return value, error


def _of_best_keys(k: int, gamma: float, quantity: Quantity, n: np.ndarray) -> Bounded:
    """Return the law of a proxy that is the score: softmax of the k largest, of the mass of all."""
    if quantity is quantities.recall:
        return np.ones(n.shape), np.zeros(n.shape)
    if quantity is quantities.abs_sum:
        captured = quantities.named(f"top_k_mass:{k}")
        means = engine.mean_over_rows(Row(exp, gamma=gamma), captured, n)
        return means.value, means.error
    assert quantity.integral is not None
    return top_k.top_k_mean(k, gamma, n, quantity.integral)


def _router(row: Row, quantity: Quantity, n: np.ndarray) -> Bounded:
    """Return the law of routed rows; of rows no longer than k, softmax's."""
    params: Any = row.params
    k = row.kernel.weights.k  # type: ignore[union-attr]
    value, error = np.ones(n.shape), np.zeros(n.shape)
    short = n <= k
    if short.any() and quantity not in (quantities.abs_sum, quantities.recall):
        means = engine.mean_over_rows(Row(exp, gamma=params["gamma"]), quantity, n[short])
        value[short], error[short] = means.value, means.error
    if params["rho"] == 1 and not short.all():
        value[~short], error[~short] = _of_best_keys(k, params["gamma"], quantity, n[~short])
    elif quantity is quantities.recall and not short.all():
        value[~short], error[~short] = router.recall(k, params["rho"], n[~short])
    elif not short.all():
        whole = (quantity.name, k, params["gamma"], params["rho"])
        value[~short], error[~short] = routed_weights.routed_mean(*whole, n[~short])
    return value, error


def _tile_softmax(row: Row, quantity: Quantity, n: np.ndarray) -> Bounded:
    """Return the law of what a threshold drops of keys that are alike in tiles."""
    params: Any = row.params
    size = int(row.kernel.name.partition(":")[2])
    assert isinstance(quantity.rank_law, BelowLaw)
    return below.of_alike(params["gamma"], params["within"], size, n, quantity.rank_law)


def _of_all_softmax(quantity: Quantity) -> bool:
    """Return whether softmax has a quantity as an integral over tokens, without sinks."""
    return quantity is quantities.support or (
        quantity.integral is not None and not (quantity.needs or quantity.token)
    )


_of_threshold, _by_three_integrals = _OF_THRESHOLDS.__contains__, _OF_POWERS.__contains__
_of_abs_sum = (quantities.abs_sum,).__contains__
_OF_ROUTED = (
    *(quantities.abs_sum, quantities.n_eff, quantities.participation, quantities.S),
    quantities.recall,
)
_LAWS: dict[str, MapLaw] = {
    "sparsemax": MapLaw(_of_threshold, _threshold, order=2.0),
    "entmax1.5": MapLaw(_of_threshold, _threshold, _by_three_integrals, order=1.5),
    "topk": MapLaw(_of_all_softmax, _top_k),
    "router": MapLaw(_OF_ROUTED.__contains__, _router, _of_abs_sum),
    "tile-softmax": MapLaw(lambda of: isinstance(of.rank_law, BelowLaw), _tile_softmax),
}


def has(kernel: RowMap, quantity: Quantity) -> bool:
    """Return whether the mean of a quantity over rows is known exactly."""
    if quantity.linear is not None:
        return has(kernel, quantity.linear.of)
    if getattr(kernel.weights, "window", 0) or getattr(kernel.weights, "sink", -np.inf) > -np.inf:
        return False  # of what a router reads besides, or a sink
    return kernel.family in _LAWS and _LAWS[kernel.family].has(quantity)


def slow(kernel: RowMap, quantity: Quantity) -> bool:
    """Return whether there is a law of a quantity that takes seconds a length."""
    of = quantity if quantity.linear is None else quantity.linear.of
    map_law = _LAWS.get(kernel.family)
    return map_law is not None and map_law.slow is not None and map_law.slow(of)


def known(kernel: RowMap) -> tuple[str, ...]:
    """Return the names of the quantities whose mean over rows is known exactly.

    They are those without a number; where there is none, an example of every family.
    """
    every = (*quantities.ALL, *quantities.OF_MAPS)
    examples = (quantities.named(f"{x.name}:{x.example}") for x in quantities.FAMILIES)
    return tuple(of.name for of in every if has(kernel, of)) or tuple(
        of.name for of in examples if has(kernel, of)
    )


def mean_over_map_rows(row: Row, quantity: Quantity, n: np.ndarray) -> Means:
    """Return the mean of a quantity over rows of n under a row map, exactly.

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
        names = known(kernel)
        others = f"{kernel.name} has the exact laws of {', '.join(names)}; use estimate"
        raise InputError("of", quantity.name, others if names else f"{kernel.name} has {NO_LAW}")
    if row.steps:
        fix = f"the exact laws of {kernel.name} are of independent Gaussian scores; use estimate"
        raise InputError("steps", row.described()["steps"], fix)
    if not n.size:
        raise InputError("length", n, "give at least one")
    if row.gamma > _WIDEST:
        raise InputError("gamma", row.gamma, f"must be at most {_WIDEST:g} here")
    if quantity.linear is not None:
        return quantity.linear.means(mean_over_map_rows(row, quantity.linear.of, n), n)
    # Beyond that spread the contours leave float64, and a row of a threshold map is its largest
    # key.
    map_law = _LAWS[kernel.family]
    if map_law.order is not None and (map_law.order - 1) * row.gamma > _ONE_HOT:
        value = 1 / np.sqrt(n) if quantity is quantities.S else np.ones(n.shape)
        return Means(value, np.ones(n.shape), np.full(n.shape, 1e-13))
    value, error = map_law.mean(row, quantity, n.ravel())
    return Means(value.reshape(n.shape), np.ones(n.shape), error.reshape(n.shape))
