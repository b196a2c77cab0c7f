"""Formulas and parameters at extremes: an answer or one line."""

import numpy as np
import pytest

import sparsity
from sparsity import Empirical, InputError, Row, ScaleInvariant, TooFine
from sparsity.exact_law import integration, sink_chance


def _refused(call):
    with pytest.raises(InputError) as caught:
        call()
    return str(caught.value)


@pytest.mark.thorough
def test_a_plain_zero_has_a_reciprocal():
    formula = "erfc((softplus(s)/relu(s)))"
    assert "unbounded" in _refused(lambda: sparsity.evaluate(formula, beta=0.0, gamma=1.0))


@pytest.mark.parametrize("formula", ["sinh(s**3)", "exp(s**3)"])
def test_a_weight_that_outgrows_the_scores_is_refused(formula):
    assert "is infinite" in _refused(lambda: sparsity.evaluate(formula, beta=0.0, gamma=1.0))


def test_growth_that_ends_is_no_infinite_moment():
    found = sparsity.evaluate("exp(min(s, 5)**3)", beta=0.0, gamma=1.0)
    assert 0 < found.value < 1e-3


@pytest.mark.parametrize("kernel", ["exp", "softplus", "sigmoid"])
@pytest.mark.parametrize("gamma", [1e6, 1e10, 2.0**53, 1e308])
def test_a_spread_too_wide_for_the_exact_law_is_refused(kernel, gamma):
    said = _refused(lambda: sparsity.exact(kernel, length=64, beta=0.0, gamma=gamma))
    assert "too wide a range" in said


@pytest.mark.parametrize("of", ["max_weight", "top_k_mass:2", "gini"])
@pytest.mark.parametrize("gamma", [1e6, 1e9, 2.0**63, 1e308])
def test_panels_of_a_law_of_weights_are_counted_before_they_are_made(gamma, of):
    with pytest.raises(TooFine, match=r"panels|narrow"):
        sparsity.exact("exp", gamma=gamma, length=8, of=of)


@pytest.mark.parametrize(
    ("kernel", "beta", "gamma", "of"),
    [
        *(("exp", 0.0, 1e-7, x) for x in ("below:-6", "mass_below:-6")),
        *(("exp", 0.0, 1e300, x) for x in ("overlap:0.5", "max_weight")),
        *(("relu2", 1e300, 1.0, x) for x in ("keys_for_mass:0.9", "tiles_below:-6,4", "gini")),
    ],
)
def test_laws_of_weights_at_the_ends_of_float64_are_refused(kernel, beta, gamma, of):
    with pytest.raises(TooFine, match="estimate"):
        sparsity.exact(kernel, beta=beta, gamma=gamma, length=8, of=of)


@pytest.mark.parametrize("beta", [1e10, 1e300])
@pytest.mark.parametrize("of", ["sink_mass", "n_eff", "entropy"])
def test_tables_of_scores_far_apart_are_counted_before_they_are_made(beta, of):
    row = Row("exp", beta=beta, gamma=1.0, steps=(sparsity.Sink(3.0),))
    try:
        result = sparsity.exact(row, length=8, of=of)
    except TooFine:
        return
    others = Row("exp", beta=0.0, gamma=1.0)  # beside which the sink has no weight
    assert result.value == pytest.approx(sparsity.exact(others, length=7, of=of).value)


@pytest.mark.parametrize("kernel", ["exp", "softplus"])
def test_a_spread_below_normal_numbers_is_refused(kernel):
    said = _refused(lambda: sparsity.exact(kernel, length=4, beta=0.0, gamma=5e-324))
    assert said.startswith("gamma = ")


@pytest.mark.parametrize("of", [x for x in sparsity.quantities.ALL if x.linear], ids=str)
def test_what_is_linear_in_a_law_that_is_not_resolved_is_not_either(of):
    for columns in ((np.nan, 1.0, np.inf), (np.nan, 1.0, np.nan), (1.0, 1.0, np.inf)):
        assert not of.linear.means(np.array(columns)[:, None], np.array([8.0]))[2] < 1
    with pytest.raises(TooFine, match="not resolved"):
        sparsity.exact("exp", gamma=1e-300, length=8, of=of)


