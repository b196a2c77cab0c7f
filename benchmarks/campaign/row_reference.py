"""Means over rows from their definition, in NumPy and SciPy alone: no formula of the library.

Rows of one to three tokens in sight are summed by brute force, over nodes of every score; longer
ones are sampled. Weights are kept as logarithms, so that nothing over- or underflows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm, t

__all__ = ["KERNELS", "PAIRS", "Mean", "Tokens", "by_nodes", "by_sampling", "tokens_of", "value"]

REACH = 13.0  # standard deviations: beyond them x^16 e^(−x²/2) has less than 1e-16 of its mass
ROWS = 1_200_000  # tokens sampled in all
RULES = ((5, 6, 8), (4, 5, 6))  # points a panel, of rows of at most two, and of three random tokens
MOST = 4_000_000  # rows of nodes
RARE = 0.05  # of all that rows of a sample differ by, in one row: its scatter says nothing


def _log_abs(x: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(np.abs(x))


def _positive(of: Callable[[np.ndarray], np.ndarray]) -> Callable[..., np.ndarray]:
    """`of` above 0, −∞ elsewhere."""
    return lambda s: np.where(s > 0, of(np.where(s > 0, s, 1.0)), -np.inf)


def _log_sigmoid(s: np.ndarray) -> np.ndarray:
    return -np.logaddexp(0.0, -s)


def _log_softplus(s: np.ndarray) -> np.ndarray:
    return np.where(s < -30, s, np.log(np.logaddexp(0.0, np.maximum(s, -30))))


def _log_elu(s: np.ndarray) -> np.ndarray:
    return np.where(s > 0, _log_abs(s), _log_abs(np.expm1(np.minimum(s, 0.0))))


# The logarithm of |f(s)|, and the scores at which it is not smooth, or sharply bent.
KERNELS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], tuple[float, ...]]] = {
    "exp": (lambda s: s, ()),
    "identity": (_log_abs, (0.0,)),
    "abs": (_log_abs, (0.0,)),
    "relu": (_positive(np.log), (0.0,)),
    "relu2": (_positive(lambda s: 2 * np.log(s)), (0.0,)),
    "relu3": (_positive(lambda s: 3 * np.log(s)), (0.0,)),
    "power2": (lambda s: 2 * _log_abs(s), (0.0,)),
    "power4": (lambda s: 4 * _log_abs(s), (0.0,)),
    "cosh": (lambda s: np.logaddexp(s, -s) - math.log(2), ()),
    "taylor2": (lambda s: np.log(1 + s + s**2 / 2), ()),
    "taylor4": (lambda s: np.log(1 + s + s**2 / 2 + s**3 / 6 + s**4 / 24), ()),
    "threshold": (_positive(lambda s: s), (0.0,)),
    "softpick": (_positive(lambda s: s + np.log(-np.expm1(-s))), (0.0,)),
    "softplus": (_log_softplus, ()),
    "sigmoid": (_log_sigmoid, ()),
    "elu+1": (lambda s: np.where(s > 0, np.log1p(np.maximum(s, 0.0)), s), (0.0,)),
    "elu": (_log_elu, (0.0,)),
    "gelu": (lambda s: _log_abs(s) + log_ndtr(s), (0.0,)),
    "silu": (lambda s: _log_abs(s) + _log_sigmoid(s), (0.0,)),
    "abs(s - 1)": (lambda s: _log_abs(s - 1), (1.0,)),
    "1/(1 + s**2)": (lambda s: -np.log1p(s**2), ()),
    "exp(-s**2/2)": (lambda s: -(s**2) / 2, ()),
    "max(s - 1, 0)": (lambda s: _positive(np.log)(s - 1), (1.0,)),
    "tanh(s)**2": (lambda s: 2 * _log_abs(np.tanh(s)), (0.0,)),
    "sqrt(abs(s))": (lambda s: _log_abs(s) / 2, (0.0,)),
    "abs(s)**0.3": (lambda s: 0.3 * _log_abs(s), (0.0,)),
    "1/abs(s)**0.4": (lambda s: -0.4 * _log_abs(s), (0.0,)),
    "1 + 20*exp(-(s - 3)**2*25)": (
        lambda s: np.log1p(20 * np.exp(-((s - 3) ** 2) * 25)),
        (2.4, 2.8, 3.0, 3.2, 3.6),
    ),
    "exp(s)*(1 + sin(s)/2)": (lambda s: s + np.log1p(np.sin(s) / 2), ()),
    "log(1 + s**2)": (lambda s: _log_abs(np.log1p(s**2)), (0.0,)),
    "exp(abs(s))": (np.abs, (0.0,)),
    "s*exp(-s)": (lambda s: _log_abs(s) - s, (0.0,)),
    "exp(s)/(1 + exp(s))**2": (lambda s: _log_sigmoid(s) + _log_sigmoid(-s), ()),
    "max(exp(s), 2)": (lambda s: np.maximum(s, math.log(2)), (math.log(2),)),
}


class Tokens(NamedTuple):
    """The tokens in sight of a row, and the weights beside them.

    Args:
        n: tokens of the row, those out of sight included.
        beta: bias of each token in sight, [tokens].
        gamma: spread, likewise.
        log_w: logarithm of the factor on the weight, likewise.
        sink: whether it is a sink, likewise.
        units: logits of what stands in the denominator alone.
        needle: whether it is the needle, [tokens].
        token: its number, counted from the first, likewise.
        gate: a factor on all weights.
        cap: c of scores c·tanh(s/c).
    """

    n: int
    beta: np.ndarray
    gamma: np.ndarray
    log_w: np.ndarray
    sink: np.ndarray
    units: list[float]
    needle: np.ndarray
    token: np.ndarray
    gate: float = 1.0
    cap: float = math.inf


def _rope(query: Sequence[float], mean: Sequence[float], distance: np.ndarray) -> np.ndarray:
    """Σ_i Re q_i μ_i* e^(imθ_i) with θ_i = 10000^(−2i/d); neighbours make a plane."""
    q, mu = (np.asarray(x[::2]) + 1j * np.asarray(x[1::2]) for x in (query, mean))
    theta = 10000.0 ** (-2 * np.arange(len(q)) / len(query))
    return (np.exp(1j * distance[:, None] * theta) * q * mu.conj()).sum(axis=1).real


def _temperature(name: str, own: Sequence[float], n: int) -> float:
    """What a rule of a model multiplies the scores of a row of n by."""
    if name == "floor-log":
        return 1 + own[0] * math.log(1 + (n - 1 + own[2]) // own[1])
    if name == "log-n":
        return max(1.0, math.log(n) / math.log(own[0])) ** (own[1] if own[1:] else 1)
    if name == "longrope":
        return 1 + math.log(own[0]) / math.log(own[1])
    return (1 + 0.1 * math.log(own[0])) ** 2


def tokens_of(beta: float, gamma: float, steps: Sequence[tuple[str, Any]], n: int) -> Tokens:
    """The tokens of a row of n after the steps, in their order."""
    d = np.arange(n, dtype=float)  # the distance to the query
    spread = 1.0 if any(name == "rope" for name, _ in steps) else gamma  # which that step sets
    b, g, log_w, sink = np.full(n, beta), np.full(n, spread), np.zeros(n), np.zeros(n, dtype=bool)
    units, needle, gate, cap = [], np.zeros(n, dtype=bool), 1.0, math.inf
    for name, own in steps:
        if name == "decay":
            log_w = log_w + d * math.log(own[0])
            log_w[log_w < -745] = -np.inf
        elif name == "alibi":
            b = b - own[0] * d
        elif name == "window":
            seen = (d < own[0]) | (d >= n - (own[1] if own[1:] else 0))
            log_w = np.where(seen, log_w, -np.inf)
        elif name == "scalable-softmax":
            c = own[0] * math.log(n) + (own[1] if own[1:] else 0)
            b, g = c * b, c * g
        elif name == "length-bias":
            b = b + own[0] * math.log(n)
        elif name == "sink-logit":
            units.append(own[0])
        elif name in ("sink", "needle", "needle-above"):
            if name == "sink":
                here = d == n - 1 - sink.sum()
                sink = sink | here
            else:
                here = needle = d == (own[2] if own[2:] else n // 2)
            b = np.where(here, own[0] + (b if name == "needle-above" else 0), b)
            g, log_w = np.where(here, own[1], g), np.where(here, 0.0, log_w)
        elif name == "gate":
            gate *= own[0]
        elif name == "soft-cap":
            cap = own[0]
        elif name == "chunk":
            log_w = np.where(d <= (n - 1) % own[0], log_w, -np.inf)
        elif name == "scale-invariant":
            square = 2 * np.log(d / own[0] + 1) + 1
            b, g = np.sqrt(square) * b + 1 - square, np.sqrt(square) * g
        elif name in ("floor-log", "log-n", "longrope", "yarn"):
            c = _temperature(name, own, n)
            b, g = c * b, c * g
        elif name == "rope":
            marked = sink | needle
            b = np.where(marked, b, b + g * _rope(own[0], own[1], d))
            g = np.where(marked, g, g * own[2] * math.hypot(*own[0]))
        else:
            raise ValueError(name)
    seen, token = log_w > -np.inf, n - d.astype(int)
    b, g, log_w, sink = (x[seen] for x in (b, g, log_w, sink))
    return Tokens(n, b, g, log_w, sink, units, needle[seen], token[seen], gate, cap)


def _standard(kinds: Sequence[Sequence[float]]) -> np.ndarray:
    """Shares, means and deviations of a mixture of mean 0 and variance 1, [3, kinds]."""
    share, mean, deviation = np.array(kinds, dtype=float).T
    share = share / share.sum()
    centre = (share * mean).sum()
    spread = math.sqrt((share * ((mean - centre) ** 2 + deviation**2)).sum())
    return np.stack([share, (mean - centre) / spread, deviation / spread])


def drawn(scores: tuple[str, Any] | None, rng: np.random.Generator, shape: Any) -> np.ndarray:
    """Independent x of the law of scores."""
    name, own = scores or ("normal", ())
    if name == "normal":
        return rng.standard_normal(shape)
    if name == "uniform":
        return rng.uniform(-math.sqrt(3), math.sqrt(3), shape)
    if name == "t":
        return rng.standard_t(own[0], shape) * math.sqrt((own[0] - 2) / own[0])
    if name == "qk-norm":
        other = rng.chisquare(own[0] - 1, shape)
        z = rng.standard_normal(shape)
        return math.sqrt(own[0]) * z / np.sqrt(z * z + other)
    if name == "empirical":
        x = np.array(own[0], dtype=float)
        return rng.choice((x - x.mean()) / x.std(), shape)
    share, mean, deviation = _standard(own[0])
    kind = rng.choice(len(share), shape, p=share)
    return mean[kind] + deviation[kind] * rng.standard_normal(shape)


def _panels(low: float, high: float, breaks: Sequence[float], width: float, deep: int) -> Any:
    """Ends of panels of at most a width, which halve towards the breaks."""
    edges = [np.linspace(low, high, math.ceil((high - low) / width) + 1)]
    for at in breaks:
        if low <= at <= high:
            near = width * 2.0 ** -np.arange(1, deep + 1)
            edges.append(at + np.concatenate([-near, [0.0], near]))
    found = np.unique(np.concatenate(edges))
    return found[(found >= low) & (found <= high)]


def _ruled(edges: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    x, w = np.polynomial.legendre.leggauss(points)
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (1 + x)).ravel(), (half * w).ravel()


def _nodes(
    scores: tuple[str, Any] | None, breaks: Sequence[float], width: float, deep: int, points: int,
    reach: float = REACH,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Nodes of x and their probabilities; `breaks` are places of x that are no longer smooth."""
    name, own = scores or ("normal", ())
    if name == "normal":
        low, high = -reach, reach
        for at in breaks:  # beyond a far break, the density falls by e within 1/|at|
            far = abs(at) + 40 / max(abs(at), 1.0)
            low, high = (min(low, -far), high) if at < 0 else (low, max(high, far))
        width = min(width, *(3 / max(abs(at), 1e-9) for at in breaks)) if breaks else width
        x, w = _ruled(_panels(low, high, breaks, width, deep), points)
        return x, w * norm.pdf(x)
    if name == "uniform":
        end = math.sqrt(3)
        x, w = _ruled(_panels(-end, end, breaks, width, deep), points)
        return x, w / (2 * end)
    if name == "t":
        scale = math.sqrt((own[0] - 2) / own[0])
        # A rare score may have all there is of a small mean.
        end = math.asinh(max(t.isf(1e-40, own[0]), reach))
        turned = [math.asinh(at / scale) for at in breaks]
        y, w = _ruled(_panels(-end, end, turned, width, deep), points)
        return np.sinh(y) * scale, w * t.pdf(np.sinh(y), own[0]) * np.cosh(y)
    if name == "qk-norm":
        d = own[0]
        turned = [math.acos(at / math.sqrt(d)) for at in breaks if abs(at) < math.sqrt(d)]
        angle, w = _ruled(_panels(0.0, math.pi, turned, width / math.sqrt(d), deep), points)
        density = np.sin(angle) ** (d - 2)
        norming = math.exp(math.lgamma(d / 2) - math.lgamma((d - 1) / 2)) / math.sqrt(math.pi)
        return math.sqrt(d) * np.cos(angle), w * density * norming
    if name == "empirical":
        x = np.array(own[0], dtype=float)
        return (x - x.mean()) / x.std(), np.full(len(x), 1 / len(x))
    parts = []
    for share, mean, deviation in _standard(own[0]).T:
        if deviation == 0:
            parts.append((np.array([mean]), np.array([share])))
            continue
        inner = [(at - mean) / deviation for at in breaks]
        x, w = _nodes(None, inner, width, deep, points, reach)
        parts.append((mean + deviation * x, share * w))
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))  # type: ignore[return-value]


