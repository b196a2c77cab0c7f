"""What a chart was asked for: curves, each a row and what it holds fixed, and the x-axis.

What can vary in a row are its parameters and the numbers of its steps, by the names of the panel's
controls or of the steps' fields.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from sparsity import kernels
from sparsity.calls import NotTaken, did_you_mean
from sparsity.checks import as_float64, check_several
from sparsity.errors import InputError
from sparsity.kernels import Kernel, Law, RowMap
from sparsity.kernels.parameters import DIM, GAMMA, LENGTH, QUERY, Parameters, Several
from sparsity.kernels.queries import NAMES
from sparsity.kernels.typesetting import typeset_name
from sparsity.plots.axes import row_choices
from sparsity.plots.axes.controls import CONTROLS, Control, around
from sparsity.rows.row import Row
from sparsity.rows.tokens import TokenScores
from sparsity.sweeps.grids import parse_grid, read_values

MOST_CURVES = 24  # in one chart: its seven looks repeat by then, and labels alone tell them apart
# Where no values are given: row lengths, and the number of values of another parameter. A curve
# whose exact law costs little more than a point of it gets the longer and finer ones.
FAST_LENGTHS, SLOW_LENGTHS = "1:100000:81:log", "1:4096:25:log"
_FAST_POINTS, _SLOW_POINTS = 61, 25
_DIMENSIONS = "1:1024:41:log"  # of whole keys: heads have 32 to 256


class OnAxes(Parameters[Several], total=False):
    """What rows are drawn at, by name: parameters, and numbers of steps."""

    length: Several
    slope: Several
    window: Several
    score: Several
    logit: Several
    scale: Several
    offset: Several
    trained: Several


@dataclass(frozen=True)
class CurveRequest:
    """One curve.

    Args:
        row: the row; the parameter along the x-axis has any value for now.
        length: n of its rows; None for long rows, or where the length is along the x-axis.
        held: what the curve holds fixed, by name, as it is printed.
        spread: γ at dimensions d of whole keys, where d is along the x-axis of a score kernel.
    """

    row: Row
    length: int | None
    held: Mapping[str, str]
    spread: Callable[[np.ndarray], np.ndarray] | None = None

    def moved(self, x: str, values: np.ndarray) -> tuple[str, np.ndarray]:
        """Return the parameter that moves in the row along the x-axis, and its values."""
        return (x, values) if self.spread is None else (GAMMA.name, self.spread(values))

    def fixed(self, x: str) -> dict[str, Any]:
        """Return what the curve holds fixed besides x, by the names of parameters."""
        held = {"kernel": self.row.kernel.name, **self.row.params, "length": self.length}
        if self.row.steps:
            held["steps"] = " ".join(self.row.described()["steps"])
        moves = {x} if self.spread is None else {x, self.moved(x, np.ones(1))[0]}
        return {k: v for k, v in held.items() if v is not None and k not in moves}

    @property
    def fast(self) -> bool:
        """Whether a curve of the exact law costs little more than a point of it."""
        return isinstance(self.row.kernel, Kernel) and not self.row.steps


def read_curves(
    what: Any, x: str, given: Mapping[str, Any]
) -> tuple[list[CurveRequest], np.ndarray]:
    """Return the curves, and the values along the x-axis.

    Args:
        what: a kernel, a row, or a sequence of them.
        x: the name of the parameter along the x-axis.
        given: the values of parameters by name: of `x` those along the x-axis; of any other,
            several values make several curves.

    Raises:
        InputError: an unknown name, a value outside its domain, too many curves.
    """
    sources = check_x_axis(what, x)
    for name in ("steps", "scores"):
        if name in given:
            raise InputError(name, given[name], 'give rows, such as Row("exp", gamma=2, steps=…)')
    # Some row has to take each name, not all of them: of "exp" and "router:64" one has a `rho`.
    taken = dict.fromkeys((*(n for one in sources for n in names_taken(one)), LENGTH.name, x))
    for name, value in given.items():
        if name not in taken:
            raise NotTaken(name, value, "a row here", taken)
    values = {
        name: read_values(name, value, any(_is_whole(name, one) for one in sources))
        for name, value in given.items()
        if value is not None
    }
    lengths = values.get(LENGTH.name, [None]) if x != LENGTH.name else [None]
    curves = []
    for one in sources:
        by_dim = x == DIM.name and _has_whole_keys(one)
        # Without a spread the dimension gives one: the two below.
        unset = by_dim and not isinstance(one, Row) and GAMMA.name not in values
        numbers = values | {GAMMA.name: [1.0]} if unset else values
        for row, length in itertools.product(_rows(one, x, numbers), lengths):
            n = row.length if length is None else int(LENGTH.one(length))
            curve = CurveRequest(row, n, _held(row, x, n))
            if unset:
                curves += [
                    replace(curve, held={**curve.held, **held}, spread=f) for held, f in _SPREADS
                ]
            else:
                curves.append(replace(curve, spread=_fixed(row.gamma)) if by_dim else curve)
    if len(curves) > MOST_CURVES:
        raise InputError("curves", len(curves), f"at most {MOST_CURVES} in one chart; give fewer")
    along = _check_along(curves, x, values[x]) if x in values else _default_along(curves, x)
    return curves, along


def _fixed(gamma: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return the spread of whole keys that is the same in any dimension."""
    return lambda dims: np.full(np.shape(dims), gamma)


