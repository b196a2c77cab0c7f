"""What the exact law comes to on ideal rows: Gaussian logits at real rows' own lengths and spreads.

One row has one S, while the law is a mean over rows. So even Gaussian rows scatter about it, and
real rows are held against these rather than against the law itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparsity.attention.measurement import row_laws
from sparsity.attention.measurement.datasets import rank_correlation

WITHIN = 0.25  # a row is within a quarter of its law
_ROWS = 4000  # drawn; a share is then known to 0.01
_BLOCK = 2**21  # normal numbers at a time


@dataclass(frozen=True)
class Fit:
    """How rows lie to both laws at their own n and γ̂.

    Args:
        ratio: median of S over the exact law.
        within: share of rows within a quarter of it.
        off_limit: median |log(S/limit law)|.
        off_exact: median |log(S/exact law)|.
        rank_limit: Spearman's correlation over rows of S with the limit law.
        rank_exact: with the exact law.
    """

    ratio: float
    within: float
    off_limit: float
    off_exact: float
    rank_limit: float
    rank_exact: float


def fit(n: np.ndarray, gamma: np.ndarray, S: np.ndarray) -> Fit:
    """Hold rows against both laws.

    Args:
        n: keys of each row.
        gamma: γ̂ of its logits; 0 ≤ γ̂ ≤ `row_laws.MAX_GAMMA`.
        S: its sparsity.
    """
    if not len(n):
        return Fit(*[np.nan] * 6)
    exact, limit = np.log(row_laws.exact_law(n, gamma)), row_laws.log_limit_law(gamma)
    log_S = np.log(S)
    return Fit(
        ratio=float(np.exp(np.median(log_S - exact))),
        within=float(np.mean(np.abs(log_S - exact) < np.log1p(WITHIN))),
        off_limit=float(np.median(np.abs(log_S - limit))),
        off_exact=float(np.median(np.abs(log_S - exact))),
        rank_limit=float(rank_correlation(log_S, limit)),
        rank_exact=float(rank_correlation(log_S, exact)),
    )


def gaussian(n: np.ndarray, gamma: np.ndarray, seed: int = 0) -> Fit:
    """The same of Gaussian rows, whose S and γ̂ are measured on them as on real ones.

    Args:
        n: keys of each real row, ≥ 2; at most `_ROWS` of them are taken, by chance.
        gamma: their γ̂.
        seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    take = rng.permutation(len(n))[:_ROWS]
    take = take[np.argsort(n[take], kind="stable")]
    n, gamma = n[take].astype(np.int64), gamma[take]
    step = max(1, _BLOCK // int(n.max(initial=1)))
    drawn, S = np.empty(len(n)), np.empty(len(n))
    for first in range(0, len(n), step):
        rows = slice(first, first + step)
        count = n[rows, None]
        seen = np.arange(count.max()) < count
        s = np.where(seen, gamma[rows, None] * rng.standard_normal(seen.shape), 0.0)
        away = np.where(seen, s - s.sum(1, keepdims=True) / count, 0.0)
        drawn[rows] = np.sqrt((away**2).sum(1) / (count[:, 0] - 1))
        with np.errstate(under="ignore"):
            a = np.where(seen, np.exp(s - np.where(seen, s, -np.inf).max(1, keepdims=True)), 0.0)
            S[rows] = a.sum(1) / np.sqrt(count[:, 0] * (a * a).sum(1))
    known = drawn <= row_laws.MAX_GAMMA
    return fit(n[known], drawn[known], S[known])
