"""The axes of a state: where values lie in the unit square, and where curves are looked at."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from sparsity.axes.controls import CONTROLS, POINTS, Control
from sparsity.panel import nodes
from sparsity.panel.lines import provisional
from sparsity.panel.spec import Spec
from sparsity.panel.state import State
from sparsity.panel.store import Store

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

    @functools.cached_property
    def along(self) -> np.ndarray:
        """Places of `x` along the horizontal axis."""
        return self.u(self.x)

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

    def moves(self, spec: Spec) -> bool:
        """Whether a curve depends on x; one that does not is known once it is at the marker."""
        return self.name in dict(spec.values)

    def sampled(self, spec: Spec) -> list[float]:
        """The values of x at which a curve is sampled."""
        if not self.moves(spec):
            return [self.marker]
        last = len(self.x) - 1
        even = ((np.arange(_SAMPLED) + 0.5) / _SAMPLED * last).round().astype(int)
        return [self.marker, *self.x[even].tolist()]

    def heights(self, spec: Spec, at: list[int], values: list[Any] | np.ndarray) -> np.ndarray:
        """Heights of a curve at `x[at]`; NaN where a value is no number."""
        known = [value if isinstance(value, float) else np.nan for value in values]
        n = self.n(self.x[at], spec)
        return self.v(known, n)

    def key(self, spec: Spec, kind: str) -> tuple[Any, ...]:
        """What the nodes of a curve go by: everything but the marker."""
        return kind, self.name, self.control.ends(self.marker), spec.at(self.name, 0.0)

    def nodes(self, spec: Spec, kind: str, store: Store) -> list[int]:
        """Where on `x` the exact law of a curve ("exact"), or a slow limit, is computed by now.

        A limit that can be sketched has its places from the sketch.
        """
        found = list(store.nodes.get(self.key(spec, kind)) or ())
        return found or (self._sketched(spec) if kind == "limit" else [])

    def _sketched(self, spec: Spec) -> list[int]:
        at = sorted(nodes.even(len(self.x)))
        values = provisional(spec, self.name, self.x[at])
        if not np.isfinite(values).any():
            return []
        return sorted([*at, *nodes.more(self.along, at, self.heights(spec, at, values))])
