"""Routed softmax: of all keys only the k of the largest proxies are read, as sparse indexers do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from sparsity.arguments import whole
from sparsity.kernels.parameters import GAMMA, RHO
from sparsity.kernels.row_map import Drawn, RowMap
from sparsity.kernels.top_k import Weights as TopK


class Routed(NamedTuple):
    """The score and the proxy of every token, rows along the last axis."""

    scores: Any
    proxies: Any


@dataclass(frozen=True)
class Weights:
    """Shares of the softmax over all keys, for the k keys of the largest proxies; 0 for the rest.

    They add up to the captured mass, so that `abs_sum` is that; n_eff, S and the participation
    ratio are of the keys that are read.

    Args:
        k: how many keys are read, ≥ 1.
    """

    k: int

    def __call__(self, of: Routed) -> Any:
        """The weights of rows of scores and proxies."""
        xp = of.scores.__array_namespace__()
        a = xp.exp(of.scores - of.scores.max(-1, keepdims=True))
        kept = TopK(self.k)(of.proxies) > 0
        return a * kept / a.sum(-1, keepdims=True)


def read(normals: Any, shared: Any, *, gamma: Any, rho: Any) -> Routed:
    """Scores N(0, γ²) and proxies N(0, 1) with correlation ρ, from two normals each."""
    z, other = normals[..., 0], normals[..., 1]
    return Routed(gamma * (rho * z + ((1 - rho) * (1 + rho)) ** 0.5 * other), z)


def router(k: int) -> RowMap:
    """Softmax of the k keys that a proxy of correlation ρ with the score chooses.

    Args:
        k: how many, a whole number ≥ 1: 2048 for DeepSeek's indexer.

    Raises:
        InputError: another number.
    """
    k = whole("router", k, 1)
    return RowMap(
        name=f"router:{k}",
        title=f"softmax of {k} routed keys",
        weights=Weights(k),
        formula=f"e^s_j/Σ over all, of the {k} largest proxies",
        source="DeepSeek-AI (2025), DeepSeek-V3.2, sparse attention by an indexer",
        parameters=(GAMMA, RHO),
        drawn=Drawn("rows of scores N(0, γ²) and proxies of correlation ρ", lambda own: 2, read),
        with_number=router,
    )