@pytest.mark.parametrize("name", ["sparsemax", "entmax1.5"])
def test_maps_of_the_smallest_spreads_are_uniform(name):
    n_eff = [sparsity.exact(name, gamma=g, length=8).value for g in (1e-307, 1e-160, 1e-50)]
    np.testing.assert_allclose(n_eff, 8.0, rtol=1e-9)


def test_no_value_that_is_no_number_is_an_answer(monkeypatch):
    columns = (np.array(np.nan), np.array(1.0), np.array(1e-12))
    monkeypatch.setattr("sparsity.exact_law.engine.mean_over_rows", lambda *given: columns)
    with pytest.raises(TooFine, match="not resolved"):
        sparsity.exact("exp", gamma=1.0, length=8)


def test_beyond_all_patches_nothing_is_drawn_and_one_line_said():
    said = _refused(lambda: sparsity.verify("exp", gamma=2**60))
    assert "\n" not in said
    assert sparsity.plot("exp", x="gamma", gamma=2**60) is not None


SAMPLE = Empirical((-1.5, -0.5, 0.0, 0.75, 2.5))
SINK = (sparsity.Decay(0.85), sparsity.Sink(3.0))


@pytest.mark.parametrize(
    ("row", "length", "of"),
    [
        (Row("sigmoid", beta=0.0, gamma=0.4, scores=SAMPLE, steps=(ScaleInvariant(1.7),)), 4096,
         "entropy"),
        (Row("taylor2", beta=3.4, gamma=0.013, steps=(sparsity.Alibi(0.2), ScaleInvariant(9.0))),
         256, "n_eff"),
        (Row("exp", gamma=0.5, steps=SINK), 4096, "sink_mass_above:0.7"),
        (Row("gelu", gamma=0.5, steps=(ScaleInvariant(1.7),)), 1000, "abs_sum"),
        (Row("silu", gamma=0.5, scores=sparsity.QKNorm(3), steps=(ScaleInvariant(1.7),)), 150,
         "square_sum"),
    ],
)  # fmt: skip
def test_laws_of_thousands_of_tokens_that_share_nothing_are_counted(row, length, of):
    """Each takes 10 to 25 s; a few tokens of the same row have their law."""
    refused = _refused(lambda: sparsity.exact(row, length=length, of=of))
    assert refused.startswith("length = ")
    assert "estimate" in refused
    assert sparsity.exact(row, length=6, of=of).error_bound < 1e-9


def test_fewest_keys_of_rare_weights_are_counted(monkeypatch):
    """It took 20 s: hardly any weight is not 0, and the integral of none of them ends early."""
    monkeypatch.setattr("sparsity.exact_law.keys_for_mass._SECONDS", 7e-6)
    of = "keys_for_mass:0.68"
    refused = _refused(lambda: sparsity.exact("relu", beta=-3.5, gamma=1.0, length=256, of=of))
    assert refused.startswith("length = 256")
    assert "takes too long" in refused


def test_weights_far_apart_are_convolved_apart():
    """A needle beside ALiBi at γ = 1000: hours of zeros between a dozen weights, now 4 s."""
    rng, h = np.random.default_rng(0), np.zeros((1, 9000))
    h[0, [0, 40, 5000, 5029, 8999]] = rng.normal(size=5)
    table, out = rng.normal(size=(1, 2, 12000)), np.zeros((1, 2, 300))
    integration.add_convolved(out, table, 100, h)
    windows = np.lib.stride_tricks.sliding_window_view(table[..., 100:9399], 9000, axis=-1)
    np.testing.assert_allclose(out, windows @ h[0], rtol=1e-12)
    assert integration._runs(h[0]) == [(0, 41), (5000, 5030), (8999, 9000)]


def test_beside_a_needle_of_a_wide_score_chances_that_are_certain_are_not_computed(monkeypatch):
    looks, one = [], sink_chance.exceeded
    monkeypatch.setattr(sink_chance, "exceeded", lambda *x: looks.append(x) or one(*x))
    row = Row("exp", gamma=1.0, steps=(sparsity.Needle(3.0, 20.0),))
    found = sparsity.exact(row, length=16, of="needle_snr_above:1")
    assert float(found) == pytest.approx(0.5169902546801146, rel=1e-13)  # of all 641
    assert len(looks) < 80
