"""What a chart was asked for: curves, each a row and what it holds fixed, and the abscissa."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsity import kernels
from sparsity.arguments import as_float64, several
from sparsity.axes.controls import CONTROLS, Control, around
from sparsity.errors import InputError
from sparsity.kernels import Kernel, RowMap
from sparsity.kernels.parameters import LENGTH, QUERY, Parameter
from sparsity.plots.moving import at, is_whole, lever_of, names_of, takes
from sparsity.rows.row import Row
from sparsity.sweeps.grids import parse_grid

MOST_CURVES = 24
FAST, SLOW = "1:100000:81:log", "1:4096:25:log"  # row lengths where none are given
_POINTS = 61, 25  # of another parameter, likewise


@dataclass(frozen=True)
class Asked:
    """One curve.

    Args:
        row: its row; the parameter along the abscissa has the first of its values.
        length: n of its rows; None for long rows, or where it is along the abscissa.
        held: what tells it from other curves, by name, as it may be printed.
    """

    row: Row
    length: int | None
    held: Mapping[str, str]

    @property
    def fast(self) -> bool:
        """Whether a curve of the exact law costs little more than a point of it."""
        return isinstance(self.row.kernel, Kernel) and not self.row.steps


def values_of(name: str, given: Any, whole: bool) -> list[Any]:
    """The values of a parameter, from one of them, a sequence or a text as `sweep` takes it."""
    fix = "give one value or a flat, nonempty list"
    if name == QUERY.name:
        names = given.split(",") if isinstance(given, str) else several(name, given, fix)
        return [x.strip() if isinstance(x, str) else x for x in names]
    if isinstance(given, str):
        return parse_grid(given, name, whole=whole).tolist()
    values = np.ravel(as_float64(given, name, fix)).tolist()
    if not values:
        raise InputError(name, given, fix)
    return values


def _start(x: str) -> float:
    """A value of a parameter to begin with.

    Raises:
        InputError: none is known.
    """
    if x not in CONTROLS:
        raise InputError(x, None, "give its values, such as 0.1:10:25:log")
    return CONTROLS[x].start


def _first(kernel: Kernel | RowMap, x: str, given: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """The values of a kernel's own parameters; of the abscissa one to begin with."""
    found: dict[str, list[Any]] = {}
    for p in kernel.parameters:
        if p.name == LENGTH.name:
            continue
        if p.name == x:
            found[x] = given[x][:1] if x in given else [_start(x)]
        elif p.name in given:
            found[p.name] = given[p.name]
        elif p.name == "beta":
            found[p.name] = [0.0]
    return found


def _rows(each: Any, x: str, given: Mapping[str, list[Any]]) -> list[Row]:
    """The rows of one kernel or row, one for each combination of values."""
    if isinstance(each, Row):
        grids = {k: v for k, v in given.items() if k in takes(each) and k not in (x, LENGTH.name)}
    else:
        grids = _first(each, x, given)
    rows = []
    for cell in itertools.product(*grids.values()):
        row, values = each, dict(zip(grids, cell, strict=True))
        if isinstance(each, Row):
            for name, value in values.items():
                row = at(row, name, value)
        else:
            row = Row(each, **values)
        rows.append(row)
    return rows


def short(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}".replace("-", "−")


def symbol(name: str) -> str:
    """What a parameter is written as: γ."""
    return CONTROLS[name].symbol if name in CONTROLS else name


def _held(row: Row, x: str, length: int | None) -> dict[str, str]:
    """What a curve holds fixed, in words by name."""
    held = {"kernel": row.kernel.name}
    for name, value in row.params.items():
        if name != x:
            held[name] = f"{symbol(name)} = {short(value)}"
    lever = lever_of(row, x) if x not in row.params else None
    for i, (step, words) in enumerate(zip(row.steps, row.described()["steps"], strict=True)):
        held[f"step {i}"] = step.name if lever is not None and lever[0] == i else words
    if length is not None:
        held["length"] = f"n = {length}"
    return held


