"""The exact law of finite rows: printed values, limits, other integrals, sampled rows."""

import math
from dataclasses import replace

import numpy as np
import pytest
import sympy
from example_rows import WEIGHT, sampled
from scipy.integrate import dblquad
from scipy.special import log_ndtr, ndtr

from sparsity import Row, evaluate, exact, quantities, score_kernel
from sparsity.exact_law import engine
from sparsity.exact_law.transforms import laplace, nodes, shared_nodes
from sparsity.kernels.symbols import s

LENGTHS = np.unique(np.round(np.geomspace(1, 1e12, 60)))


def test_printed_values_of_exp():
    law = exact("exp", length=1024, gamma=3)
    assert abs(law.S_rms - 0.11637) <= 0.5001e-5
    assert law.error_bound < 1e-11
    assert law.value == pytest.approx(1024 * law.S_rms**2, rel=1e-14)
    law = exact("exp", length=256, of="participation", gamma=3)
    assert abs(law.value - 0.21558) <= 0.5001e-5
    assert law.error_bound < 1e-11


CURVES = [
    ("exp", 0, 1), ("exp", 7, 5), ("exp", 0, 30), ("relu2", 0, 1), ("relu2", -30, 1),
    ("identity", 3, 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "beta", "gamma"), CURVES)
def test_curves(name, beta, gamma):
    """Tight bounds for n from 1 to 10¹²; n_eff in [1, n], rising; → n·S² where annealed."""
    law = exact(name, length=LENGTHS, beta=beta, gamma=gamma)
    assert np.max(law.error_bound) < 1e-10
    assert law.value[0] == 1
    slack = 1 + 2 * law.error_bound
    assert np.all(law.value <= LENGTHS * slack)
    assert np.all(law.value * slack >= 1)
    assert np.all(np.diff(law.value) > -1e-10 * law.value[1:])
    log_S = evaluate(name, method="quadrature", beta=beta, gamma=gamma).log_S
    if log_S > -1.1:  # annealed: the corrections are of order 1/n
        assert law.S_rms[-1] == pytest.approx(np.exp(log_S), rel=1e-9)


def forget():
    """Nodes made so far."""
    laplace.laplace.cache_clear()
    shared_nodes.CACHE.clear()


@pytest.mark.thorough
def test_half_the_step_agrees(monkeypatch):
    """The bound holds against an evaluation with other, finer nodes in both directions."""
    coarse = [exact(name, length=LENGTHS, beta=beta, gamma=gamma) for name, beta, gamma in CURVES]
    monkeypatch.setattr(engine, "STEP_OF_IDENTICAL", 0.07)
    forget()
    monkeypatch.setattr(nodes, "VARIATION", 1.1)
    for (name, beta, gamma), old in zip(CURVES, coarse, strict=True):
        new = exact(name, length=LENGTHS, beta=beta, gamma=gamma)
        error = np.abs(new.value / old.value - 1)
        assert np.all(error <= old.error_bound + new.error_bound)
    forget()


NEAR = [  # the farthest from a law with nodes of its own that a law may be
    (name, beta, gamma)
    for name in ("exp", "relu2", "identity", "softplus", "cosh")
    for beta, gamma in ((0.499, 1.0), (-4.5, 0.94), (9.51, 1.06), (0.3, 3.37), (-1.6, 1.064))
]


def test_nodes_of_a_law_nearby_do_as_well_as_its_own(monkeypatch):
    places = NEAR[::4]  # each kernel, each place
    made = {"softplus": sympy.log(1 + sympy.exp(s)), "cosh": sympy.cosh(s)}
    kernels = {name: score_kernel(name, weight) for name, weight in made.items()}

    def curves():
        laws = ((kernels.get(name, name), beta, gamma) for name, beta, gamma in places)
        return [exact(k, length=LENGTHS, beta=b, gamma=g) for k, b, g in laws]

    near = curves()
    monkeypatch.setattr(shared_nodes, "reference", lambda *_: None)
    for shared, own in zip(near, curves(), strict=True):
        gap = np.abs(shared.value / own.value - 1)
        assert np.all(gap <= own.error_bound)
        assert np.all(shared.error_bound < 1e-9)
        np.testing.assert_allclose(shared.p_nonzero, own.p_nonzero, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "beta", "gamma"), [("exp", 0, 1.3), ("identity", 0.4, 1), ("relu2", 0.5, 1)]
)
def test_two_tokens_by_direct_integration(name, beta, gamma):
    """E (|a|+|b|)²/(a²+b²) over the plane; relu² given that not both are zero."""
    f = WEIGHT[name]

    def density(y, x):
        a, b = f(beta + gamma * x), f(beta + gamma * y)
        return (1 + 2 * a * b / (a * a + b * b)) * np.exp(-(x * x + y * y) / 2) / (2 * np.pi)

    corner = -beta / gamma
    if name == "exp":
        cuts = [(-8.5, 8.5)]
    else:
        cuts = [(corner, 8.5)] if name == "relu2" else [(-8.5, corner), (corner, 8.5)]
    total = 0.0
    for low, high in cuts:
        for bottom, top in cuts:
            total += dblquad(density, low, high, bottom, top, epsabs=1e-11, epsrel=1e-11)[0]
    if name == "relu2":
        zero = ndtr(corner)
        total = (total + 2 * zero * (1 - zero)) / (1 - zero**2)
    assert exact(name, length=2, beta=beta, gamma=gamma).value == pytest.approx(total, rel=1e-8)


