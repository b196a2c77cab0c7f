"""Where to sample: a table near |f|^p × (base law), found from the definition on the host.

The table decides only how efficient the sampling is, never its mean: draws are weighted by the
exact ratio of the base law to the law they were drawn from, and what the table says of the integral
enters as a control variate whose mean is known.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sparsity.errors import TooFine
from sparsity.kernels import ALL, Kernel, Law
from sparsity.kernels.lowering import numpy_log_abs
from sparsity.kernels.numeric.definition import definition
from sparsity.kernels.numeric.periods import period
from sparsity.montecarlo.supports import DEPTH, log_weight, steps, supports
from sparsity.theory.moments import panels
from sparsity.theory.panels import Axis
from sparsity.theory.score_laws import Gaussian

CELLS, CELLS_UNKNOWN = 256, 2048  # of a built-in kernel, and of an f that may be anything
_WATCH = 0.25  # share of the draws that goes where the table misses the target
_EVEN = 0.1  # share of those spread over all cells alike, so that no cell's weights are unbounded
_INSIDE = 1e-6  # of a cell's width: where its end heights are read, on its side of a jump
_RESOLVED = frozenset(kernel.weight for kernel in ALL)  # smooth between their kinks, on scale γ
_STEPS = 8  # first looks at each panel
_MOST_PERIODS = 30  # in a standard deviation, beyond which the table is not to resolve them
_SLIVER = 1e-12  # relative width of a gap between panels: a jump of f
_HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)


class Table(NamedTuple):
    """Two piecewise linear laws on the same cells, near |f|φ and |f|²φ, and one to draw from.

    The latter is their even mixture, and for a quarter of it a law by how far they miss the target:
    what is left of a draw after its control variate is then small everywhere.

    Args:
        edges: cell bounds, [CELLS + 1]; for positions, whole distances n − j.
        cumulative: probability below each edge under the law to draw from, [CELLS + 1].
        drawn: its density at the left and right end of each cell, [2, CELLS].
        heights: densities of the two laws there, [2, 2, CELLS].
        log_mass: about log E|a| and log E a², the scale of the weighted draws, [2].
    """

    edges: np.ndarray
    cumulative: np.ndarray
    drawn: np.ndarray
    heights: np.ndarray
    log_mass: np.ndarray

    def astype(self, dtype: Any) -> Table:
        """The table in the sampler's precision."""
        if self.edges.dtype == dtype:
            return self
        return Table(*(np.asarray(part, dtype) for part in self))


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
        found = panels(axis, (1.0, 2.0))
    except TooFine:
        return np.empty(0)
    found = found.sorted(axis.t)
    ends = axis.t[found.a] + np.stack([found.low, found.high])
    with np.errstate(divide="ignore"):
        log_width = np.log(np.diff(ends, axis=0))
    log_target = _score_targets(kernel, beta, gamma, ends.mean(axis=0)) + log_width
    heavy = (log_target > log_target.max(axis=1, keepdims=True) - DEPTH).any(axis=0)
    ends = np.unique(ends[:, heavy])
    return ends if len(ends) <= CELLS_UNKNOWN // 4 else np.empty(0)


def resolved(kernel: Kernel, parameters: dict[str, float]) -> bool:
    """Whether the table is known to see all of the kernel: nothing hides between its looks."""
    if kernel.law is Law.POSITION or kernel.weight in _RESOLVED:
        return kernel.weight in _RESOLVED
    return len(_structure(kernel, parameters["beta"], parameters["gamma"])) > 0


def _in_cells(edges: np.ndarray) -> np.ndarray:
    """Where targets are looked at: left end, middle and right end of each cell, [..., 3, CELLS]."""
    width = np.diff(edges)[..., None, :]
    return edges[..., None, :-1] + width * np.array([[_INSIDE], [0.5], [1 - _INSIDE]])


def _miss(heights: np.ndarray, width: np.ndarray) -> np.ndarray:
    """What the chords of two targets, [2, ..., 3, CELLS], leave out of each cell, about."""
    left, middle, right = np.moveaxis(heights, -2, 0)
    return width * np.abs(middle - (left + right) / 2).sum(axis=0)


def _score_targets(kernel: Kernel, beta: Any, gamma: Any, t: np.ndarray) -> np.ndarray:
    """Log |f|^p φ for both powers, [2, ...]."""
    log_f = log_weight(kernel, beta, gamma, t)
    return np.stack([log_f, 2 * log_f]) - (t * t / 2 + _HALF_LOG_2PI)


def _first_edges(kernel: Kernel, beta: float, gamma: float) -> tuple[np.ndarray, list[float]]:
    """Cells to begin with for an f that may be anything, and those of their bounds that stay."""
    ends = _structure(kernel, beta, gamma)
    if not len(ends):
        return _over(supports(kernel, np.array([beta]), np.array([gamma])), CELLS_UNKNOWN)[0], []
    parts = np.arange(_STEPS) / _STEPS
    edges = np.append((ends[:-1, None] + np.diff(ends)[:, None] * parts).ravel(), ends[-1])
    return edges, ends[1:-1][np.diff(ends)[1:] < _SLIVER * np.abs(ends[1:-1])].tolist()


def _over(ranges: np.ndarray, cells: int) -> np.ndarray:
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


