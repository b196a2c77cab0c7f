"""Keys of a fixed length in random directions: scores s = β + γ√d cos θ, θ uniform on the sphere.

cos θ = tanh v turns its density ∝ (1 − c²)^((d−3)/2) into one ∝ cosh(v)^(1−d): smooth on the whole
line for every d ≥ 2, and Gaussian in t = √(d−1)·v as d → ∞.
"""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
from numpy.polynomial import Polynomial
from scipy.special import betainc, gammaln, ive

from sparsity.errors import InputError
from sparsity.kernels.numeric.points import EPS, Approx
from sparsity.kernels.numeric.segments import Interval
from sparsity.kernels.numeric.values import Split
from sparsity.kernels.parameters import DIM
from sparsity.limit.score_laws import Gaussian, Tilt, between

_LARGE = 24.0  # order from which the uniform expansion is good to 1e−16
_TERMS = 14  # of the uniform expansion


def log_gamma_excess(x: float) -> float:
    """log[Γ(x + ½)/Γ(x)] − ½ log x, without the cancellation of large logarithms."""
    if x < 30:
        return float(gammaln(x + 0.5) - gammaln(x)) - 0.5 * math.log(x)
    r = 1 / (x * x)  # the difference of the two Stirling series
    return (-1 / 8 + r * (1 / 192 + r * (-1 / 640 + r * (17 / 14336 - r * 31 / 18432)))) / x


class Sphere:
    """Scores s = β + γ√d tanh(t/√(d−1)) of keys on a sphere in R^d.

    Args:
        beta: bias.
        gamma: spread of the scores, γ = κ/√d.
        dim: d ≥ 2.
    """

    tilts = False
    growth = "anything that is finite on its ends"

    def __init__(self, beta: float, gamma: float, dim: int) -> None:
        self.beta, self.gamma, self.dim = beta, gamma, dim
        self.scale, self.reach = math.sqrt(dim - 1), gamma * math.sqrt(dim)
        # Scores are bounded: what lies beyond v = 10⁶ has no mass.
        self.steps = Gaussian.steps[np.abs(Gaussian.steps) <= 1e6 * self.scale]
        # ∫ cosh(v)^(1−d) dv = √π Γ((d−1)/2)/Γ(d/2)
        self.log_norm = log_gamma_excess((dim - 1) / 2) - 0.5 * math.log(2 * math.pi)

    def where(self, score: float) -> float:
        """The t of a score; −√d and √d are never reached."""
        c = (score - self.beta) / self.reach
        return self.scale * math.atanh(c) if abs(c) < 1 else math.nan

    def gap(self, low: float, high: float) -> float:
        one, two = ((score - self.beta) / self.reach for score in (low, high))
        return self.scale * math.atanh((high - low) / self.reach / (1 - one * two))

    def shift(self, t: float, score: float) -> float:
        if score == self.beta:
            return 0.0
        steep = math.cosh(min(abs(t) / self.scale, 300.0)) ** 2
        inexact = 0.0 if score == 0 else EPS * (abs(self.beta) + abs(score)) / self.gamma
        return (2 * EPS * abs(t) + inexact) * steep

    def offset(self, x: Any, t: Any) -> Any:
        """s(t + x) − s(t) = γ√d sinh(x′)/(cosh(t′ + x′) cosh t′), x′ = x/√(d−1), t′ likewise."""
        if isinstance(x, Interval):  # it rises
            low, high = (self.offset(end, t) for end in x)
            return Interval(Approx(low.m - low.e, 0.0, low.k), Approx(high.m + high.e, 0.0, high.k))
        kind, v = type(x), np.asarray(t) / self.scale
        with np.errstate(all="ignore"):
            small = x.times(1 / self.scale) * kind.exact(1.0, 2 * EPS)
            blur = kind.exact(0.0, 2 * EPS * np.abs(v))
            end, start = Split(v, small + blur).settled(), Split(v, blur).settled()
            rise, fall = Split(0.0, small).sinh(), end.cosh().reciprocal()
            slope = 1 / np.cosh(np.minimum(np.abs(v), 300.0))
            near = (rise * fall).whole() * kind.exact(slope, 4 * EPS * slope)
            far = (end.tanh() - start.tanh()).whole()
            found = kind.where(small.magnitude() < 1, near, far)
            return found * kind.exact(self.reach, 2 * EPS * self.reach)

    def slow_offset(self, x: float, t: float) -> Any:
        v, scale = mpmath.mpf(t), mpmath.sqrt(self.dim - 1)
        reach = mpmath.mpf(self.gamma) * mpmath.sqrt(self.dim)
        return reach * (mpmath.tanh((v + mpmath.mpf(x)) / scale) - mpmath.tanh(v / scale))

    def log_density(self, t: Any) -> Any:
        """−(d−1) log cosh v = −(d−1)[½ log1p(sinh² v)], in a form that does not overflow."""
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

    steep = Gaussian.steep

    def bounds(self, low: Any, high: Any, tilt: Tilt) -> tuple[Any, Any]:
        """Least and largest log density over [low, high]."""
        ends = np.abs(low), np.abs(high)
        near = np.where((low < 0) & (high > 0), 0.0, np.minimum(*ends))
        return self.log_density(np.maximum(*ends)), self.log_density(near)

    def around(self, centre: Any, width: Any, height: Any, tilt: Tilt) -> Any:
        """Largest log|density| over boxes: |cosh(x + iy)|² = sinh² x + cos² y for |y| < π/2."""
        near = np.maximum(np.abs(centre) - width, 0.0) / self.scale
        y = height / self.scale
        least = np.sinh(np.minimum(near, 300.0)) ** 2 + np.cos(np.minimum(y, 1.5)) ** 2
        found = np.where(near < 300, -(self.dim - 1) / 2 * np.log(least), -(self.dim - 1) * near)
        return np.where(y < 1.5, found + EPS * self.dim, np.inf)