# Of queries and keys q, k ~ N(0, I) in R^d: scores have the spread ‖q‖, which is about √d.
_SPREADS: tuple[tuple[dict[str, str], Callable[[np.ndarray], np.ndarray]], ...] = (
    ({GAMMA.name: "q·k: γ = √d"}, np.sqrt),
    ({GAMMA.name: "q·k/√d: γ = 1"}, _fixed(1.0)),
)


def _has_whole_keys(source: Row | Kernel | RowMap) -> bool:
    """Tell whether scores q·k of keys in R^d, with the spread γ, are what a row is made of."""
    kernel, steps = (source.kernel, source.steps) if isinstance(source, Row) else (source, ())
    names = [p.name for p in kernel.parameters]
    return (
        not steps and kernel.law is not Law.FEATURES and GAMMA.name in names and "dim" not in names
    )


def check_x_axis(what: Any, x: Any) -> list[Row | Kernel | RowMap]:
    """Return the kernels and rows, each of which takes numbers of `x`.

    Raises:
        InputError: an unknown kernel, none at all, or an x-axis that one does not take.
    """
    one = isinstance(what, (str, Row, Kernel, RowMap))
    fix = "give a kernel, a Row, a list of them, or a sweep's dataset"
    sources = [what] if one else list(check_several("what", what, fix))
    if not sources:
        raise InputError("what", what, fix)
    sources = [one if isinstance(one, Row) else kernels.named(one) for one in sources]
    for one in sources:
        names = [name for name in names_taken(one) if name != QUERY.name]
        names += [DIM.name] if _has_whole_keys(one) else []
        if not isinstance(x, str) or x not in names:
            name = one.kernel.name if isinstance(one, Row) else one.name
            hint = did_you_mean(x, names) if isinstance(x, str) else ""
            hint = "give several as a list" if isinstance(x, (Row, Kernel, RowMap)) else hint
            fix = f"is no parameter of a row of {name}; {hint or 'give ' + ', '.join(names)}"
            if isinstance(one, Row) and one.length is not None:
                fix = f"each of the row's {one.length} tokens has its own law; give "
                fix += ", ".join(names) or "it a step with a number"
            raise InputError("x", x, fix.rstrip())
    return sources


def short(value: Any) -> str:
    """Return a value as it is printed in a label, with a true minus."""
    return value if isinstance(value, str) else f"{value:g}".replace("-", "−")


