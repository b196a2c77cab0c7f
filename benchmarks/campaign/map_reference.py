"""Means over rows of the maps of whole rows, from their definition, in NumPy and SciPy alone.

Two tokens of a map depend on the difference of their scores: that is integrated by brute force.
Longer rows are sampled.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import norm

from benchmarks.campaign.row_reference import (
    REACH,
    ROWS,
    Mean,
    _panels,
    _ruled,
    plain,
    spread,
    stepped,
    value,
)

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


def _largest(s: np.ndarray, k: int) -> np.ndarray:
    """Whether a value is among the k largest of its row."""
    k = min(k, s.shape[-1])
    return s >= np.partition(s, -k, axis=-1)[..., -k, None]


def _weights(name: str, own: dict[str, float], z: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Weights of rows, given two normal numbers for each token."""
    gamma = own["gamma"]
    s = gamma * z
    family, _, number = name.partition(":")
    if family == "topk":
        return _softmax(np.where(_largest(s, int(number)), s, -np.inf))
    if family == "router":  # z is the proxy
        s = gamma * (own["rho"] * z + math.sqrt(1 - own["rho"] ** 2) * other)
        return _softmax(s) * _largest(z, int(number))
    if family == "tile-softmax":
        first = np.arange(z.shape[-1]) // int(number) * int(number)
        return _softmax(gamma * (math.sqrt(own["within"]) * other[..., first]
                                 + math.sqrt(1 - own["within"]) * z))  # fmt: skip
    return _entmax(s, {"sparsemax": 2.0, "entmax1.5": 1.5}[family])


def _value(of: str, a: np.ndarray) -> np.ndarray:
    """The quantity of weights as they are."""
    with np.errstate(divide="ignore"):
        return value(of, np.log(a), plain(a.shape[-1]))


def _two(name: str, own: dict[str, float], of: str, points: int) -> float:
    """Rows of two: by the difference of their scores."""
    gamma = own["gamma"]
    family = name.partition(":")[0]
    order = {"sparsemax": 2.0, "entmax1.5": 1.5}.get(family, 0.0)
    breaks = [0.0]
    if order > 1 and family != "topk":  # from there on one token takes all
        breaks += [side / ((order - 1) * gamma * math.sqrt(2)) for side in (-1, 1)]
    edges = _panels(-REACH, REACH, breaks, max(min(0.4, 2 / gamma), 0.06), 12)
    v, p = _ruled(edges, points)
    z = np.stack([v, -v], axis=-1) / math.sqrt(2)
    return float(p * norm.pdf(v) @ _value(of, _weights(name, own, z, z)))


def by_nodes(name: str, own: dict[str, float], n: int, of: str) -> Mean | None:
    """The mean by brute force, of rows of one or two tokens."""
    if n > 2 or stepped(of) or name.startswith(("router", "tile-softmax")):
        return None
    if n == 1:
        return Mean(float(_value(of, np.ones((1, 1)))[0]), 0.0, False)
    found = [_two(name, own, of, points) for points in (5, 6, 8)]
    return Mean(found[-1], max(abs(x - found[-1]) for x in found[:-1]), False)


def by_sampling(name: str, own: dict[str, float], n: int, of: str, seed: int, times: int) -> Mean:
    """The mean of a sample of rows."""
    rng = np.random.default_rng(seed)
    rows, found = min(max(ROWS // (2 * n), 100), 40_000) * times, []
    step = max(1, 200_000 // n)
    for start in range(0, rows, step):
        z, other = rng.standard_normal((2, min(step, rows - start), n))
        found.append(_value(of, _weights(name, own, z, other)))
    return spread(np.concatenate(found), stepped(of))