def capped(s: np.ndarray, cap: float) -> np.ndarray:
    """Scores under a soft cap."""
    return cap * np.tanh(s / cap) if math.isfinite(cap) else s


class Mean(NamedTuple):
    """A mean over rows, and what is known of its error.

    Args:
        value: the mean.
        error: by brute force what other rules differ by; of a sample its standard error.
        sampled: which of the two.
    """

    value: float
    error: float
    sampled: bool


# Of a row 0 or 1, or with steps: no rule of smooth functions finds their means.
STEPPED = ("sink_mass_above", "needle_odds_above", "needle_snr_above", "needle_largest",
           "below", "mass_below", "tiles_below", "tiles_mass_below",
           "keys_for_mass", "support", "top_k_overlap")  # fmt: skip
PAIRS = ("overlap", "top_k_overlap")
# Quantities in which sink logits stand, and sums of weights as they are.
WITH_UNITS = ("participation", "entropy", "kl_uniform", "max_weight", "sink_mass", "top_k_mass",
              "power_sum", "sink_mass_above", "needle_mass", "weight",
              "mass_below", "tiles_mass_below")  # fmt: skip
SUMS = {"abs_sum": 1, "square_sum": 2}


def stepped(of: str) -> bool:
    """Whether a quantity jumps."""
    return of.partition(":")[0] in STEPPED


