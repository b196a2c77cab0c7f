"""What has been computed so far, for the thread that answers and the one that fills in."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from sparsity.panel.lines import ExactPoint
from sparsity.results import Estimate

T = TypeVar("T")


class Memory(Generic[T]):
    """A mapping that forgets what was used longest ago; safe between threads."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, threading.Lock()
        self._kept: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable) -> T | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: Hashable, value: T) -> None:
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._kept


class Point(NamedTuple):
    """What sampling found at one point.

    Args:
        estimate: of `of`.
        of: "n_eff" of rows, or "S".
        round: how often it has been tightened.
    """

    estimate: Estimate
    of: str
    round: int

    @property
    def name(self) -> str:
        """What is drawn of it: an S of the rows, from their n_eff, or that of the definition."""
        return "√(n_eff/n)" if self.of == "n_eff" else "S"


class Store:
    """Exact points, slow limits and samples, each under the spec at its point."""

    def __init__(self) -> None:
        self.exact: Memory[ExactPoint | str] = Memory(40_000)
        self.limit: Memory[float | str] = Memory(40_000)
        self.points: Memory[Point | str] = Memory(4_000)
        self.formulas: Memory[str] = Memory(64)
