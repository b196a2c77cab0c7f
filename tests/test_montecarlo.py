"""Monte Carlo: exact invariants first, then statistics, then refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
import sympy
from scipy.stats import binom, chi2

from sparsity import (
    Alibi,
    Coca,
    Decay,
    InputError,
    LengthBias,
    QKNorm,
    Row,
    Sink,
    SinkLogit,
    Window,
    estimate,
    evaluate,
    exact,
    kernels,
    score_kernel,
)
from sparsity.crosscheck.cells import FEATURE_MAPS, feature_ratio
from sparsity.kernels import exp, relu2
from sparsity.kernels.symbols import s
from sparsity.sampling import (
    Sampling,
    batches,
    draw,
    draw_each,
    estimators,
    proposals,
    row_sampling,
)
from sparsity.sampling.batches import CHUNK, collect
from sparsity.sampling.combining import combine
from sparsity.sampling.row_sampling import draw_rows
from sparsity.sampling.samplers import Plain

SLOW = pytest.mark.slow
LIMIT = 5.5  # |z| beyond which a cell fails: about 7e−7 with 63 degrees of freedom


def z_score(found, log_S: float) -> float:
    assert found.trusted, found.warning
    assert found.rel_stderr > 0
    return (found.log_value - log_S) / found.rel_stderr


PLAIN = Plain(relu2, 256, "float64")
PLAIN_ARGUMENTS = ((np.float64(0.5), np.float64(1.0)), np.float64(0.0))


def plain_batches(chunks: int, first: int = 0, seed: int = 0, fold: bool = False) -> np.ndarray:
    return collect(PLAIN, PLAIN_ARGUMENTS, seed=seed, first=first, chunks=chunks, fold=fold)


def test_same_seed_same_bits_and_another_seed_other_bits():
    kwargs: dict[str, Any] = dict(beta=-1.0, gamma=0.5)
    first, again = estimate("relu2", seed=7, **kwargs), estimate("relu2", seed=7, **kwargs)
    assert first.log_value == again.log_value
    assert first.rel_stderr == again.rel_stderr
    assert estimate("relu2", seed=8, **kwargs).log_S != first.log_value


def test_batches_do_not_depend_on_how_they_are_chunked():
    whole = plain_batches(4)
    parts = np.concatenate([plain_batches(1, first=i * CHUNK) for i in range(4)])
    assert np.array_equal(whole, parts)
    assert whole.shape == (4 * CHUNK, 3, 2)
    assert len(np.unique(whole[:, 0, 0])) == 4 * CHUNK  # no key is used twice


def test_larger_calls_have_the_same_bits_and_fold_the_same(monkeypatch):
    """What an accelerator does: thousands of chunks a call, folded where they were drawn."""
    single = plain_batches(5)
    folds = [np.concatenate([plain_batches(1, i * CHUNK, fold=True) for i in range(4)])]
    monkeypatch.setattr(batches, "call_sizes", lambda sampler: (2, 1))
    assert np.array_equal(single, plain_batches(5))  # two calls of two chunks, and one of one
    folds += [plain_batches(4, fold=True), batches.fold_chunks(single[: 4 * CHUNK])]
    assert folds[0].shape == (4, 3, 2)
    np.testing.assert_allclose(folds[0], folds[1], rtol=1e-14)
    np.testing.assert_allclose(folds[0], folds[2], rtol=1e-14)
    chunk = single[:CHUNK]
    np.testing.assert_allclose(folds[0][0, :2], chunk[:, :2].mean(axis=0), rtol=1e-14)
    assert np.array_equal(folds[0][0, 2], chunk[:, 2].max(axis=0))


def test_an_accelerator_draws_full_calls(monkeypatch):
    """What is asked for is rounded up, so that a few calls draw it; a CPU draws what is asked."""
    counts = sorted({round(1.13**i) for i in range(100)})
    monkeypatch.setattr(batches, "call_sizes", lambda sampler: (1,))
    assert all(batches.full_calls(PLAIN, count) == count for count in counts)
    sizes = (4096, 512, 64, 1)
    monkeypatch.setattr(batches, "call_sizes", lambda sampler: sizes)
    for count in (*counts, 4095, 4096, 4097, 32767):
        full, calls = batches.full_calls(PLAIN, count), 0
        assert count <= full <= count + max(63, count / 8)
        for size in sizes:
            calls, full = calls + full // size, full % size
        assert calls <= 14 + count / 4096
    # A run draws whole calls, but no more than its budget allows; what it draws has the same bits.
    monkeypatch.setattr(batches, "call_sizes", lambda sampler: (2, 1))
    monkeypatch.setattr(batches, "_LEAST_CHUNKS_PER_CALL", 2)
    log = batches.BatchLog(PLAIN, PLAIN_ARGUMENTS, seed=0)
    assert (log.draw(1, most=9), log.draw(1, most=1), log.draw(3, most=4)) == (2, 3, 7)
    assert np.array_equal(log.batches(), plain_batches(7))


def test_standard_error_falls_like_one_over_root_n():
    drawn = plain_batches(128)
    counts = [64, 256, 1024, 4096]
    errors = [combine(drawn[:count], (1.0, -0.5), 256).rel_stderr for count in counts]
    slope = np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.06)  # 64 batches know their error to 9 %


def test_error_bar_uses_the_covariance():
    """m₁ and √m₂ of relu² rise together: without their covariance the bar would be too wide."""
    drawn = plain_batches(128)
    full = combine(drawn, (1.0, -0.5), 256).rel_stderr
    alone = [combine(drawn, powers, 256).rel_stderr for powers in ((1.0, 0.0), (0.0, -0.5))]
    assert full < 0.7 * math.hypot(*alone)


def test_interval_covers_as_often_as_it_says():
    """95 % intervals over 300 seeds; the bounds have a false-alarm probability of 1e−6."""
    truth = float(evaluate("relu2", beta=0.5, gamma=1.0).log_S)
    from scipy.stats import t

    hits = 0
    for seed in range(300):
        found = combine(plain_batches(2, seed=seed), (1.0, -0.5), 256)
        hits += abs(found.log_value - truth) <= t.ppf(0.975, found.dof) * found.rel_stderr
    low, high = binom.ppf([5e-7, 1 - 5e-7], 300, 0.95)
    assert low <= hits <= high


def test_an_estimation_that_overflows_is_no_number():
    drawn = np.full_like(plain_batches(1, seed=3), 1e308)  # its sum is no float
    found = combine(drawn, (1.0, -0.5), 256)
    assert math.isnan(found.log_value)
    assert found.warning is not None


SCALARS = [
    *(("exp", {"gamma": g}) for g in (1e-3, 0.5, 1.0, 4.0, 8.0, 100.0)),
    *(("relu2", {"beta": b, "gamma": 1.0}) for b in (-40.0, -12.0, -1.0, 0.0, 3.0, 1e6)),
    *(("identity", {"beta": b, "gamma": 2.0}) for b in (-3.0, 0.0, 1.0, 1e6)),
    *(("decayed", {"decay": 0.9, "length": n}) for n in (2, 100, 10**12)),
    *(("decayed", {"decay": x, "length": 10**6}) for x in (1e-5, 0.999999)),
]


@pytest.mark.parametrize(("kernel", "parameters"), SCALARS)
def test_scalar_estimates_meet_the_closed_form(kernel, parameters):
    found = estimate(kernel, seed=11, rel_error=1e-4, **parameters)
    assert abs(z_score(found, float(evaluate(kernel, **parameters).log_S))) < LIMIT
    assert found.rel_stderr <= 1e-4
    assert found.samples >= 2**10
    assert found.ci95[0] <= found.value <= found.ci95[1]


def test_a_wrong_table_costs_draws_and_no_bias(monkeypatch):
    """What the table says of the integrals is corrected by the draws; a density that is none isn't.

    Planted: masses 10 % off and cells of another β; then a density whose integral is not one, which
    is the control variate's known mean, and must be seen.
    """
    right = estimators.proposals.build
    truth = float(evaluate(exp, gamma=2.0).log_S)
    parameters = {"beta": 0.0, "gamma": 2.0}
    for mass, elsewhere in ((1.1, 2.0), (0.5, 2.0), (1.0, 1.9), (1.2, 2.2)):

        def wrong(kernel, given, mass=mass, elsewhere=elsewhere):
            table = right(kernel, given | {"gamma": elsewhere})
            return table._replace(log_mass=table.log_mass + math.log(mass))

        monkeypatch.setattr(estimators.proposals, "build", wrong)
        found = estimators.stratified(exp, parameters, Sampling(3e-4, seed=3))
        assert found.warning is None
        assert found.rel_stderr <= 3e-4
        assert abs(z_score(found, truth)) < LIMIT

    def no_density(kernel, given):
        table = right(kernel, given)
        return table._replace(heights=table.heights * 1.01)

    monkeypatch.setattr(estimators.proposals, "build", no_density)
    found = estimators.stratified(exp, parameters, Sampling(3e-4, seed=3))
    assert abs(z_score(found, truth)) > LIMIT


_tenth, _third = sympy.Rational(1, 10), sympy.Rational(3, 10)
DECEITFUL = {  # name: (f, β, γ); what a table, a pilot or a float may fail to see
    "a narrow bump far off": (_tenth**2 + sympy.exp(-(s**2)), 150.0, 1000.0),
    "a dip": (1 - 9 * _tenth * sympy.exp(-(s**2)), 370.0, 1000.0),
    "a spike of width 1e-4": (1 + 10 * sympy.exp(-(((s - _third) * 10**4) ** 2)), 0.0, 1.0),
    "a second peak 600 sigma away": (
        sympy.Piecewise((sympy.exp(s), s > 0), (sympy.exp(-11 * s / 10), True)), 18000.0, 600.0,
    ),
    "overflow where no key falls": (sympy.log(1 + sympy.exp(s)) * sympy.Heaviside(s + 2), 0.0, 6.0),
    "two scales": (sympy.exp(s) + sympy.exp(5 * s) / 10**6, 0.0, 2.0),
    "oscillation": (2 + sympy.cos(20 * s), 0.0, 1.0),
    "a constant": (sympy.Integer(2), 0.0, 1.0),
}  # fmt: skip


# The others take a second each.
DECEIVED_AT_ONCE = ("a second peak 600 sigma away", "a constant")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", [x if x in DECEIVED_AT_ONCE else pytest.param(x, marks=SLOW) for x in DECEITFUL]
)
def test_an_error_bar_holds_where_the_table_may_be_deceived(name):
    weight, beta, gamma = DECEITFUL[name]
    kernel, trusted = score_kernel("own", weight), 0
    truth = float(evaluate(kernel, beta=beta, gamma=gamma).log_S)
    for seed in range(6):
        found = estimate(kernel, beta=beta, gamma=gamma, seed=seed)
        if found.warning is None:
            trusted += 1
            assert found.rel_stderr <= 1e-3
            assert abs(z_score(found, truth)) < LIMIT
    assert trusted >= 5


@pytest.mark.parametrize(
    ("dtype", "weight", "beta", "truth"),
    [
        ("float32", sympy.log(1 + sympy.exp(s)), -16.0, -0.5),
        pytest.param("float64", 1 - sympy.tanh(s) ** 2, 18.0, -2.0, marks=SLOW),
    ],
)
def test_cancellation_inside_f_widens_the_error_bar(dtype, weight, beta, truth):
    kernel = score_kernel("own", weight)
    found = estimate(kernel, beta=beta, gamma=1.0, dtype=dtype)
    assert found.stopped == f"limit of {dtype}"
    assert found.rel_stderr > 1e-3
    assert abs(z_score(found, truth)) < LIMIT
    calm = estimate(kernel, beta=0.0, gamma=1.0, dtype=dtype)
    assert calm.stopped == "target reached"


@pytest.mark.parametrize(("decay", "length"), [(1 - 1e-5, 1e6), (1 - 1e-8, 1e9), (5e-324, 10)])
def test_decay_next_to_one_in_float32(decay, length):
    found = estimate("decayed", decay=decay, length=length, dtype="float32")
    truth = float(evaluate("decayed", decay=decay, length=length).log_S)
    assert found.warning is None
    assert abs(z_score(found, truth)) < LIMIT


def test_a_bias_that_leaves_no_digits_is_said():
    found = estimate("exp", beta=1e300, gamma=1e-3)
    assert found.warning is not None
    assert "no digit" in found.warning


def test_long_runs_are_kept_in_bounded_memory(monkeypatch):
    """Folded or not, the same draws give the same estimate; the error bars agree."""
    at = {"beta": 0.0, "gamma": 2.0}
    monkeypatch.setattr(estimators, "stratified_size", lambda *_: 32)  # as compiled above
    sampling = Sampling(1e-8, 32 * CHUNK * 48, seed=5)
    whole = estimators.stratified(exp, at, sampling)
    monkeypatch.setattr(batches, "MAX_BATCHES_KEPT", 40 * CHUNK)
    kept = []
    folding = batches.fold_chunks
    monkeypatch.setattr(
        batches, "fold_chunks", lambda drawn: kept.append(len(drawn)) or folding(drawn)
    )
    folded = estimators.stratified(exp, at, sampling)
    assert kept
    assert folded.samples == whole.samples
    assert abs(folded.log_value - whole.log_value) < 1e-12
    assert 0.2 < folded.rel_stderr / whole.rel_stderr < 5


def test_plain_sampling_of_a_steep_exponential_says_that_it_cannot_be_trusted():
    """10⁶ draws at γ = 4: far too large with a small error bar, and the estimate knows."""
    found = estimate("exp", gamma=4.0, method="plain", max_samples=1e6)
    assert not found.trusted
    assert "cannot be trusted" in (found.warning or "")
    assert found.log_value - (-8.0) > math.log(3)  # indeed several times too large
    assert found.method == "scalar-plain"


def test_whole_keys_for_any_query_and_mean():
    """q and μ arbitrary: only β = q·μ and γ = σ‖q‖ matter; 1.1 % off in S would show."""
    kernel, dim, rng = exp, 3, np.random.default_rng(3)
    q, mu, spread = rng.normal(size=dim), rng.normal(size=dim), 0.7
    q *= 1.2 / np.linalg.norm(q)
    found = estimators.full_keys(kernel, q, mu, Sampling(rel_error=2e-3, seed=dim), spread=spread)
    beta, gamma = float(q @ mu), float(spread * np.linalg.norm(q))
    assert abs(z_score(found, float(evaluate(kernel, beta=beta, gamma=gamma).log_S))) < LIMIT
    wrong = float(evaluate(kernel, beta=beta, gamma=1.1 * gamma).log_S)
    assert abs(wrong - found.log_value) > LIMIT * found.rel_stderr


# test_crosscheck.py draws all of them, for other queries.
def test_features_follow_the_moments_of_their_map():
    name, query = "elu+1", np.maximum([1.0, -1.0, 0.5, 2.0], 0)
    settings = Sampling(rel_error=1e-3, seed=3)
    found = estimators.features(FEATURE_MAPS[name], query, -0.5, 0.8, settings)
    rho = np.linalg.norm(query) / query.sum()
    truth = -0.5 * math.log1p((feature_ratio(name, -0.5, 0.8) * rho) ** 2)
    assert abs(z_score(found, truth)) < LIMIT
    assert found.method == f"features-{name}"
    assert set(FEATURE_MAPS) == {"relu", "exp", "elu+1", "softplus"}


def test_rows_against_numpy_all_zero_rows_left_out():
    rng = np.random.default_rng(1)
    a = np.maximum(rng.normal(-1, 1, (400_000, 4)), 0) ** 2
    a = a[a.any(axis=1)]
    n_eff = a.sum(1) ** 2 / (a * a).sum(1)
    drawn = draw_rows(Row(relu2, beta=-1.0, gamma=1.0), 4, Sampling(rel_error=5e-4, seed=2))
    found, S_n = drawn.estimate("n_eff"), drawn.estimate("S")
    gap = found.value - n_eff.mean()
    error = math.hypot(found.stderr, n_eff.std() / math.sqrt(len(n_eff)))
    assert abs(gap) < LIMIT * error
    expected = np.sqrt(n_eff / 4)
    assert abs(S_n.value - expected.mean()) < LIMIT * math.hypot(S_n.stderr, 1e-3 * expected.std())
    assert 1 <= found.value <= 4


@pytest.mark.thorough
def test_rows_of_one_token_and_rows_of_whole_keys():
    alone = estimate(exp, gamma=2.0, length=1, of="n_eff")
    assert alone.value == pytest.approx(1, abs=1e-12)
    scalar = estimate("exp", gamma=1.0, length=8, of="S", rel_error=1e-3)
    keys = estimate("exp", gamma=1.0, length=8, of="S", dim=5, rel_error=1e-3)
    assert (scalar.method, keys.method) == ("rows", "rows-full-keys")
    gap = (scalar.log_value - keys.log_value) / math.hypot(scalar.rel_stderr, keys.rel_stderr)
    assert abs(gap) < LIMIT


@pytest.mark.thorough
def test_without_a_name_rows_are_asked_for_n_eff_as_in_exact():
    given = {"gamma": 1.0, "rel_error": 0.05}
    assert estimate("exp", **given).quantity == evaluate("exp", gamma=1.0).quantity == "S"
    of_rows = estimate("exp", length=8, **given)
    assert of_rows.quantity == exact("exp", gamma=1.0, length=8).quantity == "n_eff"
    assert of_rows.value == estimate("exp", length=8, of="n_eff", **given).value
    decayed = {"decay": 0.9, "length": 8}  # its length is a parameter: nothing is random
    assert estimate("decayed", **decayed).quantity == evaluate("decayed", **decayed).quantity == "S"


VECTORS = (np.array([1.0, 0.5, -0.3, 0.2]), np.array([0.4, -0.2, 0.1, 0.6]))
# Of the lengths and dimensions that the cells of the reference grid have: they compile once.
ROWS = {
    "rows": (Row(relu2, beta=1.0, gamma=0.5), 4),
    "rows, retention": (Row(exp, gamma=0.5, steps=(Decay(0.9), Decay(0.8))), 8),
    "rows-law": (Row(exp, gamma=0.5, steps=(Alibi(0.1), Window(5), Sink(1.0))), 8),
}


@pytest.mark.parametrize("name", ROWS)
def test_every_quantity_of_every_kind_of_row_against_the_exact_law(name):
    row, n = ROWS[name]
    sinks = any(isinstance(step, (Sink, SinkLogit)) for step in row.steps)
    asked = ["S", "n_eff", "participation"] + ["sink_mass"] * sinks
    for of in asked:
        found = estimate(row, length=n, of=of, seed=4)
        truth = float(exact(row, length=n, of=of).log_value)
        assert abs(z_score(found, truth)) < LIMIT
        assert abs(found.log_value + 0.01 - truth) > LIMIT * found.rel_stderr  # 1 % would show
        assert (found.quantity, found.length, found.value) == (of, n, found.value)
        assert found.method == name.split(",")[0]
        assert found.rel_stderr <= 1e-3
    assert len(asked) == 3 + sinks


def test_all_quantities_of_the_same_rows():
    row = Row(exp, gamma=1.0, steps=(SinkLogit(1.0),))
    drawn = draw_rows(row, 8, Sampling(rel_error=1e-3))
    for of in ("S", "n_eff", "participation", "sink_mass"):
        assert abs(z_score(drawn.estimate(of), float(exact(row, length=8, of=of).log_value))) < 4.5
    assert abs(z_score(drawn.limit_form(), float(evaluate(row, length=8).log_S))) < 4.5


@pytest.mark.thorough
def test_without_a_length_it_is_the_limit():
    row = Row(exp, gamma=0.5, steps=(QKNorm(4),))
    found = estimate(row, seed=1)
    assert abs(z_score(found, float(evaluate(row).log_S))) < LIMIT
    assert (found.quantity, found.length, found.method) == ("S", None, "rows-sphere")
    assert estimate(Row("exp", gamma=1.0)).log_S == estimate("exp", gamma=1.0).log_S
    keys = [
        estimate(x, dim=3, **g) for x, g in ((Row("exp", gamma=0.5), {}), ("exp", {"gamma": 0.5}))
    ]
    assert keys[0].log_value == keys[1].log_value


def test_a_row_of_steps_and_a_kernel_with_parameters_are_one():
    """Retention by `decay` or by the step; the two draws are the same."""
    step = estimate(Row("exp", gamma=0.5, steps=(Decay(0.9),)), length=8)
    assert step.log_value == estimate("exp", gamma=0.5, decay=0.9, length=8).log_value


def test_quantities_of_a_row_of_positions():
    for of in ("S", "n_eff", "participation"):
        truth = float(exact("decayed", decay=0.9, length=100, of=of).log_value)
        found = estimate(Row("decayed", decay=0.9), length=100, of=of)
        assert found.log_value == pytest.approx(truth, abs=1e-12)
        plain = estimate("decayed", decay=0.9, length=100, of=of, method="plain", max_samples=1e7)
        assert abs(z_score(plain, truth)) < LIMIT
    assert (found.quantity, found.length) == ("participation", 100)


SOFTPLUS = sympy.log(1 + sympy.exp(s))


@pytest.mark.thorough
def test_a_users_own_kernel():
    """Others are sampled by test_kernels.py and test_verify_rows.py."""
    kernel = score_kernel("unplanned", SOFTPLUS * sympy.Heaviside(s + 2))
    for beta, gamma in ((0.0, 1.0), (-3.0, 1.5)):
        found = estimate(kernel, beta=beta, gamma=gamma, rel_error=1e-4, seed=5)
        truth = evaluate(kernel, beta=beta, gamma=gamma, method="quadrature")
        assert abs(z_score(found, float(truth.log_S))) < LIMIT
        assert found.rel_stderr <= 1e-4


def test_float32_is_named_and_close():
    kernel = score_kernel("own", SOFTPLUS)
    found = estimate(kernel, beta=0.0, gamma=1.0, dtype="float32")
    assert found.dtype == "float32"
    truth = evaluate(kernel, beta=0.0, gamma=1.0).S
    assert found.value == pytest.approx(float(truth), rel=1e-4)


@pytest.mark.slow
def test_long_rows_are_drawn_in_float32_and_their_error_bar_covers():
    """Squares of z add up as they should: bars half as wide, or twice, would not pass."""
    row, n = Row("exp", gamma=1.5), 2**16
    law = float(exact(row, length=n).log_value)
    drawn = [estimate(row, length=n, rel_error=0.02, seed=seed) for seed in range(8)]
    assert {found.dtype for found in drawn} == {"float32"}
    z = np.array([z_score(found, law) for found in drawn])
    assert abs(z).max() < LIMIT
    assert chi2(8).ppf(1e-4) < (z**2).sum() < chi2(8).ppf(1 - 1e-4), z


@pytest.mark.parametrize(
    ("n", "how", "dtype"),
    [
        (2**16, {"dtype": "float64"}, "float64"),
        (2**16, {"rel_error": 9e-4}, "float64"),
        (2**16 - 1, {}, "float64"),
        (2**16, {"of": "participation"}, "float64"),  # which rows beyond 6.3 spreads may carry
        (2**16, {"of": "max_weight"}, "float64"),
        (2**16, {"of": "entropy"}, "float32"),
        (2**16, {}, "float32"),
    ],
)
def test_other_rows_are_drawn_in_float64(n, how, dtype, monkeypatch):
    class Chosen(Exception):
        """Raised where a program would be compiled for a second."""

    def choose(*given):
        raise Chosen(given[-1].name)

    monkeypatch.setattr(row_sampling, "_sampler_of", choose)
    with pytest.raises(Chosen, match=dtype):
        estimate("relu2", beta=0.0, gamma=1.0, length=n, **{"rel_error": 0.1} | how)


@pytest.mark.thorough
def test_float64_while_jax_has_it_disabled_is_a_clear_error():
    said = "^dtype = float64: JAX has it disabled; call jax.config.update"
    with jax.enable_x64(False):
        assert estimate("exp", gamma=1.0).dtype == "float32"
        with pytest.raises(InputError, match=said):
            estimate("exp", gamma=1.0, dtype="float64")
    assert estimate("exp", gamma=1.0).dtype == "float64"


def test_jumps_narrower_than_float32_are_drawn():
    """The table's cells about a jump have no width there: 0/0 made the estimate NaN."""
    formula = "floor(s) + 1/2"
    truth = evaluate(formula, beta=0.3, gamma=2.0).log_S
    with jax.enable_x64(False):
        sampled = [estimate(formula, beta=0.3, gamma=2.0, seed=seed) for seed in range(8)]
    z = np.array([(e.log_S - truth) / e.rel_stderr for e in sampled])
    assert all(e.dtype == "float32" and e.rel_stderr < 1e-3 for e in sampled)
    assert abs(z).max() < 4
    planted = np.array([(e.log_S - truth - 5e-3) / e.rel_stderr for e in sampled])
    assert abs(planted).min() > 4


