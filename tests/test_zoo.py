"""The zoo: every kernel of its tuple by name, derived, integrated, in rows of two, and sampled."""

import functools
import math
import re
from pathlib import Path

import jax
import mpmath
import numpy as np
import pytest
import sympy
from example_rows import sampled
from sympy import Rational, cosh, erf, exp, expand, pi, sqrt

from sparsity import InputError, LengthBias, NoClosedForm, Row, derive, evaluate, exact, kernels
from sparsity.crosscheck.reference_grid import scalar
from sparsity.crosscheck.verify import judge
from sparsity.kernels import ALL, ZOO, Law, named, zoo
from sparsity.kernels.lowering import jax_log_abs, numpy_weight
from sparsity.kernels.symbols import beta, gamma, s
from sparsity.sampling import Sampling

NAMES = (Path(__file__).parents[1] / "docs" / "names.md").read_text("utf-8")

LOG_S = {  # by `by_mpmath` at the points, 20 digits rounded to float64
    "relu": (-1.4799894994980556, -0.5005119796890833, -0.5723649429247001),
    "relu3": (-2.3118741106632616, -1.1364377808610313, -1.2332428629158598),
    "power2": (-0.38984589098006556, -0.5490625982990398, -0.5493061443340549),
    "power4": (-0.8910776738585687, -1.2274338215614153, -1.228367886410652),
    "abs": (-0.16149106023077822, -0.2257291400336489, -0.22579135264472744),
    "cosh": (-0.2047826050197852, -0.812455587886145, -2.7784282730431413),
    "taylor2": (-0.11523829934050087, -0.35754196038157215, -0.46116652316505885),
    "taylor4": (-0.21250048618245604, -0.7056198448541889, -1.0200575696942684),
    "threshold": (-1.270388821614043, -1.1735844091613707, -3.1312288821600536),
    "softpick": (-1.6422954239420042, -1.312445873067573, -3.1534992446539873),
    "softplus": (-0.16603834883357216, -0.2562185440593036, -0.41076879823576534),
    "sigmoid": (-0.10719053294001986, -0.10951196016531964, -0.194566112324432),
    "elu+1": (-0.22897284818189464, -0.24389021894139554, -0.3760421168325931),
    "elu": (-0.07905209308202384, -0.2671578884254781, -0.3101544246306219),
    "gelu": (-0.2421873297865656, -0.48273794789204716, -0.562365003506783),
    "silu": (-0.07544875362158375, -0.4418247118238127, -0.530222649902269),
}


def by_mpmath(kernel, bias, spread):
    """log S of 20 digits, integrated over the two half-lines of the score."""
    f = sympy.lambdify([s], kernel.weight, "mpmath")
    with mpmath.workdps(20):
        b, g = mpmath.mpf(bias), mpmath.mpf(spread)
        weighed = functools.cache(lambda t: (abs(f(b + g * t)), mpmath.npdf(t)))  # for both means

        def mean(p):
            def integrand(t):
                a, density = weighed(t)
                return a**p * density

            edges = [-14, -5, 5, 12, 18, -b / g]
            return mpmath.quad(integrand, sorted(edges))

        return mpmath.log(mean(1)) - mpmath.log(mean(2)) / 2


STORED = [kernel for kernel in ZOO if kernel.name in LOG_S]  # a new one need not be


# Names.


def test_every_kernel_is_there_once_with_a_source():
    every = kernels.known()
    assert every == (*ALL, *ZOO)
    for field in ("name", "title", "weight"):
        assert len({getattr(kernel, field) for kernel in every}) == len(every)
    for kernel in ZOO:
        assert kernel.source not in {"", "typed"}
        assert kernel.law is Law.SCORE
        assert [p.name for p in kernel.parameters] == ["beta", "gamma"]
        assert named(kernel.name) is kernel
    listed = NAMES[NAMES.index("Other functions of") : NAMES.index("A formula equal")]
    told = {*re.findall(r"`([a-z0-9+]+)`", listed)} - {"beta", "gamma"}
    assert {kernel.name for kernel in STORED} <= told <= {kernel.name for kernel in ZOO}


FORMULAS = {
    "(s**2)**2": zoo.power4,
    "where(s > 0, exp(s), 0)": zoo.threshold,
    "relu(exp(s) - 1)": zoo.softpick,
    "log(1 + exp(s))": zoo.softplus,
    "elu(s) + 1": zoo.elu1,
    "s*sigmoid(s)": zoo.silu,
}


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_formula_that_is_one_of_them_gets_its_record(formula):
    assert named(formula) is FORMULAS[formula]


