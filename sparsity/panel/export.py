"""What the panel shows, as Python to paste, as a table to keep, and as the start of a page to send.

The Python calls the public functions: at the values of the marker, so that whoever runs it gets the
numbers that stand beside the chart; and `plot`, which draws the chart. The table has every number
that is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import sparsity
from sparsity.errors import InputError
from sparsity.exact_law.capabilities import capabilities
from sparsity.kernels import Kernel, Law, in_python
from sparsity.output import csv_text
from sparsity.panel.background import LONGEST_SAMPLED
from sparsity.panel.curve import Spec, bounded_limit, has_limit, why_no_law, why_no_value
from sparsity.panel.picture import curves
from sparsity.panel.state import State
from sparsity.panel.store import Axes, Point, Store
from sparsity.plots.axes.controls import CONTROLS, LOG, NINES
from sparsity.plots.browser import PARAMETERS, QUERIES, Pin, Start
from sparsity.quantities import S, n_eff
from sparsity.rows.row import Row
from sparsity.rows.steps import Rope

# Points of a curve: as many as the panel has at first, and where each takes seconds, few.
_MANY_POINTS, _FEW_POINTS = 65, 9
_SCALES = {"S": "linear", "log S": "log"}  # of the y-axis, of the two views of S

Imports = set[tuple[str, str]]  # (module, name); of the module "" the name is imported itself


def python_source(state: State) -> str:
    """Return Python that computes the numbers shown: each import once, then the calls."""
    imports, lines = _own_kernels(state.specs())
    for spec in state.specs():
        needed, calls = _calls(spec)
        imports |= needed
        lines += calls
    return _written(imports, lines)


def plot_source(state: State) -> str:
    """Return Python that draws the chart shown, pins too: a call of `plot` for its curves.

    Curves whose lengths are not those of all others have a chart of their own.
    """
    axes = Axes(state)
    imports, lines = _own_kernels([curve.spec for curve in curves(state)])
    charts: dict[tuple[str, ...], list[str]] = {}  # (name of the quantity, lengths) -> rows
    lengths: dict[str, list[str]] = {}  # a row, as it is written -> its lengths
    for _, spec, _ in curves(state):
        needed, setup, row = _row(spec)
        if why := why_no_value(spec) or _why_not_along(spec, state.x) or ("" if row else setup[0]):
            lines.append(why if why.startswith("#") else f"# {spec.title(state.x)}: {why}")
            continue
        imports |= needed
        if setup:
            name = f"row_{len(lengths) + 1}"
            lines += [*setup, f"{name} = {row}"]
            row = name
        n = dict(spec.values).get("length") if state.x != "length" else None
        lengths.setdefault(row, []).append("" if n is None else str(int(n)))
    for row, of_row in lengths.items():
        charts.setdefault(tuple(dict.fromkeys(of_row)), []).append(row)
    drawn = [curve.spec for curve in curves(state) if curve.spec.whole]
    points = _FEW_POINTS if any(map(why_no_law, drawn)) else _MANY_POINTS
    longest = min((spec.law.longest for spec in drawn if spec.score), default=math.inf)
    grid = _grid(axes, points, longest if state.x == "length" else math.inf)
    if grid.startswith("1 - np."):
        imports.add(("", "numpy as np"))
    for of_rows, rows in charts.items():
        imports.add(("sparsity", "plot"))
        given = [f"x={state.x!r}", f"{state.x}={grid}"]
        if of_rows != ("",):
            several = f"[{', '.join(of_rows)}]"
            given.append(f"length={of_rows[0] if len(of_rows) == 1 else several}")
        if state.y in _SCALES:
            rows_of_n = state.x == "length" or of_rows != ("",)
            name = "S_rms" if rows_of_n else "S"
            given.append(f"of={name!r}, yscale={_SCALES[state.y]!r}")
        else:
            given.append(f"of={state.plot.of.name!r}")
        if state.sampling and axes.length <= LONGEST_SAMPLED:
            places = sorted(float(f"{x:.4g}") for x in axes.sampled(curves(state)[0].spec))
            whole = axes.control.parameter.integer
            given.append(f"\n    montecarlo={[round(x) if whole else x for x in places]}")
        listed, said = ",\n     ".join(rows), ", ".join(given).replace(" \n", "\n")
        lines.append(f"plot(\n    [{listed}],\n    {said},\n)")
    return _written(imports, lines)


def _own_kernels(specs: Iterable[Spec]) -> tuple[Imports, list[str]]:
    """Return the imports and the lines that define the kernels that have no name to be found by."""
    imports: Imports = set()
    lines: dict[str, None] = {}
    for spec in specs:
        # A kernel of one's own goes by its weight as SymPy prints it: `sympify` reads that back,
        # while the text that was typed may be in another notation.
        if isinstance(spec.kernel, Kernel) and in_python(spec.kernel) == spec.kernel.name:
            weight = f"score_kernel({spec.kernel.name!r}, sympify({str(spec.kernel.weight)!r}))"
            imports |= {("sympy", "sympify"), ("sparsity", "score_kernel")}
            lines[f"{spec.kernel.name} = {weight}"] = None
    return imports, list(lines)


def _written(imports: Imports, lines: Iterable[str]) -> str:
    """Return imports and lines as one text."""
    head = []
    for module in sorted({module for module, _ in imports}):
        names = ", ".join(sorted(name for place, name in imports if place == module))
        head.append(f"from {module} import {names}" if module else f"import {names}")
    return "\n".join([*head, *lines])


def _values(spec: Spec) -> dict[str, str]:
    """Return the values of a curve as they are written."""
    return {
        name: str(int(value)) if CONTROLS[name].parameter.integer else repr(value)
        for name, value in spec.values
    }


def _kernel_and_values(spec: Spec) -> str:
    """Return the arguments of a curve of independent scores as they are written, but the length."""
    arguments = ({"beta": "0.0"} if spec.score else {}) | _values(spec)
    arguments.pop("length", None)
    return ", ".join([in_python(spec.kernel), *(f"{name}={x}" for name, x in arguments.items())])


def _row(spec: Spec) -> tuple[Imports, list[str], str]:
    """Return the imports, the lines before it, and the expression of a curve's row.

    The expression is "" where there is no such row; the one line is then a comment that says why.
    """
    v, kernel = _values(spec), in_python(spec.kernel)
    if spec.rows == "iid":
        query = f", query={spec.query!r}" if spec.query else ""
        return {("sparsity", "Row")}, [], f"Row({_kernel_and_values(spec)}{query})"
    try:
        row = spec.row()
    except InputError as error:  # such as RoPE in an odd dimension
        return set(), [f"# {spec.title()}: {error}"], ""
    # The repr of a row names its steps; those that the package does not offer have a module.
    imports: Imports = set()
    for kind in (Row, *map(type, row.steps)):
        public = kind.__name__ in sparsity.__all__
        imports.add(("sparsity" if public else kind.__module__, kind.__name__))
    if spec.rows != Rope.name:
        return imports, [], repr(row)
    # Vectors of RoPE are too long to be written: they are made as `row_choices` makes them.
    lines = [
        f"query = np.random.default_rng(0).standard_normal({v['dim']})",
        f"query *= {v['gamma']} / np.linalg.norm(query)",
        f"steps = (Rope(query, query * {v['beta']} / {v['gamma']} ** 2, 1.0),)",
    ]
    return imports | {("", "numpy as np")}, lines, f"Row({kernel}, steps=steps)"


def _why_not_along(spec: Spec, x: str) -> str:
    """Say why `plot` has no curve along x, which the panel draws as a level line or not at all."""
    names = {parameter.name for parameter in spec.kernel.parameters} | set(dict(spec.values))
    if spec.rows == Rope.name and x in ("dim", "beta", "gamma"):
        return f"the vectors of RoPE are made anew at each {CONTROLS[x].label}"
    return "" if x in names or x == "length" else f"does not depend on {CONTROLS[x].label}"


def _grid(axes: Axes, points: int, most: float) -> str:
    """Return the values along the x-axis of the panel, up to `most`, as `plot` takes them."""
    low, high = axes.control.ends(axes.marker)
    high = min(high, most)
    if axes.control.scale is NINES:
        return f"1 - np.geomspace({1 - low:.6g}, {1 - high:.6g}, {points})"
    log = ":log" if axes.control.scale is LOG else ""
    return repr(f"{low:.12g}:{high:.12g}:{points}{log}")


def _calls(spec: Spec) -> tuple[Imports, list[str]]:
    """Return the imports and the lines that compute a curve's numbers at its own values.

    A curve that has none, or whose row is refused, is a comment that says so.
    """
    if refused := why_no_value(spec):
        return set(), [f"# {spec.title()}: {refused}"]
    v = _values(spec)
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
        given = _kernel_and_values(spec)
    else:
        imports, lines, row = _row(spec)
        if not row:
            return imports, lines
        given, lines = "row", [*lines, f"row = {row}"]
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
        v, cells = spec.given(), [identifier, spec.kernel.name, spec.rows, spec.query]
        cells += [v.get(name, "") for name in names]
        for x in sorted({*axes.x.tolist(), *axes.sampled(spec)}):
            rows.append([*cells, x, *_numbers(axes, spec, store, x)])
    return csv_text(rows)


def _numbers(axes: Axes, spec: Spec, store: Store, x: float) -> list[Any]:
    """Return the columns of the plot and what was sampled; "" where not known."""
    here, n = spec.at(axes.name, x), float(axes.n(x, spec))
    try:
        closed = bounded_limit(here, "", axes.x[:1], n=n)
        limit = store.limit.get(here) if closed is None else float(closed[0][0])
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
    value, low, high = (float(shown(number, n)) for number in point.values(n))
    name = ("S" if point.of == "S" else "√(n_eff/n)") if spec.quantity is n_eff else point.of
    return [*row, name, value, max(high - value, value - low), point.estimate.samples]


def as_page(state: State) -> Start:
    """Return the page that shows what the panel does, without its samples.

    Raises:
        InputError: rows of another law than independent scores. What else a page has not,
            `sparsity.plots.browser` refuses.
    """
    specs, pinned = state.specs(), [spec for _, spec in state.pinned()]
    for spec in (*specs, *pinned):
        if spec.rows != "iid":
            fix = "a page has rows of independent scores; choose iid, or send the notebook"
            raise InputError("rows", spec.rows, fix)
    features = any(spec.kernel.law is Law.FEATURES for spec in specs)
    return Start(
        shown=[spec.kernel for spec in specs],
        x=state.x,
        y=state.y,
        values={name: state.value(name) for name in PARAMETERS},
        query=state.query if features else QUERIES[0],
        pins=[
            Pin(
                spec.kernel,
                {name: value for name, value in spec.given().items() if name in PARAMETERS},
                spec.query or QUERIES[0],
            )
            for spec in pinned
        ],
    )
