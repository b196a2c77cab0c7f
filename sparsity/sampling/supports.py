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
DEPTH = 40.0  # log-depth below the peak that is covered: e^−40 is below float64's rounding
# Of a look at the target, at least: geometric steps from 1e-3 to a reach of 68 are then 4.5 % wide.
# More cost time, and with fewer a narrow mass far out falls between two looks.
_POINTS = 256
# Above the depth, from which a range is resolved: its ends are then off by a step, 1/64 of it.
_POINTS_INSIDE = _POINTS // 4
# A zoom narrows a range at least 4 times, or it is the last: 4¹² = 10⁷ from the widest look.
_MAX_ZOOMS = 12
_CLOSER_POINTS = 33  # between the neighbours of a peak that may have been missed


def log_weight(kernel: Kernel, beta: Any, gamma: Any, t: np.ndarray) -> np.ndarray:
    """Return log|f(β+γt)|: −inf where f vanishes or is no number, +inf where it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        value = numpy_log_abs(kernel)(beta + gamma * t)
    return np.where(np.isnan(value), -np.inf, value)


def even_steps(low: np.ndarray, high: np.ndarray, count: int) -> np.ndarray:
    """Return `count` even steps from low to high, [laws, count], each law's in a row of memory."""
    steps = low[:, None] + np.arange(count) * ((high - low) / (count - 1))[:, None]
    steps[:, -1] = high
    return steps


