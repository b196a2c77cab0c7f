"""A state as a picture: everything a browser needs to draw it, with what is known by now.

The limit is computed here where it has a closed form; the exact law, slower limits and Monte Carlo
points are taken from the store as far as they have come, so that a picture never waits. Everything
is a value of the quantity that is plotted, until the plot says what is shown of it and the axis how
high it lies: the browser gets places in the unit square, and knows no mathematics.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from sparsity.errors import InputError
from sparsity.kernels import Law
from sparsity.panel.curve import (
    Spec,
    bounded_limit,
    has_limit,
    previewed_limit,
    rows_of_formula,
    why_no_law,
    why_no_value,
)
from sparsity.panel.state import State
from sparsity.panel.store import Axes, Point, Store, even_places
from sparsity.plots.axes.controls import CONTROLS

_LEAST_POINTS_OF_LINE = 9  # points that make a line; fewer would draw a shape that is not there


class Frame(NamedTuple):
    """A message to a browser.

    Args:
        content: JSON-ready; arrays are given as [start, stop] in `data`.
        data: float32, all arrays in a row.
    """

    content: dict[str, Any]
    data: bytes


class _Packer:
    """Collects arrays into one, and says where each of them is in it.

    A message has one block of bytes, where JSON would spell out each number; float32 is finer than
    any pixel.
    """

    def __init__(self) -> None:
        self.parts: list[np.ndarray] = []
        self.length = 0

    def __call__(self, array: np.ndarray) -> list[int]:
        start, self.length = self.length, self.length + len(array)
        self.parts.append(np.asarray(array, dtype="<f4"))
        return [start, self.length]


class Curve(NamedTuple):
    """A curve that is drawn.

    Args:
        id: the identifier, by which the browser knows it in the next picture.
        spec: what the curve is of.
        pin: its place among the pins; None if it moves with the sliders.
    """

    id: str
    spec: Spec
    pin: int | None


def curves(state: State) -> list[Curve]:
    """Return the curves shown, then those pinned that are of the same quantity."""
    # A live curve keeps its identifier, and its colour with it, when a slider moves. A pin goes by
    # what it is of, as its place moves up when another one is taken away.
    live = [Curve(f"live {spec.kernel.name}", spec, None) for spec in state.specs()]
    return live + [Curve(f"pin {hash(spec)}", spec, k) for k, spec in state.pinned()]


def _line_by_points(
    axes: Axes, spec: Spec, kind: str, store: Store, pack: _Packer
) -> tuple[dict[str, Any] | None, list[Any]]:
    """Return a curve that is filled in point by point, and what is known of it by now.

    Args:
        axes: the axes of the picture.
        spec: the curve.
        kind: the "exact" law, or the "limit", which is previewed where it is not known yet.
        store: what is known: numbers and refusals.
        pack: takes the arrays.

    Returns:
        The line, None if too few points are known to draw it; and what is known at its nodes.
    """
    power, moves = axes.plot.power, axes.moves(spec)
    at = sorted(even_places(len(axes.x))) if moves else []
    x = axes.x[at] if moves else np.array([axes.marker])
    memory = store.values(kind)
    points: list[Any] = [memory.get(spec.at(axes.name, value)) for value in x.tolist()]
    bounds = [store.bounds.get((kind, spec.at(axes.name, value))) for value in x.tolist()]
    bound = _known_bounds(power * np.array([-1.0 if b is None else b for b in bounds]))
    waiting = [k for k, value in enumerate(points) if value is None]
    shown = np.array([value if isinstance(value, float) else math.nan for value in points])
    if waiting and kind == "limit":
        shown[waiting] = previewed_limit(spec, axes.name, x[waiting])
    if not moves:  # a level line, from the value at the marker
        if not np.isfinite(shown).all():
            return None, points
        ends = axes.x[[0, -1]]
        height = axes.v(np.repeat(shown, 2), axes.n(ends, spec))
        line = {"u": pack(axes.u(ends)), "v": pack(height), "bound": pack(np.repeat(bound, 2))}
        return line | {"whole": not waiting}, points
    # Points without a value are left out, and the line runs on to the next: `whole` says whether it
    # is all there, or is drawn as what may still change.
    height = axes.v(shown, axes.n(x, spec))
    known = np.isfinite(height)
    if known.sum() < min(len(axes.x), _LEAST_POINTS_OF_LINE):
        return None, points
    whole = bool(known.all()) and not waiting
    line = {"u": axes.along[at], "v": height, "bound": bound}
    return {name: pack(column[known]) for name, column in line.items()} | {"whole": whole}, points


def _known_bounds(bounds: np.ndarray) -> np.ndarray:
    """Return the bounds, and −1 where there is none that float32 can hold."""
    return np.where((bounds >= 0) & (bounds < 1e30), bounds, -1.0)


def _number(value: Any) -> Any:
    return None if value is None or not math.isfinite(value) else float(value)


def _point(axes: Axes, spec: Spec, x: float, point: Point) -> dict[str, Any]:
    """Return a sampled point with its 95 % interval, in JSON's types."""
    # No quantity is negative, while the lower end of an interval may be: √ of it would be NaN.
    n = float(axes.n(x, spec))
    values = np.maximum(point.values(n), 0.0)
    value, low, high = axes.plot.shown(values, n).tolist()
    return {
        "x": x,
        "u": float(axes.u(x)),
        "v": axes.v(values, n).tolist(),
        "value": value,
        "half": _number(max(high - value, value - low)),
        "of": axes.plot.long if point.of == "S" else axes.plot.drawn,
        "samples": point.estimate.samples,
        "warning": point.estimate.warning,
    }


