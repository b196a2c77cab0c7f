"""Derived forms against the printed ones (proven), limits at extreme arguments, user kernels."""

# pyright: reportArgumentType=false, reportOperatorIssue=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

import itertools

import numpy as np
import pytest
import sympy
from scipy.integrate import quad
from sympy import Abs, Eq, Max, Piecewise, Rational, Sum, erf, exp, log, oo, pi, sqrt, tanh

from benchmarks.certify import arb_eval
from sparsity import NoClosedForm, derive, evaluate, score_kernel
from sparsity.derivation.derivation import z as z_symbol
from sparsity.kernels import ALL
from sparsity.kernels.symbols import Sigma, beta, d, decay, gamma, i, mu, n, q, ratio, s

Z = beta / gamma
PHI = exp(-(Z**2) / 2) / sqrt(2 * pi)  # the normal density at z
CDF = (1 + erf(Z / sqrt(2))) / 2
SUM_Q, SUM_QQ = Sum(q[i], (i, 1, d)), Sum(q[i] ** 2, (i, 1, d))

M1_RELU2 = (beta**2 + gamma**2) * CDF + beta * gamma * PHI
M2_RELU2 = (beta**4 + 6 * beta**2 * gamma**2 + 3 * gamma**4) * CDF + beta * gamma * (
    beta**2 + 5 * gamma**2
) * PHI
M3_RELU2 = (beta**3 + 3 * beta * gamma**2) * CDF + gamma * (beta**2 + 2 * gamma**2) * PHI
M1_IDENTITY = sqrt(2 / pi) * gamma * exp(-(Z**2) / 2) + beta * erf(Z / sqrt(2))
DECAY_SQUARE = (1 - decay**n) * (1 + decay) / (n * (1 - decay) * (1 + decay**n))

PRINTED = {
    "exp": exp(-(gamma**2) / 2),
    "relu2": M1_RELU2 / sqrt(M2_RELU2),
    "identity": M1_IDENTITY / sqrt(beta**2 + gamma**2),
    "nonnegative": 1 / sqrt(1 + (ratio * sqrt(SUM_QQ) / SUM_Q) ** 2),
    "decayed": sqrt(DECAY_SQUARE),
}

WRONG = [  # (kernel, what is wrong, the wrong form)
    ("exp", "lost square root", exp(-(gamma**2))),
    ("exp", "depends on beta", exp(-(gamma**2) / 2) * (1 + beta**2 / 10**30)),
    ("relu2", "m3 for m4", M1_RELU2 / sqrt(M3_RELU2)),
    ("relu2", "Phi(-z)", PRINTED["relu2"].subs(erf(Z / sqrt(2)), -erf(Z / sqrt(2)))),
    ("relu2", "phi without the root of 2 pi", PRINTED["relu2"].subs(sqrt(2 * pi), 2 * pi)),
    ("identity", "erf(z)", PRINTED["identity"].subs(erf(Z / sqrt(2)), erf(Z))),
    ("identity", "odd in beta", PRINTED["identity"] * (1 + Z / 10**30)),
    ("nonnegative", "norms swapped", 1 / sqrt(1 + (ratio * SUM_Q / sqrt(SUM_QQ)) ** 2)),
    ("nonnegative", "ratio not squared", 1 / sqrt(1 + ratio * SUM_QQ / SUM_Q**2)),
    ("decayed", "lambda^(2n)", sqrt(DECAY_SQUARE.subs(decay**n, decay ** (2 * n)))),
    ("decayed", "1 - lambda^n below", sqrt((1 + decay) / (n * (1 - decay)))),
]