@pytest.mark.parametrize(
    ("name", "beta", "gamma", "n"), [("exp", 0, 3, 16), ("relu2", -1, 1, 3), ("identity", 1, 2, 12)]
)
def test_sampled_rows(name, beta, gamma, n):
    row, rows = Row(name, beta=beta, gamma=gamma), 400_000
    found, law = sampled(row, n, rows), exact(row, length=n)
    for quantity in ("n_eff", "participation"):
        mean, error = found[quantity]
        assert abs(mean - exact(row, length=n, of=quantity).value) < 4 * error
    alive, _ = found["live"]
    assert abs(alive - law.p_nonzero) <= 4 * np.sqrt(alive * (1 - alive) / rows) + 1e-12


def _without_one_phi(one):
    """A factor φ too many in every term."""
    return lambda sums, body, *rest: one(sums, body * np.exp(sums.log_phi), *rest)


def _term(combine):
    """The integral of n_eff with other terms."""
    integral = replace(
        quantities.n_eff.integral, combine=combine, ends=lambda *row: (0.0, math.inf)
    )
    return replace(quantities.n_eff, integral=integral)


# With s2 = n m2/φ, s1 = n m1/φ, s11 = n (m1/φ)², times φ^n: n_eff of five tokens.
ALONE = _term(lambda scale, s2, s1, s11: s2)
PAIRS = _term(lambda scale, s2, s1, s11: scale * (s1 * s1 - s11))
PLANTED = {  # (the terms, those of them with φ once too often)
    "n for n−1": ([_term(lambda scale, s2, s1, s11: s2 + scale * s1 * s1)], []),
    "φ^n for φ^(n−1)": ([PAIRS], [ALONE]),
    "φ^(n−1) for φ^(n−2)": ([ALONE], [PAIRS]),
    "m1 for m1²": ([_term(lambda scale, s2, s1, s11: s2 + 4 * s1)], []),
    "no first term": ([PAIRS], []),
}


@pytest.mark.parametrize("planted", [None, *PLANTED])
def test_planted_errors_are_rejected(planted, monkeypatch):
    """The right integrand (None) passes the very test that each wrong one fails."""
    right, scaled = PLANTED[planted] if planted else ([ALONE, PAIRS], [])
    value = sum(exact("exp", length=5, of=term, gamma=1.0).value for term in right)
    monkeypatch.setattr(engine, "integrate_over_u", _without_one_phi(engine.integrate_over_u))
    value += sum(exact("exp", length=5, of=term, gamma=1.0).value for term in scaled)
    tokens, error = sampled(Row("exp", gamma=1.0), 5, 400_000)["n_eff"]
    assert (abs(tokens - value) < 4 * error) == (planted is None)


def test_a_lost_t_is_rejected():
    """E Y₂ without its factor t, i.e. x²e^(−x) replaced by x e^(−x)."""
    lost = replace(
        quantities.participation.integral, moments=(1.0,), ends=lambda *row: (0.0, np.inf)
    )
    for integral, off in ((quantities.participation.integral, False), (lost, True)):
        quantity = replace(quantities.participation, integral=integral)
        value = exact("exp", length=16, of=quantity, gamma=3.0).value
        assert (abs(value - 0.47691) > 1e-2) == off


def test_all_zero_rows():
    """relu² far on the left: P(nonzero) = 1 − Φ(−z)^n, and one survivor at most."""
    law = exact("relu2", length=LENGTHS, beta=-30, gamma=1)
    assert law.p_nonzero == pytest.approx(LENGTHS * np.exp(log_ndtr(-30)), rel=1e-12)
    assert np.all(np.abs(law.value - 1) <= law.error_bound)
    some = exact("relu2", length=[1, 4, 9], beta=-1, gamma=1)
    assert some.p_nonzero == pytest.approx(1 - ndtr(1.0) ** np.array([1, 4, 9]), rel=1e-13)


