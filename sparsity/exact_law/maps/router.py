"""The exact law of routed softmax: k of n keys are read, chosen by a proxy of correlation ρ.

Given the k-th largest proxy t, tokens are independent in three kinds: k − 1 with a proxy above t,
one at t, and n − k below. `routed_weights` has what the weights that are read add up to. The chance
that the key of the largest score is read is, with distribution functions F of the scores of each
kind, and densities f,

    P = E_t ∫ [(k − 1) f₊ F₀ + f₀ F₊] F₊^(k−2) F₋^(n−k) dε.

How many of the k largest scores are read asks that fewer than k others are above. With F + w(1 − F)
in place of each F the integrand generates the chances of their number: its values at roots of unity
w add up to that of fewer than k. The bound is the gap to a coarser rule.
"""

from __future__ import annotations

import math

import numpy as np

from sparsity.errors import InputError
from sparsity.exact_law import integration
from sparsity.exact_law.maps.top_k import kth_scores
from sparsity.special import ndtr

CLOSEST = 0.9999  # |ρ|: nearer to 1 the step of ε, a fraction of √(1 − ρ²), makes too many points
LEVELS = 4  # every fourth of the 257 points of t: 65, and its bound is the gap to half of them
LOW, HIGH = -10.0, 13.0  # ε: P(ε > 13) is 6e-39, far below 1/n of any row
DEPTH = 42.0  # e-folds down to which anything counts
ROUNDING = 1e-12  # allowed for in every bound, beside the gaps of the rules
_POINTS_OF_PANEL = 16  # of ε
_OF_CHANCES = 1e-11  # allowed for where chances near 1 are sums over roots of unity
_FAR, _WIDEST_Z = 12.0, 4.0  # standard deviations of the keys above ε: beyond which there are fewer
# or more than k, and which a panel holds


def log_rest(missing: np.ndarray) -> np.ndarray:
    """Return ln φ, given 1 − φ; where φ is rounding, a finite number that is low."""
    return np.log1p(-np.minimum(missing, 1 - 1e-16))


def refuse_too_close(rho: float) -> None:
    """Refuse a proxy that is nearly the score.

    Raises:
        InputError: |ρ| too near to 1.
    """
    if abs(rho) > CLOSEST:
        fix = f"must be 1, or within {CLOSEST:g} of 0, for an exact law; else use estimate"
        raise InputError("rho", rho, fix)


