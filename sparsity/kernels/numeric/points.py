"""Numbers at points: m·e^k with a bound on the error of m, so that nothing overflows unseen.

Every operation carries the error of its arguments along and adds its own rounding (running error
analysis). A cancellation shows as an error that is large beside the value.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import special

EPS = float(np.finfo(np.float64).eps)
_LARGE = 1e60  # sizes of m at which a power of e goes into k
_FAR = 100.0  # sizes of x at which e^x goes into k
_MOST = 700.0  # log of what float64 holds, about
_LOST = 1e-300  # error of what underflows beside a larger number
_SQRT_PI = float(np.sqrt(np.pi))


def _is_zero(k: Any) -> bool:
    return np.ndim(k) == 0 and k == 0


def _spread(m: Any, spread: Any, k: Any) -> Approx:
    """The positive numbers m·e^k to within factors e^(±spread).

    Where that is more than e, no digit is known: what is left is how large they may be.
    """
    blurred = spread > 1
    if not np.any(blurred):
        return Approx(m, m * np.expm1(spread), k)
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
        """The numbers x, with a bound on their error."""
        return Approx(x, error)

    def _settled(self) -> Approx:
        """The same, with the larger of |m| and e back in range."""
        size = np.maximum(np.abs(self.m), self.e)
        far = (size > _LARGE) | ((size < 1 / _LARGE) & (size > 0))
        if not np.any(far):
            return self
        shift = np.where(far & np.isfinite(size), np.rint(np.log(np.where(far, size, 1.0))), 0.0)
        shift = np.clip(shift, -700.0, 700.0)
        factor = np.exp(-shift)
        m = self.m * factor
        return Approx(m, self.e * factor + EPS * np.abs(m), self.k + shift)

    def plain(self) -> Approx:
        """The same with k = 0, infinite or zero where that is beyond float64."""
        if _is_zero(self.k):
            return self
        size = self.k + np.log(np.abs(self.m))
        beyond = size > _MOST
        factor = np.exp(np.minimum(self.k, 800.0))
        m = np.where(beyond, np.sign(self.m) * np.inf, self.m * factor)
        error = self.e * factor + EPS * np.abs(m) + np.where(factor == 0, _LOST, 0.0)
        return Approx(m, np.where(beyond, np.inf, error))

    def clipped(self) -> Approx:
        """`plain`, with 1e300 for what is beyond."""
        x = self.plain()
        beyond = np.isinf(x.m)
        if not np.any(beyond):
            return x
        return Approx(np.where(beyond, np.sign(x.m) * 1e300, x.m), np.where(beyond, 0.0, x.e))

    def plus(self, c: Any) -> Approx:
        """Add exact numbers."""
        return self + Approx(c)

    def times(self, c: Any) -> Approx:
        """Multiply by exact numbers of moderate size."""
        m = self.m * c
        return Approx(m, self.e * np.abs(c) + EPS * np.abs(m), self.k)

    def __add__(self, other: Approx) -> Approx:  # type: ignore[override]
        """Sum, at the larger of the two scales."""
        if _is_zero(self.k) and _is_zero(other.k):
            m = self.m + other.m
            return Approx(m, self.e + other.e + EPS * np.abs(m))
        nothing = [(x.m == 0) & (x.e == 0) for x in (self, other)]
        k1, k2 = (
            np.where(none, -np.inf, x.k) for none, x in zip(nothing, (self, other), strict=True)
        )
        top = np.maximum(k1, k2)
        top = np.where(top == -np.inf, 0.0, top)
        f1, f2 = np.exp(k1 - top), np.exp(k2 - top)
        a, b = self.m * f1, other.m * f2
        lost = np.where((f1 == 0) & ~nothing[0] | (f2 == 0) & ~nothing[1], _LOST, 0.0)
        m = a + b
        error = self.e * f1 + other.e * f2 + 2 * EPS * (np.abs(a) + np.abs(b)) + lost
        return Approx(m, error, top)

    def __mul__(self, other: Approx) -> Approx:  # type: ignore[override]
        """Product."""
        m = self.m * other.m
        if np.any(np.isinf(m) | ((m == 0) & (self.m != 0) & (other.m != 0))):
            self, other = self._settled(), other._settled()
            m = self.m * other.m
        size, others = np.abs(self.m), np.abs(other.m)
        error = size * other.e + others * self.e + self.e * other.e + EPS * np.abs(m)
        return Approx(m, error, self.k + other.k)._settled()

    def square(self) -> Approx:
        """Square."""
        return self * self

    def reciprocal(self) -> Approx:
        """One over it."""
        size = np.abs(self.m)
        m = np.divide(1.0, self.m)  # ∞ of a plain 0, too
        error = np.where(self.e < size, self.e / size / (size - self.e), np.inf)
        return Approx(m, error + EPS * np.abs(m), -self.k)._settled()

    def exp(self) -> Approx:
        """e^x; large exponents go into k. Of e^x with |x| > 1e300 only the side is known."""
        x = self.clipped()
        far = np.abs(x.m) > _FAR
        k = np.where(far, np.rint(x.m), 0.0) if np.any(far) else 0.0
        m = np.exp(np.clip(x.m - k, -_FAR, _FAR))
        beyond = np.abs(x.m) >= 1e300
        error = x.e
        if np.any(beyond):
            error = np.where(beyond, np.where(x.m > 0, np.inf, 1e290), error)
        return _spread(m, error + 2 * EPS, k)

    def expm1(self) -> Approx:
        """e^x − 1, for |x| of order one."""
        tiny = self.tiny()
        x = self.plain()
        m = np.expm1(np.clip(x.m, -_FAR, _FAR))
        grown = (np.abs(m) + 1) * np.expm1(np.minimum(x.e, 700.0)) + 2 * EPS * np.abs(m)
        return Approx.where(tiny, self._almost(), Approx(m, grown))

    def tiny(self) -> Any:
        """Where x is so small that x² is nothing beside it."""
        return self.k + np.log(np.where(self.m == 0, 1.0, np.abs(self.m))) < -80.0

    def _almost(self) -> Approx:
        """X itself, for a function that is x + O(x²) where `tiny`."""
        return Approx(self.m, self.e + EPS * np.abs(self.m), self.k)

    def log(self) -> Approx:
        """Natural logarithm; NaN below zero, −∞ at zero."""
        small = np.log(self.m)
        m = self.k + small
        relative = np.where(self.m > 0, np.minimum(self.e / np.abs(self.m), 1.0), 1.0)
        return Approx(m, -np.log1p(-relative) + 2 * EPS * (np.abs(m) + np.abs(small)))

    def log1p(self) -> Approx:
        """log(1 + x), for x > −1."""
        tiny = self.tiny()
        x = self.plain()
        m = np.log1p(x.m)
        relative = np.minimum(x.e / np.abs(1 + x.m), 1.0)
        return Approx.where(
            tiny, self._almost(), Approx(m, -np.log1p(-relative) + 2 * EPS * np.abs(m))
        )

    def sin(self) -> Approx:
        """Sine."""
        tiny = self.tiny()
        x = self.plain()
        m = np.sin(x.m)
        return Approx.where(
            tiny, self._almost(), Approx(m, np.minimum(x.e, 2.0) + 8 * EPS * abs(m))
        )

    def cos(self) -> Approx:
        """Cosine."""
        x = self.plain()
        m = np.cos(x.m)
        return Approx(m, np.minimum(x.e, 2.0) + 8 * EPS * np.abs(m))

    def erf(self) -> Approx:
        """Error function."""
        tiny = self.tiny()
        x = self.plain()
        m = special.erf(x.m)
        other = Approx(m, 2 / _SQRT_PI * np.minimum(x.e, 1.0) + 4 * EPS * np.abs(m))
        return Approx.where(tiny, self._almost().times(2 / _SQRT_PI), other)

    def erfcx(self) -> Approx:
        """e^(x²) erfc(x), for x ≥ 0."""
        x = self.plain()
        m = special.erfcx(np.maximum(x.m, 0.0))
        slope = np.abs(2 * x.m * m - 2 / _SQRT_PI)
        return Approx(m, (slope + 2 * x.e) * x.e + 8 * EPS * np.abs(m))

    def atan(self) -> Approx:
        """Arc tangent."""
        tiny = self.tiny()
        x = self.plain()
        m = np.arctan(x.m)
        return Approx.where(tiny, self._almost(), Approx(m, x.e + 4 * EPS * np.abs(m)))

    def power(self, p: float) -> Approx:
        """x^p for x ≥ 0 and a fixed real p; NaN below zero."""
        m = np.power(self.m, p)
        relative = np.where(self.m > 0, np.minimum(self.e / np.abs(self.m), 0.5), 0.0)
        size = np.abs(self.k + np.log(np.where(self.m > 0, self.m, 1.0)))  # p itself is rounded
        spread = np.abs(p) * (2 * EPS * size - np.log1p(-relative)) + 4 * EPS
        found = _spread(m, spread, p * self.k)
        lost = np.where((self.m > 0) & (self.e < self.m / 2), 0.0, np.power(self.e, abs(p)))
        return Approx(found.m, found.e + lost, found.k)._settled()

    def step(self) -> Any:
        """The largest whole number below."""
        return np.floor(self.plain().m)

    def floor(self, step: Any) -> Approx:
        """The largest whole number below, which is known."""
        return Approx(step)

    def sign(self) -> Any:
        """−1 or 1; 1 at zero."""
        return np.where(self.m < 0, -1.0, 1.0)

    def strict_sign(self, tie: float) -> Any:
        """−1, 1, or `tie` where it is zero exactly."""
        return np.where((self.m == 0) & (self.e == 0), tie, self.sign())

    def magnitude(self) -> Any:
        """|x| as a float."""
        return np.abs(self.plain().m)

    def absolute(self, sign: Any) -> Approx:
        """|x|, whose sign is known."""
        return Approx(np.abs(self.m), self.e, self.k)

    @staticmethod
    def where(condition: Any, one: Approx, other: Approx) -> Approx:
        """Elementwise choice."""
        if not np.any(condition):
            return other
        if np.all(condition):
            return one
        k = 0.0
        if not (_is_zero(one.k) and _is_zero(other.k)):
            k = np.where(condition, one.k, other.k)
        m, e = (np.where(condition, x, y) for x, y in zip(one[:2], other[:2], strict=True))
        return Approx(m, e, k)

    def log_abs(self) -> tuple[Any, Any]:
        """log|x| and a bound on its error; −∞ and 0 where x is exactly zero."""
        size = np.abs(self.m)
        zero = (size == 0) & (self.e == 0)
        value = self.k + np.log(size)
        relative = np.where(size > 0, np.minimum(self.e / np.where(size > 0, size, 1), 1.0), 1.0)
        return value, np.where(zero, 0.0, -np.log1p(-relative) + 2 * EPS * np.abs(value))
