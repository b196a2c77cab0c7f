"""Where to sample: a table near |f|^p × (base law), found from the definition on the host.

The table decides only how efficient the sampling is, never its mean: draws are weighted by the
exact ratio of the base law to the law they were drawn from, and what the table says of the integral
enters as a control variate whose mean is known.

    supports ─> first edges ─> edges where chords miss the target ─> heights at them ─> Table

The cells are finer where the weight bends, and have an edge at each of its kinks.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from sparsity.errors import InputError, TooFine
from sparsity.kernels import ALL, Kernel, Law
from sparsity.kernels.lowering import jax_log_abs, numpy_log_abs, numpy_log_abs_as_given
from sparsity.kernels.numeric.definition import definition, period
from sparsity.limit.densities import Gaussian
from sparsity.limit.moments import panels_with_mass
from sparsity.limit.panels import Axis
from sparsity.sampling.supports import DEPTH, POWERS, even_steps, log_weight, supports

# Of a built-in kernel, and of an f that may be anything. More cells leave less to the draws, as a
# chord misses like the square of a cell's width; but the host builds a table for each point of a
# curve, and its work is linear in them.
_CELLS, _CELLS_UNKNOWN = 256, 2048
_SMOOTH_ON_SCALE_GAMMA = frozenset(kernel.weight for kernel in ALL)  # between their kinks
_END_INSET = 1e-6  # of a cell's width: its end heights are read on its own side of a jump
# At first: enough to see where the target bends within a panel, before the edges are moved there.
_CELLS_PER_PANEL = 8
_MAX_PERIODS = 30  # in a standard deviation, beyond which the table is not to resolve them
_JUMP_WIDTH = 1e-12  # relative width of a gap between panels, at a jump of f
_HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)
# A quarter of the draws go where the table misses the target: only what it misses is noise, and the
# best law to draw noise from is in proportion to it. The other three quarters follow the targets,
# as the miss at the middle of a cell is but a guess of what the cell misses. A tenth of the quarter
# is spread over all cells alike, so that no cell's weights are unbounded.
_MISS_SHARE, _EVEN_SHARE = 0.25, 0.1
SUMMATION_ULPS = 8.0  # units in the last place by which the mean of a batch may be off
_LARGEST_ROUNDING = 1e99  # whose square is a float


class Table(NamedTuple):
    """Two piecewise linear laws on the same cells, near |f|φ and |f|²φ, and one to draw from.

    The latter is their even mixture, and for a quarter of it a law by how far they miss the target.

    Args:
        edges: cell bounds, [cells + 1]; for positions, whole distances n − j.
        cumulative: probability below each edge under the law to draw from, [cells + 1].
        drawn: its density at the left and right end of each cell, [2, cells].
        heights: densities of the two laws there, [2, 2, cells].
        log_mass: about log E|a| and log E a², the scale of the weighted draws, [2].
    """

    edges: np.ndarray
    cumulative: np.ndarray
    drawn: np.ndarray
    heights: np.ndarray
    log_mass: np.ndarray

    def astype(self, dtype: Any) -> Table:
        """Return the table in the sampler's precision."""
        if self.edges.dtype == dtype:
            return self
        return Table(*(np.asarray(part, dtype) for part in self))


