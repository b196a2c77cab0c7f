"""What is computed after the first picture: exact laws, slower limits, formulas, samples.

All of it is cut into slices, from coarse to fine: the generators here compute a slice, put it into
the store and yield. Whoever runs them (`widget`) may send a picture then, or drop the rest because
the state has moved on. What was put stays, and a generator that starts again goes on from there.
"""

from __future__ import annotations

import functools
import html
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from sparsity.errors import InputError, NoClosedForm
from sparsity.kernels import RowMap, performer
from sparsity.panel.curve import (
    Spec,
    Value,
    bounded_limit,
    exact_at_lengths,
    exact_value,
    has_limit,
    limit_at_point,
    why_no_law,
    why_no_value,
)
from sparsity.panel.picture import curves
from sparsity.panel.state import State
from sparsity.panel.store import FIRST_NODES, Axes, Point, Store, even_places
from sparsity.rows.steps import QKNorm

# Chunks of 32 batches for each estimate, from the first look to the last: four times the draws
# halve an error bar, and smaller steps would mostly redraw what looks the same.
_ROUNDS = (1, 4, 16)
_TARGET = 1e-3  # relative standard error at which a point is left as it is: no eye sees less
LONGEST_SAMPLED = 2**16  # tokens of a row that is drawn whole: memory and time grow with them


class StateMoved(Exception):
    """The state has moved on, and what is being computed is of no use."""


Check = Callable[[], None]  # raises `StateMoved` to end the work


def fill_laws(state: State, store: Store, seconds: float = math.inf) -> Iterator[None]:
    """Fill in the exact law and the slower limits: at the marker first, then along the curves.

    Args:
        state: the state.
        store: where the values go.
        seconds: the processor time after which a curve is left as it is.
    """
    # The order is that of the eye: numbers at the marker, then what is had for many points at once,
    # then the rest point by point.
    axes = Axes(state)
    specs = [curve.spec for curve in curves(state) if not why_no_value(curve.spec)]
    for spec in specs:
        yield from _fill_exact(store, spec.at(axes.name, axes.marker))
        yield from _fill_limit(store, spec.at(axes.name, axes.marker))
    specs = [spec for spec in specs if spec.whole and axes.moves(spec)]  # others are level lines
    for spec in specs:
        if spec.score and _has_slow_limit(spec):  # a kernel without a closed form
            limits = lambda x, s=spec: bounded_limit(s, axes.name, x, method=None)  # noqa: E731
            yield from _fill_together(axes, spec, "limit", store, limits)
        # One integrand serves all n: the law of a token is the same, and only its power differs.
        if axes.name == "length" and spec.rows == "iid" and not why_no_law(spec):
            laws = functools.partial(exact_at_lengths, spec)
            yield from _fill_together(axes, spec, "exact", store, laws)
    # Whether a law is quick enough is asked where it is quickest: along n, at the shortest rows. At
    # longer ones each point refuses for itself.
    first = float(axes.x[0])
    for fill, has_points in (
        (_fill_exact, lambda spec: not why_no_law(spec)),
        (_fill_limit, _has_slow_limit),
    ):
        filled = [spec for spec in specs if has_points(spec.at(axes.name, first))]
        along = axes.x[[*even_places(len(axes.x))]].tolist()
        places = {spec: iter(along) for spec in filled}
        spent = dict.fromkeys(specs, 0.0)
        # A point of each curve in turn: every curve gets its coarse shape before any is finished.
        while places:
            for spec in list(places):
                at = next(places[spec], None) if spent[spec] < seconds else None
                if at is None:
                    del places[spec]
                    continue
                start = time.process_time()
                yield from fill(store, spec.at(axes.name, at))
                spent[spec] += time.process_time() - start


def _fill_together(
    axes: Axes, spec: Spec, kind: str, store: Store, law: Callable[[np.ndarray], Any]
) -> Iterator[None]:
    """Fill in many points of a curve by one call, the others by the next.

    Args:
        axes: the axes of the state.
        spec: the curve.
        kind: "exact" or "limit".
        store: where the values go.
        law: values of x -> those of the curve, and their bounds; None where it has none.
    """
    x, memory, order = axes.name, store.values(kind), even_places(len(axes.x))
    try:
        for part in (order[:FIRST_NODES], order[FIRST_NODES:]):
            new = [k for k in sorted(part) if spec.at(x, float(axes.x[k])) not in memory]
            if not new:
                continue
            computed = law(axes.x[new])
            if computed is None:
                return
            columns = (axes.x[new], *computed)
            for place, value, bound in zip(*(column.tolist() for column in columns), strict=True):
                store.put(kind, spec.at(x, place), value, bound)
            yield
    except (InputError, ArithmeticError):
        return  # it may be one of many: each says so for itself, point by point


def _has_slow_limit(spec: Spec) -> bool:
    """Tell whether there is a limit, but in no closed form."""
    try:
        return has_limit(spec) and bounded_limit(spec, "", np.zeros(1)) is None
    except InputError:  # of a value here: each point says it for itself
        return True


def _fill_exact(store: Store, spec: Spec) -> Iterator[None]:
    """Fill in the exact law of one point of one curve, unless it is known."""
    if spec not in store.exact and spec.whole and not why_no_law(spec):
        _fill_point(store, "exact", spec, exact_value)
        yield


