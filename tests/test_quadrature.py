"""Quadrature of the definition: within its own bound of the truth, and the bound not vacuous."""

import itertools
import math

import mpmath
import numpy as np
import pytest
import sympy

from sparsity import InputError, evaluate, kernels, score_kernel
from sparsity.kernels.symbols import s
from sparsity.limit import quadrature

DIGITS = 60
Z = (-40, -17.3, -5, -1, -1e-3, 0, 1e-6, 0.7, 6, 40, 1e3, 1e6)
GAMMA = (1e-6, 3e-3, 0.5, 1, 2.5, 30, 1e3, 1e6)


def _exact(name, beta, gamma):
    """Log S by the printed forms of the article, in high precision."""
    with mpmath.workdps(DIGITS):
        b, c = mpmath.mpf(beta), mpmath.mpf(gamma)
        z = b / c
        if name == "exp":
            return -c * c / 2
        if name == "identity":
            top = mpmath.sqrt(2 / mpmath.pi) * c * mpmath.exp(-z * z / 2)
            top += b * mpmath.erf(z / mpmath.sqrt(2))
            return mpmath.log(top / mpmath.sqrt(b * b + c * c))
        # The printed moments cancel like z^(−6) in the tail, which 60 digits afford. Far on the
        # right Φ = 1 to all digits.
        cdf, pdf = mpmath.erfc(-z / mpmath.sqrt(2)) / 2, mpmath.npdf(z)
        m2 = (b * b + c * c) * cdf + b * c * pdf
        m4 = (b**4 + 6 * b**2 * c**2 + 3 * c**4) * cdf + b * c * (b * b + 5 * c * c) * pdf
        return mpmath.log(m2 / mpmath.sqrt(m4))


def _excess(name, z, gamma, exact=_exact):
    kernel = kernels.named(name)
    beta = z * gamma
    value, bound = quadrature.log_sparsity(kernel, kernel.bind({"beta": beta, "gamma": gamma}))
    with mpmath.workdps(DIGITS):
        error = abs(float(mpmath.mpf(float(value)) - exact(name, beta, gamma)))
    return error, float(bound)


# Each z and γ with one kernel, each kernel with every z and every γ; the corners with all.
TURNS = [
    (name, Z[i], GAMMA[j])
    for k, name in enumerate(("exp", "relu2", "identity"))
    for i, j in itertools.product(range(len(Z)), range(len(GAMMA)))
    if (i + j + k) % 3 == 0 or {i, j} <= {0, len(Z) - 1, len(GAMMA) - 1}
]


@pytest.mark.thorough
def test_score_kernels_over_the_whole_domain():
    """Within the bound alone: no further tolerance."""
    ordinary = []
    for name, z, gamma in TURNS:
        error, bound = _excess(name, z, gamma)
        assert error <= bound, (name, z, gamma, error, bound)
        assert bound < 1e-6 or abs(_exact(name, z * gamma, gamma)) > 1e11 * bound
        if abs(z) <= 40 and gamma <= 30:
            ordinary.append(bound)
    assert len(ordinary) >= 48
    assert np.median(ordinary) < 1e-12
    assert max(ordinary) < 1e-10


@pytest.mark.parametrize(
    "planted",
    [
        lambda name, b, c: _exact(name, -b, c) if name == "relu2" else _exact(name, b, 2 * c) + 1,
        lambda name, b, c: _exact(name, b, c) * (1 + mpmath.mpf("1e-9")),
        lambda name, b, c: _exact(name, b, c) / 2,
    ],
)
def test_a_planted_error_is_rejected(planted):
    for name, z, gamma in (("exp", -1, 1), ("relu2", -1, 0.5), ("identity", 0.7, 2.5)):
        error, bound = _excess(name, z, gamma, planted)
        assert error > 100 * bound


DECAYS = (1e-300, 0.01, 0.5, 0.97, 1 - 1e-3, 1 - 1e-6, 1 - 1e-9, 1 - 2.0**-53, 1.0)
LENGTHS = (1, 2, 16, 17, 33, 1000, 12345, 10**6, 10**9 + 7, 10**12)


def _decayed(decay, n, power=1):
    with mpmath.workdps(DIGITS):
        x = mpmath.mpf(decay)
        if x == 1:
            return mpmath.mpf(0)
        inside = (1 - x ** (power * n)) * (1 + x) / (n * (1 - x) * (1 + x**n))
        return mpmath.log(inside) / 2


def test_decayed():
    kernel = kernels.decayed
    decay, n = np.array(DECAYS)[:, None], np.array(LENGTHS)
    value, bound = quadrature.log_sparsity(kernel, kernel.bind({"decay": decay, "length": n}))
    assert value.shape == bound.shape == (9, 10)
    exact = np.array([[float(_decayed(x, m)) for m in LENGTHS] for x in DECAYS])
    assert np.all(np.abs(value - exact) <= bound)
    assert np.max(bound) < 1e-13
    planted = np.array([float(_decayed(x, 1000, power=2)) for x in DECAYS[4:7]])  # λ^n visible
    assert np.all(np.abs(value[4:7, 5] - planted) > 100 * bound[4:7, 5])


def test_positions_need_no_geometric_weight():
    """Σ (1+m)^(−3/2) and its square against Hurwitz zeta functions: the sums assume no form."""
    power = sympy.Rational(-3, 2)
    weight = (1 + kernels.decayed.weight.args[1]) ** power
    kernel = kernels.Kernel(
        "power", "power law", kernels.Law.POSITION, weight, kernels.decayed.parameters, "test"
    )
    for n in (20, 5000, 10**8):
        value, bound = quadrature.log_sparsity(kernel, kernel.bind({"decay": 1, "length": n}))
        with mpmath.workdps(40):
            m1, m2 = (mpmath.zeta(p) - mpmath.zeta(p, n + 1) for p in (mpmath.mpf("1.5"), 3))
            exact = mpmath.log(m1) - mpmath.log(m2) / 2 - mpmath.log(n) / 2
        assert abs(float(value) - float(exact)) <= bound < 1e-12