@pytest.mark.thorough
def test_a_weight_that_underflows_is_a_weight():
    """`support` counts it: of softmax every key, of topk:8 eight, whatever the spread."""
    for name, n, x64 in (("exp", 64, False), ("topk:8", 8, False)):
        with jax.enable_x64(x64):
            sampled = estimate(name, gamma=500.0, length=64, of="support", rel_error=1e-2)
        assert sampled.value == pytest.approx(n, rel=1e-9)
    relu = estimate("relu", beta=0.0, gamma=500.0, length=64, of="support", rel_error=1e-2)
    assert abs(relu.value - 32) < 4.5 * relu.stderr  # whose other half is 0 indeed


def test_without_programs_nothing_is_sampled():
    with jax.disable_jit(), pytest.raises(InputError, match="JAX_DISABLE_JIT"):
        estimate("exp", gamma=1.0)


BAD_KERNELS = {
    "second moment infinite": (sympy.exp(s**2 / 3), "is infinite"),
    "mass out of reach": (sympy.exp(sympy.Abs(s) ** sympy.Rational(19, 10) / 2), "lies beyond"),
    "not real for s < 0": (sympy.sqrt(s), "finite real number"),
    "overflows": (sympy.exp(sympy.exp(s)), "overflows|infinite"),
    "unknown to JAX": (sympy.besselj(0, s), "besselj cannot be evaluated"),
}


