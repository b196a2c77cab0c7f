"""The exact law of real rows: n independent weights a_j = f(s_j), n finite.

With φ(t) = E e^(−ta²), m1(t) = E|a|e^(−ta²), m2(t) = E a² e^(−ta²), an i.i.d. row has
    n_eff = E[(Σ|a|)²/Σa²] = ∫₀^∞ [n m2 φ^(n−1) + n(n−1) m1² φ^(n−2)] dt,
    E S_n = E[‖a‖₁/(√n‖a‖₂)] = √(n/π) ∫₀^∞ t^(−1/2) m1 φ^(n−1) dt.
In u = ln t the integrand is analytic in a strip of half-width π/2 and the trapezoidal rule
converges like e^(−π²/step). Rows whose tokens differ: `finite_rows`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsity import kernels
from sparsity.errors import InputError
from sparsity.finite.laplace import TAIL, Laplace, laplace
from sparsity.kernels.base import Kernel, Law
from sparsity.kernels.parameters import LENGTH
from sparsity.kernels.symmetry import symmetry

__all__ = ["SLOW", "FiniteLength", "n_eff", "participation", "row_sparsity"]

_STEP = 0.16  # of u = ln t; the check runs at twice the step
SLOW = -np.log(TAIL)  # of u: how much further down a summand of order √t matters than one of t


@dataclass(frozen=True)
class FiniteLength:
    """A row of n weights, on average over rows that are not all zero.

    Args:
        length: n.
        n_eff: E[(Σ|a|)²/Σa²] given a nonzero row, in [1, n].
        S_rms: √(n_eff/n), which tends to S as n → ∞.
        p_nonzero: probability that the row is not all zero.
        error_bound: bound on the relative error of n_eff.
    """

    length: np.ndarray
    n_eff: np.ndarray
    S_rms: np.ndarray
    p_nonzero: np.ndarray
    error_bound: np.ndarray


def _p_row(law: Laplace, n: np.ndarray) -> np.ndarray:
    """P(a row of n is not all zero) / e^top, one row for each column of the law."""
    scale, single = np.exp(law.top), law.p_nonzero[:, None]
    if scale < 1e-290:
        return n * single
    p = np.minimum(single * scale, 1.0)
    p = np.where(p > 1 - 1e-13, 1.0, p)
    with np.errstate(divide="ignore"):
        return -np.expm1(n * np.log1p(-p)) / scale


def _law(kernel: str | Kernel, parameters: dict[str, Any], c: int, k: tuple[float, ...]) -> Laplace:
    kernel = kernels.named(kernel)
    if kernel.law is not Law.SCORE:
        raise InputError("kernel", kernel.name, "needs a kernel that is a function of the score")
    bound = kernel.bind(parameters)
    for name, value in bound.items():
        if np.ndim(value):
            raise InputError(name, value, "give one number; only the length may be an array")
    beta, gamma = float(bound["beta"]), float(bound["gamma"])
    # What multiplies all weights of a row alike leaves their ratios, and is left out.
    exponent, degree = symmetry(kernel)
    if exponent is not None:
        beta = 0.0
    elif degree is not None and math.isfinite(beta / gamma):
        beta, gamma = beta / gamma, 1.0
    with np.errstate(over="ignore", invalid="ignore"):  # far out in the tails, where nothing falls
        return laplace(kernel, beta, gamma, c, k)


def _integrate(
    law: Laplace, length: Any, integrand: Callable[..., np.ndarray], reach: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(n, ∫ integrand du / P(row ≠ 0), P(row ≠ 0), relative error bound) for every length.

    `reach` is how far below the range of a summand of order t the integrand still matters.
    """
    n = LENGTH.check(length)
    flat = n.reshape(-1)
    low, high = law.range(float(flat.max(initial=1.0)))
    psi, moments = law(np.arange(low - reach, high + 2 * _STEP, _STEP))
    scale = np.exp(law.top)
    with np.errstate(divide="ignore"):
        log_phi = np.maximum(np.log1p(-np.minimum(psi * scale, 1.0)), -1e3)
    p_row = _p_row(law, flat)
    fine, coarse = np.empty((2, len(flat)))
    for rule, skip, value in ((0, 1, fine), (1, 2, coarse)):
        columns = [x[::skip, rule].copy() for x in (log_phi, *moments)]
        for i, m in enumerate(flat):
            value[i] = integrand(m, *columns).sum() * (_STEP * skip) / p_row[rule, i]
    bound = np.abs(fine - coarse) / fine + law.rounding + 100 * TAIL
    one = flat == 1  # one token has all the weight there is, whatever it is
    fine, bound = np.where(one, 1.0, fine), np.where(one, 0.0, bound)
    p_nonzero = p_row[0] * scale
    return n, fine.reshape(n.shape), p_nonzero.reshape(n.shape), bound.reshape(n.shape)


