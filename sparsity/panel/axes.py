"""The axes of a state: where values lie in the unit square, and where curves are computed.

A curve that is filled in point by point is computed evenly at first, then where it bends. The
straight line between two neighbours is off by about h²·|v″|/8; the second difference of the drawn
heights gives v″. The interval that is off by most is halved next. Everything is measured in heights
and widths of the chart, (u, v) in [0, 1]²: what no eye can tell is not computed.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np

from sparsity.axes.controls import CONTROLS, POINTS, Control
from sparsity.panel.curve import Spec, previewed_limit
from sparsity.panel.state import State
from sparsity.panel.store import Store

_SAMPLED_POINTS = 6  # of a curve, besides the one at the marker; each costs a sampler's time
# Nodes of a curve: 17 show its shape soon, 65 draw most curves, and one that still bends too much
# gets up to 129. They are 2^k + 1, so that halving all gaps of one count leads to the next.
FIRST_NODES = 17  # that lie evenly
LEAST_NODES = 65  # of a curve that is filled in
MOST_NODES = 129  # of a curve that needs more to be drawn
_LEAST_ERROR_SEEN = 1e-3  # of the chart's height: what an eye can tell
_WEIGHT_OF_WIDTH = 0.05  # of an interval's width beside its bend: so that none stays wide for ever
_MARGIN = 0.02  # of the height, beyond which nothing is drawn


class Axes:
    """Both axes of a state: where a value of x, or of the quantity, lies in the unit square."""

    def __init__(self, state: State) -> None:
        self.control: Control = CONTROLS[state.x]
        self.name, self.plot, self.marker = state.x, state.plot, state.value(state.x)
        self.length = state.value("length")
        self.x = self.control.spread(self.marker, POINTS)
        # Two heights of the axis, for ordinary and for very long rows, rather than one that follows
        # n: it would move under the curves while the slider does.
        top = float(self.x[-1]) if state.x == "length" else self.length
        self.scale = self.plot.scale(6 if top <= 1e6 else 12)  # decades of n

    @functools.cached_property
    def along(self) -> np.ndarray:
        """The places of `x` along the horizontal axis."""
        return self.u(self.x)

    def u(self, x: Any) -> np.ndarray:
        """Return the places of values along the horizontal axis."""
        return self.control.place(np.asarray(x, dtype=np.float64), self.marker)

    def n(self, x: Any, spec: Spec | None = None) -> Any:
        """Return the row length at x, of a curve or else of the panel."""
        if self.name == "length":
            return x
        return self.length if spec is None else dict(spec.values).get("length", self.length)

    def v(self, value: Any, n: Any) -> np.ndarray:
        """Return the height of a value of the quantity in rows of n."""
        return self.scale.place(self.plot.shown(np.asarray(value, dtype=np.float64), n))

    def marks(self) -> list[tuple[float, str]]:
        """Return the ticks of the vertical axis as (height, label)."""
        return [(float(self.scale.place(value)), label) for value, label in self.scale.ticks]

    def floor(self) -> np.ndarray | None:
        """Return the heights of rows with a single weight; None where the plot has no such line."""
        if self.plot.one is None:
            return None
        n = np.broadcast_to(self.n(self.x), self.x.shape)
        return self.v(np.full(n.shape, self.plot.one), n)

    def moves(self, spec: Spec) -> bool:
        """Tell whether a curve depends on x."""
        return self.name in dict(spec.values)

    def sampled(self, spec: Spec) -> list[float]:
        """Return the values of x at which a curve is sampled."""
        if not self.moves(spec):  # a level line: known once it is known at the marker
            return [self.marker]
        last = len(self.x) - 1
        even = ((np.arange(_SAMPLED_POINTS) + 0.5) / _SAMPLED_POINTS * last).round().astype(int)
        return [self.marker, *self.x[even].tolist()]

    def heights(self, spec: Spec, at: list[int], values: list[Any] | np.ndarray) -> np.ndarray:
        """Return the heights of a curve at `x[at]`; NaN where a value is no number."""
        known = [value if isinstance(value, float) else np.nan for value in values]
        n = self.n(self.x[at], spec)
        return self.v(known, n)

    def key(self, spec: Spec, kind: str) -> tuple[Any, ...]:
        """Return what the nodes of a curve are kept under."""
        # A spec has the marker's x, which moves with a slider and is no part of the curve: here it
        # is 0. The ends of the axis are part of it, as nodes are numbered between them.
        return kind, self.name, self.control.ends(self.marker), spec.at(self.name, 0.0)

    def nodes(self, spec: Spec, kind: str, store: Store) -> list[int]:
        """Return where on `x` the "exact" law of a curve, or a slow "limit", is computed by now.

        Args:
            spec: the curve.
            kind: "exact" or "limit".
            store: what is known.
        """
        # A limit that can be previewed has all its places from the preview, which costs little: no
        # point is spent on finding out where the curve bends.
        found = list(store.nodes.get(self.key(spec, kind)) or ())
        if found or kind != "limit":
            return found
        at = sorted(even_places(len(self.x)))
        values = previewed_limit(spec, self.name, self.x[at])
        if not np.isfinite(values).any():
            return []
        return sorted([*at, *next_places(self.along, at, self.heights(spec, at, values))])


def coarse_to_fine(count: int) -> list[int]:
    """Return 0 … count−1 in the order in which the gaps are halved, again and again."""
    # k & −k is the largest power of two that divides k: the multiples of a larger one come first.
    by_power_of_two = sorted(range(1, count), key=lambda k: -(k & -k))
    return [0, *by_power_of_two][:count]


@functools.lru_cache(maxsize=64)
def even_places(count: int, nodes: int = FIRST_NODES) -> tuple[int, ...]:
    """Return places of nodes that lie evenly among `count`, in the order they are computed in."""
    places = np.unique(np.linspace(0, count - 1, nodes).round().astype(int)).tolist()
    return tuple(places[k] for k in coarse_to_fine(len(places)))


def _line_errors(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return how far a curve may be from the line between neighbours, where it is on the chart.

    Args:
        u: the places of the nodes, ascending, [nodes].
        v: the heights there, NaN where there is none, [nodes].

    Returns:
        Errors as shares of the chart's height, [nodes − 1].
    """
    # v″ by divided differences, as nodes do not lie evenly; of an interval the larger one of its
    # two ends. An interval whose ends are beyond the same edge is not drawn, and has no error.
    h = np.diff(u)
    second = np.zeros(len(u))
    second[1:-1] = 2 * np.diff(np.diff(v) / h) / (h[1:] + h[:-1])
    second = np.abs(np.nan_to_num(second))
    outside = np.where(v > 1 + _MARGIN, 1, np.where(v < -_MARGIN, -1, 0))
    seen = (outside[1:] != outside[:-1]) | (outside[1:] == 0)
    return seen * h**2 / 8 * np.maximum(second[1:], second[:-1])


