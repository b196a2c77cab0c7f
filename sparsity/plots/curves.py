"""The numbers of a chart: the exact law, the limit of long rows, and sampled points.

`capabilities` says which of them there are. Where an instrument takes an array of lengths or of
parameters, a curve is one call; elsewhere it is a row for each value along the x-axis.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity import quantities
from sparsity.checks import as_float64, check_vector, check_whole
from sparsity.errors import InputError, TooFine
from sparsity.exact_law.capabilities import capabilities
from sparsity.exact_law.exact import exact, exact_grid
from sparsity.kernels import Law, RowMap
from sparsity.kernels.parameters import DIM, LENGTH
from sparsity.limit.evaluation import evaluate
from sparsity.plots.requests import CurveRequest, with_value
from sparsity.quantities import Quantity
from sparsity.results import Estimate
from sparsity.rows.row import Row
from sparsity.series import Series
from sparsity.sweeps.variables import cell_seed

if TYPE_CHECKING:
    from sparsity.sampling import Sampling

_THREADS = 2  # one compiles while another samples; more would share the same cores
# Tokens of sampled rows, unless they are asked for: one token has n_eff = 1 without sampling, and a
# long row costs as many draws as it has tokens.
_SHORTEST_DRAWN, _LONGEST_DRAWN = 4, 4096
_LARGEST_DRAWN = 256  # dimension, likewise: a token of whole keys costs as many draws
SAMPLED_POINTS = 5  # of a curve, likewise: enough to see a line missed, few enough to wait for


@dataclass(frozen=True)
class Curve:
    """One curve of a chart.

    Args:
        exact: the law of rows of n, with the sampled points; its theory is NaN where no law is
            known. Of long rows it is NaN, and the points belong to the limit.
        limit: the limit of long rows; None where there is none.
        floor: the least value that a row can have, at each point; None where it is not shown.
        held: what the curve holds fixed, by name.
    """

    exact: Series
    limit: Series | None
    floor: np.ndarray | None
    held: Any


def compute_curves(
    requests: Sequence[CurveRequest],
    quantity: Quantity,
    x: str,
    values: np.ndarray,
    places: np.ndarray,
    sampling: Sampling | None,
    labels: Sequence[str],
    limits: bool,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Curve, ...]:
    """Compute everything that is drawn; the theory while the points are sampled.

    Args:
        requests: the curves.
        quantity: the quantity that is drawn.
        x: the name of the parameter along the x-axis.
        values: the values of x at which theory is computed, ascending.
        places: the values of x at which the curves are sampled.
        sampling: the settings of the sampling; None where nothing is sampled.
        labels: the labels of the curves.
        limits: whether limits are drawn where there is an exact law.
        progress: called with (curves and points done, all of them).

    Raises:
        InputError: nothing is known of the quantity here and nothing is sampled, or a value outside
            its domain.
    """
    curves, done = [], -1
    every = len(requests) * (1 + len(places))

    def tick() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, every)

    tick()  # nothing is done, of so many
    # JAX and XLA let go of the interpreter while they compile and sample: threads are enough.
    with ThreadPoolExecutor(_THREADS) as pool:
        try:
            # Place by place: points of one curve share a program, for which they would all wait.
            promised: list[list[Future[Estimate]]] = [[] for _ in requests]
            for place in places:
                for points, request in zip(promised, requests, strict=True):
                    points.append(pool.submit(_sample, request, quantity, x, place, sampling))
            for request, label, points in zip(requests, labels, promised, strict=True):
                curve = _theory(request, quantity, x, values, places, label, limits)
                tick()
                drawn = []
                for point in points:
                    drawn.append(point.result())
                    tick()
                curves.append(_with_points(curve, places, drawn))
        except BaseException:  # Ctrl-C included: do not sample the rest first
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return tuple(curves)


def sampled_places(montecarlo: Any, x: str, values: np.ndarray) -> np.ndarray:
    """Return where the curves are sampled: at some of their own points, or where the user says.

    Args:
        montecarlo: whether to sample; or how many points, or their places.
        x: the name of the parameter along the x-axis.
        values: the values of x at which theory is computed, ascending.

    Raises:
        InputError: it is none of these.
    """
    if montecarlo is None or isinstance(montecarlo, (bool, np.bool_)):
        count = SAMPLED_POINTS if montecarlo else 0
    else:
        fix = "give True, a number of points, or their places"
        numbers = as_float64(montecarlo, "montecarlo", fix, texts=False)
        if numbers.ndim:
            places = check_vector("montecarlo", numbers, fix)
            if not places.size:
                raise InputError("montecarlo", None, fix)
            return np.unique(LENGTH.check(places) if x == LENGTH.name else places)
        count = check_whole("montecarlo", montecarlo, 1, 1000)
    if not count:
        return np.zeros(0)
    # Points of the curve itself, so that theory is there to be compared; not at its ends, where
    # the axes cut a marker in half.
    inside = values
    if x == LENGTH.name:
        inside = values[(values >= _SHORTEST_DRAWN) & (values <= _LONGEST_DRAWN)]
    elif x == DIM.name:
        inside = values[values <= _LARGEST_DRAWN]
    elif len(values) > count + 1:
        inside = values[1:-1]
    inside = inside if len(inside) else values[:1]
    return inside[np.unique(np.rint(np.linspace(0, len(inside) - 1, int(count))).astype(int))]


def _sample(
    request: CurveRequest, quantity: Quantity, x: str, place: float, sampling: Sampling | None
) -> Estimate:
    """Sample one point, from a stream of its own."""
    from sparsity.sampling import draw  # with JAX: a chart of theory alone never loads it

    assert sampling is not None  # or there would be no point to sample
    ((row, n),) = _rows_along(request, *request.moved(x, np.array([place])))
    n = None if n is None else int(n)
    dim: dict[str, Any] = {} if request.spread is None else {x: int(place)}  # whole keys are drawn
    # By what is sampled, not by its number: a point keeps its draws when others are added.
    seed = cell_seed(sampling.seed, repr(row), n, quantity.name, *dim.values())
    return draw(row, replace(sampling, seed=seed), length=n, of=quantity, **dim)


def _theory(
    request: CurveRequest,
    quantity: Quantity,
    x: str,
    values: np.ndarray,
    places: np.ndarray,
    label: str,
    limits: bool,
) -> Curve:
    """Compute the exact law and the limit of one curve, also where it is sampled.

    Raises:
        InputError: a law is refused or not known, and there are no points to draw without it.
    """
    at_all = np.unique(np.concatenate([values, places]))
    of_rows, of_long = np.full(at_all.shape, np.nan), None
    moved, along = request.moved(x, at_all)
    along, back = np.unique(along, return_inverse=True)  # the same γ at all d is one number
    # A refusal of theory, such as a law that is too wide, takes no points with it: they are what is
    # left to draw. Without any it is the user's answer.
    try:
        of_rows = _exact_law(request, quantity, moved, along)[back]
    except InputError:
        if not len(places):
            raise
    try:
        if limits or np.isnan(of_rows).all():
            of_long = _limit(request, quantity, moved, along)
            of_long = None if of_long is None else of_long[back]
    except InputError:  # as that of an infinite E a²: rows of n have a law all the same
        if not len(places) and np.isnan(of_rows).all():
            raise
    if np.isnan(of_rows).all() and of_long is None and not len(places):
        n = "" if request.length is not None or x == LENGTH.name else " without a length"
        fix = f"{request.row.kernel.name} has no formula for it{n}"
        if capabilities(request.row, quantity).sampled:
            fix += "; give montecarlo=True or a length"
        raise InputError("of", quantity.name, fix)
    names = (x, quantity.name, quantity.unit)
    line = Series.of_values(label, at_all, of_rows).named(*names, **request.fixed(x))
    long = None
    if of_long is not None:
        long = Series.of_values(f"limit, {label}", at_all, of_long).named(*names, **line.key)
    return Curve(line, long, floor_of_rows(quantity, x, at_all, request.length), request.held)


def _rows_along(request: CurveRequest, x: str, values: np.ndarray) -> list[tuple[Row, Any]]:
    """Return the row and its length at each value of x; the length is None where none is given."""
    if x == LENGTH.name:
        return [(request.row, n) for n in values.tolist()]
    return [(with_value(request.row, x, v), request.length) for v in values.tolist()]


def _exact_law(request: CurveRequest, quantity: Quantity, x: str, values: np.ndarray) -> np.ndarray:
    """Return the exact law along the x-axis; NaN where none is known, or without a length.

    Values that are not resolved, as those below float64, take no others with them: they are NaN.

    Raises:
        InputError: a value is refused, or none is resolved.
    """
    row, n, kernel = request.row, request.length, request.row.kernel
    # S of nonnegative features is defined by long rows: there is no other law of it.
    if kernel.law is Law.FEATURES and quantity is quantities.S:
        return np.exp([evaluate(moved).log_S for moved, _ in _rows_along(request, x, values)])
    known = capabilities(row, quantity)
    if not known.exact or (n is None and x != LENGTH.name):
        return np.full(values.shape, np.nan)
    if x == LENGTH.name:
        with contextlib.suppress(TooFine):
            return np.asarray(exact(row, length=values, of=quantity).value)
    elif known.shares_nodes:  # rows without steps: all values of a parameter are one call
        grids = {k: np.array([v], float) for k, v in row.params.items()} | {x: values}
        return exact_grid(row.function, grids, np.array([n]), quantity).value.ravel()
    means, refused = np.full(values.shape, np.nan), []
    for i, (moved, n) in enumerate(_rows_along(request, x, values)):
        try:
            means[i] = exact(moved, length=n, of=quantity).value
        except TooFine as error:
            refused.append(error)
    if len(refused) == len(means):
        raise refused[0]
    if refused:
        warnings.warn(f"{len(refused)} of {len(means)} are not drawn: {refused[0]}", stacklevel=2)
    return means


def _limit(
    request: CurveRequest, quantity: Quantity, x: str, values: np.ndarray
) -> np.ndarray | None:
    """Return the limit of long rows along the x-axis; None where there is none."""
    row, n = request.row, values if x == LENGTH.name else request.length
    # What is drawn of these as the exact law is the limit already.
    if row.kernel.law in (Law.FEATURES, Law.POSITION):
        return None
    # S and n_eff = n·S² come from log S, which has closed forms that take arrays.
    by_S = quantity in (quantities.S, quantities.n_eff)
    known = capabilities(row, quantities.S if by_S else quantity, request.length)
    needs_length = known.limit_needs_length or quantity is quantities.n_eff
    if not known.limit or (needs_length and n is None):
        return None
    if by_S:
        S = np.exp(_log_S_limit(request, x, values))
        return S if quantity is quantities.S else n * S**2
    if x == LENGTH.name:  # + 0·values: a limit that does not depend on n is one number
        return np.asarray(evaluate(row, of=quantity, length=n).value) + 0 * values
    rows = _rows_along(request, x, values)
    return np.array([float(evaluate(moved, of=quantity, length=n)) for moved, n in rows])


def _log_S_limit(request: CurveRequest, x: str, values: np.ndarray) -> np.ndarray:
    """Return log S of long rows; where tokens differ, of rows that hold all n of them."""
    row, kernel = request.row, request.row.kernel
    alike = not isinstance(kernel, RowMap) or kernel.identically_distributed
    if alike and not row.steps:
        if x == LENGTH.name:
            return np.full(values.shape, evaluate(row).log_S)
        if x in row.params:
            given: dict[str, Any] = row.params | {x: values}
            return np.asarray(evaluate(kernel, **given).log_S)
    rows = _rows_along(request, x, values)
    return np.array([float(evaluate(moved, length=n).log_S) for moved, n in rows])


def floor_of_rows(
    quantity: Quantity, x: str, values: np.ndarray, n: int | None
) -> np.ndarray | None:
    """Return the least value of a row of n: 1 token of n_eff, 1/√n of S; else None."""
    lengths = values if x == LENGTH.name else None if n is None else np.full(values.shape, n)
    if lengths is None or quantity not in (quantities.S, quantities.n_eff):
        return None
    return np.array([quantity.ends(float(length))[0] for length in lengths.tolist()])


def in_units_of_S(curve: Curve, x: str, n: int | None) -> Curve:
    """Return a curve of n_eff as one of √(n_eff/n), whose limit is S of long rows."""
    length = None if x == LENGTH.name else float(n or 1)
    floor = floor_of_rows(quantities.S, x, curve.exact.x, n)
    limit = curve.limit and curve.limit.as_sparsity(length)
    return replace(curve, exact=curve.exact.as_sparsity(length), limit=limit, floor=floor)


def _with_points(curve: Curve, places: np.ndarray, drawn: Sequence[Estimate]) -> Curve:
    """Return the curve with its sampled points, each where its place is among the line's."""
    if not drawn:
        return curve
    line = curve.exact
    index = np.searchsorted(line.x, places)
    columns = {"estimate": "value", "stderr": "stderr", "samples": "samples", "seed": "seed"}
    filled = {name: getattr(line, name).copy() for name in columns}
    for name, of in columns.items():
        filled[name][index] = [getattr(estimate, of) for estimate in drawn]
    pairs = zip(places.tolist(), drawn, strict=True)
    doubts = {x: estimate.warning for x, estimate in pairs if estimate.warning is not None}
    return replace(curve, exact=replace(line, **filled, method=drawn[0].method, doubts=doubts))


def limit_alone(curves: Sequence[Curve]) -> bool:
    """Tell whether limits are all the theory there is: they are solid then, as any theory."""
    return all(np.isnan(curve.exact.theory).all() for curve in curves)


def common_floor(curves: Sequence[Curve]) -> np.ndarray | None:
    """Return the least value that a row of any curve can have; None where one has no floor."""
    # Curves may have points at different x, of samples asked for there: no common floor, then.
    floors = [curve.floor for curve in curves if curve.floor is not None]
    same = all(np.array_equal(curve.exact.x, curves[0].exact.x) for curve in curves)
    return np.min(floors, axis=0) if len(floors) == len(curves) and same else None
