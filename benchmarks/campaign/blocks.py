"""The building blocks of the campaign: one formula each, of as many kinds as kernels come in."""

from __future__ import annotations

from typing import Any

import sympy
from sympy import (
    Abs,
    Heaviside,
    Max,
    Min,
    Piecewise,
    Rational,
    Symbol,
    cos,
    cosh,
    erf,
    erfc,
    exp,
    factorial,
    floor,
    log,
    sign,
    sin,
    sqrt,
    tanh,
)

__all__ = ["BLOCKS", "NAMED", "s"]

s: Any = Symbol("s", real=True)
HALF = Rational(1, 2)


def taylor(degree: int) -> Any:
    """The Taylor polynomial of exp."""
    return sum((s**k / factorial(k) for k in range(1, degree + 1)), sympy.Integer(1))


def softplus(k: int) -> Any:
    return log(1 + exp(k * s)) / k


BLOCKS: tuple[tuple[str, Any], ...] = (
    # powers and polynomials
    ("identity", s),
    ("square", s**2),
    ("cube", s**3),
    ("fourth power", s**4),
    ("double well", s**4 - 3 * s**2 + 1),
    ("cubic", s**3 - 3 * s + HALF),
    ("shifted square", (s - 2) ** 2),
    ("abs", Abs(s)),
    ("root of abs", Abs(s) ** Rational(3, 10)),
    ("inverse root", Abs(s) ** Rational(-3, 10)),
    ("power 1.5", Abs(s) ** Rational(3, 2)),
    ("log abs", log(Abs(s))),
    ("taylor 4", taylor(4)),
    ("taylor 24", taylor(24)),
    # rectifiers
    ("relu", Max(s, 0)),
    ("relu squared", Max(s, 0) ** 2),
    ("leaky relu", Max(s, s / 100)),
    ("relu and 1", Min(Max(s, 0), 1)),
    ("hat", Max(1 - Abs(s), 0)),
    ("max of three", Max(s, 1 - s, 2)),
    ("min with max", Min(s**2, Max(3, s))),
    ("softpick", Max(exp(s) - 1, 0)),
    ("thresholded exp", Heaviside(s - 1) * exp(s)),
    ("elu plus 1", Piecewise((exp(s), s < 0), (1 + s, True))),
    ("pieces", Piecewise((exp(s), s < 0.1), (1 + s, s < 2.7), (s**2, True))),
    ("indicator", Piecewise((1, (s > 1) & (s < 1 + 1e-6)), (0, True))),
    ("window", Piecewise((1, Abs(s - HALF) < 1.25), (0.01, True))),
    # smooth ramps
    ("exp", exp(s)),
    ("exp of -2s", exp(-2 * s)),
    ("softplus", softplus(1)),
    ("softplus 4", softplus(4)),
    ("softplus 10", softplus(10)),
    ("softplus 100", softplus(100)),
    ("1 + tanh", 1 + tanh(s)),
    ("1 - tanh", 1 - tanh(s)),
    ("1 + tanh 5", 1 + tanh(5 * s)),
    ("tanh", tanh(s)),
    ("sigmoid", 1 / (1 + exp(-s))),
    ("logistic, other form", exp(s) / (1 + exp(s))),
    ("sharp sigmoid", 1 / (1 + exp(-20 * s))),
    ("silu", s / (1 + exp(-s))),
    ("gelu", s * (1 + erf(s / sqrt(2))) / 2),
    ("erf", erf(s)),
    ("erfc", erfc(s)),
    ("mish", s * tanh(log(1 + exp(s)))),
    ("root minus s", sqrt(1 + s**2) - s),
    ("hyperbola", sqrt(1 + s**2)),
    ("log 1 + s^2", log(1 + s**2)),
    ("log cosh", log(cosh(s))),
    ("cosh", cosh(s)),
    ("sinh", sympy.sinh(s)),
    # bumps
    ("sech", 1 / cosh(s)),
    ("sech squared", 1 / cosh(s) ** 2),
    ("gauss", exp(-(s**2))),
    ("wide gauss", exp(-(s**2) / 200)),
    ("needle", 1 + 1000 * exp(-(10**8) * (s - Rational(12345, 10000)) ** 2)),
    ("far needle", 1 + 100 * exp(-((s - Rational(3333, 100)) ** 2) / (2 * Rational(3, 1000) ** 2))),
    ("two bumps", exp(-((10 * s - 30) ** 2)) + exp(-((s + 5) ** 2)) / 10),
    ("cauchy", 1 / (1 + s**2)),
    ("odd cauchy", s / (1 + s**2)),
    ("sharp cauchy", 1 / (1 + 10**6 * s**2)),
    ("flat at 0", exp(-1 / s**2)),
    # removable singularities
    ("sinc", sin(s) / s),
    ("tanh over s", tanh(s) / s),
    ("bose", s / (exp(s) - 1)),
    ("1 - cos over s^2", (1 - cos(s)) / s**2),
    # periodic
    ("cos", cos(s)),
    ("sin squared", sin(s) ** 2),
    ("exp cos", exp(100 * cos(s))),
    ("1 + sin 20s", 1 + sin(20 * s)),
    ("cos above half", Heaviside(cos(s) - HALF)),
    ("cos 3s + s", cos(3 * s) + s),
    ("exp + cos", exp(s) + cos(7 * s)),
    # jumps
    ("stairs", floor(10 * s / 7) + HALF),
    ("fine stairs", floor(10 * s) / 10),
    ("thirds", floor(3 * s) / 3 + 1),
    ("square wave", 2 + sign(sin(s))),
    ("late step", 1 + Heaviside(s + sin(s) - 2)),
    ("saw", s - 2 * floor(s / 2)),
    ("sign", sign(s - HALF) + 2),
    # doubly exponential
    ("gumbel", exp(-exp(s))),
    ("complementary gumbel", 1 - exp(-exp(s))),
    ("turned gumbel", exp(-exp(-s))),
    ("softplus of exp", log(1 + exp(exp(-s)))),
    ("log 1 + softplus", log(1 + log(1 + exp(s)))),
    ("gompertz bump", exp(s - exp(s))),
    # smooth but not analytic, and zeros of high order
    ("bump function", Piecewise((exp(-1 / (1 - s**2)), Abs(s) < 1), (0, True))),
    ("seventh power", (s - 1) ** 7),
    ("exp of -abs", exp(-Abs(s))),
    ("exp of root", exp(sqrt(Abs(s)))),
)
NAMED: dict[str, Any] = dict(BLOCKS)
