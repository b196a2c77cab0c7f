"""What must hold for S whatever the numbers: bounds, symmetries, monotonicity, limits.

A property is a function of a law, log S as a function of the parameters. The same function that
passes the library's law must reject a planted wrong one, with an AssertionError.
"""

import itertools
import math

import hypothesis.extra.numpy as arrays_of
import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from scipy.special import erf, ndtr

from sparsity import evaluate, exact, kernels, metric, score_kernel
from sparsity.kernels import queries
from sparsity.kernels.symbols import s
from sparsity.limit import closed_form

EPS = float(np.finfo(np.float64).eps)
TOLERANCE = 1e-13  # on log S, times max(1, |log S|): what the closed forms promise

# The domain: z = β/γ ∈ [−40, 1e6] and γ ∈ [1e−6, 1e6], each over all of its decades.
gammas = st.floats(-6, 6).map(lambda x: 10.0**x)
ratios = st.floats(-6, 6).map(lambda x: 10.0**x)
zs = st.one_of(st.floats(-40, 40), st.floats(-6, 6).map(lambda x: 10.0**x), st.just(0.0))
decays = st.one_of(st.floats(1e-9, 1), st.floats(-16, -1).map(lambda x: 1 - 10.0**x), st.just(1.0))
lengths = st.one_of(st.integers(1, 50), st.floats(0, 12).map(lambda x: round(10.0**x)))
dims = st.one_of(st.integers(1, 40), st.sampled_from([64, 1000, 10**6]))
families = st.sampled_from(queries.NAMES)
PARAMETERS = {
    "exp": st.fixed_dictionaries({"beta": st.floats(-1e6, 1e6), "gamma": gammas}),
    "relu2": st.builds(lambda z, c: {"beta": z * c, "gamma": c}, zs, gammas),
    "identity": st.builds(lambda z, c: {"beta": z * c, "gamma": c}, zs, gammas),
    "nonnegative": st.fixed_dictionaries({"ratio": ratios, "dim": dims, "query": families}),
    "decayed": st.fixed_dictionaries({"decay": decays, "length": lengths}),
}


def law(name, method=None):
    """Log S of a kernel as a function of its parameters, a float."""
    return lambda **parameters: float(evaluate(name, method=method, **parameters).log_S)


def close(one, two):
    return abs(one - two) <= TOLERANCE * max(1.0, abs(one))


# Properties of one law each: check(law) raises AssertionError where the property fails.


def no_bias(log_S):
    @given(st.floats(-1e6, 1e6), gammas)
    @example(1.0, 1.0)
    def check(beta, gamma):
        assert log_S(beta=beta, gamma=gamma) == log_S(beta=0.0, gamma=gamma)

    check()


def of_z_alone(log_S):
    """Exactly under powers of two, which are exact themselves; to rounding under any factor."""

    @given(zs, gammas, st.integers(-12, 12), ratios)
    @example(-1.0, 1.0, 1, 3.0)
    def check(z, gamma, power, factor):
        beta, base = z * gamma, log_S(beta=z * gamma, gamma=gamma)
        two = 2.0**power
        assert log_S(beta=two * beta, gamma=two * gamma) == base
        assert close(log_S(beta=factor * beta, gamma=factor * gamma), base)

    check()


def even_in_beta(log_S):
    @given(st.floats(-1e6, 1e6), gammas)
    @example(1.0, 1.0)
    def check(beta, gamma):
        assert log_S(beta=-beta, gamma=gamma) == log_S(beta=beta, gamma=gamma)

    check()


def increasing_in_distance_from_zero(log_S, least=0):
    # Steps of z that move log S by more than rounding: its slope is about 4/z³ for z → ∞.
    @given(st.floats(least, 100), st.floats(0.01, 10))
    @example(1.0, 0.5)
    def check(z, step):
        assert log_S(beta=z + step, gamma=1.0) > log_S(beta=z, gamma=1.0)

    check()