def supports(kernel: Kernel, beta: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """Return ranges of t with all but about e^−40 of |f|^p φ, for each power and law.

    A first look takes geometric steps to both sides of the mean, and of each kink of f, as far as
    the mass can lie: the scale on which f varies there is not known, and geometric steps meet every
    scale. Then each law's range is the part that is not more than DEPTH below the peak, looked at
    more closely until enough points are in it.

    All laws are searched at once, as arrays: a curve of sixty points costs little more than one.
    What a law gets does not depend on the others, so that its samples have the same bits alone.

    Args:
        kernel: of law SCORE.
        beta: of the laws.
        gamma: of the laws.

    Returns:
        [powers, ends, laws].

    Raises:
        InputError: the moments are infinite, or f is 0, infinite or no number wherever it counts.
    """
    with np.errstate(over="ignore"):
        beyond = np.flatnonzero(~np.isfinite(beta / gamma))
    if len(beyond):
        fix = f"is beyond float64 in units of gamma = {gamma[beyond[0]]:g}"
        raise InputError("beta", beta[beyond[0]], fix)
    looks = np.stack([_first_looks(x) for x in _reach(beta, gamma).tolist()])
    kinks = [(root - beta) / gamma for root in definition(kernel).roots]
    # Beside a kink steps begin a hundred times finer: with a large γ, f may rise at once there.
    looks = np.concatenate([looks, *(k[:, None] + 1e-2 * looks for k in kinks)], axis=1)
    looks = np.sort(looks, axis=1, kind="stable")  # which merges what is in order
    log_f = log_weight(kernel, beta[:, None], gamma[:, None], looks)
    ranges = np.empty((len(POWERS), 2, len(beta)))
    for ends, power in zip(ranges, POWERS, strict=True):
        target = _log_target(power, log_f, looks)
        lost = _lost_peaks(target)
        doubtful = lost.sum(axis=1)
        # Laws with as many doubtful peaks get as many looks more, and so share an array.
        for count in np.unique(doubtful):
            rows = np.flatnonzero(doubtful == count)
            b, c, grid, seen = beta[rows], gamma[rows], looks[rows], target[rows]
            if count:
                closer = _closer_looks(grid, lost[rows])
                its_log_f = log_weight(kernel, b[:, None], c[:, None], closer)
                seen = np.concatenate([seen, _log_target(power, its_log_f, closer)], axis=1)
                grid = np.concatenate([grid, closer], axis=1)
                order = np.argsort(grid, axis=1)
                grid, seen = (np.take_along_axis(x, order, axis=1) for x in (grid, seen))
            ends[:, rows] = _zoom(kernel, power, b, c, grid, seen)
    return ranges


def _reach(beta: Any, gamma: Any) -> Any:
    """Return how far the first looks go, in standard deviations: few values, for the cache.

    Of e^(2s), s = β + γt, the mass is about t = 2γ, and of an f that begins at score 0 it may be at
    |β|/γ. Six times that, and 60 more, where the density is e^−1800, leave room for steeper ones.
    Rounding up to a power of two makes `_first_looks` the same for most points of a curve.
    """
    far = np.maximum(np.maximum(gamma, np.abs(beta / gamma)), 1.0)
    return 60.0 + 2.0 ** np.ceil(np.log2(6 * far))


@functools.lru_cache(maxsize=256)
def _first_looks(reach: float) -> np.ndarray:
    """Return ±geometric steps from 1e-3 to `reach`, and 0."""
    half = np.geomspace(1e-3, reach, _POINTS)
    return np.concatenate([-half[::-1], [0.0], half])


def _log_target(power: float, log_f: np.ndarray, t: np.ndarray) -> np.ndarray:
    """Return log |f|^p φ, but for a constant."""
    with np.errstate(over="ignore", invalid="ignore"):
        return power * log_f - t * t / 2


def _lost_peaks(target: np.ndarray) -> np.ndarray:
    """Return where, among the inner looks, a lower peak may hide a higher one beside it.

    The steps are wide far out, so that of a narrow peak a flank may be all that was seen. Beside a
    peak within half the DEPTH of the highest one this cannot matter: the zoom goes there anyway.
    """
    inner = target[:, 1:-1]
    peaks = (inner > target[:, :-2]) & (inner >= target[:, 2:])
    return peaks & (inner < target.max(axis=1, keepdims=True) - DEPTH / 2)


def _closer_looks(looks: np.ndarray, lost: np.ndarray) -> np.ndarray:
    """Return looks between the neighbours of peaks, [laws, looks]; as many peaks in each law."""
    law, peak = np.nonzero(lost)  # law by law; peaks are counted from the second look
    before, after = looks[law, peak], looks[law, peak + 2]
    share = np.linspace(0, 1, _CLOSER_POINTS + 2)[1:-1]
    return (before[:, None] + (after - before)[:, None] * share).reshape(len(looks), -1)


def _zoom(
    kernel: Kernel,
    power: float,
    beta: np.ndarray,
    gamma: np.ndarray,
    grid: np.ndarray,
    target: np.ndarray,
) -> np.ndarray:
    """Return both ends of each law's range, [ends, laws], from first looks at it.

    Each zoom keeps the looks above the depth, and one more on either side, so that an end that lies
    between two looks stays within. A law is done when `_POINTS_INSIDE` looks are above the depth,
    after one zoom at least; the rest go on, in ever fewer rows of the arrays.

    The same looks tell most ways in which a moment may not exist. A peak of −∞: the weight is
    nowhere positive. +∞ within the range: a pole. Mass at an end of the first look: it goes on
    growing, or lies beyond all reach. NaN: not real. A +∞ farther out is an overflow of f, where
    keys do not fall, and is taken for 0.

    Args:
        kernel: of law SCORE.
        power: p.
        beta: of the laws.
        gamma: of the laws.
        grid: the looks at each law, [laws, looks], in order.
        target: log |f|^p φ there.

    Raises:
        InputError: the moment does not exist, so far as the looks can tell.
    """

    def refuse(fix: str) -> InputError:
        return InputError("weight", kernel.weight, fix)

    ends, rows = np.empty((2, len(beta))), np.arange(len(beta))
    always_real = kernel.weight.is_real is True  # by SymPy's assumptions
    for zoom in range(_MAX_ZOOMS if len(rows) else 0):
        infinite = target == np.inf
        if infinite.any():
            target = np.where(infinite, -np.inf, target)
        peak = target.max(axis=1, keepdims=True)
        inside = target >= peak - DEPTH
        last = target.shape[1] - 1
        left, right = inside.argmax(axis=1), last - inside[:, ::-1].argmax(axis=1)
        before, after = np.maximum(left - 1, 0), np.minimum(right + 1, last)
        # What cannot be right is rare: laws in doubt are looked at one by one.
        at_an_end = ((left == 0) | (right == last)) & (zoom == 0)
        doubtful = ~np.isfinite(peak[:, 0]) | infinite.any(axis=1) | at_an_end | (not always_real)
        for i in np.flatnonzero(doubtful):
            with np.errstate(over="ignore", invalid="ignore"):
                scores = beta[rows[i]] + gamma[rows[i]] * grid[i]
            if not np.isfinite(peak[i, 0]):
                raise refuse(f"is 0 or overflows at every score tried near {beta[rows[i]]:g}")
            near = slice(before[i], after[i] + 1)  # farther out keys do not fall
            if infinite[i, near].any():
                raise refuse(f"is infinite at score {scores[near][infinite[i, near]][0]:g}")
            if at_an_end[i]:
                reach = _reach(beta[rows[i]], gamma[rows[i]])
                beyond = f"lies beyond {reach:.3g} standard deviations"
                raise refuse(f"E|a|^{power:g} is infinite, or {beyond}")
            if not always_real and np.isnan(numpy_weight(kernel)(scores[inside[i]])).any():
                raise refuse("is not a real number at some score that occurs")
        at = np.arange(len(rows))
        low, high = grid[at, before], grid[at, after]
        ends[:, rows] = low, high
        going = (inside.sum(axis=1) <= _POINTS_INSIDE) | (zoom == 0)
        if not going.any():
            break
        rows = rows[going]
        grid = even_steps(low[going], high[going], _POINTS)
        log_f = log_weight(kernel, beta[rows, None], gamma[rows, None], grid)
        target = _log_target(power, log_f, grid)
    return ends
