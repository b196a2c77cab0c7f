"""The exact law of stick-breaking rows of n independent scores N(β, γ²): geometric sums.

With b = σ(s), the key at distance d from the query has a_d = b_d Π_{i<d}(1 − b_i), a product of
independent factors. The weights are taken as they are: what no key takes, Π(1 − b_i), stays in the
total of 1, as mass on a sink does, and E of it is (1 − E b)ⁿ. So with q = 1 − E b, r = E(1 − b)²

    E Σa²      = E b² (1 − rⁿ)/(1 − r)   ->   E b²/(2 E b − E b²) in long rows, whatever n
    E −Σa ln a = Σ_d [h q^d + d h′ E b q^(d−1)],   h = −E b ln b, h′ = −E (1 − b) ln(1 − b).
"""

from __future__ import annotations

import math

import numpy as np
import sympy

from sparsity.errors import InputError
from sparsity.kernels import Kernel, score_kernel
from sparsity.kernels.symbols import s
from sparsity.limit import quadrature

_TAKEN = 1 / (1 + sympy.exp(-s))
_LEFT = 1 / (1 + sympy.exp(s))
_SHARE = score_kernel("share", _TAKEN)
_REST = score_kernel("rest", _LEFT)
_OF_SHARE = score_kernel("of the share", _TAKEN * sympy.log(1 + sympy.exp(-s)))
_OF_REST = score_kernel("of the rest", _LEFT * sympy.log(1 + sympy.exp(s)))
_ROUNDING = 4e-15
_WIDEST = 1e15  # γ beyond which σ(s) is a step
_LEAST = -300.0  # log of a mean, so that products of means stay in float64


def _mean(kernel: Kernel, power: int, beta: float, gamma: float) -> tuple[float, float]:
    """E of a power of a function of the score, and the relative error of it."""
    wider = max(gamma / _WIDEST, 1.0)  # all but a share 1/γ of such scores take nothing or all
    log, error = quadrature.moment(kernel, power, beta / wider, gamma / wider)
    if wider > 1:
        error += 8 / _WIDEST
        log -= math.log(wider) if kernel in (_OF_SHARE, _OF_REST) else 0.0  # they are of the share
    if log < _LEAST:
        fix = "is so far from 0 that a key takes almost nothing, or all; use less extreme values"
        raise InputError("beta", beta, fix)
    return math.exp(float(log)), float(error)


def mean_taken(beta: float, gamma: float) -> float:
    """E b: what a key takes of what is left to it.

    Raises:
        InputError: next to nothing.
    """
    return _mean(_SHARE, 1, beta, gamma)[0]


def _missing(one_less: float, n: np.ndarray) -> np.ndarray:
    """1 − xⁿ, given 1 − x."""
    with np.errstate(divide="ignore"):
        return -np.expm1(n * np.log1p(-min(one_less, 1.0)))


def participation(beta: float, gamma: float, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E Σa² over rows of n, and a bound on its relative error.

    Args:
        beta: bias β.
        gamma: spread γ > 0.
        length: row lengths n ≥ 1, [lengths].
    """
    (taken, off), (square, gap) = (_mean(_SHARE, power, beta, gamma) for power in (1, 2))
    ends = 2 * taken - square  # 1 − r
    value = square * _missing(ends, np.asarray(length, dtype=np.float64)) / ends
    return value, np.full(
        value.shape, gap + 2 * (2 * taken * off + square * gap) / ends + _ROUNDING
    )


def entropy(beta: float, gamma: float, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E[−Σa ln a] over rows of n in nats, and a bound on its relative error.

    Args as `participation`.
    """
    n = np.asarray(length, dtype=np.float64)
    means = [_mean(kernel, 1, beta, gamma) for kernel in (_SHARE, _REST, _OF_SHARE, _OF_REST)]
    (taken, rest, own, others), errors = zip(*means, strict=True)
    all_ = _missing(taken, n)  # 1 − qⁿ
    log_rest = math.log1p(-taken) if taken < 0.5 else math.log(rest)
    power = np.exp((n - 1) * log_rest)
    # The second sum is E b Σ d q^(d−1) = (1 − qⁿ)/E b − n q^(n−1).
    value = own * all_ / taken + others * np.maximum(all_ / taken - n * power, 0.0)
    return value, np.full(value.shape, 6 * sum(errors) + _ROUNDING)
