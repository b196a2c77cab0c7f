"""What the panel shows, as Python to paste and as a table to keep."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

from sparsity.errors import InputError
from sparsity.kernels import ALL
from sparsity.panel.controls import CONTROLS
from sparsity.panel.lines import Exact, at_once
from sparsity.panel.picture import Axes, curves, places
from sparsity.panel.state import Spec, State
from sparsity.panel.store import Point, Store

__all__ = ["python", "table"]


def _literal(name: str, value: float) -> str:
    return str(int(value)) if CONTROLS[name].parameter.integer else repr(value)


def _kernel(spec: Spec) -> str:
    return repr(spec.kernel.name) if spec.kernel in ALL else spec.kernel.name


def _call(spec: Spec) -> tuple[list[str], list[str]]:
    """(imports, lines) that compute a curve's numbers at its own values."""
    v = {name: _literal(name, value) for name, value in spec.values}
    kernel = _kernel(spec)
    if not spec.score:
        options = ", ".join(f"{name}={value}" for name, value in v.items())
        options += f", query={spec.query!r}" if spec.query else ""
        return ["import sparsity"], [f"sparsity.evaluate({kernel}, {options}).S"]
    v = {"beta": "0.0"} | v
    given = f"beta={v['beta']}, gamma={v['gamma']}"
    if spec.rows == "iid":
        return (
            ["import sparsity", "from sparsity.finite.finite_length import n_eff"],
            [
                f"sparsity.evaluate({kernel}, {given}).S  # long rows",
                f"n_eff({kernel}, {v['length']}, {given}).n_eff  # rows of {v['length']}",
            ],
        )
    step, lines = spec.law.code.format(**v), []
    imports = ["from sparsity.finite import finite_rows", "from sparsity.rows.steps import RowLaw"]
    if spec.rows == "rope":
        imports.append("from sparsity.figures.collinear import turned_query")
        imports.append("from sparsity.finite.rotary_laws import Rope")
        lines.append(f"query = turned_query({v['dim']}) * ({v['gamma']} / {v['dim']} ** 0.5)")
    else:
        imports.append(f"from sparsity.rows.steps import {step.split('(')[0]}")
    beta = v["beta"] if spec.law.biased else "0.0"
    lines += [
        f"law = RowLaw({beta}, {v['gamma']}, ({step},))",
        f"finite_rows.limit({kernel}, law, {v['length']}).S  # long rows",
        f"finite_rows.n_eff({kernel}, law, {v['length']}).n_eff  # rows of {v['length']}",
    ]
    return imports, lines


def python(state: State) -> str:
    """Python that computes the numbers shown: each import once, then the calls."""
    imports, lines = [], []
    for spec in state.specs():
        new, call = _call(spec)
        imports += [line for line in new if line not in imports]
        lines += call
        if spec.kernel not in ALL:
            weight = f"score_kernel({spec.kernel.name!r}, sympify({str(spec.kernel.weight)!r}))"
            imports += ["from sympy import sympify", "from sparsity.kernels import score_kernel"]
            lines.insert(len(lines) - len(call), f"{spec.kernel.name} = {weight}")
    plain_first = sorted(set(imports), key=lambda line: (line.startswith("from"), line))
    return "\n".join([*plain_first, *lines])


def table(state: State, store: Store) -> str:
    """Everything drawn, as CSV: one line for each curve and value of x that is known."""
    axes, out = Axes(state), io.StringIO()
    names = [name for name in CONTROLS if name != state.x]
    writer = csv.writer(out, lineterminator="\n")
    head = ["curve", "kernel", "rows", "query", *names, state.x]
    writer.writerow([*head, "S_limit", "S_rows", "n_eff", "S_mc", "half_width_95_mc", "samples_mc"])
    for identifier, spec in curves(state):
        v, own = spec.given(), [identifier, spec.kernel.name, spec.rows, spec.query]
        own += [v.get(name, "") for name in names]
        filled, sampled = places(axes, spec)
        for x in sorted({*axes.x.tolist(), *filled.tolist(), *sampled}):
            writer.writerow([*own, x, *_row(axes, spec, store, x)])
    return out.getvalue()


def _row(axes: Axes, spec: Spec, store: Store, x: float) -> list[Any]:
    """S_limit, S_rows, n_eff, and S, half width and samples of Monte Carlo; "" where not known."""
    here = spec.at(axes.name, x)
    try:
        logs = at_once(here, "", axes.x[:1])
        log_S = store.limit.get(here) if logs is None else float(logs[0])
    except InputError:
        log_S = None
    row: list[Any] = [math.exp(log_S) if isinstance(log_S, float) else ""]
    exact, point = store.exact.get(here), store.points.get(here)
    row += [math.exp(exact.log_S), exact.n_eff] if isinstance(exact, Exact) else ["", ""]
    if not isinstance(point, Point):
        return [*row, "", "", ""]
    e = point.estimate
    low, S, high = e.ci95[0], e.S, e.ci95[1]
    if point.of == "n_eff":
        low, S, high = (math.sqrt(value / float(axes.n(x, spec))) for value in (low, S, high))
    return [*row, S, max(high - S, S - low), e.samples]
