"""One grid of thresholds, contour and excesses, for laws of entmax rows that need a third integral.

As `entmax_order`, whose contour follows the threshold t and whose ray follows the argument z. Here
all t share a contour, through where the density of t is largest, and all z share a ray
x = re^(−iθ). Then φ(t + x) and e^(−zp(x)) are two tables, and transforms are products of matrices.
The contour is bent by ψ and the ray is turned by θ, ψ < qθ: so e^(−zp) falls everywhere on it. They
are straight where the bulk of the scores is above the threshold, whose density would cancel.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from sparsity.exact_law import entmax_order
from sparsity.exact_law.ranked import panel
from sparsity.exact_law.rays import Power

_BENT = math.pi / 8  # ψ at most
_TURNED = 0.6  # θ at most
_LEAST = 1.0  # crossing of the real axis
_EVEN = 34.0  # q/ρ, ρ = n^(α−1)γ, beyond which a look does not resolve: weights are about 1/n
_FEW = 33  # thresholds of a look at where the contour is placed
_FALL = 42.0  # e-folds that count
_NEAR = 9.5  # standard deviations of a score that count
_WIDEST = 1.0  # panel of r
_SMALLEST = -18.0  # log of |zp| up to which powers of r are next to nothing,
_WHOLE = -1.0  # or of which whole powers need no panels


class Fineness(NamedTuple):
    """How fine a grid is.

    Args:
        thresholds: how many, odd.
        step: of the contour's parameter.
        nodes: of a panel.
        growth: of p along a panel, as a log.
        turned: qθ at most.
        many: θ√K at most of K keys above the threshold, and θ√K|t| below the mean.
    """

    thresholds: int
    step: float
    nodes: int
    growth: float
    turned: float
    many: float


class Grid(NamedTuple):
    """Points of a row length, and what is common to transforms.

    Args:
        n: the row length.
        t: thresholds.
        every: dt du of the contour's points, times what does not turn on keys but e^z.
        z: points of the contour.
        p: weights (x/c)^q of the excesses x on the ray, panel by panel.
        slope: (q/c)(x/c)^(q−1).
        density: φ(t + x) dx at them, [thresholds, excesses].
        damped: e^(−zp), [contour, excesses].
        nodes: of a panel.
    """

    n: float
    t: np.ndarray
    every: np.ndarray
    z: np.ndarray
    p: np.ndarray
    slope: np.ndarray
    density: np.ndarray
    damped: np.ndarray
    nodes: int


def _edges(low: float, high: float, smallest: float, ratio: float) -> np.ndarray:
    """Ends of panels: geometric from the smallest r on, and none wider than `_WIDEST`."""
    edges = [low, high]
    if low == 0:
        rise = np.arange(math.log(smallest), math.log(high), ratio)
        edges = [0.0, *np.exp(rise).tolist(), high]
    found = [edges[0]]
    for edge in edges[1:]:
        parts = math.ceil((edge - found[-1]) / _WIDEST)
        found.extend(np.linspace(found[-1], edge, parts + 1)[1:].tolist())
    return np.array(found)


def _contour(z: float, width: float, bend: float, step: float) -> tuple[np.ndarray, np.ndarray]:
    """The upper half of the contour, and dz/πi of both."""
    u = np.arange(0.0, math.acosh(1 + _FALL / (math.sin(bend) * width)) + step, step)
    along = math.sin(bend) * (1 - np.cosh(u)) + 1j * math.cos(bend) * np.sinh(u)
    turn = (-math.sin(bend) * np.sinh(u) + 1j * math.cos(bend) * np.cosh(u)) / 1j
    turn[0] *= 0.5  # it stands for both halves
    return z + width * along, turn * width * step / math.pi


def _placed(n: float, weight: Power) -> tuple[float, float, float, float, float]:
    """Ends of the thresholds, the likeliest, where the contour crosses there, and its width."""
    even = weight.c * n ** (-1 / weight.q)
    rho, spread = weight.q / even, _NEAR / math.sqrt(n)
    if even > _EVEN:  # the threshold is the mean score less what makes all weights 1/n, nearly
        high = -even + spread + rho * (1 + spread) ** 2
        return -even - spread, high, -even, _LEAST, math.sqrt(n) / rho
    (low,), (high,) = entmax_order.window(np.array([[n]]), weight)
    look = entmax_order.looked_at(np.linspace(low, high, _FEW)[None], np.array([[n]]), weight)
    peak = int(look.log_size.argmax())
    crossing = max(float(look.saddle[0, peak]), _LEAST)
    return low, high, float(look.t[0, peak]), crossing, float(look.width[0, peak])


def grid(n: float, weight: Power, fine: Fineness) -> Grid:
    """The grid of rows of n.

    Args:
        n: the row length.
        weight: of an excess.
        fine: how fine.
    """
    q, c = weight
    low, high, middle, crossing, width = _placed(n, weight)
    keys = n * float(ndtr(-middle))
    angle = min(
        fine.turned / q, fine.many / (max(1 - middle, 1.0) * max(keys, 1.0) ** 0.5), _TURNED
    )
    bend = min(_BENT, 0.6 * q * angle)
    z, share = _contour(crossing, width, bend, fine.step)
    t = np.linspace(low, high, fine.thresholds)
    start = max(-high - _NEAR, 0.0)
    end = (_NEAR - low) / math.cos(2 * angle) ** 0.5
    few = _WHOLE if q == round(q) else _SMALLEST
    smallest = c * math.exp(few / q) * float(np.abs(z).max()) ** (-1 / q)
    edges = _edges(start, end, min(smallest, end / 2), fine.growth / q)
    x, w, _ = panel(fine.nodes)
    half = np.diff(edges)[:, None] / 2
    r = (edges[:-1, None] + half * (1 + x)).ravel()
    turn = np.exp(-1j * angle)
    p = (r / c) ** q * turn**q
    density = np.exp(-0.5 * (t[:, None] + r * turn) ** 2) * turn / math.sqrt(2 * math.pi)
    with np.errstate(under="ignore"):
        damped = np.exp(-z[:, None] * p)
    return Grid(
        n, t, share * (t[1] - t[0]), z, p, q * p / (r * turn), density * (half * w).ravel(),
        damped, fine.nodes,
    )  # fmt: skip