def next_places(
    u: np.ndarray, at: Sequence[int], v: np.ndarray, count: int = MOST_NODES
) -> list[int]:
    """Return where to compute a curve next.

    Args:
        u: every place on offer, ascending, [places].
        at: indices into `u` of the places that have been computed, ascending.
        v: the heights there, NaN where there is none, [at].
        count: the most places to return.

    Returns:
        Indices into `u`, the most needed first; none when the curve can be drawn.
    """
    # First the even nodes, then up to LEAST_NODES wherever the curve bends most; beyond these only
    # a curve that is seen to be off, and nowhere undefined: at a jump halving would never end.
    have = set(at)
    if missing := [k for k in even_places(len(u)) if k not in have]:
        return missing[:count]
    places = np.asarray(at)
    error, wide = _line_errors(u[places], v), np.diff(places) > 1
    fine = not wide.any() or np.max(error[wide]) < _LEAST_ERROR_SEEN or not np.isfinite(v).all()
    if len(at) >= LEAST_NODES and (fine or len(at) >= MOST_NODES):
        return []
    room = (LEAST_NODES if len(at) < LEAST_NODES else MOST_NODES) - len(at)
    gaps = zip(error + _WEIGHT_OF_WIDTH * np.diff(u[places]) ** 2, at, at[1:], strict=False)
    heap = [(-score, low, high) for score, low, high in gaps if high - low > 1]
    heapq.heapify(heap)
    found: list[int] = []
    while heap and len(found) < min(count, room):
        score, low, high = heapq.heappop(heap)
        middle = (low + high) // 2
        found.append(middle)
        # The error goes with h²: each half has a quarter of it, as far as is known before the value
        # in the middle is.
        for a, b in ((low, middle), (middle, high)):
            if b - a > 1:
                heapq.heappush(heap, (score / 4, a, b))
    return found
