"""The arithmetic of definitions: points, segments and boxes against high precision."""

import math

import mpmath
import numpy as np
import pytest
import sympy
from sympy import (
    Abs,
    Heaviside,
    Max,
    Min,
    Rational,
    cos,
    erf,
    erfc,
    exp,
    floor,
    log,
    sin,
    sqrt,
    tan,
    tanh,
)

from sparsity import InputError, evaluate, score_kernel
from sparsity.kernels.numeric.boxes import ComplexBox
from sparsity.kernels.numeric.definition import Definition, period
from sparsity.kernels.numeric.intervals import Interval
from sparsity.kernels.numeric.points import Approx
from sparsity.kernels.symbols import s

SMOOTH = {
    "softplus": log(1 + exp(s)),
    "1 + tanh": 1 + tanh(s),
    "logistic": 1 / (1 + exp(-s)),
    "gelu": s * (1 + erf(s / sqrt(2))) / 2,
    "erfc": erfc(s),
    "bose": s / (exp(s) - 1),
    "sinc": sin(s) / s,
    "1 - cos": 1 - cos(s),
    "bump": 1 + 1000 * exp(-(10**4) * (s - sympy.Float(1.2345)) ** 2),
    "double exponential": 1 - exp(-exp(s)),
    "taylor": sum(s**k / sympy.factorial(k) for k in range(9)),
    "cancelling root": sqrt(1 + s**2) - s,
    "power": (1 + s**2) ** Rational(3, 7),
}
PIECES = {
    "relu²": Max(s, 0) ** 2,
    "clipped": Min(Max(s + Rational(1, 3), 0), 2),
    "|s|^0.3": Abs(s) ** Rational(3, 10),
    "log|s|": log(Abs(s)),
    "staircase": floor(10 * s / 7) + Rational(1, 2),
    "comb": Heaviside(cos(s) - Rational(1, 2)) + 1,
    "sawtooth": s - 2 * floor(s / 2) + 1,
}
TAILS = {"gelu": -0.5, "erfc": 1.0}  # e^(−rate·s²) on one side, where thousands of digits cancel
SCALES = (1e-6, 1e-2, 1, 10, 60)


def _exact(definition, score, digits=400):
    with mpmath.workdps(digits):
        value = definition.slow(mpmath.mpf(score))
        return mpmath.log(abs(value)) if value != 0 else -mpmath.inf


@pytest.mark.thorough
@pytest.mark.parametrize("name", [*SMOOTH, *PIECES])
def test_points_know_their_error(name):
    definition = Definition(score_kernel("own", {**SMOOTH, **PIECES}[name]))
    rng, cells, tight = np.random.default_rng(7), 0, 0
    for scale in SCALES:
        score = rng.normal(size=5 if name in TAILS else 12) * scale
        found = definition.values_at(0.0, Approx(score))
        for x, value, error in zip(score, found.log, found.error, strict=True):
            lost = max(TAILS.get(name, 0.0) * x * abs(x), 0.0) / math.log(10)
            exact = _exact(definition, x, (100 if name in TAILS else 400) + math.ceil(lost))
            if exact == -mpmath.inf or not np.isfinite(error):
                assert exact > -mpmath.inf or value == -np.inf
                continue
            assert abs(mpmath.mpf(float(value)) - exact) <= error, (x, value, error)
            cells, tight = cells + 1, tight + (error <= 1e-12 * (1 + abs(value)))
    assert cells >= 20
    assert tight >= 0.6 * cells


@pytest.mark.parametrize(
    ("weight", "score", "exact"),
    [
        (log(1 + exp(s)), -1100.0, -1100.0),
        (1 + tanh(s), -3e5, np.log(2) - 6e5),
        (1 - exp(-exp(s)), -5e4, -5e4),
        (sqrt(1 + s**2) - 1, 1e-9, np.log(0.5e-18)),
    ],
)
def test_deep_tails_keep_all_digits(weight, score, exact):
    found = Definition(score_kernel("own", weight)).values_at(0.0, Approx(np.array([score])))
    assert abs(found.log[0] - exact) <= found.error[0] + 1e-15 * abs(exact)
    assert found.error[0] <= 1e-14 * abs(exact)


