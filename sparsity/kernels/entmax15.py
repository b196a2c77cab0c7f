"""Entmax-1.5 attention: p = (s/2 − τ)₊², between softmax and sparsemax."""

from __future__ import annotations

from typing import Any

from sparsity.kernels.row_map import RowMap, newton_from_below


def weights(scores: Any) -> Any:
    """(s/2 − τ)₊² with Σ = 1.

    √Σ(s/2 − τ)₊² falls with τ and is convex: Newton's steps from below rise to where it is 1.

    Args:
        scores: rows along the last axis.

    Returns:
        The weights, in the same shape.
    """
    xp = scores.__array_namespace__()
    half = 0.5 * (scores - scores.max(-1, keepdims=True))

    def step(tau: Any) -> Any:
        over = xp.maximum(half - tau, 0.0)
        norm = (over * over).sum(-1, keepdims=True) ** 0.5
        return tau + (norm - 1) * norm / over.sum(-1, keepdims=True)

    tau = newton_from_below(
        step, half.max(-1, keepdims=True) - 1
    )  # the largest score alone weighs 1 there
    p = xp.maximum(half - tau, 0.0) ** 2
    return p / p.sum(-1, keepdims=True)  # 1 but for the rounding of τ


entmax15 = RowMap(
    name="entmax1.5",
    title="entmax with α = 1.5",
    weights=weights,
    formula="(s_j/2 − τ)₊², τ: Σ = 1",
    source="Peters, Niculae & Martins (2019), arXiv 1905.05702",
)