def points(name):
    """Where the forms are compared: at least 50 exact binary points a kernel."""
    if name == "decayed":
        return [
            {decay: x, n: m}
            for x in (2**-6, 0.25, 0.5, 0.75, 0.9, 0.99, 0.9999)
            for m in (1, 2, 3, 5, 17, 64, 1000, 4096)
        ]
    if name == "nonnegative":
        random = np.random.default_rng(0)
        return [
            {ratio: r, "q": random.uniform(0.0, 2.0, dim)}
            for r in (2**-10, 0.1, 0.5, 1.0, 2.5, 40.0)
            for dim in (1, 2, 3, 5, 8, 33, 64, 100, 200)
        ]
    if name == "exp":
        return [{gamma: g, beta: b} for g in np.linspace(2**-6, 6, 32) for b in (-1.5, 0.0, 0.25)]
    return [
        {gamma: g, beta: z * g}
        for g in (2**-20, 0.1, 0.75, 1.0, 1.75, 3.0, 2.0**20)
        for z in (-6.0, -3.5, -1.0, -0.25, 0.0, 2**-30, 0.5, 2.0, 5.0)
    ]


def balls(expression, where, bits):
    """Both sums are done in balls as well, so that d is no symbol any more."""
    from flint import arb, ctx

    values = {key: value for key, value in where.items() if key != "q"}
    if "q" in where:
        with ctx.workprec(bits):
            values[SUM_Q] = sum((arb(x) for x in where["q"]), arb(0))
            values[SUM_QQ] = sum((arb(x) * arb(x) for x in where["q"]), arb(0))
    return arb_eval(expression, values, bits)


def proven_points(derived, printed, where):
    """How many points have overlapping 200-bit balls; None at the first that has not.

    Raises:
        ArithmeticError: a ball is too wide to prove anything (relative radius ≥ 1e−40).
    """
    for point in where:
        one, two = (balls(x, point, 200) for x in (derived, printed))
        for ball in (one, two):
            if not float(ball.rad() / abs(ball).mid()) < 1e-40:
                raise ArithmeticError(f"ball of radius {ball.rad()} at {point}")
        if not one.overlaps(two):
            return None
    return len(where)


@pytest.mark.parametrize("name", PRINTED)
def test_derived_is_the_printed_form(name):
    where = points(name)
    assert proven_points(derive(name).S, PRINTED[name], where) == len(where) >= 50


@pytest.mark.parametrize(("name", "what", "form"), WRONG)
def test_the_gate_rejects_planted_errors(name, what, form):
    where = points(name)
    try:
        assert proven_points(derive(name).S, form, where) is None, what
    except ArithmeticError:  # an even form may be 0 where the wrong one is not
        assert proven_points(derive(name).S, form, where[-3:]) is None, what


def test_moments_equal_the_printed_moments_symbolically():
    relu2, identity, decayed = derive("relu2"), derive("identity"), derive("decayed")
    assert sympy.expand(relu2.first_moment - M1_RELU2) == 0
    assert sympy.expand(relu2.second_moment - M2_RELU2) == 0
    assert sympy.expand(relu2.second_moment - M3_RELU2) != 0
    assert sympy.expand(identity.first_moment - M1_IDENTITY) == 0
    assert identity.second_moment == beta**2 + gamma**2
    assert sympy.expand(derive("exp").S - PRINTED["exp"]) == 0
    assert sympy.cancel(decayed.S.args[1][0] ** 2 - DECAY_SQUARE) == 0
    assert decayed.S.subs(decay, 1) == 1
    assert sympy.simplify(derive("nonnegative").S - PRINTED["nonnegative"]) == 0


@pytest.mark.parametrize("kernel", ALL, ids=lambda kernel: kernel.name)
def test_s_is_the_ratio_of_its_moments(kernel):
    found = derive(kernel)
    for point in points(kernel.name)[:20]:
        values = point | {sympy.Symbol("mu", positive=True): 0.75}
        one, two = (
            balls(x, values, 200) for x in (found.S, found.first_moment / sqrt(found.second_moment))
        )
        assert one.overlaps(two)
    assert not found.S.has(sympy.Float)
    assert derive(kernel.name) is found


