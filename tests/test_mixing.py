"""The deep stack, its exact law, the over-squashing bound, and the claims judged on them."""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from sparsity import InputError, Row, SinkLogit, exact, score_kernel
from sparsity.attention.stacks import mixing_law
from sparsity.attention.stacks.collapse import collapse, neighbours
from sparsity.attention.stacks.influence import bound, jacobian, norms
from sparsity.attention.stacks.mixing import Layers, LayerSink, Stack, draw, forward, sampled
from sparsity.attention.stacks.sinks import importance, sink_rate
from sparsity.claims_ledger import sinks_context, sinks_mixing
from sparsity.claims_ledger.findings import Finding, verdict
from sparsity.claims_ledger.sinks_mixing import SinkRoutes, toy
from sparsity.kernels.symbols import s

SMALL = Stack(length=10, dim=5, depth=3, heads=2, common=0.25)
DEEP = Stack(length=24, dim=10, depth=12, heads=2)
SINKS = (
    None,
    LayerSink(mass=0.8),
    LayerSink(mass=0.5, value=0.7),
    LayerSink(logit=3.0),
    LayerSink(logit=2.0, value=1),
)


def bound_of(layers, lipschitz):
    strengths = norms(np.asarray(layers.values, np.float64))
    return bound(layers.attention, strengths, lipschitz, layers.gain)


# ---------------------------------------------------------------- the stack


@pytest.mark.parametrize("kernel", ["exp", "identity"])
@pytest.mark.parametrize("sink", SINKS)
def test_rows_are_causal_and_have_unit_mass(kernel, sink):
    a = np.asarray(draw(replace(SMALL, kernel=kernel, sink=sink, branch=0.5)).attention)
    assert a.shape == (3, 2, 10, 10)
    assert not np.triu(a, 1).any()
    np.testing.assert_allclose(np.abs(a).sum(-1), 1, rtol=0, atol=1e-12)
    assert (a < 0).any() == (kernel == "identity")
    if sink is not None and sink.mass is not None:
        np.testing.assert_allclose(a[..., 1:, 0], sink.mass, rtol=1e-12)


def test_the_logit_is_the_weight_beside_the_others():
    """The same scores, with and without: α_0 = e^b/(e^b + Σ), the others keep their ratios."""
    free, held = (
        np.asarray(draw(replace(SMALL, sink=x)).attention)
        for x in (LayerSink(mass=0.0), LayerSink(logit=1.5))
    )
    m = held[..., 1:, :1]
    np.testing.assert_allclose(held[..., 1:, 1:], (1 - m) * free[..., 1:, 1:], rtol=1e-10)
    assert 0.02 < m.min() < 0.5 < m.max() < 0.98
    strong = np.asarray(draw(replace(SMALL, sink=LayerSink(logit=800.0))).attention)
    np.testing.assert_allclose(strong[..., 0], 1.0)  # e^800 does not overflow


def test_a_strong_sink_is_one_by_the_metric():
    sinks = LayerSink(mass=0.8), None
    a, free = (np.asarray(draw(replace(DEEP, sink=x)).attention) for x in sinks)
    assert sink_rate(a, 0.3) == 1.0
    assert sink_rate(free, 0.3) == 0.0
    # The first query sees token 0 alone: α_1 = (1 + 23·0.8)/24.
    np.testing.assert_allclose(importance(a)[..., 0], (1 + 23 * 0.8) / 24, rtol=1e-6)


def test_forward_is_the_definition():
    stack = replace(SMALL, sink=LayerSink(mass=0.4, value=0.3), branch=0.5)
    layers = draw(stack)
    v, a, W, M, g = (np.asarray(x) for x in layers)
    states = np.asarray(forward(layers))
    np.testing.assert_allclose(g, [0.3] + [1] * 9)
    np.testing.assert_allclose(np.linalg.norm(M, 2, axis=(1, 2)), 0.5, rtol=1e-12)
    for layer in range(3):
        z = v.copy()
        for j in range(10):
            for h in range(2):
                for i in range(j + 1):
                    z[j] += a[layer, h, j, i] * g[i] * W[layer, h] @ v[i]
        v = z + np.array([M[layer] @ np.tanh(x) for x in z])
        np.testing.assert_allclose(states[layer + 1], v, rtol=1e-10, atol=1e-12)