def increasing_in_z(log_S):
    increasing_in_distance_from_zero(log_S, least=-40)


def decreasing_in_gamma(log_S):
    @given(gammas, st.floats(1.001, 100))
    @example(1.0, 2.0)
    def check(gamma, factor):
        assert log_S(beta=0.0, gamma=factor * gamma) < log_S(beta=0.0, gamma=gamma)

    check()


def decreasing_in_ratio_above_the_one_hot_query(log_S):
    """S falls with σ̃/μ̃, and no query is sparser than one-hot, S = 1/√(1+r²), in any dimension."""

    @given(ratios, st.floats(1.01, 100), dims, families)
    @example(1.0, 2.0, 4, "uniform")
    def check(ratio, factor, dim, query):
        value = log_S(ratio=ratio, dim=dim, query=query)
        floor = -math.log(math.hypot(1.0, ratio))
        assert value >= floor - TOLERANCE * max(1, -floor)
        assert value >= log_S(ratio=ratio, dim=dim, query="one-hot")
        assert close(log_S(ratio=ratio, dim=dim, query="one-hot"), floor)
        assert value <= -0.5 * math.log1p(ratio**2 / dim * (1 - 1e-9)) * (1 - 1e-9)  # all equal
        if ratio * math.sqrt(1 / dim) > 1e-5:
            assert log_S(ratio=factor * ratio, dim=dim, query=query) < value

    check()


def sparser_in_more_tokens_but_a_wider_window(log_S):
    """Decay: S falls with n and with 1/λ, n·S² rises with n up to (1+λ)/(1−λ), S = 1 at n = 1."""

    @given(st.floats(1e-6, 1), st.integers(1, 10**6), st.integers(1, 10**6))
    @example(0.5, 4, 1)
    def check(decay, length, more):
        value = log_S(decay=decay, length=length)
        longer = log_S(decay=decay, length=length + more)
        assert longer <= value
        assert log_S(decay=decay, length=1) == 0.0
        assert log_S(decay=1.0, length=length) == 0.0
        n_eff = length * math.exp(2 * value)
        assert n_eff <= (length + more) * math.exp(2 * longer) * (1 + 1e-12)
        assert 1 - 1e-12 <= n_eff
        assert n_eff * (1 - decay) <= (1 + decay) * (1 + 1e-12)
        assert value >= log_S(decay=decay * 0.9, length=length)

    check()


def wrong_relu2(beta, gamma):
    """γ in place of γ² in m₂: the dimensions do not match."""
    z = beta / gamma
    phi, cdf = math.exp(-z * z / 2) / math.sqrt(2 * math.pi), ndtr(z)
    m2 = (beta**2 + gamma) * cdf + beta * gamma * phi
    m4 = (beta**4 + 6 * beta**2 * gamma**2 + 3 * gamma**4) * cdf
    m4 += beta * gamma * (beta**2 + 5 * gamma**2) * phi
    return math.log(max(m2, 1e-300)) - math.log(max(m4, 1e-300)) / 2


def wrong_identity(beta, gamma):
    """Φ(z) in place of erf(z/√2): no longer even."""
    z = beta / gamma
    m1 = math.sqrt(2 / math.pi) * math.exp(-z * z / 2) + z * ndtr(z)
    return math.log(m1) - math.log1p(z * z) / 2


def swapped_norms(ratio, dim, query):
    rho = queries.norm_ratio(query, dim)
    return -0.5 * math.log1p((ratio / float(rho)) ** 2)


def wrong_decay(decay, length):
    """λ^(2n) in place of λⁿ in the numerator."""
    if decay == 1:
        return 0.5 * math.log(2)
    top = (1 - decay ** (2 * length)) * (1 + decay)
    return 0.5 * math.log(top / (length * (1 - decay) * (1 + decay**length)))


