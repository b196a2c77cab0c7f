"""The law of v = ln|f| of one score, in closed form: of softmax, and powers of |s| or max(s, 0)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from sparsity import kernels

_WIDEST = 0.5  # panel
LOG_TAIL = -41.0  # log of the probability of what is left out


class Level(NamedTuple):
    """The law of v = ln|f|.

    Args:
        density: of v.
        log_zero: log P(f = 0).
        low: v below which nothing falls.
        high: v above which a row of the longest length has nothing.
        width: of a panel.
        near: span under `high` in which the k-th largest weights fall, k > 1.
        gamma: as an error says it.
    """

    density: Callable[[np.ndarray], np.ndarray]
    log_zero: float
    low: float
    high: float
    width: float
    near: float
    gamma: float

    def edges(self, *, fine: bool) -> np.ndarray:
        """Of the panels; finer where more than the largest weight of a row falls."""
        below = max(self.low, self.high - (self.near if fine else 0.0))
        coarse = np.linspace(self.low, below, math.ceil((below - self.low) / self.width) + 1)
        above = np.linspace(below, self.high, math.ceil(4 * (self.high - below) / self.width) + 1)
        return np.concatenate([coarse, above[1:]])


def _normal(x: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def _out(n: float, log_share: float = 0.0) -> float:
    """Standard deviations beyond which a row of n has no score, given a share of all scores."""
    return -float(ndtri_exp(LOG_TAIL - math.log(n) + log_share))


def _of_exp(beta: float, gamma: float, n: float) -> Level:
    far, top = _out(1.0), _out(n)
    width = gamma / math.sqrt(2 + 2 * math.log(n))
    return Level(
        lambda v: _normal((v - beta) / gamma) / gamma,
        -math.inf,
        beta - far * gamma,
        beta + top * gamma,
        min(_WIDEST, width),
        0.0,
        gamma,
    )


def _of_power(beta: float, gamma: float, n: float, power: int, both: bool) -> Level:
    """Of |s|^power, for scores of both signs or those above 0 alone."""

    def density(v: np.ndarray) -> np.ndarray:
        s = np.exp(v / power)
        found = _normal((s - beta) / gamma)
        if both:
            found = found + _normal((s + beta) / gamma)
        return found * s / (power * gamma)

    z, far = beta / gamma, _out(1.0)
    side, top = (abs(z), _out(n)) if both else (z, _out(n, float(log_ndtr(min(z, 0.0)))))
    highest = gamma * (side + top)
    # Below s a share of about s·density: the smallest that counts, unless 0 is out of reach.
    reached = side < far
    share = math.exp(LOG_TAIL + 0.5 * max(side, 0.0) ** 2) if reached else 0.0
    least = gamma * max(side - far, share / max(-side, 1.0))
    width = power / ((1 + math.sqrt(2 * math.log(n + 1))) * max(1.0, abs(z) + 1))
    return Level(
        density,
        -math.inf if both else float(log_ndtr(-z)),
        power * math.log(min(least, highest / 2) if reached else least),
        power * math.log(highest),
        min(_WIDEST, width),
        3.0 * power,
        gamma,
    )


def _powers(power: int, both: bool) -> Callable[[float, float, float], Level]:
    return lambda beta, gamma, n: _of_power(beta, gamma, n, power, both)


LEVELS: dict[Any, Callable[[float, float, float], Level]] = {
    kernels.exp.weight: _of_exp,
    kernels.relu2.weight: _powers(2, both=False),
    kernels.identity.weight: _powers(1, both=True),
    kernels.zoo.absolute.weight: _powers(1, both=True),
    kernels.zoo.relu.weight: _powers(1, both=False),
    kernels.zoo.relu3.weight: _powers(3, both=False),
    kernels.zoo.power2.weight: _powers(2, both=True),
    kernels.zoo.power4.weight: _powers(4, both=True),
}
