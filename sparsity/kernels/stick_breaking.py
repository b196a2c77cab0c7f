"""Stick-breaking attention: from the query back, each key takes a share of what is left."""

from __future__ import annotations

from typing import Any

from sparsity.kernels.parameters import BETA, GAMMA
from sparsity.kernels.row_map import RowMap


def _log_left(scores: Any) -> Any:
    """Log of 1 − σ(s): what a key leaves."""
    return -scores.__array_namespace__().logaddexp(scores, scores * 0)


def weights(scores: Any) -> Any:
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


def left(scores: Any) -> Any:
    """Π(1 − σ(s_i)), the share that no key takes: 1 − Σ of the weights."""
    return scores.__array_namespace__().exp(_log_left(scores).sum(-1))


stick_breaking = RowMap(
    name="stick-breaking",
    title="stick-breaking",
    weights=weights,
    formula="σ(s_j) Π_{i>j}(1 − σ(s_i))",
    source="Tan et al. (2024), arXiv 2410.17980",
    parameters=(BETA, GAMMA),
    residual_mass=left,
)
