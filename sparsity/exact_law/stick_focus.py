"""How many keys stick-breaking attends to, and its largest weight, exactly: a key at a time.

With b = σ(s) of the key next to the query, a row is b and (1 − b) times a row of one key less. So
with T = Σa, Q = Σa² and M = max a,

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

import numpy as np
from scipy.special import ndtr

from sparsity import quantities
from sparsity.errors import InputError
from sparsity.exact_law import engine, work
from sparsity.exact_law.stick_breaking import mean_taken
from sparsity.kernels import exp
from sparsity.quantities.base import within
from sparsity.rows.row import Row

_FAR = 8.5  # standard deviations of a score that count
_SCORE = 0.5  # panel of a score, in standard deviations, and its widest
_WIDEST = 1.0
_POINTS = 12  # of a panel of a score
_RULES = ((2.4, 16), (2.9, 14))  # width of panels and their nodes: of the value, of its bound
_CORNERED = 0.6  # of that width, where F has corners
_FALL = 32.0  # e-folds that count
_RARE = 6.5  # standard deviations below which no first key counts
_DAMPED = 3.7  # ln t of e^(−tQ) that is nothing, at Q = 1
_LAST = 8  # 1/m of the last corner that counts
_NOTHING = -45.0  # score from which on downwards 1 − b is 1
_ALL = 38.0  # and from which on b is 1
_LIGHT = 32.0  # e-folds below 1 at which what all keys take is nothing
_USED = 45.0  # e-folds of what is left of the stick beyond which nothing is
_MOST = 1000  # nodes
_RESOLVED = 1e-3  # a relative error that is still an answer
_ROUNDING = 2e-13
_PER_KEY = 1e-15


class _Panels:
    """Functions by their values at the nodes of panels.

    Args:
        edges: of the panels, ascending.
        points: nodes of each.
    """

    def __init__(self, edges: np.ndarray, points: int) -> None:
        x, w = np.polynomial.legendre.leggauss(points)
        half = np.diff(edges)[:, None] / 2
        self.edges, self.points = edges, points
        self.nodes = (edges[:-1, None] + half * (1 + x)).ravel()
        self.weights = (half * w).ravel()
        self._x = x
        gaps = x[:, None] - x + np.eye(points)
        self._bary = 1 / gaps.prod(axis=1)

    def reads(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each place the first node of its panel, and the weights of the panel's values."""
        which = np.clip(np.searchsorted(self.edges, at, side="right") - 1, 0, len(self.edges) - 2)
        low, high = self.edges[which], self.edges[which + 1]
        gap = ((2 * at - low - high) / (high - low))[:, None] - self._x
        hit = np.abs(gap) < 1e-15
        share = self._bary / np.where(hit, 1.0, gap)
        share = np.where(np.any(hit, axis=1, keepdims=True), hit, share)
        return which * self.points, share / share.sum(axis=1, keepdims=True)


def _scores(
    beta: float, gamma: float, cuts: np.ndarray, least: float, most: float
) -> tuple[np.ndarray, ...]:
    """Nodes s of a score between two ends and their weights, of panels that end at cuts besides."""
    low, high = max(beta - _FAR * gamma, least), min(beta + _FAR * gamma, most)
    if high <= low:
        return np.empty(0), np.empty(0)
    count = math.ceil((high - low) / min(_SCORE * gamma, _WIDEST))
    inner = cuts[(cuts > low) & (cuts < high)]
    edges = np.unique(np.concatenate([np.linspace(low, high, count + 1), inner]))
    x, w = np.polynomial.legendre.leggauss(_POINTS)
    half = np.diff(edges)[:, None] / 2
    s = (edges[:-1, None] + half * (1 + x)).ravel()
    z = (s - beta) / gamma
    return s, (half * w).ravel() * np.exp(-0.5 * z * z) / (gamma * math.sqrt(2 * math.pi))


def _log_left(s: np.ndarray) -> np.ndarray:
    """ln(1 − σ(s))."""
    return -np.logaddexp(s, 0.0)


