"""What is computed after the first picture: exact laws, slower limits, formulas, Monte Carlo.

All of it is cut into slices, from coarse to fine; between slices it can be left.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator
from typing import Any

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


class Left(Exception):
    """The state has moved on."""


def _coarse_to_fine(count: int) -> list[int]:
    """0 … count−1, each halving of the gaps after the other."""
    by_power_of_two = sorted(range(1, count), key=lambda k: -(k & -k))
    return [0, *by_power_of_two][:count]


def laws(state: State, store: Store) -> Iterator[None]:
    """Fill in the exact law and the slower limits: at the marker first, then along the curves."""
    axes = Axes(state)
    found = [curve.spec for curve in curves(state) if not refusal(curve.spec)]
    for spec in found:
        yield from _law(store, spec.at(axes.name, axes.marker))
    for spec in found:
        yield from _all_limits(store, spec, axes.name, places(axes, spec)[0])
    if axes.name == "length":
        for spec in found:
            if spec.whole and spec.rows == "iid" and not why_not(spec):
                yield from _all_lengths(store, spec, places(axes, spec)[0])
    grids = [places(axes, spec)[0] for spec in found]
    for k in _coarse_to_fine(max(map(len, grids), default=0)):
        for spec, grid in zip(found, grids, strict=True):
            if k < len(grid):
                yield from _law(store, spec.at(axes.name, float(grid[k])))


def _all_lengths(store: Store, spec: Spec, lengths: np.ndarray) -> Iterator[None]:
    new = [n for n in lengths.tolist() if spec.at("length", n) not in store.exact]
    try:
        found = exact_lengths(spec, np.array(new)) if new else []
    except (InputError, ArithmeticError):  # one of them; each will say so for itself
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


def _law(store: Store, spec: Spec) -> Iterator[None]:
    """One point of one curve, unless it is known."""
    if spec not in store.exact and spec.whole and not why_not(spec):
        try:
            point = exact(spec)
            if point is not None:
                store.exact.put(spec, point)
        except (InputError, ArithmeticError) as error:
            store.exact.put(spec, str(error))
        yield
    if spec not in store.limit and spec.whole and has_limit(spec):
        try:
            if at_once(spec, "", np.zeros(1)) is not None:
                return
            if spec.rows == "iid" or spec.law.quick(spec.kernel, dict(spec.values)["length"]):
                store.limit.put(spec, slowly(spec))
        except (InputError, ArithmeticError) as error:
            store.limit.put(spec, str(error))
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


def samples(state: State, store: Store, check: Callable[..., None]) -> Iterator[None]:
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


def _sample(
    store: Store, spec: Spec, number: int, chunks: int, check: Callable[..., None]
) -> Iterator[None]:
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


def _draw(spec: Spec, chunks: int, check: Callable[..., None]) -> tuple[Any, str]:
    """An estimate of whole rows, or of S where the kernel has none to draw."""
    from sparsity.montecarlo import estimate
    from sparsity.sweeps.curves import cell_seed

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
