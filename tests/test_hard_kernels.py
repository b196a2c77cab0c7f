"""Kernels that hide something from points: deep tails, periods, jumps, needles, removable zeros.

The values are from `benchmarks/campaign` (Arb, 30 digits) or by hand.
"""

import functools
import math

import mpmath
import numpy as np
import pytest
import scipy.special
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
    floor,
    log,
    sign,
    sin,
    sqrt,
    tanh,
)

import sparsity
from sparsity import (
    Alibi,
    Decay,
    InputError,
    Row,
    Sink,
    SinkLogit,
    Window,
    evaluate,
    exact,
    score_kernel,
)
from sparsity.kernels.symbols import s
from sparsity.limit import moments, panels

GELU = s * (1 + erf(s / sqrt(2))) / 2
COMB = Heaviside(cos(s) - Rational(1, 2))
NEEDLE = 1 + 1000 * exp(-(10**8) * (s - sympy.Float(1.2345)) ** 2)
STEPS7 = floor(10 * s / 7) + Rational(1, 2)
BAND = Piecewise((1, (s > 1) & (s < 1 + sympy.Float(1e-6))), (0, True))
SPREADS = (-12, -8, -5, -3, -1.5, 0, 1.5, 3, 5, 8, 12)

# (kernel, β, γ, log S)
CELLS = [
    (log(1 + exp(s)), -1100, 3, -4.5),
    (GELU, -40, 1, -133.40216935163286),
    (COMB, 0, 300, math.log(1 / 3) / 2),
    (NEEDLE, 0, 1, -1.5648771395873014),
    (BAND, 0, 1, -7.6172247956256711),
    (Abs(s) ** Rational(-3, 10), 0, 1, -0.11363315553150886),
    (exp(-1 / s**2), 0, 1, 1 - math.sqrt(2)),
]


def _log_S(f, cuts, beta, gamma):
    """Log S by mpmath's tanh-sinh rule, in 20 digits; f takes mpmath numbers."""
    with mpmath.workdps(20):
        cuts = [mpmath.mpf(x) for x in sorted({*cuts, *(beta + gamma * t for t in SPREADS)})]
        m1, m2 = (
            mpmath.quad(lambda x, p=p: abs(f(x)) ** p * mpmath.npdf(x, beta, gamma), cuts)
            for p in (1, 2)
        )
        return float(mpmath.log(m1) - mpmath.log(m2) / 2)


@pytest.mark.parametrize(("weight", "beta", "gamma", "log_S"), CELLS, ids=lambda x: str(x)[:40])
def test_what_points_cannot_see(weight, beta, gamma, log_S):
    found = evaluate(score_kernel("own", weight), beta=beta, gamma=gamma)
    slack = 4e-15 * (1 + abs(log_S))  # the reference is rounded
    assert abs(found.log_S - log_S) <= found.error_bound + slack
    assert found.error_bound < 1e-11
    wrong = log_S * (1 + 1e-9)
    assert abs(found.log_S - wrong) > found.error_bound + slack


REMOVABLE = [  # (kernel, the same in mpmath)
    (sin(s) / s, lambda x: mpmath.sinc(x)),
    (log(cosh(s)), lambda x: mpmath.log(mpmath.cosh(x))),
]


@pytest.mark.parametrize(("weight", "f"), REMOVABLE, ids=lambda x: str(x)[:20])
def test_removable_and_integrable_points(weight, f):
    # Cut where f is singular, and where |f| has a corner.
    expected = _log_S(f, (-math.pi * 2, -math.pi, -1.0, 0.0, 1.0, math.pi, math.pi * 2), 0.3, 0.9)
    found = evaluate(score_kernel("own", weight), beta=0.3, gamma=0.9)
    assert abs(found.log_S - expected) <= found.error_bound + 2e-16
    assert found.error_bound < 1e-12


@pytest.mark.thorough
def test_jumps_that_nobody_announced():
    """A staircase is a sum over its steps."""
    rng = np.random.default_rng(1)
    beta, gamma = rng.normal(), math.exp(rng.normal())
    for weight, width, value in (
        (STEPS7, 0.7, lambda k: k + 0.5),
        (floor(3 * s) / 3 + 1, 1 / 3, lambda k: k / 3 + 1),
        (2 + sign(sin(s)), math.pi, lambda k: 3.0 - 2 * (k % 2)),
    ):
        k = np.arange(-3000, 3000)
        edge = (np.append(k, k[-1] + 1) * width - beta) / gamma
        ndtr = scipy.special.ndtr
        share = np.where(edge[1:] < 0, np.diff(ndtr(edge)), -np.diff(ndtr(-edge)))
        m1, m2 = (float((np.abs(value(k)) ** p) @ share) for p in (1, 2))
        found = evaluate(score_kernel("own", weight), beta=beta, gamma=gamma)
        log_S = math.log(m1) - math.log(m2) / 2
        assert abs(found.log_S - log_S) <= found.error_bound + 2e-14
        assert found.error_bound < 1e-11


def test_a_jump_where_two_functions_meet():
    """1 + Heaviside(s + sin(s) − 2) jumps where s + sin(s) = 2."""
    with mpmath.workdps(30):
        place = mpmath.findroot(lambda x: x + mpmath.sin(x) - 2, 1.1)
        p = mpmath.ncdf((0.7 - place) / 0.1)
        expected = mpmath.log(1 + p) - mpmath.log(1 + 3 * p) / 2
    found = evaluate(score_kernel("own", 1 + Heaviside(s + sin(s) - 2)), beta=0.7, gamma=0.1)
    assert abs(found.log_S - float(expected)) <= found.error_bound + 2e-16
    assert found.error_bound < 1e-11


