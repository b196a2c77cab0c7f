"""How far tokens have become alike: rank collapse, representational collapse, effective rank.

Plain operators only, so the same functions serve NumPy and JAX arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sparsity.checks import check_reals
from sparsity.errors import InputError


class Collapse(NamedTuple):
    """How alike tokens are; all arrays of the leading shape of the states.

    Args:
        rank: ‖V − (1/n)11ᵀV‖_F, 0 when all tokens are equal: rank collapse.
        last_pair: ‖v_n − v_{n−1}‖₂, 0 when the last two are: representational collapse.
        norm: ‖V‖_F.
        last_norm: √(‖v_n‖² + ‖v_{n−1}‖²).
    """

    rank: Any
    last_pair: Any
    norm: Any
    last_norm: Any

    @property
    def distance(self) -> Any:
        """‖v_n − v_{n−1}‖ / √(‖v_n‖² + ‖v_{n−1}‖²), 1 for orthogonal tokens, 0 for equal ones."""
        return self.last_pair / self.last_norm


class Neighbours(NamedTuple):
    """How alike each token and the one before are; arrays [..., n − 1], of tokens 2 … n.

    Args:
        pair: ‖v_t − v_{t−1}‖₂.
        norm: √(‖v_t‖² + ‖v_{t−1}‖²).
    """

    pair: Any
    norm: Any


def _checked(states: Any) -> Any:
    states = check_reals("states", states, "give [..., tokens >= 2, dim]", traced=True)
    shape = np.shape(states)
    if len(shape) < 2 or shape[-2] < 2:
        raise InputError("states", f"array of shape {shape}", "give [..., tokens >= 2, dim]")
    return states.astype(float) if states.dtype.kind in "iu" else states


def collapse(states: Any) -> Collapse:
    """Measure rank collapse and representational collapse of tokens.

    Args:
        states: V, [..., n, d] with n ≥ 2.

    Returns:
        The measures, of shape [...], in the library and precision of `states`.

    Raises:
        InputError: fewer than two tokens.

    Source: Barbero et al. (2025), arXiv 2504.02732, section 3.
    """
    v = _checked(states)
    apart, last, pair = v - v.mean(-2, keepdims=True), v[..., -2:, :], v[..., -1, :] - v[..., -2, :]
    return Collapse(
        rank=(apart**2).sum((-2, -1)) ** 0.5,
        last_pair=(pair**2).sum(-1) ** 0.5,
        norm=(v**2).sum((-2, -1)) ** 0.5,
        last_norm=(last**2).sum((-2, -1)) ** 0.5,
    )


def neighbours(states: Any) -> Neighbours:
    """Measure representational collapse of every prefix: by causality its last tokens are these.

    Args:
        states: V, [..., n, d] with n ≥ 2.

    Returns:
        The measures, of shape [..., n − 1], in the library and precision of `states`.

    Raises:
        InputError: fewer than two tokens.
    """
    v = _checked(states)
    later, earlier = v[..., 1:, :], v[..., :-1, :]
    return Neighbours(
        pair=((later - earlier) ** 2).sum(-1) ** 0.5,
        norm=(later**2 + earlier**2).sum(-1) ** 0.5,
    )
