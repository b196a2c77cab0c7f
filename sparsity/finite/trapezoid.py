"""The trapezoidal rule over u = ln t and over the normals behind what stands beside u.

E^(−e^(u + cz)) is analytic in u and z: the rule converges exponentially in the inverse of its step.
Rules of twice the step give the bound.
"""

from __future__ import annotations

import math

import numpy as np

STEP = 0.2  # of u, and of c·z
DEPTH = 36.0  # e-folds down to which anything counts
FAR = 9.0  # standard deviations that no normal has, but for the tilt of a weight
_FINEST = 0.4  # step of a normal where c is small


def normal(steepness: float, far: float, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Points of a standard normal and their weights.

    Args:
        steepness: c ≥ 0.
        far: the last point.
        step: of u.
    """
    if steepness == 0:
        return np.zeros(1), np.ones(1)
    h = step * min(_FINEST / STEP, 1 / steepness)
    z = h * np.arange(-math.ceil(far / h), math.ceil(far / h) + 1)
    return z, h * np.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def times(spread: float, most: float, step: float, depth: float = DEPTH) -> np.ndarray:
    """Points of u = ln t for Σ e^(spread·z) of up to `most` tokens."""
    low = -depth - math.log(most) - min(spread**2 / 2, FAR * spread)
    return np.arange(low, 4.0 + FAR * spread, step)
