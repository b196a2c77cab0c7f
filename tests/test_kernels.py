"""The contract of every kernel, and user kernels: one definition, every route to its S."""

import math
from functools import partial

import jax
import mpmath
import numpy as np
import pytest
import sympy
from scipy import stats
from sympy import Abs, Max, Min, Piecewise, exp, log, tanh

import sparsity
from sparsity import (
    InputError,
    Kernel,
    NoClosedForm,
    derive,
    estimate,
    evaluate,
    kernels,
    score_kernel,
)
from sparsity.kernels import ALL, Law, named, queries, symbols
from sparsity.kernels.lowering import distance, jax_log_abs, jax_weight, log_abs, numpy_log_abs
from sparsity.kernels.numeric.definition import definition
from sparsity.kernels.numeric.points import Approx
from sparsity.kernels.parameters import ALL as PARAMETERS
from sparsity.kernels.parameters import GAMMA, LENGTH

each_kernel = pytest.mark.parametrize("kernel", ALL, ids=lambda kernel: kernel.name)

GOOD = {
    "beta": -0.5, "gamma": 1.5, "decay": 0.75, "length": 12, "ratio": 2.0, "dim": 8,
    "query": "uniform",
}  # fmt: skip
NOT_NUMBERS = ["text", "", "1,2", 1j, math.nan, math.inf, -math.inf]
NEGATIVE = [-1, -1e-300, 0]
FRACTIONAL = [2.5, 1 + 1e-9]
BAD = {
    "beta": NOT_NUMBERS,
    "gamma": NOT_NUMBERS + NEGATIVE,
    "ratio": NOT_NUMBERS + NEGATIVE,
    "decay": [*NOT_NUMBERS, *NEGATIVE, 1.5, 1 + 1e-15],
    "length": [*NOT_NUMBERS, *NEGATIVE, *FRACTIONAL, 0.5],
    "dim": [*NOT_NUMBERS, *NEGATIVE, *FRACTIONAL, 0.5],
    "query": ["dense", "", "Uniform", 1, math.nan, ["uniform"]],
}


def good(kernel):
    return {p.name: GOOD[p.name] for p in kernel.parameters}


# The built-in kernels.


@each_kernel
def test_definition(kernel):
    assert "kexue.fm/archives/9889" in kernel.source
    assert named(kernel.name) is named(kernel) is kernel
    drawn = {Law.SCORE: symbols.s, Law.POSITION: symbols.j, Law.FEATURES: symbols.k.label}
    assert drawn[kernel.law] in kernel.weight.free_symbols
    with pytest.raises(AttributeError):
        kernel.name = "other"


def test_unknown_names():
    for wrong, near in {
        "relv2": "relu2", "exq": "exp", "Identiti": "identity", "decay": "decayed",
        "non-negative": "nonnegative",
    }.items():  # fmt: skip
        with pytest.raises(InputError, match=f"kernel = {wrong}: did you mean {near}") as caught:
            named(wrong)
        assert all(kernel.name in str(caught.value) for kernel in ALL)
    for wrong in ("zzz", "", 3, None):
        with pytest.raises(InputError, match=r"the kernels are|give a kernel, its name"):
            named(wrong)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("value", ["1_0", "１", "0x1", "1 0", b"1", 1j], ids=repr)
def test_only_plain_decimal_notation_is_a_number(value):
    for given in (value, [value]) if isinstance(value, str) else (value,):
        with pytest.raises(InputError, match="give a number"):
            GAMMA.check(given)


def test_decimal_notation_in_every_form():
    texts = ["1", "1.", ".5", "+2", "1e3", "1E-3", " 7 ", "0010"]
    np.testing.assert_array_equal(GAMMA.check(texts), [1, 1, 0.5, 2, 1e3, 1e-3, 7, 10])


LARGE = 2**53


@pytest.mark.parametrize("value", [2 * LARGE, str(2 * LARGE), [1, 2 * LARGE], "1e400"], ids=str)
def test_a_whole_number_beyond_the_floats_is_refused(value):
    with pytest.raises(InputError, match="at most 2\\^53") as caught:
        LENGTH.check(value)
    assert caught.value.argument == "length"
    for good in (LARGE, str(LARGE), "9.007199254740992e15", np.array([LARGE]), float(LARGE)):
        assert LENGTH.check(good) == LARGE


