"""What is computed after the first picture: exact laws, slower limits, formulas, samples.

All of it is cut into slices, from coarse to fine; between slices, and within a law, the work can be
left because the state has moved on.
"""

from __future__ import annotations

import html
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Any, TypeVar

import numpy as np

from sparsity.errors import InputError, NoClosedForm
from sparsity.kernels import RowMap, performer
from sparsity.panel.axes import Axes, coarse_to_fine, next_places
from sparsity.panel.curve import (
    Spec,
    closed_limit,
    exact_at_lengths,
    exact_value,
    has_limit,
    limit_at_point,
    why_no_law,
    why_no_value,
)
from sparsity.panel.picture import curves
from sparsity.panel.state import State
from sparsity.panel.store import Memory, Point, Store
from sparsity.rows.steps import QKNorm

# Seconds of processor time of a point: more fills in more of the slow laws, and holds up the rest
# of the picture, as one law is at work at a time.
_LONGEST_POINT = 2.0
# Seconds between two looks at whether to go on: how long a moved slider may wait at most, against
# how often an idle thread wakes.
_GLANCE = 0.01
_ROUNDS = (1, 4, 16)  # chunks of 32 batches for each estimate, from the first look to the last
_TARGET = 1e-3  # relative standard error at which a point is left as it is
_LONGEST_SAMPLED = 2**16  # tokens of a row that is drawn whole: memory and time grow with them


class StateMoved(Exception):
    """The state has moved on, and what is being computed is of no use."""


class TakesTooLong(Exception):
    """A point takes more time than it is worth."""


T = TypeVar("T")
Check = Callable[[], None]  # raises `StateMoved` to end the work


def run_law(
    store: Store, work: Callable[[], T], check: Check, seconds: float = _LONGEST_POINT
) -> T:
    """Return what the work returns, unless it is to be left or takes too long.

    A law is one call that can take seconds, and nothing can stop it. It runs in a thread of its
    own: whoever moves on leaves it to its end, and its answer is dropped. The next law waits until
    then, so that never more than one is at work.

    Args:
        store: whose laws wait for each other.
        work: the law.
        check: called every so often; raises `StateMoved` to leave it.
        seconds: of processor time of this process.

    Raises:
        StateMoved: what `check` raises.
        TakesTooLong: it takes too long.
    """
    while not store.law_at_work.acquire(timeout=_GLANCE):
        check()
    law: Future[T] = Future()

    def run() -> None:
        try:
            law.set_result(work())
        except BaseException as error:  # noqa: BLE001  it is raised where the law is waited for
            law.set_exception(error)
        finally:
            store.law_at_work.release()

    # Processor time, so that a busy machine does not turn a quick law into a slow one.
    until = time.process_time() + seconds
    threading.Thread(target=run, name="law", daemon=True).start()
    while not wait([law], timeout=_GLANCE).done:
        check()
        if time.process_time() > until:
            raise TakesTooLong
    return law.result()


def fill_laws(
    state: State, store: Store, check: Check = lambda: None, seconds: float = math.inf
) -> Iterator[None]:
    """Fill in the exact law and the slower limits: at the marker first, then along the curves.

    Args:
        state: the state.
        store: where they go.
        check: called every so often, within a law too; raises `StateMoved` to end it.
        seconds: after which a curve is left as it is.
    """
    axes = Axes(state)
    found = [curve.spec for curve in curves(state) if not why_no_value(curve.spec)]
    for spec in found:
        yield from _fill_exact(store, spec.at(axes.name, axes.marker), check)
        yield from _fill_limit(store, spec.at(axes.name, axes.marker), check)
    found = [spec for spec in found if spec.whole and axes.moves(spec)]
    for spec in found:
        yield from _fill_limits_together(axes, spec, store)
        yield from _fill_lengths_together(axes, spec, store, check)
    first = float(axes.x[0])  # where rows are short, along n
    for kind, fill, has_points in (
        ("exact", _fill_exact, lambda spec: not why_no_law(spec)),
        ("limit", _fill_limit, _has_slow_limit),
    ):
        filled = [spec for spec in found if has_points(spec.at(axes.name, first))]
        places = {spec: _places(axes, spec, kind, store) for spec in filled}
        spent = dict.fromkeys(found, 0.0)
        # A point of each curve in turn: every curve gets its coarse shape before any is finished.
        while places:
            for spec in list(places):
                at = next(places[spec], None) if spent[spec] < seconds else None
                if at is None:
                    del places[spec]
                    continue
                start = time.process_time()
                yield from fill(store, spec.at(axes.name, at), check)
                spent[spec] += time.process_time() - start


