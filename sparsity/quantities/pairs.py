"""What two rows have in common: two queries, heads or layers whose scores correlate over keys.

Both rows have the same law, and the scores of a key have correlation ρ, those of two keys none.
What they share is how much of one's attention the other would find, or how many of its k best keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsity import metric
from sparsity.kernels.numeric.points import EPS
from sparsity.quantities.base import Family, LongRows, Quantity, RowSums
from sparsity.quantities.laws import PairLaw
from sparsity.special import ndtri, owens_t


def _overlap(name: str, rho: float) -> Quantity:
    def of(row: RowSums) -> Any:
        return _of_weighted(row, metric.overlap(*row.pair, log=True))

    return Quantity(
        name=name,
        symbol=f"E Σ p p′ at ρ = {rho:g}",
        title=f"overlap Σ p p′ of two attentions whose scores correlate by {rho:g}",
        average="E Σ_j p_j p′_j, p and p′ over all tokens of a row each, over nonzero rows",
        of=of,
        pair=PairLaw(rho),
        # e^(ργ²)/n, in the moments of one weight of softmax: e^(γ²) = E a²/(E a)²
        limit=lambda rows: rows.product((2.0, rho), (1.0, -2 * rho), count=rho - 1),
        whole=True,
    )


def _of_weighted(row: RowSums, value: Any) -> Any:
    """Return 0 for pairs of which one row has no weight."""
    xp = row.pair[1].__array_namespace__()
    return xp.where(row.pair[1].max(-1) > -xp.inf, value, 0.0)


overlap = Family(
    name="overlap",
    symbol="ρ",
    title="overlap Σ p p′ of two attentions whose scores correlate by ρ, Σ p² at ρ = 1",
    domain="a correlation from -1 to 1",
    admits=lambda rho: -1 <= rho <= 1,
    member=_overlap,
    example="0.5",
)


def _top_k_overlap(name: str, keys: float, rho: float) -> Quantity:
    k = int(keys)

    def of(row: RowSums) -> Any:
        return _of_weighted(row, metric.top_k_overlap(*row.pair, k=k, log=True))

    def limit(rows: LongRows) -> tuple[Any, float]:
        # P(Z > z, Z′ > z)/q of two normals of correlation ρ, by Owen's T
        q = np.minimum(k / np.asarray(rows.n), 1.0)
        slope = np.sqrt((1 - rho) / (1 + rho)) if rho > -1 else np.inf
        value = 1 - 2 * owens_t(-ndtri(q), slope) / q
        return np.maximum(value, 0.0), float(np.max(8 * EPS / q))

    return Quantity(
        name=name,
        symbol=f"top-{k} overlap at ρ = {rho:g}",
        title=f"share of the {k} largest weights that are so in a row of correlation {rho:g} too",
        average="E |T ∩ T′|/|T|, T the k largest weights that are not 0, of equal ones the first",
        of=of,
        pair=PairLaw(rho, k),
        limit=limit,
        whole=True,
    )


top_k_overlap = Family(
    name="top_k_overlap",
    symbol="k,ρ",
    title="share of the k largest weights that are so in a row whose scores correlate by ρ too",
    domain="a whole number of keys, at least 1, and a correlation from -1 to 1",
    admits=lambda k, rho: k >= 1 and float(k).is_integer() and -1 <= rho <= 1,
    member=_top_k_overlap,
    example="4,0.5",
)
