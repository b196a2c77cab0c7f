"""A second exact law of n_eff, for softmax rows given by their moment generating functions.

It shares no integral with `engine`, and is kept for two things: as a check of it, and for what it
does not reach, CoCA whose scores are not normal.

With x = e^u a² and φ, m1, m2 = E e^(−x), E[√x e^(−x)], E[x e^(−x)], rows of independent a_j = e^s_j
have

    n_eff = E[(Σa)²/Σa²] = ∫ [Σ m2_j/φ_j + (Σ m1_j/φ_j)² − Σ (m1_j/φ_j)²] Πφ_j du,

and with M(p) = E e^(ps), Mellin inversion gives

    φ, m1, m2 = (1/2πi) ∫ G(z) e^(zu) M(2z) dz,  G = Γ(−z), Γ(½−z), Γ(1−z), Re z < 0,

and 1 − φ with G = −Γ(−z), 0 < Re z < ½: no integral over the score at all (`_EachToken`). Sums over
normal tokens are cheaper from a table (`normal_prefixes`).

Only what lies near the heaviest token counts: scores are taken from there. Where the integral ends
and which tokens are too light to matter is told by Markov's inequality for powers of a, from M.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from sparsity.errors import InputError
from sparsity.exact_law.rules import log_complement
from sparsity.kernels.numeric.points import EPS
from sparsity.kernels.parameters import LENGTH
from sparsity.special import gamma

# (tokens [T], p [P]) -> log E e^(p·s_j), [T, P], real or complex as p is
LogMGF = Callable[[np.ndarray, np.ndarray], np.ndarray]
# tokens -> Σ log φ, Σ m2/φ, Σ m1/φ, Σ (m1/φ)² and Σ of error bounds over φ, [5, points of u]
PrefixSums = Callable[[np.ndarray], np.ndarray]
# (the tokens that will be summed, the score they count from, u) -> sums over some of them
Maker = Callable[[np.ndarray, float, np.ndarray], PrefixSums]

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

# Of the inversion.
_NEAR_ONE, _SMALL = 0.25, -1.0  # Re z, or nearer to 0: where φ is near 1, and where it is small
BACK = -36.0  # log of what the period may bring back
_NEARER = 2.0 ** (-np.arange(16) / 2)
_STEEP = 3.0  # log of what M may grow to there: rounding errors are relative to that
PERIOD = 42.0  # of the discrete inversion, times |Re z|: at least e^(−42) comes back
_END = 28.0  # of |Im z|: Γ is below 1e−18
_TOKENS, _FREQUENCIES = 1024, 32  # evaluated at once
_NEGLIGIBLE = 1e-15  # of a term of the inversion, where the sum over frequencies ends
_LEAST = 1e-30  # of φ


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


class _EachToken:
    """Sums over tokens, each inverted by itself; scores count from `offset`."""

    def __init__(self, log_mgf: LogMGF, offset: float, u: np.ndarray) -> None:
        self.log_mgf, self.offset, self.u = log_mgf, offset, u

    def relative(self, tokens: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Return the logarithm of E e^(p·(s_j − offset))."""
        return self.log_mgf(tokens, p) - self.offset * p

    def growth(self, tokens: np.ndarray, line: float) -> tuple[np.ndarray, np.ndarray]:
        """Return logs of how far M grows on both sides of 0, and of what the period brings back.

        That is the transforms one period P away, times e^(P·|Re z|). Tails of the score make them
        small: they are at most e^(∓qP) M(2q), for any q ≤ ½ beyond Re z > 0 or Re z < 0.
        """
        # Any q gives a bound: it is taken three times as far out as the line, up to the ½ allowed.
        q = min(3 * line, 0.5) if line > 0 else 3 * line
        up, down, tail = self.relative(tokens, 2 * np.array([line, -line, q])).T
        place = (up - down) / (4 * line)
        back = tail - 2 * q * place - PERIOD * (q / line - 1)
        return (up + down) / 2, np.maximum(back, -PERIOD)

    def lines(self, tokens: np.ndarray, farthest: float) -> np.ndarray:
        """Return Re z for each token: as far from zero as M allows."""
        # The farther from 0, the coarser the frequencies may be; but M has to exist there, and not
        # to grow, as rounding errors are relative to it. Each token gets the farthest that allows
        # both.
        lines = np.full(len(tokens), farthest)
        left = np.arange(len(tokens))
        for line in farthest * _NEARER:
            grown, back = self.growth(tokens[left], line)
            lines[left] = line
            left = left[(grown > _STEEP) | (back > BACK)]
            if not left.size:
                break
        return lines

    def invert(
        self, tokens: np.ndarray, u: np.ndarray, line: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return 1 − φ (line > 0) or φ, m1 and m2, and their rounding error.

        Shapes [3, tokens, len(u)] and [tokens, len(u)].
        """
        out = np.zeros((len(tokens), 3 * len(u)))
        # The trapezoidal rule along the line is exact but for copies of the transform one period of
        # u away; they come back with the factor e^(−period·|Re z|).
        spacing = 2 * np.pi * abs(line) / PERIOD
        scale, slips = self.relative(tokens, np.array([2 * line])), np.zeros(len(tokens))
        for start in range(0, int(_END / spacing) + 1, _FREQUENCIES):
            z = line + 1j * spacing * np.arange(start, start + _FREQUENCIES)
            # Transforms of real functions are conjugate at −Im z: twice the real part of one half.
            wave = np.exp(z[:, None] * u - line * u[0]) * (spacing / np.pi)
            if start == 0:
                wave[0] /= 2
            log = self.relative(tokens, 2 * z) - scale
            mgf = np.exp(log)
            factors = np.stack([-np.sign(line) * gamma(-z), gamma(0.5 - z), gamma(1 - z)])
            kernel = (factors[..., None] * wave).swapaxes(0, 1).reshape(len(z), -1)
            both = np.concatenate([np.real(kernel), -np.imag(kernel)])
            out += np.concatenate([np.real(mgf), np.imag(mgf)], axis=1) @ both
            size = np.abs(mgf) * np.abs(factors).max(axis=0)
            phase = np.abs(z) * np.abs(u).max() + np.abs(log) + 8
            slips += (size * phase).sum(axis=1) * (EPS * spacing / np.pi)
            if size[:, -1].max() < _NEGLIGIBLE:
                break
        grown = np.exp(scale + line * u[0])
        out = out.reshape(len(tokens), 3, len(u)).swapaxes(0, 1)
        error = (slips[:, None] * np.exp(line * (u - u[0]))) * grown
        return out * grown, error + 2 * np.exp(self.growth(tokens, line)[1])[:, None]

    def terms(self, tokens: np.ndarray, line: float) -> np.ndarray:
        """Return log φ, m2/φ, m1/φ, (m1/φ)² and the error over φ, [5, tokens, len(u)]."""
        u = self.u
        (psi, m1, m2), error = self.invert(tokens, u, line)
        small = psi >= 0.5  # φ is: there 1 − ψ has lost digits
        phi = np.ones_like(psi)
        some = np.flatnonzero(small.any(axis=1))
        if some.size:  # of these tokens, on the right, all is taken from the other line
            heavy, right = tokens[some], slice(int(np.argmax(small.any(axis=0))), None)
            below = float(self.lines(heavy, _SMALL).max())
            found, slips = self.invert(heavy, u[right], below)
            at = (some, right)
            for mine, other in zip((phi, m1, m2, error), (*found, slips), strict=True):
                mine[at] = np.where(small[at], other, mine[at])
        log_phi = log_complement(psi, np.maximum(phi, _LEAST))
        over = np.exp(-log_phi)
        ratio = m1 * over
        return np.stack([log_phi, m2 * over, ratio, ratio**2, error * over])

    def __call__(self, tokens: np.ndarray) -> np.ndarray:
        """Return the sums over these tokens."""
        total, lines = np.zeros((5, len(self.u))), self.lines(tokens, _NEAR_ONE)
        for line in np.unique(lines):
            mine = tokens[lines == line]
            for first in range(0, len(mine), _TOKENS):
                total += self.terms(mine[first : first + _TOKENS], line).sum(axis=1)
        return total


def _range_of_u(powers: np.ndarray, inverse: np.ndarray, n: int) -> tuple[float, float]:
    """Return ends of u beyond which less than e^(−40) of n_eff lies.

    Args:
        powers: log E a^p of all tokens, [tokens, len(_POWERS)].
        inverse: log E a^(−2z) of the heaviest ones, [tokens, len(_LOW_POWERS)].
        n: the longest row.
    """
    # 1 − e^(−Σx) ≤ Σ x^(p/2), p ≤ 2.
    wanted, top = _TAIL + np.log(n), powers.max(axis=0)
    total = top + np.log(np.exp(powers - top).sum(axis=0))
    low = float(np.max(-(wanted + total) / (_POWERS / 2)))
    # e^(−x) ≤ (z/e)^z x^(−z), z > 0.
    z = _LOW_POWERS
    bound = inverse + z * np.log(z) - z

    def left(u: float) -> float:
        return float(np.minimum((bound - z * u).min(axis=1), 0.0).sum()) + wanted

    enough = float(np.min((bound + wanted) / z))  # where one token is enough
    begun = float(np.min(bound / z))  # where none has begun
    from scipy.optimize import brentq  # slow to import

    ends = min(begun, enough - 1.0), enough + 1e-9 * (1 + abs(enough))
    root: Any = brentq(left, *ends, xtol=0.01)
    return low, float(root) + 0.01


def heavy_enough(powers: np.ndarray, negative: np.ndarray, n: int) -> np.ndarray:
    """Return which tokens are not too light beside some token of the first row.

    Without tokens whose Σa is δ, the ratio (Σa)²/Σa² moves by less than 4n (δ/a₀)^p, p ≤ 1, a₀ any
    token that stays. `powers` is log E a^p, `negative` the same of the first row with −p.
    """
    some = _POWERS <= 1
    share = powers[:, some] + negative.min(axis=0)[some]
    return share.min(axis=1) > -_TAIL - np.log(4.0 * n * n)


def _alike(highest: np.ndarray, lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Yield lengths whose heaviest tokens are alike, ascending."""
    start = 0
    for i in range(1, len(lengths) + 1):
        end = i == len(lengths)
        if end or highest[lengths[i] - 1] - highest[lengths[start] - 1] > _APART:
            yield lengths[start:i]
            start = i


def _integrate(sums: np.ndarray, step: float) -> tuple[float, float]:
    """Return the integral over u, and a bound on its relative error."""
    log_phi, s2, s1, s11, error = sums
    alive = log_phi > -_TAIL - 10  # beyond, the quotients hold nothing
    product = np.exp(np.where(alive, log_phi, -np.inf))
    s2, s1, s11, error = (np.where(alive, s, 0.0) for s in (s2, s1, s11, error))
    integrand = (s2 + np.maximum(s1 * s1 - s11, 0.0)) * product
    fine, coarse = integrand.sum() * step, integrand[::2].sum() * 2 * step
    # Of each φ_j and m_j: what multiplies Πφ moves by at most so much.
    wrong = (error * (2 * s2 + 3 * s1 * s1 + 2 * s1 + 1)) @ product * step
    if not fine > 0:
        return fine, np.inf
    return float(fine), float((abs(fine - coarse) + wrong) / fine)


def _on_one_range(
    log_mgf: LogMGF, make: Maker, lengths: np.ndarray, location: np.ndarray, narrowest: float
) -> list[tuple[float, float]]:
    """Return (n_eff, its bound) of rows of these lengths, ascending, on one range of u."""
    shortest, longest = int(lengths[0]), int(lengths[-1])
    tokens, offset = np.arange(longest), float(location[:shortest].max())
    heavy = np.argsort(-location[:shortest], kind="stable")[:_ENOUGH]
    powers = log_mgf(tokens, _POWERS) - offset * _POWERS
    inverse = log_mgf(heavy, -2 * _LOW_POWERS) + 2 * offset * _LOW_POWERS
    low, high = _range_of_u(powers, inverse, longest)
    negative = log_mgf(heavy, -_POWERS) + offset * _POWERS
    tokens = tokens[heavy_enough(powers, negative, longest)]
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
        value, error = _integrate(sums, step)
        error += rounding + EPS * done
        sound = 1 - USELESS < value < done * (1 + USELESS)
        found.append((min(max(value, 1.0), float(done)), error if sound else np.inf))
    return found


def n_eff_by(
    log_mgf: LogMGF, make: Maker, lengths: Any, *, smooth: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the effective number of attended tokens of the first n tokens of a softmax row.

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
        for group in _alike(np.maximum.accumulate(location), longer):
            narrowest = float(width[: group[-1]].min()) if smooth else 0.0
            found += _on_one_range(log_mgf, make, group, location[: group[-1]], narrowest)
        if not all(error < USELESS for _, error in found):
            raise refusal
    values, bounds = np.array(found).reshape(-1, 2).T
    return values[back].reshape(n.shape), bounds[back].reshape(n.shape)


def n_eff_of_prefixes(log_mgf: LogMGF, lengths: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return E[(Σa)²/Σa²] of the first n tokens of a softmax row, token by token.

    Args:
        log_mgf: (tokens [T], p [P]) -> log E e^(p·s_j), [T, P], real or complex as p is; the
            scores are independent, and log E e^(ps) is finite for every real p.
        lengths: n, whole numbers ≥ 1, any shape; the tokens are 0 … n−1.

    Returns:
        n_eff in [1, n], and a bound on its relative error, in the shape of `lengths`.

    Raises:
        InputError: a length that is not a whole number ≥ 1, or scores so wide that float64 does
            not resolve their law (`TooWide`).
    """
    return n_eff_by(log_mgf, lambda _, *rest: _EachToken(log_mgf, *rest), lengths, smooth=False)