def test_functions_of_z_alone():
    for name in ("relu2", "identity"):
        reduced = derive(name).reduced
        assert reduced is not None
        assert reduced.free_symbols == {z_symbol}
        where = points(name)
        assert proven_points(reduced.subs(z_symbol, Z), PRINTED[name], where) == len(where)
    assert derive("exp").reduced is None
    assert derive(score_kernel("elu1", ELU1)).reduced is None


def written_out(expression, size):
    """Every sum over features 1…size as an explicit sum."""
    totals = {}
    for total in expression.atoms(Sum):
        terms = [total.function]
        for index, _, _ in total.limits:
            terms = [
                x.xreplace({index: sympy.Integer(m)}) for x in terms for m in range(1, size + 1)
            ]
        totals[total] = sympy.Add(*terms)
    return expression.xreplace(totals)


def test_nonnegative_for_any_mean_and_covariance():
    found = {case.name: case for case in derive("nonnegative").cases}
    general = found["any features"].S
    mean, covariance = Sum(q[i] * mu[i], (i, 1, d)), found["any features"].second_moment
    assert sympy.expand(found["any features"].first_moment - mean) == 0
    size = 3
    explicit = written_out(general, size)
    at = {d: sympy.Integer(size)}  # the indexed symbols carry d as their shape
    assert sympy.simplify(general.subs(at).doit() ** -2 - explicit.subs(at) ** -2) == 0
    assert str(SUM_Q.subs(d, 3).doit()) == "q[1] + q[2] + q[3]"
    Q, M = sympy.Matrix([q[m] for m in (1, 2, 3)]), sympy.Matrix([mu[m] for m in (1, 2, 3)])
    C = sympy.Matrix(size, size, lambda a, b: Sigma[a + 1, b + 1])
    expected = 1 + (Q.T * C * Q)[0] / (Q.T * M)[0] ** 2
    assert sympy.simplify(explicit**-2 - expected) == 0
    assert sympy.simplify(explicit**-2 - expected - (Q.T * Q)[0]) != 0
    assert covariance.has(Sigma)
    assert sympy.expand(found["uniform query"].S ** -2) == 1 + ratio**2 / d
    assert sympy.expand(found["one-hot query"].S ** -2) == 1 + ratio**2


# Limits: S is computed in balls on the way to the limit and compared with the leading term.

ELU1 = Piecewise((s + 1, s > 0), (exp(s), True))
TENT = Max(1 - Abs(s), 0)
USERS = {"cube": s**3, "elu1": ELU1, "tent": TENT, "cosh": sympy.cosh(s), "exp-minus-2": exp(s) - 2}
NEAR = (2.0**-4, 2.0**-5, 2.0**-6)  # distances y to the limit


def on_the_way(limit, distance):
    """A point at that distance, with the other parameters as the limit's condition asks."""
    others = {beta: 0.375, gamma: 1.5, decay: 0.75, n: 6, ratio: 1.25, d: 5, "q": [0.5, 1, 0.25]}
    if limit.variable == gamma and limit.condition != sympy.true:
        trials = [-2.5, -0.5, 0.0, 0.5, 1.0, 2.5, -1.0, sympy.log(2), sqrt(2)]
        fits = [x for x in trials if limit.condition.subs(beta, x) == sympy.true]
        others[beta] = fits[0]
    if limit.condition == Eq(decay, 1):
        others[decay] = 1
    if limit.point in (oo, -oo):
        here = (1 if limit.point == oo else -1) / distance
        return others | {limit.variable: int(here) if limit.variable in (n, d) else here}
    return others | {limit.variable: 1 - distance if limit.point == 1 else distance}