@each_kernel
def test_bind_takes_good_values(kernel):
    bound = kernel.bind(good(kernel))
    assert list(bound) == [p.name for p in kernel.parameters]
    for p in kernel.parameters:
        if p.name == "query":
            assert bound["query"] == "uniform"
            continue
        assert bound[p.name].dtype == np.float64
        assert bound[p.name].shape == ()
        assert bound[p.name] == GOOD[p.name]
        for shaped in ([GOOD[p.name]] * 3, np.full((2, 1, 4), GOOD[p.name])):
            assert kernel.bind(good(kernel) | {p.name: shaped})[p.name].shape == np.shape(shaped)


def bad_values():
    for kernel in ALL:
        for p in kernel.parameters:
            for value in BAD[p.name]:
                yield kernel, p, value


def test_bind_names_every_bad_value_and_its_fix():
    refused = 0
    for kernel, p, value in bad_values():
        in_array = isinstance(value, float) and p.name != "query"
        for given in (value, [1.0, value]) if in_array else (value,):
            with pytest.raises(InputError) as caught:
                kernel.bind(good(kernel) | {p.name: given})
            error = caught.value
            assert error.argument == p.name, (kernel.name, p.name, value)
            assert error.fix
            if value == "":
                assert str(error) == f"{p.name} is empty: {error.fix}"
                refused += 1
                continue
            assert str(error).startswith(f"{p.name} = ")
            shown = str(error).removeprefix(f"{p.name} = ").removesuffix(f": {error.fix}")
            if in_array:
                assert shown == "nan" if value != value else float(shown) == value
            elif not isinstance(value, (list, dict)):
                assert shown == str(value)
            refused += 1
    assert refused >= 100


@each_kernel
def test_bind_refuses_missing_and_unknown_parameters(kernel):
    for p in kernel.parameters:
        given = good(kernel)
        del given[p.name]
        if p.default is not None:
            assert kernel.bind(given)[p.name] == p.default
            continue
        for missing in (given, given | {p.name: None}):
            with pytest.raises(InputError, match=f"{p.name} is missing: {kernel.name} needs"):
                kernel.bind(missing)
    for name in ({p.name for p in PARAMETERS} | {"temperature"}) - set(good(kernel)):
        with pytest.raises(InputError, match=f"{name} = 1: {kernel.name} does not take it"):
            kernel.bind(good(kernel) | {name: 1})
    assert [p.name for k in ALL for p in k.parameters if p.default is not None] == ["beta"] * 3


@each_kernel
@pytest.mark.parametrize("method", ["closed form", "quadrature"])
def test_evaluate_broadcasts(kernel, method):
    first, second = [p for p in kernel.parameters if p.name != "query"][:2]
    one = np.array([1.0, 0.5, 1.0]) if first.name == "decay" else np.array([1.0, 2.0, 3.0])
    two = np.array([[1.0], [4.0]])
    given = good(kernel) | {first.name: one, second.name: two}
    if method == "quadrature" and kernel.law is kernels.Law.FEATURES:
        with pytest.raises(InputError, match="leave method out"):
            evaluate(kernel, method=method, **given)
        return
    found = evaluate(kernel, method=method, **given)
    summed = method == "quadrature" and kernel.law is not kernels.Law.SCORE
    assert found.method == ("summation" if summed else method)
    assert found.S.shape == found.log_S.shape == found.error_bound.shape == (2, 3)
    for at in np.ndindex(2, 3):
        alone = evaluate(
            kernel, method=method, **given | {first.name: one[at[1]], second.name: two[at[0], 0]}
        )
        assert alone.log_S == found.log_S[at]
        assert alone.S.shape == ()


# User kernels. None of them is built in.

x = sympy.Symbol("x")
USERS = {
    "softplus": log(1 + exp(x)),
    "cube": x**3,
    "distance": Abs(x - 1),
    "elu+1": Piecewise((x + 1, x > 0), (exp(x), True)),
    "tanh": tanh(x),
    "hard-sigmoid": Min(Max(x / 4 + sympy.Rational(1, 2), 0), 1),
}
DERIVED = {"cube", "distance", "elu+1", "hard-sigmoid"}
POINTS = [(-1.0, 0.75), (0.25, 1.5)]


