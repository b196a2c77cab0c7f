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


def _step(steepness: float, step: float) -> float:
    return step * min(_FINEST / STEP, 1 / steepness)


def normal(steepness: float, far: float, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Points of a standard normal and their weights.

    Args:
        steepness: c ≥ 0.
        far: the last point.
        step: of u.
    """
    if steepness == 0:
        return np.zeros(1), np.ones(1)
    h = _step(steepness, step)
    z = h * np.arange(-math.ceil(far / h), math.ceil(far / h) + 1)
    return z, h * np.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def _behind(spreads: tuple[float, float], rho: float) -> tuple[float, float, float]:
    """Spreads of what is behind both of two scores, and of the second's own; the last point."""
    g1, g2 = spreads
    own = g2 * math.sqrt((1 - rho) * (1 + rho))
    return max(g1, abs(rho) * g2), own, FAR + g1 + g2


def count_pairs(spreads: tuple[float, float], rho: float, step: float) -> tuple[float, float]:
    """How many points `pairs` has, of the first and of the second's own."""
    *both, far = _behind(spreads, rho)
    first, second = (1 + 2 * far / _step(c, step) if c else 1.0 for c in both)
    return first, second


def pairs(
    spreads: tuple[float, float], rho: float, step: float
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Points and weights of a normal behind both of two scores, and of what is the second's own.

    Returns:
        The spread of the second score given the first; points and weights of the first; of the
        second.
    """
    first, own, far = _behind(spreads, rho)
    return own, *normal(first, far, step), *normal(own, far, step)


def widest(spreads: tuple[float, float]) -> tuple[str, float]:
    """The parameter of the wider of two spreads, and its value."""
    return max(zip(("gamma", "gamma2"), spreads, strict=True), key=lambda each: each[1])


def times(spread: float, most: float, step: float, depth: float = DEPTH) -> np.ndarray:
    """Points of u = ln t for Σ e^(spread·z) of up to `most` tokens."""
    low = -depth - math.log(most) - min(spread**2 / 2, FAR * spread)
    return np.arange(low, 4.0 + FAR * spread, step)