def test_a_formula_that_is_none_of_them_stays_typed():
    for formula in ("log(2 + exp(s))", "elu(s) + 2", "elu(s)*elu(s)", "where(s > 1, exp(s), 0)"):
        assert named(formula).source == "typed"


def test_a_power_has_an_even_degree():
    assert zoo.power(6).weight == s**6
    for degree in (0, 3, 2.5, -2, "2"):
        with pytest.raises(InputError, match="degree"):
            zoo.power(degree)


# Closed forms, as printed. M(k) = E max(s, 0)^k by its recurrence, Φ by erf.

z = beta / gamma


def Phi(x):
    return (1 + erf(x / sqrt(2))) / 2


def by_parts(k, first, second):
    """m_k = β m_(k−1) + (k−1)γ² m_(k−2), integrated by parts."""
    moments = [first, second]
    for j in range(2, k + 1):
        moments.append(beta * moments[-1] + (j - 1) * gamma**2 * moments[-2])
    return moments[k]


def M(k):
    return by_parts(k, Phi(z), beta * Phi(z) + gamma * exp(-(z**2) / 2) / sqrt(2 * pi))


def normal(k):
    """E s^k."""
    return by_parts(k, sympy.Integer(1), beta)


def grown(a):
    """E e^(as) where s > 0."""
    return exp(a * beta + a**2 * gamma**2 / 2) * Phi(z + a * gamma)


def kept(a):
    """E e^(as) where s < 0."""
    return exp(a * beta + a**2 * gamma**2 / 2) * Phi(-z - a * gamma)


def of_polynomial(f):
    poly = sympy.Poly(f, s)
    return tuple(sum(c * normal(k) for (k,), c in power.terms()) for power in (poly, poly * poly))


PRINTED = {  # E|a|, E a²
    "relu": (M(1), M(2)),
    "relu3": (M(3), M(6)),
    "power2": (normal(2), normal(4)),
    "power4": (normal(4), normal(8)),
    "abs": (2 * M(1) - beta, beta**2 + gamma**2),
    "cosh": (exp(gamma**2 / 2) * cosh(beta), (1 + exp(2 * gamma**2) * cosh(2 * beta)) / 2),
    "taylor2": of_polynomial(1 + s + s**2 / 2),
    "taylor4": of_polynomial(1 + s + s**2 / 2 + s**3 / 6 + s**4 / 24),
    "threshold": (grown(1), grown(2)),
    "softpick": (grown(1) - Phi(z), grown(2) - 2 * grown(1) + Phi(z)),
    "elu+1": (M(1) + M(0) + kept(1), M(2) + 2 * M(1) + M(0) + kept(2)),
    "elu": (M(1) + Phi(-z) - kept(1), M(2) + Phi(-z) - 2 * kept(1) + kept(2)),
}


def same(one, other):
    """Whether two forms of exponentials and erf are one function, symbolically."""
    gap = expand((one - other).replace(sympy.erfc, lambda x: 1 - erf(x)).rewrite(cosh, exp))
    inner = {f: f.func(expand(f.args[0])) for f in gap.atoms(erf, exp)}
    return sympy.powsimp(expand(gap.xreplace(inner))) == 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    "kernel",
    [pytest.param(x, marks=[pytest.mark.slow] * (i % 3 > 0)) for i, x in enumerate(STORED)],
    ids=lambda kernel: kernel.name,
)
def test_the_derived_moments_are_the_printed_ones(kernel):
    if kernel.name not in PRINTED:
        with pytest.raises(NoClosedForm, match="no closed form: expanding"):
            derive(kernel)
        return
    found = derive(kernel)
    for derived, printed in zip(
        (found.first_moment, found.second_moment), PRINTED[kernel.name], strict=True
    ):
        assert same(derived, printed)
        assert not same(derived, printed * Rational(10**9 + 1, 10**9))
    assert len(found.limits) >= 2


# Quadrature against mpmath.

POINTS = ((-1.0, 0.75), (0.25, 1.5), (0.0, 2.5))


@pytest.mark.slow
def test_what_is_stored_is_what_mpmath_finds():
    for kernel in STORED:
        assert LOG_S[kernel.name] == tuple(float(by_mpmath(kernel, *at)) for at in POINTS)


def test_evaluate_against_mpmath():
    """One point is integrated anew."""
    assert float(by_mpmath(zoo.power2, *POINTS[1])) == LOG_S["power2"][1]
    for kernel in STORED:
        for (bias, spread), truth in zip(POINTS, LOG_S[kernel.name], strict=True):
            found = evaluate(kernel, beta=bias, gamma=spread)
            assert abs(found.log_S - truth) <= 1e-12, (kernel.name, bias, spread)
            assert found.error_bound <= 1e-12
        moved = evaluate(kernel, beta=0.25 * (1 + 1e-8), gamma=1.5).log_S
        assert abs(moved - LOG_S[kernel.name][1]) > 1e-12, kernel.name


