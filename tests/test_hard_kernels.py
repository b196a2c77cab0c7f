"""Kernels that hide something from points: deep tails, periods, jumps, needles, removable zeros.

The values are from `benchmarks/campaign` (Arb, 30 digits) or by hand.
"""

import itertools
import math

import numpy as np
import pytest
import sympy
from sympy import (
    Abs,
    Heaviside,
    Piecewise,
    Rational,
    cos,
    cosh,
    erf,
    exp,
    factorial,
    floor,
    log,
    sign,
    sin,
    sqrt,
    tanh,
)

from sparsity import Row, Window, evaluate, exact, score_kernel
from sparsity.errors import InputError
from sparsity.kernels.symbols import s

GELU = s * (1 + erf(s / sqrt(2))) / 2
COMB = Heaviside(cos(s) - Rational(1, 2))
NEEDLE = 1 + 1000 * exp(-(10**8) * (s - sympy.Float(1.2345)) ** 2)
STEPS7 = floor(10 * s / 7) + Rational(1, 2)
BAND = Piecewise((1, (s > 1) & (s < 1 + sympy.Float(1e-6))), (0, True))
_thirds = math.log(2 / math.pi) + math.log(2) / 2  # E|cos| / √(E cos²) over a period

# (kernel, β, γ, log S)
CELLS = [
    (log(1 + exp(s)), -1100, 3, -4.5),
    (log(1 + exp(s)), -2000, 1, -0.5),
    (log(1 + exp(10 * s)) / 10, -15, 0.3, -4.5),
    (log(1 + exp(4 * s)), -35, 0.5, -2.0),
    (1 + tanh(s), -75, 0.5, -0.5),
    (1 - tanh(s), 100, 0.5, -0.5),
    (GELU, -16, 0.2, -4.5584502245834648),
    (GELU, -40, 1, -133.40216935163286),
    (COMB, 0, 30, math.log(1 / 3) / 2),
    (COMB, 0, 300, math.log(1 / 3) / 2),
    (exp(100 * cos(s)), 0, 30, -1.4365319871691632),
    (NEEDLE, 0, 1, -1.5648771395873014),
    (floor(3 * s) / 3 + 1, -0.027, 1.422, -0.22312673937054382),
    (BAND, 0, 1, -7.6172247956256711),
    (cos(s), 0, 1e4, _thirds),
    (Abs(s) ** Rational(-3, 10), 0, 1, -0.11363315553150886),
    (exp(-1 / s**2), 0, 1, 1 - math.sqrt(2)),
]


def _mean(f, cuts, beta, gamma):
    """E f(β + γε) by SciPy on pieces, for smooth pieces: another rule, in other coordinates."""
    from scipy.integrate import quad

    total = 0.0
    for low, high in itertools.pairwise(cuts):
        density = lambda x: f(x) * math.exp(-((x - beta) ** 2) / (2 * gamma**2))  # noqa: E731
        total += quad(density, low, high, epsabs=0, epsrel=1e-9, limit=500)[0]
    return total / (gamma * math.sqrt(2 * math.pi))


@pytest.mark.parametrize(("weight", "beta", "gamma", "log_S"), CELLS, ids=lambda x: str(x)[:40])
def test_what_points_cannot_see(weight, beta, gamma, log_S):
    found = evaluate(score_kernel("own", weight), beta=beta, gamma=gamma)
    slack = 4e-15 * (1 + abs(log_S))  # the reference is rounded
    assert abs(found.log_S - log_S) <= found.error_bound + slack
    assert found.error_bound < 1e-11
    wrong = log_S * (1 + 1e-9)
    assert abs(found.log_S - wrong) > found.error_bound + slack


REMOVABLE = [  # (kernel, the same in floats)
    (sin(s) / s, lambda x: math.sin(x) / x),
    (tanh(s) / s, lambda x: math.tanh(x) / x),
    (s / (exp(s) - 1), lambda x: x / math.expm1(x)),
    (log(Abs(s)), lambda x: math.log(abs(x))),
    (log(1 + s**2), lambda x: math.log1p(x * x)),
    (log(cosh(s)), lambda x: math.log(math.cosh(x))),
]


