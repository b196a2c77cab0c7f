"""The exact law of what goes by the rank of weights, of rows of n independent scores of one law.

Let N(a) be how many weights are above a. The k largest add up to ∫ min(k, N(a)) da, and the Gini
coefficient is ∫ N(a)(n − N(a)) da / (nZ), Z = Σ|a|: both are ∫ g(N(a)) da / Z = ∫dt ∫da g(N(a))
e^(−tZ). With φ_t = E e^(−t|f|), of which B_t(a) is the part with |f| ≤ a, N is binomial under the
weight e^(−tZ): in u = ln t and v = ln a

    mean = ∫∫ e^(u+v) φ(u)^n E g(Bin(n, 1 − B/φ)) du dv / P(the row is not all zero).

The rule over u is trapezoidal, as in `engine`. The axis of v has Gauss–Legendre panels, in which B
is the integral of the polynomial through their nodes. It takes the law of ln|f|, which softmax,
squared ReLU and the identity have in closed form. The bound holds a coarser rule in both.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import bdtr

from sparsity import kernels
from sparsity.errors import InputError, TooFine
from sparsity.exact_law.levels import LEVELS, LOG_TAIL, Level
from sparsity.kernels import Kernel
from sparsity.quantities import Layers
from sparsity.quantities.base import within

_STEPS = (0.22, 0.3)  # of u: of the value, and of what bounds its error
_POINTS = (16, 12)  # of a panel, likewise
_DEEP = 34.0  # e-folds below the largest weight down to which t counts
_ROUNDING = 1e-12
_RAREST = -1e-270  # log P(f = 0) beyond which densities leave the range of float64
_MOST = 6e7  # numbers of a table
_LOST = 1e-9  # of the mass of a law of weights, beyond which its panels are wrong
_AT_ONCE = 16  # rows of it held at once: they stay in the cache
_GONE = 7.0  # u + v beyond which e^(−tz) is nothing, not even a denormal
MOST_KEYS = 256  # k; far beyond, P(N = 0) leaves the range of float64


@functools.lru_cache(maxsize=16)
def panel(points: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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

    def __init__(self, level: Level, keys: int, points: int, u: np.ndarray) -> None:
        """Integrate the law over v, from both ends."""
        x, w, cumulative = panel(points)
        self.edges = level.edges(fine=keys != 1)
        count = len(self.edges) - 1
        if count * points * max(len(u), 100) > _MOST:
            fix = f"its law of weights takes {count} panels at these parameters; use estimate"
            raise TooFine("row", f"gamma = {level.gamma:g}", fix)
        self.half = np.diff(self.edges)[:, None] / 2
        self.v, self.u = self.edges[:-1, None] + self.half * (1 + x), u
        self.weights = self.half * w
        self.up, self.down = cumulative, w - cumulative
        self.density, self.zero = level.density(self.v), math.exp(level.log_zero)
        mass = (self.density * self.weights).sum(axis=1)
        self.under, self.over = (np.concatenate([[0.0], np.cumsum(m)]) for m in (mass, mass[::-1]))
        self.lost = abs(float(self.under[-1]) / -math.expm1(level.log_zero) - 1)
        if not self.lost < _LOST:
            fix = f"its law of weights is found up to {self.lost:.1g} only; use estimate"
            raise TooFine("row", f"gamma = {level.gamma:g}", fix)

    def blocks(
        self, start: int, least: float
    ) -> Iterator[tuple[slice, slice, np.ndarray, np.ndarray, np.ndarray]]:
        """(slice of u, panels, log φ, log P(f = 0)/φ, log B/φ at the panels' nodes).

        The panels are those from `start` on with `least` < u + v < `_GONE`: weights below count
        for nothing where e^(−tz) is 1, and none is left above.
        """
        for first in range(0, len(self.u), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            u = self.u[part]
            low, high = np.searchsorted(self.edges, (least - u[-1], _GONE - u[0])).tolist()
            low, high = max(low - 1, 0), min(high, len(self.v))
            if high <= max(low, start):
                continue
            x = np.exp(u[:, None, None] + self.v[low:high])
            density = self.density[low:high]
            below, above = self.parts(density * np.exp(-x), low)
            missing = self.over[len(self.v) - high] + (
                np.expm1(-x).reshape(len(u), -1) @ (-density * self.weights[low:high]).ravel()
            )
            kept = below[:, -1, -1] + above[:, -1, -1]
            phi = np.maximum(self.zero + kept, 1e-300)  # below that no row is left
            each, begin = phi[:, None, None], max(low, start)
            below, above = below[:, begin - low :], above[:, begin - low :]
            log_b = _log_rest((self.zero + below) / each, above / each)
            log_none = _log_rest(self.zero / phi, kept / phi)
            yield part, slice(begin, high), _log_rest(phi, missing), log_none, log_b

    def parts(self, y: np.ndarray, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Integrals of y from the lower end up to every node, and from there to the upper end.

        y is given at the panels from `first` on; it is the density below them, 0 above those given.
        """
        which = slice(first, first + y.shape[-2])
        total = (y * self.weights[which]).sum(axis=-1)
        below, above = y @ self.up.T * self.half[which], y @ self.down.T * self.half[which]
        below += self.under[first]
        below[..., 1:, :] += np.cumsum(total[..., :-1], axis=-1)[..., None]
        above[..., :-1, :] += np.cumsum(total[..., :0:-1], axis=-1)[..., ::-1, None]
        return below, above


def _full(level: Level, n: Any, keys: int) -> np.ndarray:
    """Whether rows of n are sure to have so many weights above 0, or where it does not matter."""
    if keys < 2:
        return np.full(np.shape(n), keys == 1)
    return bdtr(keys - 1, np.asarray(n, dtype=np.int64), -math.expm1(level.log_zero)) < math.exp(
        LOG_TAIL
    )


def _lowest(level: Level, n: float, keys: int) -> float:
    """The v under which the weights that count, if they are not 0, hardly ever are."""
    if not _full(level, n, keys):
        return level.low
    table = _Table(level, keys, _POINTS[1], np.empty(0))
    share = np.maximum(table.parts(table.density)[0], 0.0)  # of the weights between 0 and v
    with np.errstate(divide="ignore"):
        if keys > 1:
            above = np.clip(table.parts(table.density)[1], 0.0, 1.0)
            under = np.log(bdtr(keys - 1, int(n), above))
        elif table.zero:  # (share + zero)^n − zero^n
            ratio = np.log1p(share / table.zero)
            under = n * level.log_zero + np.log(np.expm1(np.minimum(n * ratio, 700.0)))
        else:
            under = n * np.log(share)
    rare = (under < LOG_TAIL + math.log(-np.expm1(n * level.log_zero))).all(axis=1)
    count = int(np.argmin(rare)) if not rare.all() else 0
    return float(table.v[max(count - 1, 0), 0])


def _rule(
    level: Level, n: np.ndarray, layers: Layers, points: int, step: float
) -> tuple[np.ndarray, float]:
    """E[value; row ≠ 0] at each length by one rule, and the share of the mass that it lost."""
    lowest = _lowest(level, float(n.min()), layers.keys)
    u = np.arange(-level.high - _DEEP - math.log(n.max()), 5.0 - lowest, step)
    table = _Table(level, layers.keys, points, u)
    start = int(np.searchsorted(table.v[:, -1], lowest))
    begin = float(table.edges[start])
    rare = LOG_TAIL - 10 - math.log(n.max())
    found = np.zeros(len(n))
    for part, panels, log_phi, log_none, log_share in table.blocks(start, rare):
        top = float(table.v[panels][-1, -1])  # e^v alone may be beyond float64
        area = (np.exp(table.v[panels] - top) * table.weights[panels]).ravel()
        for i, m in enumerate(n.tolist()):
            log_row = u[part] + m * log_phi  # of the chance that no weight has ended the row
            alive = log_row + level.high > LOG_TAIL - 10 - math.log(m)
            held = layers.mean(m, log_share[alive])
            inner = held.reshape(len(held), area.size) @ area
            # Under the first panel B is P(f = 0) as far as it matters.
            inner += math.exp(begin - top) * layers.mean(m, log_none[alive])
            found[i] += float(np.exp(log_row[alive] + top) @ inner) * step
    return found, table.lost


def ranked(
    kernel: Kernel, beta: float, gamma: float, length: np.ndarray, layers: Layers
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean over nonzero rows, P(the row is not all zero), and relative error bounds.

    Args:
        kernel: one of `LEVELS`: exp, identity, relu2, and the powers of the zoo.
        beta: bias β.
        gamma: spread γ > 0.
        length: row lengths n ≥ 1, [lengths].
        layers: what the quantity is of N(a).

    Raises:
        InputError: another kernel, or more keys than `MOST_KEYS`.
        TooFine: a law of weights that takes more than seconds.
    """
    if kernel.weight not in LEVELS:
        fix = "no exact law of ranks but for exp and powers of |s| or max(s, 0); use estimate"
        raise InputError("kernel", kernel.name, fix)
    if layers.keys > MOST_KEYS:
        fix = f"the exact law of top_k_mass is known up to k = {MOST_KEYS}; use estimate"
        raise InputError("k", layers.keys, fix)
    if kernel.weight == kernels.exp.weight:
        beta = 0.0  # a factor on every weight
    n = np.asarray(length, dtype=np.float64)
    several = n > max(layers.keys, 1)
    least, most = np.array([layers.ends(m) for m in n.tolist()]).T
    value, error = most.copy(), np.zeros(n.shape)
    level = LEVELS[kernel.weight](beta, gamma, float(n.max()))
    if level.log_zero > _RAREST:
        fix = "a weight is hardly ever above 0; give a larger beta, or a larger gamma"
        raise InputError("beta / gamma", beta / gamma, fix)  # the caller may have scaled both
    p_row = -np.expm1(n * level.log_zero)
    full = _full(level, n, layers.keys)
    for own in (several & full, several & ~full):
        if own.any():
            (fine, lost), (coarse, _) = (
                _rule(level, n[own], layers, *how) for how in zip(_POINTS, _STEPS, strict=True)
            )
            error[own] = np.abs(fine - coarse) / fine + _ROUNDING + 4 * lost
            value[own] = within(fine / p_row[own], error[own], (least[own], most[own]))
    return value, p_row, error
