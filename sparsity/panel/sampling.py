"""Monte Carlo points of the curves, tightened round by round; between batches it can be left."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from sparsity.errors import InputError
from sparsity.kernels import performer
from sparsity.panel.axes import Axes
from sparsity.panel.filling import Check
from sparsity.panel.lines import refusal
from sparsity.panel.spec import Spec
from sparsity.panel.state import State
from sparsity.panel.store import Point, Store
from sparsity.rows.steps import QKNorm

_ROUNDS = (1, 4, 16)  # chunks of 32 batches for each estimate, from the first look to the last
_TARGET = 1e-3  # relative standard error at which a point is left as it is
_LONGEST_SAMPLED = 2**16  # tokens of a row that is drawn whole


def samples(state: State, store: Store, check: Check) -> Iterator[None]:
    """Sample every curve shown, at the marker first, then tighten all of it round by round.

    Args:
        state: the state.
        store: where the points go.
        check: called as often as sampling allows; raises `Left` to end it.
    """
    axes = Axes(state)
    shown = [spec for spec in state.specs() if not refusal(spec)]
    grids = [(spec, axes.sampled(spec)) for spec in shown]
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
