"""Rectangles of the complex plane, scaled: bounds on a function all around a segment of the axis.

A kernel that stays bounded on such a rectangle is analytic in it, and a quadrature rule on the
segment then has a proven error. NaN bounds mean that nothing is known: a pole or a branch may lie
inside.

Sums, products, e^z, log z, sin and cos have ranges that follow from those of the real and the
imaginary part. The other functions are bounded by the mean value theorem: over a rectangle R with
centre c and half diagonal r, |f(z) − f(c)| ≤ r·max |f′| on R, since R holds the line from c to z.
Each of them needs a bound on its slope over R; where none is known (across a cut), it is NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sparsity import special
from sparsity.kernels.numeric.intervals import (
    OUTWARD,
    cos_range,
    product,
    sin_range,
    square,
    sum_of_products,
    widened,
)
from sparsity.kernels.numeric.points import EPS, FAR, LARGE, unscaled

_TWO_OVER_ROOT_PI = 2 / np.sqrt(np.pi)  # slope of erf at 0


def _outward(
    re: tuple[Any, Any], im: tuple[Any, Any], k: Any = 0.0, by: float = OUTWARD
) -> ComplexBox:
    """Return a box from the ranges of its real and imaginary part, rounded outward."""
    return ComplexBox(*widened(*re, by), *widened(*im, by), k)


def _disc(x: Any, y: Any, radius: Any, k: Any = 0.0) -> ComplexBox:
    """Return the square around a disc: a rectangle cannot say more of it."""
    return _outward((x - radius, x + radius), (y - radius, y + radius), k)


def _exponential(re: tuple[Any, Any], im: tuple[Any, Any], k: Any) -> ComplexBox:
    """Return e^(x + iy), to be scaled by e^k, for ranges of x and y: e^x cos y + i e^x sin y."""
    size = np.exp(re[0]), np.exp(re[1])
    return _outward(product(*size, *cos_range(*im)), product(*size, *sin_range(*im)), k)


class ComplexBox(NamedTuple):
    """Rectangles ([lo, hi] + i[ilo, ihi])·e^k.

    Args:
        lo: left ends.
        hi: right ends.
        ilo: lower ends.
        ihi: upper ends.
        k: exponents of e; 0.0 where all of them are zero.
    """

    lo: Any
    hi: Any
    ilo: Any = 0.0
    ihi: Any = 0.0
    k: Any = 0.0

    @staticmethod
    def exact(x: Any, error: Any = 0.0) -> ComplexBox:
        """Return the real numbers x, known to within an error."""
        return ComplexBox(x - error, x + error)

    def _size(self) -> Any:
        """Return the largest |z| over e^k."""
        wide = np.maximum(np.abs(self.lo), np.abs(self.hi))
        return np.hypot(wide, np.maximum(np.abs(self.ilo), np.abs(self.ihi)))

    def _least(self) -> Any:
        """Return the least |z| over e^k."""
        return np.hypot(*(np.sqrt(square(*x)[0]) for x in (self[:2], self[2:4])))

    def _in_range(self) -> ComplexBox:
        """Return the same, with its size back between 1/LARGE and LARGE."""
        size = self._size()
        far = ((size > LARGE) | ((size < 1 / LARGE) & (size > 0))) & np.isfinite(size)
        if not np.any(far):
            return self
        shift = np.where(far, np.rint(np.log(np.where(far, size, 1.0))), 0.0)
        factor = np.exp(-shift)
        lo, hi, ilo, ihi = (x * factor for x in self[:4])
        return _outward((lo, hi), (ilo, ihi), self.k + shift)

    def _raised(self, rise: Any) -> ComplexBox:
        """Return the rectangles times e^rise, k left out; an underflow widens them by 1e-300."""
        factor = np.exp(np.minimum(rise, 800.0))
        lost = np.where((factor == 0) & (rise > -np.inf), 1e-300, 0.0)
        lo, hi, ilo, ihi = (np.where(x == 0, 0.0, x * factor) for x in self[:4])
        return _outward((lo - lost, hi + lost), (ilo - lost, ihi + lost))

    def plain(self) -> ComplexBox:
        """Return the same with k = 0, infinite where that is beyond float64."""
        return self if unscaled(self) else self._raised(self.k)

    def _disc_around(self) -> tuple[Any, Any, Any]:
        """Return the centres and radii of discs around the rectangles."""
        # The centres are rounded, by half an ulp of themselves: beside wide rectangles the radius
        # covers that, beside narrow ones what the callers add to the value at the centre.
        x, y = (self.lo + self.hi) / 2, (self.ilo + self.ihi) / 2
        return x, y, np.hypot(self.hi - self.lo, self.ihi - self.ilo) / 2 * (1 + 8 * EPS)

    def plus(self, c: Any) -> ComplexBox:
        """Add exact real numbers."""
        return self + ComplexBox(c, c)

    def times(self, c: Any) -> ComplexBox:
        """Multiply by exact real numbers of moderate size."""
        return _outward(product(self.lo, self.hi, c, c), product(self.ilo, self.ihi, c, c), self.k)

    def __add__(self, other: ComplexBox) -> ComplexBox:  # type: ignore[override]
        one, two, top = self, other, 0.0
        if not unscaled(self, other):  # at the larger of the two scales
            ks = [np.where(x._size() == 0, -np.inf, x.k) for x in (self, other)]
            top = np.maximum(*ks)
            top = np.where(np.isfinite(top), top, 0.0)
            one, two = (x._raised(k - top) for x, k in zip((self, other), ks, strict=True))
        im = one.ilo + two.ilo, one.ihi + two.ihi
        return _outward((one.lo + two.lo, one.hi + two.hi), im, top)

    def __mul__(self, other: ComplexBox) -> ComplexBox:  # type: ignore[override]
        self, other = self._in_range(), other._in_range()
        ac, bd = product(*self[:2], *other[:2]), product(*self[2:4], *other[2:4])
        ad, bc = product(*self[:2], *other[2:4]), product(*self[2:4], *other[:2])
        re, im = sum_of_products(ac, (-bd[1], -bd[0])), sum_of_products(ad, bc)
        return ComplexBox(*re, *im, self.k + other.k)._in_range()

    def square(self) -> ComplexBox:
        """Return z²: narrower than z·z, since both factors are the same."""
        self = self._in_range()
        a, b = square(self.lo, self.hi), square(self.ilo, self.ihi)
        ab = product(self.lo, self.hi, self.ilo, self.ihi)
        re, im = sum_of_products(a, (-b[1], -b[0])), widened(2 * ab[0], 2 * ab[1])
        return ComplexBox(*re, *im, 2 * self.k)._in_range()

    def reciprocal(self) -> ComplexBox:
        """Return 1/z: of the disc around z, whose image is a disc too; NaN where that holds zero.

        A disc around c of radius r goes to one around c̄/(|c|² − r²) of radius r/(|c|² − r²).
        """
        # As a product of differences |c|² − r² keeps its digits; it is too small rather than too
        # large, since r is rounded up. The far end of the disc then moves outward, and the near end
        # moves inward by less than the 1e-8 that is added to the radius.
        x, y, radius = self._disc_around()
        gap = (np.hypot(x, y) - radius) * (np.hypot(x, y) + radius)
        gap = np.where(np.hypot(x, y) > radius * (1 + 1e-9), gap, np.nan)
        return _disc(x / gap, -y / gap, radius / gap * (1 + 1e-8), -self.k)._in_range()

    def exp(self) -> ComplexBox:
        """Return e^z, scaled by its right end."""
        z = self.plain()
        # Scaled by the right end, where |e^z| is largest: the left end may underflow to 0.
        far = (np.abs(z.hi) > FAR) & np.isfinite(z.hi)
        k = np.where(far, np.clip(np.rint(z.hi), -1e300, 1e300), 0.0) if np.any(far) else 0.0
        return _exponential((z.lo - k, np.minimum(z.hi - k, 800.0)), (z.ilo, z.ihi), k)

    def expm1(self) -> ComplexBox:
        """Return e^z − 1 for |z| of order one: e^x cos y − 1 = expm1 x · cos y − 2 sin²(y/2)."""
        z = self.plain()
        re = product(np.expm1(z.lo), np.expm1(z.hi), *cos_range(z.ilo, z.ihi))
        # cos y − 1 as −2 sin²(y/2) keeps its digits for small y, where the sum would cancel.
        drop = square(*sin_range(z.ilo / 2, z.ihi / 2))
        re = widened(re[0] - 2 * drop[1], re[1] - 2 * drop[0], 8 * EPS)
        im = product(np.exp(z.lo), np.exp(z.hi), *sin_range(z.ilo, z.ihi))
        return ComplexBox(*re, *widened(*im, 8 * EPS))._or_itself(self)

    def _is_tiny(self) -> Any:
        size = self._size()
        return self.k + np.log(np.where(size == 0, 1.0, size)) < -80.0

    def _or_itself(self, z: ComplexBox) -> ComplexBox:
        """Return these values of an f(z) = z + O(z²); z itself where z² is nothing beside it."""
        tiny = z._is_tiny()
        if not np.any(tiny):
            return self
        return ComplexBox.where(tiny, z._widened(4 * EPS * z._size()), self)

    def _widened(self, slack: Any) -> ComplexBox:
        ends = self.lo - slack, self.hi + slack, self.ilo - slack, self.ihi + slack
        return ComplexBox(*ends, self.k)

    def log(self) -> ComplexBox:
        """Return the natural logarithm; NaN where z reaches the cut (−∞, 0]."""
        clear = (self.lo > 0) | (self.ilo > 0) | (self.ihi < 0)
        # Off the cut the angle has no extreme inside a rectangle: its corners bound it.
        angle = np.stack([np.arctan2(y, x) for y in self[2:4] for x in self[:2]])
        re = np.log(self._least()) + self.k, np.log(self._size()) + self.k
        slack = np.where(clear, 4 * EPS * (1 + np.abs(self.k)), np.nan)
        logarithm = _outward(re, (angle.min(axis=0), angle.max(axis=0)), by=8 * EPS)
        return logarithm._widened(slack)

    def log1p(self) -> ComplexBox:
        """Return ln(1 + z) for |z| < 1/2: ½ ln(1 + (2x + x² + y²)) and the angle of 1 + z."""
        z = self.plain()
        flat, high = square(z.ilo, z.ihi)
        left, right = z.lo * (2 + z.lo), z.hi * (2 + z.hi)  # rises for x > −1
        clear = np.where(z.lo > -0.99, 1.0, np.nan)
        ends = np.stack([np.arctan2(y, 1 + x) for y in (z.ilo, z.ihi) for x in (z.lo, z.hi)])
        re = np.log1p(left + flat) / 2, np.log1p(right + high) / 2
        logarithm = _outward(re, (ends.min(axis=0), ends.max(axis=0)), by=8 * EPS)
        return ComplexBox(*(x * clear for x in logarithm[:4]))._or_itself(self)

    def _wave(self, cosine: bool) -> ComplexBox:
        """Return cos x cosh y − i sin x sinh y, or sin x cosh y + i cos x sinh y."""
        z = self.plain()
        sine = np.sinh(z.ilo), np.sinh(z.ihi)
        # cosh is even and grows with |y|: its range is that over the least and the largest y².
        rise = [np.cosh(np.sqrt(end)) for end in square(z.ilo, z.ihi)]
        real, imaginary = cos_range(z.lo, z.hi), sin_range(-z.hi, -z.lo)
        if not cosine:
            real, imaginary = sin_range(z.lo, z.hi), real
        return _outward(product(*real, *rise), product(*imaginary, *sine), by=8 * EPS)

    def sin(self) -> ComplexBox:
        return self._wave(cosine=False)._or_itself(self)

    def cos(self) -> ComplexBox:
        return self._wave(cosine=True)

    def _by_slope(self, value: Callable[[Any], Any], steepest: Any) -> ComplexBox:
        """Return f over these (plain) rectangles by the mean value theorem.

        Args:
            value: f at complex numbers. What it is off by itself, and by the rounding of a centre
                (|z f′| is at most of the order of |f| for those in use), is taken as 16 EPS·|f|.
            steepest: the largest |f′| on each rectangle.
        """
        x, y, radius = self._disc_around()
        at = value(x + 1j * y)
        return _disc(at.real, at.imag, steepest * radius + 16 * EPS * np.abs(at))

    def erf(self) -> ComplexBox:
        """Return erf z, of slope 2/√π·e^(−z²): |e^(−z²)| = e^(y² − x²), at the nearest x."""
        z = self.plain()
        near = np.sqrt(square(z.lo, z.hi)[0])
        exponent = square(z.ilo, z.ihi)[1] - near**2
        box = z._by_slope(special.erf, _TWO_OVER_ROOT_PI * np.exp(exponent))
        return ComplexBox.where(self._is_tiny(), self.times(_TWO_OVER_ROOT_PI), box)

    def erfcx(self) -> ComplexBox:
        """Return e^(z²) erfc(z) for Re z ≥ 0: |slope| is largest at the left end of the real part.

        erfcx z = 2/√π ∫ e^(−t² − 2zt) dt over t > 0, so |erfcx′ z| ≤ |erfcx′(Re z)|, which falls;
        the difference that makes it loses its digits beyond 10⁴, where 1/(√π x²) bounds it.
        """
        z = self.plain()
        left = np.where(z.lo >= 0, z.lo, np.nan)
        slope = np.abs(_TWO_OVER_ROOT_PI - 2 * left * special.erfcx(left)) * (1 + 1e-6)
        steepest = np.where(left > 1e4, 1 / (np.sqrt(np.pi) * left**2), slope)
        return z._by_slope(lambda c: special.wofz(1j * c), steepest)

    def atan(self) -> ComplexBox:
        """Return atan z, of slope 1/(1 + z²); NaN where z reaches the cuts beyond ±i."""
        z = self.plain()
        beside = (z.lo > 0) | (z.hi < 0)  # of the cuts, which run from ±i along the imaginary axis
        free = np.where(beside | (np.abs(z.ilo) < 1) & (np.abs(z.ihi) < 1), 1.0, np.nan)
        steepest = z.square().plus(1.0).reciprocal()._size()
        return z._by_slope(np.arctan, free * steepest)._or_itself(self)

    def power(self, p: float) -> ComplexBox:
        """Return z^p for a fixed real p, cut along (−∞, 0]."""
        log = ComplexBox(*self[:4]).log()
        re, im = product(log.lo, log.hi, p, p), product(log.ilo, log.ihi, p, p)
        power = _exponential(re, im, p * self.k)
        return power._widened(2 * EPS * np.abs(p * self.k) * power._size())._in_range()

    def floor(self, step: Any) -> ComplexBox:
        """Return the largest whole number below, which is known; NaN elsewhere."""
        return ComplexBox(step, step)

    def sign(self) -> Any:
        """Return −1 or 1 where the real part is that or zero throughout; 0 elsewhere."""
        return np.where(self.lo >= 0, 1.0, np.where(self.hi <= 0, -1.0, 0.0))

    def magnitude(self) -> Any:
        """Return the largest |z|; ∞ where nothing is known."""
        size = self.plain()._size()
        return np.where(np.isnan(size), np.inf, size)

    def absolute(self, sign: Any) -> ComplexBox:
        """Return ±z, which continues |x| from where its sign is known; NaN elsewhere."""
        return self.times(np.where(sign == 0, np.nan, sign))

    def centre(self) -> Any:
        """Return the middles on the real axis, 0 where there is none."""
        z = self.plain()
        middle = (z.lo + z.hi) / 2
        return np.where(np.isfinite(middle), middle, 0.0)

    def log_width(self) -> Any:
        """Return the log of the diameter; ∞ where nothing is known."""
        size = np.log(2 * self._disc_around()[2]) + self.k
        return np.where(np.isnan(size), np.inf, size)

    def hull(self, other: ComplexBox) -> ComplexBox:
        """Return NaN: where a branch is undecided, no analytic function continues both sides."""
        unknown = np.full(np.shape(self._size() + other._size()), np.nan)
        return ComplexBox(unknown, unknown, unknown, unknown)

    @staticmethod
    def where(condition: Any, one: ComplexBox, other: ComplexBox) -> ComplexBox:
        """Choose elementwise."""
        if not np.any(condition):
            return other
        if np.all(condition):
            return one
        ends = [np.where(condition, x, y) for x, y in zip(one[:4], other[:4], strict=True)]
        k = 0.0 if unscaled(one, other) else np.where(condition, one.k, other.k)
        return ComplexBox(ends[0], ends[1], ends[2], ends[3], k)

    def log_bounds(self) -> tuple[Any, Any, Any]:
        """Return log of the least and the largest |z|, and the largest |arg ±z|; NaN: unknown.

        The angle is that between z and the real axis: |f| continues as f or as −f.
        """
        small = self._least()
        # The angle is bounded on either side of the imaginary axis, not across: f may vanish there.
        side = np.where(self.lo > 0, 1.0, np.where(self.hi < 0, -1.0, np.nan))
        least = np.minimum(np.abs(self.lo), np.abs(self.hi))
        angle = np.arctan2(np.maximum(np.abs(self.ilo), np.abs(self.ihi)), least) * np.abs(side)
        low = np.where(small > 0, np.log(np.where(small > 0, small, 1.0)), -np.inf)
        return low + self.k, np.log(self._size()) + self.k, angle
