"""Laws of the tiles of a row that lie below a threshold, given the largest score of the row.

A score is β + γz, and z of n normals is below m, the largest. Keys of a tile are alike by `within`:
z = √within·g + √(1 − within)·ε, with one g a tile.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import log_ndtr, logsumexp

_G = np.linspace(-8.0, 8.0, 81)  # the trapezoidal rule over g
_LOG_G = -0.5 * _G**2 - np.log(np.sum(np.exp(-0.5 * _G**2)))
_Z = np.linspace(-12.0, 12.0, 801)  # where logs of chances are tabulated; beyond they are 0 and 1


def log_chance(within: float, size: int) -> np.ndarray:
    """Return the log of the chance that a whole tile is below z, at the places of a table."""
    own = (_Z[:, None] - np.sqrt(within) * _G) / np.sqrt(1 - within)
    return np.asarray(logsumexp(size * log_ndtr(own) + _LOG_G, axis=-1))


def share(table: np.ndarray, tiles: int, m: Any, step: Any) -> np.ndarray:
    """Return the share of the tiles that lie below m + step, as all below m.

    Args:
        table: of `log_chance`.
        tiles: of the row.
        m: the largest, standardised.
        step: ln λ over γ.
    """
    under, all_under = (np.interp(z, _Z, table) for z in (m + step, m))
    return np.asarray((1 - 1 / tiles) * np.exp(under - all_under))


def mass(within: Any, size: int, tiles: int, m: Any, gamma: Any, steps: Any) -> np.ndarray:
    """Return the weight of the tiles below m + each step: expected weight over expected sum.

    Args:
        within: correlation of two keys of a tile.
        size: keys of a tile.
        tiles: of the row.
        m: the largest, standardised.
        gamma: spread of the scores.
        steps: ln λ over γ, [steps, ...].
    """
    within, m, gamma = (np.asarray(x, float)[..., None] for x in (within, m, gamma))
    alike, own = np.sqrt(within) * _G, np.sqrt(1 - within)

    def logs(z: Any) -> tuple[Any, Any]:
        """Return logs of P(a key is below z), and of its mean weight there, given g."""
        u = (z - alike) / own
        return log_ndtr(u), gamma * alike + (gamma * own) ** 2 / 2 + log_ndtr(u - gamma * own)

    def mean(log: Any) -> Any:
        return logsumexp(log + _LOG_G, axis=-1)

    below, weight = logs(m)
    at = -0.5 * ((m - alike) / own) ** 2
    all_below = mean(size * below)
    a_tile = np.log(size) + mean(weight + (size - 1) * below) - all_below
    beside = mean(at + weight + (size - 2) * below) - mean(at + (size - 1) * below)
    largest = gamma[..., 0] * m[..., 0]
    others = [a_tile + np.log(tiles - 1), beside + np.log(size - 1), largest]
    total = logsumexp(np.stack(np.broadcast_arrays(*others)), axis=0)
    lost = []
    for step in np.asarray(steps, float):
        under, light = logs(m + step[..., None])
        of_tile = np.log(size) + mean(light + (size - 1) * under) - all_below
        lost.append(np.exp(of_tile + np.log(tiles - 1) - total))
    return np.stack(lost)
