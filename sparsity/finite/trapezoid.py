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


def pairs(
    spreads: tuple[float, float], rho: float, step: float
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Points and weights of a normal behind both of two scores, and of what is the second's own.

    Returns:
        The spread of the second score given the first; points and weights of the first; of the
        second.
    """
    g1, g2 = spreads
    own, far = g2 * math.sqrt((1 - rho) * (1 + rho)), FAR + g1 + g2
    return own, *normal(max(g1, abs(rho) * g2), far, step), *normal(own, far, step)


def times(spread: float, most: float, step: float, depth: float = DEPTH) -> np.ndarray:
    """Points of u = ln t for Σ e^(spread·z) of up to `most` tokens."""
    low = -depth - math.log(most) - min(spread**2 / 2, FAR * spread)
    return np.arange(low, 4.0 + FAR * spread, step)