def apart(kernel, beta, gamma, log_S=None):
    """|log Ŝ − log S| in standard errors, S by quadrature unless given."""
    if log_S is None:
        log_S = evaluate(kernel, beta=beta, gamma=gamma).log_S
    found = estimate(kernel, beta=beta, gamma=gamma, rel_error=3e-4, max_samples=1e6, seed=1)
    assert found.trusted
    assert found.method == "scalar-stratified"
    return abs(found.log_S - float(log_S)) / found.rel_stderr


# The others are odd, as identity, which test_crosscheck.py draws, and test_verify_rows.py the cube.
SAMPLED = ("distance", "elu+1")


@pytest.mark.thorough
@pytest.mark.parametrize("name", SAMPLED)
def test_quadrature_and_sampling_agree(name):
    kernel = score_kernel(name, USERS[name])
    for beta, gamma in POINTS:
        assert apart(kernel, beta, gamma) < 5


@pytest.mark.parametrize("name", ["softplus", "distance", "tanh"])
def test_quadrature_says_its_error_where_there_is_no_closed_form(name):
    kernel = score_kernel(name, USERS[name])
    for beta, gamma in POINTS:
        found = evaluate(kernel, beta=beta, gamma=gamma)
        assert found.method == "quadrature"
        assert found.error_bound < 1e-12
        with pytest.raises(NoClosedForm):
            evaluate(kernel, method="closed form", beta=beta, gamma=gamma)


@pytest.mark.thorough
def test_the_comparison_tells_kernels_apart():
    """Sampling one kernel against the S of a neighbour: 1 % apart is seen."""
    elu1 = score_kernel("elu+1", USERS["elu+1"])
    leaky = score_kernel("leaky", Piecewise((x + 1, x > 0), (exp(x * 0.9), True)))
    wrong = evaluate(leaky, beta=0.25, gamma=1.5).log_S
    assert 1e-3 < abs(wrong - evaluate(elu1, beta=0.25, gamma=1.5).log_S) < 3e-2
    assert apart(elu1, 0.25, 1.5, wrong) > 5


@pytest.mark.thorough
@pytest.mark.parametrize("name", [x for x in USERS if x != "hard-sigmoid"])  # the longest
def test_derivation_and_quadrature_agree(name):
    kernel = score_kernel(name, USERS[name])
    if name not in DERIVED:
        with pytest.raises(NoClosedForm, match="quadrature"):
            derive(kernel)
        return
    form = sympy.lambdify([symbols.beta, symbols.gamma], derive(kernel).S, "mpmath")
    for beta, gamma in [*POINTS, (3.0, 0.5), (-2.0, 4.0)]:
        with mpmath.workdps(60):
            derived = mpmath.log(form(mpmath.mpf(beta), mpmath.mpf(gamma)))
        found = evaluate(kernel, beta=beta, gamma=gamma)
        assert abs(float(derived) - found.log_S) <= found.error_bound + 1e-15
        assert abs(float(derived) * (1 + 1e-6) - found.log_S) > found.error_bound


def test_a_built_in_kernel_written_by_a_user_has_its_closed_form():
    for weight, known in ((exp(x), "exp"), (Max(x, 0) ** 2, "relu2"), (x, "identity")):
        one, two = (evaluate(k, beta=0.5, gamma=2) for k in (score_kernel("mine", weight), known))
        assert one.method == "closed form"
        assert one.log_S == two.log_S


@pytest.mark.parametrize("symbol", [sympy.Symbol("s", positive=True), symbols.gamma], ids=repr)
def test_a_score_of_one_sign_is_refused_before_it_changes_the_kernel(symbol):
    with pytest.raises(InputError, match="takes both signs"):
        score_kernel("mine", sympy.Max(symbol + 2, 0))


y = sympy.Symbol("y")


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (x * y, "unknown symbol x, y"),
        (x - x, "is 0 at every score"),
        (sympy.I * (1 + x**2), "must be real"),
    ],
    ids=str,
)
def test_bad_weights(weight, message):
    with pytest.raises(InputError, match=message) as caught:
        score_kernel("mine", weight)
    assert caught.value.argument == "weight"


