"""The rules of integration that the exact laws share, and what their bounds are made of.

An exact law is an integral of an analytic function. Along an infinite line, or a contour on which
the integrand falls off at both ends, the trapezoidal rule converges exponentially in the inverse of
its step; on a finite piece Gauss-Legendre panels do, in their number of nodes. So in every law the
difference between a fine rule and a coarser one is the error of the coarser one, and bounds that of
the fine one with a wide margin.

Sums of one table shifted by each token, Σ_j w_j F(u + shift_j) for F on a grid of u: the shifts
become weights on the grid, and F is convolved with them once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sparsity.errors import RESOLVED, InputError, TooFine

# The trapezoidal rule over u = ln t. E^(−e^(u + cz)) is analytic in u and in z, in a strip of
# half-width π/2: at a step of 0.2 what is lost is e^(−π²/0.2), far below rounding.
STEP_OF_U = 0.2  # of u, and of c·z for a normal z
DEPTH = 36.0  # e-folds below the largest value down to which an integrand is summed: to rounding
FAR = 9.0  # standard deviations beyond which a normal has no mass, but for the tilt of a weight
_MOST_OF_STEP = 2.0  # the step of z over that of u: where c is small, the normal density decides

# Seconds on one core of a processor of 2020, measured.
PRODUCT = 1e-9  # of a multiplication within a convolution or a product of matrices
_LONGEST = 8.0  # seconds that a law may take: ten on a busy machine
_MOST_HELD = 1e8  # numbers held at once: 0.8 GB

# Weights up to which a product with windows is taken: for so few it is one call for all rows.
# NumPy's convolve takes one dimension at a time, but does not make the windows.
_MAX_WINDOW = 28
_GAP = 1000  # zeros between weights from which on the two sides are convolved by themselves


def grid_points(low: float, high: float, step: float) -> np.ndarray:
    """Return low, low + step, … below high, each rounded by itself.

    NumPy's `arange` goes on by (low + step) − low, which is off by up to a rounding of low. As the
    points of an integral, whose sum is multiplied by the step, that is an error of the whole: 2e-14
    where low is −50, and 2e-11 where it is −20,000.

    Args:
        low: the first point.
        high: the end, itself left out.
        step: the distance of two points.
    """
    return low + step * np.arange(max(math.ceil((high - low) / step), 0))


def refuse_slow(argument: str, value: Any, seconds: float, held: float = 0.0) -> None:
    """Refuse work that would take too long or too much memory, before it starts.

    Args:
        argument: the parameter that makes it long.
        value: of the parameter.
        seconds: of the work, about.
        held: numbers that it holds at once.

    Raises:
        TooFine: more than a few seconds, or than a gigabyte.
    """
    if not (seconds <= _LONGEST and held <= _MOST_HELD):
        fix = "its exact law takes too long at these parameters; use less extreme ones, or estimate"
        raise TooFine(argument, value, fix)


def refuse_unresolved(error: np.ndarray, gamma: float, name: str) -> None:
    """Refuse a law of a map of that name of which one of the error bounds is no bound.

    Raises:
        InputError: a bound of 1e-3 or more, or one that is not a number.
    """
    if not (error < RESOLVED).all():
        fix = f"the exact law of {name} is not resolved there; use estimate"
        raise InputError("gamma", gamma, fix)


def relative_gap(fine: Any, *coarse: Any) -> Any:
    """Return by how much the results of coarser rules differ from the fine one, together."""
    return sum(np.abs(1 - other / fine) for other in coarse)


def log_complement(missing: Any, kept: Any) -> np.ndarray:
    """Return log(1 − missing), where kept = 1 − missing is known as well.

    Each of the two has all its digits where it is small: log1p is taken of the one below ½, and the
    plain logarithm of the other.
    """
    return np.where(missing < 0.5, np.log1p(-np.minimum(missing, 0.5)), np.log(kept))


def log_near_one(h: Any, less_one: Any) -> Any:
    """Return log h of a real or complex h, given h − 1 with all its digits as well.

    NumPy's log1p of a complex number loses the digits of a small real part.
    """
    if not np.iscomplexobj(h):
        near = np.abs(less_one) < 0.5
        return np.where(near, np.log1p(np.where(near, less_one, 0.0)), np.log(h))
    # |h| through |h|² − 1, which a = Re(h − 1) and b give without a difference of near numbers.
    a, b = less_one.real, less_one.imag
    square = a * (2 + a) + b * b  # |h|² − 1
    log = np.empty(h.shape, dtype=h.dtype)
    log.real = np.where(np.abs(square) < 0.5, 0.5 * np.log1p(square), np.log(np.abs(h)))
    log.imag = np.arctan2(h.imag, h.real)
    return log


@functools.lru_cache(maxsize=32)
def gauss_rule(points: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes and weights of the Gauss-Legendre rule on [−1, 1]."""
    return np.polynomial.legendre.leggauss(points)