def _times(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The product of matrices of blocks, [rows, columns, ·, ·], zero above the diagonal."""
    found = np.zeros((*other.shape[:2], one.shape[2], other.shape[3]))
    for i in range(len(one)):
        for j in range(min(i + 1, other.shape[1])):
            found[i, j] = sum(one[i, k] @ other[k, j] for k in range(j, i + 1))
    return found


def _powers(key: np.ndarray, start: np.ndarray, counts: Sequence[int]) -> list[np.ndarray]:
    """What some numbers of keys, ascending, make of a start; blocks as `_times` has them."""
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


def _largest_matrix(beta: float, gamma: float, on: _Panels) -> np.ndarray:
    """F of one key more, given F at the nodes of ln m/(1 − m), and 1."""
    size = len(on.nodes)
    found = np.zeros((size + 1, size + 1))
    found[-1, -1] = 1.0
    log_edges = _log_left(-on.edges)
    for i, u in enumerate(on.nodes):
        log_m = float(_log_left(np.array(-u)))
        log_left = np.minimum(log_m - log_edges, -1e-300)  # where m/(1 − b) is at an edge
        cuts = np.append(np.log(-np.expm1(log_left)) - log_left, -u)
        s, w = _scores(beta, gamma, cuts, _NOTHING, float(u))
        log_y = log_m - _log_left(s)
        inside = (s < -u) & (log_y < log_edges[-1])
        found[i, -1] = w[~inside].sum()
        y = log_y[inside]
        first, share = on.reads(y - np.log(-np.expm1(y)))
        at = first[:, None] + np.arange(on.points)
        np.add.at(found[i], at, share * w[inside, None])
        found[i, i] += ndtr((min(_NOTHING, float(u)) - beta) / gamma)  # these take nothing
    return found


def _taps(at: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Points about each place, in steps of a grid, and their weights in the polynomial there."""
    k = np.arange(count)
    base = np.floor(at).astype(int) - count // 2 + 1
    gap = (at - base)[:, None] - k
    hit = gap == 0
    share = 1 / (k[:, None] - k + np.eye(count)).prod(axis=1) / np.where(hit, 1.0, gap)
    share = np.where(np.any(hit, axis=1, keepdims=True), hit, share)
    return base[:, None] + k, share / share.sum(axis=1, keepdims=True)


def _focus_matrix(beta: float, gamma: float, log_t: np.ndarray, taps: int) -> np.ndarray:
    """ψ₀, ψ₁ and ψ₂ of one key more, given those on a grid of ln t; below it they are constant."""
    size = len(log_t)
    found = np.zeros((3, 3, size, size))
    least = _NOTHING - max(float(log_t[-1]), 0.0) / 2  # of it the last t makes nothing
    s, w = _scores(beta, gamma, np.empty(0), least, _ALL)
    b, left = np.exp(_log_left(-s)), np.exp(_log_left(s))
    down = 2 * _log_left(s) / (log_t[1] - log_t[0])
    moves = ((0, 0, 1.0), (1, 0, b), (1, 1, left), (2, 0, b * b), (2, 1, 2 * b * left))
    for i in range(size):
        kept = w * np.exp(-np.exp(log_t[i]) * b * b)
        at, share = _taps(i + down, taps)
        share, at = np.where(at < size, share, 0.0), np.clip(at, 0, size - 1)
        for k, j, times in (*moves, (2, 2, left * left)):
            np.add.at(found[k, j, i], at, share * (kept * times)[:, None])
    none, all_ = ndtr((least - beta) / gamma), ndtr((beta - _ALL) / gamma)
    for k in range(3):
        found[k, k] += none * np.eye(size)
        found[k, 0, :, 0] += all_ * np.exp(-np.exp(log_t))
    return found


def _plan(beta: float, gamma: float, points: float, size: float, counts: Sequence[int]) -> None:
    """Refuse points that take too long, whichever parameter they come from."""
    name, value = ("beta", beta) if abs(beta) > _FAR * gamma else ("gamma", gamma)
    doublings = 2 * math.log2(max(counts) + 1)
    seconds = work.PRODUCT / 20 * size**3 * doublings  # a product of matrices is so much faster
    work.plan(name, value, seconds if points <= _MOST else math.inf)


def _counts(beta: float, gamma: float, n: np.ndarray) -> list[int]:
    """The keys of rows of n after which nothing is left of the stick."""
    used = _USED / -math.log1p(-min(mean_taken(beta, gamma), 1 - 1e-16))
    return np.minimum(n, math.ceil(min(used, 2.0**53))).astype(int).tolist()


def _largest(
    beta: float, gamma: float, counts: Sequence[int], rule: tuple[float, int]
) -> np.ndarray:
    """E M after some numbers of keys."""
    width, points = rule
    low = max(beta - _FAR * gamma, math.log(mean_taken(beta, gamma)) - _FALL)
    high = min(beta + _FAR * gamma, _ALL)
    if low >= high:  # the first key takes all
        return np.ones(len(counts))
    panels = math.ceil((high - low) / (_CORNERED * width * min(gamma, 1.0)))
    _plan(beta, gamma, panels * points, panels * points, counts)
    corners = [-math.log(k - 1) for k in range(2, _LAST + 1)]
    inner = [cut for cut in corners if low < cut < high]
    on = _Panels(np.unique([*np.linspace(low, high, panels + 1), *inner]), points)
    every = _powers(
        _largest_matrix(beta, gamma, on)[None, None], np.ones((1, len(on.nodes) + 1)), counts
    )
    m = np.exp(_log_left(-on.edges[0]))
    slope = on.weights * np.exp(_log_left(on.nodes) + _log_left(-on.nodes))
    return np.array([m + slope @ (1 - f[0, :-1]) for f in every])


def _focus(beta: float, gamma: float, counts: Sequence[int], rule: tuple[float, int]) -> np.ndarray:
    """E T²/Q after some numbers of keys."""
    width, taps = rule
    high = _DAMPED - 2 * float(_log_left(np.array(_RARE * gamma - beta)))
    most = 2 * float(_log_left(np.array(-_FAR * gamma - beta))) + math.log(max(counts))
    low = -_FALL - min(most, 0.0)  # ψ is constant below e^(−32) over the largest Q
    points = (high - low) * taps / width
    _plan(beta, gamma, points, 2.2 * points, counts)  # 10 products of blocks
    log_t = np.arange(low, high, width / taps)
    start = np.zeros((3, len(log_t)))
    start[0] = 1.0
    every = _powers(_focus_matrix(beta, gamma, log_t, taps), start, counts)
    h = log_t[1] - log_t[0]
    t = np.exp(log_t) * h
    t[0] *= 1 + 1 / math.expm1(h)  # the sum of the rule below the first t
    return np.array([t @ psi[2] for psi in every])


_OF: dict[str, Callable[..., np.ndarray]] = {"max_weight": _largest, "n_eff": _focus}


def _takes_nothing(beta: float, gamma: float, n: float) -> bool:
    """Whether all n keys together take so little that a = e^s, but for a chance n⁻² e^(−32)."""
    far = math.sqrt(2 * (_LIGHT + 2 * math.log(n)))
    return beta + gamma * far < -_LIGHT - math.log(n)


def law(of: str, beta: float, gamma: float, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean over rows of n of the largest weight or of n_eff, and a bound on its relative error.

    Args:
        of: "max_weight" or "n_eff".
        beta: bias β.
        gamma: spread γ > 0.
        length: row lengths n ≥ 1, [lengths].

    Raises:
        TooFine: scores so spread that the law takes too many points.
        InputError: keys that take next to nothing.
    """
    n = np.asarray(length, dtype=np.float64)
    if of == "n_eff" and _takes_nothing(beta, gamma, float(n.max())):
        value, _, error = engine.law(Row(exp, gamma=gamma), quantities.n_eff, n)
        return value, error + _ROUNDING
    value, error, several = np.ones(n.shape), np.zeros(n.shape), n > (1 if of == "n_eff" else 0)
    if several.any():
        counts, back = np.unique(_counts(beta, gamma, n[several]), return_inverse=True)
        with np.errstate(over="ignore", invalid="ignore"):
            fine, coarse = (_OF[of](beta, gamma, counts.tolist(), rule) for rule in _RULES)
            off = np.abs(coarse / fine - 1) + _ROUNDING + _PER_KEY * counts
        least, most = (1.0, n[several]) if of == "n_eff" else (0.0, 1.0)
        ends = np.broadcast_arrays(least, most, fine[back])[:2]
        value[several], error[several] = within(fine[back], off[back], ends), off[back]
    if not (error < _RESOLVED).all():
        fix = "so many keys are beyond the digits of its exact law; use estimate"
        raise InputError("length", float(n.max()), fix)
    return value, error