def _bends(
    axes: Axes, spec: Spec, kind: str, store: Store, at: list[int], **most: int
) -> list[int]:
    """Return where a curve bends too much between its nodes to be drawn."""
    memory = store.exact if kind == "exact" else store.limit
    values = [memory.get(spec.at(axes.name, x)) for x in axes.x[at].tolist()]
    return next_places(axes.along, at, axes.heights(spec, at, values), **most)


def _places(axes: Axes, spec: Spec, kind: str, store: Store) -> Iterator[float]:
    """Yield values of x where a curve bends, each to be filled in before the next is asked for."""
    # The nodes that are known come from coarse to fine. Each new one changes where the curve bends
    # most, so that the rest are asked for one by one.
    at = axes.nodes(spec, kind, store)
    yield from axes.x[[at[k] for k in coarse_to_fine(len(at))]].tolist()
    while new := _bends(axes, spec, kind, store, at, count=1):
        yield float(axes.x[new[0]])
        at = sorted([*at, *new])
        store.nodes.put(axes.key(spec, kind), tuple(at))


def _fill_lengths_together(axes: Axes, spec: Spec, store: Store, check: Check) -> Iterator[None]:
    """Fill in the exact law of independent scores at many lengths, for the price of one."""
    if axes.name != "length" or spec.rows != "iid" or why_no_law(spec):
        return
    at = axes.nodes(spec, "exact", store)
    while new := _bends(axes, spec, "exact", store, at):
        lengths = axes.x[new]
        try:
            found = run_law(store, lambda n=lengths: exact_at_lengths(spec, n), check)
        except (InputError, ArithmeticError, TakesTooLong):  # of one; each will say so for itself
            return
        for n, value in zip(lengths.tolist(), found, strict=True):
            store.exact.put(spec.at("length", n), value)
        at = sorted([*at, *new])
        store.nodes.put(axes.key(spec, "exact"), tuple(at))
        yield


def _fill_limits_together(axes: Axes, spec: Spec, store: Store) -> Iterator[None]:
    """Fill in the limits of a kernel without a closed form, many points of a curve together."""
    if not (spec.score and _has_slow_limit(spec)):
        return
    x, at = axes.name, axes.nodes(spec, "limit", store)
    new = [k for k in at if spec.at(x, float(axes.x[k])) not in store.limit]
    try:
        while new := new or _bends(axes, spec, "limit", store, at):
            found = closed_limit(spec, x, axes.x[new], method=None)
            if found is None:
                return
            for k, value in zip(axes.x[new].tolist(), found.tolist(), strict=True):
                store.limit.put(spec.at(x, k), value)
            at, new = sorted({*at, *new}), []
            store.nodes.put(axes.key(spec, "limit"), tuple(at))
            yield
    except (InputError, ArithmeticError):  # one of them; each will say so for itself
        return


def _has_slow_limit(spec: Spec) -> bool:
    """Tell whether the limit is to be had point by point only."""
    try:
        return has_limit(spec) and closed_limit(spec, "", np.zeros(1)) is None
    except InputError:  # which each point says for itself
        return True