def approach(S, limit, *leadings):
    """Whether S, or S − its limit, over each leading term's goes to 1 on the way to the limit."""
    gaps = []
    for distance in NEAR if limit.variable not in (n, d) else (2.0**-6, 2.0**-9, 2.0**-12):
        where = on_the_way(limit, distance)
        exact = {beta: where[beta]} if not isinstance(where[beta], float) else {}
        where = {k: v for k, v in where.items() if k not in exact}
        for bits in (1000, 8000, 64000):  # as many as the cancellation in S needs
            value, base, *forms = (
                balls(x.subs(exact), where, bits) for x in (S, limit.value, *leadings)
            )
            off = [
                abs(value - base if limit.value == leading else (value - base) / (form - base) - 1)
                for leading, form in zip(leadings, forms, strict=True)
            ]
            if max(float(gap.rad()) for gap in off) < 1e-12:
                break
        assert max(float(gap.rad()) for gap in off) < 1e-12
        gaps.append([float(gap.mid()) for gap in off])
    return [falls(*each) for each in zip(*gaps, strict=True)]


def falls(first, second, last):
    """Whether gaps at halved distances go to 0."""
    straight = abs(2 * last - second)  # what is left at the limit if the gap falls like y
    return last < 1e-9 or (first > 1.5 * second > 2.25 * last and last < 0.2 and straight < 0.02)


def cases():
    kernels = {kernel.name: kernel for kernel in ALL}
    kernels |= {name: score_kernel(name, f) for name, f in USERS.items()}
    for name, kernel in kernels.items():
        found = derive(kernel)
        special = {case.name: case.S for case in found.cases}
        for limit in found.limits:
            S = (
                special.get(limit.condition, found.S)
                if isinstance(limit.condition, str)
                else found.S
            )
            yield name, limit, n * S**2 if limit.quantity == "n·S²" else S


@pytest.mark.slow
def test_every_limit_holds_at_extreme_arguments():
    seen, rejected = 0, 0
    for name, limit, S in cases():
        wrong = limit.value + (limit.leading - limit.value) * Rational(11, 10)
        planted = [wrong] if limit.leading != limit.value else []  # it must show
        right, *others = approach(S, limit, limit.leading, *planted)
        assert right, (name, limit)
        assert not any(others), (name, limit)
        seen, rejected = seen + 1, rejected + len(others)
    assert seen >= 40
    assert rejected >= 20


def limits(name):
    return {(x.variable, x.point, x.condition, x.quantity): x for x in derive(name).limits}


def test_the_published_limits():
    true, zero, one = sympy.true, sympy.S.Zero, sympy.S.One
    found = limits("exp")
    assert found[gamma, oo, true, "S"].value == 0
    assert found[gamma, zero, true, "S"].value == 1
    found = limits("relu2")
    assert sympy.simplify(found[gamma, oo, true, "S"].value - 1 / sqrt(6)) == 0
    assert found[gamma, zero, beta > 0, "S"].value == 1
    assert found[beta, oo, true, "S"].value == 1
    tail = 2 * (2 * pi) ** Rational(-1, 4) * exp(-(Z**2) / 4) / (sqrt(24) * sqrt(-Z))
    for key in ((gamma, zero, beta < 0, "S"), (beta, -oo, true, "S")):
        assert found[key].value == 0
        positive = sympy.Symbol("b", positive=True)
        assert sympy.simplify((found[key].leading / tail).subs(beta, -positive)) == 1
    found = limits("identity")
    flat = sqrt(2 / pi) * (1 + Z**4 / 12)
    for key in ((gamma, oo, true, "S"), (beta, zero, true, "S")):
        assert sympy.simplify(found[key].leading - flat) == 0
        assert sympy.simplify(found[key].leading - sqrt(2 / pi) * (1 + Z**4 / 6)) != 0
    found = limits("decayed")
    assert found[n, oo, Eq(decay, 1), "S"].value == 1
    window = found[n, oo, decay < 1, "n·S²"].value
    assert sympy.cancel(window - (1 + decay) / (1 - decay)) == 0
    leading = found[n, oo, decay < 1, "S"].leading
    assert sympy.cancel(leading**2 - (1 + decay) / ((1 - decay) * n)) == 0
    assert found[decay, one, true, "S"].value == 1


# Kernels of users, none of them built in.

