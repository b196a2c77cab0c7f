"""The laws of a score as quadrature sees them: a density on a line, and the score along it.

A law is a coordinate t with a density that is analytic, and the score as an increasing function of
t. Gaussian and bounded scores are s = β + γt; `scores` has the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import mpmath
import numpy as np
from scipy.special import ndtr

from sparsity.kernels.base import Kernel
from sparsity.kernels.numeric.periods import period
from sparsity.kernels.numeric.points import EPS

Tilt = tuple[float, float, float]  # c₀, c₁, c₂ of a factor e^(c₀ + c₁s + c₂s²)

FAR = 1e25  # of t: mass out there means that it grows without end
_WIDE = 1.53  # γ/P from which 2q is below 1e−19
_STEPS = np.array([0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, *(2.0 ** np.arange(6, 101))])


class ScoreLaw(Protocol):
    """What quadrature asks of a law.

    Attributes:
        beta: the score at t = 0.
        gamma: spread of the scores.
        steps: ends of the panels to begin with, ascending.
        log_norm: log of the density of t over that of its peak, at the peak.
        tilts: whether `bounds` and `around` take a tilt.
        growth: what |f| must grow slower than for its moments to exist.
    """

    beta: float
    gamma: float
    steps: np.ndarray
    log_norm: float
    tilts: bool
    growth: str

    def where(self, score: float) -> float:
        """The t of a score; not finite where there is none."""
        ...

    def gap(self, low: float, high: float) -> float:
        """The distance in t between two scores, to all digits of their difference."""
        ...

    def shift(self, t: float, score: float) -> float:
        """Error of t as the place of a score."""
        ...

    def offset(self, x: Any, t: Any) -> Any:
        """s(t + x) − s(t), in the arithmetic of x."""
        ...

    def slow_offset(self, x: float, t: float) -> Any:
        """The same in high precision."""
        ...

    def log_density(self, t: Any) -> Any:
        """Log of the density over that of its peak."""
        ...

    def rounding(self, t: Any) -> Any:
        """Bound on the rounding error of the log density."""
        ...

    def steep(self, t: Any) -> Any:
        """Bound on the slope of the log density."""
        ...

    def bounds(self, low: Any, high: Any, tilt: Tilt) -> tuple[Any, Any]:
        """Least and largest log of e^(c₀ + c₁s + c₂s²) times the density, over [low, high]."""
        ...

    def around(self, centre: Any, width: Any, height: Any, tilt: Tilt) -> Any:
        """Largest log of its modulus over boxes centre ± width ± i·height."""
        ...

    def mass(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """P(low < T < high), to all digits in the tails."""
        ...


def between(below: Callable[[Any], Any], low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """P(low < T < high) of a law that is even, given P(T < t), by the tail on their side."""
    right = low > 0
    ends = np.where(right, -high, low), np.where(right, -low, high)
    return below(ends[1]) - below(ends[0])


class Squares(NamedTuple):
    """An exponent a + bt + ct²; of several laws in columns, [laws, 1], bounded together."""

    a: Any
    b: Any
    c: Any

    def bounds(self, low: Any, high: Any) -> tuple[Any, Any]:
        """Its least and largest value over [low, high]."""
        a, b, c = self
        with np.errstate(divide="ignore", invalid="ignore"):
            top = np.where(np.equal(c, 0), low, np.clip(np.divide(-b, 2 * c), low, high))
        one, two, peak = (a + t * (b + c * t) for t in (low, high, top))
        return np.minimum(np.minimum(one, two), peak), np.maximum(np.maximum(one, two), peak)

    def around(self, centre: Any, width: Any, height: Any) -> Any:
        """Its largest real part over boxes centre ± width ± i·height."""
        most = self.bounds(centre - width, centre + width)[1]
        return most + np.maximum(-np.asarray(self.c), 0.0) * height**2


class Gaussian:
    """Scores s = β + γt with t ~ N(0, 1).

    Args:
        beta: bias β.
        gamma: spread γ > 0.
    """

    log_norm = -0.5 * math.log(2 * math.pi)
    steps = np.concatenate([-_STEPS[:0:-1], _STEPS])
    tilts = True
    growth = "exp(s²/(2γ²))"

    def __init__(self, beta: float, gamma: float) -> None:
        self.beta, self.gamma = beta, gamma

    def where(self, score: float) -> float:
        return (score - self.beta) / self.gamma

    def gap(self, low: float, high: float) -> float:
        return (high - low) / self.gamma

    def shift(self, t: float, score: float) -> float:
        if score == self.beta:
            return 0.0
        inexact = 0.0 if score == 0 else EPS * (abs(self.beta) + abs(score)) / self.gamma
        return 2 * EPS * abs(t) + inexact

    def offset(self, x: Any, t: Any) -> Any:
        """s(t + x) − s(t) = γx."""
        return x.times(self.gamma)

    def slow_offset(self, x: float, t: float) -> Any:
        return mpmath.mpf(self.gamma) * mpmath.mpf(x)

    def log_density(self, t: Any) -> Any:
        return -t * t / 2

    def rounding(self, t: Any) -> Any:
        return 2 * EPS * t * t

    def steep(self, t: Any) -> Any:
        return np.abs(t)

    def bounds(self, low: Any, high: Any, tilt: Tilt) -> tuple[Any, Any]:
        return Squares(*self.square(tilt)).bounds(low, high)

    def around(self, centre: Any, width: Any, height: Any, tilt: Tilt) -> Any:
        return Squares(*self.square(tilt)).around(centre, width, height)

    def mass(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        return between(ndtr, low, high)

    def square(self, tilt: Tilt) -> tuple[float, float, float]:
        """Coefficients of 1, t and t² in the exponent, that of the density in it."""
        c0, c1, c2 = tilt
        beta, gamma = self.beta, self.gamma
        return (
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

    def square(self, tilt: Tilt) -> tuple[float, float, float]:
        a, b, c = super().square(tilt)
        sharp = self.rho * self.rho
        return a - sharp * self.delta**2 / 2, b + sharp * self.delta, c + (1 - sharp) / 2


class Even:
    """Scores s = β + γt, t uniform between two ends.

    Args:
        beta: bias β.
        gamma: spread γ > 0.
        low: the lower end of t, ≤ 0.
        high: the upper end, ≥ 0.
    """

    tilts = False
    growth = "anything that is finite on its ends"

    def __init__(self, beta: float, gamma: float, low: float, high: float) -> None:
        self.beta, self.gamma = beta, gamma
        self.steps = np.linspace(low, high, 9)
        self.log_norm = -math.log(high - low)

    where, shift, gap = Gaussian.where, Gaussian.shift, Gaussian.gap
    offset, slow_offset = Gaussian.offset, Gaussian.slow_offset

    def log_density(self, t: Any) -> Any:
        """Zero: all t are alike."""
        return np.zeros(np.shape(t))

    def rounding(self, t: Any) -> Any:
        """The ends themselves are rounded."""
        return np.full(np.shape(t), 4 * EPS)

    def steep(self, t: Any) -> Any:
        return np.zeros(np.shape(t))

    def bounds(self, low: Any, high: Any, tilt: Tilt) -> tuple[Any, Any]:
        return np.zeros(np.shape(low)), np.zeros(np.shape(low))

    def around(self, centre: Any, width: Any, height: Any, tilt: Tilt) -> Any:
        return np.zeros(np.shape(centre))

    def mass(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        return (high - low) * math.exp(self.log_norm)


def gaussian_law(kernel: Kernel, beta: float, gamma: float) -> ScoreLaw:
    """The law of a Gaussian score as a kernel sees it: uniform on a period where it is wide.

    E g(β + γε) = mean of g over a period P, up to 2q/(1 − q) of it with q = exp(−2π²γ²/P²), for
    every g ≥ 0 of period P (Poisson's summation formula).
    """
    found = period(kernel.weight)
    if found is not None and gamma >= _WIDE * found:
        return Even(beta, gamma, 0.0, found / gamma)
    return Gaussian(beta, gamma)
