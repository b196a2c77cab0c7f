"""A state as a picture: everything a browser needs to draw it, with what is known by now.

The limit law comes from closed forms in the same breath; the exact law, slower limits and Monte
Carlo points are taken from the store as far as they have come.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from sparsity.errors import InputError
from sparsity.kernels import Law
from sparsity.output import power_of_ten
from sparsity.panel.controls import CONTROLS, POINTS, Control
from sparsity.panel.lines import ExactPoint, at_once, provisional, why_not
from sparsity.panel.state import Spec, State
from sparsity.panel.store import Point, Store

FILLED = 65  # points of a curve that is filled in
_ENOUGH = 9  # points that make a line; fewer would draw a shape that is not there
_SAMPLED = 6  # points of a curve that are sampled, besides the one at the marker
_LN10 = math.log(10)


class Axes:
    """Both axes of a state: where a value of x, or log S at x, lies in the unit square."""

    def __init__(self, state: State) -> None:
        self.control: Control = CONTROLS[state.x]
        self.name, self.y, self.marker = state.x, state.y, state.value(state.x)
        self.length = state.value("length")
        self.x = self.control.spread(self.marker, POINTS)
        top = float(self.x[-1]) if state.x == "length" else self.length
        self.decades = 6 if top <= 1e6 else 12  # of n; S has half as many, and one more to spare

    def u(self, x: Any) -> np.ndarray:
        """Place along the horizontal axis."""
        return self.control.place(np.asarray(x, dtype=np.float64), self.marker)

    def n(self, x: Any, spec: Spec | None = None) -> Any:
        """Row length at x, of a curve or else of the panel."""
        if self.name == "length":
            return x
        return self.length if spec is None else dict(spec.values).get("length", self.length)

    def v(self, log_S: Any, n: Any) -> np.ndarray:
        """Height of log S in rows of n: 0 at the bottom, 1 at the top, kept within [−1, 2]."""
        log_S = np.asarray(log_S, dtype=np.float64)
        if self.y == "S":
            with np.errstate(under="ignore"):
                height = np.exp(np.minimum(log_S, 1.0))
        elif self.y == "log S":
            height = 1 + log_S / (_LN10 * (self.decades / 2 + 1))
        else:
            height = (np.log(n) + 2 * log_S) / (_LN10 * self.decades)
        return np.clip(height, -1.0, 2.0)

    def marks(self) -> list[tuple[float, str]]:
        """Ticks of the vertical axis."""
        if self.y == "S":
            return [(k / 5, f"{k / 5:.1f}" if 0 < k < 5 else str(k // 5)) for k in range(6)]
        down = self.y == "log S"
        most = self.decades // 2 + 1 if down else self.decades
        powers = range(0, most + 1, 1 if most < 8 else 2)
        return [
            (1 - k / most if down else k / most, power_of_ten(-k if down else k) if k else "1")
            for k in powers
        ]

    def floor(self) -> np.ndarray:
        """The height of 1/√n, one token."""
        n = np.broadcast_to(self.n(self.x), self.x.shape)
        return self.v(-0.5 * np.log(n), n)


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


def curves(state: State) -> list[tuple[str, Spec]]:
    """(identifier, curve): those shown, then those pinned."""
    live = [(f"live {spec.kernel.name}", spec) for spec in state.specs()]
    return live + [(f"pin {hash(spec)}", spec) for spec in state.pins]


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
    log_S = np.array([math.nan if value is None else value for value in found])
    known = np.isfinite(log_S)
    if known.sum() < min(len(x), _ENOUGH):
        return None
    at, logs = x[known], log_S[known]
    if len(x) == 1:  # level in S, though not in n·S² along n
        at = axes.x if axes.y == "n_eff" else axes.x[[0, -1]]
        logs = np.full(at.shape, log_S[0])
    height = axes.v(logs, axes.n(at, spec))
    return {"u": pack(axes.u(at)), "v": pack(height), "whole": bool(known.all())}


def _limit(
    axes: Axes, spec: Spec, slow: list[float | str | None], pack: _Packer
) -> dict[str, Any] | None:
    """A limit by quadrature: what is known by now, and a provisional value for the rest."""
    found = np.array(
        [math.nan if value is None or isinstance(value, str) else value for value in slow]
    )
    waiting = np.array([value is None for value in slow])
    if waiting.any():
        found[waiting] = provisional(spec, axes.name, places(axes, spec)[0][waiting])
    drawn = _filled(axes, spec, found, pack)
    return drawn and drawn | {"whole": drawn["whole"] and not waiting.any()}


def _number(value: Any) -> Any:
    return value if value is None or math.isfinite(value) else None


def _point(axes: Axes, spec: Spec, x: float, point: Point) -> dict[str, Any]:
    """A sampled point with its 95 % interval."""
    e, n = point.estimate, float(axes.n(x, spec))
    low, high = e.ci95
    logs = np.log(np.maximum([e.value, low, high], 1e-300))
    if point.of == "n_eff":
        logs = 0.5 * (logs - math.log(n))
    v = axes.v(logs, n).tolist()
    S, S_low, S_high = np.exp(logs).tolist()
    return {
        "x": x,
        "u": float(axes.u(x)),
        "v": v,
        "S": S,
        "half": _number(max(S_high - S, S - S_low)),
        "of": point.name,
        "samples": e.samples,
        "warning": e.warning,
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


def _curve(axes: Axes, spec: Spec, store: Store, pack: _Packer, sampling: bool) -> dict[str, Any]:
    x, notes = axes.name, []
    here = spec.at(x, axes.marker)
    n = float(axes.n(axes.marker, spec))
    filled, sampled = places(axes, spec)
    found: dict[str, Any] = {}
    try:
        log_S = at_once(spec, x, axes.x)
        at_marker = at_once(here, x, np.array([axes.marker]))
        if log_S is None or at_marker is None:
            slow = [store.limit.get(spec.at(x, float(at))) for at in filled]
            notes += [each for each in slow if isinstance(each, str)][:1]
            limit = store.limit.get(here)
            limit = None if isinstance(limit, str) else limit
            found["limit"] = _limit(axes, spec, slow, pack)
        else:
            height = axes.v(log_S, axes.n(axes.x, spec))
            found["limit"] = {"u": pack(axes.u(axes.x)), "v": pack(height), "whole": True}
            limit = float(at_marker[0])
    except InputError as error:
        notes.append(str(error))
        found["limit"] = limit = None
    why = why_not(here)
    if why:
        notes.append(why)
    if spec.kernel.law is not Law.POSITION:
        each = [store.exact.get(spec.at(x, float(at))) for at in filled]
        notes += [e for e in each if isinstance(e, str)][:1]
        logs = [e.log_S if isinstance(e, ExactPoint) else None for e in each]
        found["exact"] = _filled(axes, spec, logs, pack)
        level = store.exact.get(here)
        level = level if isinstance(level, ExactPoint) else None
    else:  # its S is that of the row itself
        found["exact"], found["limit"] = found["limit"], None
        level = None if limit is None else ExactPoint(n * math.exp(2 * limit), limit)
    points, unsampled = _points(axes, spec, sampled if sampling else [], store)
    notes += unsampled
    if x not in dict(spec.values):
        notes.append(f"does not depend on {CONTROLS[x].symbol}")
    return found | {
        "points": points,
        "read": {
            "n": n,
            "S": None if limit is None else _number(math.exp(limit)),
            "S_rms": None if level is None else math.exp(level.log_S),
            "n_eff": None if level is None else level.n_eff,
            "sampled": next((p for p in points if p["x"] == axes.marker), None),
        },
        "notes": list(dict.fromkeys(notes)),
    }


def picture(state: State, store: Store) -> Frame:
    """Everything to be drawn of a state, with what the store holds by now, which is only read."""
    axes, pack = Axes(state), _Packer()
    found = []
    for number, (identifier, spec) in enumerate(curves(state)):
        pinned = identifier.startswith("pin ")
        found.append(
            {
                "id": identifier,
                "letter": "ABCDEFGHIJKLMNOP"[number],
                "kernel": spec.kernel.name,
                "title": spec.title(without=state.x),
                "full": spec.at(state.x, axes.marker).title(),  # what the numbers beside it are of
                "pin": number - len(state.specs()) if pinned else None,
                **_curve(axes, spec, store, pack, state.sampling),
            }
        )
    content = {
        "curves": found,
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
            "y_marks": axes.marks(),
            "decades": axes.decades,
        },
        "floor": {"u": pack(axes.u(axes.x)), "v": pack(axes.floor())},
        "length": axes.length,
    }
    return Frame(content, np.concatenate(pack.parts).tobytes())
