"""How many keys sparsemax attends to: n_eff = E[1/Y₂] and E S_n = E[1/√(nY₂)], exactly.

As `sparsemax`, with 1/Y^p = ∫₀^∞ v^(p−1) e^(−vY) dv/Γ(p). Of e^(−vΣx²) the product over keys needs
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
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gamma as gamma_function
from scipy.special import ndtr, ndtri_exp, roots_genlaguerre

from sparsity.exact_law import sparsemax
from sparsity.exact_law.mills import log_mills, log_near_one

_STEP = 0.25  # of w, v = e^(w − e^(−w))
_LOWEST = -4.25  # of it
_MORE = 60.0  # keys beyond twice their mean number that no row has
_NOTHING = 1e-13  # of a mean: what the largest v add
_FAINT = 1e-17  # of it
_CHECKED = 5
_SHORT = 40  # points of the rule where every key has a weight
_ROUNDING = 4e-12
_LOG_ROOT = 0.5 * math.log(2 * math.pi)

_DEPTH = 42.0  # e-folds that count where thresholds are placed,
_FALL = 38.0  # and of what is summed
_ZOOMS = 6
_CROSSINGS = 13  # looked at in each of them,
_LOOKS = 49  # and thresholds
_MARGIN = np.array([0.04, 0.02])  # of the thresholds' ends
_APART = 0.9  # widths between crossings of lengths that share a contour, at most,
_MUCH = 20.0  # without v and with that
_REACH = 5.4  # of the contour's parameter
_BEND = math.tan(math.pi / 8)  # by which the contour leans to the left, far out
_LATE = 0.35  # its radius for each unit to the left of 0, over the tangent's square


class Rule(NamedTuple):
    """How fine a rule is.

    Args:
        thresholds: how many.
        step: of the contour's parameter.
    """

    thresholds: int
    step: float


_RULE, _FINER = Rule(121, 0.08), Rule(181, 0.065)


class Place(NamedTuple):
    """Where the integral lies: arrays of one shape.

    Args:
        y: where the contour crosses the real axis.
        width: of the integrand along it.
        low: lowest threshold.
        high: highest.
    """

    y: np.ndarray
    width: np.ndarray
    low: np.ndarray
    high: np.ndarray


def _log_above(t: np.ndarray, y: np.ndarray, s: np.ndarray | float) -> Any:
    """Log g."""
    return log_mills(y) - np.log(s) - 0.5 * t * t - _LOG_ROOT


def _log_all(t: np.ndarray, above: np.ndarray) -> Any:
    """Log h of g."""
    return log_near_one(ndtr(t) + above, above - ndtr(-t))


def _ends(n: np.ndarray, c: float) -> tuple[np.ndarray, np.ndarray]:
    """Thresholds that nothing lies beyond; as in `sparsemax.places`, and further to the left."""
    root = np.sqrt(n)
    low = np.maximum(-10 / root - c / n, ndtri_exp(-_DEPTH / n) - c) - 3 / root
    return low, -ndtri_exp(-_DEPTH - np.log(n)) - c / n


def _placed(n: np.ndarray, c: float, s: np.ndarray) -> Place:
    """Where the integrals of lengths n and factors s lie, [places].

    That over t is least over y there: on the real axis, the size of it bounds all it is beyond.
    """
    (low, high), rows = _ends(n, c), np.arange(len(n))
    left, right = np.full(len(n), -math.asinh(60.0)), np.arcsinh(40 + n / c)
    m, wide = n[:, None, None], s[:, None, None]
    for zoom in range(_ZOOMS):
        y = np.sinh(left[:, None] + (right - left)[:, None] * np.linspace(0, 1, _CROSSINGS))
        t = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, _LOOKS)
        at, of = t[:, None, :], y[:, :, None]
        above = _log_above(at, of, wide)
        size = c * (wide * of - at) + above + (m - 1) * _log_all(at, np.exp(above))
        size = np.where(np.isnan(size), np.inf, size)
        top = size.max(axis=2)
        whole = top + np.log(np.exp(size - top[..., None]).sum(axis=2) * (high - low)[:, None])
        whole = np.where(np.isnan(whole), np.inf, whole)
        best = np.clip(whole.argmin(axis=1), 1, _CROSSINGS - 2)
        left, right = np.arcsinh(y[rows, best - 1]), np.arcsinh(y[rows, best + 1])
        if zoom == 0:  # y is too rough to tell
            continue
        seen = size[rows, best] > top[rows, best][:, None] - _DEPTH
        first = np.maximum(seen.argmax(axis=1) - 2, 0)
        last = np.minimum(_LOOKS + 1 - seen[:, ::-1].argmax(axis=1), _LOOKS - 1)
        low, high = t[rows, first], t[rows, last]
    y0, y1, y2 = (y[rows, best + k] for k in (-1, 0, 1))
    f0, f1, f2 = (whole[rows, best + k] for k in (-1, 0, 1))
    curvature = 2 * ((f2 - f1) / (y2 - y1) - (f1 - f0) / (y1 - y0)) / (y2 - y0)
    return Place(y1, curvature**-0.5, low, high)


def _contour(y: float, width: float, step: float) -> tuple[np.ndarray, np.ndarray]:
    """The upper half of the contour, and dy/πi of both."""
    u = np.arange(0.0, _REACH, step)
    up = width * np.sinh(u)
    radius = max(width * math.sin(math.atan(_BEND)), -_LATE * y)
    root = np.hypot(1, up * _BEND / radius)
    turn = (1 + 1j * up * _BEND**2 / (radius * root)) * width * np.cosh(u)
    turn[0] *= 0.5  # it stands for both halves
    return y - radius * (root - 1) + 1j * up, turn * step / math.pi


def _means(n: np.ndarray, c: float, s: float, place: Place, rule: Rule) -> np.ndarray:
    """E e^(−vΣx²) of lengths that share a contour, ascending, [lengths]."""
    y, share = _contour(float(place.y), float(place.width), rule.step)
    t, apart = np.linspace(place.low, place.high, rule.thresholds, retstep=True)
    t = t[:, None]
    log_above = _log_above(t, y, s)
    above = np.exp(log_above)
    factor = c * (s * y - t) + log_above + np.log(share * s * apart)
    ends, log_size = (n[[0, -1], None, None] - 1), np.log(np.abs(ndtr(t) + above))
    size = factor.real + ends * log_size
    size = np.where(np.isnan(size), -np.inf, size)
    seen = (size > size.max(axis=(1, 2), keepdims=True) - _FALL).any(axis=0)
    at = np.broadcast_to(t, seen.shape)[seen]
    factor, log_all = factor[seen], _log_all(at, above[seen])
    others = n[:, None] - 1
    body = np.exp(factor.real + others * log_all.real) * np.cos(factor.imag + others * log_all.imag)
    return n * body.sum(axis=1)


def _ruled(power: float, n: np.ndarray, c: float, most: float) -> tuple[np.ndarray, np.ndarray]:
    """E Y₂^(−power) of lengths that share a contour, ascending, and bounds on relative errors."""
    w = np.arange(_LOWEST, math.log(40 * most) + _STEP, _STEP)
    v = np.exp(w - np.exp(-w))
    share = v**power * (1 + np.exp(-w)) / gamma_function(power) * _STEP
    w, v, share = (x[share > _FAINT] for x in (w, v, share))
    s = np.sqrt(1 + 2 * v / c**2)
    place = _placed(np.repeat(n[[0, -1]], len(v)), c, np.tile(s, 2))
    y, width, low, high = (x.reshape(2, -1) for x in place)
    low, high = low.min(axis=0), high.max(axis=0)
    low, high = low - _MARGIN[0] * (high - low), high + _MARGIN[1] * (high - low)
    places = np.stack([y.mean(axis=0), width.min(axis=0), low, high], axis=1)
    found, off, open_ = np.zeros((len(v), len(n))), np.zeros(len(n)), np.ones(len(n), bool)
    for i in range(len(v)):
        found[i] = share[i] * _means(n, c, s[i], Place(*places[i]), _RULE) * open_
        if i % _CHECKED == 0:
            finer = share[i] * _means(n, c, s[i], Place(*places[i]), _FINER) * open_
            off += _CHECKED * np.abs(found[i] - finer)
        if w[i] > 0:
            open_ &= np.abs(found[i - 3 : i + 1]).max(axis=0) > _NOTHING * found.sum(axis=0)
        if not open_.any():
            break
    value = found.sum(axis=0)
    gap = np.abs(1 - 2 * found[::2].sum(axis=0) / value)
    return value, gap + off / value + _ROUNDING + 1e-15 * n


def _shared(n: np.ndarray, c: float) -> list[np.ndarray]:
    """Indices of lengths that may share a contour, the lengths ascending."""
    some = np.repeat([1.0, math.sqrt(1 + 2 * _MUCH / c**2)], len(n))
    y, width, _, _ = (x.reshape(2, -1) for x in _placed(np.tile(n, 2), c, some))
    groups = [[0]]
    for i in range(1, len(n)):
        first = groups[-1][0]
        near = (np.abs(y[:, i] - y[:, first]) < _APART * width[:, i]).all()
        groups[-1].append(i) if near else groups.append([i])
    return [np.array(group) for group in groups]


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
    value, error = np.ones(n.shape), np.zeros(n.shape)
    whole = (n > 1) & (c >= sparsemax.ALL_IN * n)
    for i in np.flatnonzero(whole):
        value[i], error[i] = _all_in(power, float(n[i]), gamma), _ROUNDING
    lengths, back = np.unique(n[(n > 1) & ~whole], return_inverse=True)
    if len(lengths):
        found = np.empty((2, len(lengths)))
        with np.errstate(all="ignore"):  # far out, where nothing falls
            groups = _shared(lengths, c)
            sizes = sparsemax.law(gamma, np.array([lengths[group[-1]] for group in groups])).value[
                0
            ]
            for group, size in zip(groups, sizes.tolist(), strict=True):
                most = min(float(lengths[group[-1]]), 2 * size + _MORE)
                found[:, group] = _ruled(power, lengths[group], c, most)
        value[(n > 1) & ~whole], error[(n > 1) & ~whole] = found[:, back]
    return value, sparsemax.resolved(error, gamma)
