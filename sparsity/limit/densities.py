"""The laws of a score as quadrature sees them: a density on a line, and the score along it.

A law is a coordinate t with a density that is analytic, and the score as an increasing function of
t. Gaussian and bounded scores are s = β + γt; `score_moments` has the others.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import mpmath
import numpy as np

from sparsity.kernels.base import Kernel
from sparsity.kernels.numeric.definition import period
from sparsity.kernels.numeric.points import EPS
from sparsity.special import ndtr

Tilt = tuple[float, float, float]  # c₀, c₁, c₂ of a factor e^(c₀ + c₁s + c₂s²)

FAR = 1e25  # of t: mass out there means that it grows without end
_WIDE_IN_PERIODS = 1.53  # γ/P from which 2q, q = exp(−2π²γ²/P²), is below 1e−19
# Ends of the first panels: as narrow as the density is near its peak, then doubling.
_STEPS = np.array([0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, *(2.0 ** np.arange(6, 101))])
STEPS = np.concatenate([-_STEPS[:0:-1], _STEPS])


def between(below: Callable[[Any], Any], low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return P(low < T < high) of a law that is even, given P(T < t), by the tail on their side."""
    if not low.size:  # most weights are nowhere zero, and SciPy need not be loaded for them
        return np.zeros(np.shape(low))
    right = low > 0
    ends = np.where(right, -high, low), np.where(right, -low, high)
    return below(ends[1]) - below(ends[0])