def test_an_anchor_keeps_the_digits_of_the_offset():
    """s = 1 + 10⁻³⁰ is 1 in float64; (s − 1)² and |s − 1|^0.3 are not 0 there."""
    for weight, power in (((s - 1) ** 2, 2.0), (Abs(s - 1) ** Rational(3, 10), 0.3)):
        definition = Definition(score_kernel("own", weight))
        assert 1.0 in definition.roots
        found = definition.values_at(1.0, Approx(np.array([1e-30])))
        assert abs(found.log[0] - power * np.log(1e-30)) <= found.error[0] < 1e-12


def test_the_error_of_a_number_without_digits_holds_its_functions():
    """x is known to be in (0, m + e] or [m − e, m + e] only, where e is much larger than m."""
    with np.errstate(all="ignore"):
        assert Approx(np.array([1e-20]), np.array([1e-18])).power(-0.5).log_abs()[1] == np.inf
        nine_tenths = Approx(np.array([1.0]), np.array([0.9])).power(-0.5)
        assert nine_tenths.log_abs()[1] >= 0.5 * np.log(10)
        wide = Approx(np.array([1.0]), np.array([10.0])).power(1.4)
        assert wide.m + wide.e >= 11.0**1.4
        near_zero = Approx(np.array([1e-40]), np.array([0.5]))
        assert near_zero.log1p().e >= np.log(2)
        assert near_zero.expm1().e >= np.expm1(0.5)


@pytest.mark.parametrize("scale", [1e-170, 1e170])
def test_constants_whose_square_is_no_float_keep_the_value(scale):
    """(c + c/10·tanh s)² is c² times the value at c = 1, however small or large c is."""
    weight = (1 + tanh(s) / 10) ** 2
    scaled = (sympy.Float(scale) + sympy.Float(scale) / 10 * tanh(s)) ** 2
    scores = Approx(np.linspace(-3.0, 3.0, 13))
    plain, found = (
        Definition(score_kernel("own", each)).values_at(0.0, scores) for each in (weight, scaled)
    )
    assert np.all(np.abs(found.log - plain.log - 2 * np.log(scale)) < 1e-12)
    assert np.all(found.error < 1e-12)


@pytest.mark.parametrize("name", [*SMOOTH, *PIECES])
def test_segments_and_boxes_hold_every_value(name):
    """Values of f inside lie within the bounds, on the segment and, continued, on the box."""
    definition = Definition(score_kernel("own", {**SMOOTH, **PIECES}[name]))
    rng, inside, around = np.random.default_rng(11), 0, 0
    for scale in SCALES[1:4]:
        for width in (1e-3, 0.1, 1.0):
            centre = rng.normal(size=6) * scale
            half = np.abs(rng.normal(size=6)) * width + 1e-9
            segment = Interval.between(centre - half, centre + half)
            low, high, taken = definition.bounds_on_segments(0.0, segment, False)
            box = ComplexBox(centre - 1.4 * half, centre + 1.4 * half, -0.9 * half, 0.9 * half)
            least, most, angle = definition.bounds_on_boxes(0.0, box, taken, False)
            for i in range(6):
                score = centre[i] + half[i] * rng.uniform(-1, 1)
                exact = _exact(definition, score, 120)
                slack = 1e-14 * (1 + abs(float(exact))) if exact > -mpmath.inf else 0
                assert low[i] - slack <= exact <= high[i] + slack
                inside += 1
                if name in PIECES or not np.isfinite(most[i]):
                    continue
                with mpmath.workdps(120):
                    z = mpmath.mpc(*(rng.uniform(-1, 1, 2) * half[i] * (1.4, 0.9))) + centre[i]
                    value = definition.slow(z)
                    assert mpmath.log(abs(value)) <= most[i] + 1e-12 * (1 + abs(most[i]))
                    if np.isfinite(least[i]) and np.isfinite(angle[i]):
                        assert mpmath.log(abs(value)) >= least[i] - 1e-12 * (1 + abs(least[i]))
                        turned = value / definition.slow(mpmath.mpf(centre[i]))
                        assert abs(mpmath.arg(turned)) <= 2 * angle[i] + 1e-12
                around += 1
    assert inside == 54
    assert name in PIECES or around >= 15