def test_later_tokens_do_not_reach_earlier_ones():
    J = jacobian(draw(replace(SMALL, branch=0.5)))
    assert J.shape == (10, 10, 5, 5)
    assert not norms(J)[np.triu_indices(10, 1)].any()
    with pytest.raises(InputError, match="finite"):
        norms(J * np.nan)


ONES = np.ones((1, 1, 2, 2))


@pytest.mark.parametrize(
    ("make", "given", "argument"),
    [
        (Stack, {"kernel": "sparsemax"}, "kernel"),
        (Stack, {"length": "a"}, "length"),
        (Stack, {"strength": -1.0}, "strength"),
        (Stack, {"branch": math.nan}, "branch"),
        (Stack, {"common": 1.0}, "common"),
        (LayerSink, {}, "sink"),
        (LayerSink, {"mass": 0.5, "logit": 1.0}, "sink"),
        (LayerSink, {"mass": 1.0}, "mass"),
        (LayerSink, {"mass": 0.5, "value": -1.0}, "value"),
        (bound, {"attention": np.ones((2, 2)), "strengths": 1.0}, "attention"),
        (bound, {"attention": ONES, "strengths": -1.0}, "strengths"),
        (bound, {"attention": ONES, "strengths": 1.0, "lipschitz": 0.0}, "lipschitz"),
        (bound, {"attention": ONES, "strengths": 1.0, "gain": np.nan}, "gain"),
        (mixing_law.row_moments, ["exp", 3, 0.0, 0.0], "gamma"),
        (mixing_law.row_moments, ["exp", 3, np.nan, 1.0], "beta"),
        (mixing_law.row_moments, ["exp", 2.5, 0.0, 1.0], "length"),
    ],
)
def test_bad_input_is_refused(make, given, argument):
    with pytest.raises(InputError) as caught:
        make(*given) if isinstance(given, list) else make(**given)
    assert caught.value.argument == argument


# ------------------------------------------------------------- collapse


def test_the_measures():
    v = np.array([[3.0, 0], [0, 4], [0, 4]])
    found = collapse(v)
    assert found.rank == pytest.approx(math.sqrt(((v - v.mean(0)) ** 2).sum()))
    assert found.last_pair == 0
    assert found.norm == pytest.approx(math.sqrt(41))
    assert found.last_norm == pytest.approx(math.sqrt(32))
    equal = collapse(np.ones((4, 2, 3)))
    assert equal.rank.shape == (4,)
    assert not equal.rank.any()
    assert not equal.distance.any()
    assert collapse(np.eye(2)).distance == pytest.approx(1.0)
    with pytest.raises(InputError, match="tokens >= 2"):
        collapse(np.ones((1, 3)))


@pytest.mark.thorough
def test_neighbours_are_the_collapse_of_every_prefix():
    drawn = sampled(SMALL, 5, seed=2, measure=neighbours)
    whole = sampled(SMALL, 5, seed=2)
    assert drawn.pair.shape == drawn.norm.shape == (5, 4, 9)
    np.testing.assert_allclose(drawn.pair[..., -1], whole.last_pair, rtol=1e-12)
    np.testing.assert_allclose(drawn.norm[..., -1], whole.last_norm, rtol=1e-12)
    states = np.asarray(forward(draw(SMALL, 2)))
    for t in range(2, 11):
        prefix, here = collapse(states[:, :t]), neighbours(states)
        np.testing.assert_allclose(here.pair[:, t - 2], prefix.last_pair, rtol=1e-12)
        np.testing.assert_allclose(here.norm[:, t - 2], prefix.last_norm, rtol=1e-12)
    with pytest.raises(InputError, match="states"):
        neighbours(np.ones((1, 4)))


# ------------------------------------------------------------ the bound


@pytest.mark.parametrize(("mass", "digits"), [
    (None, ["0.884", "1.016", "1.104"]),
    (0.8, ["0.262", "0.223", "0.195"]),
])  # fmt: skip
def test_toy_values_by_differentiation_and_by_the_bound(mass, digits):
    found = toy(SinkRoutes(), mass)
    assert [f"{x:.3f}" for x in found] == digits
    # One head with W = 1 and nonnegative paths: the bound is the Jacobian itself.
    n = 6
    rows = np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]
    gain = np.ones(n)
    if mass is not None:
        rows = np.zeros((n, n))
        rows[0, 0] = 1
        for i in range(1, n):
            rows[i, 0], rows[i, 1 : i + 1] = mass, (1 - mass) / i
        gain[0] = 0
    M = bound(np.broadcast_to(rows, (4, 1, n, n)), 1.0, gain=gain)
    np.testing.assert_allclose(found, (M[:, 2] / M.diagonal())[3:], rtol=1e-5)