@pytest.mark.parametrize("name", BAD_KERNELS)
def test_a_kernel_that_cannot_be_estimated_is_refused(name):
    weight, message = BAD_KERNELS[name]
    with pytest.raises(InputError, match=message):
        estimate(score_kernel(name, weight), beta=0.0, gamma=1.0)


def test_rows_too_steep_for_their_pooled_moments_still_have_their_own():
    found = estimate("exp", gamma=20.0, length=8, of="S")
    assert found.trusted
    assert 8**-0.5 <= found.value < 0.4


EXTREME = [
    (dict(gamma=1e200), "exp"), (dict(gamma=1e200, length=8), "exp"),
    (dict(beta=1e300, gamma=1e300), "identity"), (dict(beta=1e300, gamma=1e-300), "identity"),
    (dict(beta=1e200, gamma=1e200, dim=4), "identity"), (dict(beta=1e300, gamma=1e200), "relu2"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "name"), EXTREME)
def test_what_is_beyond_float64_is_refused_without_a_warning(arguments, name):
    with pytest.raises(InputError):
        estimate(name, **arguments)


def test_features_of_a_ratio_whose_square_overflows():
    found = estimate("nonnegative", ratio=1e300, dim=2, query="uniform", max_samples=1e5)
    assert not found.trusted