class ScoreLaw(ABC):
    """A law of scores s = β + γt, unless it says otherwise, whose density is even and has one peak.

    Args:
        beta: the score at t = 0.
        gamma: spread of the scores, > 0.

    Attributes:
        steps: ends of the panels to begin with, ascending.
        log_norm: log of the density of t over that of its peak, at the peak.
        tilts: whether the bounds take a tilt.
        growth: what |f| must grow slower than for its moments to exist.
    """

    steps: np.ndarray = STEPS
    log_norm: float
    tilts = False
    growth = "anything that is finite on its ends"

    def __init__(self, beta: float, gamma: float) -> None:
        self.beta, self.gamma = beta, gamma

    def where(self, score: float) -> float:
        """Return the t of a score; not finite where there is none."""
        return (score - self.beta) / self.gamma

    def gap(self, low: float, high: float) -> float:
        """Return the distance in t between two scores, to all digits of their difference."""
        return (high - low) / self.gamma

    def shift(self, t: float, score: float) -> float:
        """Return a bound on the error of t as the place of a score."""
        return 0.0 if score == self.beta else 2 * EPS * abs(t) + self._inexact(score)

    def _inexact(self, score: float) -> float:
        """Return the error of t by that of a root and of its difference from β."""
        return 0.0 if score == 0 else EPS * (abs(self.beta) + abs(score)) / self.gamma

    def offset(self, x: Any, t: Any) -> Any:
        """Return s(t + x) − s(t), in the arithmetic of x."""
        return x.times(self.gamma)

    def slow_offset(self, x: float, t: float) -> Any:
        """Return the same in high precision."""
        return mpmath.mpf(self.gamma) * mpmath.mpf(x)

    @abstractmethod
    def log_density(self, t: Any) -> Any:
        """Return the log of the density over that of its peak."""

    @abstractmethod
    def rounding(self, t: Any) -> Any:
        """Return a bound on the rounding error of the log density."""

    def steep(self, t: Any) -> Any:
        """Return a bound on the slope of the log density."""
        return np.abs(t)

    def bounds_on_segments(self, low: Any, high: Any, tilt: Tilt) -> tuple[Any, Any]:
        """Return the least and largest log of e^(c₀ + c₁s + c₂s²)·density over [low, high]."""
        ends = np.abs(low), np.abs(high)
        near = np.where((low < 0) & (high > 0), 0.0, np.minimum(*ends))
        return self.log_density(np.maximum(*ends)), self.log_density(near)

    @abstractmethod
    def bound_on_boxes(self, centre: Any, width: Any, height: Any, tilt: Tilt) -> Any:
        """Return the largest log of its modulus over boxes centre ± width ± i·height."""

    @abstractmethod
    def mass(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """Return P(low < T < high), to all digits in the tails."""


class Squares(NamedTuple):
    """An exponent a + bt + ct²; of several laws in columns, [laws, 1], bounded together."""

    a: Any
    b: Any
    c: Any

    def bounds_on_segments(self, low: Any, high: Any) -> tuple[Any, Any]:
        """Return its least and largest value over [low, high]: at an end or at the vertex."""
        a, b, c = self
        with np.errstate(divide="ignore", invalid="ignore"):
            top = np.where(np.equal(c, 0), low, np.clip(np.divide(-b, 2 * c), low, high))
        one, two, peak = (a + t * (b + c * t) for t in (low, high, top))
        return np.minimum(np.minimum(one, two), peak), np.maximum(np.maximum(one, two), peak)

    def bound_on_boxes(self, centre: Any, width: Any, height: Any) -> Any:
        """Return its largest real part over boxes centre ± width ± i·height: −cy² is added."""
        most = self.bounds_on_segments(centre - width, centre + width)[1]
        return most + np.maximum(-np.asarray(self.c), 0.0) * height**2


class Gaussian(ScoreLaw):
    """Scores s = β + γt with t ~ N(0, 1)."""

    log_norm = -0.5 * math.log(2 * math.pi)
    tilts = True
    growth = "exp(s²/(2γ²))"

    def log_density(self, t: Any) -> Any:
        return -t * t / 2

    def rounding(self, t: Any) -> Any:
        return 2 * EPS * t * t

    def bounds_on_segments(self, low: Any, high: Any, tilt: Tilt) -> tuple[Any, Any]:
        return self.exponent(tilt).bounds_on_segments(low, high)

    def bound_on_boxes(self, centre: Any, width: Any, height: Any, tilt: Tilt) -> Any:
        return self.exponent(tilt).bound_on_boxes(centre, width, height)

    def mass(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        return between(ndtr, low, high)

    def exponent(self, tilt: Tilt) -> Squares:
        """Return the exponent of a tilt in t, with that of the density in it."""
        c0, c1, c2 = tilt
        beta, gamma = self.beta, self.gamma
        return Squares(
            c0 + beta * (c1 + c2 * beta),
            gamma * (c1 + 2 * c2 * beta),
            (c2 * gamma * gamma if c2 else 0.0) - 0.5,
        )


class Neighbour(Gaussian):
    """Scores s = β + γε in the coordinate t of another Gaussian: log of the density, its peak 0.

    Args:
        frame: the law whose coordinate is used, s = β₀ + γ₀t.
        beta: bias β.
        gamma: spread γ > 0.
    """

    def __init__(self, frame: Gaussian, beta: float, gamma: float) -> None:
        super().__init__(frame.beta, frame.gamma)
        self.delta, self.rho = (beta - frame.beta) / frame.gamma, frame.gamma / gamma

    def log_density(self, t: Any) -> Any:
        x = self.rho * (t - self.delta)
        return -x * x / 2

    def exponent(self, tilt: Tilt) -> Squares:
        a, b, c = super().exponent(tilt)
        sharp = self.rho * self.rho
        return Squares(a - sharp * self.delta**2 / 2, b + sharp * self.delta, c + (1 - sharp) / 2)


class Even(ScoreLaw):
    """Scores s = β + γt, t uniform between two ends.

    Args:
        beta: bias β.
        gamma: spread γ > 0.
        low: the lower end of t, ≤ 0.
        high: the upper end, ≥ 0.
    """

    def __init__(self, beta: float, gamma: float, low: float, high: float) -> None:
        super().__init__(beta, gamma)
        self.steps = np.linspace(low, high, 9)
        self.log_norm = -math.log(high - low)

    def log_density(self, t: Any) -> Any:
        return np.zeros(np.shape(t))

    def rounding(self, t: Any) -> Any:
        return np.full(np.shape(t), 4 * EPS)  # the ends themselves are rounded

    def steep(self, t: Any) -> Any:
        return np.zeros(np.shape(t))

    def bound_on_boxes(self, centre: Any, width: Any, height: Any, tilt: Tilt) -> Any:
        return np.zeros(np.shape(centre))

    def mass(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        return (high - low) * math.exp(self.log_norm)


def gaussian_law(kernel: Kernel, beta: float, gamma: float) -> ScoreLaw:
    """Return the law of a Gaussian score as a kernel sees it: uniform on a period where it is wide.

    E g(β + γε) = mean of g over a period P, up to 2q/(1 − q) of it with q = exp(−2π²γ²/P²), for
    every g ≥ 0 of period P (Poisson's summation formula).
    """
    period_length = period(kernel.weight)
    if period_length is not None and gamma >= _WIDE_IN_PERIODS * period_length:
        return Even(beta, gamma, 0.0, period_length / gamma)
    return Gaussian(beta, gamma)
