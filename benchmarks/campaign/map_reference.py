"""Means over rows of the maps of whole rows, from their definition, in NumPy and SciPy alone.

Two tokens of a map depend on the difference of their scores: that is integrated by brute force.
Longer rows are sampled.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit
from scipy.stats import norm

from benchmarks.campaign.row_reference import REACH, ROWS, Mean, _of, _panels, _ruled, spread

__all__ = ["by_nodes", "by_sampling"]

_BISECTIONS = 60


def _softmax(s: np.ndarray) -> np.ndarray:
    a = np.exp(s - s.max(axis=-1, keepdims=True))
    return a / a.sum(axis=-1, keepdims=True)


def _entmax(s: np.ndarray, alpha: float) -> np.ndarray:
    """max((α − 1)s − τ, 0)^(1/(α − 1)), τ such that they sum to 1, by bisection."""
    x = (alpha - 1) * (s - s.max(axis=-1, keepdims=True))
    low, high = np.full((*s.shape[:-1], 1), -1.0), np.zeros((*s.shape[:-1], 1))
    for _ in range(_BISECTIONS):
        tau = (low + high) / 2
        much = (np.maximum(x - tau, 0) ** (1 / (alpha - 1))).sum(-1, keepdims=True) > 1
        low, high = np.where(much, tau, low), np.where(much, high, tau)
    a = np.maximum(x - low, 0) ** (1 / (alpha - 1))
    return a / a.sum(axis=-1, keepdims=True)


def _weights(name: str, own: dict[str, float], z: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Weights of rows, given two normal numbers for each token, the nearest token first."""
    s = own.get("beta", 0.0) + own["gamma"] * z
    family, _, number = name.partition(":")
    if family == "topk":
        k = min(int(number), s.shape[-1])
        least = np.partition(s, -k, axis=-1)[..., -k, None]
        return _softmax(np.where(s >= least, s, -np.inf))
    if family in ("sparsemax", "entmax1.5", "entmax"):
        return _entmax(s, {"sparsemax": 2.0, "entmax1.5": 1.5}.get(family) or float(number))
    if family == "stick-breaking":
        left = np.cumsum(-np.logaddexp(0.0, s), axis=-1)
        before = np.concatenate([np.zeros((*s.shape[:-1], 1)), left[..., :-1]], axis=-1)
        return expit(s) * np.exp(before)
    if family == "differential":
        turned = own["rho"] * z + math.sqrt((1 - own["rho"]) * (1 + own["rho"])) * other
        return _softmax(s) - own["mix"] * _softmax(own["gamma2"] * turned)
    assert family == "forgetting"
    gate = -np.logaddexp(0.0, -(own["gate"] + own["gate_spread"] * other))
    passed = np.cumsum(gate, axis=-1) - gate  # the gates of the tokens nearer to the query
    return _softmax(s + passed)


def _value(of: str, name: str, a: np.ndarray) -> np.ndarray:
    """The quantity of weights as they are: of sticks, what no key takes is beside them."""
    quantity, _, text = of.partition(":")
    own = [float(x) for x in text.split(",")] if text else []
    if quantity == "square_sum":
        return (a * a).sum(axis=-1)
    l1 = np.abs(a).sum(axis=-1)
    if quantity == "abs_sum":
        return l1
    total = np.ones_like(l1) if name == "stick-breaking" else l1
    unit = np.maximum(total - l1, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return _of(quantity, own, a, l1, total, unit, a.shape[-1], np.zeros(a.shape[-1], bool))


def _alone(name: str, own: dict[str, float], of: str, points: int) -> float:
    x, p = _ruled(np.linspace(-REACH, REACH, 400), points)
    q = _value(of, name, _weights(name, own, x[:, None], 0 * x[:, None]))
    return float(p * norm.pdf(x) @ q)


def _two(name: str, own: dict[str, float], of: str, points: int) -> float:
    """Rows of two: by the difference of their scores, and one more normal number."""
    gamma, (family, _, number) = own["gamma"], name.partition(":")
    order = {"sparsemax": 2.0, "entmax1.5": 1.5}.get(family) or float(number or 0)
    sharp = min(own.get("gamma2", gamma), gamma), max(own.get("gamma2", gamma), gamma)
    breaks = [0.0]
    if order > 1 and family != "topk":  # from there on one token takes all
        breaks += [side / ((order - 1) * gamma * math.sqrt(2)) for side in (-1, 1)]
    edges = _panels(-REACH, REACH, breaks, max(min(0.4, 2 / sharp[1]), 0.06), 12)
    v, p = _ruled(edges, points)
    p = p * norm.pdf(v)
    if family in ("stick-breaking", "differential", "forgetting"):
        w, chance = _ruled(_panels(-REACH, REACH, [], 0.3, 0), points)
        chance = chance * norm.pdf(w)
    else:
        w, chance = np.zeros(1), np.ones(1)
    total = 0.0
    for one, its in zip(w, chance, strict=True):
        if family == "stick-breaking":
            z = np.stack([v, np.full_like(v, one)], axis=-1)
            other = 0 * z
        else:  # a normal number that is the difference of two over √2
            z = np.stack([v, -v], axis=-1) / math.sqrt(2)
            other = np.full_like(z, one)
            if family == "differential":
                other = other * [1, -1] / math.sqrt(2)
        total += its * float(p @ _value(of, name, _weights(name, own, z, other)))
    return total


def by_nodes(name: str, own: dict[str, float], n: int, of: str) -> Mean | None:
    """The mean by brute force, of rows of one or two tokens."""
    if n > 2:
        return None
    found = [(_alone, _two)[n - 1](name, own, of, points) for points in (5, 6, 8)]
    return Mean(found[-1], max(abs(x - found[-1]) for x in found[:-1]), False)


def by_sampling(name: str, own: dict[str, float], n: int, of: str, seed: int, times: int) -> Mean:
    """The mean of a sample of rows."""
    rng = np.random.default_rng(seed)
    rows, found = min(max(ROWS // (2 * n), 100), 40_000) * times, []
    step = max(1, 200_000 // n)
    for start in range(0, rows, step):
        z, other = rng.standard_normal((2, min(step, rows - start), n))
        found.append(_value(of, name, _weights(name, own, z, other)))
    return spread(np.concatenate(found), chance=False)
