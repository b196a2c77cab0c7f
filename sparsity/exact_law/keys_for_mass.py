"""The exact law of the fewest keys that hold a share p of the mass, in rows of one law of scores.

A key counts if those above it hold less than p of all. For a key of weight a = e^v that says
(1 − p)Σ_above − pΣ_below < p·a. The others are independent: with the density f of v

    mean = n ∫ f(v) P(Y < p e^v) dv / P(the row is not all zero),   Y = Σ_{n−1} y,
    y = (1 − p)e^w for w > v, −p e^w for w < v.

The chance is an inverse Laplace transform, (1/2πi)∫ e^(θp e^v) (E e^(−θy))^(n−1) dθ/θ, along a line
that starts at the saddle point c > 0 and leans to the left, where e^(θp e^v) falls, by a few c: far
out y alone ends it. In the transform of one score w leaves the real axis by up to the angle of θ,
so that e^(−θy) falls instead of oscillating. The rules over v and along the line are trapezoidal,
that over w has Gauss–Legendre panels; the bound holds coarser ones.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sparsity.errors import TooFine
from sparsity.exact_law.integration import (
    gauss_panels,
    grid_points,
    log_near_one,
    refuse_slow,
    relative_gap,
)
from sparsity.exact_law.ranked import LogWeightLaw, law_of_weights
from sparsity.kernels import Kernel
from sparsity.quantities import KeysLaw
from sparsity.quantities.base import Means, clip_to_range

# Points of a panel of w, step of v in units of its scale, and along the line: of value and check.
_RULES = ((12, 0.3, 0.12), (9, 0.4, 0.16))
_WIDEST = 0.9  # panel of w, and three of the law's own: it need not resolve powers of n
_FIRST = 1e-3  # panel of w nearest v, where y jumps; each is twice as wide as the last one
_DEEP = 36.0  # e-folds under v below which weights add nothing to Y
_LARGEST = 300.0  # ln of a weight over e^v: its square is within float64
_BEND, _LEFT = 0.38, 40.0  # how the line leans to the left, and by how many c at most
_END = 14.0  # of the line: by then |θ| is 6e5 times the saddle point
_MANY, _GROWTH = 30.0, 4.0  # keys above v, and e-folds by which each may then grow
_BISECTIONS = 16  # of ln c over 80: to a thousandth
_GONE = 1e-13  # size of an integrand that does not go on, in keys of one
_LONG, _REVIVED = 100.0, (4.0, 16.0)  # rows; |θ| about the first return of equal weights
_AT_ONCE = 8  # points of v
_WIDE = 150.0  # e-folds of weights: 4 s
_SECONDS = 7e-8  # of a number of the integrand over v, w and t
_ROUNDING = 1e-9  # allowed for in every bound, beside the gap of the two rules


class _Others:
    """The law of another key's y in units of e^v, at some v: panels of r = w − v on both sides."""

    def __init__(self, law: LogWeightLaw, share: float, points: int, v: np.ndarray) -> None:
        width = min(_WIDEST, 3 * law.width)
        near = _FIRST * 2.0 ** np.arange(max(math.ceil(math.log2(width / _FIRST)), 0))
        self.law, self.v, sides = law, v, []
        ends = min(_DEEP, v.max() - law.low), law.high - v.min()
        for side, size, end in zip((-1, 1), (-share, 1 - share), ends, strict=True):
            more = max(math.ceil((end - near.sum()) / width), 0)
            r, weights = gauss_panels(np.cumsum([0.0, *near, *[width] * more]), points)
            sides.append((side * r.ravel(), weights.ravel(), np.full(r.size, size)))
        self.r, self.weights, size = map(np.concatenate, zip(*sides, strict=True))
        self.y = size * np.exp(np.minimum(self.r, _LARGEST))
        self.mass = law.density(v[:, None] + self.r) * self.weights

    def saddle(self, n: float, share: float) -> np.ndarray:
        """Return c, where e^(cp) L(c)^(n−1)/c is least, L = E e^(−cy), [v, 1]."""
        low, high = np.full((len(self.v), 1), -70.0), np.full((len(self.v), 1), 10.0)
        rest = 1 - self.mass.sum(axis=1, keepdims=True)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            fading = np.exp(np.minimum(-np.exp(middle) * self.y, 690.0)) * self.mass
            mean = (fading @ self.y)[:, None] / (fading.sum(axis=1, keepdims=True) + rest)
            before = share - np.exp(-middle) < (n - 1) * mean
            low, high = np.where(before, middle, low), np.where(before, high, middle)
        return np.exp((low + high) / 2)

    def less_one(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return E[e^(−θy) − 1] over w < v, and over w > v, [v, t] each."""
        if not self.law.turn:
            body = np.expm1(-theta[..., None] * self.y) * self.mass[:, None]
        else:
            # Above v the line of w turns down by the angle of θ. Below, where y < 0, it turns up.
            turn = np.minimum(np.angle(theta), self.law.turn)[..., None]
            bend = np.tanh(np.abs(self.r))
            off = -1j * turn * np.sign(self.r) * bend
            body = self.law.density(self.v[:, None, None] + self.r + off)
            body *= (1 - 1j * turn * (1 - bend * bend)) * self.weights
            body *= np.expm1(-theta[..., None] * self.y * np.exp(off))
        return body[..., self.r < 0].sum(axis=-1), body[..., self.r > 0].sum(axis=-1)

    def chance(self, n: float, share: float, step: float) -> tuple[np.ndarray, np.ndarray, int]:
        """Return P(Y < p e^v) and the size of the integrand at its end, [v], and its points."""
        c = self.saddle(n, share)
        above = self.mass[:, self.r > 0].sum(axis=1, keepdims=True)
        # Where no key is above, Y < 0: that has no part in the integral, which would not end.
        # Of a mass that is 1 all keys are above, and rounding may leave it larger.
        value = np.exp((n - 1) * np.log1p(-np.minimum(above[:, 0], 1 - 2.0**-53)))
        # Few keys above v are as many steps of Y, which grow to the left of 0.
        growth = c * (1 - share) / _GROWTH
        if not self.law.turn:  # nor may the largest weights, whose law falls by 40 e-folds
            growth *= np.exp(self.law.high - self.v[:, None]) / 5
        most = np.where(n * above > _MANY, _LEFT, np.minimum(_LEFT, 1 / growth))
        alive, points = np.ones(len(self.v), bool), 0
        for u in grid_points(0.0, _END, step)[: int(_END / step) // 4 * 4].reshape(-1, 4):
            left = _BEND * (np.cosh(u) - 1)
            points += len(u)
            z = 1 - left / (1 + left / most) + 1j * np.sinh(u)
            turn = np.cosh(u) + 1j * _BEND * np.sinh(u) / (1 + left / most) ** 2
            with np.errstate(all="ignore"):  # where it has ended, it may be anything
                down, up = self.less_one(c * z)
                body = sum(
                    sign * np.exp(c * z * share + (n - 1) * log_near_one(1 + less, less))
                    for sign, less in ((1, down + up), (-1, down - above))
                )
                body *= turn / z
            body[:, u == 0] /= 2
            value[alive] += body[alive].real.sum(axis=1) * step / math.pi
            # Equal weights come to life again at θ = 2πi: in long rows `_revival` says how far.
            beyond = (n >= _LONG) | (np.abs(c * z[-1]) > _REVIVED[1])
            alive &= ~((np.abs(body).max(axis=1) < _GONE) & beyond[:, 0])
            if not alive.any():
                break
        return value, np.where(alive, np.abs(body).max(axis=1), 0.0), points


def _revival(law: LogWeightLaw, n: float, share: float, v: float) -> float:
    """Return how far from a lattice Y is in long rows of weights that are nearly equal.

    That is the largest |L|^(n−1) about θ = 2πi, which the rule steps over: it moves the mean by
    less than as many keys, as where the weights are equal it is rounded to whole ones.
    """
    others, at = _Others(law, share, _RULES[0][0], np.array([v])), np.linspace(*_REVIVED, 256)
    size = _sizes(others, at)
    if size[0] ** (n - 1) > _GONE:  # the rule goes on beyond
        return 0.0
    top = int(size.argmax())
    near = np.linspace(at[max(top - 1, 0)], at[min(top + 1, 255)], 256)
    return float(_sizes(others, near).max()) ** (n - 1)


def _sizes(others: _Others, at: np.ndarray) -> np.ndarray:
    """Return |L| at imaginary θ, of one v."""
    return np.abs(1 + sum(others.less_one(1j * at[None])))[0]


def _middle(law: LogWeightLaw, n: float, share: float) -> tuple[float, float]:
    """Return v where E Y = p e^v, and the scale on which P falls there: at most that of the law."""
    low, high = law.low, law.high
    for _ in range(50):
        v = (low + high) / 2
        others = _Others(law, share, _RULES[0][0], np.array([v]))
        low, high = (low, v) if (n - 1) * (others.mass[0] @ others.y) < share else (v, high)
    # E Y falls with v like n times the density: by that and p e^v the difference grows.
    spread = math.sqrt((n - 1) * (others.mass[0] @ others.y**2))
    return v, min(spread / (share + (n - 1) * float(law.density(np.array(v)))), law.width)


def _steps_to(far: float, widest: float, scale: float) -> float:
    """Return the x at which v has come so far from the middle."""
    return math.asinh(widest / scale * math.sinh(max(min(far / widest, 300.0), -300.0)))


def _by_rule(
    law: LogWeightLaw, n: float, share: float, middle: float, scale: float, rule: tuple[Any, ...]
) -> tuple[float, float]:
    """Return E[the fewest keys; row ≠ 0] by one rule, and what the ends of its lines may hold."""
    points, step, along = rule
    widest, value, lost, numbers = 3 * law.width, 0.0, 0.0, 0
    # v in steps of `scale` near the middle, and of `widest` far from it.
    low, high = (_steps_to(end - middle, widest, scale) for end in (law.low, law.high))
    x = grid_points(low, high, step)
    rise = scale / widest * np.sinh(x)
    v = middle + widest * np.arcsinh(rise)
    keys = n * law.density(v) * scale * np.cosh(x) / np.sqrt(1 + rise * rise) * step
    v, keys = v[keys > _GONE], keys[keys > _GONE]
    for last in range(len(v), 0, -_AT_ONCE):  # from where all keys count down to where none does
        part = slice(max(last - _AT_ONCE, 0), last)
        others = _Others(law, share, points, v[part])
        chance, cut, count = others.chance(n, share, along)
        numbers += count * others.mass.size
        refuse_slow("length", n, _SECONDS * numbers)
        value, lost = value + float(keys[part] @ chance), lost + float(keys[part] @ cut)
        if np.abs(chance).max() < _GONE or not math.isfinite(value + lost):
            break
    return value, lost


def fewest_keys(
    kernel: Kernel, beta: float, gamma: float, length: np.ndarray, of: KeysLaw
) -> Means:
    """Return the mean over nonzero rows, P(the row is not all zero), and relative error bounds.

    Args and raises as `ranked.ranked`; what is not resolved has a bound of ∞.
    """
    n = np.asarray(length, dtype=np.float64)
    law = law_of_weights(kernel, beta, gamma, float(n.max()))
    if law.high - law.low > _WIDE:
        fix = "its law of fewest keys takes too long at these parameters; use estimate"
        raise TooFine("gamma", gamma, fix)
    p_row = -np.expm1(n * law.log_zero)
    value, error = np.ones(n.shape), np.zeros(n.shape)
    for i in np.flatnonzero(n > 1).tolist():
        m = float(n[i])
        where = _middle(law, m, of.share)
        (fine, lost), (coarse, _) = (_by_rule(law, m, of.share, *where, rule) for rule in _RULES)
        lost += _revival(law, m, of.share, where[0]) if m >= _LONG else 0.0
        # A row that is not resolved may have any value, and keeps the bound ∞ it has.
        error[i] = math.inf
        if math.isfinite(fine + coarse + lost) and fine > 0:
            error[i] = relative_gap(fine, coarse) + lost / fine + _ROUNDING
            value[i] = clip_to_range(fine / p_row[i], error[i], of.ends(m))
    return Means(value, p_row, error)