def test_bounds_are_not_vacuous():
    """A bound on another function is seen to be wrong, and narrow segments have narrow bounds."""
    definition = Definition(score_kernel("own", SMOOTH["softplus"]))
    low, high, _ = definition.bounds_on_segments(
        0.0, Interval.between(np.array([0.5]), np.array([0.501])), False
    )
    assert high - low < 2e-3
    assert not low[0] <= _exact(definition, 0.6) <= high[0]


def test_a_pole_or_a_branch_point_in_the_box_is_seen():
    for weight in (1 / (s**2 + Rational(1, 100)), log(1 + exp(s)), sqrt(1 + s**2), tan(s)):
        definition = Definition(score_kernel("own", weight))
        segment = Interval.between(np.array([0.29]), np.array([0.31]))
        taken = definition.bounds_on_segments(0.0, segment, False)[2]
        for half, seen in ((3.0, True), (1e-3, False)):
            box = ComplexBox(
                *(np.array([x]) for x in (0.3 - half, 0.3 + half, -2 * half, 2 * half))
            )
            assert np.isfinite(definition.bounds_on_boxes(0.0, box, taken, False)[1][0]) != seen


def test_an_undecided_branch_is_not_analytic():
    definition = Definition(score_kernel("own", Max(s, 0) + 1))
    taken = definition.bounds_on_segments(
        0.0, Interval.between(np.array([-0.1]), np.array([0.1])), False
    )[2]
    box = ComplexBox(np.array([-0.1]), np.array([0.1]), np.array([-0.1]), np.array([0.1]))
    assert np.isnan(definition.bounds_on_boxes(0.0, box, taken, False)[1][0])


@pytest.mark.parametrize(
    ("weight", "found"),
    [
        (cos(s), 2 * np.pi),
        (Heaviside(cos(3 * s + 1) - Rational(1, 2)), 2 * np.pi / 3),
        (cos(sympy.pi * s) + tan(sympy.pi * s / 3), 6.0),
        (cos(s) + cos(sqrt(2) * s), None),
        (s + cos(s), None),
    ],
)
def test_periods(weight, found):
    assert period(weight) == (None if found is None else pytest.approx(found, rel=1e-15))


def test_points_that_lose_their_digits_are_computed_slowly_where_the_bound_gains_by_it():
    cancelling = score_kernel("own", (1 + s) ** 3 - 1 - 3 * s - 3 * s**2)  # s³, of numbers near 1
    found = evaluate(cancelling, beta=0.0, gamma=1e-4)
    assert found.error_bound < 1e-12  # 6.5e-7 in float64 alone
    assert abs(found.log_S - math.log(math.sqrt(8 / math.pi / 15))) <= found.error_bound


def test_arctangents_of_large_numbers_lose_little():
    found = Approx(np.array([1e12, -1e12]), np.array([1.0, 1.0])).atan()
    assert np.all(found.e < 2e-15)
    assert np.all(
        Approx(np.array([0.5]), np.array([1.0])).atan().e >= math.atan(1.5) - math.atan(0.5)
    )


def test_unknown_functions_are_refused_by_name():
    with pytest.raises(InputError, match="besselj cannot be evaluated"):
        Definition(score_kernel("own", sympy.besselj(0, s))).values_at(0.0, Approx(np.zeros(1)))
