"""Ranges of the elementary functions over plain intervals."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsity.kernels.numeric.points import EPS

_OUT = 4 * EPS


def widened(low: Any, high: Any, by: float = _OUT) -> tuple[Any, Any]:
    """The ends, a few units in the last place further out."""
    return low - by * np.abs(low), high + by * np.abs(high)


def product(a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any]:
    """[a, b]·[c, d], not rounded outward; 0·∞ is 0."""
    ends = [_times(x, y) for x in (a, b) for y in (c, d)]
    least, most = ends[0], ends[0]
    for end in ends[1:]:
        least, most = np.minimum(least, end), np.maximum(most, end)
    return least, most


def _times(x: Any, y: Any) -> Any:
    z = x * y
    if not np.isnan(z).any():
        return z
    zero = ((x == 0) & ~np.isnan(y)) | ((y == 0) & ~np.isnan(x))
    return np.where(zero, 0.0, z)


def added(one: tuple[Any, Any], two: tuple[Any, Any]) -> tuple[Any, Any]:
    """The sum of two products, rounded outward by the rounding of both."""
    low, high = widened(one[0] + two[0], one[1] + two[1], 8 * EPS)
    sizes = [np.maximum(np.abs(least), np.abs(most)) for least, most in (one, two)]
    slack = _OUT * (sizes[0] + sizes[1])
    return low - slack, high + slack


def square(low: Any, high: Any) -> tuple[Any, Any]:
    """[low, high]², not rounded outward."""
    size, other = np.maximum(np.abs(low), np.abs(high)), np.minimum(np.abs(low), np.abs(high))
    least = np.where((low <= 0) & (high >= 0), 0.0, other)
    return least * least, size * size


def _turns(low: Any, high: Any, phase: float) -> Any:
    """Whether a whole turn plus a phase may lie between."""
    slack, turn = EPS * np.maximum(np.abs(low), np.abs(high)), 2 * np.pi
    return np.ceil((low - slack - phase) / turn) <= np.floor((high + slack - phase) / turn)


def _wave(function: Any, low: Any, high: Any, crest: float) -> tuple[Any, Any]:
    ends = function(low), function(high)
    first, last = widened(np.minimum(*ends), np.maximum(*ends), 16 * EPS)
    foot, top = _turns(low, high, crest - np.pi), _turns(low, high, crest)
    return np.where(foot, -1.0, np.maximum(first, -1.0)), np.where(top, 1.0, np.minimum(last, 1.0))


def sin_range(low: Any, high: Any) -> tuple[Any, Any]:
    """Range of the sine over [low, high]."""
    return _wave(np.sin, low, high, np.pi / 2)


def cos_range(low: Any, high: Any) -> tuple[Any, Any]:
    """Range of the cosine over [low, high]."""
    return _wave(np.cos, low, high, 0.0)
