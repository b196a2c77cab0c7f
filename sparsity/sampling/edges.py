"""Cells of a law to draw from: finer where the weight bends, with an edge at each of its kinks."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from sparsity.errors import TooFine
from sparsity.kernels import ALL, Kernel, Law
from sparsity.kernels.numeric.definition import definition, period
from sparsity.limit.moments import panels_with_mass
from sparsity.limit.panels import Axis
from sparsity.limit.score_laws import Gaussian
from sparsity.sampling.supports import DEPTH, log_weight, steps, supports

CELLS, CELLS_UNKNOWN = 256, 2048  # of a built-in kernel, and of an f that may be anything
_INSIDE = 1e-6  # of a cell's width: where its end heights are read, on its side of a jump
RESOLVED = frozenset(kernel.weight for kernel in ALL)  # smooth between their kinks, on scale γ
_STEPS = 8  # first looks at each panel
_MOST_PERIODS = 30  # in a standard deviation, beyond which the table is not to resolve them
_SLIVER = 1e-12  # relative width of a gap between panels: a jump of f
_HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)


@functools.lru_cache(maxsize=256)
def _structure(kernel: Kernel, beta: float, gamma: float) -> np.ndarray:
    """Ends of the panels, in t, on which |f| and f² are smooth and have mass; empty if too many.

    They are found from bounds on f over whole segments, so that no feature hides between them.
    """
    axis = Axis(definition(kernel), Gaussian(beta, gamma))
    own = period(kernel.weight)
    if own is not None and gamma > _MOST_PERIODS * own:
        return np.empty(0)
    try:
        found = panels_with_mass(axis, (1.0, 2.0))
    except TooFine:
        return np.empty(0)
    found = found.sorted(axis.t)
    ends = axis.t[found.a] + np.stack([found.low, found.high])
    with np.errstate(divide="ignore"):
        log_width = np.log(np.diff(ends, axis=0))
    log_target = targets(kernel, beta, gamma, ends.mean(axis=0)) + log_width
    heavy = (log_target > log_target.max(axis=1, keepdims=True) - DEPTH).any(axis=0)
    ends = np.unique(ends[:, heavy])
    return ends if len(ends) <= CELLS_UNKNOWN // 4 else np.empty(0)


def resolved(kernel: Kernel, parameters: dict[str, float]) -> bool:
    """Whether the table is known to see all of the kernel: nothing hides between its looks."""
    if kernel.law is Law.POSITION or kernel.weight in RESOLVED:
        return kernel.weight in RESOLVED
    return len(_structure(kernel, parameters["beta"], parameters["gamma"])) > 0


def probe_points(edges: np.ndarray) -> np.ndarray:
    """Where targets are looked at: left end, middle and right end of each cell, [..., 3, CELLS]."""
    width = np.diff(edges)[..., None, :]
    return edges[..., None, :-1] + width * np.array([[_INSIDE], [0.5], [1 - _INSIDE]])


def chord_error(heights: np.ndarray, width: np.ndarray) -> np.ndarray:
    """What the chords of two targets, [2, ..., 3, CELLS], leave out of each cell, about."""
    left, middle, right = np.moveaxis(heights, -2, 0)
    return width * np.abs(middle - (left + right) / 2).sum(axis=0)


def targets(kernel: Kernel, beta: Any, gamma: Any, t: np.ndarray) -> np.ndarray:
    """Log |f|^p φ for both powers, [2, ...]."""
    log_f = log_weight(kernel, beta, gamma, t)
    return np.stack([log_f, 2 * log_f]) - (t * t / 2 + _HALF_LOG_2PI)


def _first_edges(kernel: Kernel, beta: float, gamma: float) -> tuple[np.ndarray, list[float]]:
    """Cells to begin with for an f that may be anything, and those of their bounds that stay."""
    ends = _structure(kernel, beta, gamma)
    if not len(ends):
        return _uniform_edges(supports(kernel, np.array([beta]), np.array([gamma])), CELLS_UNKNOWN)[
            0
        ], []
    parts = np.arange(_STEPS) / _STEPS
    edges = np.append((ends[:-1, None] + np.diff(ends)[:, None] * parts).ravel(), ends[-1])
    return edges, ends[1:-1][np.diff(ends)[1:] < _SLIVER * np.abs(ends[1:-1])].tolist()


def _uniform_edges(ranges: np.ndarray, cells: int) -> np.ndarray:
    """Edges over the supports of both powers, [laws, cells + 1]."""
    (low1, high1), (low2, high2) = ranges
    parts = [steps(low1, high1, cells // 2 + 1)]
    parts.append(steps(low2, high2, cells // 2))
    return np.sort(np.concatenate(parts, axis=1), axis=1, kind="stable")  # merges the two


def _bounded(edges: np.ndarray, fixed: np.ndarray) -> np.ndarray:
    """Edges, [laws, cells + 1], the nearest of them put on each fixed place, [laws, places]."""
    inside = (fixed > edges[:, :1]) & (fixed < edges[:, -1:])
    for place, here in zip(fixed.T, inside.T, strict=True):
        rows = np.flatnonzero(here)
        nearest = np.abs(edges[rows] - place[rows, None]).argmin(axis=1)
        edges[rows, nearest] = place[rows]
    return edges


def score_edges(kernel: Kernel, beta: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """Cells over both supports, finer where a chord misses a target; a kink is a cell's bound.

    Args:
        kernel: of law SCORE; one that is not built in takes one law at a time.
        beta: of the laws.
        gamma: likewise.
    """
    cells = CELLS if kernel.weight in RESOLVED else CELLS_UNKNOWN
    if cells == CELLS:
        edges, jumps = _uniform_edges(supports(kernel, beta, gamma), cells), []
    else:
        first, jumps = _first_edges(kernel, float(beta[0]), float(gamma[0]))
        edges = first[None]
    kinks = [(root - beta) / gamma for root in definition(kernel).roots]
    fixed = np.stack([*kinks, *(np.full(len(beta), jump) for jump in jumps)], axis=1)
    edges = _bounded(edges, fixed)
    log_target = targets(kernel, beta[:, None, None], gamma[:, None, None], probe_points(edges))
    heights = np.exp(log_target - log_target.max(axis=(2, 3), keepdims=True))
    miss = np.cbrt(chord_error(heights, np.diff(edges)))
    share = np.cumsum(miss.mean(axis=1, keepdims=True) + miss, axis=1)
    share = np.concatenate([np.zeros((len(edges), 1)), share], axis=1)
    new = steps(edges[:, 0], edges[:, -1], cells + 1)
    even = steps(share[:, 0], share[:, -1], cells + 1)
    for i, some in enumerate(np.any(miss, axis=1)):
        if some:
            new[i] = np.interp(even[i], share[i], edges[i])
        elif edges.shape == new.shape:
            new[i] = edges[i]
    return _bounded(new, fixed)


def position_edges(length: float) -> np.ndarray:
    """Whole distances 0 … n, one by one at first, then in geometric steps; padded to a fixed size.

    Padding repeats the last edge: cells of width zero, which have probability zero.
    """
    fine = np.arange(min(length, CELLS // 2) + 1)
    coarse = np.floor(np.geomspace(max(fine[-1], 1), length, CELLS - len(fine) + 1))
    edges = np.unique(np.concatenate([fine, coarse]))
    edges[-1] = length
    return np.concatenate([edges, np.full(CELLS + 1 - len(edges), length)])
