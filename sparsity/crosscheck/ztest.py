"""The z-test against theory, of an estimate or of plain draws: the only one there is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from sparsity.results import Estimate, z_score
from sparsity.sampling import Sampling

_POWER = 0.999  # the probability that a detectable error is seen


def _detectable_stderrs(dof: float, alarm: float) -> float:
    """Return how many standard errors an error must have to be seen with probability _POWER.

    Args:
        dof: degrees of freedom of the standard error; ∞ where it is known.
        alarm: false-alarm probability.
    """
    # The estimate of an error of d standard errors is about d with a spread of 1: to exceed the
    # critical value with that power, d has to be beyond it by the quantile of the power.
    return float(stdtrit(dof, _POWER) - stdtrit(dof, alarm / 2))  # the second is negative


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
        """Do `Sampling.aim`: an error bar that is known from few batches has to be smaller."""
        return self.detectable / _detectable_stderrs(dof, self.alarm)


def detecting(detectable: float, alarm: float, seed: int, dtype: Any) -> Detecting:
    """Return settings under which a relative error of that size is seen; args as in `Detecting`."""
    # `rel_error` is for a standard error that is known; `aim` asks for less from few batches.
    most = detectable / _detectable_stderrs(math.inf, alarm)
    return Detecting(most, seed=seed, dtype=dtype, detectable=detectable, alarm=alarm)


def compare(theory: float, estimate: Estimate, alarm: float) -> tuple[float, float, float]:
    """Compare in the log domain, two-sided, by Student's t.

    Args:
        theory: log of the quantity.
        estimate: the same by sampling.
        alarm: false-alarm probability.

    Returns:
        z, the difference in standard errors; the |z| from which the two disagree; and the relative
        error that would have been seen with probability 0.999.
    """
    z = z_score(estimate.log_value - theory, estimate.rel_stderr)
    seen = _detectable_stderrs(estimate.dof, alarm) * estimate.rel_stderr
    return z, -float(stdtrit(estimate.dof, alarm / 2)), seen


def compare_mean(draws: np.ndarray, mean: float, alarm: float) -> tuple[float, float]:
    """Compare the mean of independent draws with theory, two-sided, by Student's t.

    Args:
        draws: one number each.
        mean: by theory.
        alarm: false-alarm probability.

    Returns:
        z, and the |z| beyond which the two disagree.
    """
    error = draws.std(ddof=1) / math.sqrt(draws.size)
    return z_score(float(draws.mean() - mean), float(error)), -float(
        stdtrit(draws.size - 1, alarm / 2)
    )
