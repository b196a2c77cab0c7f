"""The exact law of the largest weight, E max p, of rows of n independent scores of one law.

With Z = Σ|a|, E[max|a|/Z] = ∫dt E[max|a| e^(−tZ)] and E[max|a| e^(−tZ)] = ∫da (φ_t^n − B_t(a)^n),
where φ_t = E e^(−t|f|) and B_t(a) is the same over |f| ≤ a alone. In u = ln t and v = ln a

    E max p = ∫∫ e^(u+v) [φ(u)^n − B(u, v)^n] du dv / P(the row is not all zero).

The rule over u is trapezoidal, as in `engine`. The axis of v has Gauss–Legendre panels, in which B
is the integral of the polynomial through their nodes. It takes the law of ln|f|, which softmax,
squared ReLU and the identity have in closed form. The bound holds a coarser rule in both.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from sparsity import kernels
from sparsity.errors import InputError, TooFine
from sparsity.kernels import Kernel

_STEPS = (0.16, 0.24)  # of u: of the value, and of what bounds its error
_POINTS = (16, 12)  # of a panel, likewise
_WIDEST = 0.5  # panel
_DEEP = 40.0  # e-folds below the largest weight down to which t counts
_LOG_TAIL = -41.0  # log of the probability of what is left out
_ROUNDING = 1e-12
_RAREST = -1e-270  # log P(f = 0) beyond which densities leave the range of float64
_MOST = 6e7  # numbers of a table
_LOST = 1e-9  # of the mass of a law of weights, beyond which its panels are wrong
_AT_ONCE = 2**20  # numbers of it held at once


class _Level(NamedTuple):
    """The law of v = ln|f|.

    Args:
        density: of v.
        log_zero: log P(f = 0).
        low: v below which nothing falls.
        high: v above which a row of the longest length has nothing.
        width: of a panel.
    """

    density: Callable[[np.ndarray], np.ndarray]
    log_zero: float
    low: float
    high: float
    width: float


def _normal(x: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def _out(n: float, log_share: float = 0.0) -> float:
    """Standard deviations beyond which a row of n has no score, given a share of all scores."""
    return -float(ndtri_exp(_LOG_TAIL - math.log(n) + log_share))


def _of_exp(beta: float, gamma: float, n: float) -> _Level:
    far, top = _out(1.0), _out(n)
    width = gamma / math.sqrt(2 + 2 * math.log(n))
    return _Level(
        lambda v: _normal((v - beta) / gamma) / gamma,
        -math.inf,
        beta - far * gamma,
        beta + top * gamma,
        min(_WIDEST, width),
    )


def _of_power(beta: float, gamma: float, n: float, power: int, both: bool) -> _Level:
    """Of |s|^power, for scores of both signs or those above 0 alone."""

    def density(v: np.ndarray) -> np.ndarray:
        s = np.exp(v / power)
        found = _normal((s - beta) / gamma)
        if both:
            found = found + _normal((s + beta) / gamma)
        return found * s / (power * gamma)

    z, far = beta / gamma, _out(1.0)
    side, top = (abs(z), _out(n)) if both else (z, _out(n, float(log_ndtr(min(z, 0.0)))))
    highest = gamma * (side + top)
    # Below s a share of about s·density: the smallest that counts, unless 0 is out of reach.
    reached = side < far
    share = math.exp(_LOG_TAIL + 0.5 * max(side, 0.0) ** 2) if reached else 0.0
    least = gamma * max(side - far, share / max(-side, 1.0))
    width = power / ((1 + math.sqrt(2 * math.log(n + 1))) * max(1.0, abs(z) + 1))
    return _Level(
        density,
        -math.inf if both else float(log_ndtr(-z)),
        power * math.log(min(least, highest / 2) if reached else least),
        power * math.log(highest),
        min(_WIDEST, width),
    )


_LEVELS: dict[Any, Callable[[float, float, float], _Level]] = {
    kernels.exp.weight: _of_exp,
    kernels.relu2.weight: lambda b, g, n: _of_power(b, g, n, 2, False),
    kernels.identity.weight: lambda b, g, n: _of_power(b, g, n, 1, True),
    kernels.zoo.absolute.weight: lambda b, g, n: _of_power(b, g, n, 1, True),
}


@functools.cache
def _panel(points: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes and weights on [−1, 1], and the matrix that integrates from −1 up to each node."""
    x, w = np.polynomial.legendre.leggauss(points)
    basis = np.eye(points)
    integrals = np.stack([np.polynomial.legendre.Legendre(b).integ(lbnd=-1)(x) for b in basis], 1)
    return x, w, integrals @ np.linalg.inv(np.polynomial.legendre.legvander(x, points - 1))