def _points(
    axes: Axes, spec: Spec, places: list[float], store: Store
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the points sampled by now, and notes on those that could not be sampled."""
    points, notes, missed = [], [], []
    for at in dict.fromkeys(places):
        point = store.points.get(spec.at(axes.name, at))
        if isinstance(point, Point):
            points.append(_point(axes, spec, at, point))
        elif isinstance(point, str) and at == axes.marker:
            notes.append(point)
        elif isinstance(point, str):
            missed.append(f"{at:.3g}")
    if missed:
        notes.append(f"no sample at {axes.control.label} = {', '.join(missed)}")
    return points, notes


def _lines(
    axes: Axes, spec: Spec, store: Store, pack: _Packer
) -> tuple[dict[str, Any], dict[bool, float | None], list[str]]:
    """Return a curve's lines, its numbers at the marker, and notes.

    Returns:
        The lines by "limit" and "exact", None where there is none; the number at the marker by
        whether it is the exact law's; why something is not there.
    """
    x = axes.name
    notes: list[str] = []
    here, n = spec.at(x, axes.marker), float(axes.n(axes.marker, spec))
    lines: dict[str, Any] = {"limit": None}
    limit = level = None

    def by_points(kind: str) -> tuple[dict[str, Any] | None, float | None]:
        line, points = _line_by_points(axes, spec, kind, store, pack)
        known = store.values(kind).get(here)
        # One refusal speaks for all points: the one at the marker first, where the reader looks.
        notes.extend([e for e in (known, *points) if isinstance(e, str)][:1])
        return line, None if isinstance(known, str) else known

    try:
        # The marker beside the grid: one call gives the line and the number beside it.
        known = bounded_limit(spec, x, np.append(axes.x, axes.marker), n=n)
        if known is not None:
            values, bounds = known
            height = axes.v(values[:-1], axes.n(axes.x, spec))
            bounds = _known_bounds(axes.plot.power * bounds[:-1])
            line = {"u": axes.along, "v": height, "bound": bounds}
            lines["limit"] = {name: pack(column) for name, column in line.items()} | {"whole": True}
            limit = float(values[-1])
        elif has_limit(spec):
            lines["limit"], limit = by_points("limit")
        else:
            notes.append("no limit of long rows")
    except InputError as error:
        notes.append(str(error))
    if why := why_no_law(here):
        notes.append(why)
    # Weights by position are not random: S of the row is exact as it stands, and drawn as exact.
    if spec.kernel.law is Law.POSITION:
        lines["exact"], lines["limit"], limit, level = lines["limit"], None, None, limit
        return lines, {False: level, True: level}, notes
    lines["exact"], level = by_points("exact")
    return lines, {False: limit, True: level}, notes


def _curve(axes: Axes, spec: Spec, store: Store, pack: _Packer, sampling: bool) -> dict[str, Any]:
    """Return a curve with its lines, its points, its numbers at the marker, and notes."""
    n = float(axes.n(axes.marker, spec))
    if refused := why_no_value(spec):
        lines: dict[str, Any] = {"limit": None, "exact": None}
        known, notes, points = {}, [refused], []
    else:
        lines, known, notes = _lines(axes, spec, store, pack)
        places = axes.sampled(spec) if sampling else []
        points, unsampled = _points(axes, spec, places, store)
        notes += unsampled
    if not axes.moves(spec):
        notes.append(f"does not depend on {CONTROLS[axes.name].label}")
    read: dict[str, Any] = {"n": n}
    for column in axes.plot.columns:
        value = known.get(column.exact)
        read[column.of] = None if value is None else _number(column.shown(value, n))
    read["sampled"] = next((p for p in points if p["x"] == axes.marker), None)
    return lines | {"points": points, "read": read, "notes": list(dict.fromkeys(notes))}


def curve_letter(number: int) -> str:
    """Return the letter of a curve in the chart: A … Z, then A2 … Z2 and on."""
    round_, place = divmod(number, 26)
    return chr(ord("A") + place) + (str(round_ + 1) if round_ else "")


def picture(state: State, store: Store) -> Frame:
    """Return everything to be drawn of a state, with what the store holds by now."""
    axes, pack = Axes(state), _Packer()
    drawn = []
    for number, (identifier, spec, pin) in enumerate(curves(state)):
        drawn.append(
            {
                "id": identifier,
                "letter": curve_letter(number),
                "kernel": spec.kernel.name,
                "title": spec.title(without=state.x),
                "full": spec.at(state.x, axes.marker).title(),  # what the numbers beside it are of
                "pin": pin,
                "question": [spec.rows, spec.query, spec.of],  # another one's points are no guess
                "formula": rows_of_formula(spec),
                **_curve(axes, spec, store, pack, state.sampling),
            }
        )
    floor = axes.floor()
    content = {
        "curves": drawn,
        "columns": [{"of": c.of, "title": c.title, "short": c.short} for c in axes.plot.columns],
        "axis": {
            "x": state.x,
            "symbol": axes.control.symbol,
            "label": axes.control.label,
            "scale": axes.control.scale.name,
            "meaning": axes.control.parameter.meaning,
            "marks": axes.control.marks(axes.marker),
            "marker": float(axes.u(axes.marker)),
            "value": axes.marker,
            "ends": list(axes.control.ends(axes.marker)),
            "stops": pack(axes.u(axes.control.stops(axes.marker))),
            "y": state.y,
            "y_title": axes.plot.title,
            "y_label": axes.plot.label,
            "y_marks": axes.marks(),
            "y_scale": "log" if axes.scale.log else "linear",
            "y_ends": [axes.scale.low, axes.scale.high],
            "long": axes.plot.long,
            "drawn": axes.plot.drawn,
        },
        "floor": None if floor is None else {"u": pack(axes.u(axes.x)), "v": pack(floor)},
        "length": axes.length,
    }
    return Frame(content, np.concatenate(pack.parts).tobytes())
