"""Numbers written as an exact constant plus a rest, so that no cancellation loses digits.

1 + tanh(s) at s = −75 is (1 − 1) + 2/(1 + e^150): the constants cancel exactly and the rest keeps
all its digits. The same formulas serve points, segments and boxes: only what is known about the
rest differs.

The functions with a limit or a value other than zero (e^x, cos, cosh at 0; tanh, erf at ±∞) are
where constants come from; each is written as that value plus what it differs by.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import sympy

_LARGEST = 1e100  # of a constant, and 1/_LARGEST the smallest: its square is a float, to all digits
_SMALLEST = 1e-290  # of a float whose rounding error is a float, too, with all its digits
_VELTKAMP = 134217729.0  # 2²⁷ + 1 splits a float64 into two halves of 26 bits
# |x| from which tanh and erf are ±1 plus a rest. Below, that form would cancel; above, the one for
# small x loses digits beside ±1. The places need not be
# exact: near them (tanh and erf are 1/2 at 0.55 and 0.48) both forms keep their digits.
_TANH_FAR, _ERF_FAR = 0.5, 0.7


def _exact_sum(x: Any, y: Any) -> tuple[Any, Any]:
    """Return the sum and its rounding error, exactly (Knuth's TwoSum)."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _exact_product(x: Any, y: Any) -> tuple[Any, Any]:
    """Return the product and its rounding error, exactly (Dekker's TwoProduct)."""
    total = x * y
    a, b = _VELTKAMP * x, _VELTKAMP * y
    a, b = a - (a - x), b - (b - y)
    return total, ((a * b - total) + a * (y - b) + (x - a) * b) + (x - a) * (y - b)


def _is_zero(a: Any) -> bool:
    return np.ndim(a) == 0 and a == 0


def _with(rounding: Any, d: Any) -> Any:
    """Add what a constant was rounded by to the rest of a number."""
    return d if np.all(rounding == 0) else d.plus(rounding)


class Split(NamedTuple):
    """a + d: an exact constant and a rest, |d| < |a|/2 wherever a ≠ 0.

    Args:
        a: the constants, float64.
        d: the rests, in one of the three arithmetics.
    """

    a: Any
    d: Any

    def whole(self) -> Any:
        """Return a + d in the arithmetic of d."""
        return self.d if _is_zero(self.a) else self.d.plus(self.a)

    def settled(self) -> Split:
        """Return the same without the constants that do not outweigh the rest."""
        if _is_zero(self.a):
            return self
        size = np.abs(self.a)
        # |d| < |a|/2 gives a + d the sign of a, and keeps log1p(d) away from its pole. A rest as
        # large as its constant has no digits to gain from being apart. Constants whose square is
        # no float are left to the rest, which has a scale of its own.
        keep = (self.d.magnitude() < size / 2) & (size < _LARGEST) & (size > 1 / _LARGEST)
        if np.all(keep):
            return self
        return Split(np.where(keep, self.a, 0.0), type(self.d).where(keep, self.d, self.whole()))

    def where(self, condition: Any, other: Split) -> Split:
        """Return this value where the condition holds, else the other."""
        if np.all(condition):
            return self
        if not np.any(condition):
            return other
        none = _is_zero(self.a) and _is_zero(other.a)
        a = 0.0 if none else np.where(condition, self.a, other.a)
        return Split(a, type(self.d).where(condition, self.d, other.d))

    def __add__(self, other: Split) -> Split:  # type: ignore[override]
        a, rest = _exact_sum(self.a, other.a)
        return Split(a, _with(rest, self.d + other.d)).settled()

    def __neg__(self) -> Split:
        return Split(-self.a, self.d.times(-1.0))

    def __sub__(self, other: Split) -> Split:
        return self + (-other)

    def __mul__(self, other: Split) -> Split:  # type: ignore[override]
        """Multiply: the constants exactly where both have one, else the whole numbers."""
        # (a + d)(b + e) = ab + (de + db + ea). A product with a number without a constant has none.
        constant = (self.a != 0) & (other.a != 0)
        plain = self.whole() * other.whole() if not np.all(constant) else self.d
        if not np.any(constant):
            return Split(0.0, plain)
        a, rest = _exact_product(self.a, other.a)
        d = self.d * other.d + self.d.times(other.a) + other.d.times(self.a)
        return Split(a, _with(rest, d)).settled().where(constant, Split(0.0, plain))

    def square(self) -> Split:
        if _is_zero(self.a):
            return Split(0.0, self.d.square())
        a, rest = _exact_product(self.a, self.a)
        return Split(a, _with(rest, self.d.square() + self.d.times(2 * self.a))).settled()

    def reciprocal(self) -> Split:
        """Return 1/(a + d) = q + (1 − qa − qd)/(a + d) with q ≈ 1/a."""
        if _is_zero(self.a):
            return Split(0.0, self.d.reciprocal())
        some = self.a != 0
        q = np.where(some, 1 / np.where(some, self.a, 1.0), 0.0)
        total, rest = _exact_product(q, self.a)
        # 1 − qa is a float, as for every quotient that is rounded to nearest: 1 − total is exact
        # (Sterbenz), since total is 1 but for a rounding, and so is the difference to its rest.
        left = (self.d.times(-q)).plus((1 - total) - rest)
        whole = self.whole().reciprocal()
        return Split(q, type(self.d).where(some, left * whole, whole)).settled()

    def power(self, p: int) -> Split:
        """Return a whole power, by repeated squares."""
        if p < 0:
            return self.power(-p).reciprocal()
        if p == 0:
            return Split(1.0, type(self.d).exact(0.0))
        half = self.square() if p == 2 else (self.power(p // 2).square() if p > 1 else self)
        return half * self if p % 2 and p > 1 else half

    def exp(self) -> Split:
        """Return e^x: 1 + expm1(x) where |x| < 1, so that e^x − 1 keeps its digits."""
        x = self.whole()
        near = Split(1.0, x.expm1()).settled()
        return near.where(x.magnitude() < 1, Split(0.0, x.exp()))

    def softplus(self) -> Split:
        """Return log(1 + e^x): x + log(1 + e^(−x)) for x > 0, where e^x may be beyond float64."""
        x = self.whole()
        side = _side(x, 0.0)  # 0 on a stretch across zero: either form holds there
        rest = Split(1.0, x.times(np.where(side > 0, -1.0, 1.0)).exp()).settled().log()
        return (self + rest).where(side > 0, rest)

    def log(self) -> Split:
        """Return the natural logarithm: log1p of the rest beside the constant one."""
        beside_one = self.a == 1
        if not np.any(beside_one):
            return Split(0.0, self.whole().log())
        return Split(0.0, self.d.log1p()).where(beside_one, Split(0.0, self.whole().log()))

    def real_power(self, p: float) -> Split:
        """Return x^p for a fixed p that is not whole: 1 + expm1(p·log1p d) beside one."""
        other, beside_one = Split(0.0, self.whole().power(p)), self.a == 1
        if not np.any(beside_one):
            return other
        rest = self.d.log1p().times(p)
        near = Split(1.0, rest.expm1()).settled()
        return near.where(beside_one & (rest.magnitude() < 1), other)

    def sin(self) -> Split:
        return Split(0.0, self.whole().sin())

    def cos(self) -> Split:
        """Return cos x: 1 − 2 sin²(x/2) where |x| < 1, so that 1 − cos x keeps its digits."""
        x = self.whole()
        near = Split(1.0, x.times(0.5).sin().square().times(-2.0)).settled()
        return near.where(x.magnitude() < 1, Split(0.0, x.cos()))

    def sinh(self) -> Split:
        """Return sinh x: (E + E/(1 + E))/2 with E = expm1(x) where |x| < 1."""
        x = self.whole()
        small = x.expm1()
        near = (small + small * small.plus(1.0).reciprocal()).times(0.5)
        # Beyond 1 the two exponentials differ by a factor of 7: hardly anything cancels.
        far = (x.exp() + x.times(-1.0).exp().times(-1.0)).times(0.5)
        return Split(0.0, type(x).where(x.magnitude() < 1, near, far))

    def cosh(self) -> Split:
        """Return cosh x: 1 + 2 sinh²(x/2) where |x| < 1."""
        x = self.whole()
        near = Split(1.0, Split(0.0, x.times(0.5)).sinh().d.square().times(2.0)).settled()
        far = (x.exp() + x.times(-1.0).exp()).times(0.5)
        return near.where(x.magnitude() < 1, Split(0.0, far))

    def tanh(self) -> Split:
        """Return tanh x: ±(1 − 2q/(1 + q)), q = e^(−2|x|), away from zero; else E/(E + 2).

        Next to zero E = e^(2x) − 1 is as exact as x.
        """
        x = self.whole()
        grown = x.times(2.0).expm1()
        near = grown * grown.plus(2.0).reciprocal()
        # On a wide stretch across zero E must stand once, or its range is without bounds.
        wide = grown.plus(2.0).reciprocal().times(-2.0).plus(1.0)
        near = Split(0.0, type(x).where(x.magnitude() < 1, near, wide))
        side = _side(x, _TANH_FAR)
        fall = x.times(-2.0 * side).exp()
        drop = fall * fall.plus(1.0).reciprocal()
        far = Split(np.where(side == 0, 1.0, side), drop.times(-2.0 * side)).settled()
        return far.where(side != 0, near)

    def erf(self) -> Split:
        """Return erf x: ±(1 − e^(−x²) erfcx|x|) away from zero."""
        x = self.whole()
        side = _side(x, _ERF_FAR)
        sign = np.where(side == 0, 1.0, side)
        far = Split(sign, _gauss_tail(x.times(sign)).times(-side)).settled()
        return far.where(side != 0, Split(0.0, x.erf()))

    def erfc(self) -> Split:
        x = self.whole()
        one = Split(1.0, type(x).exact(0.0))
        # To the right 1 − erf would cancel; to the left it is a sum.
        return Split(0.0, _gauss_tail(x)).where(_side(x, _ERF_FAR) == 1, one - self.erf())

    def atan(self) -> Split:
        return Split(0.0, self.whole().atan())

    def absolute(self, sign: Any) -> Split:
        """Return |x|, given the sign of x, 0 where undecided; its constant changes sign with it."""
        if _is_zero(self.a):
            return Split(0.0, self.d.absolute(sign))
        known = (sign != 0) & (self.a != 0)
        mirrored = Split(self.a * sign, self.d.times(np.where(sign == 0, 1.0, sign)))
        return mirrored.where(known, Split(0.0, self.whole().absolute(sign)))

    def hull(self, other: Split) -> Split:
        """Return what holds both: an enclosure has no exact constant."""
        return Split(0.0, self.whole().hull(other.whole()))


def _side(x: Any, beyond: float) -> Any:
    """Return the sign of x where all of it lies that far from zero; 0 elsewhere."""
    above, below = x.plus(-beyond).sign(), x.plus(beyond).sign()
    return np.where(above > 0, 1.0, np.where(below < 0, -1.0, 0.0))


def _gauss_tail(x: Any) -> Any:
    """Return erfc(x) = e^(−x²) erfcx(x), for x > 0."""
    return x.square().times(-1.0).exp() * x.erfcx()


def constant(kind: Any, number: Any) -> Split:
    """Return a SymPy number: the nearest float, and its rounding error as the rest."""
    near = float(number)
    if not number.is_zero and not _SMALLEST < abs(near) < 1 / _SMALLEST and number.is_finite:
        power = round(float(sympy.log(abs(number)).evalf(20)))  # beyond the floats: m·e^power
        m = float((number * sympy.exp(-power)).evalf(30))
        return Split(0.0, kind.exact(m, abs(m) * 1e-15) * kind.exact(float(power)).exp())
    if not math.isfinite(near):
        return Split(0.0, kind.exact(near))
    exactly = sympy.Rational(near)
    if (number.is_Rational or number.is_Float) and sympy.Rational(number) == exactly:
        return Split(near, kind.exact(0.0)).settled()
    # √2 is its nearest float plus 17 more digits: 35 digits in all.
    left = float((number - exactly).evalf(20))
    return Split(near, kind.exact(left, abs(left) * 1e-15 + abs(near) * 1e-33)).settled()
