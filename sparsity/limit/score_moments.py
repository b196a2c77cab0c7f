"""Moments of a weight under any law of the scores, with a density or as a sum of laws.

The densities other than the Gaussian one stand here: keys on a sphere, and Student-t scores.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

from sparsity.errors import InputError
from sparsity.kernels import exp
from sparsity.kernels.base import Kernel
from sparsity.kernels.numeric.definition import Values, definition
from sparsity.kernels.numeric.intervals import Interval
from sparsity.kernels.numeric.points import EPS, Approx
from sparsity.kernels.numeric.split import Split
from sparsity.limit import moments
from sparsity.limit.densities import STEPS, Even, ScoreLaw, Tilt, between, gaussian_law
from sparsity.limit.panels import Axis
from sparsity.rows.score_laws import END, StudentT, Uniform
from sparsity.rows.steps import QKNorm
from sparsity.special import betainc, gammaln, stdtr

_LEAST_FALL = 0.05  # power of t that the tail of a moment must fall by


def _log_gamma_excess(x: float) -> float:
    """Return log[Γ(x + ½)/Γ(x)] − ½ log x, without the cancellation of large logarithms."""
    if x < 30:
        return float(gammaln(x + 0.5) - gammaln(x)) - 0.5 * math.log(x)
    r = 1 / (x * x)  # the difference of the two Stirling series
    return (-1 / 8 + r * (1 / 192 + r * (-1 / 640 + r * (17 / 14336 - r * 31 / 18432)))) / x


class Sphere(ScoreLaw):
    """Scores s = β + γ√d cos θ of keys in random directions, θ uniform on the sphere in R^d.

    cos θ = tanh v turns its density ∝ (1 − c²)^((d−3)/2) into one ∝ cosh(v)^(1−d): smooth on the
    whole line for every d ≥ 2, and Gaussian in t = √(d−1)·v as d → ∞.

    Args:
        beta: bias.
        gamma: spread of the scores, γ = κ/√d.
        dim: d ≥ 2.
    """

    def __init__(self, beta: float, gamma: float, dim: int) -> None:
        super().__init__(beta, gamma)
        self.dim, self.scale, self.reach = dim, math.sqrt(dim - 1), gamma * math.sqrt(dim)
        # Scores are bounded: what lies beyond v = 10⁶ has no mass.
        self.steps = STEPS[np.abs(STEPS) <= 1e6 * self.scale]
        # ∫ cosh(v)^(1−d) dv = √π Γ((d−1)/2)/Γ(d/2)
        self.log_norm = _log_gamma_excess((dim - 1) / 2) - 0.5 * math.log(2 * math.pi)

    def where(self, score: float) -> float:
        c = (score - self.beta) / self.reach  # ±1 are never reached
        return self.scale * math.atanh(c) if abs(c) < 1 else math.nan

    def gap(self, low: float, high: float) -> float:
        """Return atanh a − atanh b = atanh((a − b)/(1 − ab)), which keeps all digits."""
        one, two = ((score - self.beta) / self.reach for score in (low, high))
        return self.scale * math.atanh((high - low) / self.reach / (1 - one * two))

    def shift(self, t: float, score: float) -> float:
        if score == self.beta:
            return 0.0
        steep = math.cosh(min(abs(t) / self.scale, 300.0)) ** 2
        return (2 * EPS * abs(t) + self._inexact(score)) * steep

    def offset(self, x: Any, t: Any) -> Any:
        """Return γ√d (tanh(t′ + x′) − tanh t′), x′ = x/√(d−1) and t′ likewise.

        The difference would cancel for small x, where it is sinh x′/(cosh(t′ + x′) cosh t′). For
        |x′| ≥ 1 the difference is taken: there cosh may be beyond float64. A segment needs its ends
        only, since the offset rises with x. All that is known in float64 (t, √(d−1), γ√d) enters
        with its rounding as a factor 1 ± 2ε or an error.
        """
        if isinstance(x, Interval):
            return x.rising(lambda end: self.offset(end, t))
        kind, v = type(x), np.asarray(t) / self.scale
        with np.errstate(all="ignore"):
            small = x.times(1 / self.scale) * kind.exact(1.0, 2 * EPS)
            blur = kind.exact(0.0, 2 * EPS * np.abs(v))
            end, start = Split(v, small + blur).settled(), Split(v, blur).settled()
            rise, fall = Split(0.0, small).sinh(), end.cosh().reciprocal()
            slope = 1 / np.cosh(np.minimum(np.abs(v), 300.0))
            near = (rise * fall).whole() * kind.exact(slope, 4 * EPS * slope)
            far = (end.tanh() - start.tanh()).whole()
            difference = kind.where(small.magnitude() < 1, near, far)
            return difference * kind.exact(self.reach, 2 * EPS * self.reach)

    def slow_offset(self, x: float, t: float) -> Any:
        v, scale = mpmath.mpf(t), mpmath.sqrt(self.dim - 1)
        reach = mpmath.mpf(self.gamma) * mpmath.sqrt(self.dim)
        return reach * (mpmath.tanh((v + mpmath.mpf(x)) / scale) - mpmath.tanh(v / scale))

    def log_density(self, t: Any) -> Any:
        """Return −(d−1) log cosh v, log cosh v = ½ log1p(sinh² v), so that it does not overflow."""
        v = np.abs(t) / self.scale
        small = 0.5 * np.log1p(np.sinh(np.minimum(v, 1.0)) ** 2)
        large = v + np.log1p(np.exp(-2 * v)) - math.log(2)
        return -(self.dim - 1) * np.where(v < 1, small, large)

    def rounding(self, t: Any) -> Any:
        return 8 * EPS * np.abs(self.log_density(t)) + 2 * EPS * t * t

    def mass(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        def below(t: np.ndarray) -> np.ndarray:
            square = 1 / np.cosh(np.minimum(np.abs(t) / self.scale, 300.0)) ** 2  # 1 − cos²
            tail = betainc((self.dim - 1) / 2, 0.5, square) / 2
            return np.where(t > 0, 1 - tail, tail)

        return between(below, low, high)

    def bound_on_boxes(self, centre: Any, width: Any, height: Any, tilt: Tilt) -> Any:
        """Bound log|density| by |cosh(x + iy)|² = sinh² x + cos² y for |y| < π/2."""
        near = np.maximum(np.abs(centre) - width, 0.0) / self.scale
        y = height / self.scale
        least = np.sinh(np.minimum(near, 300.0)) ** 2 + np.cos(np.minimum(y, 1.5)) ** 2
        bound = np.where(near < 300, -(self.dim - 1) / 2 * np.log(least), -(self.dim - 1) * near)
        return np.where(y < 1.5, bound + EPS * self.dim, np.inf)


class Student(ScoreLaw):
    """Scores s = β + γt of density ∝ (1 + t²/κ)^(−(ν+1)/2), κ = ν − 2: of variance γ².

    It has poles at ±i√κ, and panels that double reach out to 2¹⁰⁰.

    Args:
        beta: bias β.
        gamma: spread γ > 0.
        degrees: ν > 2.
    """

    def __init__(self, beta: float, gamma: float, degrees: float) -> None:
        super().__init__(beta, gamma)
        self.degrees, self.kappa, self.power = degrees, degrees - 2, (degrees + 1) / 2
        exists = "; rows of n have n_eff all the same: use exact or estimate with a length"
        self.growth = f"|s|^({degrees:g}/p) under Student-t scores{exists}"
        # ∫ (1 + t²/κ)^(−(ν+1)/2) dt = √(πκ) Γ(ν/2)/Γ((ν+1)/2)
        self.log_norm = _log_gamma_excess(degrees / 2) + 0.5 * math.log(
            degrees / (degrees - 2) / (2 * math.pi)
        )

    def log_density(self, t: Any) -> Any:
        return -self.power * np.log1p(np.square(t) / self.kappa)

    def rounding(self, t: Any) -> Any:
        return 8 * EPS * (1 + np.abs(self.log_density(t)))

    def steep(self, t: Any) -> Any:
        """Return |d log density / dt| = (ν + 1)|t|/(κ + t²)."""
        return 2 * self.power * np.abs(t) / (self.kappa + np.square(t))

    def mass(self, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        scale = math.sqrt(self.degrees / self.kappa)
        return between(lambda t: stdtr(self.degrees, t * scale), low, high)

    def bound_on_boxes(self, centre: Any, width: Any, height: Any, tilt: Tilt) -> Any:
        """Bound log|density| by |z² + κ|, which is at least its real part.

        And at least the square of the distance to a pole.
        """
        pole, across = math.sqrt(self.kappa), np.maximum(np.abs(centre) - width, 0.0)
        real = (across - height) * (across + height) / self.kappa
        distance = np.hypot(across, np.maximum(pole - height, 0.0)) / pole
        with np.errstate(divide="ignore", over="ignore"):
            apart = -2 * self.power * np.log(distance)
            near = np.where(real > -0.5, -self.power * np.log1p(np.maximum(real, -0.5)), np.inf)
            return np.minimum(near, apart)


# Laws with a density; those with `parts` are sums of Gaussian laws and points.
_LAWS: dict[type[Any], Callable[[float, float, Any], ScoreLaw]] = {
    QKNorm: lambda beta, gamma, scores: Sphere(beta, gamma, scores.dim),
    Uniform: lambda beta, gamma, scores: Even(beta, gamma, -END, END),
    StudentT: lambda beta, gamma, scores: Student(beta, gamma, scores.degrees),
}


def score_law(kernel: Kernel, beta: float, gamma: float, scores: Any = None) -> ScoreLaw:
    """Return the law of a score as a kernel sees it.

    Args:
        kernel: a kernel of Law.SCORE.
        beta: bias.
        gamma: spread > 0.
        scores: a law with a density; None for Gaussian scores.
    """
    if scores is None:
        return gaussian_law(kernel, beta, gamma)
    return _LAWS[type(scores)](beta, gamma, scores)


def at_points(kernel: Kernel, beta: float, gamma: float, x: np.ndarray) -> Values:
    """Return |f(β + γx)| at points, with their rounding errors."""
    return definition(kernel).values_at(beta, Approx(x).times(gamma), fixed=True)


Moment = tuple[float, float]  # the logarithm, and a bound on its error


def log_moment(kernel: Kernel, p: float, beta: float, gamma: float, scores: Any = None) -> Moment:
    """Return `log_moments` of a single order."""
    return log_moments(kernel, (p,), beta, gamma, scores)[0]


@functools.lru_cache(maxsize=1024)  # rows of several lengths have tokens of the same laws
def log_moments(
    kernel: Kernel, orders: tuple[float, ...], beta: float, gamma: float, scores: Any = None
) -> tuple[Moment, ...]:
    """Return log E|f(s)|^p by quadrature, of several orders on the same panels.

    Args:
        kernel: a kernel of Law.SCORE.
        orders: p, each > 0.
        beta: bias.
        gamma: spread ≥ 0; 0 is a fixed score.
        scores: the law of x in β + γx; None for Gaussian scores.

    Returns:
        The logarithm and a bound on its error, of each order.

    Raises:
        InputError: a moment is infinite, or the weight not a finite real number.
    """
    if gamma == 0:
        weight = at_points(kernel, beta, 0.0, np.zeros(1))
        log, off = float(weight.log[0]), float(weight.error[0])
        return tuple((p * log, p * off) for p in orders)
    if scores is not None and scores.parts is not None:
        return _summed(kernel, orders, beta, gamma, scores.parts)
    # In closed form, for rows of thousands of laws; where that has no digits, quadrature says so.
    if scores is None and kernel.weight == exp.weight and gamma < 1e6:
        squares = 0.5 * gamma * gamma
        return tuple(
            (p * (beta + p * squares), 4 * EPS * p * (abs(beta) + p * squares)) for p in orders
        )
    law = score_law(kernel, beta, gamma, scores)
    values, errors = moments.log_moments(Axis(definition(kernel), law), orders)
    by_order = zip(orders, values.tolist(), errors.tolist(), strict=True)
    if isinstance(law, Student):
        return tuple((x + law.log_norm, off + _beyond(kernel, p, law, x)) for p, x, off in by_order)
    return tuple((x + law.log_norm, off) for _, x, off in by_order)


def _summed(
    kernel: Kernel,
    orders: tuple[float, ...],
    beta: float,
    gamma: float,
    parts: tuple[np.ndarray, ...],
) -> tuple[Moment, ...]:
    """Return the same of a sum of Gaussian laws and points."""
    share, mean, deviation = parts
    point = deviation == 0
    at = at_points(kernel, beta, gamma, mean[point])
    if np.any(np.isnan(at.log) | (at.log == np.inf)):
        raise InputError("weight", kernel.weight, "is not a finite real number at some score")
    laws = [
        log_moments(kernel, orders, beta + gamma * m, gamma * d)
        for m, d in zip(mean[~point], deviation[~point], strict=True)
    ]
    log_share = np.log(np.concatenate([share[point], share[~point]]))
    spread = np.array(laws).reshape(len(laws), len(orders), 2)
    pairs = []
    for i, p in enumerate(orders):
        masses = np.concatenate([p * at.log, spread[:, i, 0]]) + log_share
        errors = np.concatenate([p * at.error, spread[:, i, 1]])
        top = float(masses.max())
        if top == -math.inf:
            raise InputError("weight", kernel.weight, "vanishes at every score of the sample")
        held = masses > -np.inf
        mass = np.exp(masses[held] - top)
        total, blur = math.fsum(mass), errors[held] + 2 * EPS * (2 + np.abs(masses[held]))
        error = float(mass @ blur) / total + 2 * EPS * (1 + abs(top))
        pairs.append((top + math.log(total), error))
    return tuple(pairs)


def _beyond(kernel: Kernel, p: float, law: Student, log_moment: float) -> float:
    """Return what lies beyond the last panels, over the moment: it falls like a power there.

    The masses of two octaves at the end give that power: if the mass per octave falls like t^(−r),
    all that is beyond holds about the last one over r. The 2 allows for the density not being a
    power yet. Gaussian tails need none of this: nothing of them lies beyond the last panels.

    Raises:
        InputError: it does not fall fast enough for that to be known.
    """
    far = law.steps[-1] * np.array([[0.5, 1.0], [-0.5, -1.0]])
    log_f = at_points(kernel, law.beta, law.gamma, far.ravel()).log.reshape(2, 2)
    mass = p * log_f + law.log_density(far) + np.log(np.abs(far))  # of an octave, about
    left = 0.0
    for near, end in mass:
        if end == -np.inf:
            continue
        fall = (near - end) / math.log(2)
        if not fall > _LEAST_FALL:
            fix = f"E|a|^{p:g} is infinite, or nearly: it must grow slower than {law.growth}"
            raise InputError("weight", kernel.weight, fix)
        left += math.exp(min(end - log_moment, 700.0)) / fall
    return 2 * left
