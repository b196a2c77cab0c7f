"""The exact law of what lies below a threshold under the largest weight, at finite n.

A weight is e^v. Given the largest, at v = m, a unit of b keys (a tile, or a single key) lies below
m + t, t = ln λ, and the others below m. Of independent keys, F the distribution function of v,

    share = ∫ F(m + t)^b d[F(m)^(n − b)].

The weight that they hold is a sum over Σ. By 1/x = ∫ e^(−xτ) dτ it is the same integral, with
B_τ(m) = E[e^(−τe^v); v < m] in the place of F(m), b·C_τ B_τ^(b−1) at m + t in that of F(m + t)^b,
C_τ = E[e^v e^(−τe^v); v < m + t], and e^(−τe^m) times the density of the largest.

Keys of a tile that are alike share g in v = r·g + ε: everything is given g, averaged over g for
each tile, and tiles are independent. With u = ln τ + m both e^(−τe^v) and τe^v depend on u and
v − m alone, so that B and C at all places are products of two matrices.

The rules over m, g and u are trapezoidal; m and g have one step, so that m − r·g stays on a grid.
Those over v are Gauss-Legendre. The bound is the gap to coarser rules, and what the ends leave out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sparsity import kernels
from sparsity.errors import InputError, TooFine
from sparsity.exact_law.integration import (
    PRODUCT,
    gauss_panels,
    gauss_rule,
    grid_points,
    refuse_slow,
    relative_gap,
)
from sparsity.exact_law.needle import log_chance_between, scores_below
from sparsity.exact_law.ranked import law_of_weights
from sparsity.kernels import Kernel
from sparsity.quantities import BelowLaw
from sparsity.quantities.base import Means, clip_to_range
from sparsity.special import log_ndtr

_FINE, _COARSE = (0.35, 16, 1), (0.7, 12, 2)  # step of u, points of a panel of v, steps of m and g
_STEP = 0.3  # of m, in widths of the law of the largest of n
_REACH = 36.0  # e-folds of a chance that count: of the largest, and of weights and times
_FAR = 13.0  # standard deviations of g: what is small may come of the farthest
_LATEST = 4.0  # u: by then e^(−e^u) is e^−54
_WIDEST = 0.9  # panel of v
_DEEPEST = 45.0  # e-folds of the integrand over m that are kept
_NEVER = -690.0  # the least log of a chance: e^−690 is within float64
_LEAST = 1e-250  # value beside which chances below that are nothing
_NEAREST_0, _NEAREST_1 = 2e-4, 0.95  # within: beyond, the step that m and g share is too fine
_ROUNDING = 1e-11  # allowed for in every bound, beside the gap of the two rules


class _Key(NamedTuple):
    """The law of v of one key, given what its tile shares.

    Args:
        density: of v.
        log_cdf: log P(v < …).
        low: v below which nothing falls, whatever is shared.
        high: v above which a row has nothing.
        width: of the law of the largest, in v.
        shared: r, the standard deviation of what keys of a tile share.
    """

    density: Callable[[np.ndarray], np.ndarray]
    log_cdf: Callable[[np.ndarray], np.ndarray]
    low: float
    high: float
    width: float
    shared: float = 0.0


class _Grid(NamedTuple):
    """The places of m and of g: m − r·g is q at a whole number of steps.

    Args:
        m: [m].
        step: of m, and of r·g.
        q: from the largest g at the lowest m on, [m + g − 1].
        chances: of g, by q and m, [q, m]; None where nothing is shared and q is m.
    """

    m: np.ndarray
    step: float
    q: np.ndarray
    chances: np.ndarray | None

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Return the mean over g of values at q, [..., m]."""
        return values if self.chances is None else values @ self.chances


def _grid(key: _Key, low: float, high: float, every: int) -> _Grid:
    step = _STEP * key.width * every
    m, half = grid_points(low, high + step, step), math.ceil(_FAR * key.shared / step)
    if not half:
        return _Grid(m, step, m, None)
    density = np.exp(-0.5 * (step / key.shared * np.arange(-half, half + 1)) ** 2)
    density = np.pad(density / density.sum(), len(m) - 1)
    windows = np.lib.stride_tricks.sliding_window_view(density, len(m))[:, ::-1]
    q = np.concatenate(
        [m[0] + step * np.arange(-half, 0), m, m[-1] + step * np.arange(1, half + 1)]
    )
    return _Grid(m, step, q, np.ascontiguousarray(windows))


