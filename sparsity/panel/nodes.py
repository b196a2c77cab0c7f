"""Where a curve that is filled in point by point is computed: evenly at first, then where it bends.

The straight line between two neighbours is off by about h²·|v″|/8; the second difference of the
drawn heights gives v″. The interval that is off by most is halved next.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Sequence

import numpy as np

START = 17  # nodes that lie evenly
FILLED = 65  # nodes of a curve at least
MOST = 129  # of a curve that needs more to be drawn
_SEEN = 1e-3  # of the chart's height: what an eye can tell
_EVEN = 0.05  # what the width of an interval counts beside its bend: none stays wide for ever
_EDGE = 0.02  # of the height, beyond which nothing is drawn


def coarse_to_fine(count: int) -> list[int]:
    """0 … count−1, each halving of the gaps after the other."""
    by_power_of_two = sorted(range(1, count), key=lambda k: -(k & -k))
    return [0, *by_power_of_two][:count]


@functools.lru_cache(maxsize=64)
def even(count: int, nodes: int = START) -> tuple[int, ...]:
    """Places of nodes that lie evenly among `count`, in the order in which they are computed."""
    places = np.unique(np.linspace(0, count - 1, nodes).round().astype(int)).tolist()
    return tuple(places[k] for k in coarse_to_fine(len(places)))


def off(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """How far a curve may be from the line between neighbours, as far as it is on the chart.

    Args:
        u: places of the nodes, ascending, [nodes].
        v: their heights, NaN where there is none, [nodes].

    Returns:
        [nodes − 1].
    """
    h = np.diff(u)
    second = np.zeros(len(u))
    second[1:-1] = 2 * np.diff(np.diff(v) / h) / (h[1:] + h[:-1])
    second = np.abs(np.nan_to_num(second))
    outside = np.where(v > 1 + _EDGE, 1, np.where(v < -_EDGE, -1, 0))
    seen = (outside[1:] != outside[:-1]) | (outside[1:] == 0)
    return seen * h**2 / 8 * np.maximum(second[1:], second[:-1])


def more(u: np.ndarray, at: Sequence[int], v: np.ndarray, count: int = MOST) -> list[int]:
    """Where to compute a curve next.

    Args:
        u: every place on offer, ascending, [places].
        at: where it has been computed, indices into `u`, ascending.
        v: the heights there, NaN where there is none, [at].
        count: how many places at most.

    Returns:
        Indices into `u`, the most needed first; none when the curve can be drawn.
    """
    have = set(at)
    if missing := [k for k in even(len(u)) if k not in have]:
        return missing[:count]
    places = np.asarray(at)
    error, wide = off(u[places], v), np.diff(places) > 1
    fine = not wide.any() or np.max(error[wide]) < _SEEN or not np.isfinite(v).all()
    if len(at) >= FILLED and (fine or len(at) >= MOST):
        return []
    room = (FILLED if len(at) < FILLED else MOST) - len(at)
    gaps = zip(error + _EVEN * np.diff(u[places]) ** 2, at, at[1:], strict=False)
    heap = [(-score, low, high) for score, low, high in gaps if high - low > 1]
    heapq.heapify(heap)
    found: list[int] = []
    while heap and len(found) < min(count, room):
        score, low, high = heapq.heappop(heap)
        middle = (low + high) // 2
        found.append(middle)
        for a, b in ((low, middle), (middle, high)):  # a quarter of it, as far as is known
            if b - a > 1:
                heapq.heappush(heap, (score / 4, a, b))
    return found
