"""The query and the keys of the figures on positions: RoPE and CoCA of equal |q||k|."""

from __future__ import annotations

import numpy as np

from sparsity.rows.rectified import rectified
from sparsity.rows.rotation import planes
from sparsity.rows.steps import Coca

__all__ = ["collinear_mean", "turned_query"]


def collinear_mean(coca: Coca, turn: np.ndarray) -> np.ndarray:
    """Mean key of a `Rope` with the |q_i||μ_i| of a CoCA law, turned away from q by Θ_i = `turn`.

    Args:
        coca: the law to match.
        turn: Θ_i, [d/2]; zeros give CoCA's own mean score.

    Returns:
        μ, [d].
    """
    mean, _ = rectified(coca.center, coca.spread)
    mu = mean * planes(coca.query, coca.pairing) * np.exp(-1j * turn)
    if coca.pairing == "half":
        return np.concatenate([mu.real, mu.imag])
    return np.stack([mu.real, mu.imag], axis=-1).reshape(-1)


def turned_query(dim: int, seed: int = 0) -> np.ndarray:
    """A query drawn at random, ‖q‖² = d: the one that the figures show."""
    q = np.random.default_rng(seed).standard_normal(dim)
    return q * (dim**0.5 / np.linalg.norm(q))