def violations(stack, seed, above):
    """Entries where the true influence exceeds `above(layers)`, and their number in all."""
    layers = draw(stack, seed)
    reach = norms(jacobian(layers))
    return int((reach > above(layers) * (1 + 1e-9)).sum()), reach.size


def honest(stack):
    return lambda layers: bound_of(layers, stack.lipschitz)


def test_the_bound_holds_in_every_entry():
    for kernel in ("exp", "relu2", "identity"):
        for sink in SINKS:
            for branch in (0.0, 0.5) if kernel == "exp" else (0.5,):
                stack = replace(SMALL, kernel=kernel, sink=sink, branch=branch)
                assert violations(stack, 11, honest(stack)) == (0, 100)


def _strengths(layers):
    return np.linalg.norm(np.asarray(layers.values), 2, axis=(-2, -1))


def _without_residual(layers):
    product = np.eye(10)
    for a, w in zip(np.abs(np.asarray(layers.attention)), _strengths(layers), strict=True):
        product = np.einsum("h,hji->ji", w, a) @ product
    return product


def _without_a_head(layers):
    w = _strengths(layers)
    w[:, 1] = 0
    return bound(layers.attention, w, 1.0)


def _without_norms(layers):
    return bound(layers.attention, 0.5, 1.0)


def _without_later_layers(layers):
    return bound(layers.attention[:1], _strengths(layers)[:1], 1.0)


def _transposed(layers):
    return bound_of(layers, 1.0).T


@pytest.mark.parametrize(
    "wrong",
    [_without_residual, _without_a_head, _without_norms, _without_later_layers, _transposed],
)
def test_wrong_bounds_are_violated(wrong):
    over, count = violations(SMALL, 11, wrong)
    assert count == 100
    assert over >= 5


def test_a_wrong_lipschitz_constant_is_violated():
    """Small tokens, where tanh has slope one, and maps that are multiples of the identity."""
    layers = Layers(*map(np.asarray, draw(replace(SMALL, branch=0.5), 2)))
    layers = layers._replace(
        maps=np.tile(np.eye(5), (3, 1, 1)), values=0.01 * layers.values, tokens=1e-3 * layers.tokens
    )
    reach = norms(jacobian(layers))
    assert np.all(reach <= bound_of(layers, 2.0) * (1 + 1e-9))
    assert np.sum(reach > bound_of(layers, 1.5)) >= 10


def test_a_sink_without_value_removes_its_column_and_thins_the_others():
    a = np.asarray(draw(replace(SMALL, sink=LayerSink(mass=0.0))).attention)
    thin = np.asarray(draw(replace(SMALL, sink=LayerSink(mass=0.8))).attention)
    gain = np.array([0.0] + [1.0] * 9)
    held = bound(thin, 1.0, gain=gain)
    assert not held[1:, 0].any()
    np.testing.assert_allclose(held[1:, 1:], bound(a, 0.2, gain=gain)[1:, 1:], rtol=1e-12)
    assert norms(jacobian(draw(replace(SMALL, sink=LayerSink(mass=0.8)))))[1:, 0].max() == 0


# ------------------------------------------------------- the exact law


@pytest.mark.parametrize(("gamma", "n", "b", "mass"), [
    (1, 100, 3, "0.11004"), (3, 1000, 8, "0.04396"),
])  # fmt: skip
def test_row_moments_of_a_sink(gamma, n, b, mass):
    found = mixing_law.row_moments("exp", n, 0.0, gamma, LayerSink(logit=b))
    assert f"{found.mass:.5f}" == mass
    row = Row("exp", gamma=gamma, steps=(SinkLogit(b),))
    law = exact(row, length=n, of="sink_mass")
    assert found.mass == pytest.approx(float(law.value), rel=1e-9 + float(law.error_bound))


@pytest.mark.parametrize(("n", "y2"), [(16, "0.47691"), (4096, "0.07862")])
def test_row_moments_without_a_sink(n, y2):
    found = mixing_law.row_moments("exp", n, 0.0, 3.0)
    assert f"{found.squares:.5f}" == y2
    law = exact("exp", length=n, gamma=3.0, of="participation")
    assert found.squares == pytest.approx(float(law.value), rel=1e-9)


