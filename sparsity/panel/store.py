"""A picture's places, and what has been computed there so far.

`Axes` says where values lie in the unit square, and where curves are computed. `Store` keeps
everything by the spec at its point, not by the picture that asked for it: a slider that comes back,
a pin, and another axis through the same point all find it, in the thread that answers and in the
one that fills in.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from sparsity.panel.curve import Spec
from sparsity.panel.state import State
from sparsity.plots.axes.controls import CONTROLS, POINTS, Control
from sparsity.results import Estimate

T = TypeVar("T")


class Cache(dict[Hashable, T]):
    """A mapping that forgets what was put longest ago; one thread puts, others may read.

    Args:
        most: the most items that it holds.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def put(self, key: Hashable, value: T) -> None:
        """Keep an item, as the newest."""
        self.pop(key, None)
        self[key] = value
        if len(self) > self.most:
            del self[next(iter(self))]


class Point(NamedTuple):
    """An estimate at one point.

    Args:
        estimate: the estimate.
        of: the quantity it is of; "S" of long rows where the kernel has no rows to draw.
        round: how often it has been tightened.
    """

    estimate: Estimate
    of: str
    round: int

    def values(self, n: float) -> tuple[float, float, float]:
        """Return the value and the ends of its 95 % interval; of an S those of n_eff = n·S²."""
        # Squaring is increasing for S ≥ 0, so that the ends of the interval may be squared as well.
        numbers = (self.estimate.value, *self.estimate.ci95)
        return tuple(n * x * x for x in numbers) if self.of == "S" else numbers  # type: ignore


class Store:
    """Exact points, slow limits and samples, each under the spec at its point.

    A text in place of a value says why there is none.
    """

    # Bounded, as a notebook keeps its process for days: a larger cache forgets later, a smaller one
    # computes again what a slider comes back to. A curve has 65 points (`axes.NODES`).

    def __init__(self) -> None:
        self.exact: Cache[float | str] = Cache(40_000)
        self.limit: Cache[float | str] = Cache(40_000)
        # (kind, spec) -> the bound on the relative error of that value
        self.bounds: Cache[float] = Cache(80_000)
        self.points: Cache[Point | str] = Cache(4_000)
        self.formulas: Cache[tuple[str, str]] = Cache(64)  # a kernel's weight, and its S

    def put(self, kind: str, spec: Hashable, value: float, bound: float) -> None:
        """Keep a value of the "exact" law, or of the slower "limit", with its bound."""
        self.values(kind).put(spec, value)
        self.bounds.put((kind, spec), bound)

    def values(self, kind: str) -> Cache[float | str]:
        """Return what is known of the "exact" law, or of the slower "limit"."""
        return self.exact if kind == "exact" else self.limit


_SAMPLED_POINTS = 6  # of a curve, besides the one at the marker; each costs a sampler's time
# Nodes of a curve that is filled in point by point: six pixels from each other. They are 2^k + 1,
# so that halving all gaps of fewer leads to them.
NODES = 65
FIRST_NODES = 17  # that show its shape


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


@functools.lru_cache(maxsize=64)
def even_places(count: int) -> tuple[int, ...]:
    """Return places of nodes that lie evenly among `count`, in the order they are computed in.

    In that order the gaps are halved, again and again.
    """
    first, *rest = np.unique(np.linspace(0, count - 1, NODES).round().astype(int)).tolist()
    # k & −k is the largest power of two that divides k: the multiples of a larger one come first.
    order = sorted(range(1, len(rest) + 1), key=lambda k: -(k & -k))
    return (first, *(rest[k - 1] for k in order))
