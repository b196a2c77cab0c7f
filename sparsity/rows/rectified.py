"""Rectified normal numbers, t = max(τ, 0) with τ ~ N(center, spread²): moments and transform."""

from __future__ import annotations

import numpy as np

from sparsity.special import log_ndtr, ndtr, wofz

_FAR = 30.0  # spreads from zero at which t is normal and e^(−z²/2) nearly no number


def rectified(center: float, spread: float) -> tuple[float, float]:
    """Return the mean and the variance of t."""
    z = center / spread
    density, below = np.exp(-z * z / 2) / np.sqrt(2 * np.pi), ndtr(-z)
    more = density - z * below  # E t = spread·(z + more), without cancellation for large z
    # For z > 0 the variance is written as spread² less what the cut takes: the plain form below
    # would be a difference of numbers of about z².
    if z > 0:
        return center + spread * more, spread**2 * (1 + (z * z - 1) * below - z * density - more**2)
    mean = z * ndtr(z) + density
    return spread * mean, spread**2 * ((z * z + 1) * ndtr(z) + z * density - mean**2)


def log_exp_mean(z: float, x: np.ndarray) -> np.ndarray:
    """Return the logarithm of E e^(xt/spread), z = center/spread, x real or complex.

    E e^(xt/spread) = Φ(−z) + e^(−z²/2) · e^(w²/2) Φ(w), w = z + x.
    """
    if z > _FAR:  # t is cut with a chance of e^(−450): its transform is the normal one
        return x * (z + x / 2)
    w = z + x
    if np.iscomplexobj(w):
        faddeeva = wofz(-1j * w / np.sqrt(2)) / 2  # e^(w²/2) Φ(w)
        return np.log(ndtr(-z) + np.exp(-z * z / 2) * faddeeva)
    return np.logaddexp(log_ndtr(-z), (w * w - z * z) / 2 + log_ndtr(w))
