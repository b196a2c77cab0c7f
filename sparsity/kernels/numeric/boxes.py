"""Rectangles of the complex plane, scaled: bounds on a function all around a segment of the axis.

A kernel that stays bounded on such a rectangle is analytic in it, and a quadrature rule on the
segment then has a proven error. NaN bounds mean that nothing is known: a pole or a branch may lie
inside.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import special

from sparsity.kernels.numeric.points import EPS
from sparsity.kernels.numeric.ranges import added, cos_range, product, sin_range, square, widened

_LARGE = 1e60
_FAR = 100.0


def _polar(log_low: Any, log_high: Any, low: Any, high: Any, k: Any) -> ComplexBox:
    """e^(re + i·im) of ranges of re and im, over e^k."""
    least, most = np.exp(log_low), np.exp(log_high)
    lo, hi = product(least, most, *cos_range(low, high))
    ilo, ihi = product(least, most, *sin_range(low, high))
    return ComplexBox(*widened(lo, hi), *widened(ilo, ihi), k)


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
        """The real numbers x, known to within an error."""
        return ComplexBox(x - error, x + error)

    @staticmethod
    def _disc(x: Any, y: Any, radius: Any, k: Any = 0.0) -> ComplexBox:
        return ComplexBox(*widened(x - radius, x + radius), *widened(y - radius, y + radius), k)

    def _size(self) -> Any:
        wide = np.maximum(np.abs(self.lo), np.abs(self.hi))
        return np.hypot(wide, np.maximum(np.abs(self.ilo), np.abs(self.ihi)))

    def _settled(self) -> ComplexBox:
        size = self._size()
        far = ((size > _LARGE) | ((size < 1 / _LARGE) & (size > 0))) & np.isfinite(size)
        if not np.any(far):
            return self
        shift = np.where(far, np.rint(np.log(np.where(far, size, 1.0))), 0.0)
        factor = np.exp(-shift)
        lo, hi, ilo, ihi = (x * factor for x in self[:4])
        return ComplexBox(*widened(lo, hi), *widened(ilo, ihi), self.k + shift)

    def plain(self) -> ComplexBox:
        """The same with k = 0, infinite where that is beyond float64."""
        if np.ndim(self.k) == 0 and self.k == 0:
            return self
        return self._at(self.k)

    def _centre(self) -> tuple[Any, Any, Any]:
        """Centres and radii of discs around the rectangles."""
        x, y = (self.lo + self.hi) / 2, (self.ilo + self.ihi) / 2
        return x, y, np.hypot(self.hi - self.lo, self.ihi - self.ilo) / 2 * (1 + 8 * EPS)

    def plus(self, c: Any) -> ComplexBox:
        """Add exact real numbers."""
        return self + ComplexBox(c, c)

    def times(self, c: Any) -> ComplexBox:
        """Multiply by exact real numbers of moderate size."""
        re, im = product(self.lo, self.hi, c, c), product(self.ilo, self.ihi, c, c)
        return ComplexBox(*widened(*re), *widened(*im), self.k)

    def __add__(self, other: ComplexBox) -> ComplexBox:  # type: ignore[override]
        if all(np.ndim(x.k) == 0 and x.k == 0 for x in (self, other)):
            re = widened(self.lo + other.lo, self.hi + other.hi)
            return ComplexBox(*re, *widened(self.ilo + other.ilo, self.ihi + other.ihi))
        ks = [np.where(x._size() == 0, -np.inf, x.k) for x in (self, other)]
        top = np.maximum(*ks)
        top = np.where(np.isfinite(top), top, 0.0)
        one, two = (x._at(k - top) for x, k in zip((self, other), ks, strict=True))
        re = widened(one.lo + two.lo, one.hi + two.hi)
        return ComplexBox(*re, *widened(one.ilo + two.ilo, one.ihi + two.ihi), top)

    def _at(self, rise: Any) -> ComplexBox:
        """The rectangles times e^rise, k left out; what underflows leaves a trace."""
        factor = np.exp(np.minimum(rise, 800.0))
        lost = np.where((factor == 0) & (rise > -np.inf), 1e-300, 0.0)
        lo, hi, ilo, ihi = (np.where(x == 0, 0.0, x * factor) for x in self[:4])
        return ComplexBox(*widened(lo - lost, hi + lost), *widened(ilo - lost, ihi + lost))

    def __mul__(self, other: ComplexBox) -> ComplexBox:  # type: ignore[override]
        self, other = self._settled(), other._settled()
        ac, bd = product(*self[:2], *other[:2]), product(*self[2:4], *other[2:4])
        ad, bc = product(*self[:2], *other[2:4]), product(*self[2:4], *other[:2])
        re, im = added(ac, (-bd[1], -bd[0])), added(ad, bc)
        return ComplexBox(*re, *im, self.k + other.k)._settled()

    def square(self) -> ComplexBox:
        self = self._settled()
        a, b = square(self.lo, self.hi), square(self.ilo, self.ihi)
        ab = product(self.lo, self.hi, self.ilo, self.ihi)
        im = widened(2 * ab[0], 2 * ab[1])
        return ComplexBox(*added(a, (-b[1], -b[0])), *im, 2 * self.k)._settled()

    def reciprocal(self) -> ComplexBox:
        """One over it: the image of the disc around it; NaN where that holds zero."""
        x, y, radius = self._centre()
        gap = (np.hypot(x, y) - radius) * (np.hypot(x, y) + radius)
        gap = np.where(np.hypot(x, y) > radius * (1 + 1e-9), gap, np.nan)
        return ComplexBox._disc(x / gap, -y / gap, radius / gap * (1 + 1e-8), -self.k)._settled()

    def exp(self) -> ComplexBox:
        """e^z, scaled by its right end."""
        z = self.plain()
        far = (np.abs(z.hi) > _FAR) & np.isfinite(z.hi)
        k = np.where(far, np.clip(np.rint(z.hi), -1e300, 1e300), 0.0) if np.any(far) else 0.0
        return _polar(z.lo - k, np.minimum(z.hi - k, 800.0), z.ilo, z.ihi, k)

    def expm1(self) -> ComplexBox:
        """Exponential minus one, for |z| of order one.

        e^x cos y − 1 = expm1(x) cos y − 2 sin²(y/2).
        """
        z = self.plain()
        cosine, half = cos_range(z.ilo, z.ihi), sin_range(z.ilo / 2, z.ihi / 2)
        re = product(np.expm1(z.lo), np.expm1(z.hi), *cosine)
        drop = square(*half)
        re = widened(re[0] - 2 * drop[1], re[1] - 2 * drop[0], 8 * EPS)
        im = product(np.exp(z.lo), np.exp(z.hi), *sin_range(z.ilo, z.ihi))
        return ComplexBox(*re, *widened(*im, 8 * EPS))._or_tiny(self)

    def _tiny(self) -> Any:
        size = self._size()
        return self.k + np.log(np.where(size == 0, 1.0, size)) < -80.0

    def _or_tiny(self, z: ComplexBox) -> ComplexBox:
        """Z itself, widened, where it is so small that z² is nothing beside it."""
        tiny = z._tiny()
        if not np.any(tiny):
            return self
        return ComplexBox.where(tiny, z._widened(4 * EPS * z._size()), self)

    def _widened(self, slack: Any) -> ComplexBox:
        ends = self.lo - slack, self.hi + slack, self.ilo - slack, self.ihi + slack
        return ComplexBox(*ends, self.k)

    def _least(self) -> Any:
        """The least |z|."""
        return np.hypot(*(np.sqrt(square(*x)[0]) for x in (self[:2], self[2:4])))

    def log(self) -> ComplexBox:
        """Natural logarithm; NaN where it reaches the cut (−∞, 0]."""
        clear = (self.lo > 0) | (self.ilo > 0) | (self.ihi < 0)
        angle = np.stack([np.arctan2(y, x) for y in self[2:4] for x in self[:2]])
        re = widened(np.log(self._least()) + self.k, np.log(self._size()) + self.k, 8 * EPS)
        im = widened(angle.min(axis=0), angle.max(axis=0), 8 * EPS)
        slack = np.where(clear, 4 * EPS * (1 + np.abs(self.k)), np.nan)
        return ComplexBox(*re, *im)._widened(slack)

    def log1p(self) -> ComplexBox:
        """Logarithm of one plus z, for |z| < 1.

        ½ log1p(2x + x² + y²) + i·atan2(y, 1 + x).
        """
        z = self.plain()
        flat, high = square(z.ilo, z.ihi)
        left, right = z.lo * (2 + z.lo), z.hi * (2 + z.hi)  # rises for x > −1
        clear = np.where(z.lo > -0.99, 1.0, np.nan)
        re = widened(np.log1p(left + flat) / 2, np.log1p(right + high) / 2, 8 * EPS)
        ends = np.stack([np.arctan2(y, 1 + x) for y in (z.ilo, z.ihi) for x in (z.lo, z.hi)])
        im = widened(ends.min(axis=0), ends.max(axis=0), 8 * EPS)
        return ComplexBox(*(x * clear for x in (*re, *im)))._or_tiny(self)

    def _turned(self, cosine: bool) -> ComplexBox:
        z = self.plain()
        sine = np.sinh(z.ilo), np.sinh(z.ihi)
        rise = [np.cosh(np.sqrt(end)) for end in square(z.ilo, z.ihi)]
        if cosine:  # cos x cosh y − i sin x sinh y
            re = product(*cos_range(z.lo, z.hi), *rise)
            im = product(*sin_range(-z.hi, -z.lo), *sine)
        else:  # sin x cosh y + i cos x sinh y
            re = product(*sin_range(z.lo, z.hi), *rise)
            im = product(*cos_range(z.lo, z.hi), *sine)
        return ComplexBox(*widened(*re, 8 * EPS), *widened(*im, 8 * EPS))

    def sin(self) -> ComplexBox:
        return self._turned(False)._or_tiny(self)

    def cos(self) -> ComplexBox:
        return self._turned(True)

    def erf(self) -> ComplexBox:
        """Error function: at the centre, and its slope over the rectangle."""
        z = self.plain()
        x, y, radius = z._centre()
        near = np.sqrt(square(z.lo, z.hi)[0])
        steep = 2 / np.sqrt(np.pi) * np.exp(np.minimum(square(z.ilo, z.ihi)[1] - near**2, 700.0))
        at = special.erf(x + 1j * y)
        tiny = self.times(2 / np.sqrt(np.pi))
        found = ComplexBox._disc(at.real, at.imag, steep * radius + 16 * EPS * np.abs(at))
        return ComplexBox.where(self._tiny(), tiny, found)

    def erfcx(self) -> ComplexBox:
        """e^(z²) erfc(z) for Re z ≥ 0: |slope| is largest at the left end of the real part."""
        z = self.plain()
        x, y, radius = z._centre()
        left = np.where(z.lo >= 0, z.lo, np.nan)
        steep = 2 / np.sqrt(np.pi) - 2 * left * special.erfcx(left)
        steep = np.where(left > 1e4, 1 / (np.sqrt(np.pi) * left**2), np.abs(steep) * (1 + 1e-6))
        at = special.wofz(-y + 1j * x)
        return ComplexBox._disc(at.real, at.imag, steep * radius + 16 * EPS * np.abs(at))

    def atan(self) -> ComplexBox:
        """Arc tangent: at the centre, and its slope 1/(1 + z²) over the rectangle."""
        z = self.plain()
        x, y, radius = z._centre()
        slope = (z.square().plus(1.0)).reciprocal()._size()
        at = np.arctan(x + 1j * y)
        beside = (z.lo > 0) | (z.hi < 0)  # of the cuts, which run from ±i along the imaginary axis
        free = np.where(beside | (np.abs(z.ilo) < 1) & (np.abs(z.ihi) < 1), 1.0, np.nan)
        found = ComplexBox._disc(at.real, at.imag, free * slope * radius + 16 * EPS * np.abs(at))
        return found._or_tiny(self)

    def power(self, p: float) -> ComplexBox:
        """z^p for a fixed real p, cut along (−∞, 0]."""
        log = ComplexBox(*self[:4]).log()
        re, im = product(log.lo, log.hi, p, p), product(log.ilo, log.ihi, p, p)
        found = _polar(*re, *im, p * self.k)
        return found._widened(2 * EPS * np.abs(p * self.k) * found._size())._settled()

    def floor(self, step: Any) -> ComplexBox:
        """The largest whole number below, which is known; NaN elsewhere."""
        return ComplexBox(step, step)

    def sign(self) -> Any:
        """−1 or 1 where the real part is that or zero throughout; 0 elsewhere."""
        return np.where(self.lo >= 0, 1.0, np.where(self.hi <= 0, -1.0, 0.0))

    def magnitude(self) -> Any:
        """The largest |z|; ∞ where nothing is known."""
        size = self.plain()._size()
        return np.where(np.isnan(size), np.inf, size)

    def absolute(self, sign: Any) -> ComplexBox:
        """±z, the analytic continuation of |x| from where the sign is known; NaN elsewhere."""
        return self.times(np.where(sign == 0, np.nan, sign))

    def centre(self) -> Any:
        """Middles on the real axis, 0 where there is none."""
        z = self.plain()
        middle = (z.lo + z.hi) / 2
        return np.where(np.isfinite(middle), middle, 0.0)

    def log_width(self) -> Any:
        """Log of the diameter; ∞ where nothing is known."""
        size = np.log(2 * self._centre()[2]) + self.k
        return np.where(np.isnan(size), np.inf, size)

    def hull(self, other: ComplexBox) -> ComplexBox:
        """Nothing is known where a branch is undecided: no function continues both."""
        unknown = np.full(np.shape(self._size() + other._size()), np.nan)
        return ComplexBox(unknown, unknown, unknown, unknown)

    @staticmethod
    def where(condition: Any, one: ComplexBox, other: ComplexBox) -> ComplexBox:
        if not np.any(condition):
            return other
        if np.all(condition):
            return one
        ends = [np.where(condition, x, y) for x, y in zip(one[:4], other[:4], strict=True)]
        flat = all(np.ndim(x.k) == 0 and x.k == 0 for x in (one, other))
        k = 0.0 if flat else np.where(condition, one.k, other.k)
        return ComplexBox(ends[0], ends[1], ends[2], ends[3], k)

    def log_bounds(self) -> tuple[Any, Any, Any]:
        """Log of the least and the largest |z|, and the largest |arg ±z|; NaN: nothing known."""
        small = self._least()
        side = np.where(self.lo > 0, 1.0, np.where(self.hi < 0, -1.0, np.nan))
        least = np.minimum(np.abs(self.lo), np.abs(self.hi))
        angle = np.arctan2(np.maximum(np.abs(self.ilo), np.abs(self.ihi)), least) * np.abs(side)
        low = np.where(small > 0, np.log(np.where(small > 0, small, 1.0)), -np.inf)
        return low + self.k, np.log(self._size()) + self.k, angle