def build(kernel: Kernel, parameters: dict[str, float]) -> Table:
    """Return the table near |a|^p × (base law), p = 1 and 2, for a score or a position kernel.

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
    """Return the tables of several parameters of a kernel; args and raises are those of `build`."""
    if kernel.law is not Law.SCORE:
        return [_position_table(kernel, values) for values in parameters]
    beta, gamma = (np.array([p[name] for p in parameters]) for name in ("beta", "gamma"))
    step = len(beta) if kernel.weight in _SMOOTH_ON_SCALE_GAMMA else 1
    tables = []
    for start in range(0, len(beta), step):
        some = slice(start, start + step)
        edges = _score_edges(kernel, beta[some], gamma[some])
        laws = beta[some, None, None], gamma[some, None, None]
        tables += _tables(edges, _log_targets(kernel, *laws, _probe_points(edges)), flat=False)
    return tables


def is_resolved(kernel: Kernel, parameters: dict[str, float]) -> bool:
    """Return whether the table is known to see all of the kernel: nothing is between its looks."""
    if kernel.law is Law.POSITION or kernel.weight in _SMOOTH_ON_SCALE_GAMMA:
        return kernel.weight in _SMOOTH_ON_SCALE_GAMMA
    return len(_smooth_panels(kernel, parameters["beta"], parameters["gamma"])) > 0


def tilt(kernel: Kernel, beta: float, gamma: float) -> float:
    """Return θ of the shift N(μ + θσ²q, σ²I) that serves both moments of full keys: mean t / γ."""
    table = build(kernel, {"beta": beta, "gamma": gamma})
    middle, width = (table.edges[:-1] + table.edges[1:]) / 2, np.diff(table.edges)
    return float((table.heights.mean(axis=(0, 1)) @ (middle * width)) / gamma)


def rounding(
    kernel: Kernel, parameters: Mapping[str, float], table: Table, real: np.dtype
) -> float:
    """Return the relative error of S from rounding, about: no number of draws undoes it.

    It follows from the size of scores and exponents. For a kernel that is not built in, whose
    arithmetic is not known, f as the device computes it is also held against f in the next wider
    precision on the host, which sees a cancellation inside f.

    Args:
        kernel: of law SCORE or POSITION.
        parameters: the kernel's, as plain floats.
        table: of the same.
        real: the sampler's dtype.
    """
    eps = float(np.finfo(real).eps)
    if kernel.law is Law.POSITION:
        return eps * DEPTH
    beta, gamma = parameters["beta"], parameters["gamma"]
    reach = float(np.abs(table.edges[[0, -1]]).max())
    size = min(eps * max(reach**2, 1.0, abs(beta), abs(beta) / gamma), _LARGEST_ROUNDING)
    if kernel in ALL:
        return size
    # At the middle of each cell, in both precisions.
    wide: Any = np.float64 if real == np.float32 else np.longdouble
    t = (table.edges[:-1] + table.edges[1:]) / 2
    device = jax.jit(jax_log_abs(kernel))(
        (real.type(beta) + real.type(gamma) * t.astype(real)).astype(real)
    )
    with np.errstate(all="ignore"):
        try:
            host = np.asarray(numpy_log_abs_as_given(kernel)(wide(beta) + wide(gamma) * wide(t)))
        except (AttributeError, TypeError):  # a function that has no wider kind
            return size
        # Mean |f_device/f_wide − 1| under the laws of both moments, as S feels it.
        power = POWERS[:, None]
        share = np.exp(power * host - t * t / 2 - (power * host - t * t / 2).max(axis=-1)[:, None])
        share = np.where(np.isfinite(share), share, 0) * np.diff(table.edges)
        off = np.abs(np.expm1(power * (np.asarray(device).astype(wide) - host)))
        carried = (np.where(off < 1, off, 1) * share).sum(axis=1) / share.sum(axis=1)
    return max(size, float(carried @ [1.0, 0.5]))


@functools.lru_cache(maxsize=256)
def _smooth_panels(kernel: Kernel, beta: float, gamma: float) -> np.ndarray:
    """Return the ends of panels, in t, on which |f| and f² are smooth and have mass.

    They are found from bounds on f over whole segments, so that no feature hides between them.
    There are none where f is too fine for so many.
    """
    axis = Axis(definition(kernel), Gaussian(beta, gamma))
    length = period(kernel.weight)
    if length is not None and gamma > _MAX_PERIODS * length:
        return np.empty(0)
    try:
        panels = panels_with_mass(axis, (1.0, 2.0))
    except TooFine:
        return np.empty(0)
    panels = panels[np.argsort(axis.t[panels.a] + panels.low, kind="stable")]
    ends = axis.t[panels.a] + np.stack([panels.low, panels.high])
    if not ends.size:
        raise InputError("weight", kernel.weight, "vanishes in float64 wherever keys fall")
    with np.errstate(divide="ignore"):
        log_width = np.log(np.diff(ends, axis=0))
    log_target = _log_targets(kernel, beta, gamma, ends.mean(axis=0)) + log_width
    heavy = (log_target > log_target.max(axis=1, keepdims=True) - DEPTH).any(axis=0)
    ends = np.unique(ends[:, heavy])
    return ends if len(ends) <= _CELLS_UNKNOWN // 4 else np.empty(0)


def _log_targets(kernel: Kernel, beta: Any, gamma: Any, t: np.ndarray) -> np.ndarray:
    """Return log |f|^p φ for both powers, [2, ...]."""
    log_f = log_weight(kernel, beta, gamma, t)
    return np.stack([log_f, 2 * log_f]) - (t * t / 2 + _HALF_LOG_2PI)


def _probe_points(edges: np.ndarray) -> np.ndarray:
    """Return left end, middle and right end of each cell, [..., 3, cells], to look at."""
    width = np.diff(edges)[..., None, :]
    return edges[..., None, :-1] + width * np.array([[_END_INSET], [0.5], [1 - _END_INSET]])


def _chord_error(heights: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Return what the chords of two targets, [2, ..., 3, cells], leave out of each cell, about."""
    left, middle, right = np.moveaxis(heights, -2, 0)
    return width * np.abs(middle - (left + right) / 2).sum(axis=0)


