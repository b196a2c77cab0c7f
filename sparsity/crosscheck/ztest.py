"""The z-test against theory, of an estimate or of plain draws: the only one there is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from sparsity.results import Estimate
from sparsity.sampling import Sampling

_POWER = 0.999


class Compared(NamedTuple):
    """An estimate beside theory.

    Args:
        z: their difference in standard errors.
        critical: |z| from which the two disagree.
        detectable: the relative error that would have been seen with probability 0.999.
    """

    z: float
    critical: float
    detectable: float


def needed(dof: float, alarm: float) -> float:
    """Standard errors that an error must have to be seen with probability 0.999.

    Args:
        dof: degrees of freedom of the standard error; ∞ where it is known.
        alarm: false-alarm probability.
    """
    return float(stdtrit(dof, _POWER) - stdtrit(dof, alarm / 2))


@dataclass(frozen=True)
class Detecting(Sampling):
    """How an estimate is sampled until an error of a given size would be seen.

    Args:
        detectable: the relative error, in (0, 1).
        alarm: false-alarm probability.
    """

    detectable: float = 1e-3
    alarm: float = 1e-3

    def aim(self, dof: int) -> float:
        """As `Sampling.aim`: an error bar known from few batches has to be smaller."""
        return self.detectable / needed(dof, self.alarm)


def detecting(detectable: float, alarm: float, seed: int, dtype: Any) -> Detecting:
    """Settings under which a relative error of that size is seen; the others as in `Sampling`."""
    most = detectable / needed(math.inf, alarm)
    return Detecting(most, seed=seed, dtype=dtype, detectable=detectable, alarm=alarm)


def compare(theory: float, estimate: Estimate, alarm: float) -> Compared:
    """Compare in the log domain, two-sided, by Student's t.

    Args:
        theory: log of the quantity.
        estimate: the same by sampling.
        alarm: false-alarm probability.
    """
    critical = -float(stdtrit(estimate.dof, alarm / 2))
    seen = needed(estimate.dof, alarm) * estimate.rel_stderr
    difference = estimate.log_value - theory
    if difference == 0:
        z = 0.0
    elif estimate.rel_stderr > 0:
        z = difference / estimate.rel_stderr
    else:
        z = math.copysign(math.inf, difference)
    return Compared(z, critical, seen)


def compare_mean(draws: np.ndarray, mean: float, alarm: float) -> tuple[float, float]:
    """Compare the mean of independent draws with theory, two-sided, by Student's t.

    Args:
        draws: one number each.
        mean: by theory.
        alarm: false-alarm probability.

    Returns:
        z, and the |z| beyond which the two disagree.
    """
    z = (draws.mean() - mean) / (draws.std(ddof=1) / math.sqrt(draws.size))
    return float(z), -float(stdtrit(draws.size - 1, alarm / 2))
