"""How far tokens have become alike: rank collapse, representational collapse, effective rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsity.errors import InputError

__all__ = ["Collapse", "collapse", "effective_rank"]


@dataclass(frozen=True)
class Collapse:
    """How alike tokens are; all arrays of the leading shape of the states.

    Args:
        rank: ‖V − (1/n)11ᵀV‖_F, 0 when all tokens are equal: rank collapse.
        last_pair: ‖v_n − v_{n−1}‖₂, 0 when the last two are: representational collapse.
        norm: ‖V‖_F.
        last_norm: √(‖v_n‖² + ‖v_{n−1}‖²).
    """

    rank: np.ndarray
    last_pair: np.ndarray
    norm: np.ndarray
    last_norm: np.ndarray

    @property
    def distance(self) -> np.ndarray:
        """‖v_n − v_{n−1}‖ / √(‖v_n‖² + ‖v_{n−1}‖²): 1 for orthogonal tokens, 0 for equal ones."""
        return self.last_pair / self.last_norm


def _tokens(states: Any) -> np.ndarray:
    v = np.asarray(states, dtype=np.float64)
    if v.ndim < 2 or v.shape[-2] < 2:
        raise InputError("states", f"array of shape {v.shape}", "give [..., tokens >= 2, dim]")
    return v


def collapse(states: Any) -> Collapse:
    """Rank collapse and representational collapse of tokens.

    Args:
        states: V, [..., n, d] with n ≥ 2.

    Returns:
        The measures, float64, of shape [...].

    Raises:
        InputError: fewer than two tokens.

    Source: Barbero et al. (2025), arXiv 2504.02732, section 3.
    """
    v = _tokens(states)
    return Collapse(
        rank=np.linalg.norm(v - v.mean(-2, keepdims=True), axis=(-2, -1)),
        last_pair=np.linalg.norm(v[..., -1, :] - v[..., -2, :], axis=-1),
        norm=np.linalg.norm(v, axis=(-2, -1)),
        last_norm=np.linalg.norm(v[..., -2:, :], axis=(-2, -1)),
    )


def effective_rank(states: Any) -> np.ndarray:
    """Effective rank of tokens: exp of the entropy of σ/Σσ, σ the singular values of V.

    Args:
        states: V, [..., n, d] with n ≥ 2, not all zero.

    Returns:
        Values in [1, min(n, d)], of shape [...].

    Raises:
        InputError: fewer than two tokens.

    Source: Roy & Vetterli (2007), "The effective rank: a measure of effective dimensionality".
    """
    sizes = np.linalg.svd(_tokens(states), compute_uv=False)
    p = sizes / sizes.sum(-1, keepdims=True)
    return np.exp(-np.sum(p * np.log(np.where(p > 0, p, 1.0)), axis=-1))
