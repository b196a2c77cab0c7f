"""How Gaussian the logits of a row are."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from sparsity.attention.measurement import rows

STILL = 64  # times the rounding of a logit: what varies less has no shape
_PHI = special.ndtr(np.linspace(-8, 8, 2**16 + 1)).astype(np.float32)  # steps of 1/4096


def _distance(xp: Any, x: Any, middle: Any, gamma: Any, n: Any) -> Any:
    """sup|F − Φ(x/γ)|, to 5e-5: Φ comes from a table, in a tenth of the time.

    Args:
        xp: namespace of the arrays.
        x: where F has a step of 1/n, [..., rows, steps].
        middle: n·F in the middle of the step.
        gamma: γ, [..., rows].
        n: the keys, [..., rows].
    """
    scale = xp.where(gamma > 0, xp.minimum(4096 / gamma, 1e30), 0.0)[..., None]
    at = xp.clip(x * scale, -(2.0**15), 2.0**15) + (2**15 + 0.5)
    gap = xp.abs(xp.asarray(_PHI)[at.astype(np.int32)] - middle / n[..., None])
    return xp.where(gamma > 0, gap.max(-1, initial=0.0) + 0.5 / n, xp.nan)


def shape(logits: rows.Parts) -> dict[str, Any]:
    """The shape of rows of logits, with the sink and without it.

    Skewness, excess kurtosis, and the Kolmogorov–Smirnov distance sup|F − Φ((s − β̂)/γ̂)| of their
    distribution F from the Gaussian, with mean β̂ and standard deviation γ̂ of n − 1 degrees of
    freedom.

    Returns:
        These by name [..., rows], "_rest" without the sink; NaN for rows too short to have it, and
        for shapes of rows that are constant up to rounding, γ̂ ≤ `STILL`·ε·(1 + |β̂|).
    """
    xp = logits.rest.__array_namespace__()
    seen = xp.broadcast_to(logits.seen, logits.sink.shape)
    visible, dtype = logits.visible, logits.rest.dtype
    n_rest = xp.sum(visible, axis=-1).astype(dtype)
    n_rest = xp.broadcast_to(n_rest, logits.sink.shape)
    n = n_rest + seen
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        mean = xp.where(visible, logits.rest, 0.0).sum(-1) / xp.maximum(n_rest, 1.0)
        away = xp.where(visible, logits.rest - mean[..., None], 0.0)
        square = away * away
        m2, m3, m4 = square.sum(-1), (square * away).sum(-1), (square * square).sum(-1)
        # The sink joins: the centred sums of n − 1 numbers and one at distance δ from their mean.
        delta, w = logits.sink - mean, n_rest
        d, m2_all, gamma_rest, gamma = rows.spread(mean, m2, n_rest, delta, seen)
        m3_all = m3 - 3 * d * m2 + d**3 * w * n * (n - 2)
        m4_all = m4 - 4 * d * m3 + 6 * d * d * m2 + d**4 * w * n * (n * n - 3 * n + 3)
        # Sorted, the keys in sight come last; the others must not have the largest distance.
        rising = xp.sort(xp.where(visible, away, -1e30), axis=-1)
        width = rising.shape[-1]
        middle = xp.arange(width, dtype=dtype) + (n_rest - width + 0.5)[..., None]
        middle = xp.clip(middle, 0.0, None)  # of the step of F at each key, in keys
        distance_rest = _distance(xp, rising, middle, gamma_rest, n_rest)
        above = rising >= xp.where(seen, delta, xp.inf)[..., None]
        distance = _distance(xp, rising - d[..., None], middle + above, gamma, n)
        middle = (n_rest - above.sum(-1) + 0.5)[..., None]
        at_sink = _distance(xp, (delta - d)[..., None], middle, gamma, n)
        found = {
            "skew": m3_all / n / (m2_all / n) ** 1.5,
            "kurtosis": m4_all / n / (m2_all / n) ** 2 - 3,
            "distance": xp.where(seen, xp.maximum(distance, at_sink), distance),
            "skew_rest": m3 / n_rest / (m2 / n_rest) ** 1.5,
            "kurtosis_rest": m4 / n_rest / (m2 / n_rest) ** 2 - 3,
            "distance_rest": distance_rest,
        }
    still = STILL * float(np.finfo(dtype).eps) * (1 + xp.abs(mean))
    varies = {"": gamma > still, "_rest": gamma_rest > still}
    for name, x in found.items():
        found[name] = xp.where(varies["_rest" if "_rest" in name else ""] & (n > 1), x, xp.nan)
    return found