_ALIBI = Row("exp", gamma=1.0, steps=(Alibi(0.1),))
BAD_ROWS = [
    (_ALIBI, {}, "length is missing: this row depends on its length"),
    (_ALIBI, {"length": 8, "gamma": 2.0}, "gamma = 2.0: the row has its own parameters"),
    (_ALIBI, {"length": 8, "decay": 0.5}, "decay = 0.5: the row has its own parameters"),
    (_ALIBI, {"length": 8, "dim": 4}, "dim = 4: whole keys are drawn only for rows without steps"),
    (_ALIBI, {"length": 8, "of": "sink_mass"}, "has no sink in sight whose weight"),
    (_ALIBI, {"length": 8, "of": "mass"}, "of = mass: did you mean sink_mass"),
    (_ALIBI, {"length": 8, "method": "plain"}, "applies to draws of single scores"),
    (_ALIBI, {"length": [8, 9]}, "length = .*give one value"),
    (
        Row("exp", gamma=1.0),
        {"of": "n_eff"},
        "length is missing: n_eff is a mean over rows of n tokens",
    ),
    (Row("exp", gamma=1.0), {"length": 10**9}, "length = 1000000000: must be <= 1e"),
    (Row("exp", gamma=1.0, steps=(QKNorm(512),)), {"length": 10**6}, "is too large to sample"),
    (Row("decayed", decay=0.5), {}, "length is missing"),
    (Row("decayed", decay=0.5), {"length": 4, "of": "sink_mass"}, "choose one of S, n_eff"),
    (Row("nonnegative", ratio=1.0, dim=4, query="uniform"), {"of": "n_eff"}, "only S of long rows"),
    (
        Row("exp", steps=(Coca(VECTORS[0], 0.5, 0.05, slack_at=3),)),
        {"length": 8},
        "slack_at = 3: the key at distance 7 would come before",
    ),
]