SPREADS = ((-2.5, 0.5), (1.0, 0.0625), (2.0, 3.0), (-4.0, 2.0))
KINKS = (-np.sqrt(2), -1.0, 0.0, np.log(2), 1.0, np.sqrt(2))


def by_quadrature(f, b, g):
    """E|f| / √(E f²) by adaptive quadrature of the definition, cut at every kink."""
    function = sympy.lambdify(s, f, "numpy")
    low, high = b - 40 * g, b + 40 * g
    edges = [low, *(x for x in sorted({*KINKS, b - 8 * g, b, b + 8 * g}) if low < x < high), high]

    def moment(p):
        def integrand(x):
            return abs(float(function(x))) ** p * np.exp(-0.5 * ((x - b) / g) ** 2)

        parts = [
            quad(integrand, lo, hi, epsabs=0, epsrel=1e-12, limit=200)[0]
            for lo, hi in itertools.pairwise(edges)
            if integrand(lo) + integrand((lo + hi) / 2) + integrand(hi) > 0
        ]
        return sum(parts) / (g * np.sqrt(2 * np.pi))

    return moment(1) / np.sqrt(moment(2))


def disagreement(derived, f, spreads=SPREADS):
    worst = 0.0
    for b, g in spreads:
        ball = arb_eval(derived, {beta: b, gamma: g}, 3000)
        assert float(ball.rad()) < 1e-40
        worst = max(worst, abs(float(ball.mid()) / by_quadrature(f, b, g) - 1))
    return worst


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[pytest.mark.thorough] * (x in ("tent", "cosh"))) for x in USERS]
)
def test_user_kernels_agree_with_quadrature_of_the_definition(name):
    derived = derive(score_kernel(name, USERS[name])).S
    assert disagreement(derived, USERS[name]) < 1e-9
    other = Abs(s) ** Rational(3, 2)
    assert disagreement(derived, other, SPREADS[:1]) > 1e-3  # it can tell kernels apart


@pytest.mark.parametrize(
    ("f", "step", "culprit"),
    [
        (log(1 + exp(s)), "expanding f", "log(exp(s) + 1)"),
        (tanh(s), "expanding f", "tanh(s)"),
        (exp(-(s**4)), "expanding f", "exp(-s**4)"),
        (s + exp(s), "splitting |f|", "s + exp(s)"),
        ((1 + s) ** 1000, "expanding f", "degree"),
    ],
    ids=str,
)
def test_no_closed_form_names_the_step_and_the_route(f, step, culprit):
    with pytest.raises(NoClosedForm, match="quadrature") as caught:
        derive(score_kernel("user", f))
    assert step in caught.value.step
    assert culprit in caught.value.reason


@pytest.mark.parametrize(
    "weight",
    [sympy.exp(-(s**2)), sympy.exp(s - s**2), sympy.exp(-(s**2)) * sympy.Heaviside(s)],
    ids=str,
)
def test_gaussian_factors_have_a_closed_form(weight):
    """∫ s^k e^(as + bs²) is elementary: held against quadrature at six points."""
    kernel = score_kernel("mine", weight)
    S = derive(kernel).S
    for at_beta, at_gamma in itertools.product((-1.25, 0.5), (0.125, 1.5, 8.0)):
        values = {beta: sympy.Rational(at_beta), gamma: sympy.Rational(at_gamma)}
        derived = float(sympy.log(S.subs(values)).evalf(40))
        found = evaluate(kernel, beta=at_beta, gamma=at_gamma)
        assert abs(derived - found.log_S) <= found.error_bound + 1e-15 * abs(derived)
        assert found.error_bound < 1e-11
        assert abs(2 * derived - found.log_S) > 1e-6  # a square would be seen


def test_a_growing_gaussian_factor_is_left_to_quadrature():
    with pytest.raises(NoClosedForm, match="small γ only"):
        derive(score_kernel("mine", sympy.exp(s**2 / 8)))
