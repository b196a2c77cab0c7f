"""The reference against values known by hand, and against the second method on cells at random.

python -m benchmarks.campaign.validate [--second N]
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
from mpmath import mp, mpf
from sympy import Abs, Integer, Max, Rational, cos, exp, log, sign, sin, tanh

from benchmarks.campaign.blocks import BLOCKS, NAMED, s
from benchmarks.campaign.limits import NoReference
from benchmarks.campaign.numeric import limited, numeric_log_s
from benchmarks.campaign.reference import log_s

__all__ = ["KNOWN", "known_gaps"]

DIGITS = 60
Form = Callable[[Any, Any], Any]


def _normal(z: Any) -> tuple[Any, Any]:
    return mpmath.erfc(-z / mpmath.sqrt(2)) / 2, mpmath.npdf(z)


def _relu(p: int) -> Form:
    """Log S of max(s, 0)^p, p = 1 or 2, from the truncated moments."""

    def moments(b: Any, c: Any) -> list[Any]:
        cdf, pdf = _normal(b / c)
        found = [cdf, b * cdf + c * pdf]
        for k in range(2, 5):
            found.append(b * found[-1] + (k - 1) * c * c * found[-2])
        return found

    def form(b: Any, c: Any) -> Any:
        m = moments(b, c)
        return mpmath.log(m[p] / mpmath.sqrt(m[2 * p]))

    return form


def _identity(b: Any, c: Any) -> Any:
    z = b / c
    top = mpmath.sqrt(2 / mp.pi) * c * mpmath.exp(-z * z / 2) + b * mpmath.erf(z / mpmath.sqrt(2))
    return mpmath.log(top / mpmath.sqrt(b * b + c * c))


def _power(a: Any) -> Form:
    """|s|^a about 0: absolute moments of the normal law."""

    def mean(k: Any) -> Any:
        return 2 ** (k / 2) * mpmath.gamma((1 + k) / 2) / mpmath.sqrt(mp.pi)

    def form(b: Any, c: Any) -> Any:
        exponent = mpf(int(a.p)) / int(a.q)
        return mpmath.log(mean(exponent) / mpmath.sqrt(mean(2 * exponent)))

    return form


def _gauss(a: Any, b: Any, c: Any) -> Any:
    """E exp(−a s²)."""
    wide = 1 + 2 * a * c * c
    return mpmath.exp(-a * b * b / wide) / mpmath.sqrt(wide)


def _gaussian(b: Any, c: Any) -> Any:
    return mpmath.log(_gauss(1, b, c) / mpmath.sqrt(_gauss(2, b, c)))


def _needle(b: Any, c: Any) -> Any:
    """1 + 1000·exp(−10⁸(s − 1.2345)²)."""
    one, two = (_gauss(k * mpf(10) ** 8, b - mpf(12345) / 10000, c) for k in (1, 2))
    return mpmath.log((1 + 1000 * one) / mpmath.sqrt(1 + 2000 * one + 10**6 * two))


def _gelu(b: Any, c: Any) -> Any:
    """E|gelu| from Stein's identity far on the left, where f < 0; E f² by mpmath's quadrature."""
    root = mpmath.sqrt(1 + c * c)
    cdf, pdf = _normal(b / root)
    first = b * cdf + c * c / root * pdf

    def f(t: Any) -> Any:
        return (b + c * t) * _normal(b + c * t)[0]

    zero, phi = -b / c, mpmath.npdf
    share = mpmath.quad(lambda t: f(t) * phi(t), [zero, zero + 4, zero + 40])  # where f > 0
    ends = [mpf(k) for k in range(-20, 70, 3)]
    second = mpmath.quad(lambda t: f(t) ** 2 * phi(t), ends, maxdegree=9)
    return mpmath.log((2 * share - first) / mpmath.sqrt(second))


def _small(slope: Any) -> Form:
    """A kernel e^(ks)(1 + what is below all digits) has log S = −k²γ²/2."""
    return lambda b, c: -((slope * c) ** 2) / 2


def _stairs(step: Any, value: Callable[[int], Any]) -> Form:
    """Plateaus value(n) between n·step and (n + 1)·step."""

    def lines(n: int) -> Any:
        return mpf(n * int(step.p)) / int(step.q)

    def form(b: Any, c: Any) -> Any:
        low, high = (int(mpmath.floor((b + side * 16 * c) / lines(1))) for side in (-1, 1))
        edges = [_normal((lines(n) - b) / c)[0] for n in range(low, high + 2)]
        mass = [y - x for x, y in itertools.pairwise(edges)]
        first, second = (
            sum(m * abs(value(n)) ** p for m, n in zip(mass, range(low, high + 1), strict=True))
            for p in (1, 2)
        )
        return mpmath.log(first / mpmath.sqrt(second))

    return form


KNOWN: tuple[tuple[str, Any, float, float, Form], ...] = (
    ("exp", exp(s), 0.3, 1.7, _small(1)),
    ("exp", exp(s), -200.0, 1e4, _small(1)),
    ("identity", s, 0.7, 3.0, _identity),
    ("identity", s, -40.0, 1.0, _identity),
    ("relu", Max(s, 0), -2.0, 0.5, _relu(1)),
    ("relu squared", Max(s, 0) ** 2, 1.0, 2.0, _relu(2)),
    ("relu squared", Max(s, 0) ** 2, -3.0, 0.4, _relu(2)),
    ("root of abs", NAMED["root of abs"], 0.0, 5.0, _power(Rational(3, 10))),
    ("inverse root", NAMED["inverse root"], 0.0, 0.01, _power(Rational(-3, 10))),
    ("needle", NAMED["needle"], 0.0, 1.0, _needle),
    ("needle", NAMED["needle"], 0.0, 1e4, _needle),
    ("gauss", exp(-(s**2)), 3.0, 40.0, _gaussian),
    ("cos, wide", cos(s), 0.0, 1e4, lambda b, c: mpmath.log(2 * mpmath.sqrt(2) / mp.pi)),
    ("cos above half", NAMED["cos above half"], 0.0, 30.0, lambda b, c: -mpmath.log(3) / 2),
    ("square wave", 2 + sign(sin(s)), 1.0, 50.0, lambda b, c: mpmath.log(2 / mpmath.sqrt(5))),
    (
        "exp cos",
        exp(100 * cos(s)),
        0.0,
        30.0,
        lambda b, c: mpmath.log(mpmath.besseli(0, 100) / mpmath.sqrt(mpmath.besseli(0, 200))),
    ),
    ("softplus", log(1 + exp(s)), -1100.0, 3.0, _small(1)),
    ("softplus 10", log(1 + exp(10 * s)) / 10, -15.0, 0.3, _small(10)),
    ("1 + tanh", 1 + tanh(s), -75.0, 0.5, _small(2)),
    ("gelu", NAMED["gelu"], -16.0, 0.2, _gelu),
    ("gelu", NAMED["gelu"], -40.0, 1.0, _gelu),
    ("stairs", NAMED["stairs"], 0.3, 2.0, _stairs(Rational(7, 10), lambda n: n + mpf("0.5"))),
    (
        "fine stairs",
        NAMED["fine stairs"],
        -1.0,
        3.0,
        _stairs(Rational(1, 10), lambda n: mpf(n) / 10),
    ),
    ("thirds", NAMED["thirds"], -0.027, 1.422, _stairs(Rational(1, 3), lambda n: mpf(n) / 3 + 1)),
    ("even powers", Abs(s) ** Integer(4), 0.0, 2.0, _power(Integer(4))),
)


def known_gaps() -> list[tuple[str, float, float, float]]:
    """Name, β, γ and |reference − value by hand| for each of `KNOWN`."""
    rows = []
    for name, expression, beta, gamma, form in KNOWN:
        found = log_s(expression, beta, gamma)
        with mp.workdps(DIGITS if name != "gelu" else 300):
            truth = form(mpf(beta), mpf(gamma))
            gap = float(abs(mpf(found.log_S) - truth)) if found.log_S else float("inf")
        rows.append((name, beta, gamma, gap))
    return rows


def second_gaps(count: int, seed: int = 7) -> list[tuple[str, float, float, float, float]]:
    """Blocks at random places by both methods: gap (NaN where the second has none), seconds."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        name, expression = BLOCKS[rng.integers(len(BLOCKS))]
        gamma = float(np.exp(rng.uniform(np.log(0.01), np.log(10))))
        beta = float(rng.uniform(-4, 4)) * gamma
        start, gap = time.perf_counter(), float("nan")
        found = log_s(expression, beta, gamma)
        try:
            with limited(30):
                second = numeric_log_s(expression, beta, gamma)
            with mp.workdps(DIGITS):
                gap = float(abs(mpf(found.log_S) - mpf(second)))
        except (NoReference, TimeoutError, TypeError):
            pass
        rows.append((name, beta, gamma, gap, time.perf_counter() - start))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--second", type=int, default=0, help="cells by the second method as well")
    options = parser.parse_args()
    worst = 0.0
    for name, beta, gamma, gap in known_gaps():
        worst = max(worst, gap)
        print(f"{name:16} {beta:8g} {gamma:8g}  {gap:.1e}", flush=True)
    print(f"by hand: {len(KNOWN)} cells, worst {worst:.1e}")
    both = []
    for name, beta, gamma, gap, seconds in second_gaps(options.second):
        if np.isfinite(gap):
            both.append(gap)
        print(f"{name:20} {beta:9.3g} {gamma:9.3g}  {gap:.1e}  {seconds:.1f} s", flush=True)
    if both:
        print(f"by the second method: {len(both)} cells, worst {max(both):.1e}")
    return 0 if worst < 1e-29 and max(both, default=0.0) < 1e-28 else 1


if __name__ == "__main__":
    raise SystemExit(main())
