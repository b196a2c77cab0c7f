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
power. Beyond the keys that use the stick up nothing changes. The bound holds a coarser rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from sparsity.errors import InputError

_FAR = 8.5  # standard deviations of a score that count
_SCORE = 0.5  # panel of a score, in standard deviations, and its widest
_WIDEST = 1.0
_POINTS = 12  # of a panel of a score
_RULES = ((2.4, 16), (2.9, 14))  # width of panels and their nodes: of the value, of its bound
_CORNERED = 0.6  # of that width, where F has corners
_FALL = 28.0  # e-folds that count
_RARE = 6.5  # standard deviations below which no first key counts
_DAMPED = 3.7  # ln t of e^(−tQ) that is nothing, at Q = 1
_LAST = 8  # 1/m of the last corner that counts
_USED = 45.0  # e-folds of what is left of the stick beyond which nothing is
_MOST = 900  # nodes
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


def _scores(beta: float, gamma: float, cuts: np.ndarray, most: float) -> tuple[np.ndarray, ...]:
    """Nodes s ≤ most of a score and their weights, of panels that end at cuts besides."""
    low, high = beta - _FAR * gamma, min(beta + _FAR * gamma, most)
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


def _powers(key: np.ndarray, start: np.ndarray, counts: Sequence[int]) -> list[np.ndarray]:
    """What some numbers of keys, ascending, make of a start."""
    doubled, found, value, done = [key], [], start, 0
    for count in counts:
        rest, i = count - done, 0
        while rest >> i:
            if i == len(doubled):
                doubled.append(doubled[-1] @ doubled[-1])
            if rest >> i & 1:
                value = doubled[i] @ value
            i += 1
        done = count
        found.append(value)
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
        s, w = _scores(beta, gamma, cuts, float(u))
        log_y = log_m - _log_left(s)
        inside = (s < -u) & (log_y < log_edges[-1])
        found[i, -1] = w[~inside].sum()
        y = log_y[inside]
        first, share = on.reads(y - np.log(-np.expm1(y)))
        at = first[:, None] + np.arange(on.points)
        np.add.at(found[i], at, share * w[inside, None])
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
    found = np.zeros((3, size, 3, size))
    s, w = _scores(beta, gamma, np.empty(0), math.inf)
    b, left = np.exp(_log_left(-s)), np.exp(_log_left(s))
    down = 2 * _log_left(s) / (log_t[1] - log_t[0])
    moves = ((0, 0, 1.0), (1, 0, b), (1, 1, left), (2, 0, b * b), (2, 1, 2 * b * left))
    for i in range(size):
        kept = w * np.exp(-np.exp(log_t[i]) * b * b)
        at, share = _taps(i + down, taps)
        share, at = np.where(at < size, share, 0.0), np.clip(at, 0, size - 1)
        for k, j, times in (*moves, (2, 2, left * left)):
            np.add.at(found[k, i, j], at, share * (kept * times)[:, None])
    return found.reshape(3 * size, 3 * size)


def _panels(low: float, high: float, width: float, points: int, cuts: Sequence[float]) -> _Panels:
    count = math.ceil((high - low) / width)
    if count * points > _MOST:
        raise InputError("gamma", (high - low), "takes too many points; use estimate")
    inner = [cut for cut in cuts if low < cut < high]
    return _Panels(np.unique([*np.linspace(low, high, count + 1), *inner]), points)


def _taken(beta: float, gamma: float) -> float:
    """E b."""
    s, w = _scores(beta, gamma, np.empty(0), math.inf)
    return float(w @ np.exp(_log_left(-s)))


def _counts(beta: float, gamma: float, n: np.ndarray) -> list[int]:
    """The keys of rows of n after which nothing is left of the stick."""
    used = _USED / -math.log1p(-min(_taken(beta, gamma), 1 - 1e-16))
    return np.minimum(n, math.ceil(used)).astype(int).tolist()


def _largest(
    beta: float, gamma: float, counts: Sequence[int], rule: tuple[float, int]
) -> np.ndarray:
    """E M after some numbers of keys."""
    width, points = rule
    low = max(beta - _FAR * gamma, math.log(_taken(beta, gamma)) - _FALL)
    high = min(beta + _FAR * gamma, 38.0)
    corners = [-math.log(k - 1) for k in range(2, _LAST + 1)]
    on = _panels(low, high, _CORNERED * width * min(gamma, 1.0), points, corners)
    every = _powers(_largest_matrix(beta, gamma, on), np.ones(len(on.nodes) + 1), counts)
    m = np.exp(_log_left(-on.edges[0]))
    slope = on.weights * np.exp(_log_left(on.nodes) + _log_left(-on.nodes))
    return np.array([m + slope @ (1 - f[:-1]) for f in every])


def _focus(beta: float, gamma: float, counts: Sequence[int], rule: tuple[float, int]) -> np.ndarray:
    """E T²/Q after some numbers of keys."""
    width, taps = rule
    high = _DAMPED - 2 * float(_log_left(np.array(_RARE * gamma - beta)))
    log_t = np.arange(-_FALL, high, width / taps)
    if len(log_t) > _MOST:
        raise InputError("gamma", gamma, "its exact law takes too many points; use estimate")
    start = np.zeros((3, len(log_t)))
    start[0] = 1.0
    every = _powers(_focus_matrix(beta, gamma, log_t, taps), start.ravel(), counts)
    t = np.exp(log_t) * (log_t[1] - log_t[0])
    return np.array([t @ psi.reshape(3, -1)[2] for psi in every])


_OF: dict[str, Callable[..., np.ndarray]] = {"max_weight": _largest, "n_eff": _focus}


def law(of: str, beta: float, gamma: float, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean over rows of n of the largest weight or of n_eff, and a bound on its relative error.

    Args:
        of: "max_weight" or "n_eff".
        beta: bias β.
        gamma: spread γ > 0.
        length: row lengths n ≥ 1, [lengths].

    Raises:
        InputError: scores so spread that the law takes too many points.
    """
    counts, back = np.unique(_counts(beta, gamma, length), return_inverse=True)
    fine, coarse = (_OF[of](beta, gamma, counts.tolist(), rule) for rule in _RULES)
    error = np.abs(coarse / fine - 1) + _ROUNDING + _PER_KEY * counts
    return fine[back], error[back]
