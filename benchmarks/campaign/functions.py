"""Functions of one ball: over a stretch of real numbers (arb) or a complex disc (acb).

A disc that touches a cut or a pole gives a value that is not finite, as `acb.integral` asks. Forms
that do not cancel are chosen by the sign of the real part, where a ball has one.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from flint import acb, arb

from benchmarks.campaign.shape import FALLING, RISING

__all__ = [
    "DERIVATIVES",
    "DISC",
    "NAN",
    "PAIRS",
    "STRETCH",
    "monotone",
    "rational",
    "root",
    "whole",
]

NAN = arb.nan()


def rational(value: Fraction) -> arb:
    return arb(value.numerator) / value.denominator


def monotone(f: Callable[[arb], arb]) -> Callable[[arb], arb]:
    """An increasing or decreasing function, from the ends of a stretch."""

    def stretch(x: arb) -> arb:
        return f(x) if x.is_exact() else f(arb(x.lower())).union(f(arb(x.upper())))

    return stretch


def _sigmoid(x: Any) -> Any:
    """1/(1 + e^−x), by e^−|x|: analytic but for its poles, which lie on Re x = 0."""
    if x.real < 0:
        small = x.exp()
        return small / (1 + small)
    return 1 / (1 + (-x).exp())


def _softplus(x: Any) -> Any:
    if x.real > 0:
        return x + (-x).exp().log1p()
    if x.real < 0:
        return x.exp().log1p()
    whole = 1 + x.exp()
    return whole.log(analytic=True) if isinstance(x, acb) else whole.log()


def _logcosh(x: Any) -> Any:
    two = arb(2).log()
    if x.real > 0:
        return x + (-2 * x).exp().log1p() - two
    if x.real < 0:
        return -x + (2 * x).exp().log1p() - two
    whole = x.cosh()
    return whole.log(analytic=True) if isinstance(x, acb) else whole.log()


def _bose(x: Any) -> Any:
    if x.real > 0:
        small = (-x).exp()
        return -small / (-x).expm1()
    return 1 / x.expm1()


def _sech(x: Any) -> Any:
    if x.real > 0 or x.real < 0:
        y = x if x.real > 0 else -x
        return 2 * (-y).exp() / (1 + (-2 * y).exp())
    return 1 / x.cosh()


def _tanh(x: Any) -> Any:
    if x.real > 0 or x.real < 0:
        y = x if x.real > 0 else -x
        value = -(-2 * y).expm1() / (1 + (-2 * y).exp())
        return value if x.real > 0 else -value
    return x.tanh()


def _rootgap(x: Any) -> Any:
    inside = 1 + x * x
    root = inside.sqrt(analytic=True) if isinstance(x, acb) else inside.sqrt()
    return 1 / (root + x) if x.real > 0 else root - x


def _frac(x: arb) -> arb:
    low, high = x.lower().floor(), x.upper().floor()
    return x - low if low == high else arb("0.5", "0.5")


SHARED: dict[str, Callable[[Any], Any]] = {
    **{name: lambda x, n=name: getattr(x, n)() for name in ("exp", "sin", "cos", "tan")},
    **{name: lambda x, n=name: getattr(x, n)() for name in ("sinh", "cosh", "erf", "erfc", "atan")},
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "logcosh": _logcosh,
    "bose": _bose,
    "sech": _sech,
    "rootgap": _rootgap,
    "expm1": lambda x: x.expm1(),
    "onepexp": lambda x: 1 + x.exp(),
}
STRETCH = {
    **SHARED,
    **{name: monotone(SHARED[name]) for name in RISING + FALLING},
    "log": lambda x: x.log(),
    "abs": abs,
    "sign": lambda x: arb(1) if x > 0 else arb(-1) if x < 0 else arb(0, 1),
    "step": lambda x: arb(1) if x > 0 else arb(0) if x < 0 else arb("0.5", "0.5"),
    "floor": lambda x: x.lower().floor().union(x.upper().floor()),
    "frac": _frac,
}
DISC = {**SHARED, "log": lambda x: x.log(analytic=True)}
PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "max": lambda x, y: x.max(y),
    "min": lambda x, y: x.min(y),
}


def root(exponent: Fraction) -> Callable[[Any], Any]:
    """A fractional power: monotone in a stretch that starts at 0 or above."""

    def smooth(x: Any) -> Any:
        ball = isinstance(x, acb)
        if exponent == Fraction(1, 2):
            return x.sqrt(analytic=True) if ball else x.sqrt()
        if ball:
            return acb.pow(x, rational(exponent), analytic=True)
        return (rational(exponent) * x.log()).exp()

    def power(x: Any) -> Any:
        if isinstance(x, acb) or x > 0:
            return smooth(x)
        top: Any = arb(x.upper())
        if exponent < 0 or top < 0:
            return NAN
        high: Any = arb(0) if top == 0 else smooth(top)
        return arb(0).union(high)

    return power


def whole(exponent: int) -> Callable[[Any], Any]:
    def power(x: Any) -> Any:
        if isinstance(x, arb) and not x.is_exact() and exponent % 2 == 0:
            size = abs(x)
            low, high = arb(size.abs_lower()), arb(size.abs_upper())
            return (low ** abs(exponent)).union(high ** abs(exponent)) ** (
                1 if exponent > 0 else -1
            )
        return x**exponent if exponent > 0 else 1 / x**-exponent

    return power


DERIVATIVES: dict[str, Callable[[arb], arb]] = {
    "exp": STRETCH["exp"],
    "sin": lambda x: x.cos(),
    "cos": lambda x: -x.sin(),
    "tan": lambda x: 1 / x.cos() ** 2,
    "sinh": lambda x: x.cosh(),
    "cosh": STRETCH["sinh"],
    "tanh": lambda x: _sech(x) ** 2,
    "erf": lambda x: 2 * (-x * x).exp() / arb.pi().sqrt(),
    "erfc": lambda x: -2 * (-x * x).exp() / arb.pi().sqrt(),
    "atan": lambda x: 1 / (1 + x * x),
    "log": lambda x: 1 / x,
    "sigmoid": lambda x: _sech(x / 2) ** 2 / 4,
    "softplus": STRETCH["sigmoid"],
    "logcosh": STRETCH["tanh"],
    "bose": lambda x: -1 / (2 * (x / 2).sinh()) ** 2,
    "sech": lambda x: -_sech(x) * STRETCH["tanh"](x),
    "rootgap": lambda x: x / (1 + x * x).sqrt() - 1,
    "expm1": STRETCH["exp"],
    "onepexp": STRETCH["exp"],
}
