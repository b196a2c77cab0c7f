"""From batches to a number with an error bar, and the signs that the bar cannot be trusted.

Every error bar comes from the scatter between batches, so it is honest for plain and for
stratified sampling alike.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

LEAST_ESS = 500.0  # effective draws, below which the bar itself is known too badly
_LARGEST_SHARE = 0.01  # of a moment, that one draw may carry: else the next one may change it
_LARGEST_TAIL_INDEX = 0.5  # beyond it the variance is infinite and no error bar means anything
_BLOCKS = 32  # whose maxima tell the tail index


class Combined(NamedTuple):
    """log of a product of powers of means, with its standard error and health.

    Args:
        log_value: Σ powers_i · log(mean_i).
        rel_stderr: its standard error, by the delta method.
        dof: degrees of freedom of the standard error.
        ess: effective sample size (Σv)²/Σv² of the worst moment.
        largest_share: largest share max v / Σv of one draw in a moment.
        tail_index: index ξ of the tail of the draws; their variance is finite for ξ < ½.
    """

    log_value: float
    rel_stderr: float
    dof: int
    ess: float
    largest_share: float
    tail_index: float

    @property
    def warning(self) -> str | None:
        """Why the error bar cannot be trusted, or None."""
        if not math.isfinite(self.log_value):
            return "no finite estimate: the draws missed the mass of a moment, or overflowed"
        if self.largest_share > _LARGEST_SHARE:
            why = f"one draw carries {self.largest_share:.1%} of a moment (limit 1%)"
        elif self.ess < LEAST_ESS:
            why = f"effective sample size {self.ess:.0f} (least {LEAST_ESS:.0f})"
        elif self.tail_index > _LARGEST_TAIL_INDEX:
            why = f"tail index {self.tail_index:.2f} of the draws (limit {_LARGEST_TAIL_INDEX})"
        else:
            return None
        return f"{why}: the error bar cannot be trusted"


def _tail_index(maxima: np.ndarray) -> float:
    """Return ξ of draws whose tail is like x^(−1/ξ), from block maxima.

    Logarithms of maxima over blocks then have standard deviation ξπ/√6 (Gumbel's law). Batches are
    grouped until 32 blocks are left, which know ξ to about 20 %. The worst moment counts.

    Args:
        maxima: [moments, batches], of moments with a mean > 0.
    """
    moments, count = maxima.shape
    if count > _BLOCKS:
        whole = maxima[:, : count // _BLOCKS * _BLOCKS]
        maxima = whole.reshape(moments, _BLOCKS, -1).max(axis=2)
    if not maxima.min() > 0:
        return math.inf
    logs = np.log(maxima)
    off = logs - logs.mean(axis=1, keepdims=True)
    variance = float((off * off).sum(axis=1).max()) / (logs.shape[1] - 1)
    return math.sqrt(6 * variance) / math.pi


def _sum(values: list[float]) -> float:
    """Return `math.fsum`, or infinity where that overflows."""
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


def _evenness(mean: float, mean_square: float) -> float:
    """Return mean² / mean square: 1 where all draws are alike, 0 where squares underflowed."""
    return mean * (mean / mean_square) if mean_square > 0 else 0.0


def combine(batches: np.ndarray, powers: tuple[float, ...], size: int) -> Combined:
    """Return Σ powers_i · log(mean_i) with its error by the delta method.

    The covariance of the moments between batches enters: without it the bar of S = m₁/√m₂, whose
    moments rise together, would be too wide.

    Args:
        batches: [batches, 3, moments] of mean, mean square, maximum.
        powers: one exponent per moment: (1, −½) for S = m₁/√m₂, (1, −1) for a conditional mean.
        size: draws per batch.
    """
    used = [i for i, power in enumerate(powers) if power]
    power = np.array([powers[i] for i in used])
    count, total = len(batches), len(batches) * size
    # [3, moments, batches]: sums run along the memory
    columns = np.ascontiguousarray(batches[..., used].transpose(1, 2, 0))
    mean, square = ([_sum(x) / count for x in part] for part in columns[:2].tolist())
    if not all(0 < m < math.inf for m in mean):
        return Combined(math.nan, math.inf, count - 1, 0.0, 1.0, math.inf)
    with np.errstate(all="ignore"):
        ratios = columns / np.array(mean)[:, None]
        off = power @ (ratios[0] - 1)
        scatter = _sum((off * off).tolist())
        return Combined(
            math.fsum(p * math.log(m) for p, m in zip(power.tolist(), mean, strict=True)),
            math.sqrt(scatter / (count - 1) / count),
            count - 1,
            total * min(map(_evenness, mean, square)),
            float(ratios[2].max()) / total,
            _tail_index(columns[2]),
        )


@functools.lru_cache(maxsize=64)
def student(probability: float, dof: int) -> float:
    """Return the quantile of Student's t."""
    return float(stdtrit(dof, probability))


@functools.lru_cache(maxsize=64)
def anytime_factor(count: int, planned: int, alpha: float = 0.05) -> float:
    """Return how many standard errors to either side hold at every batch count at once.

    √(2(tρ²+1)/(tρ²) · log(√(tρ²+1)/α)) with t = count, and ρ chosen to be tightest at `planned`.

    Args:
        count: batches so far.
        planned: batches at which the interval should be tightest.
        alpha: probability that the sequence of intervals ever misses.

    Source: Waudby-Smith et al., "Time-uniform central limit theory and asymptotic confidence
    sequences" (2024), Theorem 2.2 and its appendix on ρ.
    """
    log_alpha = -2 * math.log(alpha)
    x = count * (log_alpha + math.log(log_alpha) + 1) / planned
    return math.sqrt(2 * (x + 1) / x * math.log(math.sqrt(x + 1) / alpha))
