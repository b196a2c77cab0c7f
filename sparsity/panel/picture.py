"""A state as a picture: everything a browser needs to draw it, with what is known by now.

The limit comes from closed forms in the same breath; the exact law, slower limits and Monte Carlo
points are taken from the store as far as they have come. Everything is a value of the quantity that
is plotted, until the plot says what is shown of it and the axis how high it lies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from sparsity.errors import InputError
from sparsity.kernels import Law
from sparsity.panel.controls import CONTROLS, POINTS, Control
from sparsity.panel.lines import at_once, has_limit, provisional, refusal, why_not
from sparsity.panel.state import Spec, State
from sparsity.panel.store import Point, Store

FILLED = 65  # points of a curve that is filled in
_ENOUGH = 9  # points that make a line; fewer would draw a shape that is not there
_SAMPLED = 6  # points of a curve that are sampled, besides the one at the marker


class Axes:
    """Both axes of a state: where a value of x, or of the quantity, lies in the unit square."""

    def __init__(self, state: State) -> None:
        self.control: Control = CONTROLS[state.x]
        self.name, self.plot, self.marker = state.x, state.plot, state.value(state.x)
        self.length = state.value("length")
        self.x = self.control.spread(self.marker, POINTS)
        top = float(self.x[-1]) if state.x == "length" else self.length
        self.scale = self.plot.scale(6 if top <= 1e6 else 12)  # decades of n

    def u(self, x: Any) -> np.ndarray:
        """Place along the horizontal axis."""
        return self.control.place(np.asarray(x, dtype=np.float64), self.marker)

    def n(self, x: Any, spec: Spec | None = None) -> Any:
        """Row length at x, of a curve or else of the panel."""
        if self.name == "length":
            return x
        return self.length if spec is None else dict(spec.values).get("length", self.length)

    def v(self, value: Any, n: Any) -> np.ndarray:
        """Height of a value of the quantity in rows of n."""
        return self.scale.place(self.plot.shown(np.asarray(value, dtype=np.float64), n))

    def marks(self) -> list[tuple[float, str]]:
        """Ticks of the vertical axis."""
        return [(float(self.scale.place(value)), label) for value, label in self.scale.ticks]

    def floor(self) -> np.ndarray | None:
        """The height of rows with one weight, where it is drawn."""
        if self.plot.one is None:
            return None
        n = np.broadcast_to(self.n(self.x), self.x.shape)
        return self.v(np.full(n.shape, self.plot.one), n)


class Frame(NamedTuple):
    """A message to a browser.

    Args:
        content: JSON-ready; arrays are given as [start, stop] in `data`.
        data: float32, all arrays in a row.
    """

    content: dict[str, Any]
    data: bytes


class _Packer:
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
        id: its identifier.
        spec: what it is of.
        pin: its place among the pins; None if it is live.
    """

    id: str
    spec: Spec
    pin: int | None


def curves(state: State) -> list[Curve]:
    """Those shown, then those pinned that are of the same quantity."""
    live = [Curve(f"live {spec.kernel.name}", spec, None) for spec in state.specs()]
    return live + [Curve(f"pin {hash(spec)}", spec, k) for k, spec in state.pinned()]


def places(axes: Axes, spec: Spec) -> tuple[np.ndarray, list[float]]:
    """Where a curve is filled in, and where it is sampled: values of x.

    A curve that does not depend on x is known everywhere once it is known at the marker.
    """
    if axes.name not in dict(spec.values):
        return np.array([axes.marker]), [axes.marker]
    last = len(axes.x) - 1
    filled = axes.x[np.unique(np.linspace(0, last, FILLED).round().astype(int))]
    sampled = axes.x[((np.arange(_SAMPLED) + 0.5) / _SAMPLED * last).round().astype(int)]
    return filled, [axes.marker, *sampled.tolist()]


def _filled(axes: Axes, spec: Spec, found: Iterable[Any], pack: _Packer) -> dict[str, Any] | None:
    """A curve from the points known by now; None if they are too few."""
    x, _ = places(axes, spec)
    values = np.array([value if isinstance(value, float) else math.nan for value in found])
    known = np.isfinite(values)
    if known.sum() < min(len(x), _ENOUGH):
        return None
    at, values = x[known], values[known]
    if len(x) == 1:
        at, values = axes.x[[0, -1]], np.repeat(values, 2)
    height = axes.v(values, axes.n(at, spec))
    return {"u": pack(axes.u(at)), "v": pack(height), "whole": bool(known.all())}


def _limit(
    axes: Axes, spec: Spec, slow: list[float | str | None], pack: _Packer
) -> dict[str, Any] | None:
    """A limit by quadrature: what is known by now, and a provisional value for the rest."""
    found = np.array([value if isinstance(value, float) else math.nan for value in slow])
    waiting = np.array([value is None for value in slow])
    if waiting.any():
        found[waiting] = provisional(spec, axes.name, places(axes, spec)[0][waiting])
    drawn = _filled(axes, spec, found.tolist(), pack)
    return drawn and drawn | {"whole": drawn["whole"] and not waiting.any()}


