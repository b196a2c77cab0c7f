"""What has been computed so far, for the thread that answers and the one that fills in.

Everything is kept by the spec at its point, not by the picture that asked for it: a slider that
comes back, a pin, and another axis through the same point all find it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from sparsity.results import Estimate

T = TypeVar("T")


class LruCache(Generic[T]):
    """A mapping that forgets what was used longest ago; safe between threads.

    Args:
        most: the most items that it holds.
    """

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._items: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable) -> T | None:
        with self._lock:
            if key in self._items:
                self._items.move_to_end(key)
            return self._items.get(key)

    def put(self, key: Hashable, value: T) -> None:
        with self._lock:
            self._items[key] = value
            self._items.move_to_end(key)
            while len(self._items) > self._most:
                self._items.popitem(last=False)

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._items


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
        found = (self.estimate.value, *self.estimate.ci95)
        return tuple(n * x * x for x in found) if self.of == "S" else found  # type: ignore


class Store:
    """Exact points, slow limits and samples, each under the spec at its point.

    A text in place of a value says why there is none.
    """

    # Bounded, as a notebook keeps its process for days: a larger cache forgets later, a smaller one
    # computes again what a slider comes back to. A curve has 65 points (`axes.NODES`).

    def __init__(self) -> None:
        self.exact: LruCache[float | str] = LruCache(40_000)
        self.limit: LruCache[float | str] = LruCache(40_000)
        # (kind, spec) -> the bound on the relative error of that value
        self.bounds: LruCache[float] = LruCache(80_000)
        self.points: LruCache[Point | str] = LruCache(4_000)
        self.formulas: LruCache[tuple[str, str]] = LruCache(64)  # a kernel's weight, and its S
        self.law_at_work = threading.Lock()  # see `background.run_law`

    def put(self, kind: str, spec: Hashable, value: float, bound: float) -> None:
        """Keep a value of the "exact" law, or of the slower "limit", with its bound."""
        self.values(kind).put(spec, value)
        self.bounds.put((kind, spec), bound)

    def values(self, kind: str) -> LruCache[float | str]:
        """Return what is known of the "exact" law, or of the slower "limit"."""
        return self.exact if kind == "exact" else self.limit