def value(of: str, log_a: np.ndarray, tokens: Tokens) -> np.ndarray:
    """The quantity of rows of log|a|, along the last axis; NaN of a row of zeros."""
    name, _, text = of.partition(":")
    own = [float(x) for x in text.split(",")] if text else []
    beside = tokens.units if name in WITH_UNITS else []
    top = np.maximum(log_a.max(axis=-1), max(beside, default=-np.inf))
    alive = top > -np.inf
    top = np.where(alive, top, 0.0)
    a = np.exp(log_a - top[..., None])
    unit = sum((np.exp(b - top) for b in beside), 0.0 * top)
    with np.errstate(divide="ignore", invalid="ignore"):
        if name in SUMS:
            power = SUMS[name]
            found = (a**power).sum(axis=-1) * np.exp(power * (top + math.log(tokens.gate)))
        else:
            found = _of(name, own, a, a.sum(axis=-1) + unit, unit, tokens)
    return np.where(alive, found, np.nan)


def plain(n: int) -> Tokens:
    """A row of n tokens that nothing sets apart."""
    none = np.zeros(n, dtype=bool)
    return Tokens(n, np.zeros(n), np.ones(n), np.zeros(n), none, [], none, np.arange(1, n + 1))


def _of(name: str, own: list[float], a: Any, total: Any, unit: Any, tokens: Tokens) -> Any:
    n, sink, needle = tokens.n, tokens.sink, tokens.needle
    l1, l2 = a.sum(axis=-1), (a * a).sum(axis=-1)
    if name == "S":
        return l1 / np.sqrt(n * l2)
    if name == "n_eff":
        return l1**2 / l2
    if name == "hoyer":
        return (math.sqrt(n) - l1 / np.sqrt(l2)) / (math.sqrt(n) - 1) if n > 1 else 0 * l1
    if name == "participation":
        return l2 / total**2
    if name == "max_weight":
        return a.max(axis=-1) / total
    if name == "support":
        return (a > 0).sum(axis=-1).astype(float)
    if name == "sink_mass":
        return ((a * sink).sum(axis=-1) + unit) / total
    if name == "sink_mass_above":
        return ((a * sink).sum(axis=-1) + unit > own[0] * total).astype(float)
    if name.startswith("needle"):
        one, others = (a * needle).sum(axis=-1), a * ~needle
        if name == "needle_mass":
            return one / total
        if name == "needle_signal":
            return one**2 / l2
        if name == "needle_largest":
            return (one >= a.max(axis=-1)).astype(float)
        if name == "needle_odds_above":
            return (one > own[0] * others.sum(axis=-1)).astype(float)
        noise = np.sqrt((others**2).sum(axis=-1))
        if name == "needle_snr_above":
            return (one > own[0] * noise).astype(float)
        z = np.linspace(-8.5, 8.5, 137)  # needle_recall
        mean = np.sqrt(own[0]) * one / np.maximum(noise, 1e-15 * one)
        chances = np.array([norm.pdf(x) * ndtr(x + mean) ** (own[0] - 1) for x in z])
        return chances.sum(axis=0) * (z[1] - z[0])
    if name == "weight":
        return (a * (tokens.token == own[0])).sum(axis=-1) / total
    if name == "power_sum":
        return ((a / total[..., None]) ** own[0]).sum(axis=-1)
    if name == "top_k_mass":
        return np.sort(a, axis=-1)[..., -int(own[0]) :].sum(axis=-1) / total
    if name == "keys_for_mass":
        held = np.sort(a, axis=-1)[..., ::-1].cumsum(axis=-1)
        return 1.0 + (held < own[0] * l1[..., None]).sum(axis=-1)
    if name == "gini":
        rank = 2 * np.arange(a.shape[-1]) - (a.shape[-1] - 1) + (n - a.shape[-1])
        return (np.sort(a, axis=-1) * rank).sum(axis=-1) / (n * l1)
    if "below" in name:  # of all tokens, those out of sight weigh 0
        size, full = int(own[1]) if own[1:] else 1, np.zeros((*a.shape[:-1], n))
        full[..., tokens.token - 1] = a
        starts = np.arange(0, n, size)
        dropped = np.maximum.reduceat(full, starts, axis=-1) < (
            math.exp(own[0]) * full.max(axis=-1, keepdims=True)
        )
        if "mass" in name:
            return (np.add.reduceat(full, starts, axis=-1) * dropped).sum(axis=-1) / total
        return dropped.mean(axis=-1)
    # The largest p, near 1, keeps the digits of 1 − p.
    first = a.argmax(axis=-1)[..., None]
    largest = np.take_along_axis(a, first, axis=-1)[..., 0]
    others = a.copy()
    np.put_along_axis(others, first, 0.0, axis=-1)
    rest = others.sum(axis=-1) + unit
    p, log_largest = others / total[..., None], np.log1p(rest / largest)
    logs = np.where(others > 0, np.log(np.where(p > 0, p, 1.0)), 0.0)
    if name == "varentropy":  # about the largest: no mean that cancels
        off = np.where(others > 0, logs + log_largest[..., None], 0.0)
        mean = (p * off).sum(axis=-1)
        return (p * (off - mean[..., None]) ** 2).sum(axis=-1) + largest / total * mean**2
    entropy = np.where(largest > 0, largest / total * log_largest, 0.0) - (p * logs).sum(axis=-1)
    if name == "entropy":
        return entropy
    if name == "kl_uniform":
        return math.log(n) - entropy
    raise ValueError(name)


