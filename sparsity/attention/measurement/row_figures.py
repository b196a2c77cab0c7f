"""What is asked of rows of logits to find out why they are sparser than Gaussian ones.

All rows lie along the last axis, have mean zero over the keys they see, and 0 elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsity import metric
from sparsity.attention.measurement.score_parts import centred

LAST = 4  # keys, the nearest, that are left out
TAIL = 0.05  # share of the keys that is the upper tail

MEANING = {
    "gamma_rest": "standard deviation γ̂ of the logits without the sink key",
    "S_rest": "S of the row without the sink key",
    "top_logit_rest": "largest logit without the sink key, less the mean of these",
    "nearest": "distance of the key of the largest logit",
    "lag": "correlation of logits one key apart",
    "gamma_far": f"γ̂ without the {LAST} nearest keys",
    "S_far": f"S without the {LAST} nearest keys",
    "gamma_mid": f"γ̂ without {LAST} keys in the middle of the row",
    "S_mid": f"S without {LAST} keys in the middle of the row",
    "gamma_tail": "γ̂ of a Gaussian row with the upper tail of this one",
    "S_tail": "S of a Gaussian row with the upper tail of this one",
    "gamma_body": "γ̂ of the row with the upper tail of a Gaussian one",
    "S_body": "S of the row with the upper tail of a Gaussian one",
}


def gamma_of(c: np.ndarray, seen: Any) -> np.ndarray:
    """γ̂, of n − 1 degrees of freedom."""
    return np.sqrt((c * c).sum(-1) / (seen.sum(-1) - 1).astype(c.dtype))


def sparsity(c: np.ndarray, seen: Any) -> np.ndarray:
    """S of softmax weights."""
    top = np.where(seen, c, -np.inf).max(-1, keepdims=True)
    with np.errstate(under="ignore"):
        a = np.where(seen, np.exp(np.where(seen, c - top, 0)), c.dtype.type(0))
        n_eff = metric.effective(a.sum(-1), (a * a).sum(-1))
        return np.sqrt(n_eff / seen.sum(-1).astype(c.dtype))


def both(name: str, c: np.ndarray, seen: Any) -> dict[str, np.ndarray]:
    """γ̂ and S of what is left of the rows."""
    c = centred(c, seen)
    return {f"gamma_{name}": gamma_of(c, seen), f"S_{name}": sparsity(c, seen)}


def _swapped(c: np.ndarray, seen: Any, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The upper tails of the row and of a Gaussian one of its γ̂ exchanged."""
    n = seen.sum(-1, keepdims=True)
    inside = np.broadcast_to(np.arange(c.shape[-1]) < n, c.shape)
    normal = rng.standard_normal(c.shape, np.float32) * gamma_of(c, seen)[..., None]
    own, other = (
        -np.sort(-np.where(shown, x, -np.inf), axis=-1)
        for x, shown in ((c, seen), (normal, inside))
    )
    tail = np.arange(c.shape[-1]) < np.ceil(TAIL * n)
    found = both("tail", np.where(tail, own, other), inside)
    return found | both("body", np.where(tail, other, own), inside)


def figures(
    c: np.ndarray, seen: np.ndarray, distance: np.ndarray, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """The figures of `MEANING`, each [..., rows].

    Args:
        c: logits [..., rows, keys].
        seen: which keys the rows see, [rows, keys].
        distance: of key and query, [rows, keys].
        rng: draws the Gaussian rows.
    """
    best = np.where(seen, c, -np.inf).argmax(-1)
    at = np.broadcast_to(distance, c.shape)
    n = seen.sum(-1, keepdims=True)
    rank = np.cumsum(seen, -1) - (n // 2)
    mid = seen & ~((rank > 0) & (rank <= LAST))
    gamma = gamma_of(c, seen)
    pairs = (c[..., 1:] * c[..., :-1]).sum(-1)
    found = {
        "gamma_rest": gamma,
        "S_rest": sparsity(c, seen),
        "top_logit_rest": np.where(seen, c, -np.inf).max(-1),
        "nearest": np.take_along_axis(at, best[..., None], -1)[..., 0],
        "lag": pairs / np.maximum((c * c).sum(-1), np.finfo(c.dtype).tiny),
    }
    found |= both("far", c, seen & (distance >= LAST)) | both("mid", c, mid)
    return found | _swapped(c, seen, rng)
