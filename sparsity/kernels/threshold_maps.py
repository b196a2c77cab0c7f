"""Maps with a threshold τ that the row itself sets: sparsemax, entmax, top-k softmax.

Entmax of an order α from 1.01 to 2 is p = [(α − 1)s − τ]₊^(1/(α − 1)): softmax for α → 1, and
sparsemax, the Euclidean projection of the scores onto the simplex, at α = 2. Orders above 2 would
need another search for τ: the weights then have a power r = 1/(α − 1) < 1, and their sum is not
convex in τ. Top-k softmax is e^s on the k largest scores of the row, 0 on the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparsity import parsing
from sparsity.checks import check_number, check_whole
from sparsity.kernels.row_map import RowMap, newton_from_below

LEAST = 1.01  # α; below it is softmax but for weights that no row shows


def _project(scores: Any) -> Any:
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

    tau = newton_from_below(step, s.max(-1, keepdims=True) - 1)  # there the largest alone weighs 1
    return (s - tau) * (s > tau)


sparsemax = RowMap(
    name="sparsemax",
    title="sparsemax",
    weights=_project,
    formula="(s_j − τ)₊, τ: Σ = 1",
    source="Martins & Astudillo (2016), arXiv 1602.02068",
)


@dataclass(frozen=True)
class Entmax:
    """[(α − 1)s − τ]₊^r with Σ = 1, r = 1/(α − 1).

    The r-norm N of ((α − 1)s − τ)₊ falls with τ and, as r ≥ 1, is convex: Newton's steps from below
    rise to where it is 1.

    Args:
        alpha: the order α, in (1, 2).
    """

    alpha: float

    def __call__(self, scores: Any) -> Any:
        """The weights of rows of scores along the last axis."""
        xp, power = scores.__array_namespace__(), 1 / (self.alpha - 1)
        scaled = (self.alpha - 1) * (scores - scores.max(-1, keepdims=True))

        def step(tau: Any) -> Any:
            over = xp.maximum(scaled - tau, 0.0)
            norm = (over**power).sum(-1, keepdims=True) ** (1 / power)
            slope = (over ** (power - 1)).sum(-1, keepdims=True)
            return tau + (norm - 1) * norm ** (power - 1) / slope

        tau = newton_from_below(step, scaled.max(-1, keepdims=True) - 1)
        p = xp.maximum(scaled - tau, 0.0) ** power
        return p / p.sum(-1, keepdims=True)  # 1 but for the rounding of τ


entmax15 = RowMap(
    name="entmax1.5",
    title="entmax with α = 1.5",
    weights=Entmax(1.5),
    formula="(s_j/2 − τ)₊², τ: Σ = 1",
    source="Peters, Niculae & Martins (2019), arXiv 1905.05702",
)


def entmax(alpha: float) -> RowMap:
    """Entmax of an order; of 1.5 and 2 the maps that have a name.

    Args:
        alpha: α, from `LEAST` to 2.

    Raises:
        InputError: another number.
    """
    fix = f"must be from {LEAST} to 2"
    alpha = float(check_number("entmax", alpha, fix, lambda x: LEAST <= x <= 2))
    if alpha in (1.5, 2.0):
        return entmax15 if alpha == 1.5 else sparsemax
    return RowMap(
        name=f"entmax:{alpha!r}",
        title=f"entmax with α = {alpha:g}",
        weights=Entmax(alpha),
        formula=f"({alpha - 1:.6g}·s_j − τ)₊^{1 / (alpha - 1):.6g}, τ: Σ = 1",
        source="Peters, Niculae & Martins (2019), arXiv 1905.05702",
        with_number=entmax,
        parse_number=parsing.parse_number,
    )


@dataclass(frozen=True)
class TopK:
    """Softmax over the k largest; over all of a shorter row. Of equal k-th scores all are kept.

    Args:
        k: how many, ≥ 1.
    """

    k: int

    def __call__(self, scores: Any) -> Any:
        """The weights of rows of scores along the last axis."""
        xp = scores.__array_namespace__()
        below = scores.max(-1, keepdims=True) - scores

        def step(tau: Any) -> Any:  # from one score down to the next, until k are kept
            down = xp.where(below > tau, below, xp.inf).min(-1, keepdims=True)
            full = (below <= tau).sum(-1, keepdims=True) >= self.k
            return xp.where(full | (down == xp.inf), tau, down)

        kept = below <= newton_from_below(step, below.min(-1, keepdims=True))
        # What is kept stays a weight where it underflows: k are counted, whatever the spread.
        smallest = 2 * self.k * xp.finfo(scores.dtype).tiny
        a = xp.maximum(xp.exp(-below), smallest) * kept
        return a / a.sum(-1, keepdims=True)


def top_k(k: int) -> RowMap:
    """Softmax of the k largest scores.

    Args:
        k: how many, a whole number ≥ 1.

    Raises:
        InputError: another number.
    """
    k = check_whole("topk", k, 1)
    return RowMap(
        name=f"topk:{k}",
        title=f"softmax of the {k} largest",
        weights=TopK(k),
        formula=f"e^s_j/Σ of the {k} largest s_j",
        source="Gupta et al. (2021), arXiv 2106.06899",
        with_number=top_k,
    )
