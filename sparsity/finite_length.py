"""The exact law of real rows: n independent weights a_j = w_j f(s_j), n finite.

With φ(t) = E e^(−ta²), m1(t) = E|a|e^(−ta²), m2(t) = E a² e^(−ta²), an i.i.d. row has
    n_eff = E[(Σ|a|)²/Σa²] = ∫₀^∞ [n m2 φ^(n−1) + n(n−1) m1² φ^(n−2)] dt,
the general one ∫ [Σ m2/φ + (Σ m1/φ)² − Σ(m1/φ)²] Πφ dt. In u = ln t the integrand is analytic in
a strip of half-width π/2 and the trapezoidal rule converges like e^(−π²/step).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsity import kernels
from sparsity.definition import EPS
from sparsity.errors import InputError
from sparsity.kernels.base import Kernel, Law
from sparsity.kernels.parameters import LENGTH
from sparsity.laplace import TAIL, Laplace, laplace

__all__ = ["FiniteLength", "n_eff", "n_eff_weighted", "participation"]

_STEP = 0.16  # of u = ln t; the check runs at twice the step


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
    return laplace(kernel, float(bound["beta"]), float(bound["gamma"]), c, k)


def _integrate(
    law: Laplace, length: Any, integrand: Callable[..., np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(n, ∫ integrand du / P(row ≠ 0), P(row ≠ 0), relative error bound) for every length."""
    n = LENGTH.check(length)
    flat = n.reshape(-1)
    low, high = law.range(float(flat.max(initial=1.0)))
    psi, moments = law(np.arange(low, high + 2 * _STEP, _STEP))
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


_TAPS = 16  # of the local polynomial that shifts the tables by ln w²


def _lagrange(offset: float) -> np.ndarray:
    """Weights of the values at 0 … taps−1 in their interpolating polynomial at `offset`."""
    k = np.arange(_TAPS)
    gap = (k[:, None] - k + np.eye(_TAPS)).prod(axis=1)
    others = np.where(np.eye(_TAPS, dtype=bool), 1.0, offset - k).prod(axis=1)
    return others / gap


def _weighted(law: Laplace, shift: np.ndarray, count: np.ndarray, rule: int) -> float:
    """∫ of the general law over u, the transforms of token j tabulated and shifted by ln w_j².

    Rule 0 is the fine one, rule 1 the coarse one at twice the step.
    """
    low, high = law.range(float(count.sum()))
    fine, skip, size = _STEP / 2, 2 + 2 * rule, 256
    psi, (root, whole) = law(np.arange(low, high + fine, fine))
    table = np.stack([x[:, rule] for x in (psi, root, whole)], axis=1)
    beyond = np.tile([psi[-1, rule], 0.0, 0.0], (_TAPS, 1))
    table = np.concatenate([np.zeros((_TAPS, 3)), table, beyond])
    windows = np.lib.stride_tricks.sliding_window_view(table, _TAPS, axis=0)
    steps = np.floor(shift / fine)
    taps = [_lagrange(_TAPS // 2 - 1 + f) for f in shift / fine - steps]
    first = steps.astype(int) + _TAPS // 2 + 1
    scale, total, start = np.exp(law.top), 0.0, 0
    while True:
        sums = np.zeros((4, size))  # log Πφ, Σ m2/φ, Σ m1/φ, Σ (m1/φ)²
        at = start + skip * np.arange(size)
        for begin, c, times in zip(first, taps, count, strict=True):
            if begin + at[-1] < 0:
                continue
            x, m1, m2 = (windows[np.clip(begin + at, 0, len(windows) - 1)] @ c).T
            log_phi = np.log1p(-np.minimum(x * scale, 1 - EPS / 2))
            ratio = m1 * np.exp(-log_phi)
            sums += times * np.stack([log_phi, m2 * np.exp(-log_phi), ratio, ratio**2])
        log_phi, s2, s1, s11 = sums
        total += float(np.sum((s2 + scale * (s1 * s1 - s11)) * np.exp(log_phi)))
        start = int(at[-1]) + skip
        if log_phi[-1] < -60 or start * fine > high - low - shift[0]:
            return total * fine * skip


def n_eff_weighted(kernel: str | Kernel, weights: Any, **parameters: Any) -> FiniteLength:
    """Effective number of attended tokens of a row a_j = w_j f(s_j), s_j ~ N(β, γ²) independent.

    ∫₀^∞ [Σ m2_j/φ_j + (Σ m1_j/φ_j)² − Σ(m1_j/φ_j)²] Πφ_j dt, over P(row ≠ 0), where token j has
    the functions of f at t·w_j². Example: retention rows, w_j = λ^(n−j).

    Args:
        kernel: a built-in kernel's name, or any `Kernel` of Law.SCORE.
        weights: w_j > 0, shape [n].
        **parameters: `beta` and `gamma` (> 0), one number each.

    Returns:
        The law of that row (scalars). Where weights spread over many orders of magnitude its
        error_bound can be too small: 2e−10 was seen where it said 3e−12.
        `sparsity.finite_rows.n_eff` is the law to use; this one checks it.

    Raises:
        InputError: an unknown kernel, or a value outside its domain.
    """
    w = np.asarray(weights, dtype=np.float64)
    if w.ndim != 1 or not w.size or not np.all(np.isfinite(w) & (w > 0)):
        raise InputError("weights", weights, "give finite numbers > 0, one for each token")
    law = _law(kernel, parameters, 2, (0.5, 1.0))
    shift, count = np.unique(2 * np.log(w / w.max()), return_counts=True)
    n, p_row = float(w.size), _p_row(law, np.array([float(w.size)]))
    fine, coarse = (_weighted(law, shift, count, rule) / p_row[rule, 0] for rule in (0, 1))
    error = abs(fine - coarse) / fine + law.rounding + 100 * TAIL
    fine, error = (1.0, 0.0) if n == 1 else (fine, error)
    numbers = (n, fine, np.sqrt(fine / n), p_row[0, 0] * np.exp(law.top), error)
    return FiniteLength(*(np.asarray(x, dtype=np.float64) for x in numbers))
