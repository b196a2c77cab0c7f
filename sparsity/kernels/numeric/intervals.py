"""Real intervals: bounds on a function over a whole segment of the score axis.

Both ends are `Approx`, each with a scale of its own. An end is an exact number: each operation on
intervals evaluates that on points at the ends, and rounds outward by the error that it reports.
NaN ends mean that nothing is known. The ranges of products, squares and waves over plain float64
ends, which boxes need too, stand first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sparsity.kernels.numeric.points import EPS, Approx, unscaled

OUTWARD = 4 * EPS  # relative: NumPy's elementary functions err by less than 4 ulp
_INFINITY, _MINUS_INFINITY = Approx(np.float64(np.inf)), Approx(np.float64(-np.inf))


def widened(low: Any, high: Any, by: float = OUTWARD) -> tuple[Any, Any]:
    """Return the ends, a few units in the last place further out."""
    return low - by * np.abs(low), high + by * np.abs(high)


def product(a: Any, b: Any, c: Any, d: Any) -> tuple[Any, Any]:
    """Return [a, b]·[c, d], not rounded outward; 0·∞ is 0.

    An infinite end bounds numbers that are finite, each of which times zero is zero.
    """
    ends = []
    for x in (a, b):
        for y in (c, d):
            z = x * y
            if np.isnan(z).any():
                zero = ((x == 0) & ~np.isnan(y)) | ((y == 0) & ~np.isnan(x))
                z = np.where(zero, 0.0, z)
            ends.append(z)
    return functools.reduce(np.minimum, ends), functools.reduce(np.maximum, ends)


def sum_of_products(one: tuple[Any, Any], two: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the sum of two products, rounded outward by the rounding of both."""
    low, high = widened(one[0] + two[0], one[1] + two[1], 8 * EPS)
    sizes = [np.maximum(np.abs(least), np.abs(most)) for least, most in (one, two)]
    slack = OUTWARD * (sizes[0] + sizes[1])
    return low - slack, high + slack


def square(low: Any, high: Any) -> tuple[Any, Any]:
    """Return [low, high]², not rounded outward."""
    size, other = np.maximum(np.abs(low), np.abs(high)), np.minimum(np.abs(low), np.abs(high))
    least = np.where((low <= 0) & (high >= 0), 0.0, other)
    return least * least, size * size


def _wave_range(wave: Any, low: Any, high: Any, crest: float) -> tuple[Any, Any]:
    """Return the range of a sine or cosine, given one place of its crests.

    It is that between the values at the ends, unless a crest or a trough lies between them.
    """

    def may_reach(phase: float) -> Any:
        """Say where a whole turn plus a phase may lie between the ends."""
        # The slack is for the roundings of the difference and the quotient. None of 20,000 pairs of
        # neighbouring floats around crests between 10⁹ and 10¹⁶ was missed with it.
        slack, turn = EPS * np.maximum(np.abs(low), np.abs(high)), 2 * np.pi
        return np.ceil((low - slack - phase) / turn) <= np.floor((high + slack - phase) / turn)

    ends = wave(low), wave(high)
    first, last = widened(np.minimum(*ends), np.maximum(*ends), 16 * EPS)
    least = np.where(may_reach(crest - np.pi), -1.0, np.maximum(first, -1.0))
    return least, np.where(may_reach(crest), 1.0, np.minimum(last, 1.0))


def sin_range(low: Any, high: Any) -> tuple[Any, Any]:
    """Return the range of the sine over [low, high]."""
    return _wave_range(np.sin, low, high, np.pi / 2)


def cos_range(low: Any, high: Any) -> tuple[Any, Any]:
    """Return the range of the cosine over [low, high]."""
    return _wave_range(np.cos, low, high, 0.0)


def _down(x: Approx) -> Approx:
    return Approx(x.m - x.e, 0.0, x.k)


def _up(x: Approx) -> Approx:
    return Approx(x.m + x.e, 0.0, x.k)


def _down_to_zero(x: Approx) -> Approx:
    """Round down a lower end of what is not negative."""
    return Approx(np.maximum(x.m - x.e, np.minimum(x.m, 0.0)), 0.0, x.k)


def _less(x: Approx, y: Approx) -> Any:
    """Compare scaled numbers elementwise, x < y; False beside NaN."""
    if unscaled(x, y):
        return x.m < y.m
    # Of one sign, by log|x|: at a common scale the smaller number might underflow.
    sides, others = np.sign(x.m), np.sign(y.m)
    sizes = x.k + np.log(np.abs(x.m)), y.k + np.log(np.abs(y.m))
    same = np.where(sides > 0, sizes[0] < sizes[1], (sides < 0) & (sizes[0] > sizes[1]))
    return np.where(sides == others, same, sides < others)