def _of_pairs(name: str, own: list[float], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What rows of log a have in common with the others of their pair."""
    if name == "overlap":
        p, q = (np.exp(v - v.max(axis=-1, keepdims=True)) for v in (x, y))
        return (p * q).sum(axis=-1) / (p.sum(axis=-1) * q.sum(axis=-1))
    k = min(int(own[0]), x.shape[-1])
    both = np.ones(x.shape, dtype=bool)
    for v in (x, y):
        order, top = np.argsort(-v, axis=-1, kind="stable"), np.zeros(x.shape, dtype=bool)
        np.put_along_axis(top, order[..., :k], True, axis=-1)
        both &= top
    return both.sum(axis=-1) / k


def by_nodes(kernel: str, scores: Any, tokens: Tokens, of: str) -> Mean | None:
    """The mean by brute force over all scores; None where that takes too many rows."""
    log_f, kinks = KERNELS[kernel]
    if math.isfinite(tokens.cap):
        inside = [kink for kink in kinks if abs(kink) < tokens.cap]
        kinks = [tokens.cap * math.atanh(kink / tokens.cap) for kink in inside]
    moving = int((tokens.gamma > 0).sum())
    if moving > 3 or stepped(of) or of.startswith("overlap"):
        return None
    steep = max(float(tokens.gamma.max(initial=0.0)), 1e-9)
    # Where e^(ps) has its mass; a share of the row grows so up to the heaviest unit at most.
    power = SUMS.get(of, 0)
    far = steep * power
    if tokens.units and not power:
        name, _, number = of.partition(":")
        grows = float(number) if name == "power_sum" else 2.0 if name == "participation" else 1.0
        gap = max(max(tokens.units) - float(tokens.beta.min(initial=0.0)), 0.0)
        far = min(steep * grows, gap / steep)
    reach = REACH + far
    if scores and scores[0] == "t" and power:
        # Of a moment that goes as x^m, |x|^(m − degrees) lies beyond x: 1e-17 is rounding.
        degree = max(float(np.diff(log_f(np.array([x, 10 * x])))[0]) for x in (1e30, -1e30))
        beyond = scores[1][0] - power * degree / math.log(10)
        reach = 10.0 ** min(17 / beyond, 100.0) if beyond > 0 else 1e100
    # Next to a zero of f a light unit is all there is, and at a pole is much of f².
    near = min(tokens.units, default=0.0) < -15 or kernel.startswith("1/abs")
    fine = max(min(0.4, 4 / steep), 0.12), 30 if near else 8
    width, deep = {0: (1.0, 0), 1: (0.1, 30), 2: fine}.get(moving, (2.2, 1))
    found = []
    for points in RULES[moving > 2]:
        laws = []
        for beta, gamma, log_w in zip(tokens.beta, tokens.gamma, tokens.log_w, strict=True):
            if gamma == 0:
                laws.append((log_w + log_f(capped(np.array([beta]), tokens.cap)), np.ones(1)))
                continue
            breaks = [(kink - beta) / gamma for kink in kinks]
            if scores is None and any(abs(at) > 36 for at in breaks):
                breaks = [at for at in breaks if abs(at) <= 36]
            x, p = _nodes(scores, breaks, width, deep, points, reach)
            log_a = log_w + log_f(capped(beta + gamma * x, tokens.cap))
            zero = log_a == -np.inf
            log_a, chance = np.append(log_a[~zero], -np.inf), p[zero].sum()
            laws.append((log_a, np.append(p[~zero], chance)))
        if math.prod(len(p) for _, p in laws) > MOST:
            return None
        found.append(_tensor(laws, tokens, of))
    error = max(abs(other - found[-1]) for other in found[:-1])
    return Mean(found[-1], error, False)


def _tensor(laws: list[tuple[np.ndarray, np.ndarray]], tokens: Tokens, of: str) -> float:
    """The mean over all combinations of nodes, of rows that are not all zero."""
    grids = np.meshgrid(*(log_a for log_a, _ in laws[1:]), indexing="ij")
    weights = np.ones(())
    for _, p in laws[1:]:
        weights = np.multiply.outer(weights, p)
    rest = [grid.ravel() for grid in grids]
    beside, total, mass = weights.ravel(), 0.0, 0.0
    first, chance = laws[0]
    step = max(1, 200_000 // beside.size)
    for start in range(0, len(first), step):
        own = first[start : start + step]
        rows = [np.repeat(own, beside.size), *(np.tile(x, len(own)) for x in rest)]
        p = np.multiply.outer(chance[start : start + step], beside).ravel()
        q = value(of, np.stack(rows, axis=-1), tokens)
        alive = ~np.isnan(q)
        total += float(p[alive] @ q[alive])
        mass += float(p[alive].sum())
    return total / mass if mass > 0 else math.nan


def spread(q: np.ndarray, whole: bool) -> Mean:
    """The mean of a sample of rows; those of zeros do not count.

    Args:
        q: the quantity of each row.
        whole: whether it jumps, as whole numbers do, such as 0 and 1.
    """
    q = q[~np.isnan(q)]
    if len(q) < 200:
        return Mean(math.nan, math.inf, True)
    off = np.abs(q - np.median(q))
    if not whole and off.max() > RARE * off.sum():  # a few rare rows make the mean
        return Mean(float(q.mean()), math.inf, True)
    # A sample that missed the rare rows does not know it: one row more, at the far end of it.
    unseen = max(float(whole), q.max() - q.min()) / len(q)
    return Mean(float(q.mean()), math.hypot(q.std() / math.sqrt(len(q)), unseen), True)


def by_sampling(kernel: str, scores: Any, tokens: Tokens, of: str, seed: int, times: int) -> Mean:
    """The mean of a sample of `ROWS`·times tokens."""
    log_f, _ = KERNELS[kernel]
    rng = np.random.default_rng(seed)
    width = len(tokens.beta)
    rows = min(max(ROWS // width, 100), 40_000) * times
    name, _, text = of.partition(":")
    own, found, step = text.split(",") if text else [], [], max(1, 400_000 // width)
    for start in range(0, rows, step):
        shape = min(step, rows - start), width
        x = drawn(scores, rng, shape)
        log_a = tokens.log_w + log_f(capped(tokens.beta + tokens.gamma * x, tokens.cap))
        if name in PAIRS:
            rho, *numbers = map(float, reversed(own))
            x = rho * x + math.sqrt((1 - rho) * (1 + rho)) * drawn(scores, rng, shape)
            other = tokens.log_w + log_f(capped(tokens.beta + tokens.gamma * x, tokens.cap))
            found.append(_of_pairs(name, numbers, log_a, other))
        else:
            found.append(value(of, log_a, tokens))
    mean = spread(np.concatenate(found), stepped(of))
    if (scores or "")[:1] == ("t",) and abs(mean.value) * rows < 1:
        # Of heavy tails one row in more than were drawn may have all there is of a small mean.
        return Mean(mean.value, math.inf, True)
    return mean