@pytest.mark.parametrize("beta", [1e18, -1e300])
def test_a_bias_of_any_size_leaves_softmax_as_it_is(beta, monkeypatch):
    plain, shifted = (exact("exp", length=[8, 1000], beta=b, gamma=1.5) for b in (0, beta))
    np.testing.assert_array_equal(shifted.value, plain.value)
    monkeypatch.setattr(engine, "identical_tokens", lambda *_, **__: False)
    law = exact("exp", length=[8, 1000], beta=beta, gamma=1.5)
    np.testing.assert_allclose(law.value, plain.value, 1e-10)


@pytest.mark.parametrize("name", ["identity", "relu2"])
def test_weights_that_are_all_but_constant(name, monkeypatch):
    for beta, gamma in ((1e300, 1.0), (1e300, 1e200), (1e300, 1e-300)):
        found = exact(name, length=10, beta=beta, gamma=gamma)
        assert found.value == pytest.approx(10, rel=1e-12)
        with monkeypatch.context() as patch:
            patch.setattr(engine, "identical_tokens", lambda *_, **__: False)
            rows = exact(name, length=10, beta=beta, gamma=gamma)
        assert rows.value == pytest.approx(10, rel=1e-12)


USER = {
    "softplus": (sympy.log(1 + sympy.exp(s)), lambda x: np.logaddexp(0, x)),
    "elu1": (
        sympy.Piecewise((sympy.exp(s), s < 0), (1 + s, True)),
        lambda x: np.where(x < 0, np.exp(np.minimum(x, 0)), 1 + x),
    ),
    "sine": (sympy.sin(s), lambda x: np.abs(np.sin(x))),
}


@pytest.mark.parametrize("name", USER)
def test_user_kernels(name):
    expression, function = USER[name]
    row = Row(score_kernel(name, expression), beta=0.4, gamma=1.5)
    law = exact(row, length=[1, 7, 10**6, 10**12])
    assert np.max(law.error_bound) < 1e-9
    tokens, error = sampled(row, 7, 200_000, function)["n_eff"]
    assert abs(tokens - law.value[1]) < 4 * error


def _row_of_300() -> float:
    """N_eff of 300 weights exp(2.5 ε) by two trapezoidal rules, over ε and over u."""
    gamma, n, du, de = 2.5, 300, 0.08, 0.02
    e = de * np.arange(-550, 551)
    w = np.exp(-e * e / 2) * de / math.sqrt(2 * math.pi)
    y = np.exp(du * np.arange(-940, 375)[:, None] + 2 * gamma * e)
    k = np.exp(-y) * w
    log_phi = np.log1p(-np.minimum(-np.expm1(-y) @ w, 1 - 1e-16))
    m1, m2 = (np.sqrt(y) * k).sum(axis=1), (y * k).sum(axis=1)
    pairs = n * (n - 1) * m1**2 * np.exp((n - 2) * log_phi)
    return float((n * m2 * np.exp((n - 1) * log_phi) + pairs).sum() * du)


def test_a_row_of_300_by_a_rule_of_its_own():
    law = exact("exp", length=300, gamma=2.5)
    assert law.value == pytest.approx(_row_of_300(), rel=1e-9)
    assert law.error_bound < 1e-9


def test_a_law_whose_reference_is_refused_stands_by_itself():
    """A pole out of a law's reach may be within that of the law whose nodes it would share."""
    weight = sympy.Abs(sympy.Symbol("s") - 1) ** sympy.Rational(-1, 5)
    found = exact(score_kernel("pole", weight), beta=0.5, gamma=0.0344, length=[2, 100])
    assert (found.error_bound < 1e-9).all()
    assert found.value[0] == pytest.approx(1.99980847, abs=1e-8)


def test_a_product_in_parts_is_the_whole(monkeypatch):
    rng, split, sizes = np.random.default_rng(0), np.array_split, []
    blocks, columns = rng.random((2, 4, 3000)), rng.random((3000, 129))

    def seen(*arguments, **named):
        parts = split(*arguments, **named)
        sizes.extend(part.shape[1] for part in parts)
        return parts

    monkeypatch.setattr(np, "array_split", seen)
    off = np.abs(laplace.product(blocks, columns) / (blocks @ columns) - 1).max()
    assert off < 3e-14  # on some processors the parts are added up in another order
    assert sum(sizes) == 129
    assert min(sizes) >= 4
    assert 4 * 3000 * max(sizes) <= laplace._UNSHARED  # one thread's work
