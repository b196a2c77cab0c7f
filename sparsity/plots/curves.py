"""The numbers of a chart: the exact law, the limit of long rows, and sampled points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity import quantities
from sparsity.arguments import as_float64, vector, whole
from sparsity.errors import InputError
from sparsity.exact_law import maps
from sparsity.exact_law.exact import exact, exact_grid
from sparsity.kernels import Law, RowMap
from sparsity.kernels.parameters import LENGTH
from sparsity.limit.evaluation import evaluate
from sparsity.plots.asked import Asked
from sparsity.plots.moving import at
from sparsity.quantities import Quantity
from sparsity.results import Estimate
from sparsity.sampling import Sampling, draw
from sparsity.sweeps.variables import cell_seed

if TYPE_CHECKING:
    from sparsity.figures.figure import Series

_WORKERS = 2  # threads: one compiles while another samples
_SHORTEST_DRAWN, _LONGEST_DRAWN = 4, 4096  # tokens of sampled rows, unless they are asked for
_POINTS = 5  # of a curve, likewise


@dataclass(frozen=True)
class Drawn:
    """One curve of a chart.

    Args:
        exact: the law of rows of n, with the sampled points; its theory is NaN where no law is
            known. Of long rows it is NaN, and the points belong to the limit.
        limit: the limit of long rows; None where there is none.
        floor: the least value that a row can have, at each point; None where it is not shown.
        held: what the curve holds fixed.
        measured: whether `exact` holds, as estimates, rows of real attention instead; its theory is
            the exact law at each row's own spread.
    """

    exact: Series
    limit: Series | None
    floor: np.ndarray | None
    held: Any
    measured: bool = False

    @property
    def series(self) -> tuple[Series, ...]:
        """Everything that is drawn of it, as a table takes it."""
        return (self.exact,) if self.limit is None else (self.exact, self.limit)


def _has_law(curve: Asked, quantity: Quantity) -> bool:
    kernel = curve.row.kernel
    if isinstance(kernel, RowMap):
        return maps.has(kernel, quantity)
    return kernel.law is not Law.FEATURES and quantity.has_law


def law(curve: Asked, quantity: Quantity, x: str, values: np.ndarray) -> np.ndarray:
    """The exact law along the abscissa; NaN where none is known, or without a length."""
    row, n = curve.row, curve.length
    if row.kernel.law is Law.FEATURES and quantity is quantities.S:  # the definition itself
        return np.exp([evaluate(at(row, x, v)).log_S for v in values.tolist()])
    if not _has_law(curve, quantity) or (n is None and x != LENGTH.name):
        return np.full(values.shape, np.nan)
    if x == LENGTH.name:
        return np.asarray(exact(row, length=values, of=quantity).value)
    shared = quantity.integral is not None and not quantity.sinks  # one set of nodes for all
    if curve.fast and row.kernel.law is Law.SCORE and shared:
        grids = {k: np.array([v], float) for k, v in row.params.items()} | {x: values}
        return exact_grid(row.function, grids, np.array([n]), quantity).value.ravel()
    found = [exact(at(row, x, v), length=n, of=quantity).value for v in values.tolist()]
    return np.array(found, float)


def limit(curve: Asked, quantity: Quantity, x: str, values: np.ndarray) -> np.ndarray | None:
    """The limit of long rows along the abscissa; None where there is none."""
    row, n = curve.row, values if x == LENGTH.name else curve.length
    if row.kernel.law in (Law.FEATURES, Law.POSITION):
        return None
    by_S = quantity in (quantities.S, quantities.n_eff)
    if quantity is quantities.n_eff and n is None:
        return None
    try:
        if by_S:
            S = np.exp(_log_limit(curve, x, values))
            return S if quantity is quantities.S else n * S**2
        place: dict[str, Any] = {} if n is None else {"length": n}
        if x == LENGTH.name:
            return np.asarray(evaluate(row, of=quantity, **place).value) + 0 * values
        each = (evaluate(at(row, x, v), of=quantity, **place) for v in values.tolist())
        return np.array([float(found.value) for found in each])
    except InputError as error:
        if error.argument in ("of", "kernel", "length"):  # it has none, or none without a length
            return None
        raise


def _log_limit(curve: Asked, x: str, values: np.ndarray) -> np.ndarray:
    """Log S of long rows."""
    row, n = curve.row, curve.length
    alike = not row.steps and (
        not isinstance(row.kernel, RowMap) or row.kernel.identically_distributed
    )
    if alike and x == LENGTH.name:
        return np.full(values.shape, evaluate(row).log_S)
    if alike and x in row.params:
        given: dict[str, Any] = row.params | {x: values}
        return np.asarray(evaluate(row.kernel, **given).log_S)
    if x == LENGTH.name:
        return np.array([float(evaluate(row, length=v).log_S) for v in values.tolist()])
    place: dict[str, Any] = {} if n is None else {"length": n}
    return np.array([float(evaluate(at(row, x, v), **place).log_S) for v in values.tolist()])


def floor(quantity: Quantity, x: str, values: np.ndarray, n: int | None) -> np.ndarray | None:
    """The least value of a row of n: 1 token of n_eff, 1/√n of S."""
    lengths = values if x == LENGTH.name else None if n is None else np.full(values.shape, n)
    if lengths is None or quantity not in (quantities.S, quantities.n_eff):
        return None
    return np.array([quantity.ends(float(each))[0] for each in lengths.tolist()])


def places(montecarlo: Any, x: str, values: np.ndarray) -> np.ndarray:
    """Where the curves are sampled: at some of their own points, or where the user says.

    Args:
        montecarlo: whether to; or how many points, or where.
        x: the abscissa.
        values: of the curves.

    Raises:
        InputError: neither of these.
    """
    if montecarlo is None or isinstance(montecarlo, (bool, np.bool_)):
        count = _POINTS if montecarlo else 0
    else:
        fix = "give True, a number of points, or their places"
        found = as_float64(montecarlo, "montecarlo", fix, texts=False)
        if found.ndim:
            places = vector("montecarlo", found, fix)
            if not places.size:
                raise InputError("montecarlo", None, fix)
            return np.unique(places)
        count = whole("montecarlo", montecarlo, 1, 1000)
    if not count:
        return np.zeros(0)
    inside = values
    if x == LENGTH.name:
        inside = values[(values >= _SHORTEST_DRAWN) & (values <= _LONGEST_DRAWN)]
    elif len(values) > count + 1:
        inside = values[1:-1]
    inside = inside if len(inside) else values[:1]
    return inside[np.unique(np.rint(np.linspace(0, len(inside) - 1, int(count))).astype(int))]


def sample(
    curve: Asked, quantity: Quantity, x: str, place: np.ndarray, sampling: Sampling, pool: Any
) -> list[Any]:
    """Promises of the estimates at some places, each from a stream of its own."""

    def one(value: float) -> Estimate:
        row, n = curve.row, curve.length
        if x == LENGTH.name:
            n = int(value)
        else:
            row = at(row, x, value)
        seed = cell_seed(sampling.seed, repr(row), n, quantity.name)
        return draw(row, replace(sampling, seed=seed), length=n, of=quantity)

    return [pool.submit(one, value) for value in place.tolist()]


def computed(
    curves: Sequence[Asked],
    quantity: Quantity,
    x: str,
    values: np.ndarray,
    place: np.ndarray,
    sampling: Sampling,
    labels: Sequence[str],
    limits: bool,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Drawn, ...]:
    """Everything that is drawn.

    Raises:
        InputError: nothing is known of the quantity here and nothing is sampled, or a value outside
            its domain.
    """
    found, done = [], 0
    every = len(curves) * (1 + len(place))

    def tick() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, every)

    with ThreadPoolExecutor(_WORKERS) as pool:
        try:
            promised = [sample(curve, quantity, x, place, sampling, pool) for curve in curves]
            for curve, label, estimates in zip(curves, labels, promised, strict=True):
                own = theory(curve, quantity, x, values, place, label, limits)
                tick()
                drawn = []
                for promise in estimates:
                    drawn.append(promise.result())
                    tick()
                found.append(_with_points(own, place, drawn))
        except BaseException:  # Ctrl-C included: do not sample the rest first
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return tuple(found)


def theory(
    curve: Asked,
    quantity: Quantity,
    x: str,
    values: np.ndarray,
    place: np.ndarray,
    label: str,
    limits: bool,
) -> Drawn:
    """The exact law and the limit of one curve, also where it is sampled.

    Raises:
        InputError: a law is refused or not known, and there are no points to draw without it.
    """
    from sparsity.figures.figure import Series  # with Matplotlib: while the samplers compile

    at_all = np.unique(np.concatenate([values, place]))
    of_rows = np.full(at_all.shape, np.nan)
    of_long = None
    try:
        of_rows = law(curve, quantity, x, at_all)
    except InputError:
        if not len(place):
            raise
    try:
        if limits or np.isnan(of_rows).all():
            of_long = limit(curve, quantity, x, at_all)
    except InputError:
        if not len(place):
            raise
    if np.isnan(of_rows).all() and of_long is None and not len(place):
        n = "" if curve.length is not None or x == LENGTH.name else " without a length"
        fix = f"{curve.row.kernel.name} has no formula for it{n}; give montecarlo=True or a length"
        raise InputError("of", quantity.name, fix)
    with np.errstate(divide="ignore", invalid="ignore"):
        exact_log = np.log(of_rows)
        long_log = None if of_long is None else np.log(of_long)
    long = None if long_log is None else Series.line(f"limit, {label}", at_all, long_log)
    if long is not None and of_long is not None:
        long = replace(long, theory=of_long)
    line = replace(Series.line(label, at_all, exact_log), theory=of_rows)
    return Drawn(line, long, floor(quantity, x, at_all, curve.length), curve.held)


def _with_points(curve: Drawn, place: np.ndarray, drawn: Sequence[Estimate]) -> Drawn:
    """The curve with its sampled points."""
    if not drawn:
        return curve
    line = curve.exact
    index = np.searchsorted(line.x, place)
    columns = {"estimate": "value", "stderr": "stderr", "samples": "samples", "seed": "seed"}
    filled = {name: getattr(line, name).copy() for name in columns}
    for i, found in zip(index, drawn, strict=True):
        for name, of in columns.items():
            filled[name][i] = getattr(found, of)
    pairs = zip(place.tolist(), drawn, strict=True)
    doubts = {x: found.warning for x, found in pairs if found.warning is not None}
    return replace(curve, exact=replace(line, **filled, method=drawn[0].method, doubts=doubts))
