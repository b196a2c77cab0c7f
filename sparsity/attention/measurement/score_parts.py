"""The scores of one head as sums of parts: s_ij = (row) + β_(i−j) + κ_j + ε_ij.

β, the distance profile, comes from *other* texts; κ, the key bias, from queries at least `gap`
positions after the query, so that neither has seen the row it is taken from. ε, the content, is
what is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_SWEEPS = 2  # of profile given key bias, and key bias given profile


@dataclass(frozen=True)
class Split:
    """Some rows of one head, [texts, rows, keys]; each part has mean zero over the keys seen.

    Args:
        scores: the logits.
        profile: β_(i−j) of the other texts.
        bias: κ_j of later queries.
        seen: which keys a row sees, without the first, [rows, keys]; elsewhere all are 0.
        distance: i − j, [rows, keys].
    """

    scores: np.ndarray
    profile: np.ndarray
    bias: np.ndarray
    seen: np.ndarray
    distance: np.ndarray

    @property
    def content(self) -> np.ndarray:
        """ε, what is left."""
        return self.scores - self.profile - self.bias


def centred(x: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Rows less their mean over what they see; 0 elsewhere."""
    x = np.where(seen, x, 0)
    mean = x.sum(-1, keepdims=True) / np.maximum(seen.sum(-1, keepdims=True), 1).astype(x.dtype)
    return np.where(seen, x - mean, 0)


def by_distance(x: np.ndarray) -> np.ndarray:
    """Sums over i of x[…, i, i − d], at d = 0 … T − 1.

    Args:
        x: [texts, T, T], 0 where j > i.
    """
    texts, length, _ = x.shape
    wide = np.zeros((texts, length, 2 * length), x.dtype)
    wide[..., :length] = x[..., ::-1]
    # Read with rows one shorter, what was a diagonal is a column.
    skew = wide.reshape(texts, -1)[:, : length * (2 * length - 1)]
    return skew.reshape(texts, length, -1).sum(1)[:, length - 1 :]


def at_distance(profile: np.ndarray) -> np.ndarray:
    """The view [texts, i, j] of profile[texts, i − j]; 0 where j > i."""
    length = profile.shape[-1]
    padded = np.pad(profile[:, ::-1], ((0, 0), (0, length - 1)))
    return np.lib.stride_tricks.sliding_window_view(padded, length, axis=-1)[:, ::-1]


def others(x: np.ndarray) -> np.ndarray:
    """For each text the sum over all others."""
    return x.sum(0, keepdims=True) - x


def split(scores: Any, rows: np.ndarray, gap: int = 64) -> Split:
    """Estimate the parts of a head across texts.

    Args:
        scores: logits of causal attention [texts, T, T], two texts or more, row i by column j.
        rows: the positions i that are looked at, T − `gap` at most.
        gap: how much later than i the queries are that κ_j is taken from, and from which row on
            the profile is.
    """
    scores = np.asarray(scores)
    texts, length = scores.shape[:2]
    at = np.arange(length)
    distance = at[:, None] - at
    seen = (distance >= 0) & (at > 0)  # the first key is a sink
    c = centred(scores, seen)
    far = seen & (distance >= gap)
    count = np.maximum(length - np.maximum(gap, at + 1), 0)  # rows from `gap` on with that distance
    bias, sums = np.zeros((texts, 1, length), c.dtype), np.zeros((texts, length), c.dtype)
    for sweep in range(_SWEEPS):  # each text for itself
        if sweep:
            left = np.where(far, c - at_distance(sums / np.maximum(count, 1).astype(c.dtype)), 0)
            bias = left.sum(1, keepdims=True) / np.maximum(far.sum(0), 1).astype(c.dtype)
        own = np.where(seen, c - bias, 0)
        own[:, :gap] = 0
        sums = by_distance(own)
    mean = others(sums) / np.maximum((texts - 1) * count, 1).astype(c.dtype)
    profile = at_distance(mean)
    left = np.where(seen, c - profile, 0)
    # κ_j of row i: the mean over the queries from i + gap on.
    later = np.stack([left[:, i + gap :].mean(1) for i in rows], axis=1)
    seen = seen[rows]
    return Split(
        scores=c[:, rows],
        profile=centred(profile[:, rows], seen),
        bias=centred(later, seen),
        seen=seen,
        distance=distance[rows],
    )
