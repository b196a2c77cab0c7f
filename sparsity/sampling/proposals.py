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

from sparsity.kernels import Kernel, Law
from sparsity.kernels.lowering import numpy_log_abs
from sparsity.sampling.edges import (
    RESOLVED,
    chord_error,
    position_edges,
    probe_points,
    score_edges,
    targets,
)

_WATCH = 0.25  # share of the draws that goes where the table misses the target
_EVEN = 0.1  # share of those spread over all cells alike, so that no cell's weights are unbounded


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
        step = len(beta) if kernel.weight in RESOLVED else 1
        tables = []
        for start in range(0, len(beta), step):
            b, c = beta[start : start + step], gamma[start : start + step]
            edges = score_edges(kernel, b, c)
            places = probe_points(edges)
            log_target = targets(kernel, b[:, None, None], c[:, None, None], places)
            tables += _tables(edges, log_target, flat=False)
        return tables
    return [_of_positions(kernel, each) for each in parameters]


def _of_positions(kernel: Kernel, parameters: dict[str, float]) -> Table:
    rest = [parameters[p.name] for p in kernel.parameters]
    edges = position_edges(parameters["length"])
    log_f = numpy_log_abs(kernel)(np.floor(probe_points(edges)), *rest)
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
        miss = chord_error(heights, width)
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