s, g = sympy.Symbol("s"), sympy.Function("g")
UNCOMPUTABLE = [  # (weight, what the message names)
    (g(s), "cannot be computed"),
    (sympy.Integral(exp(y), (y, 0, s)), "cannot be computed"),
    (sympy.Integer(10) ** 400 * s, "cannot be computed"),
    (exp(sympy.I * s), "must be real"),
    (sympy.Piecewise((s, s > 0)), "no value at some score; end it with"),
    (s * symbols.beta, "uses beta"),
    (sympy.MatrixSymbol("A", 2, 2), "or a SymPy expression"),
    (sympy.Indexed("x", 1) * s, "unknown symbol x[^,]*;"),
    (sympy.S.NaN, "cannot be computed|must be real"),
    (True, "or a SymPy expression"),
]


@pytest.mark.parametrize(("weight", "message"), UNCOMPUTABLE, ids=[str(w) for w, _ in UNCOMPUTABLE])
def test_a_weight_that_cannot_be_computed_is_refused_when_made(weight, message):
    with pytest.raises(InputError, match=message) as caught:
        score_kernel("mine", weight)
    assert caught.value.argument == "weight"
    if isinstance(weight, sympy.Expr) and weight.free_symbols == {s}:  # the record itself refuses
        with pytest.raises(InputError, match=message):
            Kernel("mine", "mine", Law.SCORE, weight.xreplace({s: symbols.s}), (), "test")


def test_a_weight_that_can_be_computed_is_not_refused():
    assert sparsity.score_kernel is score_kernel
    weights = [
        sympy.Sum(s**y, (y, 0, 3)), sympy.besselj(0, s), sympy.gamma(s**2 + 1), sympy.floor(s) + 20,
        sympy.SingularityFunction(s, 0, 1), sympy.Heaviside(s), sympy.Mod(s, 2), sympy.re(s),
        sympy.Piecewise((s, s > 0), (0, True)), sympy.Abs(exp(sympy.I * s)), sympy.sign(s),
        sympy.UnevaluatedExpr(s), sympy.erf(s) + sympy.sinh(s), sympy.pi * s, 7, 0.5,
    ]  # fmt: skip
    for weight in weights:
        assert score_kernel("mine", weight).name == "mine"


@pytest.mark.parametrize("own", [s, symbols.s, x], ids=repr)
def test_only_the_wrong_symbols_are_named(own):
    with pytest.raises(InputError) as caught:
        score_kernel("mine", own * sympy.Symbol("t"))
    said = str(caught.value).split(": ", 1)[1]
    assert ("unknown symbol t;" in said) == (own is not x)  # of x and t either may be the score
    assert "the score" in said
    assert "beta" not in said
    with pytest.raises(InputError, match=r"unknown symbol u, v;"):
        score_kernel("mine", s + sympy.Symbol("u") * sympy.Symbol("v"))
    with pytest.raises(InputError, match=r"symbols\.s"):
        Kernel("mine", "mine", Law.SCORE, s**2, (), "test")


@pytest.mark.parametrize("weight", ["__import__('os')", None], ids=str)
def test_a_weight_must_be_an_expression(weight):
    """Text is parsed as all formulas are: turning it into an expression would run it."""
    with pytest.raises(InputError, match=r"unknown name __import__|give a formula"):
        score_kernel("mine", weight)
    assert score_kernel("mine", "max(s, 0)**2").weight == named("relu2").weight


@pytest.mark.parametrize("weight", [sympy.sqrt(x), log(x)], ids=str)
def test_a_weight_that_is_not_real_everywhere_is_refused_when_evaluated(weight):
    for ask in (evaluate, partial(sparsity.exact, length=8)):
        with pytest.raises(InputError, match="is not a finite real number at score"):
            ask(score_kernel("mine", weight), beta=0, gamma=1)


def test_an_infinite_moment_is_refused():
    with pytest.raises(InputError, match="is infinite"):
        evaluate(score_kernel("mine", exp(x**2)), beta=0, gamma=1)
    assert evaluate(score_kernel("mine", exp(x**2)), beta=0, gamma=0.25).S < 1


# Lowering: the definition as numbers.

SCORES = np.array([-2.5, -1.0, -0.75, 0.25, 1.0, 3.0, 25.0])
# Without gelu, whose tail takes a hundred thousand digits: it is in test_numeric.py.
SCORE_KERNELS = [k for k in kernels.known() if k.law is Law.SCORE and k is not kernels.zoo.gelu]
SCORE_KERNELS += [score_kernel(name, weight) for name, weight in USERS.items()]
SCORE_KERNELS += [
    score_kernel("product", -3 * x**2 * exp(-x)),
    score_kernel("root", sympy.sqrt(Abs(x))),
]


