"""The exact law of maps with a threshold, of n independent scores: Kac-Rice and one contour.

It holds for powers q ≥ 1, orders α from 1 to 2: `ThresholdMap.window` uses that x^q is convex, and
`ThresholdMap.bend` that h grows from an angle of π/2 + qπ/4 ≥ 3π/4 on.

In standard deviations of the scores, a map of order α = 1 + 1/q gives the excesses
x_j = (ε_j − t)₊ of normal ε_j the weights p = (x/c)^q with c = q/γ; the threshold t solves Σp = 1.
There |dΣp/dt| = Σp′ with p′ = (q/c)(x/c)^(q−1), so that E F = ∫ dt E[F · Σp′ · δ(Σp − 1)] for any
function F of the weights (Kac-Rice). The δ is an inverse Laplace transform,

    E F = ∫ dt (1/2πi) ∫ dz e^z E[F · Σp′ · e^(−zΣp)],

and over independent keys the last mean is a product. With the means over one key

    h = E e^(−zp),    g_k = E[p^k p′ e^(−zp); ε > t],    m_k = E[p^k e^(−zp); ε > t],

the integrands of 1, of the number K of keys with a weight, and of Y₂ = Σp² are

    1   ->  n g₀ h^(n−1)
    K   ->  n g₀ h^(n−1) + n(n−1) m₀ g₀ h^(n−2)
    Y₂  ->  n g₂ h^(n−1) + n(n−1) m₂ g₀ h^(n−2).

The contour is a hyperbola through the saddle point of the first, on which everything decays like
e^(−|z|). Both rules are trapezoidal; the bound holds twice the step of either, and how far the
first line is from 1. No published form of this law was found.

A `ThresholdMap` says what the means over one key are: `sparsemax` and `entmax` have three of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sparsity.exact_law.integration import hyperbola, narrowed, refuse_unresolved, relative_gap
from sparsity.quantities.base import clip_to_range
from sparsity.special import ndtri_exp

CONTOUR_STEP = 0.06  # of the hyperbola's parameter; the bound holds the rule of 0.12
REACH = 5.4  # of it: at a bend of π/8 e^z of a contour of width 1 is below e^(−42) there
DEPTH = 42.0  # e-folds of the density of t down to which it counts


class KeyMeans(NamedTuple):
    """Means over one score, of its weight p and its slope p′ at a threshold.

    Args:
        above: m₀ = E[e^(−zp); ε > t].
        slope: g₀ = E[p′ e^(−zp); ε > t].
        square: m₂.
        square_slope: g₂.
        log_all: log h.
        all: h = E e^(−zp), the scores under the threshold with it.
    """

    above: Any
    slope: Any
    square: Any
    square_slope: Any
    log_all: Any
    all: Any


class Place(NamedTuple):
    """Thresholds at which the integrand of rows is looked at, and the contour of each.

    Args:
        t: thresholds, [lengths, points].
        saddle: where the contour crosses the real axis.
        width: of the integrand along the imaginary axis there.
        log_size: of the integrand there.
    """

    t: np.ndarray
    saddle: np.ndarray
    width: np.ndarray
    log_size: np.ndarray


class ThresholdMap:
    """A map with a threshold, by what the means over one key are.

    Attributes:
        name: of the map, in refusals.
        gamma: the spread of the scores.
        q: the power of an excess in its weight.
        c: its unit: the excess of a key that has all the weight.
        total: what Σp is at the threshold, in the unit that z has here.
        bend: the angle by which the contour leans to the left, below the qπ/4 from which on h
            grows. A smaller one falls more slowly, a larger one leaves less room for the
            trapezoidal rule: π/8 is halfway at q = 1.
        points: thresholds of a rule, odd: the rule of twice the step has both ends.
        bisections: of a saddle point, to about 1e-6 of the coordinate's range.
        rounding: of E K and E Y₂, relative, [2, 1].
        held: numbers of an array at once.
    """

    name: str
    gamma: float
    q: float
    c: float
    total: float = 1.0
    bend: float = math.pi / 8
    points = 161
    bisections = 24
    rounding = np.array([[1e-11], [1e-11]])
    held = 2**16

    def means(self, t: np.ndarray, z: np.ndarray) -> KeyMeans:
        """Return the means over one key at thresholds and complex arguments."""
        raise NotImplementedError

    def means_on_axis(self, t: np.ndarray, z: np.ndarray) -> tuple[KeyMeans, Any, Any]:
        """Return the means over one key at real arguments, and m₁ and g₁ besides."""
        raise NotImplementedError

    def bracket(self, t: np.ndarray, n: np.ndarray) -> tuple[Any, Any, Callable[[Any], Any]]:
        """Return the ends of a coordinate between which the saddle points lie, and z of it."""
        raise NotImplementedError

    def all_in(self, n: np.ndarray) -> np.ndarray:
        """Tell in rows of which lengths every key has a weight, nearly surely."""
        raise NotImplementedError

    def means_all_in(self, n: np.ndarray) -> np.ndarray:
        """Return E K and E Y₂ of rows of which every key has a weight, [2, lengths]."""
        raise NotImplementedError

    def growth(
        self, t: np.ndarray, z: np.ndarray, n: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return z + log g₀ + (n−1) log h on the real axis, its first and second derivative."""
        means, first, first_slope = self.means_on_axis(t, z)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # Of a mean of e^(−zp) the derivative of the log is minus a mean of p, its second one a
            # variance of p, under the weight e^(−zp).
            one, all_ = first_slope / means.slope, first / means.all
            value = z * self.total + np.log(means.slope) + (n - 1) * means.log_all
            curvature = means.square_slope / means.slope - one**2
            curvature = curvature + (n - 1) * (means.square / means.all - all_**2)
        return value, self.total - one - (n - 1) * all_, curvature

    def saddles(self, t: np.ndarray, n: np.ndarray) -> np.ndarray:
        """Return the saddle points of the integrand, by bisection of its slope.

        The contour may lie anywhere; through the saddle nothing cancels on it.
        """
        # log E e^(−zp) is convex in z: the slope rises, and crosses zero once.
        # Bisection, as all thresholds and lengths take the same number of steps, in one array, and
        # need no start: where the slope is not a number it counts as falling.
        low, high, z_of = self.bracket(t, n)
        for _ in range(self.bisections):
            middle = 0.5 * (low + high)
            falls = ~(self.growth(t, z_of(middle), n)[1] >= 0)
            low, high = np.where(falls, middle, low), np.where(falls, high, middle)
        return z_of(high)

    def look(self, t: np.ndarray, n: np.ndarray) -> Place:
        """Return the contours through the saddle points, and the density of t to leading order."""
        z = self.saddles(t, n)
        value, _, curvature = self.growth(t, z, n)
        # Laplace's method: e^value over the root of the curvature, good to a factor, is all that
        # the ends of t need.
        curvature = np.where(curvature > 0, curvature, self.total**2)
        size = value - 0.5 * np.log(curvature)
        return Place(t, z, curvature**-0.5, np.where(np.isfinite(size), size, -np.inf))

    def window(self, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return ends between which the threshold of rows of n [lengths, 1] lies, nearly surely."""
        m = n[:, 0]
        # n(mean − t)^q ≤ Σ(ε − t)₊^q = c^q ≤ n(max − t)^q, and max − c ≤ t.
        even = self.c * m ** (-1 / self.q)
        low = np.maximum(-10 / np.sqrt(m) - even, ndtri_exp(-DEPTH / m) - self.c)
        high = -ndtri_exp(-DEPTH - np.log(m)) - even
        return narrowed(low, high, lambda t: self.look(t, n).log_size, depth=DEPTH)

    def places(self, n: np.ndarray) -> Place:
        """Return thresholds of rows of n [lengths, 1], and the contour of each."""
        return self.look(np.linspace(*self.window(n), self.points, axis=1), n)

    def contour(self, place: Place) -> tuple[np.ndarray, np.ndarray]:
        """Return the points z of the contour of each threshold, and dz/πi of both halves over du.

        Both are [lengths, points, nodes].
        """
        along, turn = hyperbola(self.bend, np.arange(0.0, REACH, CONTOUR_STEP))
        width = place.width[..., None]
        return place.saddle[..., None] + width * along, turn * width / math.pi

    def integrands(self, place: Place, n: np.ndarray) -> np.ndarray:
        """Return the integrands of 1, K and Y₂, real, [3, lengths, thresholds, contour]."""
        (z, share), m = self.contour(place), n[..., None]
        means = self.means(place.t[..., None], z)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            # All keys but one have h; a pair with another key takes its means in place of one h.
            others = share * np.exp(z * self.total + (m - 1) * means.log_all + np.log(m))
            pair = (m - 1) * means.slope / means.all
            size = means.slope + means.above * pair
            square = means.square_slope + means.square * pair
            body = np.stack([(factor * others).real for factor in (means.slope, size, square)])
        return np.where(np.isfinite(body), body, 0.0)  # far out, where h or e^z is nothing

    def support_and_participation(self, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return E K and E Y₂ of rows of n ≥ 1, [2, lengths], and bounds on their relative errors.

        Raises:
            InputError: a spread at which the law is not resolved.
        """
        value = self.means_all_in(n)
        error = np.where(n == 1, 0.0, np.full(value.shape, 1e-15))
        some = (n > 1) & ~self.all_in(n)
        if some.any():
            value[:, some], error[:, some] = self._by_integral(n[some, None])
        refuse_unresolved(error, self.gamma, self.name)
        return value, error

    @np.errstate(all="ignore")  # far out, where nothing falls
    def _by_integral(self, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the same of rows of n > 1, [lengths, 1], by the double integral."""
        sums = integrate(self.places(n), n, self.integrands, self.held)
        total, value, m = sums[0, 0], sums[0, 1:], n[:, 0]
        error = relative_gap(value, *sums[1:, 1:]) + np.abs(total - 1) + self.rounding
        one = np.ones(len(m))
        return clip_to_range(value, error, [[one, 1 / m], [m, one]]), error


def integrate(
    place: Place, n: np.ndarray, integrands: Callable[[Place, np.ndarray], np.ndarray], held: int
) -> np.ndarray:
    """Return sums of the rule, of twice its step in t, and in u, [3, channels, lengths].

    Args:
        place: where the thresholds and the contour lie, along lengths.
        n: row lengths, [lengths, 1].
        integrands: (place, n) -> [channels, lengths, thresholds, contour].
        held: numbers of an array at once.
    """
    # Doubling either step takes every other point of it: no integrand is computed twice. The points
    # at the ends are next to nothing, and `points` is odd so that both rules have them.
    size = max(1, held // (place.t.shape[1] * math.ceil(REACH / CONTOUR_STEP)))
    sums = []
    for start in range(0, len(n), size):
        part = slice(start, start + size)
        body = integrands(Place(*(x[part] for x in place)), n[part])
        coarse = (2 * body[:, :, ::2].sum(axis=(2, 3)), 2 * body[..., ::2].sum(axis=(2, 3)))
        sums.append(np.stack([body.sum(axis=(2, 3)), *coarse]))
    return np.concatenate(sums, axis=2) * (place.t[:, 1] - place.t[:, 0]) * CONTOUR_STEP
