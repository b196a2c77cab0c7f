"""Queries and mean keys with given β and γ, for whole keys to be drawn."""

from __future__ import annotations

import numpy as np

from sparsity.errors import InputError

LONGEST = 10**8  # tokens of a row, and entries of a key, that can be sampled whole
_WIDEST = 1e100  # whose square float64 holds


def keys_at(
    beta: float, gamma: float, dim: int, seed: int, queries: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Orthogonal queries q, [queries, d], and a key mean μ, [d], with q·μ = β and ‖q‖ = γ for each.

    Directions are random; where queries < d, μ also has a part across them, which S must not feel.
    """
    if dim > LONGEST:
        raise InputError("dim", dim, f"must be <= {LONGEST:.0e} to be sampled whole")
    for name, size in (("beta", abs(beta)), ("gamma", gamma), ("beta/gamma", abs(beta / gamma))):
        if not size <= _WIDEST:
            raise InputError(name, size, f"must be <= {_WIDEST:.0e} for whole keys to be drawn")
    rng = np.random.default_rng([seed, dim])
    q = np.linalg.qr(rng.standard_normal((dim, queries)))[0].T
    mu = rng.standard_normal(dim)
    mu += q.T @ (beta / gamma - q @ mu)
    return q * gamma, mu
