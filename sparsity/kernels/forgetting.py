"""Forgetting attention: softmax under a product of random gates, g = σ(b + cε) of every token."""

from __future__ import annotations

from typing import Any, NamedTuple

from sparsity.kernels.parameters import GAMMA, GATE, GATE_SPREAD
from sparsity.kernels.row_map import Drawn, RowMap


class Scores(NamedTuple):
    """A score and the logarithm of a gate for every token, the token of the query last."""

    score: Any
    log_gate: Any


def _log_weights(of: Scores) -> Any:
    """s_j + Σ_{i>j} ln g_i."""
    xp = of.score.__array_namespace__()
    back = xp.flip(xp.cumsum(xp.flip(of.log_gate, -1), axis=-1), -1)
    return of.score + back - of.log_gate


def weights(of: Scores) -> Any:
    """e^(s_j) Π_{i>j} g_i over their sum; rows along the last axis."""
    log_a = _log_weights(of)
    a = log_a.__array_namespace__().exp(log_a - log_a.max(-1, keepdims=True))
    return a / a.sum(-1, keepdims=True)


def alone(of: Scores) -> Any:
    """e^(s_j) Π_{i>j} g_i."""
    return of.score.__array_namespace__().exp(_log_weights(of))


def read(normals: Any, shared: Any, *, gamma: Any, gate: Any, gate_spread: Any) -> Scores:
    """Scores N(0, γ²) and independent gates σ(b + cε)."""
    xp = normals.__array_namespace__()
    opened = gate + gate_spread * normals[..., 1]
    return Scores(gamma * normals[..., 0], -xp.logaddexp(-opened, opened * 0))


forgetting = RowMap(
    name="forgetting",
    title="forgetting attention",
    weights=weights,
    formula="e^s_j Π_{i>j} g_i/Σ, g = σ(b + cε)",
    source="Lin et al. (2025), arXiv 2503.02130",
    parameters=(GAMMA, GATE, GATE_SPREAD),
    drawn=Drawn("rows of scores N(0, γ²) and gates g = σ(b + cε)", lambda own: 2, read),
    unnormalised=alone,
    identically_distributed=False,
)