def _log_rest(share: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The log of a share, given it and what it lacks of 1: whichever has the digits."""
    with np.errstate(divide="ignore"):
        found = np.where(
            other < 0.5, np.log1p(-np.minimum(other, 0.5)), np.log(np.maximum(share, 0))
        )
    return np.minimum(found, 0.0)  # where φ^n is nothing, its parts have no digits


class _Table:
    """φ(u) and the parts of it below and above every node of v, for a grid of u.

    Both parts are summed from their own end: their differences would have no digits left.
    """

    def __init__(self, level: _Level, points: int, u: np.ndarray) -> None:
        """Integrate the law over v, from both ends."""
        x, w, cumulative = _panel(points)
        count = math.ceil((level.high - level.low) / level.width)
        if count * points * max(len(u), 100) > _MOST:
            fix = f"its law of weights takes {count} panels at these parameters; use estimate"
            raise TooFine("of", "max_weight", fix)
        half = (level.high - level.low) / count / 2
        middles = level.low + half * (1 + 2 * np.arange(count))
        self.v, self.u = (middles[:, None] + half * x), u
        self.weights = np.broadcast_to(half * w, self.v.shape)
        self.up, self.down = half * cumulative, half * (w - cumulative)
        self.density, self.zero = level.density(self.v), math.exp(level.log_zero)
        mass = (self.density * self.weights).sum() / -math.expm1(level.log_zero)
        self.lost = abs(float(mass) - 1)
        if not self.lost < _LOST:
            fix = f"its law of weights is found up to {self.lost:.1g} only; use estimate"
            raise TooFine("of", "max_weight", fix)

    def blocks(self, start: int) -> Iterator[tuple[slice, np.ndarray, np.ndarray, np.ndarray]]:
        """(slice of u, log φ, log P(f = 0)/φ, log B/φ at the panels from `start` on)."""
        size = max(1, _AT_ONCE // self.v.size)
        for first in range(0, len(self.u), size):
            part = slice(first, first + size)
            x = np.exp(self.u[part, None, None] + self.v)
            below, above = self.parts(self.density * np.exp(-x))
            missing = (self.density * -np.expm1(-x) * self.weights).sum(axis=(1, 2))
            kept = below[:, -1, -1] + above[:, -1, -1]
            phi = np.maximum(self.zero + kept, 1e-300)  # below that no row is left
            each = phi[:, None, None]
            log_b = _log_rest((self.zero + below[:, start:]) / each, above[:, start:] / each)
            yield part, _log_rest(phi, missing), _log_rest(self.zero / phi, kept / phi), log_b

    def parts(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Integrals of y from the lower end up to every node, and from there to the upper end."""
        total = (y * self.weights).sum(axis=-1)
        below, above = y @ self.up.T, y @ self.down.T
        below[..., 1:, :] += np.cumsum(total[..., :-1], axis=-1)[..., None]
        above[..., :-1, :] += np.cumsum(total[..., :0:-1], axis=-1)[..., ::-1, None]
        return below, above


def _lowest(level: _Level, n: float) -> float:
    """The v that the largest weight of a row of n hardly ever stays under, if it is not 0."""
    table = _Table(level, _POINTS[1], np.empty(0))
    share = np.maximum(table.parts(table.density)[0], 0.0)  # of the weights between 0 and v
    with np.errstate(divide="ignore"):
        if table.zero:  # (share + zero)^n − zero^n
            ratio = np.log1p(share / table.zero)
            under = n * level.log_zero + np.log(np.expm1(np.minimum(n * ratio, 700.0)))
        else:
            under = n * np.log(share)
    rare = (under < _LOG_TAIL + math.log(-np.expm1(n * level.log_zero))).all(axis=1)
    count = int(np.argmin(rare)) if not rare.all() else 0
    return float(table.v[max(count - 1, 0), 0])


def _rule(level: _Level, n: np.ndarray, points: int, step: float) -> tuple[np.ndarray, float]:
    """E[max p; row ≠ 0] at each length by one rule, and the share of the mass that it lost."""
    lowest = _lowest(level, float(n.min()))
    u = np.arange(-level.high - _DEEP - math.log(n.max()), 5.0 - lowest, step)
    table = _Table(level, points, u)
    start = int(np.searchsorted(table.v[:, -1], lowest))
    v, weights = table.v[start:], table.weights[start:]
    begin = level.low + start * (level.high - level.low) / len(table.v)
    found = np.zeros(len(n))
    for part, log_phi, log_none, log_share in table.blocks(start):
        for i, m in enumerate(n.tolist()):
            gap = -np.expm1(m * log_share)
            inner = (np.exp(v) * weights * gap).sum(axis=(1, 2))
            # Under the first panel B is P(f = 0) as far as it matters.
            inner += math.exp(begin) * -np.expm1(m * log_none)
            found[i] += float((np.exp(u[part] + m * log_phi) * inner).sum()) * step
    return found, table.lost


def largest(
    kernel: Kernel, beta: float, gamma: float, length: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """E max p over rows that are not all zero, P(the row is not all zero), relative error bounds.

    Args:
        kernel: exp, relu2 or identity, or one of the same definition.
        beta: bias β.
        gamma: spread γ > 0.
        length: row lengths n ≥ 1, [lengths].

    Raises:
        InputError: another kernel.
        TooFine: a law of weights that takes more than seconds.
    """
    if kernel.weight not in _LEVELS:
        fix = "its exact law is known for exp, relu2 and identity; use estimate"
        raise InputError("of", "max_weight", fix)
    if kernel.weight == kernels.exp.weight:
        beta = 0.0  # a factor on every weight
    n = np.asarray(length, dtype=np.float64)
    value, error, several = np.ones(n.shape), np.zeros(n.shape), n > 1
    level = _LEVELS[kernel.weight](beta, gamma, float(n.max()))
    if level.log_zero > _RAREST:
        fix = f"at gamma = {gamma:g} a weight is next to never above 0; give a larger beta"
        raise InputError("beta", beta, fix)
    p_row = -np.expm1(n * level.log_zero)
    if several.any():
        n, seen = n[several], p_row[several]
        (fine, lost), (coarse, _) = (
            _rule(level, n, *how) for how in zip(_POINTS, _STEPS, strict=True)
        )
        value[several] = np.clip(fine / seen, 1 / n, 1.0)
        error[several] = np.abs(fine - coarse) / fine + _ROUNDING + 4 * lost
    return value, p_row, error