@pytest.mark.parametrize(("row", "arguments", "message"), BAD_ROWS)
def test_bad_rows(row, arguments, message):
    with pytest.raises(InputError, match=message):
        estimate(row, **arguments)


def test_progress_reaches_the_end():
    seen = []
    estimate("exp", gamma=1.0, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1]
    assert jax.device_count() >= 1


def test_estimates_over_a_grid_have_the_bits_of_one_by_one():
    kernel, count = kernels.exp, 6
    cells = [{"beta": 0.3, "gamma": float(g)} for g in np.geomspace(0.1, 3, count)]
    for targets in ([1e-3] * count, [3e-4] * count, [1e-3, 3e-4] * (count // 2)):
        samplings = [Sampling(target, seed=i) for i, target in enumerate(targets)]
        together = list(draw_each(kernel, cells, samplings))
        alone = [draw(kernel, own, **cell) for own, cell in zip(samplings, cells, strict=True)]
        assert len(together) == count
        for one, other in zip(together, alone, strict=True):
            assert replace(one, seconds=0.0) == replace(other, seconds=0.0)


def test_on_an_accelerator_a_grid_is_drawn_one_by_one(monkeypatch):
    monkeypatch.setattr("sparsity.sampling.batches.runs_on_cpu", lambda: False)
    monkeypatch.setattr("sparsity.sampling.estimators.runs_on_cpu", lambda: False)
    cells, samplings = [{"beta": 0.0, "gamma": g} for g in (0.5, 1.0)], [Sampling(1e-3)] * 2
    for cell, drawn in zip(cells, draw_each(kernels.exp, cells, samplings), strict=True):
        alone = draw(kernels.exp, samplings[0], **cell)
        assert replace(drawn, seconds=0.0) == replace(alone, seconds=0.0)
        assert drawn.samples == 64 * CHUNK * 32  # a full call


def test_a_grid_of_another_kind_goes_one_by_one():
    cells = [{"decay": 0.9, "length": 5}, {"decay": 0.5, "length": 10**12}]
    cells += [{"decay": d, "length": n} for d in (0.99, 0.999) for n in (1000, 10**6)]
    samplings = [Sampling(2e-4, seed=i) for i in range(6)]
    found = list(draw_each(kernels.decayed, cells, samplings))
    assert [e.method for e in found] == ["position-stratified"] * 6
    assert len({e.samples for e in found}) > 1  # some go on after what began them
    for one, own, cell in zip(found, samplings, cells, strict=True):
        alone = draw(kernels.decayed, own, **cell)
        assert replace(one, seconds=0.0) == replace(alone, seconds=0.0)
    assert list(draw_each(kernels.exp, [], [])) == []
    keys = list(draw_each(kernels.exp, [{"gamma": 0.5, "dim": 3}], samplings[:1]))
    assert keys[0].method == "full-keys"


def test_tables_of_many_laws_are_those_of_each():
    laws = [{"beta": b, "gamma": g} for b in (-40.0, 0.0, 3.0, 1e6) for g in (1e-6, 0.7, 30.0)]
    for kernel in (kernels.exp, kernels.relu2, kernels.identity):
        for law, table in zip(laws, proposals.build_each(kernel, laws), strict=True):
            for part, other in zip(table, proposals.build(kernel, law), strict=True):
                np.testing.assert_array_equal(part, other)


def test_sums_of_a_row_in_one_loop_or_several(monkeypatch):
    from sparsity.sampling import devices

    rows = np.random.default_rng(0).random((64, 33)).astype(np.float32)
    terms = [jax.numpy.asarray(x) for x in (rows, rows**2, 2 * rows)]
    for one in (True, False):  # the second for a jaxlib without the older loops
        monkeypatch.setattr(devices, "has_older_loops", lambda one=one: one)
        found = devices.token_sums(*terms)
        for x, total in zip(terms, found, strict=True):
            assert total.dtype == np.float32
            np.testing.assert_allclose(total, np.asarray(x, float).sum(axis=1), rtol=1e-6)


def test_ascending_weights_are_sorted_weights():
    from sparsity import metric

    for dtype in (np.float32, np.float64):
        rows = np.random.default_rng(1).exponential(size=(50, 9)).astype(dtype) ** 20
        rows[0, :3], rows[1, 0], rows[2] = 0, np.inf, np.finfo(dtype).tiny
        for weights in (rows, jax.numpy.asarray(rows)):
            assert np.array_equal(metric.ascending(weights), np.sort(rows, axis=-1))


@pytest.mark.thorough
def test_a_chance_that_no_row_has_is_zero_up_to_an_end():
    row = Row("exp", gamma=1.0, steps=(Sink(-20.0),))
    none = estimate(row, length=12, of="sink_mass_above:0.9", max_samples=1e5)
    assert (none.value, none.ci95[0], none.rel_stderr) == (0.0, 0.0, np.inf)
    assert none.ci95[1] == pytest.approx(1 - 0.025 ** (1 / none.samples))  # 3.7/N
    assert none.ci95[1] < none.anytime95[1] < 1e-3
    assert "only its upper end" in str(none.warning)
    some = estimate(row, length=12, of="sink_mass_above:1e-14", max_samples=1e4)
    assert (some.value, some.warning) == (1.0, None)


@pytest.mark.thorough
@pytest.mark.parametrize(("of", "n", "most"), [
    ("entropy", 1, 0), ("varentropy", 1, 0), ("kl_uniform", 1, 0), ("gini", 1, 0), ("hoyer", 1, 0),
    ("below:-2", 1, 0), ("tiles_mass_below:-1,64", 64, 0), ("tiles_below:-7,4", 8, 0.5),
])  # fmt: skip
def test_what_is_zero_in_all_rows_is_zero_up_to_an_end(of, n, most):
    """Exactly 0 where no row can have any, as the exact law says it."""
    none = estimate("exp", gamma=1.0, length=n, of=of, max_samples=1e4)
    assert none.value == none.ci95[0] == 0.0
    assert none.ci95[1] == pytest.approx(most * (1 - 0.025 ** (1 / none.samples)))
    assert none.trusted == (most == 0)
    assert -1 < none.beside(exact("exp", gamma=1.0, length=n, of=of)).z <= 0


@pytest.mark.thorough
def test_rows_of_which_hardly_any_counts_end_by_a_number_of_scores(monkeypatch):
    """1e9 rows were allowed, of a minute or so for each 1e8; now rows of so many scores in all."""
    monkeypatch.setattr("sparsity.sampling._MOST_DRAWN", 1e5)
    row = Row("relu2", beta=0.2, gamma=0.8, steps=(Alibi(0.1), LengthBias(-1.0)))
    ended = estimate(row, length=12, of="entropy")
    assert ended.stopped == "sample budget"
    assert ended.samples < 3e5
    assert ended.warning