def _number(value: Any) -> Any:
    return None if value is None or not math.isfinite(value) else float(value)


def _point(axes: Axes, spec: Spec, x: float, point: Point) -> dict[str, Any]:
    """A sampled point with its 95 % interval."""
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
    """The points sampled by now, and what is to be said of those that could not be."""
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
        notes.append(f"no sample at {axes.control.symbol} = {', '.join(missed)}")
    return points, notes


def _lines(
    axes: Axes, spec: Spec, store: Store, pack: _Packer
) -> tuple[dict[str, Any], dict[bool, float | None], list[str]]:
    """Limit and exact law along x as lines and, by whether it is exact, at the marker; notes."""
    x, notes = axes.name, []
    here, n = spec.at(x, axes.marker), float(axes.n(axes.marker, spec))
    filled, _ = places(axes, spec)
    found: dict[str, Any] = {"limit": None}
    limit = level = None
    try:
        values = at_once(spec, x, axes.x, n=n)
        at_marker = at_once(here, x, np.array([axes.marker]), n=n)
        if values is not None and at_marker is not None:
            height = axes.v(values, axes.n(axes.x, spec))
            found["limit"] = {"u": pack(axes.u(axes.x)), "v": pack(height), "whole": True}
            limit = float(at_marker[0])
        elif has_limit(spec):
            slow = [store.limit.get(spec.at(x, float(at))) for at in filled]
            known = store.limit.get(here)
            notes += [each for each in (known, *slow) if isinstance(each, str)][:1]
            limit = None if isinstance(known, str) else known
            found["limit"] = _limit(axes, spec, slow, pack)
        else:
            notes.append("no limit of long rows")
    except InputError as error:
        notes.append(str(error))
    if why := why_not(here):
        notes.append(why)
    if spec.kernel.law is Law.POSITION:  # what it is in long rows it is in any row
        found["exact"], found["limit"], limit, level = found["limit"], None, None, limit
        return found, {False: level, True: level}, notes
    each = [store.exact.get(spec.at(x, float(at))) for at in filled]
    known = store.exact.get(here)
    notes += [e for e in (known, *each) if isinstance(e, str)][:1]
    found["exact"] = _filled(axes, spec, each, pack)
    level = None if isinstance(known, str) else known
    return found, {False: limit, True: level}, notes


def _curve(axes: Axes, spec: Spec, store: Store, pack: _Packer, sampling: bool) -> dict[str, Any]:
    n = float(axes.n(axes.marker, spec))
    if refused := refusal(spec):
        lines: dict[str, Any] = {"limit": None, "exact": None}
        known, notes, points = {}, [refused], []
    else:
        lines, known, notes = _lines(axes, spec, store, pack)
        places_ = places(axes, spec)[1] if sampling else []
        points, unsampled = _points(axes, spec, places_, store)
        notes += unsampled
    if axes.name not in dict(spec.values):
        notes.append(f"does not depend on {CONTROLS[axes.name].symbol}")
    read: dict[str, Any] = {"n": n}
    for column in axes.plot.columns:
        value = known.get(column.exact)
        read[column.of] = None if value is None else _number(column.shown(value, n))
    read["sampled"] = next((p for p in points if p["x"] == axes.marker), None)
    return lines | {"points": points, "read": read, "notes": list(dict.fromkeys(notes))}


def _letter(number: int) -> str:
    """A … Z, then A2 … Z2 and on."""
    round_, place = divmod(number, 26)
    return chr(ord("A") + place) + (str(round_ + 1) if round_ else "")


def picture(state: State, store: Store) -> Frame:
    """Everything to be drawn of a state, with what the store holds by now, which is only read."""
    axes, pack = Axes(state), _Packer()
    found = []
    for number, (identifier, spec, pin) in enumerate(curves(state)):
        found.append(
            {
                "id": identifier,
                "letter": _letter(number),
                "kernel": spec.kernel.name,
                "title": spec.title(without=state.x),
                "full": spec.at(state.x, axes.marker).title(),  # what the numbers beside it are of
                "pin": pin,
                **_curve(axes, spec, store, pack, state.sampling),
            }
        )
    floor = axes.floor()
    content = {
        "curves": found,
        "columns": [{"of": c.of, "title": c.title, "short": c.short} for c in axes.plot.columns],
        "axis": {
            "x": state.x,
            "symbol": axes.control.symbol,
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
        },
        "floor": None if floor is None else {"u": pack(axes.u(axes.x)), "v": pack(floor)},
        "length": axes.length,
    }
    return Frame(content, np.concatenate(pack.parts).tobytes())