def subjects(what: Any, x: Any) -> list[Row | Kernel | RowMap]:
    """The kernels and rows, each of which takes numbers of `x`.

    Raises:
        InputError: an unknown kernel, none at all, or an abscissa that one does not take.
    """
    one = isinstance(what, (str, Row, Kernel, RowMap))
    fix = "give a kernel, a Row, a list of them, or a sweep's dataset"
    each = [what] if one else list(several("what", what, fix))
    if not each:
        raise InputError("what", what, fix)
    each = [one if isinstance(one, Row) else kernels.named(one) for one in each]
    for one in each:
        names = [name for name in takes(one) if name != QUERY.name]
        if not isinstance(x, str) or x not in names:
            name = one.kernel.name if isinstance(one, Row) else one.name
            raise InputError("x", x, f"a row of {name} has not this axis; give {', '.join(names)}")
    return each


def _along(curves: Sequence[Asked], x: str, values: Sequence[Any]) -> np.ndarray:
    """The values along the abscissa, ascending, each in the domain of every curve.

    Raises:
        InputError: one is not.
    """
    found = np.unique(as_float64(values, x, "give numbers"))
    for curve in curves:
        own = {p.name: p for p in (*curve.row.kernel.parameters, LENGTH)}
        if x in own:
            own[x].check(found)
        else:
            for value in found.tolist():
                at(curve.row, x, value)
    return found


def asked(what: Any, x: str, given: Mapping[str, Any]) -> tuple[list[Asked], np.ndarray]:
    """The curves, and the values along the abscissa.

    Args:
        what: a kernel, a row, or a sequence of them.
        x: the parameter along the abscissa.
        given: values of parameters by name, of `x` those along the abscissa; of any other, several
            values make several curves.

    Raises:
        InputError: an unknown name, a value outside its domain, too many curves.
    """
    each = subjects(what, x)
    values = {
        name: values_of(name, value, is_whole(name, each))
        for name, value in given.items()
        if value is not None
    }
    lengths = values.get(LENGTH.name, [None]) if x != LENGTH.name else [None]
    found = []
    for one in each:
        for row, length in itertools.product(_rows(one, x, values), lengths):
            n = None if length is None else int(LENGTH.one(length))
            found.append(Asked(row, n, _held(row, x, n)))
    known = {name for curve in found for name in takes(curve.row)} | {LENGTH.name}
    for name in values:
        if name not in known:
            shown = ", ".join(dict.fromkeys(name for c in found for name in takes(c.row)))
            raise InputError(name, given[name], f"these rows do not take it; they take {shown}")
    if len(found) > MOST_CURVES:
        raise InputError("curves", len(found), f"at most {MOST_CURVES} in one chart; give fewer")
    along = _along(found, x, values[x]) if x in values else _default(found, x)
    return found, along


def control(curves: Sequence[Asked], x: str) -> Control | None:
    """The panel's control of the abscissa; None where it has none."""
    if x in CONTROLS:
        return CONTROLS[x]
    lever = lever_of(curves[0].row, x)
    step: Any = curves[0].row.steps[lever[0]] if lever else None
    return around(type(step)) if lever and names_of(step)[0] == lever[1] else None


def _default(curves: Sequence[Asked], x: str) -> np.ndarray:
    """The values along the abscissa where none are given."""
    fast = all(curve.fast for curve in curves)
    if x == LENGTH.name:
        return parse_grid(FAST if fast else SLOW, x, whole=True)
    known = control(curves, x)
    if known is None:
        raise InputError(x, None, "give its values, such as 0.1:10:25:log")
    spread = known.spread(known.start, _POINTS[0] if fast else _POINTS[1])
    return np.array([value for value in spread if _admitted(curves, x, value)])


def _admitted(curves: Sequence[Asked], x: str, value: float) -> bool:
    """Whether every curve's own domain has the value; a step's may be less than its control's."""
    try:
        for curve in curves:
            at(curve.row, x, value)
    except InputError:
        return False
    return True


def axis_label(curves: Sequence[Asked], x: str) -> str:
    """The abscissa in words: its meaning and its symbol."""
    known: Parameter | None = next(
        (p for curve in curves for p in (*curve.row.kernel.parameters, LENGTH) if p.name == x), None
    )
    if known is not None:
        return f"{known.meaning}  (tokens)" if x == LENGTH.name else known.meaning
    shown = control(curves, x)
    return x if shown is None else f"{shown.parameter.meaning}  {shown.symbol}"
