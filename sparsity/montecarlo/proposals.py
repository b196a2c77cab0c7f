"""Where to sample: a histogram near |f|^p × (base law), found from the definition on the host.

The histogram decides only how efficient the sampling is, never its mean: draws are weighted by the
exact ratio of the base law to the law they were drawn from.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from sparsity.errors import InputError
from sparsity.kernels import Kernel, Law
from sparsity.kernels.lowering import kinks, numpy_log_abs, numpy_weight

__all__ = ["Histogram", "build", "tilt"]

CELLS = 512
_DEPTH = 40.0  # log-depth below the peak that the histogram covers
_FLOOR = 0.02  # share spread evenly over the cells, so that no cell's weights are unbounded


class Histogram(NamedTuple):
    """A piecewise uniform law.

    Args:
        edges: cell bounds, [CELLS + 1]; for positions, whole distances n − j.
        cumulative: probability below each edge, [CELLS + 1].
        log_density: log density inside each cell, [CELLS].
        log_peak: about log max |f|^p φ / density: the scale of the weighted draws.
    """

    edges: np.ndarray
    cumulative: np.ndarray
    log_density: np.ndarray
    log_peak: np.ndarray


def _log_target(kernel: Kernel, power: int, beta: float, gamma: float, t: np.ndarray) -> np.ndarray:
    """log(|f(β+γt)|^p φ(t)) up to a constant; −inf where f vanishes or is not finite."""
    value = power * numpy_log_abs(kernel)(beta + gamma * t) - t * t / 2
    return np.where(np.isnan(value), -np.inf, value)


@functools.lru_cache(maxsize=256)
def _support(kernel: Kernel, power: int, beta: float, gamma: float) -> tuple[float, float]:
    """An interval of t that holds all but about e^−40 of |f|^p φ, by zooming onto the peak."""
    reach = 60.0 + 3.0 * power * max(gamma, abs(beta / gamma), 1.0)
    half = np.geomspace(1e-3, reach, 2000)
    kinked = (np.array(kinks(kernel)) - beta) / gamma
    near_kinks = (kinked[:, None] + np.concatenate([-half, half]) * 1e-2).ravel()
    grid = np.unique(np.concatenate([-half, [0.0], half, near_kinks]))
    for zoom in range(8):
        log_target = _log_target(kernel, power, beta, gamma, grid)
        peak = log_target.max()
        if not np.isfinite(peak):
            fix = f"vanishes or overflows wherever it was looked at, near score {beta:g}"
            raise InputError("weight", kernel.weight, fix)
        inside = np.flatnonzero(log_target >= peak - _DEPTH)
        if zoom == 0 and (inside[0] == 0 or inside[-1] == len(grid) - 1):
            fix = f"E|a|^{power} is infinite, or lies beyond {reach:.3g} standard deviations"
            raise InputError("weight", kernel.weight, fix)
        if np.any(np.isnan(numpy_weight(kernel)(beta + gamma * grid[inside]))):
            fix = "is not a real number at some score where keys fall"
            raise InputError("weight", kernel.weight, fix)
        low = grid[max(inside[0] - 1, 0)]
        high = grid[min(inside[-1] + 1, len(grid) - 1)]
        if len(inside) > 1000:
            break
        grid = np.linspace(low, high, 4001)
    return float(low), float(high)


def _score_edges(kernel: Kernel, power: int, beta: float, gamma: float) -> np.ndarray:
    low, high = _support(kernel, power, beta, gamma)
    edges = np.linspace(low, high, CELLS + 1)
    for kink in (np.array(kinks(kernel)) - beta) / gamma:  # a kink is a cell's bound, not inside it
        if low < kink < high:
            edges[np.argmin(np.abs(edges - kink))] = kink
    return edges


def _position_edges(length: float) -> np.ndarray:
    """Whole distances 0 … n, one by one at first, then in geometric steps; padded to a fixed size.

    Padding repeats the last edge: cells of width zero, which have probability zero.
    """
    fine = np.arange(min(length, CELLS // 2) + 1)
    coarse = np.floor(np.geomspace(max(fine[-1], 1), length, CELLS - len(fine) + 1))
    edges = np.unique(np.concatenate([fine, coarse]))
    edges[-1] = length
    return np.concatenate([edges, np.full(CELLS + 1 - len(edges), length)])


def build(kernel: Kernel, power: int, parameters: dict[str, float]) -> Histogram:
    """The histogram near |a|^p × (base law) for a score or a position kernel.

    Args:
        kernel: of law SCORE or POSITION.
        power: p, 1 or 2.
        parameters: the kernel's, as plain floats.

    Raises:
        InputError: the weight vanishes or overflows wherever it was looked at.
    """
    inner = (np.arange(8) + 0.5) / 8
    if kernel.law is Law.SCORE:
        beta, gamma = parameters["beta"], parameters["gamma"]
        edges = _score_edges(kernel, power, beta, gamma)
        width = np.diff(edges)
        points = edges[:-1, None] + width[:, None] * inner
        log_target = _log_target(kernel, power, beta, gamma, points)
        log_target -= 0.5 * np.log(2 * np.pi)
    else:
        rest = [parameters[p.name] for p in kernel.parameters]
        edges = _position_edges(parameters["length"])
        width = np.diff(edges)
        points = edges[:-1, None] + np.floor(width[:, None] * inner)
        log_target = power * numpy_log_abs(kernel)(points, *rest) - np.log(parameters["length"])
    peak = log_target.max()
    mass = width * np.exp(log_target - peak).mean(axis=1)
    total = mass.sum()
    probability = (1 - _FLOOR) * mass / total + _FLOOR * width / width.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        log_density = np.where(width > 0, np.log(probability) - np.log(width), 0.0)
    cumulative = np.concatenate([[0.0], np.cumsum(probability)])
    return Histogram(edges, cumulative / cumulative[-1], log_density, peak + np.log(total))


def tilt(kernel: Kernel, beta: float, gamma: float) -> float:
    """θ of the shift N(μ + θσ²q, σ²I) that serves both moments of full keys: mean t over γ."""
    means = []
    for power in (1, 2):
        low, high = _support(kernel, power, beta, gamma)
        t = np.linspace(low, high, 4001)
        log_target = _log_target(kernel, power, beta, gamma, t)
        weight = np.exp(log_target - log_target.max())
        means.append(np.sum(weight * t) / np.sum(weight))
    return float(np.mean(means) / gamma)


def as_arguments(histogram: Histogram, dtype: Any) -> Histogram:
    """The histogram in the sampler's precision."""
    return Histogram(*(np.asarray(part, dtype=dtype) for part in histogram))
