"""Top-k softmax attention: e^s on the k largest scores of the row, 0 on the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparsity.arguments import whole
from sparsity.kernels.row_map import RowMap, newton_from_below


@dataclass(frozen=True)
class Weights:
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
        a = xp.exp(-below) * kept
        return a / a.sum(-1, keepdims=True)


def top_k(k: int) -> RowMap:
    """Softmax of the k largest scores.

    Args:
        k: how many, a whole number ≥ 1.

    Raises:
        InputError: another number.
    """
    k = whole("topk", k, 1)
    return RowMap(
        name=f"topk:{k}",
        title=f"softmax of the {k} largest",
        weights=Weights(k),
        formula=f"e^s_j/Σ, s_j ≥ the {k}. largest",
        source="Gupta et al. (2021), arXiv 2106.06899",
        with_number=top_k,
    )
