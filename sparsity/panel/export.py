"""What the panel shows, as Python to paste and as a table to keep.

The Python calls the public functions at the values of the marker: whoever runs it gets the numbers
that stand beside the chart. The table has every number that is drawn.
"""

from __future__ import annotations

from typing import Any

import sparsity
from sparsity.axes.controls import CONTROLS
from sparsity.capabilities import capabilities
from sparsity.errors import InputError
from sparsity.kernels import Kernel, in_python
from sparsity.output import csv_text
from sparsity.panel.axes import Axes
from sparsity.panel.curve import Spec, closed_limit, has_limit, why_no_value
from sparsity.panel.picture import curves
from sparsity.panel.state import State
from sparsity.panel.store import Point, Store
from sparsity.quantities import S, n_eff
from sparsity.rows.row import Row
from sparsity.rows.steps import Rope

Imports = set[tuple[str, str]]  # (module, name); of the module "" the name is imported itself


def python_source(state: State) -> str:
    """Return Python that computes the numbers shown: each import once, then the calls."""
    imports: Imports = set()
    lines: list[str] = []
    for spec in state.specs():
        needed, calls = _calls(spec)
        # A kernel that was typed goes by its weight as SymPy prints it: `sympify` reads that back,
        # while the text that was typed may be in another notation.
        if isinstance(spec.kernel, Kernel) and in_python(spec.kernel) == spec.kernel.name:
            weight = f"score_kernel({spec.kernel.name!r}, sympify({str(spec.kernel.weight)!r}))"
            imports |= {("sympy", "sympify"), ("sparsity", "score_kernel")}
            lines.append(f"{spec.kernel.name} = {weight}")
        imports |= needed
        lines += calls
    head = []
    for module in sorted({module for module, _ in imports}):
        names = ", ".join(sorted(name for place, name in imports if place == module))
        head.append(f"from {module} import {names}" if module else f"import {names}")
    return "\n".join([*head, *lines])


def _calls(spec: Spec) -> tuple[Imports, list[str]]:
    """Return the imports and the lines that compute a curve's numbers at its own values.

    A curve that has none, or whose row is refused, is a comment that says so.
    """
    if refused := why_no_value(spec):
        return set(), [f"# {spec.title()}: {refused}"]
    v = {
        name: str(int(value)) if CONTROLS[name].parameter.integer else repr(value)
        for name, value in spec.values
    }
    kernel, n, of_n_eff = in_python(spec.kernel), v.get("length"), spec.quantity is n_eff
    if not spec.whole:  # features, and weights by position: no random rows
        given = ", ".join([kernel, *(f"{name}={value}" for name, value in v.items())])
        given += f", query={spec.query!r}" if spec.query else ""
        if of_n_eff:
            return {("sparsity", "evaluate")}, [f"evaluate({given}).S"]
        return {("sparsity", "exact")}, [f"exact({given}, of={spec.of!r}).value"]
    imports: Imports = set()
    lines: list[str] = []
    if spec.rows == "iid":
        own = ({"beta": "0.0"} if spec.score else {}) | v
        own.pop("length", None)
        given = ", ".join([kernel, *(f"{name}={value}" for name, value in own.items())])
    else:
        try:
            row = spec.row()
        except InputError as error:  # such as RoPE in an odd dimension
            return set(), [f"# {spec.title()}: {error}"]
        given, lines = "row", [f"row = {row!r}"]
        # Vectors of RoPE are too long to be written: they are made as `row_choices` makes them.
        if spec.rows == Rope.name:
            imports.add(("", "numpy as np"))
            lines = [
                f"query = np.random.default_rng(0).standard_normal({v['dim']})",
                f"query *= {v['gamma']} / np.linalg.norm(query)",
                f"steps = (Rope(query, query * {v['beta']} / {v['gamma']} ** 2, 1.0),)",
                f"row = Row({kernel}, steps=steps)",
            ]
        # The repr of a row names its steps; those that the package does not offer have a module.
        for kind in (Row, *map(type, row.steps)):
            public = kind.__name__ in sparsity.__all__
            imports.add(("sparsity" if public else kind.__module__, kind.__name__))
    # `evaluate` wants a length only where the limit depends on it.
    if has_limit(spec):
        by_S = of_n_eff or spec.quantity is S
        same = spec.rows == "iid" and (
            spec.score or getattr(spec.kernel, "identically_distributed", True)
        )
        at = "" if by_S and same else f", length={n}"
        of = "" if by_S else f", of={spec.of!r}"
        imports.add(("sparsity", "evaluate"))
        lines.append(f"evaluate({given}{at}{of}).{'S' if by_S else 'value'}  # long rows")
    function = "exact" if capabilities(spec.kernel, spec.quantity).exact else "estimate"
    of = "" if of_n_eff and function == "exact" else f", of={spec.of!r}"
    last = f"n_eff of rows of {n}; drawn as √(n_eff/n)" if of_n_eff else f"rows of {n}"
    imports.add(("sparsity", function))
    return imports, [*lines, f"{function}({given}, length={n}{of}).value  # {last}"]


def csv_table(state: State, store: Store) -> str:
    """Return everything drawn as CSV: one line for each curve and value of x that is known."""
    axes, names = Axes(state), [name for name in CONTROLS if name != state.x]
    head = ["curve", "kernel", "rows", "query", *names, state.x]
    of = state.plot.of.name
    columns = [f"{of}_limit", of]
    if state.plot.of is n_eff:
        of, columns = "S", ["S_limit", "S_rms", "n_eff"]
    # The first says what was sampled: S of long rows, or the quantity in rows of n.
    sampled = ["sampled", f"{of}_mc", "half_width_95_mc", "samples_mc"]
    rows: list[list[Any]] = [[*head, *columns, *sampled]]
    for identifier, spec, _ in curves(state):
        if why_no_value(spec):
            continue
        v, own = spec.given(), [identifier, spec.kernel.name, spec.rows, spec.query]
        own += [v.get(name, "") for name in names]
        for x in sorted({*axes.x.tolist(), *axes.sampled(spec)}):
            rows.append([*own, x, *_numbers(axes, spec, store, x)])
    return csv_text(rows)


def _numbers(axes: Axes, spec: Spec, store: Store, x: float) -> list[Any]:
    """Return the columns of the plot and what was sampled; "" where not known."""
    here, n = spec.at(axes.name, x), float(axes.n(x, spec))
    try:
        found = closed_limit(here, "", axes.x[:1], n=n)
        limit = store.limit.get(here) if found is None else float(found[0])
    except InputError:
        limit = None
    known = {False: limit, True: store.exact.get(here)}
    row: list[Any] = []
    for column in axes.plot.columns:
        value = known[column.exact]
        row.append(float(column.shown(value, n)) if isinstance(value, float) else "")
    point = store.points.get(here)
    if not isinstance(point, Point):
        return [*row, "", "", "", ""]
    shown = axes.plot.columns[0].shown
    value, low, high = (float(shown(each, n)) for each in point.values(n))
    name = ("S" if point.of == "S" else "√(n_eff/n)") if spec.quantity is n_eff else point.of
    return [*row, name, value, max(high - value, value - low), point.estimate.samples]