@pytest.mark.thorough
def test_row_moments_against_rows_drawn():
    rng, rows = np.random.default_rng(5), 40_000
    for kernel, f in (("exp", np.exp), ("relu2", lambda x: np.maximum(x, 0) ** 2)):
        for n in (1, 3, 20):
            for sink in (None, LayerSink(mass=0.3), LayerSink(logit=1.5), LayerSink(logit=-1.5)):
                a = f(-0.5 + 1.2 * rng.standard_normal((rows, n)))
                b = 0.0 if sink is None or sink.logit is None else f(sink.logit)
                total = a.sum(1, keepdims=True) + b
                p = np.divide(a, total, out=np.zeros_like(a), where=total > 0)
                m = (b / total[:, 0]) if b else np.full(rows, 0.0)
                if sink is not None and sink.mass is not None:
                    m, p = np.full(rows, sink.mass), p * (1 - sink.mass)
                R = p.sum(1)
                drawn = (m, m * m, R, R * R, m * R, (p * p).sum(1))
                law = mixing_law.row_moments(kernel, n, -0.5, 1.2, sink)
                for x, name in zip(drawn, mixing_law.RowMoments._fields, strict=True):
                    bar = 4.5 * x.std() / math.sqrt(rows) + 1e-9
                    assert abs(x.mean() - float(getattr(law, name))) < bar


def test_row_moments_of_a_sink_without_weight():
    """Half of the scores are negative, all three of them in one row of eight: those rows are 0."""
    found = mixing_law.row_moments("relu2", [1, 3], 0.0, 1.0, LayerSink(logit=-1.0))
    for value in (found.rest, found.rest_square):
        np.testing.assert_allclose(value, [0.5, 0.875], rtol=1e-12)
    np.testing.assert_array_equal(found.mass, 0)
    np.testing.assert_array_equal(found.mass_rest, 0)


@pytest.mark.parametrize("logit", [80.0, 1e4])
def test_row_moments_of_a_sink_that_takes_all(logit):
    found = mixing_law.row_moments("exp", [1, 3], 0.0, 1.0, LayerSink(logit=logit))
    for name, value in (("mass", 1), ("mass_square", 1), ("rest", 0), ("squares", 0)):
        np.testing.assert_allclose(getattr(found, name), value, atol=1e-12)


LAWS = (
    Stack(kernel="exp", gamma=1.0, sink=None),
    Stack(kernel="exp", gamma=2.5, beta=0.7, sink=LayerSink(mass=0.5)),
    Stack(kernel="exp", gamma=1.5, sink=LayerSink(logit=3.0, value=0.7)),
    Stack(kernel="relu2", gamma=1.0, beta=-0.3, sink=LayerSink(logit=1.0)),
    Stack(kernel="relu2", gamma=1.0, sink=LayerSink(mass=0.5, value=1.0)),
    Stack(kernel="relu2", gamma=1.0, beta=-0.5, sink=LayerSink(logit=-1.0)),  # without weight
)


def z_scores(stack, law, draws=400):
    """Second moments of whole stacks against the law, in standard errors."""
    c = sampled(stack, draws, 9)
    found = []
    for name in ("rank", "last_pair", "norm", "last_norm"):
        x = getattr(c, name) ** 2
        gap = x.mean(0) - getattr(law, name) ** 2
        found += list(gap / (x.std(0, ddof=1) / math.sqrt(draws)))
    return np.array(found)


def shaped(stack, heads=2):
    return replace(stack, length=12, dim=24, depth=3, heads=heads, common=0.25)


@pytest.mark.parametrize("wrong", ["strength", "mass", "gamma", "value"])
def test_a_wrong_law_is_rejected(wrong):
    stack = shaped(Stack(sink=LayerSink(mass=0.5, value=0.5)))
    other = {
        "strength": replace(stack, strength=1.15),
        "mass": replace(stack, sink=LayerSink(mass=0.6, value=0.5)),
        "gamma": replace(stack, gamma=1.0, sink=None),
        "value": replace(stack, sink=LayerSink(mass=0.5, value=0.65)),
    }[wrong]
    z = z_scores(stack, mixing_law.average(other))
    assert np.abs(z).max() > stats.t.isf(1e-4 / 80 / 2, 399)