def gauss_panels(edges: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of Gauss-Legendre panels between edges, both [panels, points]."""
    x, w = gauss_rule(points)
    half = np.diff(edges)[:, None] / 2
    return edges[:-1, None] + half * (1 + x), half * w


@functools.lru_cache(maxsize=16)
def cumulative_rule(points: int) -> tuple[np.ndarray, np.ndarray]:
    """Return weights on [−1, 1], and the matrix that integrates from −1 up to each Gauss node."""
    # The polynomial through values at Gauss nodes has Legendre coefficients (the inverse of their
    # Vandermonde matrix, well conditioned there), and each Legendre polynomial a known integral.
    x, w = gauss_rule(points)
    basis = np.polynomial.legendre.Legendre
    integrals = np.stack([basis(one).integ(lbnd=-1)(x) for one in np.eye(points)], 1)
    return w, integrals @ np.linalg.inv(np.polynomial.legendre.legvander(x, points - 1))


@functools.lru_cache(maxsize=4)
def clenshaw_curtis(intervals: int) -> np.ndarray:
    """Return weights at the nodes cos(πj/N), j = 0 … N, of an integral over [−1, 1]; N is even."""
    j, k = np.arange(intervals + 1), np.arange(0, intervals + 1, 2)
    terms = np.where((k == 0) | (k == intervals), 0.5, 1.0) * 2 / (1 - k * k)
    weights = np.cos(np.pi * np.outer(j, k) / intervals) @ terms * 2 / intervals
    weights[[0, -1]] /= 2
    return weights


def lagrange_weights(at: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Return the weights of values at nodes in the polynomial through them, [..., nodes].

    Args:
        at: places at which the polynomial is evaluated, any shape.
        nodes: distinct places, a few.
    """
    gap = at[..., None] - nodes
    # The product over all other nodes is that over those before times that over those behind, which
    # needs no division by a gap that may be 0.
    ones = np.ones((*at.shape, 1))
    before = np.cumprod(np.concatenate([ones, gap[..., :-1]], axis=-1), axis=-1)
    behind = np.cumprod(np.concatenate([ones, gap[..., :0:-1]], axis=-1), axis=-1)[..., ::-1]
    return before * behind / (nodes[:, None] - nodes + np.eye(len(nodes))).prod(axis=1)


def spread_weights_on_grid(
    shift: np.ndarray, weights: np.ndarray, taps: int, step: float
) -> tuple[int, np.ndarray]:
    """Return (first s, H) with Σ_s H[c, s] F[i + s] = Σ_j weights[c, j] F(u_i + shift_j).

    Between the points u_i of the grid F is the polynomial through `taps` of them around.

    Args:
        shift: of each term, [terms].
        weights: of each term in every channel, [channels, terms].
        taps: points that a polynomial goes through, an even number.
        step: of the grid.
    """
    # F(u_i + shift) is a few interpolation weights times values of F. These weights are the same at
    # every i, so terms are added up as weights, and F is convolved with them once: the work is
    # terms·taps plus a convolution, instead of terms·points.
    steps = np.floor(shift / step).astype(int)
    # Terms that all lie on one point of the grid need no polynomial.
    if np.all(shift == steps * step) and np.ptp(steps) == 0:
        return int(steps[0]), weights.sum(axis=1, keepdims=True)
    first = int(steps.min())
    total = np.zeros((len(weights), int(steps.max()) - first + taps))
    nodes = np.arange(taps)
    for start in range(0, len(shift), 2**16):  # by blocks: a share for each of the taps is held
        part = slice(start, start + 2**16)
        share = lagrange_weights(taps // 2 - 1 + shift[part] / step - steps[part], nodes)
        where = ((steps[part] - first)[:, None] + nodes).ravel()
        for channel, weight in zip(total, weights[:, part], strict=True):
            channel += np.bincount(where, (share * weight[:, None]).ravel(), len(channel))
    return first - taps // 2 + 1, total


def add_convolved(out: np.ndarray, table: np.ndarray, begin: int, h: np.ndarray) -> None:
    """Add out[c, r, i] += Σ_s h[c, s] F[c, r, begin + i + s] of a table F.

    F is 0 before the table, and its last value behind.

    Args:
        out: [channels, rows, points], added to in place.
        table: F, [channels, rows, points of the table].
        begin: the point of the table, which may lie outside it, at which out[..., 0] begins.
        h: the weights of the shifts 0, 1, … in every channel, [channels, shifts].
    """
    length, points = out.shape[-1] + h.shape[-1] - 1, table.shape[-1]
    zeros = min(max(-begin, 0), length)
    inside = table[..., max(begin, 0) : max(begin + length, 0)]
    behind = length - zeros - inside.shape[-1] if begin < points else length
    last = np.repeat(table[..., -1:], max(behind, 0), axis=-1)
    values = np.concatenate([np.zeros((*table.shape[:-1], zeros)), inside, last], axis=-1)
    if h.shape[-1] <= _MAX_WINDOW:
        windows = np.lib.stride_tricks.sliding_window_view(values, h.shape[-1], axis=-1)
        out += np.matmul(windows, h[:, None, :, None])[..., 0]
        return
    points = out.shape[-1]
    for total, channel, weights in zip(out, values, h, strict=True):
        for start, stop in _runs(weights):
            for rule in range(len(total)):
                seen = channel[rule, start : stop + points - 1]
                total[rule] += np.convolve(seen, weights[start:stop][::-1], "valid")


def _runs(h: np.ndarray) -> list[tuple[int, int]]:
    """Return where weights begin and end: all of them, or each run between two wide gaps."""
    some = np.flatnonzero(h)
    wide = np.flatnonzero(np.diff(some) > _GAP)
    if not len(wide):
        return [(0, len(h))] if len(some) else []
    starts, stops = some[np.r_[0, wide + 1]], some[np.r_[wide, -1]] + 1
    return list(zip(starts.tolist(), stops.tolist(), strict=True))


def ends_of(seen: np.ndarray, margin: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and the last place along each row that is seen, and a margin around them."""
    last = seen.shape[1] - 1
    first = np.maximum(seen.argmax(axis=1) - margin, 0)
    return first, np.minimum(last + margin - seen[:, ::-1].argmax(axis=1), last)


def narrowed(
    low: np.ndarray,
    high: np.ndarray,
    log_size: Callable[[np.ndarray], np.ndarray],
    *,
    depth: float,
    points: int = 33,
    looks: int = 3,
) -> tuple[np.ndarray, np.ndarray]:
    """Return ends between which all but e^(−depth) of an integrand of one hump lies.

    Args:
        low: places that nothing is below, [rows].
        high: places that nothing is above, [rows].
        log_size: places [rows, points] -> the log of the integrand there.
        depth: e-folds below its largest value down to which it counts.
        points: of a look.
        looks: how often it is looked at, each time between the ends found before.
    """
    # Each look zooms in up to 16 times (33 points, a place of margin at either side), until the
    # hump fills the range.
    rows = np.arange(len(low))
    for _ in range(looks):
        at = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, points)
        size = log_size(at)
        first, last = ends_of(size > size.max(axis=1, keepdims=True) - depth)
        low, high = at[rows, first], at[rows, last]
    return low, high


def hyperbola(bend: float, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the upper half of a contour through 0, and its dz/i du for both halves.

    The contour rises from the real axis and leans to the left by an angle, so that e^z falls along
    it. An integrand that is real on the real axis has conjugate values on the lower half: the sum
    of both is twice the real part on the upper one.

    Args:
        bend: the angle.
        u: the parameter, ascending from 0.
    """
    # z = sin b − sin(b − iu) in units of the width: its asymptotes are the rays of angle π/2 + b,
    # and as a map of the u-plane it is analytic, which the trapezoidal rule's convergence needs.
    sine, cosine = math.sin(bend), math.cos(bend)
    along = sine * (1 - np.cosh(u)) + 1j * cosine * np.sinh(u)
    turn = (-sine * np.sinh(u) + 1j * cosine * np.cosh(u)) / 1j
    turn[0] *= 0.5  # the point on the axis stands for both halves
    return along, turn


def inverse_power_rule(power: float, most: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return w, v and weights of 1/Y^k = ∫₀^∞ v^(k−1) e^(−vY) dv/Γ(k) for 1/most ≤ Y ≤ 1.

    With v = e^(w − e^(−w)) the integrand falls doubly exponentially towards v = 0, and the
    trapezoidal rule over w converges exponentially.
    """
    # Measured for Y from 1e-6 to 1: at this step the rule is right to 1e-15, at twice the step to
    # 7e-8, which is what bounds the laws that are made of it.
    step = 0.25
    w = np.arange(-4.25, math.log(40 * most) + step, step)
    v = np.exp(w - np.exp(-w))
    return w, v, v**power * (1 + np.exp(-w)) / math.gamma(power) * step


def normal_points(steepness: float, far: float, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Return points of a standard normal z and their weights.

    Args:
        steepness: c ≥ 0 of the e^(cz) that the integrand is made of.
        far: the last point.
        step: of u.
    """
    if steepness == 0:
        return np.zeros(1), np.ones(1)
    # e^(−t e^(cz)) needs c·z as fine as u. For a small c the density alone decides, of which a step
    # of 0.4, `_MOST_OF_STEP` times that of u, loses e^(−2π²/0.16): far below rounding.
    h = step * min(_MOST_OF_STEP, 1 / steepness)
    z = h * np.arange(-math.ceil(far / h), math.ceil(far / h) + 1)
    return z, h * np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
