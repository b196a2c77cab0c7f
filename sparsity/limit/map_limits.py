"""The limit S of maps of whole rows whose weights have a law each: a function a family.

Differential attention, with the totals at their means: a = e^(s₁ − γ₁²/2) − λ e^(s₂ − γ₂²/2). Under
the law with density e^(s₁ − γ₁²/2) the sign of a is that of a normal variable, so with
σ² = γ₁² + γ₂² − 2ργ₁γ₂ and d₁,₂ = −ln λ/σ ± σ/2, as in the price of an option,
    E|a| = [Φ(d₁) − λΦ(d₂)] + [λΦ(−d₂) − Φ(−d₁)] = erf(d₁/√2) − λ erf(d₂/√2)
    E a² = e^(γ₁²) + λ²e^(γ₂²) − 2λe^(ργ₁γ₂)
         = (e^(γ₁²/2) − λe^(γ₂²/2))² + 2λe^(ργ₁γ₂)(e^(σ²/2) − 1).

Forgetting: scores and gates are independent, and the mean over positions is a geometric sum,
    E|a| = E e^s Σ_d (E g)^d/n,    E a² = E e^(2s) Σ_d (E g²)^d/n,    d = 0 … n − 1.

Performer: the features are unbiased, E|a| = E e^(q·k). Two different features are independent given
the key, and one alone has E_ω a² = e^(2|q + k|² − |q|² − |k|²), so for keys N(0, σ²I) and γ = σ|q|
    E a² = (1 − 1/m) e^(2γ²) + (1/m) e^(γ²/σ² + 8γ²/(1 − 2σ²)) (1 − 2σ²)^(−d/2),    σ² < ½.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import sympy

from sparsity.errors import InputError
from sparsity.kernels import RowMap, score_kernel
from sparsity.kernels.numeric.points import EPS
from sparsity.kernels.parameters import LENGTH, bound_by_name
from sparsity.kernels.row_map import refused
from sparsity.kernels.symbols import s
from sparsity.limit import quadrature
from sparsity.results import Evaluation
from sparsity.special import erf

GATE = score_kernel("gate", 1 / (1 + sympy.exp(-s)))
SHUT = score_kernel("shut", 1 / (1 + sympy.exp(s)))
Params = Mapping[str, np.ndarray]
LogS = tuple[np.ndarray, np.ndarray]  # log S and a bound on its error


def differential_moments(params: Params) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return E|a|, the relative error of it, and log E a² of long rows."""
    g1, g2, rho, mix = np.broadcast_arrays(*(params[x] for x in ("gamma", "gamma2", "rho", "mix")))
    square = (g1 - g2) ** 2 + 2 * (1 - rho) * g1 * g2  # σ²
    sigma = np.sqrt(square)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        log = np.log(mix)
        out = np.where(log == 0, 0.0, -log / sigma)  # −ln λ/σ: infinite where nothing changes sign
        first, second = (erf((out + half * sigma) / np.sqrt(2)) for half in (0.5, -0.5))
        mean = first - mix * second
        apart = np.log(np.abs(np.expm1(log + (g2 - g1) * (g2 + g1) / 2)))
        # ln(e^x − 1) = x + ln(1 − e^(−x)), x = σ²/2
        both = np.log(2 * mix) + rho * g1 * g2 + square / 2 + np.log(-np.expm1(-square / 2))
    return mean, 8 * EPS * (1 + mix) / mean, np.logaddexp(g1**2 + 2 * apart, both)


def _differential(params: Params, n: Any) -> LogS:
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        mean, off, log_square = differential_moments(params)
        value = np.log(mean) - log_square / 2
    log_mix = np.log(np.maximum(params["mix"], 1e-300))
    size = params["gamma"] ** 2 + params["gamma2"] ** 2 + np.abs(log_mix)
    error = np.where(mean > 0, off, np.inf) + 8 * EPS * (1 + size)
    if not (np.isfinite(value) & (error < 0.1)).all():
        fix = "the two maps cancel, or are beyond float64; use a mix, rho or gamma2 that differs"
        raise InputError("mix", float(np.max(params["mix"])), fix)
    return value, error


def gate_moment(power: int, params: Params) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return E g^power of a gate, 1 − E g^power, and a bound on the relative error of either."""
    b, c = np.broadcast_arrays(params["gate"], params["gate_spread"])
    fixed = 1 / (1 + np.exp(-b)), 1 / (1 + np.exp(b))
    spread = np.where(c > 0, c, 1.0)
    moments = [quadrature.moment(f, p, b, spread) for f in (GATE, SHUT) for p in (1, power)]
    (open_, opened), (shut, shut_) = ([np.exp(x) for x, _ in moments[i : i + 2]] for i in (0, 2))
    error = np.sum([off for _, off in moments], axis=0)
    # 1 − g² = 2(1 − g) − (1 − g)²
    missing, at = (shut, open_) if power == 1 else (2 * shut - shut_, opened)
    left = fixed[1] if power == 1 else fixed[1] * (1 + fixed[0])
    return (
        np.where(c > 0, at, fixed[0] ** power),
        np.where(c > 0, missing, left),
        np.where(c > 0, 3 * error, 0.0) + 8 * EPS,
    )


def _log_sum(at: np.ndarray, missing: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Return log Σ_{d<n} x^d, from x and 1 − x."""
    with np.errstate(divide="ignore"):
        log = np.where(missing < 0.5, np.log1p(-np.minimum(missing, 0.5)), np.log(at))
    return np.log(-np.expm1(n * log) / missing)


