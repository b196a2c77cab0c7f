"""The share of the attention that goes to the k largest weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sparsity import metric
from sparsity.quantities.base import Family, Layers, Quantity, RowSums


def _held(k: int, n: float, log_rest: np.ndarray) -> np.ndarray:
    """E min(k, N) of N ~ Bin(n, q), k < n, given log(1 − q); each term where it has its digits."""
    if k == 1:
        return -np.expm1(n * log_rest)
    q = -np.expm1(log_rest)
    mean, odds = n * q, np.minimum(np.expm1(-np.maximum(log_rest, -40.0)), 1e15)
    found = np.full(mean.shape, float(k))
    last = k + 10 * math.sqrt(k) + 40  # beyond it, N < k has less than e^−50
    for low, high, terms in ((0.0, 1e-2, 9), (1e-2, 1.0, 22), (1.0, last, k)):
        here = (mean >= low) & (mean < high)
        x = odds[here]
        p, sums = np.exp(n * log_rest[here]), np.zeros(x.shape)
        for i in range(terms):
            sums += p * (k - i if low == 1.0 else min(i, k))
            p *= x * ((n - i) / (i + 1))
        found[here] = k - sums if low == 1.0 else sums
    return found


def largest(k: int) -> Layers:
    """The k largest weights add up to ∫ min(k, N(a)) da."""
    return Layers(
        mean=lambda n, log_rest: _held(k, n, log_rest),
        keys=k,
        ends=lambda n: (min(k / n, 1.0), 1.0),
    )


def _member(name: str, number: float) -> Quantity:
    k = int(number)

    def of(row: RowSums) -> Any:
        return metric.ascending(row.weights)[..., -k:].sum(-1) / (row.l1 + row.unit)

    return Quantity(
        name=name,
        symbol=f"E top-{k} mass",
        title=f"share of the {k} largest weights",
        average="E of the k largest p_j = |a_j|/(Σ|a| + e^b of sink logits), over nonzero rows",
        unit="1",
        of=of,
        units=True,
        whole=True,
        limit=lambda rows: rows.top(np.minimum(k / rows.n, 1.0)),
        layers=largest(k),
    )


top_k_mass = Family(
    name="top_k_mass",
    symbol="k",
    title="share of the k largest weights, 1 for one-hot",
    domain="a whole number of keys, at least 1",
    admits=lambda k: k >= 1 and float(k).is_integer(),
    member=_member,
    example="4",
)
