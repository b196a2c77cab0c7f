"""Real intervals: what a function can be on a whole segment of the score axis.

Both ends are `Approx`, each with a scale of its own, and are rounded outward by the error that the
operations on points report. NaN ends mean that nothing is known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sparsity.kernels.numeric.points import Approx
from sparsity.kernels.numeric.ranges import cos_range, sin_range


def _down(x: Approx) -> Approx:
    return Approx(x.m - x.e, 0.0, x.k)


def _at_least_zero(x: Approx) -> Approx:
    """A lower end of what is not negative."""
    return Approx(np.maximum(x.m - x.e, np.minimum(x.m, 0.0)), 0.0, x.k)


def _up(x: Approx) -> Approx:
    return Approx(x.m + x.e, 0.0, x.k)


def _zero(x: Approx) -> Any:
    return x.m == 0


def _less(x: Approx, y: Approx) -> Any:
    """Elementwise x < y of scaled numbers; False beside NaN."""
    if all(np.ndim(z.k) == 0 and z.k == 0 for z in (x, y)):
        return x.m < y.m
    sides, others = np.sign(x.m), np.sign(y.m)
    sizes = x.k + np.log(np.abs(x.m)), y.k + np.log(np.abs(y.m))
    same = np.where(sides > 0, sizes[0] < sizes[1], (sides < 0) & (sizes[0] > sizes[1]))
    return np.where(sides == others, same, sides < others)


def _extremes(ends: list[Approx]) -> Interval:
    """From the least to the largest of several numbers; NaN where one of them is."""
    unknown = functools.reduce(np.logical_or, [np.isnan(x.m) for x in ends])
    low = functools.reduce(lambda x, y: Approx.where(_less(y, x), y, x), ends)
    high = functools.reduce(lambda x, y: Approx.where(_less(x, y), y, x), ends)
    if unknown.any():
        nan = Approx(np.where(unknown, np.nan, 0.0))
        low, high = Approx.where(unknown, nan, low), Approx.where(unknown, nan, high)
    return Interval(_down(low), _up(high))


def _times(x: Approx, y: Approx) -> Approx:
    """Product; 0·∞ is 0."""
    z = x * y
    if not np.isnan(z.m).any():
        return z
    zero = (_zero(x) & ~np.isnan(y.m)) | (_zero(y) & ~np.isnan(x.m))
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
        """Intervals with float64 ends."""
        return Interval(Approx(low), Approx(high))

    @staticmethod
    def exact(x: Any, error: Any = 0.0) -> Interval:
        """The numbers x, known to within an error."""
        return Interval(Approx(x - error), Approx(x + error))

    def _each(self, function: Callable[[Approx], Approx]) -> Interval:
        """An increasing function."""
        return Interval(_down(function(self.lo)), _up(function(self.hi)))

    def plus(self, c: Any) -> Interval:
        """Add exact numbers."""
        return self._each(lambda x: x.plus(c))

    def times(self, c: Any) -> Interval:
        """Multiply by exact numbers of moderate size."""
        lo, hi = self.lo.times(c), self.hi.times(c)
        if np.all(np.asarray(c) >= 0):
            return Interval(_down(lo), _up(hi))
        back = np.asarray(c) < 0
        return Interval(_down(Approx.where(back, hi, lo)), _up(Approx.where(back, lo, hi)))

    def __add__(self, other: Interval) -> Interval:  # type: ignore[override]
        """Sum."""
        return Interval(_down(self.lo + other.lo), _up(self.hi + other.hi))

    def __mul__(self, other: Interval) -> Interval:  # type: ignore[override]
        """Product."""
        return _extremes([_times(x, y) for x in self for y in other])

    def _holds_zero(self) -> Any:
        return (self.lo.m <= 0) & (self.hi.m >= 0)

    def square(self) -> Interval:
        """Square: never below zero."""
        found = _extremes([self.lo.square(), self.hi.square()])
        return self._above(found)

    def _above(self, found: Interval) -> Interval:
        """The same from zero on, where these intervals hold zero."""
        zero = self._holds_zero()
        if not np.any(zero):
            return found
        return Interval(Approx.where(zero, Approx(np.zeros(np.shape(zero))), found.lo), found.hi)

    def reciprocal(self) -> Interval:
        """One over it; unbounded where it holds zero."""
        lo, hi = self.hi.reciprocal(), self.lo.reciprocal()
        lo = Approx.where(self.hi.m == 0, Approx(np.float64(-np.inf)), lo)
        hi = Approx.where(self.lo.m == 0, Approx(np.float64(np.inf)), hi)
        across = (self.lo.m < 0) & (self.hi.m > 0)
        lo = Approx.where(across, Approx(np.float64(-np.inf)), lo)
        hi = Approx.where(across, Approx(np.float64(np.inf)), hi)
        fixed = [Approx(x.m, np.where(np.isfinite(x.m), x.e, 0.0), x.k) for x in (lo, hi)]
        return Interval(_down(fixed[0]), _up(fixed[1]))

    def exp(self) -> Interval:
        """e^x."""
        ends = self.lo.plain().m, self.hi.plain().m
        least = _at_least_zero(self.lo.exp())
        lo = Approx.where(np.isneginf(ends[0]), Approx(np.float64(0.0)), least)
        lo = Approx.where(np.isposinf(ends[0]), Approx(1.0, 0.0, 1e300), lo)
        endless = Approx.where(np.isposinf(ends[1]), Approx(np.float64(np.inf)), _up(self.hi.exp()))
        return Interval(lo, endless)

    def expm1(self) -> Interval:
        """e^x − 1."""
        return self._each(Approx.expm1)

    def log(self) -> Interval:
        """Natural logarithm; NaN where it reaches below zero."""
        low = Approx.where(_zero(self.lo), Approx(np.float64(-np.inf)), _down(self.lo.log()))
        return Interval(low, _up(self.hi.log()))

    def log1p(self) -> Interval:
        """log(1 + x)."""
        return self._each(Approx.log1p)

    def sin(self) -> Interval:
        """Sine."""
        x = self._plain()
        found = Interval.between(*sin_range(*x))
        tiny = self.lo.tiny() & self.hi.tiny()
        return Interval.where(tiny, self._each(Approx.sin), found)

    def cos(self) -> Interval:
        """Cosine."""
        return Interval.between(*cos_range(*self._plain()))

    def _plain(self) -> tuple[Any, Any]:
        return _down(self.lo.plain()).m, _up(self.hi.plain()).m

    def erf(self) -> Interval:
        """Error function."""
        return self._each(Approx.erf)

    def erfcx(self) -> Interval:
        """e^(x²) erfc(x), for x ≥ 0."""
        return Interval(_down(self.hi.erfcx()), _up(self.lo.erfcx()))

    def atan(self) -> Interval:
        """Arc tangent."""
        return self._each(Approx.atan)

    def power(self, p: float) -> Interval:
        """x^p for x ≥ 0; NaN where it reaches below zero."""
        ends = self.lo.power(p), self.hi.power(p)
        lo, hi = ends if p > 0 else ends[::-1]
        endless = np.isposinf(hi.m)
        return Interval(_at_least_zero(lo), _up(Approx(hi.m, np.where(endless, 0.0, hi.e), hi.k)))

    def step(self) -> Any:
        """The largest whole number below, where it is the same throughout; NaN elsewhere."""
        low, high = map(np.floor, self._plain())
        return np.where(low == high, low, np.nan)

    def floor(self, step: Any) -> Interval:
        """The largest whole numbers below."""
        low, high = self._plain()
        return Interval.between(np.floor(low), np.floor(high))

    def sign(self) -> Any:
        """−1 or 1 where it is that, or zero, throughout; 0 where undecided."""
        return np.where(self.lo.m >= 0, 1.0, np.where(self.hi.m <= 0, -1.0, 0.0))

    def strict_sign(self, tie: float) -> Any:
        """−1 or 1 throughout, `tie` where it is zero throughout, 0 where undecided."""
        low, high = self.lo.m, self.hi.m
        known = np.where(low > 0, 1.0, np.where(high < 0, -1.0, 0.0))
        return np.where((low == 0) & (high == 0), tie, known)

    def magnitude(self) -> Any:
        """The largest |x|; ∞ where nothing is known."""
        low, high = self._plain()
        size = np.maximum(np.abs(low), np.abs(high))
        return np.where(np.isnan(size), np.inf, size)

    def absolute(self, sign: Any = None) -> Interval:
        """|x|."""
        sizes = [Approx(np.abs(x.m), 0.0, x.k) for x in self]
        return self._above(_extremes(sizes))

    def centre(self) -> Any:
        """Middles, 0 where there is none."""
        low, high = self._plain()
        middle = (low + high) / 2
        return np.where(np.isfinite(middle), middle, 0.0)

    def log_width(self) -> Any:
        """Log of the width; ∞ where nothing is known."""
        size = self.hi + self.lo.times(-1.0)
        size = np.log(size.m) + size.k
        return np.where(np.isnan(size), np.inf, size)

    def hull(self, other: Interval) -> Interval:
        """The smallest intervals that hold both."""
        return _extremes([*self, *other])

    @staticmethod
    def where(condition: Any, one: Interval, other: Interval) -> Interval:
        """Elementwise choice."""
        return Interval(*(Approx.where(condition, x, y) for x, y in zip(one, other, strict=True)))

    def log_range(self) -> tuple[Any, Any]:
        """Log of the least and the largest |x|; −∞ and ∞ where nothing is known."""
        x = self.absolute()
        low, high = (end.k + np.log(end.m) for end in x)
        return np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high)