def _debye() -> list[Polynomial]:
    """U_k(p) of the uniform expansion of I_ν, from their recurrence (DLMF 10.41.9)."""
    p2 = Polynomial([0, 0, 1])
    u = [Polynomial([1.0])]
    for _ in range(_TERMS):
        last = u[-1]
        u.append(0.5 * p2 * (1 - p2) * last.deriv() + ((1 - 5 * p2) * last).integ() / 8)
    return u


_U = _debye()


def _log_exp_mean(kappa: float, dim: int) -> float:
    """See `log_exp_mean`, for one κ and d."""
    nu, x = dim / 2 - 1, abs(kappa)
    if x * x / 4 <= 4 * (nu + 1):  # ₀F₁(; ν+1; κ²/4), terms that fall from early on
        k = np.arange(1, 80)
        return math.log1p(float(np.sum(np.cumprod(x * x / 4 / (k * (nu + k))))))
    if nu < _LARGE:
        return float(gammaln(nu + 1) + nu * math.log(2 / x) + math.log(ive(nu, x)) + x)
    # lnΓ(ν+1) + ν ln(2/κ) + ln I_ν(κ), their large logarithms cancelled by hand (DLMF 10.41.3).
    z = x / nu
    root = math.hypot(1, z)
    rise = z * z / (1 + root)  # √(1+z²) − 1
    terms = math.fsum(float(u(1 / root)) / nu**k for k, u in enumerate(_U))
    r = 1 / (nu * nu)
    stirling = (1 / 12 - r * (1 / 360 - r * (1 / 1260 - r / 1680))) / nu
    return nu * (rise - math.log1p(rise / 2)) - 0.5 * math.log(root) + math.log(terms) + stirling


def log_exp_mean(kappa: Any, dim: Any) -> np.ndarray:
    """Log of E e^(κ cos θ) = Γ(d/2) (2/κ)^(d/2−1) I_{d/2−1}(κ) for a uniform direction in R^d.

    Args:
        kappa: κ, any finite numbers.
        dim: d ≥ 2, whole numbers, broadcastable with `kappa`.

    Returns:
        The logarithm, also where the Bessel function under- or overflows.

    Raises:
        InputError: a value outside its domain.
    """
    kappa, dim = np.broadcast_arrays(np.asarray(kappa, dtype=np.float64), DIM.check(dim))
    if not np.all(np.isfinite(kappa)):
        raise InputError("kappa", kappa, "must be finite")
    if np.any(dim < 2):
        raise InputError("dim", dim, "must be >= 2")
    values = [_log_exp_mean(float(k), int(d)) for k, d in zip(kappa.flat, dim.flat, strict=True)]
    return np.array(values, dtype=np.float64).reshape(kappa.shape)


def log_sparsity(gamma: Any, dim: Any) -> np.ndarray:
    """Log S of exp with keys on the sphere: S = E e^(κ cos θ) / √(E e^(2κ cos θ)), κ = γ√d.

    Tends to −γ²/2 as d → ∞, that of Gaussian keys.

    Args:
        gamma: spread of the scores.
        dim: d ≥ 2.
    """
    kappa = np.asarray(gamma, dtype=np.float64) * np.sqrt(DIM.check(dim))
    return log_exp_mean(kappa, dim) - 0.5 * log_exp_mean(2 * kappa, dim)
