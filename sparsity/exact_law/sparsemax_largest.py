"""The largest weight of sparsemax rows: E max p = γ(E max ε − E t), exactly.

The largest weight is the largest score less the threshold, and both have a law: the first one that
of order statistics, the second one that of `sparsemax`, of which E(t − t₀) is a mean like any
other, with t₀ amid the thresholds. Where they cancel, the bound says how much.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtri_exp

from sparsity.exact_law import sparsemax
from sparsity.exact_law.mills import transforms
from sparsity.quantities.base import within

_STEP = 0.02  # of the largest score
_DEPTH = 42.0  # e-folds of its density down to which it counts
_ROUNDING = 3e-14  # of a mean over thresholds, per standard deviation of the scores
_AT_ONCE = 2**17  # numbers held at once


def expected_maximum(n: float, power: int = 1) -> float:
    """E of a power of the largest of n standard normals."""
    low, high = float(ndtri_exp(-_DEPTH / n)), -float(ndtri_exp(-_DEPTH - math.log(n)))
    step = min(_STEP, (high - low) / 400)
    x = np.arange(low, high + step, step)
    log = math.log(n) - 0.5 * x * x + (n - 1) * log_ndtr(x)
    share = np.exp(log) / math.sqrt(2 * math.pi)
    return float((x**power * share).sum() / share.sum())


def _moments(place: sparsemax.Place, n: np.ndarray, c: float, start: np.ndarray) -> np.ndarray:
    """1 and E(t − t₀) by the rule, by twice its step in t, and in u, [3, 2, lengths]."""
    _, along, turn = sparsemax.hyperbola(sparsemax.STEP)
    width = place.width[..., None]
    z = place.saddle[..., None] + width * along
    found = transforms(place.t[..., None], z)
    body: Any = np.exp(z * c + (n[..., None] - 1) * found.log_all + np.log(n)[..., None])
    body = (body * found.above * turn).real * width / math.pi
    body = np.where(np.isfinite(body), body, 0.0)  # far out, where h or e^(zc) is nothing
    of_t = np.stack([body.sum(axis=-1), 2 * body[..., ::2].sum(axis=-1)])
    both = np.stack([of_t, of_t * (place.t - start)], axis=1)
    step = (place.t[:, 1] - place.t[:, 0]) * sparsemax.STEP
    every = both.sum(axis=-1)
    return np.stack([every[0], 2 * both[0, :, :, ::2].sum(axis=-1), every[1]]) * step


def _ruled(n: np.ndarray, c: float) -> tuple[np.ndarray, np.ndarray]:
    """E max p and a bound on its absolute error."""
    n = n[:, None]
    place = sparsemax.places(n, c)
    start = place.t[np.arange(len(n)), place.log_size.argmax(axis=1)][:, None]
    found = np.empty((3, 2, len(n)))
    size = max(1, _AT_ONCE // (place.t.shape[1] * len(sparsemax.hyperbola(sparsemax.STEP)[0])))
    for first in range(0, len(n), size):
        part = slice(first, first + size)
        few = sparsemax.Place(*(x[part] for x in place))
        found[:, :, part] = _moments(few, n[part], c, start[part])
    (total, shift), coarse = found[0], found[1:, 1]
    spread = np.abs(place.t - start).max(axis=1)
    top = np.array([expected_maximum(m) for m in n[:, 0].tolist()])
    off = np.abs(coarse - shift).sum(axis=0) + np.abs(total - 1) * spread
    off += _ROUNDING * (1 + np.abs(start[:, 0]))
    return (top - start[:, 0] - shift) / c, off / c


def law(gamma: float, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean of the largest weight over rows, and a bound on its relative error.

    Args:
        gamma: spread γ > 0 of the scores.
        length: row lengths n ≥ 1, [lengths].

    Raises:
        InputError: a spread at which the law is not resolved.
    """
    n, c = np.asarray(length, dtype=np.float64), 1 / gamma
    value, error = np.ones(n.shape), np.zeros(n.shape)
    whole = (n > 1) & (c >= sparsemax.ALL_IN * n)  # where p = 1/n + s − mean
    value[whole] = [1 / m + gamma * expected_maximum(m) for m in n[whole].tolist()]
    error[whole] = 1e-14
    some = (n > 1) & ~whole
    if some.any():
        with np.errstate(all="ignore"):  # far out, where nothing falls
            value[some], off = _ruled(n[some], c)
        error[some] = off / value[some]
    sparsemax.resolved(error, gamma)
    return within(value, error, (1 / n, np.ones(n.shape))), error
