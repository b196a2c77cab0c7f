"""How many keys entmax attends to, and its largest weight: n_eff, E S_n and E max p, exactly.

As `entmax_order`, on the grid of `entmax_grid`. The powers of Y₂ are those of `sparsemax_focus`,

    1/Y₂^k = ∫₀^∞ v^(k−1) e^(−vY₂) dv/Γ(k),    g_a(v) = E[(x/c)^a e^(−zp−vp²); ε > t],

one integral more over v. In the law of the largest weight all other excesses are cut off at its own
X: with h_X and g_X the integrals up to there,

    E max p = ∫dt (1/2πi)∫dz e^z n ∫dX φ(t + X) p(X) e^(−zp(X)) W(X),
    W = p′ h_X^(n−1) + (n−1) g_X h_X^(n−2),

p′ = (q/c)(X/c)^(q−1) and g_X = E[p′(x) e^(−zp); 0 < x < X]. Cut at a real X the transforms do not
fall to the left of the contour; as nothing in it is singular, X runs along the ray of x, and they
do. The bound holds a coarser rule, and how far P(all rows) is from 1. Where all weights are near
1/n, powers of γ take its place. No published form of these laws was found.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import gamma as gamma_function
from scipy.special import ndtr

from sparsity.errors import RESOLVED, InputError
from sparsity.exact_law import entmax_order
from sparsity.exact_law.entmax_grid import Fineness, Grid, grid
from sparsity.exact_law.mills import log_near_one
from sparsity.exact_law.ranked import panel
from sparsity.exact_law.rays import Power
from sparsity.exact_law.sparsemax_largest import expected_maximum

# Of a law, and of what bounds its error: with e^(−vp²), and without.
_DAMPED = (Fineness(129, 0.045, 14, 0.6, 0.5, 4), Fineness(97, 0.06, 12, 0.6, 0.5, 4))
_CUT = (Fineness(129, 0.05, 14, 1.2, 0.9, 2), Fineness(97, 0.07, 11, 1.2, 0.9, 2))
_STEP = 0.25  # of w, v = e^(w − e^(−w))
_LOWEST = -4.25  # of it
_MORE = 60.0  # keys beyond twice their mean number that no row has
_NOTHING = 1e-13  # of a mean: what the largest v add
_FAINT = 1e-20  # of the probability of all rows
_AT_ONCE = 2**19  # numbers held at once
_GOOD = 1e-10  # an error of powers of γ that is good enough
_ROUNDING = 2e-11


def _whole(on: Grid, v: float) -> Any:
    """The integrand of E e^(−vY₂) over rows, complex, [thresholds, contour]."""
    density = on.density if v == 0 else on.density * np.exp(-v * on.p**2)
    above: Any = density @ on.damped.T
    slope: Any = (density * on.slope) @ on.damped.T
    t = on.t[:, None]
    log_h = log_near_one(ndtr(t) + above, above - ndtr(-t))
    body: Any = slope * np.exp(on.z + (on.n - 1) * log_h + math.log(on.n)) * on.every
    return np.where(np.isfinite(body), body, 0.0)  # far out, where h or e^z is nothing


def _powers(on: Grid, power: float, most: float) -> tuple[float, float, float]:
    """E Y₂^(−power), the same by twice the step in v, and P(all rows)."""
    w = np.arange(_LOWEST, math.log(40 * most) + _STEP, _STEP)
    v = np.exp(w - np.exp(-w))
    share = v**power * (1 + np.exp(-w)) / gamma_function(power) * _STEP
    found = np.zeros(len(w))
    for i in range(len(w)):
        found[i] = share[i] * _whole(on, float(v[i])).real.sum()
        if w[i] > 0 and np.abs(found[i - 3 : i + 1]).max() < _NOTHING * found.sum():
            break
    return float(found.sum()), 2 * float(found[::2].sum()), float(_whole(on, 0.0).real.sum())


def _power(weight: Power, n: float, power: float, most: float) -> tuple[float, float]:
    """E Y₂^(−power), and a bound on its relative error."""
    fine, coarse = (_powers(grid(n, weight, each), power, most) for each in _DAMPED)
    if not fine[0] > 0:  # the contour has met nothing of the integrand
        return 0.0, math.inf
    gaps = (fine[1] / fine[0] - 1, coarse[0] / fine[0] - 1, fine[2] - 1)
    return fine[0], math.fsum(map(abs, gaps))


def _cut(on: Grid) -> tuple[float, float]:
    """P(all rows), which is 1, and E max p."""
    seen = np.argwhere(np.abs(_whole(on, 0.0)) > _FAINT)
    _, share, upto = panel(on.nodes)
    upto = (upto / share).T

    def cumulated(x: Any) -> Any:
        blocks = x.reshape(len(x), -1, on.nodes)
        whole = blocks.sum(axis=-1)
        return (blocks @ upto + (np.cumsum(whole, axis=-1) - whole)[..., None]).reshape(x.shape)

    size, found = max(1, _AT_ONCE // len(on.p)), np.zeros(2)
    for start in range(0, len(seen), size):
        at, of = seen[start : start + size].T
        t, body = on.t[at, None], on.density[at] * on.damped[of]
        sloped, above = body * on.slope, cumulated(body)
        every = ndtr(t) + above
        others = np.exp(
            on.z[of, None] + (on.n - 2) * log_near_one(every, above - ndtr(-t)) + math.log(on.n)
        )
        terms: Any = others * (sloped * every + (on.n - 1) * cumulated(sloped) * body)
        terms = np.where(np.isfinite(terms), terms, 0.0)
        both: Any = np.stack([terms.sum(axis=-1), terms @ on.p]) * on.every[of]
        found += both.real.sum(axis=-1)
    return float(found[0]), float(found[1])


def _peak(weight: Power, n: float) -> tuple[float, float]:
    """E max p, and a bound on its relative error."""
    fine, coarse = (_cut(grid(n, weight, each)) for each in _CUT)
    if not fine[1] > 0:
        return 0.0, math.inf
    return fine[1], abs(coarse[1] / fine[1] - 1) + abs(fine[0] - 1)


def _even(alpha: float, gamma: float, n: float, power: float | None) -> tuple[float, float]:
    """The same where all weights are near 1/n, by powers of ρ = n^(α−1)γ up to the second.

    As `entmax_order`; the largest score less the mean score is independent of the mean. The bounds
    are of the next orders.
    """
    rho, a = gamma * n ** (alpha - 1), alpha - 1
    if power is not None:
        return n**power * (1 - power * rho**2 * (n - 1) / n), 8 * rho**4
    first, second = (expected_maximum(n, k) for k in (1, 2))
    value = 1 + rho * first + (1 - a) / 2 * rho**2 * (second - 1)
    return value / n, 2 * (rho * (1 + first)) ** 3 + 1e-14


def law(
    alpha: float, gamma: float, length: np.ndarray, power: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """The mean of Y₂^(−power) over rows, or that of max p, and a bound on its relative error.

    Args:
        alpha: order α of the map, in (1, 2).
        gamma: spread γ > 0 of the scores.
        length: row lengths n ≥ 1, [lengths].
        power: 1 for the effective number of keys, ½ for its root; None for the largest weight.

    Raises:
        InputError: a spread at which the law is not resolved.
    """
    n, q = np.asarray(length, dtype=np.float64), 1 / (alpha - 1)
    weight, value, error = Power(q, q / gamma), np.ones(n.shape), np.zeros(n.shape)
    size = n if power is None else entmax_order.law(alpha, gamma, n).value[0]
    for i, m in enumerate(n.tolist()):
        if m == 1:
            continue
        value[i], error[i] = _even(alpha, gamma, m, power)
        if error[i] > _GOOD:
            with np.errstate(all="ignore"):  # far out, where nothing falls
                most = min(m, 2 * float(size[i]) + _MORE)
                found = _peak(weight, m) if power is None else _power(weight, m, power, most)
            if not found[1] > error[i]:
                value[i], error[i] = found[0], found[1] + _ROUNDING
    if not (error < RESOLVED).all():
        fix = f"the exact law of entmax of order {alpha:g} is not resolved there; use estimate"
        raise InputError("gamma", gamma, fix)
    return value, error
