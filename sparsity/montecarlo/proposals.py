"""Where to sample: a table near |f|^p × (base law), found from the definition on the host.

The table decides only how efficient the sampling is, never its mean: draws are weighted by the
exact ratio of the base law to the law they were drawn from, and what the table says of the integral
enters as a control variate whose mean is known.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from sparsity.errors import InputError, TooFine
from sparsity.kernels import ALL, Kernel, Law
from sparsity.kernels.lowering import numpy_log_abs, numpy_weight
from sparsity.kernels.numeric.definition import definition
from sparsity.kernels.numeric.periods import period
from sparsity.theory.moments import panels
from sparsity.theory.panels import Axis
from sparsity.theory.score_laws import Gaussian

CELLS, CELLS_UNKNOWN = 256, 2048  # of a built-in kernel, and of an f that may be anything
POWERS = np.array([1.0, 2.0])
_WATCH = 0.25  # share of the draws that goes where the table misses the target
_EVEN = 0.1  # share of those spread over all cells alike, so that no cell's weights are unbounded
DEPTH = 40.0  # log-depth below the peak that the table covers
_INSIDE = 1e-6  # of a cell's width: where its end heights are read, on its side of a jump
_POINTS = 256  # of a look at the target, at least
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
        return Table(*(np.asarray(part, dtype) for part in self))


@functools.lru_cache(maxsize=256)
def _looks(reach: float) -> np.ndarray:
    """±geometric steps from 1e-3 to `reach`, and 0."""
    half = np.geomspace(1e-3, reach, _POINTS)
    return np.concatenate([-half[::-1], [0.0], half])


def _log_weight(kernel: Kernel, beta: float, gamma: float, t: np.ndarray) -> np.ndarray:
    """log|f(β+γt)|; −inf where f vanishes or is no number, +inf where it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        value = numpy_log_abs(kernel)(beta + gamma * t)
    return np.where(np.isnan(value), -np.inf, value)