def _from_above(density: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Return integrals of densities [panels, points, t] from each Gauss point to the last edge."""
    weights, upto = integration.cumulative_rule(density.shape[1])
    whole = np.einsum("p,kpt->kt", weights, density) * half[:, None]
    later = np.cumsum(whole[::-1], axis=0)[::-1] - whole
    within = whole[:, None] - np.einsum("ip,kpt->kit", upto, density) * half[:, None, None]
    return np.maximum(later[:, None] + within, 0.0)


def _scores(rho: float, t: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the laws of the scores, given the k-th proxy t, on panels of ε between edges.

    Returns:
        Weights of the rule, [panels, points, 1]; at [panels, points, t] the densities of the score
        of a key with a proxy above t and of the key at t, 1 − F of a key above and of one below,
        and ε in standard deviations of the key at t about its mean.
    """
    # Distribution functions near 1 are raised to the n-th power: they are summed from above, as
    # 1 − F, in which the digits are.
    rest = math.sqrt((1 - rho) * (1 + rho))
    e, weights = (x[..., None] for x in integration.gauss_panels(edges, _POINTS_OF_PANEL))
    half = np.diff(edges) / 2
    density = np.exp(-0.5 * e * e) / math.sqrt(2 * math.pi)
    above = density * ndtr((rho * e - t) / rest) / ndtr(-t)
    below = density * ndtr((t - rho * e) / rest) / ndtr(t)
    z = (e - rho * t) / rest
    at = np.exp(-0.5 * z * z) / (rest * math.sqrt(2 * math.pi))
    missing, rarer = _from_above(above, half), _from_above(below, half)
    return weights, above, at, missing, rarer, z


def _edges(rho: float, t: np.ndarray, widest: float, coarseness: float) -> np.ndarray:
    """Return the edges of panels of ε: two widths of its law given a proxy hold each, near t."""
    rest = math.sqrt((1 - rho) * (1 + rho))
    if 2 * rest >= widest:
        return np.arange(LOW, HIGH + coarseness * widest, coarseness * widest)
    about = np.concatenate([rho * t, t / rho])  # the key at t; where keys above t begin
    ends = max(about.min() - _FAR * rest, LOW), min(about.max() + _FAR * rest, HIGH)
    parts = (LOW, ends[0], widest), (*ends, 2 * rest), (ends[1], HIGH + widest, widest)
    return np.concatenate([np.arange(a, b, coarseness * width) for a, b, width in parts])


def _recall(k: int, rho: float, n: float, t: np.ndarray, coarseness: float) -> np.ndarray:
    """Return the chance that the key of the largest score is read, given t, [t]."""
    edges = _edges(rho, t, 0.25, coarseness)  # two of the largest of 1e12 scores in a panel
    weights, above, at, missing, rarer, z = _scores(rho, t, edges)
    others = np.exp((k - 2) * log_rest(missing) + (n - k) * log_rest(rarer))
    body = ((k - 1) * above * ndtr(z) + at * (1 - missing)) * others
    return (body * weights).sum(axis=(0, 1))


def recall(k: int, rho: float, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the chance that the k keys read hold the largest score, and a bound on its error.

    The spread of the scores does not matter to it.

    Args:
        k: how many keys are read.
        rho: correlation of score and proxy.
        length: n > k, [lengths].

    Raises:
        InputError: |ρ| too near to 1.
    """
    refuse_too_close(rho)
    n = np.asarray(length, dtype=np.float64)
    t, share = kth_scores(n, k)
    value, error = np.empty((2, len(n)))
    for i, (m, at, chance) in enumerate(zip(n.tolist(), t, share, strict=True)):
        fine, coarse = (_recall(k, rho, m, at, coarseness) for coarseness in (1, 1.5))
        value[i] = max(fine @ chance / chance.sum(), 1e-300)  # of 0 no error is relative
        others = coarse @ chance / chance.sum(), fine[::2] @ chance[::2] / chance[::2].sum()
        error[i] = integration.relative_gap(value[i], *others) + ROUNDING
    return value, error


def _edges_about(k: int, rho: float, n: float, t: np.ndarray, coarseness: float) -> np.ndarray:
    """Return the edges of panels of ε, narrow where the number of keys above ε comes to k."""
    edges = _edges(rho, t, 0.5, coarseness)
    while True:
        _, _, _, missing, rarer, _ = _scores(rho, t, edges)
        keys = (k - 2) * missing + (n - k) * rarer
        spread = np.sqrt((k - 2) * missing * (1 - missing) + (n - k) * rarer * (1 - rarer) + 1)
        z = np.clip((keys - k) / spread.min(axis=1, keepdims=True), -_FAR, _FAR)
        wide = (z[:, 0] - z[:, -1] > _WIDEST_Z * coarseness).any(axis=1)
        if not wide.any():
            return edges
        edges = np.sort(np.append(edges, (edges[:-1] + edges[1:])[wide] / 2))


def _shared(k: int, rho: float, n: float, t: np.ndarray, coarseness: float) -> np.ndarray:
    """Return how many of the k largest scores are among the k read, given t, [t]."""
    weights, above, at, p, q, z = _scores(rho, t, _edges_about(k, rho, n, t, coarseness))
    keys = (k - 2) * p + (n - k) * q
    spread = np.maximum(p * (1 - p) * (k - 2) + q * (1 - q) * (n - k), 1e-300)
    body = (k - 1) * above + at  # where those above ε are fewer than k
    # By Bennett's bound they are, or are not, but for a chance of e^log_chance.
    off = np.abs(keys - (k - 1))
    log_chance = off - (spread + off) * np.log1p(off / spread)
    open_ = (log_chance > -DEPTH) & (body > k * math.exp(-DEPTH))
    body = np.where((keys > k) | open_, 0.0, body)
    above, at, p, q, z, keys, spread = (x[open_] for x in (above, at, p, q, z, keys, spread))
    # Numbers of keys that differ by `count` are taken for one another, but for radius^count: that
    # is nothing, or there are none so far above k.
    most = float(keys.max(initial=k))
    every_number = 2 * math.ceil(most + math.sqrt(2 * DEPTH * most) + DEPTH - k)
    count, radius = every_number, 1.0
    if 4 * k < every_number:
        count, radius = 4 * k, math.exp(-DEPTH / (4 * k))
    total = np.zeros(len(keys))
    for j in range(count // 2 + 1):
        turn = 2 * math.pi * j / count
        # Elsewhere the value is as good as 0, also times radius^(1 − k) < e^(DEPTH/4).
        live = spread * radius * (1 - math.cos(turn)) < 1.25 * DEPTH
        if not live.any():
            break
        w = radius * complex(math.cos(turn), math.sin(turn))
        powers = w ** -np.arange(max(k - count // 2, 0), k, dtype=float)
        chance = powers.sum() * (1 if j in (0, count // 2) else 2) / count
        less = [x[live] * (w - 1) for x in (p, ndtr(-z), q)]
        with np.errstate(divide="ignore"):  # of a value that is 0, and stays it
            log, _, log_rarer = (integration.log_near_one(1 + x, x) for x in less)
        others = np.exp((n - k) * log_rarer) * (np.exp((k - 2) * log) if k > 2 else 1)
        part = (k - 1) * above[live] * (1 + less[1]) + at[live] * (1 + less[0])
        total[live] += (chance * part * others).real
    body[open_] = total
    return (body * weights).sum(axis=(0, 1))


def shared(k: int, rho: float, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the share of the k largest scores that is read, and a bound on its relative error.

    Args:
        k: how many keys are read.
        rho: correlation of score and proxy.
        length: n > k, [lengths].

    Raises:
        InputError: |ρ| too near to 1.
    """
    if k == 1:
        return recall(1, rho, length)
    refuse_too_close(rho)
    n = np.asarray(length, dtype=np.float64)
    # Of few keys the k-th varies more: half the points would bound the error of t by 1e-4.
    t, chance = (x[:, :: LEVELS * (1 if k < 8 else 2)] for x in kth_scores(n, k))
    value, error = np.empty((2, len(n)))
    for i, m in enumerate(n.tolist()):
        fine, coarse = (_shared(k, rho, m, t[i], coarseness) / k for coarseness in (1, 1.5))
        value[i] = max(fine @ chance[i] / chance[i].sum(), 1e-300)
        half = chance[i, ::2]
        others = coarse @ chance[i] / chance[i].sum(), fine[::2] @ half / half.sum()
        error[i] = integration.relative_gap(value[i], *others) + _OF_CHANCES / value[i]
    return value, error
