"""Performer attention: e^(q·k) estimated from m positive random features of queries and keys."""

from __future__ import annotations

from typing import Any, NamedTuple

from sparsity.kernels.parameters import DIM, FEATURES, GAMMA, SIGMA
from sparsity.kernels.row_map import Drawn, RowMap


class Keys(NamedTuple):
    """A row in R^d.

    Args:
        query: [d].
        keys: [rows, n, d].
        omega: the directions of the features, [rows, m, d].
    """

    query: Any
    keys: Any
    omega: Any


def alone(of: Keys) -> Any:
    """(1/m) Σ_i exp(ω_i·q − |q|²/2) exp(ω_i·k_j − |k_j|²/2)."""
    xp = of.keys.__array_namespace__()
    with_query = of.omega @ of.query - (of.query * of.query).sum() / 2
    with_keys = of.keys @ xp.matrix_transpose(of.omega)
    lost = (of.keys * of.keys).sum(-1)[..., None] / 2
    return xp.exp(with_keys - lost + with_query[..., None, :]).mean(-1)


def weights(of: Keys) -> Any:
    """The estimates over their sum."""
    a = alone(of)
    return a / a.sum(-1, keepdims=True)


def read(normals: Any, shared: Any, *, gamma: Any, sigma: Any, features: Any, dim: Any) -> Keys:
    """Keys N(0, σ²I), a query with σ‖q‖ = γ, and m directions N(0, I) that the row shares."""
    d = normals.shape[-1]
    query = (normals.__array_namespace__().arange(d) == 0) * (gamma / sigma)
    return Keys(query, sigma * normals, shared.reshape(*shared.shape[:-1], -1, d))


performer = RowMap(
    name="performer",
    title="Performer (FAVOR+)",
    weights=weights,
    formula="Σ_i exp(ω_i·(q + k_j) − (|q|² + |k_j|²)/2)/(mΣ)",
    source="Choromanski et al. (2020), arXiv 2009.14794",
    parameters=(GAMMA, SIGMA, FEATURES, DIM),
    drawn=Drawn(
        "rows of keys N(0, σ²I) in R^d and m features, ω_i ~ N(0, I)",
        lambda own: int(own["dim"]),
        read,
        lambda own: int(own["dim"]) * int(own["features"]),
    ),
    unnormalised=alone,
)
