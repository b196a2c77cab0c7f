"""Masks of keys for an intervention: sinks, ordinary keys of the same mass, windows.

All are bool [heads, queries, keys], of one layer. No query loses its own key.
"""

from __future__ import annotations

import numpy as np


def from_query(start: int, keys: np.ndarray) -> np.ndarray:
    """Return a mask of keys [heads, T] for all later queries, from `start` on."""
    length = keys.shape[-1]
    later = np.tri(length, k=-1, dtype=bool) & (np.arange(length)[:, None] >= start)
    return keys[:, None, :] & later


def first_key(heads: int, length: int) -> np.ndarray:
    """Return the first key of every head, bool [heads, T]."""
    return np.broadcast_to(np.arange(length) == 0, (heads, length))


def one_ordinary_key(sinks: np.ndarray, start: int, rng: np.random.Generator) -> np.ndarray:
    """Return a random key of each head before `start` that is not a sink, nor the first one."""
    drawn = np.where(sinks, -1.0, rng.random(sinks.shape))
    drawn[:, 0] = -1
    drawn[:, start:] = -1
    return np.arange(sinks.shape[1]) == drawn.argmax(1)[:, None]


def equal_masses(
    weights: np.ndarray, sinks: np.ndarray, start: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return a mask of the first key, and one of ordinary keys that have its mass.

    Both are of those rows where ordinary keys (no sinks, not the query's own) have as much mass as
    the first key. They are taken in a random order, each one that leaves their sum no larger.

    Args:
        weights: of the attention without a mask, [heads, T, T].
        sinks: which keys are sinks, [heads, T].
        start: the first query.
        rng: for the order, one for each head.
    """
    heads, length, _ = weights.shape
    no_sink = ~sinks & ~first_key(heads, length)
    ordinary = np.where(from_query(start, no_sink), weights, 0)
    wanted = weights[:, :, 0]
    rows = from_query(start, first_key(heads, length))[:, :, 0] & (ordinary.sum(-1) >= wanted)
    taken, total = np.zeros(weights.shape, bool), np.zeros((heads, length))
    for keys in rng.permuted(np.tile(np.arange(length), (heads, 1)), axis=1).T:
        own = ordinary[np.arange(heads), :, keys]
        fits = rows & (own > 0) & (total + own <= wanted)
        taken[np.arange(heads), :, keys] = fits
        total += np.where(fits, own, 0)
    return rows[:, :, None] & first_key(heads, length)[:, None, :], taken


def window(length: int, size: int, kept: slice = slice(0)) -> np.ndarray:
    """Return a mask of all keys but the last `size` of each query, and but those kept."""
    hidden = np.tri(length, k=-size, dtype=bool)
    hidden[:, kept] = False
    return hidden[None]
