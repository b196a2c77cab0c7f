"""The exact laws of stick-breaking rows of n independent scores N(β, γ²): a key at a time.

With b = σ(s), the key at distance d from the query has a_d = b_d Π_{i<d}(1 − b_i), a product of
independent factors. The weights are taken as they are: what no key takes, Π(1 − b_i), stays in the
total of 1, as mass on a sink does, and E of it is (1 − E b)ⁿ. So with q = 1 − E b, r = E(1 − b)²

    E Σa²      = E b² (1 − rⁿ)/(1 − r)   ->   E b²/(2 E b − E b²) in long rows, whatever n
    E −Σa ln a = Σ_d [h q^d + d h′ E b q^(d−1)],   h = −E b ln b, h′ = −E (1 − b) ln(1 − b).

For n_eff and the largest weight, a row is b of the key next to the query and (1 − b) times a row of
one key less. So with T = Σa, Q = Σa² and M = max a,

    T = b + (1 − b)T′,    Q = b² + (1 − b)²Q′,    M = max(b, (1 − b)M′),

of T′, Q′, M′ independent of b. For ψ_k(t) = E T^k e^(−tQ) and F(m) = P(M ≤ m) these are linear,

    ψ₂(t) = E e^(−tb²)[b²ψ₀ + 2b(1 − b)ψ₁ + (1 − b)²ψ₂](t(1 − b)²),
    F(m) = E[F(m/(1 − b)); b ≤ m],

and so are ψ₁ = E e^(−tb²)[bψ₀ + (1 − b)ψ₁] and ψ₀. E T²/Q = ∫₀^∞ ψ₂ dt, E M = ∫₀¹ (1 − F) dm. The ψ
live on a grid of ln t, between whose points they are local polynomials, F on Gauss–Legendre panels
of ln m/(1 − m), cut where it has a corner, at m = 1/2, 1/3, …; a key is a matrix, and n keys its
power. Beyond the keys that use the stick up nothing changes. The bound holds a coarser rule. Where
keys take next to nothing, a = e^s and n_eff is that of softmax.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sympy

from sparsity import quantities
from sparsity.errors import RESOLVED, InputError
from sparsity.exact_law import engine, rules
from sparsity.exact_law.gaussian_tail import ROOT_2_PI
from sparsity.kernels import Kernel, exp, score_kernel
from sparsity.kernels.symbols import s as score
from sparsity.limit import quadrature
from sparsity.quantities.base import within
from sparsity.rows.row import Row
from sparsity.special import ndtr

_TAKEN, _LEFT = 1 / (1 + sympy.exp(-score)), 1 / (1 + sympy.exp(score))
_SHARE, _REST = score_kernel("share", _TAKEN), score_kernel("rest", _LEFT)
_OF_SHARE = score_kernel("of the share", _TAKEN * sympy.log(1 + sympy.exp(-score)))
_OF_REST = score_kernel("of the rest", _LEFT * sympy.log(1 + sympy.exp(score)))
_ROUNDING_OF_SUMS = 4e-15  # of the closed sums of powers, a dozen operations: relative
_STEP_LIKE = 1e15  # γ beyond which σ(s) is a step
_LEAST_LOG = -300.0  # of a mean, so that products of means stay in float64

_FAR = 8.5  # standard deviations of a score that count
_SCORE_PANEL, _WIDEST_PANEL = 0.5, 1.0  # panel of a score, in standard deviations, and its widest
_POINTS = 12  # of a panel of a score
_RULES = ((2.4, 16), (2.9, 14))  # width of panels and their nodes: of the value, of its bound
_CORNERED = 0.6  # of that width, where F has corners
_LAST_CORNER = 8  # 1/m of the last corner that counts
_FALL = 32.0  # e-folds that count
_RARE = 6.5  # standard deviations below which no first key counts
_DAMPED = 3.7  # ln t of e^(−tQ) that is nothing, at Q = 1
_NOTHING = -45.0  # score from which on downwards 1 − b is 1
_ALL = 38.0  # and from which on b is 1
_LIGHT = 32.0  # e-folds below 1 at which what all keys take is nothing
_USED = 45.0  # e-folds of what is left of the stick beyond which nothing is
_MOST_NODES = 1000  # of u: the matrix that is raised to powers has its square of entries
_ROUNDING, _ROUNDING_OF_KEY = 2e-13, 1e-15


def _mean(kernel: Kernel, power: int, beta: float, gamma: float) -> tuple[float, float]:
    """Return E of a power of a function of the score, and the relative error of it."""
    # Beyond that spread σ(s) is a step, and only β/γ matters: the law of a narrower one is taken.
    wider = max(gamma / _STEP_LIKE, 1.0)  # all but a share 1/γ of such scores take nothing or all
    log, error = quadrature.moment(kernel, power, beta / wider, gamma / wider)
    if wider > 1:
        error += 8 / _STEP_LIKE
        log -= math.log(wider) if kernel in (_OF_SHARE, _OF_REST) else 0.0  # they are of the share
    if log < _LEAST_LOG:
        fix = "is so far from 0 that a key takes almost nothing, or all; use less extreme values"
        raise InputError("beta", beta, fix)
    return math.exp(float(log)), float(error)


def _lost_power(one_less: float, n: np.ndarray) -> np.ndarray:
    """Return 1 − xⁿ, given 1 − x."""
    with np.errstate(divide="ignore"):
        return -np.expm1(n * np.log1p(-min(one_less, 1.0)))


def participation(beta: float, gamma: float, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return E Σa² over rows of n, and a bound on its relative error.

    Args:
        beta: bias β.
        gamma: spread γ > 0.
        length: row lengths n ≥ 1, [lengths].
    """
    (taken, off), (square, gap) = (_mean(_SHARE, power, beta, gamma) for power in (1, 2))
    # A geometric series of ratio r = E(1 − b)², by 1 − r, which has its digits where b is small.
    ends = 2 * taken - square  # 1 − r
    value = square * _lost_power(ends, np.asarray(length, dtype=np.float64)) / ends
    error = gap + 2 * (2 * taken * off + square * gap) / ends + _ROUNDING_OF_SUMS
    return value, np.full(value.shape, error)


