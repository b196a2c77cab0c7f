"""n_eff of softmax rows from sums over their tokens' transforms: range, light tokens, integral.

A part of `mellin`, the second exact law.

With x = e^u a² and φ, m1, m2 = E e^(−x), E[√x e^(−x)], E[x e^(−x)], rows of independent a_j = e^s_j
have
    n_eff = E[(Σa)²/Σa²] = ∫ [Σ m2_j/φ_j + (Σ m1_j/φ_j)² − Σ (m1_j/φ_j)²] Πφ_j du.
Only what lies near the heaviest token counts: scores are taken from there. Where the integral ends
and which tokens are too light to matter is told by Markov's inequality for powers of a, from the
moment generating functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from sparsity.errors import InputError
from sparsity.kernels.numeric.points import EPS
from sparsity.kernels.parameters import LENGTH

# (tokens [T], p [P]) -> log E e^(p·s_j), [T, P], real or complex as p is
LogMGF = Callable[[np.ndarray, np.ndarray], np.ndarray]

WIDEST = 64.0  # standard deviation of a score
STEP = 0.2  # of u; the check runs at twice the step
_STEPS = 0.1  # of u, in standard deviations of the narrowest of smooth scores, if that is more
_TAIL = 40.0  # e-folds: what lies beyond the ends, and tokens left out, is below e^(−40) of n_eff
_NEAR = 0.5  # the power of a that tells where a token lies
_APART = 30.0  # by which the heaviest tokens of rows on one range of u may differ
_POWERS = np.geomspace(0.01, 2.0, 12)  # of a, for the lower end and for light tokens
_LOW_POWERS = np.geomspace(0.003, 40.0, 32)  # of 1/a², for the upper end
_ENOUGH = 1024  # tokens that tell the upper end
_ROUNDINGS = 8.0  # of a score, that n_eff may change by
USELESS = 1e-6  # relative error at which the digits are noise


class TooWide(InputError):
    """Scores that float64 cannot resolve: whoever made them says of which argument.

    Args:
        location: the largest |mean| of a score.
        deviation: the largest standard deviation.

    Attributes:
        widest: the standard deviation up to which there is a law.
    """

    widest = WIDEST

    def __init__(self, location: float, deviation: float) -> None:
        self.location, self.deviation = location, deviation
        scores = f"scores of means up to ±{location:.3g}, standard deviations up to {deviation:.3g}"
        fix = f"float64 does not resolve their law; keep standard deviations below {WIDEST:g}"
        super().__init__("log_mgf", scores, fix)

    @property
    def blurred(self) -> bool:
        """Whether rounding of the scores alone is too much."""
        return _ROUNDINGS * EPS * self.location >= USELESS


class PrefixSums(Protocol):
    """Sums over the tokens of a row, whose scores count from `offset`, on a grid of u."""

    def __call__(self, tokens: np.ndarray) -> np.ndarray:
        """Σ log φ, Σ m2/φ, Σ m1/φ, Σ (m1/φ)² and Σ of error bounds over φ, [5, len(u)]."""
        ...


# (the tokens that will be summed, offset, u) -> sums over some of them
Maker = Callable[[np.ndarray, float, np.ndarray], PrefixSums]


def _lower_end(mgf: np.ndarray, n: int) -> float:
    """The u below which less than e^(−40) of n_eff lies: 1 − e^(−Σx) ≤ Σ x^(p/2), p ≤ 2.

    `mgf` is log E a^p, [tokens, len(_POWERS)].
    """
    top = mgf.max(axis=0)
    total = top + np.log(np.exp(mgf - top).sum(axis=0))
    return float(np.max(-(_TAIL + np.log(n) + total) / (_POWERS / 2)))


def _upper_end(mgf: np.ndarray, n: int) -> float:
    """The u beyond which less than e^(−40) of n_eff lies: e^(−x) ≤ (z/e)^z x^(−z), z > 0.

    `mgf` is log E a^(−2z), [tokens, len(_LOW_POWERS)].
    """
    z = _LOW_POWERS
    bound, wanted = mgf + z * np.log(z) - z, _TAIL + np.log(n)

    def left(u: float) -> float:
        return float(np.minimum((bound - z * u).min(axis=1), 0.0).sum()) + wanted

    high = float(np.min((bound + wanted) / z))  # where one token is enough
    low = float(np.min(bound / z))  # where none has begun
    from scipy.optimize import brentq  # slow to import

    root: Any = brentq(left, min(low, high - 1.0), high + 1e-9 * (1 + abs(high)), xtol=0.01)
    return float(root) + 0.01


def heavy_enough(powers: np.ndarray, first: np.ndarray, n: int) -> np.ndarray:
    """Which tokens are not too light beside some token of the first row.

    Without tokens whose Σa is δ, the ratio (Σa)²/Σa² moves by less than 4n (δ/a₀)^p, p ≤ 1, a₀ any
    token that stays. `powers` is log E a^p, `first` the same of the first row with −p.
    """
    share = powers[:, _POWERS <= 1] + first.min(axis=0)[_POWERS <= 1]
    return share.min(axis=1) > -_TAIL - np.log(4.0 * n * n)


def _groups(highest: np.ndarray, lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Lengths whose heaviest tokens are alike, ascending."""
    start = 0
    for i in range(1, len(lengths) + 1):
        end = i == len(lengths)
        if end or highest[lengths[i] - 1] - highest[lengths[start] - 1] > _APART:
            yield lengths[start:i]
            start = i