def symbol(name: str) -> str:
    """Return the symbol of a parameter, such as γ for "gamma"; else its name."""
    return CONTROLS[name].symbol if name in CONTROLS else name


# --- what can vary in a row --------------------------------------------------------------------


def _law_of_step(step: Any) -> Any:
    """Return the panel's row law of this step; None if the panel has none."""
    return next((law for law in row_choices.ALL if law.name == step.name), None)


def names_taken(row: Row | Kernel | RowMap) -> list[str]:
    """Return the names that a row, or a kernel, takes values of."""
    kernel, steps = (row.kernel, row.steps) if isinstance(row, Row) else (row, ())
    given = isinstance(row, Row) and row.length is not None  # by arrays, a law for each token
    names = [] if given else [p.name for p in kernel.parameters]
    steps = [step for step in steps if not isinstance(step, TokenScores)]
    if not given and kernel.law is not Law.FEATURES and LENGTH.name not in names:
        names.append(LENGTH.name)
    for step in steps:
        law = _law_of_step(step)
        # A step that the panel shows goes by its control, as its sliders do; other steps, such as a
        # user's own, by the names of their fields.
        if law is None:
            names += [field.name for field in fields(step)]  # type: ignore[arg-type]
        elif law.name != "rope":  # whose control is a dimension, which is no number of the step
            names += law.controls
    return names


def _step_number(row: Row, name: str) -> tuple[int, str] | None:
    """Return (number of the step, field) of what a name moves in a row's steps; None if nothing.

    The name of a control comes first: it is the first field of its step. Then those of fields.
    """
    for i, step in enumerate(row.steps):
        law = _law_of_step(step)
        if law is not None and name in law.controls and law.name != "rope":
            return i, fields(step)[0].name  # type: ignore[arg-type]
    for i, step in enumerate(row.steps):
        field_names = [field.name for field in fields(step)]  # type: ignore[arg-type]
        if name in field_names and isinstance(getattr(step, name), (int, float)):
            return i, name
    return None


def with_value(row: Row, name: str, value: Any) -> Row:
    """Return the row with another value of a parameter, or of a number of its steps.

    Raises:
        InputError: it has none of that name, or a value outside its domain.
    """
    if name in row.params:
        return row.replace(**{name: value})
    place = _step_number(row, name)
    if place is None:
        taken = ", ".join(names_taken(row))
        fix = f"a row of {row.kernel.name} here does not take it; it takes {taken}"
        raise InputError(name, value, fix)
    index, field = place
    step: Any = row.steps[index]
    number = float(as_float64(value, name, "give a number"))
    # A field that holds an int gets one, which a user's own step may rely on. A fraction stays as
    # it is, for the step to refuse in its own words.
    whole = isinstance(getattr(step, field), int) and number.is_integer()
    changed = replace(step, **{field: int(number) if whole else number})
    steps = (*row.steps[:index], changed, *row.steps[index + 1 :])
    return Row(row.kernel, steps=steps, **row.params)


def _is_whole(name: str, source: Row | Kernel | RowMap) -> bool:
    """Tell whether values of a parameter are whole numbers in a row, or one of a kernel."""
    kernel = source.kernel if isinstance(source, Row) else source
    if any(p.name == name and p.integer for p in (*kernel.parameters, LENGTH, DIM)):
        return True
    place = _step_number(source, name) if isinstance(source, Row) else None
    return place is not None and isinstance(getattr(source.steps[place[0]], place[1]), int)  # type: ignore[union-attr]


# --- rows, what they hold fixed, and values along the x-axis ---------------------------------