def _between_extremes(ends: list[Approx]) -> Interval:
    """Return the intervals from the least to the largest number; NaN where one of them is."""
    unknown = functools.reduce(np.logical_or, [np.isnan(x.m) for x in ends])
    low = functools.reduce(lambda x, y: Approx.where(_less(y, x), y, x), ends)
    high = functools.reduce(lambda x, y: Approx.where(_less(x, y), y, x), ends)
    if unknown.any():
        nan = Approx(np.where(unknown, np.nan, 0.0))
        low, high = Approx.where(unknown, nan, low), Approx.where(unknown, nan, high)
    return Interval(_down(low), _up(high))


def _times(x: Approx, y: Approx) -> Approx:
    """Multiply ends; 0·∞ is 0."""
    z = x * y
    if not np.isnan(z.m).any():
        return z
    zero = ((x.m == 0) & ~np.isnan(y.m)) | ((y.m == 0) & ~np.isnan(x.m))
    return Approx.where(zero, Approx(np.where(zero, 0.0, 1.0)), z)


class Interval(NamedTuple):
    """Intervals [lo, hi] of the real line.

    Args:
        lo: lower ends, exact.
        hi: upper ends, exact.
    """

    lo: Approx
    hi: Approx

    @staticmethod
    def between(low: Any, high: Any) -> Interval:
        """Return intervals with float64 ends."""
        return Interval(Approx(low), Approx(high))

    @staticmethod
    def exact(x: Any, error: Any = 0.0) -> Interval:
        """Return the numbers x, known to within an error."""
        return Interval(Approx(x - error), Approx(x + error))

    def rising(self, function: Callable[[Approx], Approx]) -> Interval:
        """Return the range of an increasing function: from its values at the two ends."""
        return Interval(_down(function(self.lo)), _up(function(self.hi)))

    def plus(self, c: Any) -> Interval:
        """Add exact numbers."""
        return self.rising(lambda x: x.plus(c))

    def times(self, c: Any) -> Interval:
        """Multiply by exact numbers of moderate size."""
        lo, hi = self.lo.times(c), self.hi.times(c)
        if np.all(np.asarray(c) >= 0):
            return Interval(_down(lo), _up(hi))
        back = np.asarray(c) < 0
        return Interval(_down(Approx.where(back, hi, lo)), _up(Approx.where(back, lo, hi)))

    def __add__(self, other: Interval) -> Interval:  # type: ignore[override]
        return Interval(_down(self.lo + other.lo), _up(self.hi + other.hi))

    def __mul__(self, other: Interval) -> Interval:  # type: ignore[override]
        return _between_extremes([_times(x, y) for x in self for y in other])

    def square(self) -> Interval:
        """Return x², which is never below zero."""
        return self._from_zero(_between_extremes([self.lo.square(), self.hi.square()]))

    def _from_zero(self, image: Interval) -> Interval:
        """Return `image`, a range of an even function, from zero on where x may be zero."""
        zero = (self.lo.m <= 0) & (self.hi.m >= 0)
        if not np.any(zero):
            return image
        return Interval(Approx.where(zero, Approx(np.zeros(np.shape(zero))), image.lo), image.hi)

    def reciprocal(self) -> Interval:
        """Return 1/x; unbounded where x may be zero."""
        # An end at zero is approached from the inside of the interval: [0, 2] gives [1/2, ∞].
        across = (self.lo.m < 0) & (self.hi.m > 0)
        lo = Approx.where((self.hi.m == 0) | across, _MINUS_INFINITY, self.hi.reciprocal())
        hi = Approx.where((self.lo.m == 0) | across, _INFINITY, self.lo.reciprocal())
        # Infinite ends have no error: ∞ − ∞ would be NaN, of which nothing is known.
        lo, hi = (Approx(x.m, np.where(np.isfinite(x.m), x.e, 0.0), x.k) for x in (lo, hi))
        return Interval(_down(lo), _up(hi))

    def exp(self) -> Interval:
        """Return e^x."""
        # An infinite end stands for a finite number beyond float64. Where x begins at +∞, e^x
        # begins above e^(10³⁰⁰), a number with a logarithm, which ∞ has not: no mass is left out.
        low, high = self.lo.plain().m, self.hi.plain().m
        lo = Approx.where(np.isneginf(low), Approx(np.float64(0.0)), _down_to_zero(self.lo.exp()))
        lo = Approx.where(np.isposinf(low), Approx(1.0, 0.0, 1e300), lo)
        return Interval(lo, Approx.where(np.isposinf(high), _INFINITY, _up(self.hi.exp())))

    def expm1(self) -> Interval:
        return self.rising(Approx.expm1)

    def log(self) -> Interval:
        """Return the natural logarithm; NaN where x reaches below zero."""
        low = Approx.where(self.lo.m == 0, _MINUS_INFINITY, _down(self.lo.log()))
        return Interval(low, _up(self.hi.log()))

    def log1p(self) -> Interval:
        return self.rising(Approx.log1p)

    def sin(self) -> Interval:
        sine = Interval.between(*sin_range(*self._plain()))
        # Next to zero the ends keep the scale that float64 would lose.
        tiny = self.lo.is_tiny() & self.hi.is_tiny()
        return Interval.where(tiny, self.rising(Approx.sin), sine)

    def cos(self) -> Interval:
        return Interval.between(*cos_range(*self._plain()))

    def _plain(self) -> tuple[Any, Any]:
        """Return the ends as float64."""
        return _down(self.lo.plain()).m, _up(self.hi.plain()).m

    def erf(self) -> Interval:
        return self.rising(Approx.erf)

    def erfcx(self) -> Interval:
        """Return e^(x²) erfc(x), which falls, for x ≥ 0."""
        return Interval(_down(self.hi.erfcx()), _up(self.lo.erfcx()))

    def atan(self) -> Interval:
        return self.rising(Approx.atan)

    def power(self, p: float) -> Interval:
        """Return x^p for x ≥ 0; NaN where x reaches below zero."""
        lo, hi = self.lo.power(p), self.hi.power(p)
        lo, hi = (lo, hi) if p > 0 else (hi, lo)
        endless = np.isposinf(hi.m)  # an end that is ∞ has no error: ∞ + NaN would be NaN
        return Interval(_down_to_zero(lo), _up(Approx(hi.m, np.where(endless, 0.0, hi.e), hi.k)))

    def step(self) -> Any:
        """Return the largest whole number below where it is the same throughout; NaN elsewhere."""
        low, high = map(np.floor, self._plain())
        return np.where(low == high, low, np.nan)

    def floor(self, step: Any) -> Interval:
        """Return the largest whole numbers below."""
        return Interval.between(*map(np.floor, self._plain()))

    def sign(self) -> Any:
        """Return −1 or 1 where x is that, or zero, throughout; 0 where undecided."""
        return np.where(self.lo.m >= 0, 1.0, np.where(self.hi.m <= 0, -1.0, 0.0))

    def strict_sign(self, tie: float) -> Any:
        """Return −1 or 1 throughout, `tie` where x is zero throughout, 0 where undecided."""
        low, high = self.lo.m, self.hi.m
        known = np.where(low > 0, 1.0, np.where(high < 0, -1.0, 0.0))
        return np.where((low == 0) & (high == 0), tie, known)

    def magnitude(self) -> Any:
        """Return the largest |x|; ∞ where nothing is known."""
        low, high = self._plain()
        size = np.maximum(np.abs(low), np.abs(high))
        return np.where(np.isnan(size), np.inf, size)

    def absolute(self, sign: Any = None) -> Interval:
        """Return |x|."""
        return self._from_zero(_between_extremes([Approx(np.abs(x.m), 0.0, x.k) for x in self]))

    def centre(self) -> Any:
        """Return the middles, 0 where there is none."""
        low, high = self._plain()
        middle = (low + high) / 2
        return np.where(np.isfinite(middle), middle, 0.0)

    def log_width(self) -> Any:
        """Return the log of the width; ∞ where nothing is known."""
        size = self.hi + self.lo.times(-1.0)
        size = np.log(size.m) + size.k
        return np.where(np.isnan(size), np.inf, size)

    def hull(self, other: Interval) -> Interval:
        """Return the smallest intervals that hold both."""
        return _between_extremes([*self, *other])

    @staticmethod
    def where(condition: Any, one: Interval, other: Interval) -> Interval:
        """Choose elementwise."""
        return Interval(*(Approx.where(condition, x, y) for x, y in zip(one, other, strict=True)))

    def log_range(self) -> tuple[Any, Any]:
        """Return the log of the least and the largest |x|; −∞ and ∞ where nothing is known."""
        low, high = (end.k + np.log(end.m) for end in self.absolute())
        return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
