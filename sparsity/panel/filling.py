"""What is computed after the first picture: exact laws, slower limits, formulas.

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
from sparsity.kernels import RowMap
from sparsity.panel import nodes
from sparsity.panel.axes import Axes
from sparsity.panel.lines import (
    at_once,
    exact,
    exact_lengths,
    has_limit,
    refusal,
    slowly,
    why_not,
)
from sparsity.panel.picture import curves
from sparsity.panel.spec import Spec
from sparsity.panel.state import State
from sparsity.panel.store import Store

_LONGEST_POINT = 2.0  # seconds of a point
_LOOK = 50  # calls between two looks at whether to go on


class Left(Exception):
    """The state has moved on."""


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
    found = [spec for spec in found if spec.whole and axes.moves(spec)]
    for spec in found:
        yield from _all_limits(axes, spec, store)
        yield from _all_lengths(axes, spec, store, check)
    for kind, fill, has in (("exact", _exact, _has_exact), ("limit", _limit, _has_slow_limit)):
        first = float(axes.x[0])  # where rows are short, along n
        filled = [spec for spec in found if has(spec.at(axes.name, first))]
        work = {spec: _places(axes, spec, kind, store) for spec in filled}
        spent = dict.fromkeys(found, 0.0)
        while work:
            for spec in list(work):
                at = next(work[spec], None) if spent[spec] < seconds else None
                if at is None:
                    del work[spec]
                    continue
                start = time.thread_time()
                yield from fill(store, spec.at(axes.name, at), check)
                spent[spec] += time.thread_time() - start


def _known(axes: Axes, spec: Spec, kind: str, store: Store, at: list[int]) -> np.ndarray:
    """Heights at the nodes."""
    memory = store.exact if kind == "exact" else store.limit
    values = [memory.get(spec.at(axes.name, x)) for x in axes.x[at].tolist()]
    return axes.heights(spec, at, values)


def _places(axes: Axes, spec: Spec, kind: str, store: Store) -> Iterator[float]:
    """Values of x, each to be filled in before the next is asked for: where the curve bends."""
    at = axes.nodes(spec, kind, store)
    yield from axes.x[[at[k] for k in nodes.coarse_to_fine(len(at))]].tolist()
    while new := nodes.more(axes.along, at, _known(axes, spec, kind, store, at), 1):
        yield float(axes.x[new[0]])
        at = sorted([*at, *new])
        store.nodes.put(axes.key(spec, kind), tuple(at))


def _all_lengths(axes: Axes, spec: Spec, store: Store, check: Check) -> Iterator[None]:
    """The exact law of independent scores at many lengths, for the price of one."""
    if axes.name != "length" or spec.rows != "iid" or why_not(spec):
        return
    at = axes.nodes(spec, "exact", store)
    while new := nodes.more(axes.along, at, _known(axes, spec, "exact", store, at)):
        lengths = axes.x[new]
        try:
            found = watched(lambda n=lengths: exact_lengths(spec, n), check)
        except (InputError, ArithmeticError, TooLong):  # one of them; each will say so for itself
            return
        for n, point in zip(lengths.tolist(), found, strict=True):
            store.exact.put(spec.at("length", n), point)
        at = sorted([*at, *new])
        store.nodes.put(axes.key(spec, "exact"), tuple(at))
        yield


def _all_limits(axes: Axes, spec: Spec, store: Store) -> Iterator[None]:
    """The limits of a kernel without a closed form, many points of a curve together."""
    if not (spec.score and _has_slow_limit(spec)):
        return
    x, at = axes.name, axes.nodes(spec, "limit", store)
    new = [k for k in at if spec.at(x, float(axes.x[k])) not in store.limit]
    new = new or nodes.more(axes.along, at, _known(axes, spec, "limit", store, at))
    try:
        while new:
            found = at_once(spec, x, axes.x[new], method=None)
            if found is None:
                return
            for k, value in zip(axes.x[new].tolist(), found.tolist(), strict=True):
                store.limit.put(spec.at(x, k), value)
            at = sorted({*at, *new})
            store.nodes.put(axes.key(spec, "limit"), tuple(at))
            yield
            new = nodes.more(axes.along, at, _known(axes, spec, "limit", store, at))
    except (InputError, ArithmeticError):  # one of them; each will say so for itself
        return


def _has_exact(spec: Spec) -> bool:
    return not why_not(spec)


def _has_slow_limit(spec: Spec) -> bool:
    """Whether the limit is to be had point by point only."""
    try:
        return has_limit(spec) and at_once(spec, "", np.zeros(1)) is None
    except InputError:  # which each point says for itself
        return True


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
    """Write the weight of each kernel shown, and derive its S, as MathML."""
    from sparsity.derivation import derive
    from sparsity.report import formulas as written

    for kernel in state.known:
        if kernel.name in state.shown and kernel.name not in store.formulas:
            if isinstance(kernel, RowMap):
                store.formulas.put(kernel.name, (html.escape(f"p = {kernel.formula}"), ""))
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
            store.formulas.put(kernel.name, (weight, text))
            yield