def _forgetting(params: Params, n: Any) -> LogS:
    (at, missing, off), (at2, missing2, gap) = (gate_moment(power, params) for power in (1, 2))
    first, second = _log_sum(at, missing, n), _log_sum(at2, missing2, n)
    value = first - 0.5 * (second + np.log(n)) - 0.5 * params["gamma"] ** 2
    # (1 − xⁿ)/(1 − x) follows a relative error of x or of 1 − x by no more than the same.
    return value, 2 * (off + gap) + 8 * EPS * (1 + params["gamma"] ** 2 + np.log(n))


_SQUARE = ((2,), (1, 1))  # ways in which the features of a² can coincide
_FOURTH = ((4,), *4 * ((3, 1),), *3 * ((2, 2),), *6 * ((2, 1, 1),), (1, 1, 1, 1))


def _performer_moment(params: Params, ways: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """Return log E a^p. Given the key, E_ω x^p = e^((p² − p)(|q|² + |k|²)/2 + p² q·k)."""
    gamma, sigma, d, m = (params[x] for x in ("gamma", "sigma", "dim", "features"))
    terms = []
    for way in ways:
        a, b = sum(p * (p - 1) for p in way) / 2, sum(p * p for p in way)
        with np.errstate(divide="ignore", invalid="ignore"):
            left = 1 - 2 * a * sigma**2
            chosen = sum(np.log(np.maximum(m - i, 0)) for i in range(len(way)))
            log = a * (gamma / sigma) ** 2 + (b * gamma) ** 2 / (2 * left) - d / 2 * np.log(left)
            # No such way takes part; else its moment may be infinite.
            weight = chosen - sum(way) * np.log(m)
            terms.append(np.where(m < len(way), -np.inf, weight + np.where(left > 0, log, np.inf)))
    return np.logaddexp.reduce(np.broadcast_arrays(*terms), axis=0)


def _performer(params: Params, n: Any) -> LogS:
    if not np.all(2 * params["sigma"] ** 2 < 1):
        fix = "must be < 1/√2: from there on E a², hence S, is infinite whatever the features"
        raise InputError("sigma", float(np.max(params["sigma"])), fix)
    log_square = _performer_moment(params, _SQUARE)
    return params["gamma"] ** 2 / 2 - log_square / 2, 16 * EPS * (1 + np.abs(log_square)) / (
        1 - 2 * params["sigma"] ** 2
    )


# Bounds on the log of how Σa²/n scatters over drawn rows: n Var/(E a²)² < E a⁴/(E a²)², or n times
# that where the tokens of a row depend on each other.


def _differential_scatter(params: Params, n: Any) -> np.ndarray:
    with np.errstate(divide="ignore"):
        second = 4 * np.log(params["mix"]) + 6 * params["gamma2"] ** 2
    return np.logaddexp(6 * params["gamma"] ** 2, second) - 2 * differential_moments(params)[2]


def _forgetting_scatter(params: Params, n: Any) -> np.ndarray:
    at, missing, _ = gate_moment(2, params)
    return 4 * params["gamma"] ** 2 + 2 * np.log(n) - _log_sum(at, missing, n)


def _performer_scatter(params: Params, n: Any) -> np.ndarray:
    return _performer_moment(params, _FOURTH) - 2 * _performer_moment(params, _SQUARE) + np.log(n)


class Limit(NamedTuple):
    """The limit of a family.

    Args:
        method: what it is called in results.
        log_S: (parameters, lengths or None) -> log S and a bound on its error.
        log_scatter: (parameters, length) -> log of the variance of a² that sampling meets, in units
            of its mean: of one token, as rows of n have it.
    """

    method: str
    log_S: Callable[[Params, Any], LogS]
    log_scatter: Callable[[Params, Any], np.ndarray]


_LIMITS: dict[str, Limit] = {
    "differential": Limit("closed form", _differential, _differential_scatter),
    "forgetting": Limit("limit form", _forgetting, _forgetting_scatter),
    "performer": Limit("closed form", _performer, _performer_scatter),
}


def has(kernel: RowMap) -> bool:
    """Return whether the limit S of a map is known."""
    return kernel.family in _LIMITS


def limit(kernel: RowMap, method: str | None, given: Mapping[str, Any]) -> Evaluation:
    """Return S = E|a|/√(E a²) of a map of whole rows, of its weights one by one.

    Args:
        kernel: the map.
        method: that of the family, or None.
        given: its parameters by name, and a `length`, all broadcastable; tokens that differ along
            the row need one.

    Raises:
        InputError: a map without a limit, another method, or a bad or missing value.
    """
    if not has(kernel):
        raise refused(kernel)
    known = _LIMITS[kernel.family]
    if method not in (None, known.method):
        raise InputError(
            "method", method, f"{kernel.name} is evaluated by its {known.method} only; leave it out"
        )
    named = bound_by_name(kernel.name, (*kernel.parameters, LENGTH), {LENGTH.name: 1} | dict(given))
    length = named.pop(LENGTH.name)
    if LENGTH.name not in given:
        length = None
        if not kernel.identically_distributed:
            fix = "this row depends on its length; give one"
            raise InputError("length", None, fix)
    value, error = known.log_S(named, length)
    if length is not None:
        value, error, length = np.broadcast_arrays(value, error, length)
    return Evaluation.from_log(
        value, known.method, error, None if kernel.identically_distributed else length
    )


def log_scatter(kernel: RowMap, given: Mapping[str, Any], length: int) -> float:
    """Bound the log of the variance of a² over its squared mean, as drawn rows of n have it."""
    numbers: dict[str, Any] = {name: np.float64(value) for name, value in given.items()}
    return float(_LIMITS[kernel.family].log_scatter(numbers, np.float64(length)))