def _fill_limit(store: Store, spec: Spec) -> Iterator[None]:
    """Fill in the limit of one point of one curve, unless it is known or has a closed form."""
    if spec not in store.limit and spec.whole and has_limit(spec):
        try:
            if bounded_limit(spec, "", np.zeros(1)) is not None:
                return
            if spec.rows == "iid" or spec.law.quick(spec.kernel, dict(spec.values)["length"]):
                _fill_point(store, "limit", spec, limit_at_point)
        except (InputError, ArithmeticError) as error:
            store.limit.put(spec, str(error))
        yield


def _fill_point(store: Store, kind: str, spec: Spec, law: Callable[[Spec], Value | None]) -> None:
    """Put a value into the store, or in words why there is none: it is then not tried again.

    Args:
        store: where the value goes.
        kind: "exact" or "limit".
        spec: the curve at the point.
        law: computes the value; None where there is none within reach.
    """
    try:
        value = law(spec)
    except (InputError, ArithmeticError) as error:
        store.values(kind).put(spec, str(error))
    else:
        if value is not None:
            store.put(kind, spec, *value)


def fill_formulas(state: State, store: Store) -> Iterator[None]:
    """Write the weight of each kernel shown, and derive its S, as MathML."""
    from sparsity.derivation import derive, mathml, takes_seconds

    for kernel in state.known:
        if kernel.name not in state.shown or kernel.name in store.formulas:
            continue
        if isinstance(kernel, RowMap):
            store.formulas.put(kernel.name, (html.escape(f"p = {kernel.formula}"), ""))
            yield
            continue
        try:
            if not takes_seconds(kernel):
                raise NoClosedForm("the derivation", "the formula is long; see sparsity.derive")
            derived = derive(kernel)
            whole = derived.S if derived.reduced is None else derived.reduced
            where = "" if derived.reduced is None else " with z = β/γ"
            text = mathml.equation("<mi>S</mi>", "=", whole) + where
        except NoClosedForm as error:
            text = f"no closed form: {error.step} failed; S by quadrature"
        weight = mathml.equation("<mi>a</mi>", "=", kernel.weight)
        store.formulas.put(kernel.name, (weight, text))
        yield


def fill_samples(state: State, store: Store, check: Check) -> Iterator[None]:
    """Sample every curve shown, at the marker first, then tighten all of it round by round.

    Args:
        state: the state.
        store: where the points go.
        check: called as often as sampling allows; raises `StateMoved` to end it.
    """
    # Round by round over all points, not point by point: a whole picture with wide error bars says
    # more than one narrow bar.
    axes = Axes(state)
    shown = [spec for spec in state.specs() if not why_no_value(spec)]
    grids = [(spec, axes.sampled(spec)) for spec in shown]
    for number, chunks in enumerate(_ROUNDS):
        for k in range(max((len(grid) for _, grid in grids), default=0)):
            for spec, grid in grids:
                if k < len(grid):
                    here = spec.at(axes.name, grid[k])
                    yield from _fill_sample(store, here, number, chunks, check)


def _fill_sample(
    store: Store, spec: Spec, number: int, chunks: int, check: Check
) -> Iterator[None]:
    """Sample one point, unless it is known well enough for the round of that number."""
    # A later round draws anew from the same seed, further: estimates are not merged.
    known = store.points.get(spec)
    if isinstance(known, str):
        return
    if known and (known.round >= number or known.estimate.rel_stderr <= _TARGET):
        return
    try:
        estimate, of = _draw(spec, chunks, check)
        sampled = math.isfinite(estimate.value)
        point = Point(estimate, of, number) if sampled else f"not sampled: {estimate.warning}"
    except InputError as error:
        point = f"not sampled: {error}"
    store.points.put(spec, point)
    yield


def _draw(spec: Spec, chunks: int, check: Check) -> tuple[Any, str]:
    """Return an estimate at one point, and the quantity it is of.

    It is of whole rows, or of S where the kernel has no rows to draw.
    """
    from sparsity.sampling import estimate
    from sparsity.sweeps.variables import cell_seed

    v = spec.given()
    settings: dict[str, Any] = {
        "seed": cell_seed(0, spec.kernel.name, spec.rows, *v.items()),
        "progress": lambda done, total: check(),
        "rel_error": 5e-4,  # below `_TARGET`, so that the draws of a round set its end
    }
    if not spec.whole:
        if spec.query:
            v |= {"query": spec.query}
        of = "S" if spec.of == "n_eff" else spec.of
        draws = chunks * 32 * max(8, 2**16 // int(v.get("dim", 2**8)))
        return estimate(spec.kernel, of=of, max_samples=draws, **settings, **v), of
    n, row = int(v["length"]), spec.row()
    keys = any(isinstance(step, QKNorm) for step in row.steps) or spec.kernel is performer
    width = n * (int(v["dim"]) if keys else 1)
    if n > LONGEST_SAMPLED or n * v.get("dim", 1) > 2**20:
        raise InputError("n", n, f"rows of at most {LONGEST_SAMPLED} numbers are drawn here")
    draws = chunks * 32 * max(1, 2**16 // width)
    return estimate(row, length=n, of=spec.quantity, max_samples=draws, **settings), spec.of