def _n_eff(f, n, beta, gamma):
    """∫ [n E a²e^(−ta²) φ^(n−1) + n(n−1)(E|a|e^(−ta²))² φ^(n−2)] dt, φ = E e^(−ta²).

    Gauss–Legendre panels of the score, cut where f(0) = 0, and the trapezoidal rule in ln t.
    """
    edges = np.union1d(np.linspace(-10, 10, 81), [-beta / gamma])
    x, w = np.polynomial.legendre.leggauss(40)
    half = np.diff(edges)[:, None] / 2
    z = ((edges[:-1, None] + half) + half * x).ravel()
    weight = (half * w).ravel() * np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    a = np.abs(f(beta + gamma * z))
    step, total = 0.25, 0.0
    for u in np.arange(-45.0, 75.0, step) - 2 * np.log(a.max()):
        t = np.exp(u)
        lower = weight * np.exp(-t * a * a)
        phi, m1, m2 = lower.sum(), lower @ a, lower @ (a * a)
        if phi > 0:
            body = n * m2 * phi ** (n - 1) + n * (n - 1) * m1 * m1 * phi ** (n - 2)
            total += t * body * step
    return total


@pytest.mark.parametrize(
    ("weight", "f"),
    [
        (GELU, lambda x: x * scipy.special.ndtr(x)),
        (log(cosh(s)), lambda x: np.logaddexp(x, -x) - math.log(2)),
    ],
    ids=["gelu", "log cosh"],
)
def test_rows_that_took_minutes(weight, f):
    found = exact(score_kernel("own", weight), length=100, beta=0.3, gamma=1.0)
    assert found.value == pytest.approx(_n_eff(f, 100, 0.3, 1.0), rel=1e-9)
    assert found.error_bound < 1e-10


def test_softplus_with_five_steps():
    """Against rows drawn by NumPy: the steps written out once more."""
    steps = (Decay(0.99), Alibi(0.01), Window(48), Sink(2.0, 0.5), SinkLogit(1.0))
    row = Row(score_kernel("own", log(1 + exp(s))), beta=0.5, gamma=1.5, steps=steps)
    found = exact(row, length=64)
    rng, back = np.random.default_rng(5), np.arange(64)
    rows = 40_000
    scores = 0.5 - 0.01 * back + 1.5 * rng.standard_normal((rows, 64))
    a = np.logaddexp(0, scores) * 0.99**back * (back < 48)
    a[:, -1] = np.logaddexp(0, 2.0 + 0.5 * rng.standard_normal(rows))
    drawn = a.sum(1) ** 2 / (a * a).sum(1)
    assert abs(drawn.mean() - found.value) < 4.5 * drawn.std() / math.sqrt(rows)
    assert drawn.std() / math.sqrt(rows) < 2e-3 * found.value
    assert found.error_bound < 1e-9


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
        (sympy.tan(s), 0, 1, "does not converge"),
        (sqrt(s), 100, 1, "not a finite real number at score -"),
    ],
    ids=str,
)
def test_refusals_give_the_reason(weight, beta, gamma, message):
    with pytest.raises(InputError, match=message):
        evaluate(score_kernel("own", weight), beta=beta, gamma=gamma)


@pytest.mark.parametrize(("weight", "at"), [("1/abs(s)**0.45", 0.0), ("log(abs(s - 1))", 1.0)])
def test_a_pole_at_the_mean_score_is_no_wide_range(weight, at):
    """Scores that are tried before the panels hit the pole itself, and the row was refused."""
    for of in ("n_eff", "participation", "entropy"):
        found, beside = (
            exact(score_kernel("own", weight), length=10, of=of, gamma=1.0, beta=at + off)
            for off in (0.0, 1e-7)
        )
        assert float(found) == pytest.approx(float(beside), rel=1e-10)
    with pytest.raises(InputError, match="not resolved"):  # E a² is infinite
        exact("1/s", length=10, gamma=1.0)


def test_hyperbolic_terms_that_cancel_are_exponentials():
    for text, plain in (("cosh(s) - sinh(s)", exp(-s)), ("cosh(s)**2 - sinh(s)**2", 1)):
        assert score_kernel("own", sympy.sympify(text)).weight == plain
    both = sympy.sinh(s) + 2 * sympy.cosh(s)
    assert score_kernel("own", both).weight == both


def test_a_huge_spread_is_the_reason_not_the_growth():
    for refused in (
        lambda: sparsity.needle_capacity("exp", dim=16, query=1e200),
        lambda: evaluate("sinh(s)", beta=0.0, gamma=1e200),
    ):
        with pytest.raises(InputError, match=r"no digit .* at the spread 1e\+200; lower it"):
            refused()


@pytest.mark.thorough
def test_too_fine_a_structure_is_refused(monkeypatch):
    """At a fiftieth of the work that is put into it."""
    monkeypatch.setattr(moments, "cut", functools.partial(panels.cut, work=panels.MAX_WORK / 50))
    test_refusals_give_the_reason(floor(10 * s) / 10, 0, 1e5, "too fine a structure at gamma = 1")
