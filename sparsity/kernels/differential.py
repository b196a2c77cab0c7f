"""Differential attention: p⁽¹⁾ − λ p⁽²⁾, the difference of two softmax maps. Weights are signed."""

from __future__ import annotations

from typing import Any, NamedTuple

from sparsity.kernels.parameters import GAMMA, GAMMA2, MIX, RHO
from sparsity.kernels.row_map import Drawn, RowMap


class Scores(NamedTuple):
    """Two scores of every token, rows along the last axis; their spreads, and λ."""

    first: Any
    second: Any
    gamma: Any
    gamma2: Any
    mix: Any


def _softmax(scores: Any) -> Any:
    a = scores.__array_namespace__().exp(scores - scores.max(-1, keepdims=True))
    return a / a.sum(-1, keepdims=True)


def weights(of: Scores) -> Any:
    """softmax(s⁽¹⁾) − λ softmax(s⁽²⁾)."""
    return _softmax(of.first) - of.mix * _softmax(of.second)


def alone(of: Scores) -> Any:
    """Weights of long rows times n, whose totals are at their means: e^(s − γ²/2) for each map."""
    exp = of.first.__array_namespace__().exp
    second = exp(of.second - of.gamma2 * of.gamma2 / 2)
    return exp(of.first - of.gamma * of.gamma / 2) - of.mix * second


def read(normals: Any, shared: Any, *, gamma: Any, gamma2: Any, rho: Any, mix: Any) -> Scores:
    """Scores N(0, γ₁²) and N(0, γ₂²) with correlation ρ, from two normals each."""
    z, other = normals[..., 0], normals[..., 1]
    turned = rho * z + ((1 - rho) * (1 + rho)) ** 0.5 * other
    return Scores(gamma * z, gamma2 * turned, gamma, gamma2, mix)


differential = RowMap(
    name="differential",
    title="differential attention",
    weights=weights,
    formula="softmax(s⁽¹⁾)_j − λ softmax(s⁽²⁾)_j",
    source="Ye et al. (2024), arXiv 2410.05258",
    parameters=(GAMMA, GAMMA2, RHO, MIX),
    drawn=Drawn(
        "rows of pairs of scores N(0, γ₁²), N(0, γ₂²) with correlation ρ", lambda own: 2, read
    ),
    unnormalised=alone,
)
