"""Keys of a fixed length in random directions: scores s = β + γ√d cos θ, θ uniform on the sphere.

cos θ = tanh v turns its density ∝ (1 − c²)^((d−3)/2) into one ∝ cosh(v)^(1−d): smooth on the whole
line for every d ≥ 2, and Gaussian in t = √(d−1)·v as d → ∞.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.polynomial import Polynomial
from scipy.special import gammaln, ive

from sparsity import quadrature
from sparsity.definition import Axis, definition
from sparsity.errors import InputError
from sparsity.kernels.base import Kernel
from sparsity.kernels.parameters import DIM

__all__ = ["SphereAxis", "log_exp_mean", "log_moment", "log_sparsity"]

_REACH = 110.0  # depth of the density, in e-folds, to which the grid goes
_LARGE = 24.0  # order from which the uniform expansion is good to 1e−16
_TERMS = 14  # of the uniform expansion


def _log_gamma_excess(x: float) -> float:
    """log[Γ(x + ½)/Γ(x)] − ½ log x, without the cancellation of large logarithms."""
    if x < 30:
        return float(gammaln(x + 0.5) - gammaln(x)) - 0.5 * math.log(x)
    r = 1 / (x * x)  # the difference of the two Stirling series
    return (-1 / 8 + r * (1 / 192 + r * (-1 / 640 + r * (17 / 14336 - r * 31 / 18432)))) / x


class SphereAxis(Axis):
    """The axis of t = √(d−1)·artanh(cos θ), in coordinates anchored at kinks of f (and t = 0).

    Args:
        kernel: a kernel of Law.SCORE.
        beta: bias.
        gamma: spread of the scores, γ = κ/√d.
        dim: d ≥ 2.
    """

    def __init__(self, kernel: Kernel, beta: float, gamma: float, dim: int) -> None:
        """Place the anchors."""
        self.dim, self.scale = dim, math.sqrt(dim - 1)
        far = self.scale * math.acosh(math.exp(min(_REACH / (dim - 1), 700.0)))
        self.grid = np.arange(-math.ceil(2 * far), math.ceil(2 * far) + 1) / 2
        # ∫ cosh(v)^(1−d) dv = √π Γ((d−1)/2)/Γ(d/2)
        self.log_norm = _log_gamma_excess((dim - 1) / 2) - 0.5 * math.log(2 * math.pi)
        super().__init__(kernel, beta, gamma)
        self.shift = self.shift * np.cosh(np.minimum(np.abs(self.t) / self.scale, 300.0)) ** 2

    def where(self, z: float) -> float:
        """The t of a standardised score; −√d and √d are never reached."""
        c = z / math.sqrt(self.dim)
        return self.scale * math.atanh(c) if abs(c) < 1 else math.nan

    def score(self, a: np.ndarray, x: np.ndarray) -> np.ndarray:
        """s_a + γ√d (tanh(v_a + x') − tanh v_a), without the cancellation of that difference."""
        here, step = np.tanh(self.t[a] / self.scale), np.tanh(x / self.scale)
        rise = step * (1 - here * here) / (1 + here * step)
        return self.s[a] + self.gamma * math.sqrt(self.dim) * rise

    def log_density(self, t: np.ndarray) -> np.ndarray:
        """−(d−1) log cosh v = −(d−1)[½ log1p(sinh² v)], in a form that does not overflow."""
        v = np.abs(t) / self.scale
        small = 0.5 * np.log1p(np.sinh(np.minimum(v, 1.0)) ** 2)
        large = v + np.log1p(np.exp(-2 * v)) - math.log(2)
        return -(self.dim - 1) * np.where(v < 1, small, large)


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


def log_moment(
    kernel: Kernel, p: float, beta: float, gamma: float, dim: int | None = None
) -> tuple[float, float]:
    """Log E|f(s)|^p by quadrature of the definition, and a bound on its error.

    Args:
        kernel: a kernel of Law.SCORE.
        p: the order, > 0.
        beta: bias.
        gamma: spread ≥ 0; 0 is a fixed score.
        dim: d of keys on the sphere; None for Gaussian scores.

    Raises:
        InputError: the moment is infinite, or the weight not a finite real number.
    """
    if gamma == 0:
        value, error = definition(kernel)(np.array([beta]))
        return p * float(value[0]), p * float(error[0])
    axis = SphereAxis(kernel, beta, gamma, dim) if dim else Axis(kernel, beta, gamma)
    value, error = quadrature.log_integral(axis, p)
    return value + float(axis.log_norm), error
