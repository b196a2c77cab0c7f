"""S of a row foretold from what other texts say: profile, key bias, and Gaussian content.

The content's spread is the row's own γ̂, or depends on distance as in the other texts; its logits
are independent, or correlated from key to key as in the other texts. The means are regressed on
other texts' rows, since what is estimated of a mean is too wide by its error.
"""

from __future__ import annotations

import numpy as np

from sparsity.attention.measurement.heads import (
    ScoreParts,
    row_gamma,
    row_sparsity,
    sum_of_others,
)

WAYS = {
    "own": "one γ̂, the row's own",
    "distance": "γ by distance, scaled to the row's own γ̂",
    "foretold": "γ by distance, nothing of the row's own",
    "own, correlated": "one γ̂, the row's own; correlated along the row",
    "distance, correlated": "γ by distance, scaled; correlated along the row",
    "foretold, correlated": "γ by distance, nothing of the row's own; correlated",
}
_NEAR, _GROWTH = 16, 1.25  # distances one by one up to there, then in bins


def regressed(parts: ScoreParts) -> np.ndarray:
    """The means w₁·profile + w₂·bias of every row, w by least squares on the other texts."""
    x = np.stack([parts.profile, parts.bias])
    products = np.einsum("atrk,btrk->tab", x, x)
    target = np.einsum("atrk,trk->ta", x, parts.scores)
    w = np.linalg.solve(sum_of_others(products), sum_of_others(target)[..., None])[..., 0]
    return np.einsum("ta,atrk->trk", w, x)


def _bins(length: int) -> np.ndarray:
    """The bin of each distance."""
    more = np.arange(1, np.log(length / _NEAR) / np.log(_GROWTH) + 1)
    edges = np.concatenate([np.arange(_NEAR + 1), np.round(_NEAR * _GROWTH**more)])
    return np.searchsorted(np.unique(edges), np.arange(length), side="right") - 1


def by_distance(content: np.ndarray, parts: ScoreParts) -> np.ndarray:
    """Root mean square of the content at each row's distances, from the other texts."""
    at = _bins(content.shape[-1])[np.maximum(parts.distance, 0)]
    seen, size = parts.seen, at.max() + 1
    square = np.stack([np.bincount(at[seen], one[seen] ** 2, size) for one in content])
    count = (len(content) - 1) * np.bincount(at[seen], minlength=size)
    gamma = np.sqrt(sum_of_others(square) / np.maximum(count, 1))
    return np.where(seen, gamma[:, at], 0)


def _coloured(content: np.ndarray, gamma: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Noise [draws, rows, 2·keys] with the correlations along the row of each of the other texts.

    The power spectrum is that of rows padded with zeros, so that the correlations are those of a
    stationary process.
    """
    length = content.shape[-1]
    unit = np.divide(content, gamma, out=np.zeros_like(gamma), where=gamma > 0)
    power = sum_of_others((np.abs(np.fft.rfft(unit, 2 * length)) ** 2).sum(1))
    power /= np.fft.irfft(power)[:, :1]
    wave = np.fft.rfft(noise)
    return np.stack([np.fft.irfft(wave * np.sqrt(p))[..., :length] for p in power])


def predict(parts: ScoreParts, seed: int = 0, draws: int = 24) -> dict[str, np.ndarray]:
    """What each of `WAYS` says of rows.

    Args:
        parts: of a head.
        seed: of the draws.
        draws: rows drawn for each row.

    Returns:
        [2, texts, rows] by way: S_rms = √(E n_eff/n), and the median of S.
    """
    texts, rows, length = parts.scores.shape
    rng, seen = np.random.default_rng(seed), parts.seen
    noise = rng.standard_normal((draws, rows, 2 * length), np.float32)
    mean = regressed(parts)
    content = np.where(seen, parts.scores - mean, 0)
    own = np.where(seen, row_gamma(content, seen)[..., None], 0)
    foretold = by_distance(content, parts)
    square = (foretold**2).sum(-1, keepdims=True) / seen.sum(-1)[:, None]
    gammas = {"own": own, "distance": foretold * own.max(-1, keepdims=True) / np.sqrt(square)}
    gammas |= {"foretold": foretold}
    found = {}
    for name, gamma in gammas.items():
        plain = np.broadcast_to(noise[..., :length], (texts, *noise[..., :length].shape))
        for tag, z in (("", plain), (", correlated", _coloured(content, gamma, noise))):
            S = np.stack(
                [row_sparsity(mean[t] + gamma[t] * z[t], seen) for t in range(texts)], axis=1
            )
            found[name + tag] = np.stack([np.sqrt((S**2).mean(0)), np.median(S, 0)])
    return found