def _score_edges(kernel: Kernel, beta: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """Cells over both supports, finer where a chord misses a target; a kink is a cell's bound.

    Args:
        kernel: of law SCORE; one that is not built in takes one law at a time.
        beta: of the laws.
        gamma: likewise.
    """
    cells = CELLS if kernel.weight in _RESOLVED else CELLS_UNKNOWN
    if cells == CELLS:
        edges, jumps = _over(supports(kernel, beta, gamma), cells), []
    else:
        first, jumps = _first_edges(kernel, float(beta[0]), float(gamma[0]))
        edges = first[None]
    kinks = [(root - beta) / gamma for root in definition(kernel).roots]
    fixed = np.stack([*kinks, *(np.full(len(beta), jump) for jump in jumps)], axis=1)
    edges = _bounded(edges, fixed)
    log_target = _score_targets(kernel, beta[:, None, None], gamma[:, None, None], _in_cells(edges))
    heights = np.exp(log_target - log_target.max(axis=(2, 3), keepdims=True))
    miss = np.cbrt(_miss(heights, np.diff(edges)))
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


def _position_edges(length: float) -> np.ndarray:
    """Whole distances 0 … n, one by one at first, then in geometric steps; padded to a fixed size.

    Padding repeats the last edge: cells of width zero, which have probability zero.
    """
    fine = np.arange(min(length, CELLS // 2) + 1)
    coarse = np.floor(np.geomspace(max(fine[-1], 1), length, CELLS - len(fine) + 1))
    edges = np.unique(np.concatenate([fine, coarse]))
    edges[-1] = length
    return np.concatenate([edges, np.full(CELLS + 1 - len(edges), length)])


def build(kernel: Kernel, parameters: dict[str, float]) -> Table:
    """The table near |a|^p × (base law), p = 1 and 2, for a score or a position kernel.

    Args:
        kernel: of law SCORE or POSITION.
        parameters: the kernel's, as plain floats.

    Raises:
        InputError: the weight vanishes or overflows wherever it was looked at.
    """
    return _built(kernel, tuple(parameters.items()))


@functools.lru_cache(maxsize=256)
def _built(kernel: Kernel, parameters: tuple[tuple[str, float], ...]) -> Table:
    return build_each(kernel, [dict(parameters)])[0]


def build_each(kernel: Kernel, parameters: Sequence[dict[str, float]]) -> list[Table]:
    """The tables of several parameters of a kernel.

    Args and raises as `build`, of each.
    """
    if kernel.law is Law.SCORE:
        beta, gamma = (np.array([p[name] for p in parameters]) for name in ("beta", "gamma"))
        step = len(beta) if kernel.weight in _RESOLVED else 1
        tables = []
        for start in range(0, len(beta), step):
            b, c = beta[start : start + step], gamma[start : start + step]
            edges = _score_edges(kernel, b, c)
            places = _in_cells(edges)
            log_target = _score_targets(kernel, b[:, None, None], c[:, None, None], places)
            tables += _tables(edges, log_target, flat=False)
        return tables
    return [_of_positions(kernel, each) for each in parameters]


def _of_positions(kernel: Kernel, parameters: dict[str, float]) -> Table:
    rest = [parameters[p.name] for p in kernel.parameters]
    edges = _position_edges(parameters["length"])
    log_f = numpy_log_abs(kernel)(np.floor(_in_cells(edges)), *rest)
    log_target = np.stack([log_f, 2 * log_f]) - np.log(parameters["length"])
    # A distance is a whole number, drawn uniformly in a cell.
    return _tables(edges[None], log_target[:, None], flat=True)[0]


def _tables(edges: np.ndarray, log_target: np.ndarray, *, flat: bool) -> list[Table]:
    """Tables on edges, [laws, CELLS + 1], from looks at the targets, [2, laws, 3, CELLS]."""
    width = np.diff(edges)
    peak = log_target.max(axis=(2, 3))
    heights = np.exp(log_target - peak[:, :, None, None])
    chords = heights[:, :, ::2]
    if flat:
        chords = np.repeat(chords.mean(axis=2, keepdims=True), 2, axis=2)
    mass = (chords.mean(axis=2) * width).sum(axis=2)
    heights, chords = (x / mass[:, :, None, None] for x in (heights, chords))
    wide = width > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        even = np.where(wide, 1 / (wide.sum(axis=1, keepdims=True) * width), 0)
        miss = _miss(heights, width)
        total = miss.sum(axis=1, keepdims=True)
        missed = np.where(total > 0, np.where(wide, miss / (total * width), 0), even)
    spread = _WATCH * ((1 - _EVEN) * missed + _EVEN * even)
    drawn = (1 - _WATCH) * chords.mean(axis=0) + spread[:, None]
    cumulative = np.cumsum(width * drawn.mean(axis=1), axis=1)
    cumulative = np.concatenate([np.zeros((len(edges), 1)), cumulative], axis=1)
    total = cumulative[:, -1:]  # one, but for rounding
    cumulative, drawn = cumulative / total, drawn / total[:, :, None]
    log_mass = peak + np.log(mass)
    return [
        Table(edges[i], cumulative[i], drawn[i], chords[:, i], log_mass[:, i])
        for i in range(len(edges))
    ]


def tilt(kernel: Kernel, beta: float, gamma: float) -> float:
    """θ of the shift N(μ + θσ²q, σ²I) that serves both moments of full keys: mean t over γ."""
    table = build(kernel, {"beta": beta, "gamma": gamma})
    middle, width = (table.edges[:-1] + table.edges[1:]) / 2, np.diff(table.edges)
    return float((table.heights.mean(axis=(0, 1)) @ (middle * width)) / gamma)