@pytest.mark.parametrize(("weight", "f"), REMOVABLE, ids=lambda x: str(x)[:20])
def test_removable_and_integrable_points(weight, f):
    cuts = (-9.0, -4.0, -1.0, -1e-3, -1e-9, 1e-9, 1e-3, 1.0, 4.0, 9.0)
    m1, m2 = (_mean(lambda x, p=p: abs(f(x)) ** p if x else 1.0, cuts, 0.3, 0.9) for p in (1, 2))
    found = evaluate(score_kernel("own", weight), beta=0.3, gamma=0.9)
    assert abs(found.log_S - (math.log(m1) - math.log(m2) / 2)) < 3e-8  # what SciPy leaves out
    assert found.error_bound < 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_jumps_that_nobody_announced(seed):
    """A staircase is a sum over its steps."""
    rng = np.random.default_rng(seed)
    beta, gamma = rng.normal(), math.exp(rng.normal())
    for weight, width, value in (
        (STEPS7, 0.7, lambda k: k + 0.5),
        (floor(10 * s) / 10, 0.1, lambda k: k / 10),
        (floor(3 * s) / 3 + 1, 1 / 3, lambda k: k / 3 + 1),
        (2 + sign(sin(s)), math.pi, lambda k: 3.0 - 2 * (k % 2)),
    ):
        k = np.arange(-3000, 3000)
        edge = (np.append(k, k[-1] + 1) * width - beta) / gamma
        from scipy.special import ndtr

        share = np.where(edge[1:] < 0, np.diff(ndtr(edge)), -np.diff(ndtr(-edge)))
        m1, m2 = (float((np.abs(value(k)) ** p) @ share) for p in (1, 2))
        found = evaluate(score_kernel("own", weight), beta=beta, gamma=gamma)
        log_S = math.log(m1) - math.log(m2) / 2
        assert abs(found.log_S - log_S) <= found.error_bound + 2e-14
        assert found.error_bound < 1e-11


def test_rows_of_deep_tails_and_combs():
    softmax = exact("exp", length=100, gamma=1.0)  # 1 + tanh s = 2e^(2s) down there
    row = Row(score_kernel("own", 1 + tanh(s)), beta=-75, gamma=0.5)
    for found in (exact(row, length=100), exact(row.then(Window(100)), length=128)):
        assert abs(found.value / softmax.value - 1) <= found.error_bound + softmax.error_bound
        assert found.value == pytest.approx(41.796, abs=1e-3)
        assert found.error_bound < 1e-11
    row = Row(score_kernel("own", Heaviside(cos(s) - Rational(9, 10))), beta=0, gamma=300)
    share = math.acos(0.9) / math.pi  # of scores: n_eff is their number, given that it is not 0
    expected = 1000 * share / (1 - (1 - share) ** 1000)
    for comb in (exact(row, length=1000), exact(row.then(Window(1000)), length=1001)):
        assert abs(comb.value / expected - 1) <= comb.error_bound + 1e-14
        assert comb.error_bound < 1e-11


@pytest.mark.parametrize(
    ("weight", "beta", "gamma", "message"),
    [
        (exp(exp(s)), -3, 0.1, "infinite"),
        (exp(s**2 / 8), 0, 2, "infinite"),
        (1 / s, 0, 1, "does not converge"),
        (sympy.tan(s), 0, 1, "does not converge"),
        (sqrt(s), 100, 1, "not a finite real number at score -"),
        (floor(10 * s) / 10, 0, 1e5, "too fine a structure"),
    ],
    ids=str,
)
def test_refusals_give_the_reason(weight, beta, gamma, message):
    with pytest.raises(InputError, match=message):
        evaluate(score_kernel("own", weight), beta=beta, gamma=gamma)


def test_a_polynomial_of_high_degree_is_no_difference_of_large_numbers():
    taylor = sum(s**k / factorial(k) for k in range(25))
    found = evaluate(score_kernel("own", taylor), beta=0, gamma=2)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    f = np.polynomial.Polynomial([1 / math.factorial(k) for k in range(25)])(2 * nodes)
    m1, m2 = weights @ f, weights @ f**2
    log_S = math.log(m1 / math.sqrt(m2 * weights.sum()))
    assert abs(found.log_S - log_S) < 1e-11
    assert found.error_bound < 1e-11