def _first_edges(
    kernel: Kernel, beta: np.ndarray, gamma: np.ndarray
) -> tuple[np.ndarray, list[float]]:
    """Return edges to begin with, [laws, cells + 1], and those of them that stay: jumps of f."""
    cells = _CELLS
    if kernel.weight not in _SMOOTH_ON_SCALE_GAMMA:
        cells = _CELLS_UNKNOWN
        ends = _smooth_panels(kernel, float(beta[0]), float(gamma[0]))
        if len(ends):
            parts = np.arange(_CELLS_PER_PANEL) / _CELLS_PER_PANEL
            inner = (ends[:-1, None] + np.diff(ends)[:, None] * parts).ravel()
            jumps = ends[1:-1][np.diff(ends)[1:] < _JUMP_WIDTH * np.abs(ends[1:-1])]
            return np.append(inner, ends[-1])[None], jumps.tolist()
    (low1, high1), (low2, high2) = supports(kernel, beta, gamma)
    both = even_steps(low1, high1, cells // 2 + 1), even_steps(low2, high2, cells // 2)
    return np.sort(np.concatenate(both, axis=1), axis=1, kind="stable"), []  # merges the two


def _move_edges_to(fixed: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Put the nearest edge, of [laws, cells + 1], on each fixed place, [laws, places]."""
    inside = (fixed > edges[:, :1]) & (fixed < edges[:, -1:])
    for place, here in zip(fixed.T, inside.T, strict=True):
        rows = np.flatnonzero(here)
        nearest = np.abs(edges[rows] - place[rows, None]).argmin(axis=1)
        edges[rows, nearest] = place[rows]
    return edges


def _score_edges(kernel: Kernel, beta: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """Return cells over both supports, finer where a chord misses a target.

    The chord of a cell of width h misses about h³|f″|/12, so that the cube root of the miss says
    how many cells a stretch is worth. Each cell also gets an even share, as f may bend where it was
    not looked at. Kinks and jumps of f are bounds of cells, since no chord follows them.

    Args:
        kernel: of law SCORE; one that is not built in takes one law at a time.
        beta: of the laws.
        gamma: of the laws.

    Returns:
        Edges in t, ascending, [laws, cells + 1].
    """
    cells = _CELLS if kernel.weight in _SMOOTH_ON_SCALE_GAMMA else _CELLS_UNKNOWN
    edges, jumps = _first_edges(kernel, beta, gamma)
    kinks = [(root - beta) / gamma for root in definition(kernel).roots]
    # First edges, moved to the kinks; then edges by shares of the miss, moved to them again.
    fixed = np.stack([*kinks, *(np.full(len(beta), jump) for jump in jumps)], axis=1)
    edges = _move_edges_to(fixed, edges)
    laws = beta[:, None, None], gamma[:, None, None]
    log_target = _log_targets(kernel, *laws, _probe_points(edges))
    heights = np.exp(log_target - log_target.max(axis=(2, 3), keepdims=True))
    # Σ h³|f″| over so many cells is least where all miss alike, so that edges go where the running
    # sum of cube roots takes even steps, as de Boor places knots. One pass is enough, as what the
    # cells still miss costs draws and biases nothing.
    miss = np.cbrt(_chord_error(heights, np.diff(edges)))
    share = np.cumsum(miss.mean(axis=1, keepdims=True) + miss, axis=1)
    share = np.concatenate([np.zeros((len(edges), 1)), share], axis=1)
    new = even_steps(edges[:, 0], edges[:, -1], cells + 1)
    even = even_steps(share[:, 0], share[:, -1], cells + 1)
    for i, missed in enumerate(np.any(miss, axis=1)):
        if missed:  # else the target is linear in every cell, and the first edges are right
            new[i] = np.interp(even[i], share[i], edges[i])
        elif edges.shape == new.shape:
            new[i] = edges[i]
    return _move_edges_to(fixed, new)


def _position_table(kernel: Kernel, parameters: dict[str, float]) -> Table:
    """Return the table of distances 0 … n, one by one at first, then in geometric steps.

    It is padded to a fixed size, so that samplers compile once, by repeating the last edge: cells
    of width zero have probability zero. A distance is a whole number, drawn uniformly in a cell.
    """
    length = parameters["length"]
    fine = np.arange(min(length, _CELLS // 2) + 1)
    # Rounded, not cut off: many of them are whole numbers but for their last bit, which differs
    # between processors.
    coarse = np.rint(np.geomspace(max(fine[-1], 1), length, _CELLS - len(fine) + 1))
    edges = np.unique(np.concatenate([fine, coarse]))
    edges[-1] = length
    edges = np.concatenate([edges, np.full(_CELLS + 1 - len(edges), length)])
    rest = [parameters[p.name] for p in kernel.parameters]
    log_f = numpy_log_abs(kernel)(np.floor(_probe_points(edges)), *rest)
    log_target = np.stack([log_f, 2 * log_f]) - np.log(length)
    return _tables(edges[None], log_target[:, None], flat=True)[0]


def _tables(edges: np.ndarray, log_target: np.ndarray, *, flat: bool) -> list[Table]:
    """Return the tables on these edges.

    The target of each moment is known at three places of a cell. Its ends give the chord, a linear
    density, whose quantile is a root of a quadratic; its middle only says what the chord misses.
    The law to draw from is a mixture: the even mean of both normalised targets, since one set of
    draws serves both moments, and for `_MISS_SHARE` of it the law of the misses. All stays linear
    in each cell, so that a sampler needs no more than the heights at its ends.

    Args:
        edges: [laws, cells + 1].
        log_target: logs of the targets at left end, middle and right end, [2, laws, 3, cells].
        flat: whether the densities are constant in a cell.
    """
    width = np.diff(edges)
    peak = log_target.max(axis=(2, 3))
    heights = np.exp(log_target - peak[:, :, None, None])  # over the peak, else it overflows
    chords = heights[:, :, ::2]  # at the ends of the cells
    if flat:
        chords = np.repeat(chords.mean(axis=2, keepdims=True), 2, axis=2)
    mass = (chords.mean(axis=2) * width).sum(axis=2)
    heights, chords = (x / mass[:, :, None, None] for x in (heights, chords))
    wide = width > 0  # padding of positions has none
    with np.errstate(divide="ignore", invalid="ignore"):
        # Densities that give every cell the same probability, and each its share of the miss.
        even = np.where(wide, 1 / (wide.sum(axis=1, keepdims=True) * width), 0)
        miss = _chord_error(heights, width)
        total = miss.sum(axis=1, keepdims=True)
        # The miss is an integral over its cell: as a density it is spread evenly over the width.
        missed = np.where(total > 0, np.where(wide, miss / (total * width), 0), even)
    spread = _MISS_SHARE * ((1 - _EVEN_SHARE) * missed + _EVEN_SHARE * even)
    drawn = (1 - _MISS_SHARE) * chords.mean(axis=0) + spread[:, None]
    # Of a density that is linear in a cell, the probability is the mean of its ends.
    cumulative = np.cumsum(width * drawn.mean(axis=1), axis=1)
    cumulative = np.concatenate([np.zeros((len(edges), 1)), cumulative], axis=1)
    total = cumulative[:, -1:]  # one, but for rounding
    cumulative, drawn = cumulative / total, drawn / total[:, :, None]
    log_mass = peak + np.log(mass)
    return [
        Table(edges[i], cumulative[i], drawn[i], chords[:, i], log_mass[:, i])
        for i in range(len(edges))
    ]