PROPERTIES = [
    (no_bias, "exp", {"E e^2s without its bias": lambda beta, gamma: -(gamma**2) / 2 + beta}),
    (of_z_alone, "relu2",
     {"γ for γ²": wrong_relu2, "off by 1e-9 of γ": lambda beta, gamma: -math.log1p(1e-9 * gamma)}),
    (of_z_alone, "identity",
     {"√(β²+γ) for √(β²+γ²)": lambda beta, gamma: -math.log(beta**2 + gamma) / 2}),
    (even_in_beta, "identity",
     {"Φ(z) for erf(z/√2)": wrong_identity,
      "odd by 1e-9": lambda beta, gamma: -1 - 1e-9 * erf(beta / gamma)}),
    (increasing_in_z, "relu2",
     {"Φ(−z)": lambda beta, gamma: law("relu2")(beta=-beta, gamma=gamma),
      "even in z": law("identity")}),
    (increasing_in_distance_from_zero, "identity",
     {"lost root": lambda beta, gamma: 2 * law("identity")(beta=beta, gamma=gamma)
        - math.log1p(beta**2 / gamma**2)}),
    (decreasing_in_gamma, "exp", {"E e^2s without its 4": lambda beta, gamma: 0.0}),
    (decreasing_in_ratio_above_the_one_hot_query, "nonnegative",
     {"norms swapped": swapped_norms,
      "larger d is sparser": lambda ratio, dim, query: -0.5 * math.log1p(ratio**2 * dim)}),
    (sparser_in_more_tokens_but_a_wider_window, "decayed",
     {"λ^(2n)": wrong_decay,
      "λ for λ²": lambda decay, length: law("decayed")(decay=decay**0.5, length=length + 1)}),
]  # fmt: skip
PLANTED = [
    pytest.param(check, wrong, id=f"{name}-{check.__name__}-{what}")
    for check, name, planted in PROPERTIES
    for what, wrong in planted.items()
]


@pytest.mark.parametrize(
    ("check", "name"), [(c, n) for c, n, _ in PROPERTIES], ids=lambda x: getattr(x, "__name__", x)
)
def test_property(check, name):
    check(law(name))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("check", "wrong"), PLANTED)
def test_planted_error_is_rejected(check, wrong):
    with pytest.raises(AssertionError):
        check(wrong)


def test_every_kernel_has_a_property_and_every_property_a_planted_error():
    assert {name for _, name, _ in PROPERTIES} == {kernel.name for kernel in kernels.ALL}
    assert all(planted for *_, planted in PROPERTIES)


# Bounds on S of every kernel.

RAW = {name: getattr(closed_form, name) for name in PARAMETERS}  # before S ≤ 1 is enforced


@pytest.mark.parametrize("name", PARAMETERS)
def test_s_lies_in_0_1(name):
    seen = []

    @given(PARAMETERS[name])
    def check(parameters):
        raw, found = float(RAW[name](**parameters)), evaluate(name, **parameters)
        assert -math.inf < raw <= 0
        assert found.log_S == raw
        assert abs(found.S - math.exp(raw)) <= 4 * EPS * found.S
        assert found.S > 0 or raw < -745
        assert 0 < found.error_bound <= TOLERANCE * max(1, -raw)
        seen.append(parameters)

    check()
    assert len(seen) >= 38


# Concrete rows.

entries = st.floats(-100, 100).filter(lambda x: x == 0 or abs(x) > 1e-100)
rows = arrays_of.arrays(np.float64, st.integers(1, 60), elements=entries).filter(np.any)
scales = st.integers(-900, 900).map(lambda k: 2.0**k)


