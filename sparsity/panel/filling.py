"""What is computed after the first picture: exact laws, slower limits, formulas, Monte Carlo.

All of it is cut into slices, from coarse to fine; between slices it can be left.
"""

from __future__ import annotations

import html
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from sparsity.errors import InputError, NoClosedForm
from sparsity.kernels import RowMap, performer
from sparsity.panel.lines import (
    at_once,
    exact,
    exact_lengths,
    has_limit,
    refusal,
    slowly,
    why_not,
)
from sparsity.panel.picture import Axes, curves, places
from sparsity.panel.state import Spec, State
from sparsity.panel.store import Point, Store
from sparsity.rows.steps import QKNorm

_ROUNDS = (1, 4, 16)  # chunks of 32 batches for each estimate, from the first look to the last
_TARGET = 1e-3  # relative standard error at which a point is left as it is
_LONGEST_SAMPLED = 2**16  # tokens of a row that is drawn whole
_LONGEST_POINT = 2.0  # seconds of a point
_LOOK = 50  # calls between two looks at whether to go on


class Left(Exception):
    """The state has moved on."""


def _coarse_to_fine(count: int) -> list[int]:
    """0 … count−1, each halving of the gaps after the other."""
    by_power_of_two = sorted(range(1, count), key=lambda k: -(k & -k))
    return [0, *by_power_of_two][:count]


class TooLong(Exception):
    """A point takes more time than it is worth."""


T = TypeVar("T")
Check = Callable[..., None]  # raises `Left` to end the work


def watched(work: Callable[[], T], check: Check, seconds: float = _LONGEST_POINT) -> T:
    """What the work returns, unless it is to be left, or takes more than some processor time.

    A law is one call that can take seconds: the interpreter is asked to look up every so often,
    as a profiler would, in this thread alone.

    Raises:
        Left: what `check` raises.
        TooLong: it takes too long.
    """
    until, count = time.thread_time() + seconds, 0

    def look(*_: Any) -> None:
        nonlocal count
        count += 1
        if count % _LOOK == 0:
            check()
            if time.thread_time() > until:
                raise TooLong

    sys.setprofile(look)
    try:
        return work()
    finally:
        sys.setprofile(None)


def laws(
    state: State, store: Store, check: Check = lambda: None, seconds: float = math.inf
) -> Iterator[None]:
    """Fill in the exact law and the slower limits: at the marker first, then along the curves.

    Args:
        state: the state.
        store: where they go.
        check: called every so often, within a law too; raises `Left` to end it.
        seconds: after which a curve is left as it is.
    """
    axes = Axes(state)
    found = [curve.spec for curve in curves(state) if not refusal(curve.spec)]
    for spec in found:
        yield from _exact(store, spec.at(axes.name, axes.marker), check)
        yield from _limit(store, spec.at(axes.name, axes.marker), check)
    for spec in found:
        yield from _all_limits(store, spec, axes.name, places(axes, spec)[0])
    if axes.name == "length":
        for spec in found:
            if spec.whole and spec.rows == "iid" and not why_not(spec):
                yield from _all_lengths(store, spec, places(axes, spec)[0], check)
    grids = [(spec, places(axes, spec)[0]) for spec in found]
    for fill in (_exact, _limit):
        spent = dict.fromkeys(found, 0.0)
        for k in _coarse_to_fine(max((len(grid) for _, grid in grids), default=0)):
            for spec, grid in grids:
                if k < len(grid) and spent[spec] < seconds:
                    start = time.thread_time()
                    yield from fill(store, spec.at(axes.name, float(grid[k])), check)
                    spent[spec] += time.thread_time() - start


def _all_lengths(store: Store, spec: Spec, lengths: np.ndarray, check: Check) -> Iterator[None]:
    new = [n for n in lengths.tolist() if spec.at("length", n) not in store.exact]
    try:
        found = watched(lambda: exact_lengths(spec, np.array(new)), check) if new else []
    except (InputError, ArithmeticError, TooLong):  # one of them; each will say so for itself
        return
    for n, point in zip(new, found, strict=True):
        store.exact.put(spec.at("length", n), point)
    if new:
        yield