def _rows(source: Any, x: str, given: Mapping[str, list[Any]]) -> list[Row]:
    """Return the rows of one kernel or row, one for each combination of values."""
    if isinstance(source, Row):
        rows = [source]
        for name, values in given.items():
            if name in names_taken(source) and name not in (x, LENGTH.name):
                rows = [with_value(row, name, value) for row in rows for value in values]
        return rows
    grids: dict[str, list[Any]] = {}
    for name in (p.name for p in source.parameters if p.name != LENGTH.name):
        if name == x and name not in given:  # any value will do to begin with
            if x not in CONTROLS:
                raise InputError(x, None, "give its values, such as 0.1:10:25:log")
            grids[name] = [CONTROLS[x].start]
        elif name in given:
            grids[name] = given[name][:1] if name == x else given[name]
        elif name == QUERY.name:
            grids[name] = [*NAMES]  # as in the article's own figure
    cells = itertools.product(*grids.values())
    return [Row(source, **dict(zip(grids, cell, strict=True))) for cell in cells]


def _held(row: Row, x: str, length: int | None) -> dict[str, str]:
    """Return what a curve holds fixed, in words, by name."""
    # A step that moves along the x-axis is there by its name alone, without its number.
    held = {"kernel": typeset_name(row.kernel)}
    for name, value in row.params.items():
        if name != x:
            held[name] = f"{symbol(name)} = {short(value)}"
    varied = _step_number(row, x) if x not in row.params else None
    for i, (step, words) in enumerate(zip(row.steps, row.described()["steps"], strict=True)):
        held[f"step {i}"] = step.name if varied is not None and varied[0] == i else words
    if length is not None:
        held["length"] = f"n = {length}"
    return held


def _check_along(curves: Sequence[CurveRequest], x: str, values: Sequence[Any]) -> np.ndarray:
    """Return the values along the x-axis, ascending, each in the domain of every curve.

    Raises:
        InputError: one is not.
    """
    points = np.unique(as_float64(values, x, "give numbers"))
    for curve in curves:
        whole_keys = () if curve.spread is None else (DIM,)
        parameters = {p.name: p for p in (*curve.row.kernel.parameters, LENGTH, *whole_keys)}
        if x in parameters:
            parameters[x].check(points)
        else:
            for value in points.tolist():
                with_value(curve.row, x, value)
    return points


def _default_along(curves: Sequence[CurveRequest], x: str) -> np.ndarray:
    """Return the values along the x-axis where none are given."""
    fast = all(curve.fast for curve in curves)
    if x == LENGTH.name:
        return parse_grid(FAST_LENGTHS if fast else SLOW_LENGTHS, x, whole=True)
    if any(curve.spread is not None for curve in curves):
        return parse_grid(_DIMENSIONS, x, whole=True)
    known = control_of(curves, x)
    if known is None:
        raise InputError(x, None, "give its values, such as 0.1:10:25:log")
    admitted = []
    for value in known.spread(known.start, _FAST_POINTS if fast else _SLOW_POINTS):
        # A step's own domain may be less than that of its control.
        with contextlib.suppress(InputError):
            for curve in curves:
                with_value(curve.row, x, value)
            admitted.append(value)
    return np.array(admitted)


def control_of(curves: Sequence[CurveRequest], x: str) -> Control | None:
    """Return the panel's control of the x-axis; None where it has none."""
    if x in CONTROLS:
        return CONTROLS[x]
    place = _step_number(curves[0].row, x)
    step: Any = curves[0].row.steps[place[0]] if place else None
    return around(type(step)) if place and fields(step)[0].name == place[1] else None


def axis_label(curves: Sequence[CurveRequest], x: str) -> str:
    """Return the label of the x-axis: the meaning of the parameter and its symbol."""
    parameters = (p for curve in curves for p in (*curve.row.kernel.parameters, LENGTH, DIM))
    known = next((p for p in parameters if p.name == x), None)
    if known is not None:
        return f"{known.meaning}  (tokens)" if x == LENGTH.name else known.meaning
    shown = control_of(curves, x)
    return x if shown is None else f"{shown.parameter.meaning}  {shown.symbol}"
