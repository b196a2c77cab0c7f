"""Maps of more than one number a token: stick-breaking, forgetting, differential, Performer.

Stick-breaking: from the query back, each key takes a share of what is left. Forgetting: softmax
under a product of random gates, g = σ(b + cε) of every token. Differential: p⁽¹⁾ − λ p⁽²⁾, the
difference of two softmax maps; weights are signed. Performer: e^(q·k) estimated from m positive
random features of queries and keys. `Drawn` says what normals a row of the last three is made of.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sparsity.kernels.parameters import (
    BETA,
    DIM,
    FEATURES,
    GAMMA,
    GAMMA2,
    GATE,
    GATE_SPREAD,
    MIX,
    RHO,
    SIGMA,
)
from sparsity.kernels.row_map import Drawn, RowMap


def _log_left(scores: Any) -> Any:
    """Log of 1 − σ(s): what a key leaves."""
    return -scores.__array_namespace__().logaddexp(scores, scores * 0)


def _break_sticks(scores: Any) -> Any:
    """σ(s_j) Π_{i>j}(1 − σ(s_i)).

    Args:
        scores: rows along the last axis, the token of the query last.

    Returns:
        The weights, in the same shape; Π(1 − σ(s_i)) of every row goes to no key.
    """
    xp = scores.__array_namespace__()
    log_left = _log_left(scores)
    after = xp.flip(xp.cumsum(xp.flip(log_left, -1), axis=-1), -1) - log_left
    return xp.exp(after + _log_left(-scores))


def _share_left(scores: Any) -> Any:
    """Π(1 − σ(s_i)), the share that no key takes: 1 − Σ of the weights."""
    return scores.__array_namespace__().exp(_log_left(scores).sum(-1))


stick_breaking = RowMap(
    name="stick-breaking",
    title="stick-breaking",
    weights=_break_sticks,
    formula="σ(s_j) Π_{i>j}(1 − σ(s_i))",
    source="Tan et al. (2024), arXiv 2410.17980",
    parameters=(BETA, GAMMA),
    residual_mass=_share_left,
)


class GatedScores(NamedTuple):
    """A score and the logarithm of a gate for every token, the token of the query last."""

    score: Any
    log_gate: Any


def _log_forgotten(of: GatedScores) -> Any:
    """s_j + Σ_{i>j} ln g_i."""
    xp = of.score.__array_namespace__()
    back = xp.flip(xp.cumsum(xp.flip(of.log_gate, -1), axis=-1), -1)
    return of.score + back - of.log_gate


def _forget(of: GatedScores) -> Any:
    """e^(s_j) Π_{i>j} g_i over their sum; rows along the last axis."""
    return _softmax(_log_forgotten(of))


def _forget_unnormalised(of: GatedScores) -> Any:
    """e^(s_j) Π_{i>j} g_i."""
    return of.score.__array_namespace__().exp(_log_forgotten(of))


def _read_gated(
    normals: Any, shared: Any, *, gamma: Any, gate: Any, gate_spread: Any
) -> GatedScores:
    """Scores N(0, γ²) and independent gates σ(b + cε)."""
    xp = normals.__array_namespace__()
    opened = gate + gate_spread * normals[..., 1]
    return GatedScores(gamma * normals[..., 0], -xp.logaddexp(-opened, opened * 0))


forgetting = RowMap(
    name="forgetting",
    title="forgetting attention",
    weights=_forget,
    formula="e^s_j Π_{i>j} g_i/Σ, g = σ(b + cε)",
    source="Lin et al. (2025), arXiv 2503.02130",
    parameters=(GAMMA, GATE, GATE_SPREAD),
    drawn=Drawn("rows of scores N(0, γ²) and gates g = σ(b + cε)", lambda params: 2, _read_gated),
    unnormalised=_forget_unnormalised,
    identically_distributed=False,
)


class PairedScores(NamedTuple):
    """Two scores of every token, rows along the last axis; their spreads, and λ."""

    first: Any
    second: Any
    gamma: Any
    gamma2: Any
    mix: Any


def _softmax(scores: Any) -> Any:
    a = scores.__array_namespace__().exp(scores - scores.max(-1, keepdims=True))
    return a / a.sum(-1, keepdims=True)


def _subtract(of: PairedScores) -> Any:
    """softmax(s⁽¹⁾) − λ softmax(s⁽²⁾)."""
    return _softmax(of.first) - of.mix * _softmax(of.second)


def _subtract_unnormalised(of: PairedScores) -> Any:
    """Weights of long rows times n, whose totals are at their means: e^(s − γ²/2) for each map."""
    exp = of.first.__array_namespace__().exp
    second = exp(of.second - of.gamma2 * of.gamma2 / 2)
    return exp(of.first - of.gamma * of.gamma / 2) - of.mix * second


def _read_pairs(
    normals: Any, shared: Any, *, gamma: Any, gamma2: Any, rho: Any, mix: Any
) -> PairedScores:
    """Scores N(0, γ₁²) and N(0, γ₂²) with correlation ρ, from two normals each."""
    z, other = normals[..., 0], normals[..., 1]
    turned = rho * z + ((1 - rho) * (1 + rho)) ** 0.5 * other
    return PairedScores(gamma * z, gamma2 * turned, gamma, gamma2, mix)


differential = RowMap(
    name="differential",
    title="differential attention",
    weights=_subtract,
    formula="softmax(s⁽¹⁾)_j − λ softmax(s⁽²⁾)_j",
    source="Ye et al. (2024), arXiv 2410.05258",
    parameters=(GAMMA, GAMMA2, RHO, MIX),
    drawn=Drawn(
        "rows of pairs of scores N(0, γ₁²), N(0, γ₂²) with correlation ρ",
        lambda params: 2,
        _read_pairs,
    ),
    unnormalised=_subtract_unnormalised,
)


class FeaturedKeys(NamedTuple):
    """A row in R^d.

    Args:
        query: [d].
        keys: [rows, n, d].
        omega: the directions of the features, [rows, m, d].
    """

    query: Any
    keys: Any
    omega: Any


def _estimate(of: FeaturedKeys) -> Any:
    """(1/m) Σ_i exp(ω_i·q − |q|²/2) exp(ω_i·k_j − |k_j|²/2)."""
    xp = of.keys.__array_namespace__()
    with_query = of.omega @ of.query - (of.query * of.query).sum() / 2
    with_keys = of.keys @ xp.matrix_transpose(of.omega)
    lost = (of.keys * of.keys).sum(-1)[..., None] / 2
    return xp.exp(with_keys - lost + with_query[..., None, :]).mean(-1)


def _normalise(of: FeaturedKeys) -> Any:
    """The estimates over their sum."""
    a = _estimate(of)
    return a / a.sum(-1, keepdims=True)


def _read_keys(
    normals: Any, shared: Any, *, gamma: Any, sigma: Any, features: Any, dim: Any
) -> FeaturedKeys:
    """Keys N(0, σ²I), a query with σ‖q‖ = γ, and m directions N(0, I) that the row shares."""
    d = normals.shape[-1]
    query = (normals.__array_namespace__().arange(d) == 0) * (gamma / sigma)
    return FeaturedKeys(query, sigma * normals, shared.reshape(*shared.shape[:-1], -1, d))


performer = RowMap(
    name="performer",
    title="Performer (FAVOR+)",
    weights=_normalise,
    formula="Σ_i exp(ω_i·(q + k_j) − (|q|² + |k_j|²)/2)/(mΣ)",
    source="Choromanski et al. (2020), arXiv 2009.14794",
    parameters=(GAMMA, SIGMA, FEATURES, DIM),
    drawn=Drawn(
        "rows of keys N(0, σ²I) in R^d and m features, ω_i ~ N(0, I)",
        lambda params: int(params["dim"]),
        _read_keys,
        lambda params: int(params["dim"]) * int(params["features"]),
    ),
    unnormalised=_estimate,
)