def _fill_exact(store: Store, spec: Spec, check: Check) -> Iterator[None]:
    """Fill in the exact law of one point of one curve, unless it is known."""
    if spec not in store.exact and spec.whole and not why_no_law(spec):
        slow = "the exact law takes seconds at some points: sampled instead"
        _fill_point(store, store.exact, spec, lambda: exact_value(spec), check, slow)
        yield


def _fill_limit(store: Store, spec: Spec, check: Check) -> Iterator[None]:
    """Fill in the limit of one point of one curve, unless it is known or has a closed form."""
    if spec not in store.limit and spec.whole and has_limit(spec):
        try:
            if closed_limit(spec, "", np.zeros(1)) is not None:
                return
            if spec.rows == "iid" or spec.law.quick(spec.kernel, dict(spec.values)["length"]):
                slow = "the limit takes seconds at some points"
                _fill_point(store, store.limit, spec, lambda: limit_at_point(spec), check, slow)
        except (InputError, ArithmeticError) as error:
            store.limit.put(spec, str(error))
        yield


def _fill_point(
    store: Store,
    memory: Memory[float | str],
    spec: Spec,
    work: Callable[[], float | None],
    check: Check,
    slow: str,
) -> None:
    """Keep a value, or why there is none; `slow` says that it takes too long."""
    try:
        value = run_law(store, work, check)
    except (InputError, ArithmeticError) as error:
        value = str(error)
    except TakesTooLong:
        value = slow
    if value is not None:
        memory.put(spec, value)


def fill_formulas(state: State, store: Store) -> Iterator[None]:
    """Write the weight of each kernel shown, and derive its S, as MathML."""
    from sparsity.derivation import derive
    from sparsity.report import formulas

    for kernel in state.known:
        if kernel.name not in state.shown or kernel.name in store.formulas:
            continue
        if isinstance(kernel, RowMap):
            store.formulas.put(kernel.name, (html.escape(f"p = {kernel.formula}"), ""))
            yield
            continue
        try:
            derived = derive(kernel)
            whole = derived.S if derived.reduced is None else derived.reduced
            where = "" if derived.reduced is None else " with z = β/γ"
            text = formulas.equation("<mi>S</mi>", "=", whole) + where
        except NoClosedForm as error:
            text = f"no closed form: {error.step} failed; S by quadrature"
        weight = formulas.equation("<mi>a</mi>", "=", kernel.weight)
        store.formulas.put(kernel.name, (weight, text))
        yield


def fill_samples(state: State, store: Store, check: Check) -> Iterator[None]:
    """Sample every curve shown, at the marker first, then tighten all of it round by round.

    Args:
        state: the state.
        store: where the points go.
        check: called as often as sampling allows; raises `StateMoved` to end it.
    """
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
    known = store.points.get(spec)
    if isinstance(known, str):
        return
    if known and (known.round >= number or known.estimate.rel_stderr <= _TARGET):
        return
    try:
        found, of = _draw(spec, chunks, check)
        sampled = math.isfinite(found.value)
        point = Point(found, of, number) if sampled else f"not sampled: {found.warning}"
    except InputError as error:
        point = f"not sampled: {error}"
    store.points.put(spec, point)
    yield


def _draw(spec: Spec, chunks: int, check: Check) -> tuple[Any, str]:
    """Return an estimate of whole rows, or of S where the kernel has none to draw; and of what."""
    from sparsity.sampling import estimate
    from sparsity.sweeps.variables import cell_seed

    v = spec.given()
    settings: dict[str, Any] = {
        "seed": cell_seed(0, spec.kernel.name, spec.rows, *v.items()),
        "progress": lambda done, total: check(),
        "rel_error": 5e-4,
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
    if n > _LONGEST_SAMPLED or n * v.get("dim", 1) > 2**20:
        raise InputError("n", n, f"rows of at most {_LONGEST_SAMPLED} numbers are drawn here")
    draws = chunks * 32 * max(1, 2**16 // width)
    return estimate(row, length=n, of=spec.quantity, max_samples=draws, **settings), spec.of
