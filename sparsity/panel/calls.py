"""What the panel shows, as Python to paste and as a table to keep."""

from __future__ import annotations

import math
from typing import Any

import sparsity
from sparsity.errors import InputError
from sparsity.kernels import in_python
from sparsity.output import csv_text
from sparsity.panel.controls import CONTROLS
from sparsity.panel.lines import ExactPoint, at_once
from sparsity.panel.picture import Axes, curves, places
from sparsity.panel.state import Spec, State
from sparsity.panel.store import Point, Store
from sparsity.rows.row import Row
from sparsity.rows.steps import Rope

_SAMPLED = ("sampled", "S_mc", "half_width_95_mc", "samples_mc")  # what S_mc is, and its numbers


def _literal(name: str, value: float) -> str:
    return str(int(value)) if CONTROLS[name].parameter.integer else repr(value)


def _call(spec: Spec) -> tuple[set[tuple[str, str]], list[str]]:
    """(imports, lines) that compute a curve's numbers at its own values."""
    v = {name: _literal(name, value) for name, value in spec.values}
    kernel = in_python(spec.kernel)
    if not spec.score:
        options = ", ".join(f"{name}={value}" for name, value in v.items())
        options += f", query={spec.query!r}" if spec.query else ""
        return {("sparsity", "evaluate")}, [f"evaluate({kernel}, {options}).S"]
    v = {"beta": "0.0"} | v
    imports = {("sparsity", "evaluate"), ("sparsity", "exact")}
    given, n = f"beta={v['beta']}, gamma={v['gamma']}", v["length"]
    last = f"# n_eff of rows of {n}; drawn as √(n_eff/n)"
    if spec.rows == "iid":
        return imports, [
            f"evaluate({kernel}, {given}).S  # long rows",
            f"exact({kernel}, length={n}, {given}).value  {last}",
        ]
    try:
        row = spec.law.row(spec.kernel, spec.given())
    except InputError as error:  # such as RoPE in an odd dimension
        return set(), [f"# {spec.title()}: {error}"]
    lines = [f"row = {row!r}"]
    if spec.rows == Rope.name:
        imports.add(("", "numpy as np"))
        lines = [
            f"query = np.random.default_rng(0).standard_normal({v['dim']})",
            f"query *= {v['gamma']} / np.linalg.norm(query)",
            f"steps = (Rope(query, query * {v['beta']} / {v['gamma']} ** 2, 1.0),)",
            f"row = Row({kernel}, steps=steps)",
        ]
    for kind in (Row, *map(type, row.steps)):
        public = kind.__name__ in sparsity.__all__
        imports.add(("sparsity" if public else kind.__module__, kind.__name__))
    lines += [f"evaluate(row, length={n}).S  # long rows", f"exact(row, length={n}).value  {last}"]
    return imports, lines


def python(state: State) -> str:
    """Python that computes the numbers shown: each import once, then the calls."""
    imports: set[tuple[str, str]] = set()
    lines: list[str] = []
    for spec in state.specs():
        new, call = _call(spec)
        if in_python(spec.kernel) == spec.kernel.name:
            weight = f"score_kernel({spec.kernel.name!r}, sympify({str(spec.kernel.weight)!r}))"
            imports |= {("sympy", "sympify"), ("sparsity", "score_kernel")}
            lines.append(f"{spec.kernel.name} = {weight}")
        imports |= new
        lines += call
    modules = dict.fromkeys(sorted(module for module, _ in imports))
    head = []
    for module in modules:
        names = ", ".join(sorted(name for place, name in imports if place == module))
        head.append(f"from {module} import {names}" if module else f"import {names}")
    return "\n".join([*head, *lines])


def table(state: State, store: Store) -> str:
    """Everything drawn, as CSV: one line for each curve and value of x that is known."""
    axes, names = Axes(state), [name for name in CONTROLS if name != state.x]
    head = ["curve", "kernel", "rows", "query", *names, state.x]
    rows: list[list[Any]] = [[*head, "S_limit", "S_rms", "n_eff", *_SAMPLED]]
    for identifier, spec in curves(state):
        v, own = spec.given(), [identifier, spec.kernel.name, spec.rows, spec.query]
        own += [v.get(name, "") for name in names]
        filled, sampled = places(axes, spec)
        for x in sorted({*axes.x.tolist(), *filled.tolist(), *sampled}):
            rows.append([*own, x, *_row(axes, spec, store, x)])
    return csv_text(rows)


def _row(axes: Axes, spec: Spec, store: Store, x: float) -> list[Any]:
    """S_limit, S_rms, n_eff and what was sampled; "" where not known."""
    here = spec.at(axes.name, x)
    try:
        logs = at_once(here, "", axes.x[:1])
        log_S = store.limit.get(here) if logs is None else float(logs[0])
    except InputError:
        log_S = None
    row: list[Any] = [math.exp(log_S) if isinstance(log_S, float) else ""]
    exact, point = store.exact.get(here), store.points.get(here)
    row += [math.exp(exact.log_S), exact.n_eff] if isinstance(exact, ExactPoint) else ["", ""]
    if not isinstance(point, Point):
        return [*row, "", "", "", ""]
    e = point.estimate
    low, S, high = e.ci95[0], e.value, e.ci95[1]
    if point.of == "n_eff":
        low, S, high = (math.sqrt(value / float(axes.n(x, spec))) for value in (low, S, high))
    return [*row, point.name, S, max(high - S, S - low), e.samples]
