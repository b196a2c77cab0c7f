"""Weights that are flat on whole stretches, and constants beyond the floats: exact references."""

import functools
import math

import mpmath
import pytest
import sympy
from scipy.special import ndtr
from scipy.stats import binom
from sympy import Abs, Heaviside, Max, Piecewise, cos, exp, floor, log, sign

from sparsity import InputError, Row, Sink, estimate, evaluate, exact, score_kernel
from sparsity.kernels.formulas import symmetry
from sparsity.kernels.symbols import s
from sparsity.limit import moments, panels

UNIT = ndtr(1) - 0.5  # P(0 < s < 1)
# weight: ((probability, value), …) under N(0, 1)
TIES = {
    1 + sign(Max(s, 0)): ((0.5, 1), (0.5, 2)),
    Heaviside(Max(s, 0)): ((0.5, 0.5), (0.5, 1)),
    Piecewise((2, Max(s, 0) > 0), (1, True)): ((0.5, 1), (0.5, 2)),
    Piecewise((2, 2 * floor(s) > 0), (1, True)): ((0.5 + UNIT, 1), (0.5 - UNIT, 2)),
    2 + sign(floor(s)): ((0.5, 1), (UNIT, 2), (0.5 - UNIT, 3)),
    Heaviside(Abs(s) - 4): ((1 - 2 * ndtr(-4), 0), (2 * ndtr(-4), 1)),
}


def own(weight):
    return score_kernel("own", weight)


@pytest.mark.parametrize("weight", TIES, ids=str)
def test_what_is_zero_on_a_whole_stretch_is_zero_there(weight):
    m1, m2 = (sum(p * value**k for p, value in TIES[weight]) for k in (1, 2))
    found = evaluate(own(weight), beta=0.0, gamma=1.0)
    assert abs(found.log_S - (math.log(m1) - math.log(m2) / 2)) <= found.error_bound + 1e-14
    assert found.error_bound < 1e-11


def test_a_tie_that_cannot_be_decided_is_refused(monkeypatch):
    """After a tenth of the work that is put into it."""
    monkeypatch.setattr(moments, "cut", functools.partial(panels.cut, work=panels.MAX_WORK / 10))
    with pytest.raises(InputError):
        evaluate(own(Piecewise((2, Abs(s) - s > 0), (1, True))), beta=0.0, gamma=1.0)


def two_valued(n, p, low, high):
    """E n_eff of n weights that are `high` with probability p, else `low`."""
    each = ((n - k, k) for k in range(n + 1))
    return sum(
        binom.pmf(k, n, p) * (i * low + k * high) ** 2 / (i * low**2 + k * high**2) for i, k in each
    )


@pytest.mark.parametrize(("beta", "n"), [(1.0, 2), (1.0, 10), (-2.0, 50), (30.0, 10)])
def test_jumps_do_not_lose_the_bias(beta, n):
    """A step looks constant to a derivative, and is not."""
    kernel = own(Piecewise((1, s < 0), (2, True)))
    true = two_valued(n, float(ndtr(beta)), 1, 2)
    found = exact(kernel, length=n, beta=beta, gamma=1.0)
    assert abs(found.value / true - 1) <= found.error_bound + 1e-13
    # A sink that is like the others: the tokens go one by one through the engine.
    row = exact(Row(kernel, beta=beta, gamma=1.0, steps=(Sink(beta, 1.0),)), length=n)
    assert abs(row.value / true - 1) <= row.error_bound + 1e-13


@pytest.mark.parametrize(
    ("weight", "rise"),
    [
        (exp(2 * s), 2.0),
        (sympy.Integer(2) ** (3 * s) * exp(s), 1 + 3 * math.log(2)),
        (sympy.Integer(7), 0.0),
        (Piecewise((1, s < 0), (2, True)), None),
        (exp(s) * Piecewise((1, s < 0), (2, True)), None),
        (exp(floor(s)), None),
        (s**2, None),
    ],
    ids=str,
)
def test_only_exponentials_are_the_same_after_a_shift(weight, rise):
    found = symmetry(weight)[0]
    assert found == (None if rise is None else pytest.approx(rise, rel=1e-15))


def test_constants_below_all_floats_are_no_zeros():
    with mpmath.workdps(60):
        for cut, depth in ((45, 800), (200, 20000)):
            p, c = mpmath.ncdf(-cut), mpmath.exp(-depth)
            true = mpmath.log(p * (1 + c) + (1 - p) * c)
            true -= mpmath.log(p * (1 + c) ** 2 + (1 - p) * c**2) / 2
            kernel = own(Heaviside(s - cut) + exp(-depth))
            found = evaluate(kernel, beta=0.0, gamma=1.0)
            assert abs(found.log_S - true) <= found.error_bound
            assert found.error_bound < 1e-9
            rows = exact(kernel, length=10, beta=0.0, gamma=1.0)
            assert abs(rows.value - 10) <= 10 * rows.error_bound + 1e-12
            with pytest.raises(InputError, match="beyond float64"):
                estimate(kernel, beta=0.0, gamma=1.0)
    tiny = evaluate(own(log(1 + exp(s)) + exp(-800)), beta=-2000.0, gamma=1.0)
    assert abs(tiny.log_S) <= tiny.error_bound
    large = evaluate(own((2 + cos(300 * s)) * exp(700)), beta=0.0, gamma=1.0)
    plain = evaluate(own(2 + cos(300 * s)), beta=0.0, gamma=1.0)
    assert abs(large.log_S - plain.log_S) <= large.error_bound + plain.error_bound


def test_the_ends_of_a_narrow_band_are_not_rounded_together():
    """SymPy would round 9.47 + 0.5000005 to its own floats; the definition says both."""
    low, high = sympy.Float(9.47), sympy.Float(0.5000005)
    weight = Piecewise((1, (s - low > 0.5) & (s - low < high)), (0, True))
    beta, gamma = 282.0, 8.3
    found = evaluate(own(weight), beta=beta, gamma=gamma)
    with mpmath.workdps(50):
        ends = [sympy.Rational(low) + x for x in (sympy.Rational(1, 2), sympy.Rational(high))]
        ends = [(mpmath.mpf(x.p) / x.q - beta) / gamma for x in ends]
        true = mpmath.log(mpmath.ncdf(ends[1]) - mpmath.ncdf(ends[0])) / 2
        assert abs(found.log_S - true) <= found.error_bound
        assert found.error_bound < 1e-9
