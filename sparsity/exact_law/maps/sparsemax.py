"""The exact law of sparsemax rows: support, participation and the largest weight.

Sparsemax is the threshold map of q = 1: the weights are p = x/c, c = 1/γ, their slope is constant,
and all means over one key are error functions (`gaussian_tail`). The scheme is `threshold_maps`.

The largest weight is the largest score less the threshold, E max p = γ(E max ε − E t), and both
have a law: the first one that of order statistics; E(t − t₀) is a mean like any other, with t₀
amid the thresholds. Where they cancel, the bound says how much.

How many keys it attends to: n_eff = E[1/Y₂] and E S_n = E[1/√(nY₂)], exactly.

As above, with 1/Y^p = ∫₀^∞ v^(p−1) e^(−vY) dv/Γ(p). Of e^(−vΣx²) the product over keys needs
E[e^(−zx−vx²); ε > t] only: it is φ(t) J₀(y)/s, the Mills ratio at y = (t + z)/s, s = √(1 + 2v), so

    E e^(−vΣx²) = ∫dt (1/2πi) ∫dy s e^(c(sy − t)) n g h^(n−1),   g = φ(t) J₀(y)/s,   h = Φ(t) + g.

All thresholds t share one contour of y, and so do row lengths that are near: then J₀ is wanted on
one line, and the logarithm of h once for all these lengths. The contour crosses the real axis where
the integral over t is least. To the left of 0, where J₀ grows like e^(y²/2), it bends late enough
to fall. The rule in v falls doubly exponentially towards 0. The bound holds twice its step, and the
differences from a finer rule in t and y at every fifth v.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sparsity.exact_law import integration
from sparsity.exact_law.maps.gaussian_tail import ROOT_2_PI, log_mills, of_excess
from sparsity.exact_law.maps.threshold_maps import (
    DEPTH,
    REACH,
    KeyMeans,
    Place,
    ThresholdMap,
    integrate,
)
from sparsity.quantities.base import clip_to_range
from sparsity.special import gamma as gamma_function
from sparsity.special import log_ndtr, ndtr, ndtri_exp, roots_genlaguerre

_DEEPEST = 36.0  # of √(t² − (t + z)²), beyond which e^(half its square) leaves float64
ALL_IN = 11.0  # standard deviations below the mean that no score of a row has
_MAXIMUM_STEP = 0.02  # of the largest score
_ROUNDING_OF_T = 3e-14  # of a mean over thresholds, per standard deviation of the scores


class Sparsemax(ThresholdMap):
    """The means over one key of p = x/c, with z in units of 1/c: z·Σx = zc at the threshold."""

    name, q = "sparsemax", 1.0
    rounding = np.array([[3e-13], [3e-12]])  # of E K, and of E Y₂, in whose J₂ digits cancel
    held = 2**17

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma
        self.c = self.total = 1 / gamma

    def all_in(self, n: np.ndarray) -> np.ndarray:
        """Tell where no score is as far as 1/n below the mean: there p = 1/n + s − mean."""
        return self.c >= ALL_IN * n

    def means_all_in(self, n: np.ndarray) -> np.ndarray:
        """Return E K and E Y₂, by the variance of s − mean."""
        return np.stack([n, 1 / n + self.gamma**2 * (n - 1)])

    def means(self, t: np.ndarray, z: np.ndarray) -> KeyMeans:
        """Return the means over one key, by the Mills ratio; the slope is 1 above the threshold."""
        excess = of_excess(t, z)
        square = excess.second / self.c**2
        return KeyMeans(excess.above, excess.above, square, square, excess.log_all, excess.all)

    def means_on_axis(self, t: np.ndarray, z: np.ndarray) -> tuple[KeyMeans, Any, Any]:
        """Return these at real arguments, in units of x, and E[x e^(−zx); ε > t]."""
        # 1 − yJ₀ loses digits as y grows, (J₀ − J₂)/y as it goes to 0: they change places at 2.
        excess, y = of_excess(t, z), t + z
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # by J₁ = 1 − yJ₀ and J₂ = J₀ − yJ₁
            near = np.exp(-0.5 * t * t) / ROOT_2_PI - y * excess.above
            first = np.where(np.abs(y) < 2, near, (excess.above - excess.second) / y)
        above, second, log_all, all_ = excess
        return KeyMeans(above, above, second, second, log_all, all_), first, first

    def bracket(self, t: np.ndarray, n: np.ndarray) -> Any:
        """Return ends between −c and n/c in t + z, of which the coordinate is the arsinh."""
        low = np.arcsinh(np.maximum(-self.c, -np.sqrt(t * t + _DEEPEST**2)))
        high = np.arcsinh(np.broadcast_to(n / self.c, t.shape)) + 1e-3
        return low, high, lambda x: np.sinh(x) - t


def expected_maximum(n: float, power: int = 1) -> float:
    """Return E of a power of the largest of n standard normals."""
    low, high = float(ndtri_exp(-DEPTH / n)), -float(ndtri_exp(-DEPTH - math.log(n)))
    # The density nφΦ^(n−1) of the largest is analytic and falls at both ends. Dividing by its own
    # sum takes out what the rule loses of 1.
    step = min(_MAXIMUM_STEP, (high - low) / 400)
    x = np.arange(low, high + step, step)
    share = np.exp(math.log(n) - 0.5 * x * x + (n - 1) * log_ndtr(x)) / ROOT_2_PI
    return float((x**power * share).sum() / share.sum())


def _likeliest(place: Place) -> np.ndarray:
    """Return the threshold of each length at which the integrand is largest, [lengths, 1]."""
    return place.t[np.arange(len(place.t)), place.log_size.argmax(axis=1)][:, None]


def _max_by_threshold(row: Sparsemax, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return E max p and a bound on its absolute error."""
    n = n[:, None]

    def integrands(place: Place, m: np.ndarray) -> np.ndarray:
        """Return those of 1 and t − t₀."""
        z, share = row.contour(place)
        excess = of_excess(place.t[..., None], z)
        body: Any = np.exp(z * row.c + (m[..., None] - 1) * excess.log_all + np.log(m)[..., None])
        body = (body * excess.above * share).real
        body = np.where(np.isfinite(body), body, 0.0)  # far out, where h or e^(zc) is nothing
        return np.stack([body, body * (place.t - _likeliest(place))[..., None]])

    # t is taken from its likeliest value, so that E t keeps the digits of the width of its law, in
    # long rows much less than t.
    place = row.places(n)
    start = _likeliest(place)
    (total, shift), *coarse = integrate(place, n, integrands, row.held)
    off = sum(np.abs(other[1] - shift) for other in coarse)
    off += np.abs(total - 1) * np.abs(place.t - start).max(axis=1)
    off += _ROUNDING_OF_T * (1 + np.abs(start[:, 0]))
    top = np.array([expected_maximum(m) for m in n[:, 0].tolist()])
    return (top - start[:, 0] - shift) / row.c, off / row.c


