"""Where a kernel has its mass under a Gaussian score: the ranges that proposals cover."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from sparsity.errors import InputError
from sparsity.kernels import Kernel
from sparsity.kernels.lowering import numpy_log_abs, numpy_weight
from sparsity.kernels.numeric.definition import definition

POWERS = np.array([1.0, 2.0])
DEPTH = 40.0  # log-depth below the peak that is covered
_POINTS = 256  # of a look at the target, at least


def log_weight(kernel: Kernel, beta: Any, gamma: Any, t: np.ndarray) -> np.ndarray:
    """log|f(β+γt)|; −inf where f vanishes or is no number, +inf where it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        value = numpy_log_abs(kernel)(beta + gamma * t)
    return np.where(np.isnan(value), -np.inf, value)


@functools.lru_cache(maxsize=256)
def _looks(reach: float) -> np.ndarray:
    """±geometric steps from 1e-3 to `reach`, and 0."""
    half = np.geomspace(1e-3, reach, _POINTS)
    return np.concatenate([-half[::-1], [0.0], half])


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
    log_f = np.concatenate([log_f, log_weight(kernel, beta, gamma, closer)])
    order = np.argsort(grid)
    return grid[order], log_f[order]


def _kinks(kernel: Kernel, beta: float, gamma: float) -> np.ndarray:
    return (np.array(definition(kernel).roots) - beta) / gamma


@functools.lru_cache(maxsize=256)
def support_of(kernel: Kernel, beta: float, gamma: float) -> tuple[tuple[float, float], ...]:
    """For each power, a range of t with all but about e^−40 of |f|^p φ, by zooming on the peak."""
    reach = 60.0 + 2.0 ** np.ceil(np.log2(6 * max(gamma, abs(beta / gamma), 1.0)))
    looks = _looks(float(reach))
    kinked = _kinks(kernel, beta, gamma)
    if len(kinked):
        looks = np.sort(np.concatenate([looks, *(kink + 1e-2 * looks for kink in kinked)]))
    first = log_weight(kernel, beta, gamma, looks)
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
                fix = f"is 0 or overflows at every score tried near {beta:g}"
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
                fix = "is not a real number at some score that occurs"
                raise InputError("weight", kernel.weight, fix)
            low = grid[max(inside[0] - 1, 0)]
            high = grid[min(inside[-1] + 1, len(grid) - 1)]
            if len(inside) > _POINTS // 4 and zoom:
                break
            grid = np.linspace(low, high, _POINTS)
            log_f = log_weight(kernel, beta, gamma, grid)
        found.append((float(low), float(high)))
    return tuple(found)


def steps(low: np.ndarray, high: np.ndarray, count: int) -> np.ndarray:
    """`count` even steps from low to high, [laws, count], each law's in a row of memory."""
    steps = low[:, None] + np.arange(count) * ((high - low) / (count - 1))[:, None]
    steps[:, -1] = high
    return steps


def _ordinary(kernel: Kernel, beta: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """`support_of` many laws at once, [powers, ends, laws]; NaN where one is out of the ordinary.

    That is a law whose peak may have fallen between the looks, or whose f is not finite there.
    """
    far = np.maximum(np.maximum(gamma, np.abs(beta / gamma)), 1.0)
    reach = 60.0 + 2.0 ** np.ceil(np.log2(6 * far))
    looks = np.stack([_looks(x) for x in reach.tolist()])
    kinks = [(root - beta) / gamma for root in definition(kernel).roots]
    looks = np.concatenate([looks, *(k[:, None] + 1e-2 * looks for k in kinks)], axis=1)
    looks = np.sort(looks, axis=1, kind="stable")  # which merges what is in order
    first = log_weight(kernel, beta[:, None], gamma[:, None], looks)
    found = np.full((len(POWERS), 2, len(beta)), np.nan)
    for i, power in enumerate(POWERS):
        rows, grid, log_f = np.arange(len(beta)), looks, first
        for zoom in range(12):
            with np.errstate(over="ignore", invalid="ignore"):
                target = power * log_f - grid * grid / 2
            peak = target.max(axis=1, keepdims=True)
            inside = target >= peak - DEPTH
            left, right = (
                inside.argmax(axis=1),
                target.shape[1] - 1 - inside[:, ::-1].argmax(axis=1),
            )
            fine = np.isfinite(peak[:, 0]) & (left > 0) & (right < target.shape[1] - 1) | (zoom > 0)
            if zoom == 0:
                inner = target[:, 1:-1]
                peaks = (inner > target[:, :-2]) & (inner >= target[:, 2:])
                fine &= ~(peaks & (inner < peak - DEPTH / 2)).any(axis=1)
            at = np.arange(len(rows))
            low = grid[at, np.maximum(left - 1, 0)]
            high = grid[at, np.minimum(right + 1, target.shape[1] - 1)]
            done = (inside.sum(axis=1) > _POINTS // 4) & (zoom > 0)
            found[i][:, rows[done]] = low[done], high[done]
            going = fine & ~done
            rows, low, high = rows[going], low[going], high[going]
            if not len(rows):
                break
            grid = steps(low, high, _POINTS)
            log_f = log_weight(kernel, beta[rows, None], gamma[rows, None], grid)
    return found


def supports(kernel: Kernel, beta: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """`support_of` each law, [powers, ends, laws], whatever the others are."""
    with np.errstate(over="ignore"):
        beyond = np.flatnonzero(~np.isfinite(beta / gamma))
    if len(beyond):
        fix = f"is beyond float64 in units of gamma = {gamma[beyond[0]]:g}"
        raise InputError("beta", beta[beyond[0]], fix)
    found = _ordinary(kernel, beta, gamma)
    for i in np.flatnonzero(np.isnan(found).any(axis=(0, 1))):
        found[:, :, i] = support_of(kernel, float(beta[i]), float(gamma[i]))
    return found
