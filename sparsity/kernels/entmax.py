"""Entmax attention of an order α from 1.01 to 2: p = [(α − 1)s − τ]₊^(1/(α − 1)).

It is softmax for α → 1. Orders above 2 would need another search for τ: the weights then have a
power r = 1/(α − 1) < 1, and their sum is not convex in τ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparsity import reading
from sparsity.arguments import number
from sparsity.kernels.row_map import RowMap, newton_from_below
from sparsity.kernels.sparsemax import sparsemax

LEAST = 1.01  # α; below it is softmax but for weights that no row shows


def _weights_of_three_halves(scores: Any) -> Any:
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
    weights=_weights_of_three_halves,
    formula="(s_j/2 − τ)₊², τ: Σ = 1",
    source="Peters, Niculae & Martins (2019), arXiv 1905.05702",
)


@dataclass(frozen=True)
class Weights:
    """[(α − 1)s − τ]₊^r with Σ = 1, r = 1/(α − 1).

    The r-norm N of ((α − 1)s − τ)₊ falls with τ and, as r ≥ 1, is convex: Newton's steps from below
    rise to where it is 1.

    Args:
        alpha: the order α, in (1, 2].
    """

    alpha: float

    def __call__(self, scores: Any) -> Any:
        """The weights of rows of scores along the last axis."""
        xp, power = scores.__array_namespace__(), 1 / (self.alpha - 1)
        scaled = (self.alpha - 1) * (scores - scores.max(-1, keepdims=True))

        def step(tau: Any) -> Any:
            over = xp.maximum(scaled - tau, 0.0)
            norm = (over**power).sum(-1, keepdims=True) ** (1 / power)
            slope = xp.where(over > 0, over ** (power - 1), 0.0).sum(-1, keepdims=True)
            return tau + (norm - 1) * norm ** (power - 1) / slope

        tau = newton_from_below(
            step, scaled.max(-1, keepdims=True) - 1
        )  # the largest alone weighs 1 there
        p = xp.maximum(scaled - tau, 0.0) ** power
        return p / p.sum(-1, keepdims=True)  # 1 but for the rounding of τ


def entmax(alpha: float) -> RowMap:
    """Entmax of an order; of 1.5 and 2 the maps that have a name.

    Args:
        alpha: α, from `LEAST` to 2.

    Raises:
        InputError: another number.
    """
    fix = f"must be from {LEAST} to 2"
    alpha = float(number("entmax", alpha, fix, lambda x: LEAST <= x <= 2))
    if alpha in (1.5, 2.0):
        return entmax15 if alpha == 1.5 else sparsemax
    return RowMap(
        name=f"entmax:{alpha!r}",
        title=f"entmax with α = {alpha:g}",
        weights=Weights(alpha),
        formula=f"({alpha - 1:.6g}·s_j − τ)₊^{1 / (alpha - 1):.6g}, τ: Σ = 1",
        source="Peters, Niculae & Martins (2019), arXiv 1905.05702",
        with_number=entmax,
        parse_number=reading.parse_number,
    )
