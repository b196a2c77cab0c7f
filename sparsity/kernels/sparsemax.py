"""Sparsemax attention: p = (s − τ)₊, the Euclidean projection of the scores onto the simplex."""

from __future__ import annotations

from typing import Any

from sparsity.kernels.row_map import RowMap, newton_from_below


def weights(scores: Any) -> Any:
    """(s − τ)₊ with Σ = 1.

    Newton's steps are τ = (Σ of the scores above τ − 1)/(their number): exact once that set stays.

    Args:
        scores: rows along the last axis.

    Returns:
        The weights, in the same shape.
    """
    s = scores - scores.max(-1, keepdims=True)

    def step(tau: Any) -> Any:
        above = s > tau
        return ((s * above).sum(-1, keepdims=True) - 1) / above.sum(-1, keepdims=True)

    tau = newton_from_below(
        step, s.max(-1, keepdims=True) - 1
    )  # the largest score alone weighs 1 there
    return (s - tau) * (s > tau)


sparsemax = RowMap(
    name="sparsemax",
    title="sparsemax",
    weights=weights,
    formula="(s_j − τ)₊, τ: Σ = 1",
    source="Martins & Astudillo (2016), arXiv 1602.02068",
)