def row_bounds(sparsity):
    """1/√n ≤ S ≤ 1, whatever the signs; a scale changes nothing."""

    @settings(max_examples=50)
    @given(rows, scales, st.booleans(), st.randoms(use_true_random=False))
    @example(np.array([1.0, -1.0]), 2.0**900, True, None)
    @example(np.array([0.0, 3.0, 0.0]), 2.0**-900, False, None)
    def check(row, scale, flip, random):
        n, value = len(row), float(sparsity(row))
        assert 1 / math.sqrt(n) * (1 - 4 * EPS) <= value <= 1 + 4 * EPS
        assert sparsity(row * (-scale if flip else scale)) == value
        assert float(sparsity(row * 0.3)) == pytest.approx(value, rel=1e-13)
        shuffled = row.copy()
        if random is not None:
            random.shuffle(shuffled)
        assert float(sparsity(shuffled)) == pytest.approx(value, rel=1e-13)
        assert float(sparsity(np.abs(row))) == value

    check()


def test_rows_are_bounded_and_scale_free():
    row_bounds(metric.S)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "wrong",
    [
        lambda a: abs(a).sum() / (a * a).sum() ** 0.5,  # lost √n
        lambda a: abs(a).mean() / (a * a).mean(),  # lost root: not scale-free
        lambda a: a.mean() / (a * a).mean() ** 0.5,  # signed sum
        lambda a: abs(a).mean() / (a * a).mean() ** 0.5,  # squares over- and underflow
    ],
    ids=["lost n", "lost root", "signed", "overflows"],
)
def test_planted_metric_is_rejected(wrong):
    with pytest.raises(AssertionError):
        row_bounds(wrong)


def test_rows_reach_their_bounds():
    @given(st.integers(1, 500), st.floats(1e-300, 1e300), st.data())
    def check(n, value, data):
        row = np.zeros(n)
        row[data.draw(st.integers(0, n - 1))] = value
        assert metric.S(row) == pytest.approx(1 / math.sqrt(n), rel=4 * EPS)
        assert metric.n_eff(row) == 1
        assert metric.S(np.full(n, value)) == pytest.approx(1, rel=4 * EPS)
        assert metric.n_eff(np.full(n, value)) == pytest.approx(n, rel=4 * EPS)

    check()


def test_scaling_the_weight_of_a_kernel_changes_nothing():
    @settings(max_examples=15)
    @given(
        st.sampled_from(["exp", "relu2", "identity"]),
        st.integers(-40, 40).map(lambda k: 2.0**k),
        st.sampled_from([-3, 3]),
        st.floats(-3, 3),
        st.floats(0.1, 5),
    )
    def check(name, scale, factor, beta, gamma):
        weight = factor * int(scale) if scale >= 1 else factor * s / s / int(1 / scale)
        scaled = score_kernel("scaled", weight * kernels.named(name).weight)
        found = evaluate(scaled, beta=beta, gamma=gamma)
        known = evaluate(name, beta=beta, gamma=gamma)
        assert found.method == "quadrature"
        assert abs(found.log_S - known.log_S) <= found.error_bound + known.error_bound

    check()


# Nonnegative linear attention with any query: exact enumeration of two-valued features.


def enumerated(query, zeros):
    """S over features that are 1 once and 0 `zeros` times, with equal chances: σ̃/μ̃ = √zeros."""
    values = np.array([1.0] + [0.0] * zeros)
    features = np.array(list(itertools.product(values, repeat=len(query))))
    return float(metric.S(features @ query))


def rho_decides(formula):
    """S of any query q̃ ≥ 0 depends on it through ρ = ‖q̃‖₂/‖q̃‖₁ ∈ [1/√d, 1] alone."""
    seen = set()

    @given(
        arrays_of.arrays(
            np.float64, st.integers(1, 5), elements=st.floats(0, 10).map(lambda x: round(x, 3))
        ).filter(np.any),
        st.integers(1, 4),
    )
    @example(np.array([1.0, 2.0, 3.0]), 4)
    def check(query, zeros):
        d, ratio = len(query), math.sqrt(zeros)
        S, rho = enumerated(query, zeros), float(metric.n_eff(query)) ** -0.5
        assert S == pytest.approx(formula(ratio, rho), rel=1e-12)
        assert 1 / math.sqrt(d) * (1 - 4 * EPS) <= rho <= 1 + 4 * EPS
        one_hot, uniform = (
            float(evaluate("nonnegative", ratio=ratio, dim=d, query=name).S)
            for name in ("one-hot", "uniform")
        )
        assert one_hot * (1 - 1e-12) <= S <= uniform * (1 + 1e-12)
        assert enumerated(np.eye(d)[0], zeros) == pytest.approx(one_hot, rel=1e-12)
        assert enumerated(np.ones(d), zeros) == pytest.approx(uniform, rel=1e-12)
        seen.add(d)

    check()
    return seen