def n_eff(
    log_mgf: LogMGF, make: Maker, lengths: Any, smooth: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Effective number of attended tokens of the first n tokens of a softmax row.

    Args:
        log_mgf: logarithm of E e^(p·s_j), for real p.
        make: gives the sums over tokens.
        lengths: n, whole numbers ≥ 1, any shape.
        smooth: whether the densities of the scores are as smooth as normal ones.

    Returns:
        n_eff in [1, n], and a bound on its relative error, in the shape of `lengths`.

    Raises:
        InputError: a length that is not a whole number ≥ 1.
        TooWide: scores that float64 cannot resolve.
    """
    n = LENGTH.check(lengths).astype(np.int64)
    wanted, back = np.unique(n, return_inverse=True)
    longer = wanted[wanted > 1]
    found = [(1.0, 0.0)] * (len(wanted) - len(longer))
    if longer.size:
        near = log_mgf(np.arange(longer[-1]), np.array([_NEAR, -_NEAR]))
        location = (near[:, 0] - near[:, 1]) / (2 * _NEAR)
        width = np.sqrt(np.maximum(near.sum(axis=1), 0.0)) / _NEAR
        refusal = TooWide(float(np.abs(location).max()), float(width.max()))
        if refusal.blurred or not (refusal.location < np.inf and refusal.deviation <= WIDEST):
            raise refusal
        highest = np.maximum.accumulate(location)
        for group in _groups(highest, longer):
            narrowest = float(width[: group[-1]].min()) if smooth else 0.0
            found += _together(log_mgf, make, group, location[: group[-1]], narrowest)
        if not all(error < USELESS for _, error in found):
            raise refusal
    values, bounds = np.array(found).reshape(-1, 2).T
    return values[back].reshape(n.shape), bounds[back].reshape(n.shape)


def _together(
    log_mgf: LogMGF,
    make: Maker,
    lengths: np.ndarray,
    location: np.ndarray,
    narrowest: float,
) -> list[tuple[float, float]]:
    """(n_eff, its bound) of rows of these lengths, ascending, on one range of u."""
    shortest, longest = int(lengths[0]), int(lengths[-1])
    tokens, offset = np.arange(longest), float(location[:shortest].max())
    heavy = np.argsort(-location[:shortest], kind="stable")[:_ENOUGH]
    powers = log_mgf(tokens, _POWERS) - offset * _POWERS
    inverse = log_mgf(heavy, -_POWERS) + offset * _POWERS
    low = _lower_end(powers, longest)
    high = _upper_end(log_mgf(heavy, -2 * _LOW_POWERS) + 2 * offset * _LOW_POWERS, longest)
    tokens = tokens[heavy_enough(powers, inverse, longest)]
    step = STEP * max(1, int(narrowest * _STEPS / STEP))
    u = low + step * np.arange(int((high - low) / step) + 3)
    sums_over = make(tokens, offset, u)
    sums, done, found = np.zeros((5, len(u))), 0, []
    rounding = _ROUNDINGS * EPS * float(np.abs(location[tokens]).max())
    for end in lengths:
        part = tokens[(tokens >= done) & (tokens < end)]
        if part.size:
            sums += sums_over(part)
        done = int(end)
        value, error = _integral(sums, step)
        error += rounding + EPS * done
        sound = 1 - USELESS < value < done * (1 + USELESS)
        found.append((min(max(value, 1.0), float(done)), error if sound else np.inf))
    return found


def _integral(sums: np.ndarray, step: float) -> tuple[float, float]:
    """The integral over u, and a bound on its relative error."""
    log_phi, s2, s1, s11, error = sums
    alive = log_phi > -_TAIL - 10  # beyond, the quotients hold nothing
    product = np.exp(np.where(alive, log_phi, -np.inf))
    s2, s1, s11, error = (np.where(alive, s, 0.0) for s in (s2, s1, s11, error))
    pairs = np.maximum(s1 * s1 - s11, 0.0)
    integrand = (s2 + pairs) * product
    fine, coarse = integrand.sum() * step, integrand[::2].sum() * 2 * step
    # Of each φ_j and m_j: what multiplies Πφ moves by at most so much.
    wrong = (error * (2 * s2 + 3 * s1 * s1 + 2 * s1 + 1)) @ product * step
    if not fine > 0:
        return fine, np.inf
    return float(fine), float((abs(fine - coarse) + wrong) / fine)
