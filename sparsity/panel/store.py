"""What has been computed so far, for the thread that answers and the one that fills in."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from sparsity.results import Estimate

T = TypeVar("T")


class Memory(Generic[T]):
    """A mapping that forgets what was used longest ago; safe between threads."""

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
    """What sampling found at one point.

    Args:
        estimate: of `of`.
        of: the quantity; "S" of long rows where the kernel has no rows to draw.
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


# A `Memory` is a bound on a process that a notebook keeps for days: a larger one forgets later, a
# smaller one computes again what a slider comes back to.
class Store:
    """Exact points, slow limits and samples, each under the spec at its point."""

    def __init__(self) -> None:
        self.exact: Memory[float | str] = Memory(40_000)
        self.limit: Memory[float | str] = Memory(40_000)
        self.nodes: Memory[tuple[int, ...]] = Memory(400)  # see `Axes.nodes`
        self.points: Memory[Point | str] = Memory(4_000)
        self.formulas: Memory[tuple[str, str]] = Memory(64)  # a kernel's weight, and its S
        self.law_at_work = threading.Lock()  # see `background.run_law`