def test_one_hot_is_the_sparsest_of_all_queries():
    assert rho_decides(lambda ratio, rho: 1 / math.hypot(1, ratio * rho)) == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda ratio, rho: 1 / math.hypot(1, ratio / rho),  # ‖q̃‖₁ and ‖q̃‖₂ swapped
        lambda ratio, rho: 1 / (1 + (ratio * rho) ** 2),  # a lost square root
        lambda ratio, rho: 1 / math.sqrt(1 + ratio * rho**2),  # σ̃/μ̃ not squared
        lambda ratio, rho: 1 / math.hypot(1, ratio),  # d = 1 for all d
    ],
    ids=["swapped", "lost root", "not squared", "d lost"],
)
def test_planted_nonnegative_form_is_rejected(wrong):
    with pytest.raises(AssertionError):
        rho_decides(wrong)


# Limits. Each value(h) → target as h → 0 with an error of order h^order, and not faster or slower.


# The exact law at finite n.

score_laws = st.one_of(
    st.tuples(st.just("exp"), st.just(0.0), st.floats(0.01, 6)),
    st.tuples(st.sampled_from(["relu2", "identity"]), st.floats(-4, 4), st.floats(0.1, 10)),
)
row_lengths = st.lists(lengths, min_size=2, max_size=4, unique=True).map(sorted)


def exact_rows(n_eff, phases=tuple(Phase)):
    """1 ≤ n_eff ≤ n, 1 at n = 1, growing with n but S_rms = √(n_eff/n) falling, never below S."""

    @settings(max_examples=20, phases=phases)
    @given(score_laws, row_lengths)
    @example(("exp", 0.0, 3.0), [2, 10, 1000])
    def check(parameters, ns):
        name, beta, gamma = parameters
        ns = np.array([1, *(n for n in ns if n > 1)], dtype=np.float64)
        value, bound = n_eff(name, ns, beta, gamma)
        assert value[0] == 1
        assert np.all(bound < 1e-9)
        assert np.all(value >= 1 - bound)
        assert np.all(value <= ns * (1 + bound))
        assert np.all(value[1:] >= value[:-1] * (1 - 2e-9))
        share = value / ns
        assert np.all(share[1:] <= share[:-1] * (1 + 2e-9))
        assert np.all(0.5 * np.log(share) >= law(name)(beta=beta, gamma=gamma) - 1e-9)

    check()


def exact_law(name, ns, beta, gamma):
    found = exact(name, length=ns, beta=beta, gamma=gamma)
    np.testing.assert_allclose(found.S_rms, np.sqrt(found.value / ns), rtol=1e-15)
    return found.value, found.error_bound


def limit_law(name, ns, beta, gamma):
    """N·S²: what the limit of long rows says of short ones."""
    return ns * np.exp(2 * law(name)(beta=beta, gamma=gamma)), np.zeros(len(ns))


def test_exact_law_of_rows():
    exact_rows(exact_law)


@pytest.mark.parametrize(
    "wrong",
    [
        limit_law,
        lambda *a: (exact_law(*a)[0] ** 0.5, np.zeros(len(a[1]))),
        lambda *a: (a[1] / exact_law(*a)[0], np.zeros(len(a[1]))),
    ],
    ids=["limit law", "lost square", "upside down"],
)
def test_planted_row_law_is_rejected(wrong):
    with pytest.raises(AssertionError):
        exact_rows(wrong, (Phase.explicit, Phase.generate))  # no smaller example is looked for