def entropy(beta: float, gamma: float, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return E[−Σa ln a] over rows of n in nats, and a bound on its relative error.

    Args as `participation`.
    """
    n = np.asarray(length, dtype=np.float64)
    means = [_mean(kernel, 1, beta, gamma) for kernel in (_SHARE, _REST, _OF_SHARE, _OF_REST)]
    (taken, rest, own, others), errors = zip(*means, strict=True)
    all_ = _lost_power(taken, n)  # 1 − qⁿ
    log_rest = math.log1p(-taken) if taken < 0.5 else math.log(rest)
    power = np.exp((n - 1) * log_rest)
    # The second sum is E b Σ d q^(d−1) = (1 − qⁿ)/E b − n q^(n−1).
    value = own * all_ / taken + others * np.maximum(all_ / taken - n * power, 0.0)
    return value, np.full(value.shape, 6 * sum(errors) + _ROUNDING_OF_SUMS)


def _score_nodes(
    beta: float, gamma: float, cuts: np.ndarray, least: float, most: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes s of a score between two ends, of panels that end at cuts, and their weights."""
    low, high = max(beta - _FAR * gamma, least), min(beta + _FAR * gamma, most)
    if high <= low:
        return np.empty(0), np.empty(0)
    count = math.ceil((high - low) / min(_SCORE_PANEL * gamma, _WIDEST_PANEL))
    inner = cuts[(cuts > low) & (cuts < high)]
    edges = np.unique(np.concatenate([np.linspace(low, high, count + 1), inner]))
    s, w = (each.ravel() for each in rules.gauss_panels(edges, _POINTS))
    z = (s - beta) / gamma
    return s, w * np.exp(-0.5 * z * z) / (gamma * ROOT_2_PI)


def _log_left(s: np.ndarray) -> np.ndarray:
    """Return ln(1 − σ(s))."""
    return -np.logaddexp(s, 0.0)


def _times(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the product of matrices of blocks, [rows, columns, ·, ·], zero above the diagonal."""
    # Moments of an order follow from those of lower orders alone: three blocks of nine are zero.
    found = np.zeros((*other.shape[:2], one.shape[2], other.shape[3]))
    for i in range(len(one)):
        for j in range(min(i + 1, other.shape[1])):
            found[i, j] = sum(one[i, k] @ other[k, j] for k in range(j, i + 1))
    return found


def _after_keys(key: np.ndarray, start: np.ndarray, counts: Sequence[int]) -> list[np.ndarray]:
    """Return what some numbers of keys, ascending, make of a start; blocks as `_times` has them."""
    # Powers of two of the key's matrix are made as they are needed, and shared by all counts.
    doubled, found, value, done = [key], [], start[:, None, :, None], 0
    for count in counts:
        rest, i = count - done, 0
        while rest >> i:
            if i == len(doubled):
                doubled.append(_times(doubled[-1], doubled[-1]))
            if rest >> i & 1:
                value = _times(doubled[i], value)
            i += 1
        done = count
        found.append(value[:, 0, :, 0])
    return found


def _refuse_slow(
    beta: float, gamma: float, points: float, size: float, counts: Sequence[int]
) -> None:
    """Refuse points that take too long, whichever parameter they come from."""
    name, value = ("beta", beta) if abs(beta) > _FAR * gamma else ("gamma", gamma)
    doublings = 2 * math.log2(max(counts) + 1)
    seconds = rules.PRODUCT / 20 * size**3 * doublings  # a product of matrices is so much faster
    rules.refuse_slow(name, value, seconds if points <= _MOST_NODES else math.inf)


def _max_key(beta: float, gamma: float, edges: np.ndarray, points: int) -> np.ndarray:
    """Return the matrix of F of one key more, given F at the nodes of ln m/(1 − m), and 1."""
    nodes, gauss = rules.gauss_panels(edges, points)[0].ravel(), rules.gauss_rule(points)[0]
    size = len(nodes)
    found = np.zeros((size + 1, size + 1))
    found[-1, -1] = 1.0
    log_edges = _log_left(-edges)
    for i, u in enumerate(nodes):
        log_m = float(_log_left(np.array(-u)))
        # As b runs over the scores, m/(1 − b) runs over the panels of F: a panel of scores ends
        # where that comes to the end of one of these.
        log_left = np.minimum(log_m - log_edges, -1e-300)  # where m/(1 − b) is at an edge
        cuts = np.append(np.log(-np.expm1(log_left)) - log_left, -u)
        s, w = _score_nodes(beta, gamma, cuts, _NOTHING, float(u))
        log_y = log_m - _log_left(s)
        inside = (s < -u) & (log_y < log_edges[-1])
        found[i, -1] = w[~inside].sum()
        y = log_y[inside]
        at = y - np.log(-np.expm1(y))
        which = np.clip(np.searchsorted(edges, at, side="right") - 1, 0, len(edges) - 2)
        low, high = edges[which], edges[which + 1]
        share = rules.lagrange_weights((2 * at - low - high) / (high - low), gauss)
        columns = which[:, None] * points + np.arange(points)
        np.add.at(found[i], columns, share * w[inside, None])
        found[i, i] += ndtr((min(_NOTHING, float(u)) - beta) / gamma)  # these take nothing
    return found


def _mean_max(
    beta: float, gamma: float, counts: Sequence[int], rule: tuple[float, int]
) -> np.ndarray:
    """Return E M after some numbers of keys."""
    width, points = rule
    taken, _ = _mean(_SHARE, 1, beta, gamma)
    low = max(beta - _FAR * gamma, math.log(taken) - _FALL)
    high = min(beta + _FAR * gamma, _ALL)
    if low >= high:  # the first key takes all
        return np.ones(len(counts))
    panels = math.ceil((high - low) / (_CORNERED * width * min(gamma, 1.0)))
    _refuse_slow(beta, gamma, panels * points, panels * points, counts)
    corners = [-math.log(k - 1) for k in range(2, _LAST_CORNER + 1)]
    inner = [cut for cut in corners if low < cut < high]
    edges = np.unique([*np.linspace(low, high, panels + 1), *inner])
    nodes, weights = (x.ravel() for x in rules.gauss_panels(edges, points))
    key = _max_key(beta, gamma, edges, points)
    every = _after_keys(key[None, None], np.ones((1, len(nodes) + 1)), counts)
    m = np.exp(_log_left(-edges[0]))
    slope = weights * np.exp(_log_left(nodes) + _log_left(-nodes))
    return np.array([m + slope @ (1 - f[0, :-1]) for f in every])


def _n_eff_key(beta: float, gamma: float, log_t: np.ndarray, taps: int) -> np.ndarray:
    """Return the matrix of ψ₀, ψ₁ and ψ₂ of one key more, on a grid of ln t.

    Below the grid they are constant. In ln t a key moves ψ by 2 ln(1 − b), between points of the
    grid, where ψ is the polynomial through `taps` of them.
    """
    size = len(log_t)
    found = np.zeros((3, 3, size, size))
    least = _NOTHING - max(float(log_t[-1]), 0.0) / 2  # of it the last t makes nothing
    s, w = _score_nodes(beta, gamma, np.empty(0), least, _ALL)
    b, left = np.exp(_log_left(-s)), np.exp(_log_left(s))
    down = 2 * _log_left(s) / (log_t[1] - log_t[0])
    first = np.floor(down) - taps // 2 + 1
    weights = rules.lagrange_weights(down - first, np.arange(taps))
    near = first.astype(int)[:, None] + np.arange(taps)
    moves = (
        *((0, 0, 1.0), (1, 0, b), (1, 1, left)),
        *((2, 0, b * b), (2, 1, 2 * b * left), (2, 2, left * left)),
    )
    for i in range(size):
        kept = w * np.exp(-np.exp(log_t[i]) * b * b)
        share, at = np.where(i + near < size, weights, 0.0), np.clip(i + near, 0, size - 1)
        for k, j, times in moves:
            np.add.at(found[k, j, i], at, share * (kept * times)[:, None])
    none, all_ = ndtr((least - beta) / gamma), ndtr((beta - _ALL) / gamma)
    for k in range(3):
        found[k, k] += none * np.eye(size)
        found[k, 0, :, 0] += all_ * np.exp(-np.exp(log_t))
    return found


def _mean_n_eff(
    beta: float, gamma: float, counts: Sequence[int], rule: tuple[float, int]
) -> np.ndarray:
    """Return E T²/Q after some numbers of keys."""
    width, taps = rule
    high = _DAMPED - 2 * float(_log_left(np.array(_RARE * gamma - beta)))
    most = 2 * float(_log_left(np.array(-_FAR * gamma - beta))) + math.log(max(counts))
    low = -_FALL - min(most, 0.0)  # ψ is constant below e^(−32) over the largest Q
    points = (high - low) * taps / width
    _refuse_slow(beta, gamma, points, 2.2 * points, counts)  # 10 products of blocks
    log_t = np.arange(low, high, width / taps)
    start = np.zeros((3, len(log_t)))
    start[0] = 1.0
    every = _after_keys(_n_eff_key(beta, gamma, log_t, taps), start, counts)
    h = log_t[1] - log_t[0]
    t = np.exp(log_t) * h
    t[0] *= 1 + 1 / math.expm1(h)  # the sum of the rule below the first t
    return np.array([t @ psi[2] for psi in every])


def _by_keys(
    beta: float,
    gamma: float,
    length: np.ndarray,
    mean: Callable[..., np.ndarray],
    ends: tuple[float, Any],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean over rows of n that the rules give, and a bound on its relative error."""
    n = np.asarray(length, dtype=np.float64)
    # After so many keys nothing is left of the stick.
    taken, _ = _mean(_SHARE, 1, beta, gamma)
    used = _USED / -math.log1p(-min(taken, 1 - 1e-16))
    keys = np.minimum(n, math.ceil(min(used, 2.0**53))).astype(int)
    counts, back = np.unique(keys, return_inverse=True)
    with np.errstate(over="ignore", invalid="ignore"):
        fine, coarse = (mean(beta, gamma, counts.tolist(), rule) for rule in _RULES)
        error = (np.abs(coarse / fine - 1) + _ROUNDING + _ROUNDING_OF_KEY * counts)[back]
    value = within(fine[back], error, np.broadcast_arrays(*ends, error)[:2])
    if not (error < RESOLVED).all():
        fix = "so many keys are beyond the digits of its exact law; use estimate"
        raise InputError("length", float(n.max()), fix)
    return value, error


def max_weight(beta: float, gamma: float, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of the largest weight, and a bound on its relative error.

    Args as `participation`.

    Raises:
        TooFine: scores so spread that the law takes too many points.
        InputError: keys that take next to nothing.
    """
    return _by_keys(beta, gamma, length, _mean_max, (0.0, 1.0))


def n_eff(beta: float, gamma: float, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of (Σa)²/Σa², and a bound on its relative error; as `max_weight`."""
    n = np.asarray(length, dtype=np.float64)
    longest = math.log(float(n.max()))
    # All n keys together take so little that a = e^s, but for a chance n⁻² e^(−32).
    if beta + gamma * math.sqrt(2 * (_LIGHT + 2 * longest)) < -_LIGHT - longest:
        value, _, error = engine.law(Row(exp, gamma=gamma), quantities.n_eff, n)
        return value, error + _ROUNDING
    value, error, several = np.ones(n.shape), np.zeros(n.shape), n > 1
    if several.any():
        m = n[several]
        value[several], error[several] = _by_keys(beta, gamma, m, _mean_n_eff, (1.0, m))
    return value, error


LAWS: dict[str, Callable[..., tuple[np.ndarray, np.ndarray]]] = {
    "participation": participation,
    "entropy": entropy,
    "max_weight": max_weight,
    "n_eff": n_eff,
}