def test_influence_is_that_of_jacobians():
    stack = replace(shaped(Stack(sink=LayerSink(mass=0.4, value=0.5))), heads=1, dim=8)
    blocks = np.stack([jacobian(draw(stack, seed)) for seed in range(60)])
    squares = (blocks**2).sum((-2, -1)) / stack.dim
    checked = 0
    for token in (0, 1, 5):
        law = mixing_law.influence(stack, token)[-1] ** 2
        x = squares[:, :, token]
        bar = x.std(0, ddof=1) / math.sqrt(len(x))
        at = bar > 0
        z = (x.mean(0) - law)[at] / bar[at]
        assert np.abs(z).max() < 5
        np.testing.assert_allclose(law[~at], 0, atol=1e-15)
        checked += int(at.sum())
    assert checked == 12 + 11 + 7


def test_lengths_share_one_law_by_causality():
    stack = Stack(length=40, depth=4, gamma=1.3, common=0.2, sink=LayerSink(logit=2.0))
    every = mixing_law.distances(stack)
    assert every.shape == (5, 39)
    for n in (2, 3, 17, 40):
        np.testing.assert_allclose(
            every[:, n - 2], mixing_law.average(replace(stack, length=n)).distance, rtol=1e-9
        )


def test_heads_and_dimension_do_not_enter_the_law_and_the_kernel_must_be_nonnegative():
    a = mixing_law.average(replace(SMALL, heads=1, dim=3))
    np.testing.assert_array_equal(a.rank, mixing_law.average(SMALL).rank)
    for kernel in ("identity", score_kernel("cube", s**3)):
        with pytest.raises(InputError, match="f >= 0"):
            mixing_law.average(replace(SMALL, kernel=kernel))
    with pytest.raises(InputError, match="branch"):
        mixing_law.average(replace(SMALL, branch=0.1))
    for token in (-1, 10):
        with pytest.raises(InputError, match="token"):
            mixing_law.influence(SMALL, token)


# ------------------------------------------------------------- claims

CLAIM = {claim.key: claim for claim in (*sinks_mixing.CLAIMS, *sinks_context.CLAIMS)}
EXPECTED = {
    "sinks-mix-less": "confirmed",
    "longer-context": "refined",
    "rank-collapse": "confirmed",
    "over-squashing": "refined",
    "no-op": "confirmed",
    "larger-models": "reported",
}


# What is honest is computed once, for the records and for every planted world.
_ONCE = ("sampled", "average", "distances", "sink_mass", "sink_logit")
HONEST = replace(
    SinkRoutes(), **{name: functools.cache(getattr(SinkRoutes(), name)) for name in _ONCE}
)


def test_verdicts_follow_from_the_findings(committed_claims):
    records = {key: committed_claims[key] for key in CLAIM}
    assert {key: r["verdict"] for key, r in records.items()} == EXPECTED
    for r in records.values():
        findings = [Finding(**f) for f in r["evidence"]["findings"]]
        assert r["verdict"] == verdict(findings)
        assert all(f.holds for f in findings if f.role == "instead")


def _loose_sinks(stack, seed):
    """Sinks that keep their value."""
    sink = None if stack.sink is None else replace(stack.sink, value=1.0)
    return HONEST.draw(replace(stack, sink=sink), seed)


def _half_bound(*arguments):
    return HONEST.bound(*arguments) / 2


def _no_mean(states):
    """The mean is not taken off."""
    found = HONEST.collapse(states)
    return found._replace(rank=found.norm / 2)


PLANTED = [
    (
        "sinks-mix-less",
        "refuted",
        replace(HONEST, draw=lambda x, seed: HONEST.draw(replace(x, sink=None), seed)),
    ),
    ("longer-context", "refuted", replace(HONEST, sink_logit=lambda m, n, g: 5.0)),
    ("rank-collapse", "refuted", replace(HONEST, collapse=_no_mean)),
    ("over-squashing", "refuted", replace(HONEST, bound=_half_bound)),
    ("no-op", "refuted", replace(HONEST, draw=_loose_sinks)),
    ("larger-models", "refuted", replace(HONEST, importance=lambda a: importance(a) * 0)),
]


def test_every_claim_has_a_planted_world():
    assert {key for key, _, _ in PLANTED} == set(EXPECTED)
    assert all(EXPECTED[key] != wrong for key, wrong, _ in PLANTED)


@pytest.mark.thorough
@pytest.mark.parametrize(("key", "wrong", "routes"), PLANTED)
def test_a_planted_wrong_world_changes_the_verdict(key, wrong, routes):
    assert CLAIM[key].record(routes)["verdict"] == wrong