def exact_log(kernel, score):
    with mpmath.workdps(400):
        weight = abs(sympy.lambdify([symbols.s], kernel.weight, "mpmath")(mpmath.mpf(score)))
        return float(mpmath.log(weight)) if weight else -math.inf


@pytest.mark.parametrize("kernel", SCORE_KERNELS, ids=lambda kernel: kernel.name)
def test_log_abs_is_the_log_of_the_weight(kernel):
    exact = np.array([exact_log(kernel, score) for score in SCORES])
    found = numpy_log_abs(kernel)(SCORES)
    np.testing.assert_allclose(found, exact, rtol=1e-13, atol=2e-13)
    both = jax.jit(lambda score: (jax_log_abs(kernel)(score), jax_weight(kernel)(score)))
    compiled, weight = both(SCORES)
    np.testing.assert_allclose(compiled, exact, rtol=1e-13, atol=2e-13)
    weight = np.abs(np.broadcast_to(weight, SCORES.shape))
    np.testing.assert_allclose(weight, np.exp(exact), rtol=1e-12, atol=1e-13)
    finite = np.isfinite(exact)
    assert np.abs(found[finite] - 2 * exact[finite]).max() > 0.1  # a square would be seen


@pytest.mark.parametrize("kernel", SCORE_KERNELS, ids=lambda kernel: kernel.name)
def test_the_definition_holds_its_error_bound_where_float64_cancels_or_overflows(kernel):
    far = np.array([-700.0, -300.0, -30.0, -12.0, *SCORES, 40.0, 300.0, 800.0])
    found = definition(kernel).values_at(0.0, Approx(far))
    for value, error, score in zip(found.log, found.error, far, strict=True):
        exact = exact_log(kernel, score)
        assert value == exact or abs(value - exact) <= error
        assert error <= 1e-12 * (1 + abs(value)) or value == -math.inf


@pytest.mark.parametrize("dim", [1, 4, 7])
def test_queries_are_what_their_names_say(dim):
    own = {
        "uniform": np.ones(dim),
        "one-hot": np.eye(dim)[0],
        "half-normal": stats.halfnorm.ppf((np.arange(dim) + 0.5) / dim),
    }
    for query in queries.ALL:
        np.testing.assert_allclose(query.vector(dim), own[query.name], rtol=1e-14)
        ratio = np.linalg.norm(own[query.name]) / own[query.name].sum()
        np.testing.assert_allclose(queries.norm_ratio(query.name, dim), ratio, rtol=1e-14)


def test_log_abs_cannot_overflow():
    far = np.array([-1e5, 1e5])
    np.testing.assert_array_equal(numpy_log_abs(kernels.exp)(far), far)
    elu1 = score_kernel("elu+1", USERS["elu+1"])
    np.testing.assert_allclose(numpy_log_abs(elu1)(far), [-1e5, math.log(1e5 + 1)], rtol=1e-15)
    assert log_abs(exp(symbols.s)) == symbols.s
    assert log_abs(exp(symbols.s) ** 2 * symbols.s) == 2 * symbols.s + log(Abs(symbols.s))


def test_positions_are_lowered_as_the_distance_to_the_query():
    m, decay, n = np.arange(6.0), 0.5, 6
    rate = -math.log(decay)  # what a device is given
    exact = m * math.log(decay)
    np.testing.assert_allclose(numpy_log_abs(kernels.decayed)(m, decay, n), exact, rtol=1e-15)
    np.testing.assert_allclose(jax_weight(kernels.decayed)(m, rate, n), decay**m, rtol=1e-15)
    assert distance.is_nonnegative


# Agreement of the derived form with the printed values at the top of each figure.


def test_kernels_and_maps_have_a_repr_of_one_line():
    for each in (*kernels.ALL, *kernels.MAPS):
        assert len(repr(each)) < 120, each.name
        assert repr(each).startswith(f"{type(each).__name__}({each.name!r}")
    assert repr(kernels.named("relu2")) == "Kernel('relu2', Max(0, s)**2)"