def _all_limits(store: Store, spec: Spec, x: str, values: np.ndarray) -> Iterator[None]:
    """The limits of a kernel without a closed form, all points of a curve together."""
    new = np.array([at for at in values.tolist() if spec.at(x, at) not in store.limit])
    try:
        if not len(new) or not spec.score or at_once(spec, x, new) is not None:
            return
        found = at_once(spec, x, new, method=None)
    except (InputError, ArithmeticError):  # one of them; each will say so for itself
        return
    if found is not None:
        for at, value in zip(new.tolist(), found.tolist(), strict=True):
            store.limit.put(spec.at(x, at), value)
        yield


def _exact(store: Store, spec: Spec, check: Check) -> Iterator[None]:
    """The exact law of one point of one curve, unless it is known."""
    if spec not in store.exact and spec.whole and not why_not(spec):
        try:
            value = watched(lambda: exact(spec), check)
            if value is not None:
                store.exact.put(spec, value)
        except (InputError, ArithmeticError) as error:
            store.exact.put(spec, str(error))
        except TooLong:
            store.exact.put(spec, "the exact law takes seconds at some points: sampled instead")
        yield


def _limit(store: Store, spec: Spec, check: Check) -> Iterator[None]:
    """The limit of one point of one curve, unless it is known or has a closed form."""
    if spec not in store.limit and spec.whole and has_limit(spec):
        try:
            if at_once(spec, "", np.zeros(1)) is not None:
                return
            if spec.rows == "iid" or spec.law.quick(spec.kernel, dict(spec.values)["length"]):
                store.limit.put(spec, watched(lambda: slowly(spec), check))
        except (InputError, ArithmeticError) as error:
            store.limit.put(spec, str(error))
        except TooLong:
            store.limit.put(spec, "the limit takes seconds at some points")
        yield


def formulas(state: State, store: Store) -> Iterator[None]:
    """Derive S of each kernel shown, as MathML."""
    from sparsity.report import formulas as written
    from sparsity.symbolic import derive

    for kernel in state.known:
        if kernel.name in state.shown and kernel.name not in store.formulas:
            if isinstance(kernel, RowMap):
                store.formulas.put(kernel.name, html.escape(f"p = {kernel.formula}"))
                yield
                continue
            try:
                derived = derive(kernel)
                whole = derived.S if derived.reduced is None else derived.reduced
                where = "" if derived.reduced is None else " with z = β/γ"
                text = written.equation("<mi>S</mi>", "=", whole) + where
            except NoClosedForm as error:
                text = f"no closed form: {error.step} failed; S by quadrature"
            weight = written.equation("<mi>a</mi>", "=", kernel.weight)
            store.formulas.put(kernel.name, f"{weight} {text}")
            yield


def samples(state: State, store: Store, check: Check) -> Iterator[None]:
    """Sample every curve shown, at the marker first, then tighten all of it round by round.

    Args:
        state: the state.
        store: where the points go.
        check: called as often as sampling allows; raises `Left` to end it.
    """
    axes = Axes(state)
    shown = [spec for spec in state.specs() if not refusal(spec)]
    grids = [(spec, places(axes, spec)[1]) for spec in shown]
    for number, chunks in enumerate(_ROUNDS):
        for k in range(max((len(grid) for _, grid in grids), default=0)):
            for spec, grid in grids:
                if k < len(grid):
                    yield from _sample(store, spec.at(axes.name, grid[k]), number, chunks, check)


def _sample(store: Store, spec: Spec, number: int, chunks: int, check: Check) -> Iterator[None]:
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
    """An estimate of whole rows, or of S where the kernel has none to draw."""
    from sparsity.montecarlo import estimate
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