def _mean_over_m(
    grid: _Grid, of: BelowLaw, groups: dict[int, int], of_key: tuple[Any, Any, Any, Any]
) -> np.ndarray:
    """Return the integrand over m, [..., m], added up over all units of the row.

    Args:
        grid: of m and g.
        of: the threshold.
        groups: how many groups of alike keys there are, by their size.
        of_key: of a key at q log F(m), or log B; log F(m + t), or log B; log of the density at m,
            over F or B; log of C/B at m + t, None of shares.
    """
    below, under, at, first = of_key
    log_phi, hazard = {}, {}  # of a whole group: that it lies below m, and that it then has m
    for size in groups:
        phi = np.maximum(1 + grid.mean(np.expm1(size * below)), 1e-300)
        log_phi[size] = np.log(phi)
        hazard[size] = grid.mean(size * np.exp(at + size * below)) / phi
    total: Any = 0.0
    for size, count in groups.items():
        others = {s: c - (s == size) for s, c in groups.items()}
        chance = np.exp(sum(c * log_phi[s] for s, c in others.items()))
        rate = sum(c * hazard[s] for s, c in others.items())
        for unit, many in ((of.tile, size // of.tile), (size % of.tile, 1)):
            if not unit * many:
                continue
            body = unit * under + (size - unit) * below
            body = body if first is None else body + first + math.log(unit)
            of_tile = grid.mean(np.exp(body + at)) * (size - unit)
            total = total + count * many * chance * (of_tile + grid.mean(np.exp(body)) * rate)
    return total


def _logs(key: _Key, of: BelowLaw, grid: _Grid) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log F at q and at q + t, and the log of the density at q over F."""
    below, under = (key.log_cdf(grid.q + t) for t in (0.0, of.log_ratio))
    below, under = np.maximum(below, _NEVER), np.where(under > _NEVER, under, -np.inf)
    return below, under, np.log(key.density(grid.q)) - below


def _shares(key: _Key, of: BelowLaw, groups: dict[int, int], grid: _Grid) -> np.ndarray:
    """Return the integrand of the share over m."""
    return _mean_over_m(grid, of, groups, (*_logs(key, of, grid), None))


def _masses(
    key: _Key, of: BelowLaw, groups: dict[int, int], grid: _Grid, n: float, rule: tuple[Any, ...]
) -> np.ndarray:
    """Return the integrand of the weight over m."""
    step, points, _ = rule
    deep = min(_REACH + math.log(n), max(grid.q[-1] - key.low, 1e-3)) - of.log_ratio
    width = min(_WIDEST, 3 * key.width)
    edges = [
        np.linspace(a, b, math.ceil((b - a) / width) + 1)
        for a, b in ((-deep, of.log_ratio), (of.log_ratio, 0.0))
    ]
    (low, low_w), (high, high_w) = (gauss_panels(x, points) for x in edges)
    v, weights = (np.concatenate([a.ravel(), b.ravel()]) for a, b in ((low, high), (low_w, high_w)))
    u = grid_points(-_REACH - math.log(n), _LATEST, step)[:, None]
    held = v.size * grid.q.size
    refuse_slow("length", n, PRODUCT * u.size * held, held)
    mass, cut = key.density(v[:, None] + grid.q) * weights[:, None], low.size
    log_f, log_under, at = _logs(key, of, grid)
    never, log_under = np.isneginf(log_under), np.maximum(log_under, _NEVER)
    x = np.exp(u + v)
    ended, falling = -np.expm1(-x), x[:, :cut] * np.exp(-x[:, :cut])
    lost_under = ended[:, :cut] @ mass[:cut]
    lost = lost_under + ended[:, cut:] @ mass[cut:]
    # Where nothing is left, 1 − lost/F is rounding: a number that is low serves.
    left, left_under = (
        np.log1p(-np.minimum(part / np.exp(log), 1 - 1e-16))
        for part, log in ((lost, log_f), (lost_under, log_under))
    )
    first = np.where(never, -np.inf, np.log(falling @ mass[:cut]) - log_under - left_under)
    of_key = log_f + left, log_under + left_under, at - left - np.exp(u), first
    return _mean_over_m(grid, of, groups, of_key).sum(axis=0) * step


@np.errstate(divide="ignore")  # the logarithm of a chance that is 0
def _value(key: _Key, n: int, of: BelowLaw, group: int) -> tuple[float, float]:
    """Return E[value; row ≠ 0], and a bound on its relative error."""
    groups = {group: n // group, n % group: 1}
    groups = {size: count for size, count in groups.items() if size and count}
    tiles = sum(count * math.ceil(size / of.tile) for size, count in groups.items())
    if tiles == 1:  # which has the largest weight
        return 0.0, 0.0
    if key.high - key.low < -of.log_ratio:  # nothing lies so far below another
        return 0.0, math.inf
    whole = _grid(key, key.low, key.high, 1)
    # Where the share has its mass, or the largest weight has: the weight that is held lies between.
    nothing = BelowLaw(-1e-9, of.tile)
    sizes = np.stack([_shares(key, law, groups, whole) for law in (of, nothing)])
    seen = (sizes > sizes.max(axis=1, keepdims=True) * math.exp(-_DEEPEST)).any(axis=0)
    low, high = whole.m[seen][[0, -1]]
    values, ends = [], 0.0
    for rule in (_FINE, _COARSE):
        grid = _grid(key, low, high, rule[2])
        if of.mass:
            body = _masses(key, of, groups, grid, n, rule)
        else:
            body = _shares(key, of, groups, grid) / tiles
        values.append(float(body.sum()) * grid.step)
        ends = ends or float(body[0] + body[-1]) * key.width
    if not values[0] > _LEAST:
        return 0.0, math.inf
    beyond = n * math.exp(-0.5 * _FAR**2) if key.shared else 0.0  # g of one of n tiles, or fewer
    return values[0], relative_gap(*values) + (10 * ends + beyond) / values[0] + _ROUNDING


def _clip_resolved(value: float, error: float, of: BelowLaw, n: float) -> float:
    """Return a value without rounding beyond its ends; what is not resolved is no value."""
    return float(clip_to_range(value, error, of.ends(n))) if math.isfinite(error) else value


def _log_chance(ends: tuple[Any, Any], beta: float, gamma: float) -> np.ndarray:
    """Return `log_chance_between`, of narrow intervals too."""
    (low, high), x, weights = ends, *gauss_rule(16)
    log = log_chance_between(ends, beta, gamma)
    # There the difference of two chances has no digits, and Gauss's rule has all of them.
    narrow = (high - low) * (1 + abs(beta / gamma)) < gamma
    half, centre = (high - low)[narrow] / (2 * gamma), (high + low)[narrow] / 2
    z = (centre[:, None] + (gamma * half)[:, None] * x - beta) / gamma
    log[narrow] = np.log(half * (np.exp(-0.5 * z * z) @ weights) / math.sqrt(2 * math.pi))
    return log


def of_independent(
    kernel: Kernel, beta: float, gamma: float, length: np.ndarray, of: BelowLaw
) -> Means:
    """Return the mean over nonzero rows, P(the row is not all zero), and relative error bounds.

    Args and raises as `ranked.ranked`; what is not resolved has a bound of ∞.
    """
    beta = 0.0 if kernel.weight == kernels.exp.weight else beta  # a factor on every weight
    ends_below = scores_below(kernel)

    def log_cdf(v: np.ndarray) -> np.ndarray:
        return _log_chance(ends_below(v), beta, gamma)

    means = []
    for n in length.tolist():
        law = law_of_weights(kernel, beta, gamma, n * math.exp(_REACH))
        width = law_of_weights(kernel, beta, gamma, n).spread
        key = _Key(law.density, log_cdf, law.low, law.high, width)
        value, error = _value(key, int(n), of, int(n))
        p_row = -math.expm1(n * law.log_zero)
        means.append((_clip_resolved(value / p_row, error, of, n), p_row, error))
    return Means(*np.array(means).T)


def of_alike(
    gamma: float, within: float, size: int, length: np.ndarray, of: BelowLaw
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean over rows of softmax whose keys are alike in tiles, and its error bound.

    Args:
        gamma: spread of the scores.
        within: correlation of two scores of a tile.
        size: keys of such a tile.
        length: n, [lengths].
        of: of keys, or of tiles that divide those.

    Raises:
        InputError: a correlation too near to 1, or other tiles.
    """
    if size % of.tile:
        fix = f"its exact law is known for tiles that divide those of {size}; use estimate"
        raise InputError("of", f"tiles of {of.tile}", fix)
    if within and not _NEAREST_0 <= within <= _NEAREST_1:
        fix = f"must be 0, or from {_NEAREST_0:g} to {_NEAREST_1:g}, for an exact law; use estimate"
        raise TooFine("within", within, fix)
    unshared, shared = gamma * math.sqrt(1 - within), gamma * math.sqrt(within)

    def density(v: np.ndarray) -> np.ndarray:
        return np.exp(-0.5 * (v / unshared) ** 2) / (unshared * math.sqrt(2 * math.pi))

    pairs = []
    for n in length.tolist():
        law = law_of_weights(kernels.exp, 0.0, gamma, n * math.exp(_REACH))
        width = unshared / math.sqrt(2 + 2 * math.log(n))
        if shared:  # two steps of g, and in the coarser rule one
            width = min(width, 2 * shared)
        key = _Key(density, lambda v: log_ndtr(v / unshared), law.low, law.high, width, shared)
        value, error = _value(key, int(n), of, size if shared else int(n))
        pairs.append((_clip_resolved(value, error, of, n), error))
    value, error = np.array(pairs).T
    return value, error
