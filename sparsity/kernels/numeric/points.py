"""Numbers at points: m·e^k with a bound on the error of m, so that nothing overflows unseen.

Every operation carries the error of its arguments along and adds its own rounding (running error
analysis, Higham, Accuracy and Stability of Numerical Algorithms, §3.3). A cancellation shows as an
error that is large beside the value.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sparsity import special

# 2⁻⁵², twice what rounding to nearest may be off by. Charging each +, −, · one EPS, and each
# elementary function (off by a unit in the last place or so) two or more, leaves a factor of two
# for the roundings of the error bounds themselves, which are not counted.
EPS = float(np.finfo(np.float64).eps)
# Mantissas beyond it, or below 1/LARGE, hand powers of e to k: a product of two of them, with the
# products of their errors, is far from the ends of float64 (10^±308).
LARGE = 1e60
FAR = 100.0  # |x| beyond it goes into k of e^x: e^100 is far from the ends of float64
_MOST_LOG = 700.0  # float64 ends at e^709.8
_UNDERFLOW = 1e-300  # error that stands for what underflows beside a larger number
_TINY_LOG = -80.0  # log|x| below which x² is nothing beside x: e^−80 is 2^−115
_SQRT_PI = float(np.sqrt(np.pi))


def unscaled(*numbers: Any) -> bool:
    """Say whether no number has an exponent k: the plain case takes fewer operations."""
    return all(np.ndim(x.k) == 0 and x.k == 0 for x in numbers)


def _known_to_a_factor(m: Any, spread: Any, k: Any) -> Approx:
    """Return the positive numbers m·e^k, each known to within a factor e^(±spread).

    Where the spread is more than 1, no digit is known, but still how large they may be.
    """
    blurred = spread > 1
    if not np.any(blurred):
        return Approx(m, m * np.expm1(spread), k)
    # e^spread would overflow, and the bound on the size be lost. The scale takes it: at e^(k +
    # spread) the value is m·e^(−spread), and an error of m covers all from 0 to m·e^(k + spread).
    shift = np.where(blurred, np.minimum(spread, 1e300), 0.0)
    error = np.where(blurred, m, m * np.expm1(np.minimum(spread, 1.0)))
    error = np.where(np.isposinf(spread), np.inf, error)
    return Approx(m * np.exp(-shift), error, k + shift)


class Approx(NamedTuple):
    """Values m·e^k, |error of m| ≤ e.

    Args:
        m: mantissas.
        e: bounds on their absolute errors.
        k: exponents of e; 0.0 where all of them are zero.
    """

    m: Any
    e: Any = 0.0
    k: Any = 0.0

    @staticmethod
    def exact(x: Any, error: Any = 0.0) -> Approx:
        """Return the numbers x, with a bound on their error."""
        return Approx(x, error)

    def _in_range(self) -> Approx:
        """Return the same, with the larger of |m| and e back between 1/LARGE and LARGE."""
        size = np.maximum(np.abs(self.m), self.e)
        far = (size > LARGE) | ((size < 1 / LARGE) & (size > 0))
        if not np.any(far):
            return self
        shift = np.where(far & np.isfinite(size), np.rint(np.log(np.where(far, size, 1.0))), 0.0)
        shift = np.clip(shift, -_MOST_LOG, _MOST_LOG)  # subnormals: e^744 is no float
        factor = np.exp(-shift)
        m = self.m * factor
        return Approx(m, self.e * factor + EPS * np.abs(m), self.k + shift)

    def plain(self) -> Approx:
        """Return the same with k = 0, infinite or zero where that is beyond float64."""
        if unscaled(self):
            return self
        # e^k may overflow although m·e^k fits, and the other way round: the log of both decides.
        beyond = self.k + np.log(np.abs(self.m)) > _MOST_LOG
        factor = np.exp(np.minimum(self.k, 800.0))
        m = np.where(beyond, np.sign(self.m) * np.inf, self.m * factor)
        error = self.e * factor + EPS * np.abs(m) + np.where(factor == 0, _UNDERFLOW, 0.0)
        return Approx(m, np.where(beyond, np.inf, error))

    def plus(self, c: Any) -> Approx:
        """Add exact numbers."""
        return self + Approx(c)

    def times(self, c: Any) -> Approx:
        """Multiply by exact numbers of moderate size."""
        m = self.m * c
        return Approx(m, self.e * np.abs(c) + EPS * np.abs(m), self.k)

    def __add__(self, other: Approx) -> Approx:  # type: ignore[override]
        """Add, at the larger of the two scales."""
        if unscaled(self, other):
            m = self.m + other.m
            return Approx(m, self.e + other.e + EPS * np.abs(m))
        # An exact zero has no scale of its own: the sum is at the scale of the other number.
        # Of plain floats `==` gives Python's own bools, which `~` would take for whole numbers.
        zero1, zero2 = (np.logical_and(x.m == 0, x.e == 0) for x in (self, other))
        k1, k2 = np.where(zero1, -np.inf, self.k), np.where(zero2, -np.inf, other.k)
        top = np.maximum(k1, k2)
        top = np.where(top == -np.inf, 0.0, top)
        f1, f2 = np.exp(k1 - top), np.exp(k2 - top)
        a, b = self.m * f1, other.m * f2
        # A number whose factor underflowed is left out of the sum; it is in the error.
        lost = np.where((f1 == 0) & ~zero1 | (f2 == 0) & ~zero2, _UNDERFLOW, 0.0)
        error = self.e * f1 + other.e * f2 + 2 * EPS * (np.abs(a) + np.abs(b)) + lost
        return Approx(a + b, error, top)

    def __mul__(self, other: Approx) -> Approx:  # type: ignore[override]
        """Multiply; mantissas are brought into range first only where their product leaves it."""
        m = self.m * other.m
        if np.any(np.isinf(m) | ((m == 0) & (self.m != 0) & (other.m != 0))):
            self, other = self._in_range(), other._in_range()
            m = self.m * other.m
        size, others = np.abs(self.m), np.abs(other.m)
        error = size * other.e + others * self.e + self.e * other.e + EPS * np.abs(m)
        return Approx(m, error, self.k + other.k)._in_range()

    def square(self) -> Approx:
        return self * self

    def reciprocal(self) -> Approx:
        """Return 1/x. |1/m − 1/(m + e)| ≤ e/(|m|(|m| − e)); no digit is known where e ≥ |m|."""
        size = np.abs(self.m)
        m = np.divide(1.0, self.m)  # ∞ of a plain 0, too
        error = np.where(self.e < size, self.e / size / (size - self.e), np.inf)
        return Approx(m, error + EPS * np.abs(m), -self.k)._in_range()

    def exp(self) -> Approx:
        """Return e^x; large exponents go into k. Of |x| > 1e300 only the side is known."""
        x = self.plain()
        # e^∞ as e^(10³⁰⁰): how large it is stays a number, on which later bounds are logs.
        endless = np.isinf(x.m)
        if np.any(endless):
            m = np.where(endless, np.sign(x.m) * 1e300, x.m)
            x = Approx(m, np.where(endless, 0.0, x.e))
        # e^x = e^(x − k)·e^k with the whole number k next to x: x − k is exact.
        far = np.abs(x.m) > FAR
        k = np.where(far, np.rint(x.m), 0.0) if np.any(far) else 0.0
        m = np.exp(np.clip(x.m - k, -FAR, FAR))
        # A spread of 10²⁹⁰ or more says that no digit is known of what is as small as that.
        beyond = np.abs(x.m) >= 1e300
        error = x.e
        if np.any(beyond):
            error = np.where(beyond, np.where(x.m > 0, np.inf, 1e290), error)
        return _known_to_a_factor(m, error + 2 * EPS, k)

    def is_tiny(self) -> Any:
        """Say where x is so small, with its error, that x² is nothing beside it."""
        size = np.maximum(np.abs(self.m), self.e)
        return self.k + np.log(np.where(size == 0, 1.0, size)) < _TINY_LOG

    def _or_itself(self, m: Any, e: Any, slope: float = 1.0) -> Approx:
        """Return m ± e, values of an f(x) = slope·x + O(x²); slope·x itself where x is tiny.

        There `plain` may have underflowed, and with it the digits of m.
        """
        itself = Approx(self.m, self.e + EPS * np.abs(self.m), self.k)
        itself = itself if slope == 1.0 else itself.times(slope)
        return Approx.where(self.is_tiny(), itself, Approx(m, e))

    def expm1(self) -> Approx:
        """Return e^x − 1, for |x| of order one."""
        x = self.plain()
        # |e^(x + e) − e^x| = e^x·expm1(e), and e^x ≤ |e^x − 1| + 1.
        m = np.expm1(np.clip(x.m, -FAR, FAR))
        grown = (np.abs(m) + 1) * np.expm1(np.minimum(x.e, 700.0)) + 2 * EPS * np.abs(m)
        return self._or_itself(m, grown)

    def log(self) -> Approx:
        """Return the natural logarithm; NaN below zero, −∞ at zero."""
        # |log(m + e) − log m| ≤ −log(1 − e/m), which is ∞ where the error is as large as m.
        small = np.log(self.m)
        m = self.k + small
        relative = np.where(self.m > 0, np.minimum(self.e / np.abs(self.m), 1.0), 1.0)
        return Approx(m, -np.log1p(-relative) + 2 * EPS * (np.abs(m) + np.abs(small)))

    def log1p(self) -> Approx:
        """Return log(1 + x), for x > −1."""
        x = self.plain()
        m = np.log1p(x.m)
        relative = np.minimum(x.e / np.abs(1 + x.m), 1.0)
        return self._or_itself(m, -np.log1p(-relative) + 2 * EPS * np.abs(m))

    def sin(self) -> Approx:
        x = self.plain()
        m = np.sin(x.m)
        return self._or_itself(m, np.minimum(x.e, 2.0) + 8 * EPS * np.abs(m))

    def cos(self) -> Approx:
        x = self.plain()
        m = np.cos(x.m)
        return Approx(m, np.minimum(x.e, 2.0) + 8 * EPS * np.abs(m))

    def erf(self) -> Approx:
        x = self.plain()
        m, steepest = special.erf(x.m), 2 / _SQRT_PI
        return self._or_itself(m, steepest * np.minimum(x.e, 1.0) + 4 * EPS * np.abs(m), steepest)

    def erfcx(self) -> Approx:
        """Return e^(x²) erfc(x), for x ≥ 0, whose second derivative is at most 2 there."""
        x = self.plain()
        m = special.erfcx(np.maximum(x.m, 0.0))
        # From erfcx′ = 2x·erfcx − 2/√π. It grows towards x − e, by at most 2e: Taylor's theorem.
        slope = np.abs(2 * x.m * m - 2 / _SQRT_PI)
        return Approx(m, (slope + 2 * x.e) * x.e + 8 * EPS * np.abs(m))

    def atan(self) -> Approx:
        x = self.plain()
        m, least = np.arctan(x.m), np.abs(x.m) - x.e
        # It is nowhere steeper than at the least |x|; of x without a digit the side is not known.
        off = np.where(least > 0, x.e / (1 + np.square(least)), np.minimum(x.e, np.pi))
        return self._or_itself(m, off + 4 * EPS * np.abs(m))

    def power(self, p: float) -> Approx:
        """Return x^p for x ≥ 0 and a fixed real p; NaN below zero."""
        m = np.power(self.m, p)
        # log(x^p) is off by −|p|·log(1 − e/m): without a bound where x may be zero, as x^p is for
        # p < 0. For p > 0 that is taken up to e = m/2, and `lost` bounds x^p beyond.
        most = 0.5 if p > 0 else 1.0
        relative = np.where(self.m > 0, np.minimum(self.e / np.abs(self.m), most), 0.0)
        size = np.abs(self.k + np.log(np.where(self.m > 0, self.m, 1.0)))  # p itself is rounded
        spread = np.abs(p) * (2 * EPS * size - np.log1p(-relative)) + 4 * EPS
        power = _known_to_a_factor(m, spread, p * self.k)
        # |x^p − m^p| ≤ |x − m|^p for p ≤ 1; for larger p, x^p itself is at most (m + e)^p.
        reach = self.e if p <= 1 else self.m + self.e
        lost = np.where((self.m > 0) & (self.e < self.m / 2), 0.0, np.power(reach, abs(p)))
        return Approx(power.m, power.e + lost, power.k)._in_range()

    def step(self) -> Any:
        """Return the largest whole number below."""
        return np.floor(self.plain().m)

    def floor(self, step: Any) -> Approx:
        """Return the largest whole number below, which is known."""
        return Approx(step)

    # Points decide by the value, whatever its error: where f is continuous, the wrong side of a
    # branch is off by no more than that error; where f jumps, quadrature bisects `Values.side`.
    def sign(self) -> Any:
        """Return −1 or 1; 1 at zero."""
        return np.where(self.m < 0, -1.0, 1.0)

    def strict_sign(self, tie: float) -> Any:
        """Return −1, 1, or `tie` where x is zero exactly."""
        return np.where((self.m == 0) & (self.e == 0), tie, self.sign())

    def magnitude(self) -> Any:
        """Return |x| as a float."""
        return np.abs(self.plain().m)

    def absolute(self, sign: Any) -> Approx:
        """Return |x|, whose sign is known."""
        return Approx(np.abs(self.m), self.e, self.k)

    @staticmethod
    def where(condition: Any, one: Approx, other: Approx) -> Approx:
        """Choose elementwise."""
        if not np.any(condition):
            return other
        if np.all(condition):
            return one
        k = 0.0 if unscaled(one, other) else np.where(condition, one.k, other.k)
        m, e = (np.where(condition, x, y) for x, y in zip(one[:2], other[:2], strict=True))
        return Approx(m, e, k)

    def log_abs(self) -> tuple[Any, Any]:
        """Return log|x| and a bound on its error; −∞ and 0 where x is exactly zero."""
        # The bound is that of `log`; ∞, no digit known, where x may be zero but need not be.
        size = np.abs(self.m)
        zero = (size == 0) & (self.e == 0)
        value = self.k + np.log(size)
        relative = np.where(size > 0, np.minimum(self.e / np.where(size > 0, size, 1), 1.0), 1.0)
        return value, np.where(zero, 0.0, -np.log1p(-relative) + 2 * EPS * np.abs(value))
