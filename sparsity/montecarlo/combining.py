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

LEAST_ESS = 500.0
LARGEST_SHARE = 0.01
LARGEST_TAIL_INDEX = 0.5  # beyond it the variance is infinite and no error bar means anything
_GROUPS = 32  # blocks whose maxima tell the tail index


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
        if self.largest_share > LARGEST_SHARE:
            why = f"one draw carries {self.largest_share:.1%} of a moment (limit 1%)"
        elif self.ess < LEAST_ESS:
            why = f"effective sample size {self.ess:.0f} (least {LEAST_ESS:.0f})"
        elif self.tail_index > LARGEST_TAIL_INDEX:
            why = f"tail index {self.tail_index:.2f} of the draws (limit {LARGEST_TAIL_INDEX})"
        else:
            return None
        return f"{why}: the error bar cannot be trusted"


def _tail_index(maxima: np.ndarray) -> float:
    """ξ from block maxima: their logarithms have standard deviation ξπ/√6 if the tail is ~x^(−1/ξ).

    Blocks are grouped until 32 are left; 32 maxima know ξ to about 20 %. The worst moment counts.

    Args:
        maxima: [batches, moments].
    """
    count, moments = maxima.shape
    grouped = maxima
    if count > _GROUPS:
        grouped = maxima[: count // _GROUPS * _GROUPS].reshape(_GROUPS, -1, moments).max(axis=1)
    if not (grouped > 0).all():
        return math.inf
    logs = np.log(grouped)
    logs -= logs.sum(axis=0) / _GROUPS
    worst = (logs * logs).sum(axis=0).max() / (_GROUPS - 1)
    return math.sqrt(6 * worst) / math.pi


def _evenness(mean: float, mean_square: float) -> float:
    """mean² / mean square, 1 where all draws are alike; 0 where the squares have underflowed."""
    return mean * (mean / mean_square) if mean_square > 0 else 0.0


def combine(batches: np.ndarray, powers: tuple[float, ...], size: int) -> Combined:
    """Σ powers_i · log(mean_i), error by the delta method with the covariance between batches.

    Args:
        batches: [batches, 3, moments] of mean, mean square, maximum.
        powers: one exponent per moment: (1, −½) for S = m₁/√m₂, (1, −1) for a conditional mean.
        size: draws per batch.
    """
    used = [i for i, power in enumerate(powers) if power]
    power = [powers[i] for i in used]
    count, total = len(batches), len(batches) * size
    columns = batches[:, :, used]
    means, squares = (
        [math.fsum(column) / count for column in columns[:, which].T.tolist()] for which in (0, 1)
    )
    if not all(0 < mean < math.inf for mean in means):
        return Combined(math.nan, math.inf, count - 1, 0.0, 1.0, math.inf)
    relative = (columns[:, 0] / means - 1) @ power
    maxima = columns[:, 2]
    return Combined(
        log_value=math.fsum(p * math.log(mean) for p, mean in zip(power, means, strict=True)),
        rel_stderr=math.sqrt(math.fsum((relative * relative).tolist()) / (count - 1) / count),
        dof=count - 1,
        ess=total * min(map(_evenness, means, squares)),
        largest_share=float((maxima.max(axis=0) / means).max()) / total,
        tail_index=_tail_index(maxima),
    )


@functools.lru_cache(maxsize=64)
def student(probability: float, dof: int) -> float:
    """Student's quantile."""
    return float(stdtrit(dof, probability))


@functools.lru_cache(maxsize=64)
def anytime_factor(count: int, planned: int, alpha: float = 0.05) -> float:
    """Standard errors to either side that hold at every batch count at once.

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