def n_eff(kernel: str | Kernel, length: Any, **parameters: Any) -> FiniteLength:
    """Effective number of attended tokens of an i.i.d. row, a_j = f(s_j) with s_j ~ N(β, γ²).

    E[(Σ|a|)²/Σa²] = ∫₀^∞ [n m2 φ^(n−1) + n(n−1) m1² φ^(n−2)] dt, over P(row ≠ 0).

    Args:
        kernel: a built-in kernel's name, or any `Kernel` of Law.SCORE; signed weights enter by |a|.
        length: row lengths n, whole numbers ≥ 1, any shape.
        **parameters: `beta` and `gamma` (> 0), one number each.

    Returns:
        The law at each length, in the shape of `length`.

    Raises:
        InputError: an unknown kernel, or a value outside its domain.
    """
    law = _law(kernel, parameters, 2, (0.5, 1.0))
    scale = np.exp(law.top)

    def integrand(n: Any, log_phi: Any, m1: Any, m2: Any) -> Any:
        alone = n * m2 * np.exp((n - 1) * log_phi)
        pairs = n * (n - 1) * (scale * m1**2) * np.exp(max(n - 2, 0) * log_phi)
        return alone + pairs

    n, value, p, error = _integrate(law, length, integrand)
    value = np.clip(value, 1.0, n)  # it lies there; its last digits may not
    return FiniteLength(n, value, np.asarray(np.sqrt(value / n)), p, error)


def participation(
    kernel: str | Kernel, length: Any, **parameters: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Mean participation ratio E Y₂ = E Σp², p = |a|/Σ|a|, of an i.i.d. row that is not all zero.

    E Y₂ = n ∫₀^∞ t E[a² e^(−t|a|)] E[e^(−t|a|)]^(n−1) dt, over P(row ≠ 0).

    Args:
        kernel: a built-in kernel's name, or any `Kernel` of Law.SCORE.
        length: row lengths n, whole numbers ≥ 1, any shape.
        **parameters: `beta` and `gamma` (> 0), one number each.

    Returns:
        E Y₂ in [1/n, 1] and a bound on its relative error, in the shape of `length`.

    Raises:
        InputError: an unknown kernel, or a value outside its domain.
    """
    law = _law(kernel, parameters, 1, (2.0,))
    _, value, _, error = _integrate(
        law, length, lambda n, log_phi, m2: n * m2 * np.exp((n - 1) * log_phi)
    )
    return value, error


def _row_sparsity(n: Any, log_phi: Any, m1: Any) -> Any:
    return n * m1 * np.exp((n - 1) * log_phi) / np.sqrt(np.pi * n)


def row_sparsity(
    kernel: str | Kernel, length: Any, **parameters: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Mean sparsity E S_n, S_n = ‖a‖₁/(√n‖a‖₂), of an i.i.d. row that is not all zero.

    E S_n = √(n/π) ∫₀^∞ t^(−1/2) m1 φ^(n−1) dt, over P(row ≠ 0). It tends to S as n → ∞.

    Args:
        kernel: a built-in kernel's name, or any `Kernel` of Law.SCORE.
        length: row lengths n, whole numbers ≥ 1, any shape.
        **parameters: `beta` and `gamma` (> 0), one number each.

    Returns:
        E S_n in [1/√n, 1] and a bound on its relative error, in the shape of `length`.

    Raises:
        InputError: an unknown kernel, or a value outside its domain.
    """
    law = _law(kernel, parameters, 2, (0.5,))
    n, value, _, error = _integrate(law, length, _row_sparsity, SLOW)
    return np.clip(value, n**-0.5, 1.0), error
