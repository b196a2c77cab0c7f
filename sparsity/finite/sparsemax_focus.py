"""How many keys sparsemax attends to: n_eff = E[1/Y₂] and E S_n = E[1/√(nY₂)], exactly.

As `sparsemax`, with 1/Y^p = ∫₀^∞ v^(p−1) e^(−vY) dv/Γ(p): of e^(−vΣx²) the product over keys needs
E[e^(−zx−vx²); ε > t] only, which is the Mills ratio at another place. So it is one integral more,
over v, by a rule that falls doubly exponentially towards 0; the contour and the thresholds are
those of `sparsemax`, at wider steps. The bound holds twice the step in v, and the differences from
the finer rule of `sparsemax` at every fifth v.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import gamma as gamma_function
from scipy.special import roots_genlaguerre

from sparsity.finite import sparsemax
from sparsity.finite.mills import damped

_STEP = 0.25  # of w, v = e^(w − e^(−w))
_LOWEST = -4.25  # of it
_MORE = 60.0  # keys beyond twice their mean number that no row has
_CHECKED = 5
_ALONG = 0.08  # of the contour's parameter
_SHORT = 40  # points of the rule where every key has a weight
_ROUNDING = 4e-12


def _mean(place: sparsemax.Place, n: float, c: float, v: float, every: int, step: float) -> float:
    """E e^(−vΣx²), by every so many thresholds and a contour of that step."""
    t, saddle, width = (x[0, ::every, None] for x in place[:3])
    u, along, turn = sparsemax.hyperbola(step)
    z = saddle + width * along
    above, log_all = damped(t, z, v)
    body: Any = above * np.exp(z * c + (n - 1) * log_all + math.log(n)) * turn * width / math.pi
    body = np.where(np.isfinite(body.real), body.real, 0.0)
    return float(body.sum()) * float(t[1, 0] - t[0, 0]) * float(u[1])


def _ruled(power: float, n: float, c: float, most: float) -> tuple[float, float]:
    """E Y₂^(−power) and a bound on its relative error."""
    place = sparsemax.places(np.array([[n]]), c)
    w = np.arange(_LOWEST, math.log(40 * most) + _STEP, _STEP)
    v = np.exp(w - np.exp(-w))
    share = v**power * (1 + np.exp(-w)) / gamma_function(power) * _STEP
    found = np.array([_mean(place, n, c, x / c**2, 2, _ALONG) for x in v]) * share
    part = slice(None, None, _CHECKED)
    finer = [_mean(place, n, c, x / c**2, 1, sparsemax.STEP) for x in v[part]]
    value = float(found.sum())
    gap = abs(1 - 2 * found[::2].sum() / value)
    off = _CHECKED * np.abs(found[part] - finer * share[part]).sum() / value
    return value, float(gap + off) + _ROUNDING + 1e-15 * n


def _all_in(power: float, n: float, gamma: float) -> float:
    """The same where every key has a weight: Y₂ = 1/n + γ²χ² of n − 1 degrees of freedom."""
    x, w = roots_genlaguerre(_SHORT, power - 1)
    rest = (1 + 2 * n * gamma**2 * x) ** (-0.5 * (n - 1))
    return float(n**power * (w * rest).sum() / gamma_function(power))


def law(gamma: float, length: np.ndarray, power: float) -> tuple[np.ndarray, np.ndarray]:
    """The mean of Y₂^(−power) over rows of sparsemax, and a bound on its relative error.

    Args:
        gamma: spread γ > 0 of the scores.
        length: row lengths n ≥ 1, [lengths].
        power: 1 for the effective number of keys, ½ for its root.

    Raises:
        InputError: a spread at which the law is not resolved.
    """
    n, c = np.asarray(length, dtype=np.float64), 1 / gamma
    size = sparsemax.law(gamma, n).value[0]
    value, error = np.ones(n.shape), np.zeros(n.shape)
    for i, m in enumerate(n.tolist()):
        if m > 1 and c >= sparsemax.ALL_IN * m:
            value[i], error[i] = _all_in(power, m, gamma), _ROUNDING
        elif m > 1:
            with np.errstate(all="ignore"):  # far out, where nothing falls
                value[i], error[i] = _ruled(power, m, c, min(m, 2 * float(size[i]) + _MORE))
    return value, sparsemax.resolved(error, gamma)