USER = {
    "cube": s**3,
    "elu1": sympy.Piecewise((sympy.exp(s), s < 0), (1 + s, True)),
    "cut": sympy.log(1 + sympy.exp(s)) * sympy.Heaviside(s + 2),
    "bump": sympy.exp(-((100 * s - 300) ** 2)),
    "hidden bump": sympy.Rational(1, 10) + 10**6 * sympy.exp(-((100 * s - 300) ** 2)),
    "root": sympy.sqrt(sympy.Abs(s)),
}


def _of_bumps(floor, height, powers, beta, gamma):
    """The same of floor + height·e^(−a(s − 3)²), a = 10⁴: Gaussian integrals, p = 1 and 2."""
    with mpmath.workdps(36):
        b, c, low, high = map(mpmath.mpf, (beta, gamma, floor, height))

        def mean(a):  # of e^(−a(s − 3)²)
            wide = 1 + 2 * a * c * c
            return mpmath.exp(-a * (b - 3) ** 2 / wide) / mpmath.sqrt(wide)

        first, second = mean(mpmath.mpf(10**4)), mean(mpmath.mpf(2 * 10**4))
        moments = {1: low + high * first, 2: low**2 + 2 * low * high * first + high**2 * second}
        return [mpmath.log(moments[p]) for p in powers]


BUMPS = {"bump": (0, 1), "hidden bump": ("0.1", 10**6)}


# Log E|f| and log E f² at SCORES by mpmath's tanh-sinh rule, cut at every kink, to 25 digits.
SCORES = ((0.3, 1.0), (-2.5, 0.5), (3.0, 2.0))
REFERENCES = {
    "cube": (
        ("0.5948774906725232411304126", "2.953462825728449163576743"),
        ("2.862200881075280295119542", "6.012338903818541084540185"),
        ("4.14929806134901781064183", "9.474932921202931565752286"),
    ),
    "elu1": (
        ("0.3365480227846137607146188", "0.9872189115589922072304727"),
        ("-2.375000028494815307392173", "-4.500000619918008114475985"),
        ("1.392855689144972331393784", "2.994825305405578051531855"),
    ),
    "cut": (
        ("-0.03633851273789434194030961", "0.237655336108378822924815"),
        ("-3.639868453844772043982768", "-5.38512262319920628855547"),
        ("1.157361231097934996352561", "2.581538778530194337447101"),
    ),
    "root": (
        ("-0.1737915959203149719713338", "-0.1820946014689591705135472"),
        ("0.4529196020048363922862958", "0.916290753258816971862903"),
        ("0.514116820211243120630747", "1.136943880724971309476612"),
    ),
}


@pytest.mark.parametrize("name", USER)
def test_user_kernels(name):
    kernel = score_kernel(name, USER[name])
    for number, (beta, gamma) in enumerate(SCORES):
        if name in BUMPS:
            references = _of_bumps(*BUMPS[name], (1, 2), beta, gamma)
        else:
            references = REFERENCES[name][number]
        for p, reference in zip((1, 2), references, strict=True):
            value, bound = quadrature.moment(kernel, p, beta, gamma)
            with mpmath.workdps(36):
                error = abs(float(mpmath.mpf(float(value)) - mpmath.mpf(reference)))
            assert error <= bound, (name, beta, gamma, p, error, bound)
            assert bound < 1e-12 or "bump" in name
            assert bound < 1e-11


def test_where_float64_loses_the_definition():
    """log(1 + e^s) is 0 at s = −40 and overflows at 800 in float64; e^s/(1 + e^s) is ∞/∞."""
    softplus = score_kernel("softplus", sympy.log(1 + sympy.exp(s)))
    for beta, exact in ((-60.0, -60 + 0.5), (2000.0, np.log(2000.0))):
        value, bound = quadrature.moment(softplus, 1, beta, 1.0)
        assert abs(value - exact) <= bound < 1e-11
    logistic = score_kernel("logistic", sympy.exp(s) / (1 + sympy.exp(s)))
    value, bound = quadrature.moment(logistic, 2, 2000.0, 1.0)
    assert abs(value) <= bound < 1e-11


def test_errors():
    infinite = score_kernel("gauss", sympy.exp(s**2 / 8))
    assert np.isfinite(quadrature.moment(infinite, 2, 0.0, 1.0)[0])
    with pytest.raises(InputError, match="infinite"):
        quadrature.moment(infinite, 2, 0.0, 2.0)
    with pytest.raises(InputError, match="finite real"):
        quadrature.moment(score_kernel("root", sympy.sqrt(s)), 1, 0.0, 1.0)
    with pytest.raises(InputError, match="function of the score"):
        quadrature.moment(kernels.decayed, 1, 0.0, 1.0)


def test_zeros_that_nobody_announced_are_found():
    """|cos(ks)| has kinks that SymPy does not list: E|cos|/√E cos² → 2√2/π for k ≫ 1/γ."""
    found = evaluate(score_kernel("cos60", sympy.cos(60 * s)), beta=0, gamma=1)
    gap = abs(float(found.log_S) - math.log(2 * math.sqrt(2) / math.pi))
    assert gap <= float(found.error_bound) < 1e-11


def test_a_moment_that_diverges_at_a_pole_is_refused():
    with pytest.raises(InputError, match="does not converge"):
        evaluate(score_kernel("tan", sympy.tan(s)), beta=0, gamma=1)
