"""What the largest weights hold, and what a threshold λ under the largest of all drops.

The former are the maximum, top-k mass, keys for a mass, Gini, support and recall; the latter keys,
tiles of keys, and the weight that they hold. Most come from N(a), how many weights are above
a: the k largest add up to ∫ min(k, N(a)) da.

Kernels that skip tiles (BLASST, arXiv 2512.12087; "skip softmax" in TensorRT-LLM and vLLM) leave
out a tile of B keys if the largest of its logits is below the row's largest + ln λ. Of weights
other than e^s it is ln|a| that takes the logit's place. A kernel that goes through the tiles in
order compares with the largest so far: it skips tile i as in a row of the first i tiles.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from sparsity import metric
from sparsity.quantities.base import Family, Quantity, RowSums
from sparsity.quantities.laws import BelowLaw, KeysLaw, RankLaw
from sparsity.special import betainc

# k up to which sums of probabilities are taken: far beyond, P(N = 0) leaves the range of float64,
# and far below, SciPy's incomplete beta function has ten digits only.
_SUMMED = 64


@functools.lru_cache(maxsize=64)
def _excess_of_many(k: int, n: float) -> tuple[float, Any]:
    """Return how far from k a mean of N says it all, and E max(N − k, 0) within that, a spline.

    E max(N − k, 0) = nq·P(N′ ≥ k − 1) − k·P(N ≥ k), N ~ Bin(n, q) and N′ ~ Bin(n − 1, q). The
    spline has 40 points or so in a standard deviation of N.
    """
    from scipy.interpolate import make_interp_spline  # slow to import

    far = 10 * math.sqrt(k * (1 - k / n) + 1) + 40
    mean = np.linspace(max(k - far, 0.0), min(k + far, n), 801)
    q = mean / n
    excess = mean * betainc(k - 1, n - k + 1, q) - k * betainc(k, n - k + 1, q)
    return far, make_interp_spline(mean, excess, k=7)


def _held_of_many(k: int, n: float, log_rest: np.ndarray) -> np.ndarray:
    """Return E min(k, N) = E N − E max(N − k, 0)."""
    mean = -n * np.expm1(log_rest)
    far, excess = _excess_of_many(k, n)
    near = np.abs(mean - k) < far
    held = np.minimum(mean, k)
    held[near] = mean[near] - excess(mean[near])
    return held


def _held(k: int, n: float, log_rest: np.ndarray) -> np.ndarray:
    """Return E min(k, N) of N ~ Bin(n, q), k < n, given log(1 − q).

    P(N = i) follow from each other by the ratio (q/(1 − q))·(n − i)/(i + 1). Where the mean nq is
    at least 1, E min(k, N) = k − Σ_{i<k} (k − i)P(N = i). Below, that would cancel, and the sum
    Σ min(i, k)P(N = i) itself is taken, of so many terms that the rest is below rounding: the
    smaller the mean, the fewer. Where more than k are hardly ever there, it is the mean itself,
    and far above k, all rows have k weights there.
    """
    if k > _SUMMED:
        return _held_of_many(k, n, log_rest)
    if k == 1:  # P(N ≥ 1) = 1 − (1 − q)^n
        return -np.expm1(n * log_rest)
    mean = -n * np.expm1(log_rest)
    # E max(N − k, 0) is below meanᵏ/(k + 1)! of the mean: less than rounding up to here. Most of a
    # table lies there, far up where hardly a weight is.
    rare = min(math.exp((math.lgamma(k + 2) - 53 * math.log(2)) / k), 1.0)
    held = np.minimum(mean, float(k))
    # Of a mean up to 0.01, terms from the tenth on add less than 0.01⁹/9! of the first. Up to 1,
    # those beyond 22 add less than 1/22! of it.
    last = k + 10 * math.sqrt(k) + 40  # beyond it, N < k has less than e^−50
    for low, high, terms in ((rare, 1e-2, 9), (max(rare, 1e-2), 1.0, 22), (1.0, last, k)):
        here = (mean >= low) & (mean < high)
        if not here.any():
            continue  # as in most blocks: a third of the time of k = 64
        log = log_rest[here]
        odds = np.minimum(np.expm1(-np.maximum(log, -40.0)), 1e15)
        p, sums = np.exp(n * log), np.zeros(log.shape)
        for i in range(terms):
            sums += p * (k - i if low == 1.0 else min(i, k))
            p *= odds * ((n - i) / (i + 1))
        held[here] = k - sums if low == 1.0 else sums
    return held


def largest(k: int) -> RankLaw:
    """Return the law of the sum of the k largest weights, ∫ min(k, N(a)) da."""
    return RankLaw(
        mean=lambda n, log_rest: _held(k, n, log_rest),
        keys=k,
        ends=lambda n: (min(k / n, 1.0), 1.0),
    )


def _top_k_mass(name: str, number: float) -> Quantity:
    k = int(number)

    def of(row: RowSums) -> Any:
        return metric.ascending(row.weights)[..., -k:].sum(-1) / (row.l1 + row.unit)

    return Quantity(
        name=name,
        symbol=f"E top-{k} mass",
        title=f"share of the {k} largest weights",
        average="E of the k largest p_j = |a_j|/(Σ|a| + e^b of sink logits), over nonzero rows",
        of=of,
        units=True,
        whole=True,
        rank_law=largest(k),
    )


top_k_mass = Family(
    name="top_k_mass",
    symbol="k",
    title="share of the k largest weights, 1 for one-hot",
    domain="a whole number of keys, at least 1",
    admits=lambda k: k >= 1 and float(k).is_integer(),
    member=_top_k_mass,
    example="4",
)


max_weight = Quantity(
    name="max_weight",
    symbol="E max p",
    title="largest weight max p, 1 for one-hot",
    average="E max p_j over tokens, p_j = |a_j|/(Σ|a| + e^b of sink logits), over nonzero rows",
    of=lambda row: row.weights.max(-1) / (row.l1 + row.unit),
    units=True,
    whole=True,
    rank_law=largest(1),
)


def _keys_for_mass(name: str, share: float) -> Quantity:
    def of(row: RowSums) -> Any:
        xp = row.weights.__array_namespace__()
        held = xp.flip(metric.ascending(row.weights), axis=-1).cumsum(-1)
        return 1.0 + (held < share * row.l1[..., None]).sum(-1)

    return Quantity(
        name=name,
        symbol=f"keys for {share:g}",
        title=f"fewest keys that hold {share:g} of the mass of all tokens",
        average="E of the least m whose m largest |a_j| add up to p·Σ|a|, over nonzero rows",
        unit="tokens",
        of=of,
        whole=True,
        rank_law=KeysLaw(share),
    )


keys_for_mass = Family(
    name="keys_for_mass",
    symbol="p",
    title="fewest keys that hold the share p of the mass, 1 for one-hot",
    domain="a share between 0 and 1",
    admits=lambda share: 0 < share < 1,
    member=_keys_for_mass,
    example="0.9",
)


gini = Quantity(
    name="gini",
    symbol="E Gini",
    title="Gini coefficient of the weights, 0 for uniform, 1 − 1/n for one-hot",
    average="E Σ_jk |p_j − p_k|/(2n) over tokens, p_j = |a_j|/Σ|a|, over nonzero rows",
    of=lambda row: metric.gini(row.weights),
    whole=True,
    # Σ_jk |a_j − a_k|/2 = ∫ N(a)(n − N(a)) da, and E N(n − N)/n = (n − 1)q(1 − q)
    rank_law=RankLaw(
        mean=lambda n, log_rest: (1 - n) * np.expm1(log_rest) * np.exp(log_rest),
        keys=0,
        ends=lambda n: (0.0, 1 - 1 / n),
        beside_hidden=lambda value, share: 1 - (1 - value) * share,
    ),
)


support = Quantity(
    name="support",
    symbol="E K",
    title="support size, the number of nonzero weights",
    average="E #{j: a_j ≠ 0} over rows that are not all zero; of sampled maps, a weight that their "
    "own arithmetic rounds to 0 counts as zero",
    unit="tokens",
    of=lambda row: (row.weights > 0).astype(row.weights.dtype).sum(-1),
    whole=True,
)

recall = Quantity(
    name="recall",
    symbol="P(top read)",
    title="chance that the key of the largest score is read; 1 where every key is",
    average="P(the key of the largest score of all is among those read), over nonzero rows",
    of=lambda row: row.top + 0 * row.l1,
    chance=True,
)


# --- below a threshold -------------------------------------------------------------------------

_LEAST_LOG = -80.0  # ln λ: float32 has numbers down to e^−87, and no kernel drops so little


def _tiles(weights: Any, size: int) -> Any:
    """Return rows cut into tiles, [..., tiles, keys]; the last one is filled up with zeros."""
    xp, n = weights.__array_namespace__(), weights.shape[-1]
    size = min(size, n)
    left_over = xp.zeros((*weights.shape[:-1], -n % size), dtype=weights.dtype)
    padded = weights if n % size == 0 else xp.concatenate([weights, left_over], axis=-1)
    return padded.reshape(*weights.shape[:-1], -1, size)


def _dropped(mass: bool, name: str, log_ratio: float, tile: float = 1) -> Quantity:
    size, ratio = int(tile), math.exp(log_ratio)
    what = "keys" if size == 1 else f"tiles of {size} keys, all of them"
    tiles = "" if size == 1 else f" of tiles of {size}"

    def of(row: RowSums) -> Any:
        tiles = _tiles(row.weights, size)
        dropped = tiles.max(-1) < ratio * row.weights.max(-1, keepdims=True)
        if mass:
            return (tiles.sum(-1) * dropped).sum(-1) / (row.l1 + row.unit)
        return dropped.astype(row.weights.dtype).mean(-1)

    return Quantity(
        name=name,
        symbol=f"{'mass' if mass else 'share'}{tiles} below {log_ratio:g}",
        title=f"{'weight' if mass else 'share'} of {what} below max|a|·e^{log_ratio:g}",
        average=(
            "E Σ_dropped|a|/(Σ|a| + sink logits) over rows that are not all zero"
            if mass
            else f"E #dropped/#{'keys' if size == 1 else 'tiles'} over rows that are not all zero"
        ),
        of=of,
        units=mass,
        whole=True,
        rank_law=BelowLaw(log_ratio, size, mass),
    )


_share, _mass = functools.partial(_dropped, False), functools.partial(_dropped, True)


def _admits(log_ratio: float, tile: float = 1) -> bool:
    return _LEAST_LOG <= log_ratio < 0 and tile >= 1 and float(tile).is_integer()


_KEYS = (f"a number ln λ below 0, at least {_LEAST_LOG:g}", _admits)
_TILES = (f"ln λ below 0, at least {_LEAST_LOG:g}, and the keys of a tile, a whole number", _admits)
_BELOW = "that lie more than |ln λ| below the largest logit"

below = Family("below", "ln λ", f"share of keys {_BELOW}", *_KEYS, _share, "-2")
mass_below = Family("mass_below", "ln λ", f"weight of the keys {_BELOW}", *_KEYS, _mass, "-2")
tiles_below = Family("tiles_below", "ln λ,B", f"share of tiles {_BELOW}", *_TILES, _share, "-1,2")
tiles_mass_below = Family(
    "tiles_mass_below", "ln λ,B", f"weight of the tiles {_BELOW}", *_TILES, _mass, "-1,2"
)