# Rows of two tokens against a sum over both scores.

_U = np.arange(-45.0, 3.5, 0.05)  # scores are ±e^u: every kink is at 0


def two_tokens(kernel, bias, spread):
    """E[(|a| + |b|)²/(a² + b²)] over pairs that are not both zero."""
    score = np.concatenate([-np.exp(_U), np.exp(_U)])
    p = 0.05 * np.abs(score) / (spread * math.sqrt(2 * math.pi))
    p *= np.exp(-(((score - bias) / spread) ** 2) / 2)
    a = np.abs(numpy_weight(kernel)(score))
    live = (a > 0) & (p > 0)
    a, p, zero = a[live], p[live], 1 - p[live].sum()
    both = p @ (2 * np.outer(a, a) / np.add.outer(a * a, a * a)) @ p
    return 1 + float(both) / (1 - max(zero, 0.0) ** 2)


@pytest.mark.thorough
def test_rows_of_two_against_a_sum_over_both_scores():
    for kernel in STORED:
        bias, spread = 0.5, 1.25
        found = exact(kernel, length=2, beta=bias, gamma=spread)
        summed = two_tokens(kernel, bias, spread)
        assert found.value == pytest.approx(summed, rel=1e-9)
        if kernel in KINDS:
            off = exact(kernel, length=2, beta=bias, gamma=spread * (1 + 1e-6))
            assert off.value != pytest.approx(summed, rel=1e-9)


# Sampling, and the cells of `verify`.


def test_a_device_computes_every_definition():
    """All in one program: log|f| of JAX against f of NumPy, and against f of other scores."""
    t = np.linspace(-8, 8, 1601)
    found = jax.jit(lambda t: [jax_log_abs(kernel)(t) for kernel in ZOO])(t)
    for kernel, log_a in zip(ZOO, found, strict=True):
        for score, right in ((t, True), (t * (1 + 1e-9), False)):
            a = np.abs(numpy_weight(kernel)(score))
            assert np.allclose(np.exp(log_a), a, rtol=1e-12, atol=1e-14) == right, kernel.name


# Of each kind of definition that is not smooth, and a special function: a jump, pieces that meet.
# Smooth ones are drawn for the reference grid.
KINDS = (zoo.threshold, zoo.elu, zoo.gelu)


@pytest.mark.thorough
def test_theory_agrees_with_scalar_draws_and_a_wrong_one_does_not():
    """One cell for each kernel; a formula that is half a percent off fails the same gate."""
    verdicts = []
    for kernel in KINDS:
        cell = scalar(kernel, beta=0.75, gamma=0.5)
        drawn = cell.sample(Sampling(rel_error=8e-4, seed=7))
        assert drawn.trusted
        for planted in (0.0, 5e-3):
            judged = judge(cell, cell.theory() + planted, drawn, 1e-4 / len(ZOO))
            verdicts.append((planted, judged.verdict))
    assert verdicts == [(0.0, "agree"), (5e-3, "disagree")] * len(KINDS)


# A bias that depends on the length.


def test_a_length_bias_is_the_bias_it_adds():
    for n in (2, 64):
        row = Row("sigmoid", beta=0.5, gamma=2.0, steps=(LengthBias(),))
        moved = Row("sigmoid", beta=0.5 - math.log(n), gamma=2.0)
        found = exact(row, length=n)
        assert found.value == pytest.approx(float(exact(moved, length=n).value), rel=1e-9)
        assert evaluate(row, length=n).log_S == pytest.approx(evaluate(moved).log_S, abs=1e-12)
    alone = exact("exp", length=64, gamma=1.0).value
    softmax = Row("exp", gamma=1.0, steps=(LengthBias(-1.0),))
    assert exact(softmax, length=64).value == pytest.approx(float(alone), rel=1e-9)


def test_a_length_bias_against_rows_by_numpy():
    row = Row("relu2", beta=2.5, gamma=0.5, steps=(LengthBias(-0.7),))
    mean, error = sampled(row, 8, 200_000)["n_eff"]
    assert abs(mean - exact(row, length=8).value) < 4 * error
    wrong = Row("relu2", beta=2.5, gamma=0.5, steps=(LengthBias(-0.72),))
    assert abs(mean - exact(wrong, length=8).value) > 4 * error