def _with_lost_peaks(
    kernel: Kernel, power: float, beta: float, gamma: float, grid: np.ndarray, log_f: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The looks, and closer ones about each peak that may have fallen between them."""
    with np.errstate(over="ignore", invalid="ignore"):
        log_target = power * log_f - grid * grid / 2
    inner = log_target[1:-1]
    peaks = 1 + np.flatnonzero((inner > log_target[:-2]) & (inner >= log_target[2:]))
    lost = peaks[log_target[peaks] < log_target.max() - DEPTH / 2]
    if not len(lost):
        return grid, log_f
    steps = np.linspace(0, 1, 35)[1:-1]
    closer = (grid[lost - 1] + (grid[lost + 1] - grid[lost - 1]) * steps[:, None]).ravel()
    grid = np.concatenate([grid, closer])
    log_f = np.concatenate([log_f, _log_weight(kernel, beta, gamma, closer)])
    order = np.argsort(grid)
    return grid[order], log_f[order]


def _kinks(kernel: Kernel, beta: float, gamma: float) -> np.ndarray:
    return (np.array(definition(kernel).roots) - beta) / gamma


@functools.lru_cache(maxsize=256)
def _supports(kernel: Kernel, beta: float, gamma: float) -> tuple[tuple[float, float], ...]:
    """For each power, a range of t with all but about e^−40 of |f|^p φ, by zooming on the peak."""
    if not np.isfinite(beta / gamma):
        raise InputError("beta", beta, f"is beyond float64 in units of gamma = {gamma:g}")
    reach = 60.0 + 2.0 ** np.ceil(np.log2(6 * max(gamma, abs(beta / gamma), 1.0)))
    looks = _looks(float(reach))
    kinked = _kinks(kernel, beta, gamma)
    if len(kinked):
        looks = np.sort(np.concatenate([looks, *(kink + 1e-2 * looks for kink in kinked)]))
    first = _log_weight(kernel, beta, gamma, looks)
    real = kernel.weight.is_real  # at every real score, by SymPy's assumptions
    found = []
    for power in POWERS:
        grid, log_f = _with_lost_peaks(kernel, power, beta, gamma, looks, first)
        for zoom in range(12):
            with np.errstate(over="ignore", invalid="ignore"):
                log_target = power * log_f - grid * grid / 2
            infinite = np.flatnonzero(log_target == np.inf)
            log_target[infinite] = -np.inf
            peak = log_target.max()
            if not np.isfinite(peak):
                fix = f"vanishes or overflows wherever it was looked at, near score {beta:g}"
                raise InputError("weight", kernel.weight, fix)
            inside = np.flatnonzero(log_target >= peak - DEPTH)
            beside = infinite[(infinite >= inside[0] - 1) & (infinite <= inside[-1] + 1)]
            if len(beside):  # farther out keys do not fall
                at = beta + gamma * grid[beside[0]]
                raise InputError("weight", kernel.weight, f"is infinite at score {at:g}")
            if zoom == 0 and (inside[0] == 0 or inside[-1] == len(grid) - 1):
                fix = f"E|a|^{power:g} is infinite, or lies beyond {reach:.3g} standard deviations"
                raise InputError("weight", kernel.weight, fix)
            if not real and np.isnan(numpy_weight(kernel)(beta + gamma * grid[inside])).any():
                fix = "is not a real number at some score where keys fall"
                raise InputError("weight", kernel.weight, fix)
            low = grid[max(inside[0] - 1, 0)]
            high = grid[min(inside[-1] + 1, len(grid) - 1)]
            if len(inside) > _POINTS // 4 and zoom:
                break
            grid = np.linspace(low, high, _POINTS)
            log_f = _log_weight(kernel, beta, gamma, grid)
        found.append((float(low), float(high)))
    return tuple(found)


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
    """Where a target is looked at: left end, middle and right end of each cell, [3, CELLS]."""
    width = np.diff(edges)
    return edges[:-1] + width * np.array([[_INSIDE], [0.5], [1 - _INSIDE]])


def _miss(heights: np.ndarray, width: np.ndarray) -> np.ndarray:
    """What the chords of two targets, [2, 3, CELLS], leave out of each cell, about."""
    left, middle, right = heights.transpose(1, 0, 2)
    return width * np.abs(middle - (left + right) / 2).sum(axis=0)


def _score_targets(kernel: Kernel, beta: float, gamma: float, t: np.ndarray) -> np.ndarray:
    """Log |f|^p φ for both powers."""
    log_f = _log_weight(kernel, beta, gamma, t)
    return np.stack([log_f, 2 * log_f]) - (t * t / 2 + _HALF_LOG_2PI)


def _score_edges(kernel: Kernel, beta: float, gamma: float) -> np.ndarray:
    """Cells over both supports, finer where a chord misses a target; a kink is a cell's bound."""
    known = kernel.weight in _RESOLVED
    cells = CELLS if known else CELLS_UNKNOWN
    ends = np.empty(0) if known else _structure(kernel, beta, gamma)
    if len(ends):
        steps = np.arange(_STEPS) / _STEPS
        edges = np.append((ends[:-1, None] + np.diff(ends)[:, None] * steps).ravel(), ends[-1])
    else:
        (low1, high1), (low2, high2) = _supports(kernel, beta, gamma)
        parts = np.linspace(low1, high1, cells // 2 + 1), np.linspace(low2, high2, cells // 2)
        edges = np.sort(np.concatenate(parts))
    fixed = np.array([k for k in _kinks(kernel, beta, gamma) if edges[0] < k < edges[-1]])
    jumps = ends[1:-1][np.diff(ends)[1:] < _SLIVER * np.abs(ends[1:-1])] if len(ends) else ends
    fixed = np.concatenate([fixed, jumps])

    def bounded(edges: np.ndarray) -> np.ndarray:
        for kink in fixed:
            edges[np.argmin(np.abs(edges - kink))] = kink
        return edges

    edges = bounded(edges)
    log_target = _score_targets(kernel, beta, gamma, _in_cells(edges))
    heights = np.exp(log_target - log_target.max(axis=(1, 2), keepdims=True))
    miss = np.cbrt(_miss(heights, np.diff(edges)))
    if not miss.any():
        return edges if len(edges) == cells + 1 else np.linspace(edges[0], edges[-1], cells + 1)
    share = np.concatenate([[0.0], np.cumsum(miss.mean() + miss)])
    return bounded(np.interp(np.linspace(0, share[-1], cells + 1), share, edges))


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
    if kernel.law is Law.SCORE:
        beta, gamma = parameters["beta"], parameters["gamma"]
        edges = _score_edges(kernel, beta, gamma)
        log_target = _score_targets(kernel, beta, gamma, _in_cells(edges))
    else:
        rest = [parameters[p.name] for p in kernel.parameters]
        edges = _position_edges(parameters["length"])
        log_f = numpy_log_abs(kernel)(np.floor(_in_cells(edges)), *rest)
        log_target = np.stack([log_f, 2 * log_f]) - np.log(parameters["length"])
    width = np.diff(edges)
    peak = log_target.max(axis=(1, 2))
    heights = np.exp(log_target - peak[:, None, None])
    chords = heights[:, ::2]
    if kernel.law is Law.POSITION:  # flat: a distance is a whole number, drawn uniformly in a cell
        chords = np.repeat(chords.mean(axis=1, keepdims=True), 2, axis=1)
    mass = chords.mean(axis=1) @ width
    heights, chords = heights / mass[:, None, None], chords / mass[:, None, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        even = np.where(width > 0, 1 / (np.count_nonzero(width) * width), 0)
        miss = _miss(heights, width)
        missed = np.where(width > 0, miss / (miss.sum() * width), 0) if miss.any() else even
    drawn = (1 - _WATCH) * chords.mean(axis=0) + _WATCH * ((1 - _EVEN) * missed + _EVEN * even)
    cumulative = np.concatenate([[0.0], np.cumsum(width * drawn.mean(axis=0))])
    total = cumulative[-1]  # one, but for rounding
    return Table(edges, cumulative / total, drawn / total, chords, peak + np.log(mass))


def tilt(kernel: Kernel, beta: float, gamma: float) -> float:
    """θ of the shift N(μ + θσ²q, σ²I) that serves both moments of full keys: mean t over γ."""
    table = build(kernel, {"beta": beta, "gamma": gamma})
    middle, width = (table.edges[:-1] + table.edges[1:]) / 2, np.diff(table.edges)
    return float((table.heights.mean(axis=(0, 1)) @ (middle * width)) / gamma)