def max_weight(gamma: float, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of the largest weight over rows, and a bound on its relative error.

    Args:
        gamma: spread γ > 0 of the scores.
        length: row lengths n ≥ 1, [lengths].

    Raises:
        InputError: a spread at which the law is not resolved.
    """
    n, row = np.asarray(length, dtype=np.float64), Sparsemax(gamma)
    value, error = np.ones(n.shape), np.zeros(n.shape)
    whole = (n > 1) & row.all_in(n)
    value[whole] = [1 / m + gamma * expected_maximum(m) for m in n[whole].tolist()]
    error[whole] = 1e-14
    some = (n > 1) & ~whole
    if some.any():
        with np.errstate(all="ignore"):  # far out, where nothing falls
            value[some], off = _max_by_threshold(row, n[some])
        error[some] = off / value[some]
    integration.refuse_unresolved(error, gamma, "sparsemax")
    return clip_to_range(value, error, (1 / n, np.ones(n.shape))), error


MORE_KEYS = 60.0  # keys beyond twice their mean number that no row has
NOTHING = 1e-13  # of a mean: what the largest v add
_FAINT = 1e-17  # weight of a v that is left out from the start
_CHECKED = 5  # every so many v, the rule in t and y is held against a finer one
_SHORT = 40  # points of the rule where every key has a weight
_ROUNDING = 4e-12  # relative
_FALL = 38.0  # e-folds down to which a term is summed

# The search for where the contour crosses: crossings and thresholds in each of a few looks.
_LOOKS, _CROSSINGS, _THRESHOLDS = 6, 13, 49
_MARGIN = np.array([0.04, 0.02])  # of the thresholds' ends
_WIDTHS = 0.9  # between crossings of lengths that share a contour, at most,
_LARGE_V = 20.0  # at v = 0 and at this v
_LEAN = math.tan(Sparsemax.bend)  # by which the contour leans to the left, far out
# The radius of the contour's bend for each unit of y to the left of 0: there |J₀| ~ e^(Re y²/2),
# and a tighter bend would lead through where Re y² still grows along the contour. Measured for γ
# from 0.005 to 4 and n from 20 to 10⁶: radii from 0.35 to 1 give the same 14 digits; at 0.1 the
# rule is off by up to 9e-13, at 3 by 2e-11.
_RADIUS = 0.35
_RULE, _FINER = (121, 0.08), (181, 0.065)  # thresholds, and step of the contour's parameter


def _log_above(t: np.ndarray, y: np.ndarray, s: np.ndarray | float) -> Any:
    """Return log g."""
    return log_mills(y) - np.log(s) - 0.5 * t * t - math.log(ROOT_2_PI)


def _log_all(t: np.ndarray, above: np.ndarray) -> Any:
    """Return log h, given g."""
    return integration.log_near_one(ndtr(t) + above, above - ndtr(-t))


def _placed(n: np.ndarray, c: float, s: np.ndarray) -> np.ndarray:
    """Return where the integrals of lengths n and factors s lie, [4, places].

    That is where the contour crosses the real axis, the width of the integrand along it, and the
    lowest and highest threshold. It crosses where the integral over t is least over y: on the real
    axis, the size of it bounds all that it is beyond.
    """
    # The ends are those of `ThresholdMap.window`, and further to the left: v makes rows more even.
    root, rows = np.sqrt(n), np.arange(len(n))
    low = np.maximum(-10 / root - c / n, ndtri_exp(-DEPTH / n) - c) - 3 / root
    high = -ndtri_exp(-DEPTH - np.log(n)) - c / n
    left, right = np.full(len(n), -math.asinh(60.0)), np.arcsinh(40 + n / c)
    # A saddle point of two variables, t and y, by looks at a small grid of both: each look zooms in
    # around the best crossing, and around the thresholds that count there. arsinh as coordinate
    # reaches far with few points and is fine around 0.
    m, wide = n[:, None, None], s[:, None, None]
    for look in range(_LOOKS):
        y = np.sinh(left[:, None] + (right - left)[:, None] * np.linspace(0, 1, _CROSSINGS))
        t = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, _THRESHOLDS)
        at, of = t[:, None, :], y[:, :, None]
        above = _log_above(at, of, wide)
        size = c * (wide * of - at) + above + (m - 1) * _log_all(at, np.exp(above))
        size = np.where(np.isnan(size), np.inf, size)
        top = size.max(axis=2)
        whole = top + np.log(np.exp(size - top[..., None]).sum(axis=2) * (high - low)[:, None])
        whole = np.where(np.isnan(whole), np.inf, whole)
        # One place from the ends, so that there is a neighbour to either side for the curvature.
        best = np.clip(whole.argmin(axis=1), 1, _CROSSINGS - 2)
        left, right = np.arcsinh(y[rows, best - 1]), np.arcsinh(y[rows, best + 1])
        if look:  # at first y is too rough to tell where the thresholds end
            seen = size[rows, best] > top[rows, best][:, None] - DEPTH
            first, last = integration.ends_of(seen, margin=2)
            low, high = t[rows, first], t[rows, last]
    # The second difference of log size at the least is the curvature there.
    y0, y1, y2 = (y[rows, best + k] for k in (-1, 0, 1))
    f0, f1, f2 = (whole[rows, best + k] for k in (-1, 0, 1))
    curvature = 2 * ((f2 - f1) / (y2 - y1) - (f1 - f0) / (y1 - y0)) / (y2 - y0)
    return np.stack([y1, curvature**-0.5, low, high])


def _damped_means(
    n: np.ndarray, c: float, s: float, place: list[float], rule: tuple[int, float]
) -> np.ndarray:
    """Return E e^(−vΣx²) of lengths that share a contour, ascending, [lengths].

    `place` is a column of `_placed`.
    """
    # y = y₀ − r(√(1 + (lean·v/r)²) − 1) + iv: a hyperbola too, but one whose bend r is free. Near
    # the real axis it is vertical, as the saddle wants, and far out it leans by `_LEAN`. v = w sinh
    # u is fine near the axis and reaches far.
    (thresholds, step), (crossing, width, low, high) = rule, place
    up = width * np.sinh(u := np.arange(0.0, REACH, step))
    radius = max(width * math.sin(math.atan(_LEAN)), -_RADIUS * crossing)
    root = np.hypot(1, up * _LEAN / radius)
    y = crossing - radius * (root - 1) + 1j * up
    turn = (1 + 1j * up * _LEAN**2 / (radius * root)) * width * np.cosh(u)
    turn[0] *= 0.5  # the point on the axis stands for both halves
    t, apart = np.linspace(low, high, thresholds, retstep=True)
    t = t[:, None]
    log_above = _log_above(t, y, s)
    above = np.exp(log_above)
    factor = c * (s * y - t) + log_above + np.log(turn * step / math.pi * s * apart)
    # What counts in neither the shortest nor the longest row is left out: log size is linear in n.
    size = factor.real + (n[[0, -1], None, None] - 1) * np.log(np.abs(ndtr(t) + above))
    size = np.where(np.isnan(size), -np.inf, size)
    seen = (size > size.max(axis=(1, 2), keepdims=True) - _FALL).any(axis=0)
    factor, log_all = factor[seen], _log_all(np.broadcast_to(t, seen.shape)[seen], above[seen])
    others = n[:, None] - 1
    body = np.exp(factor.real + others * log_all.real) * np.cos(factor.imag + others * log_all.imag)
    return n * body.sum(axis=1)


def _by_shared_contour(
    power: float, n: np.ndarray, c: float, most: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return E Y₂^(−power) of lengths that share a contour, ascending, and bounds on its errors."""
    # For each v a rule over (t, y); e^(−vΣp²), p = x/c, turns the density's ½x² into ½s²x².
    rule = integration.inverse_power_rule(power, most)
    w, v, share = (x[rule[2] > _FAINT] for x in rule)
    s = np.sqrt(1 + 2 * v / c**2)
    place = _placed(np.repeat(n[[0, -1]], len(v)), c, np.tile(s, 2))
    # One contour for all, amid those of the shortest and the longest row.
    y, width, low, high = place.reshape(4, 2, -1)
    low, high = low.min(axis=0), high.max(axis=0)
    low, high = low - _MARGIN[0] * (high - low), high + _MARGIN[1] * (high - low)
    places = np.stack([y.mean(axis=0), width.min(axis=0), low, high], axis=1).tolist()
    terms, off, open_ = np.zeros((len(v), len(n))), np.zeros(len(n)), np.ones(len(n), bool)
    for i, contour in enumerate(places):
        terms[i] = share[i] * _damped_means(n, c, s[i], contour, _RULE) * open_
        if i % _CHECKED == 0:
            finer = share[i] * _damped_means(n, c, s[i], contour, _FINER) * open_
            off += _CHECKED * np.abs(terms[i] - finer)
        # Beyond its last hump the integrand over v only falls: a length is done once it has.
        if w[i] > 0:
            open_ &= np.abs(terms[i - 3 : i + 1]).max(axis=0) > NOTHING * terms.sum(axis=0)
        if not open_.any():
            break
    value = terms.sum(axis=0)
    gap = integration.relative_gap(value, 2 * terms[::2].sum(axis=0))
    return value, gap + off / value + _ROUNDING + 1e-15 * n


def lengths_by_contour(n: np.ndarray, c: float) -> list[np.ndarray]:
    """Return indices of lengths that may share a contour, the lengths ascending."""
    # A contour may lie anywhere, and passes a saddle at less than its width without a loss: so
    # lengths whose saddles are that near share J₀ on it, and log h.
    some = np.repeat([1.0, math.sqrt(1 + 2 * _LARGE_V / c**2)], len(n))
    y, width, _, _ = _placed(np.tile(n, 2), c, some).reshape(4, 2, -1)
    # At v = 0 and at a large v both crossings have to be near, in widths of the integrand.
    groups = [[0]]
    for i in range(1, len(n)):
        first = groups[-1][0]
        near = (np.abs(y[:, i] - y[:, first]) < _WIDTHS * width[:, i]).all()
        groups[-1].append(i) if near else groups.append([i])
    return [np.array(group) for group in groups]


def n_eff_powers(gamma: float, length: np.ndarray, power: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean of Y₂^(−power) over rows of sparsemax, and a bound on its relative error.

    Args:
        gamma: spread γ > 0 of the scores.
        length: row lengths n ≥ 1, [lengths].
        power: 1 for the effective number of keys, ½ for its root.

    Raises:
        InputError: a spread at which the law is not resolved.
    """
    n, row = np.asarray(length, dtype=np.float64), Sparsemax(gamma)
    value, error = np.ones(n.shape), np.zeros(n.shape)
    whole = (n > 1) & row.all_in(n)
    if whole.any():
        # Every key has a weight: Y₂ = 1/n + γ²χ² of n − 1 degrees of freedom, whose e^(−vY₂) has
        # the mean e^(−v/n) (1 + 2vγ²)^(−(n−1)/2).
        m, (x, w) = n[whole][:, None], roots_genlaguerre(_SHORT, power - 1)
        rest = (1 + 2 * m * gamma**2 * x) ** (-0.5 * (m - 1))
        value[whole] = (m**power)[:, 0] * (w * rest).sum(axis=1) / gamma_function(power)
        error[whole] = _ROUNDING
    lengths, back = np.unique(n[(n > 1) & ~whole], return_inverse=True)
    if len(lengths):
        columns = np.empty((2, len(lengths)))
        with np.errstate(all="ignore"):  # far out, where nothing falls
            groups = lengths_by_contour(lengths, row.c)
            longest = np.array([lengths[group[-1]] for group in groups])
            (sizes, _), _ = row.support_and_participation(longest)
            for group, m, size in zip(groups, longest.tolist(), sizes.tolist(), strict=True):
                most = min(m, 2 * size + MORE_KEYS)
                columns[:, group] = _by_shared_contour(power, lengths[group], row.c, most)
        value[(n > 1) & ~whole], error[(n > 1) & ~whole] = columns[:, back]
    integration.refuse_unresolved(error, gamma, "sparsemax")
    return value, error
