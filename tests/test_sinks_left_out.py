"""Rows without their sinks."""

import dataclasses

import numpy as np
import pytest

from sparsity import measure, metric
from sparsity.attention.measurement import sinks, tables
from sparsity.attention.measurement.layer_inputs import layer_of_queries, layer_of_weights
from sparsity.attention.measurement.layers import measure_layer


def layer(seed=0, heads=4, length=60, dim=8):
    rng = np.random.default_rng(seed)
    q, k = rng.normal(size=(2, heads, length, dim))
    return q * 1.5, k


def by_definition(x, drop):
    """A row of logits without some of its keys."""
    a, rest = np.exp(x), x[~drop]
    found = {"length_without_sinks": len(rest), "all_sinks_mass": a[drop].sum() / a.sum()}
    if len(rest):
        found |= {"n_eff_without_sinks": metric.n_eff(np.exp(rest))}
        found |= {"S_without_sinks": metric.S(np.exp(rest))}
        found |= {"top_logit_without_sinks": rest.max() - rest.mean()}
    if len(rest) > 1:
        found["gamma_without_sinks"] = rest.std(ddof=1)
    if len(rest) and drop.any():
        found["all_sinks_logit"] = np.log(a[drop].sum()) - rest.mean()
    return found


def without(source, drop, sink=0):
    return sinks.measure_without_sinks(source, drop, measure_layer(source, sink), sink)


@pytest.fixture(scope="module")
def defined():
    """Queries and keys, their logits, the keys that are dropped, and every row by definition."""
    q, k = layer()
    x = q @ k.swapaxes(1, 2) / np.sqrt(8)
    drop = np.zeros((4, 60), bool)
    drop[0, [0, 1]] = drop[1, [0, 7, 30]] = drop[2, 5] = True  # none in the last head
    rows = [
        [by_definition(x[head, t, : t + 1], drop[head, : t + 1]) for t in range(60)]
        for head in range(4)
    ]
    return q, k, x, drop, rows


def differs(got, rows):
    """The largest relative difference of any statistic of any row from its definition."""
    worst, count = 0.0, 0
    for head, own in enumerate(rows):
        for t, expected in enumerate(own):
            for name, value in expected.items():
                if name in got:
                    gap = abs(float(got[name][head, t]) - value)
                    worst, count = max(worst, gap / max(1, abs(value))), count + 1
            missing = got.keys() - {"length_without_sinks", "all_sinks_mass"}
            if not all(np.isnan(got[name][head, t]) for name in missing - expected.keys()):
                worst = np.inf
    return worst, count


# Of heads with that sink alone the rows are known.
@pytest.mark.parametrize("sink", [0, pytest.param(5, marks=pytest.mark.thorough)])
def test_rows_without_their_sinks_are_those_of_the_definition(defined, sink):
    q, k, x, drop, rows = defined
    source = layer_of_queries(q, k)
    worst, count = differs(without(source, drop, sink), rows)
    assert worst < 1e-6
    assert count > 4 * 60 * 4
    alone = drop & (np.arange(60) == 0)
    assert differs(without(source, alone, sink), rows)[0] > 0.1  # key 0 alone is not enough
    a = np.where(np.tri(60, dtype=bool), np.exp(x), 0)
    weights = without(layer_of_weights(a / a.sum(-1, keepdims=True)), drop, sink)
    worst, count = differs(weights, rows)
    assert worst < 1e-6
    assert count > 4 * 60 * 3


LEARNED = np.array([-2.0, 0.0, 3.0, 5.0])  # logits of learned sinks, one a head
AGO = np.arange(60)[:, None] - np.arange(60)
TEXTS = np.repeat([0, 1, 2, 0], [6, 30, 19, 5])  # padding, two texts, padding
SIGHTS = {
    "all keys before": ({}, AGO >= 0),
    "window": ({"mask": AGO < 20}, (AGO >= 0) & (AGO < 20)),
    "padding": ({"segments": TEXTS}, (AGO >= 0) & (TEXTS[:, None] == TEXTS) & (TEXTS > 0)),
}


def misses_of_all_sinks(defined, sight, alone):
    """The largest relative error of `all_sinks_mass` with a learned sink, and of how many rows.

    It is (Σ_sinks e^s + e^b)/(Σ e^s + e^b) over the keys in sight.
    """
    q, k, x, drop, _ = defined
    options, seen = SIGHTS[sight]
    drop = drop & (np.arange(60) == 0) if alone else drop  # key 0 is a sink, and the only one
    a, own = np.where(seen, np.exp(x), 0.0), np.exp(LEARNED)[:, None]
    true = ((a * drop[:, None]).sum(-1) + own) / (a.sum(-1) + own)
    source = layer_of_queries(q, k, sink_logits=LEARNED, **options)
    found, some = without(source, drop, None)["all_sinks_mass"], seen.any(-1)
    assert np.isnan(found[:, ~some]).all()
    return np.abs(found / true - 1)[:, some].max(), found[:, some].size


@pytest.mark.parametrize(
    ("sight", "alone"),
    [("padding", True), ("all keys before", True),
     pytest.param("window", False, marks=pytest.mark.thorough)],
)  # fmt: skip
def test_the_mass_of_sinks_with_a_learned_one_is_that_of_the_definition(defined, sight, alone):
    worst, count = misses_of_all_sinks(defined, sight, alone)
    assert worst < 1e-6
    assert count == 4 * (49 if sight == "padding" else 60)


@pytest.mark.parametrize(
    ("sight", "place"), [("all keys before", "rows measured again"), ("padding", "rows known")]
)
def test_one_percent_of_a_learned_sink_is_seen_in_the_mass_of_sinks(
    defined, sight, place, monkeypatch
):
    """Planted where heads with several sinks are measured again, and where no head has any."""
    again, reuse = sinks._measure_block, sinks.reuse_rows

    def more(layer, *rest):
        return again(dataclasses.replace(layer, learned_sinks=LEARNED[:3] + np.log(1.01)), *rest)

    def heavier(rows, *rest):
        return reuse(rows | {"learned_sink_mass": 1.01 * rows["learned_sink_mass"]}, *rest)

    plant = ("_measure_block", more) if place == "rows measured again" else ("reuse_rows", heavier)
    monkeypatch.setattr(sinks, *plant)
    assert misses_of_all_sinks(defined, sight, alone=False)[0] > 5e-3


def test_a_sink_above_the_range_of_numbers_leaves_the_rest_exact():
    q, k = layer(dim=7)
    k[:, 0] = 0
    q, k = (np.concatenate([x, np.zeros((4, 60, 1))], -1) for x in (q, k))
    q[..., -1], k[:, 0, -1] = 1, 5000
    drop = np.zeros((4, 60), bool)
    drop[:, 0] = True
    found = without(layer_of_queries(q, k), drop)
    assert np.all(found["all_sinks_mass"] == 1)
    expected = metric.n_eff(np.exp(q[0, 59] @ k[0, 1:].T / np.sqrt(8)))
    assert found["n_eff_without_sinks"][0, 59] == pytest.approx(expected, rel=1e-5)


def two_sinks(length=128):
    """Logits of heads in which keys 0 and 1 have a quarter each; in the last none has any."""
    rng = np.random.default_rng(3)
    s = rng.normal(size=(6, length, length))
    seen = np.tri(length, dtype=bool)
    others = np.where(seen, np.exp(s), 0)[..., 2:].sum(-1)
    s[:5, :, :2] = np.log(np.maximum(others[:5], 1e-9) / 2)[..., None]
    return np.broadcast_to(np.eye(length), s.shape), s.swapaxes(1, 2)


def test_a_shared_sink_is_one_sink():
    q, k = two_sinks()
    data = measure(queries=q, keys=k, scale=1.0)
    row = tables.summarise_context(data, 128)
    assert row["sink_rate_0.3"] == row["any_rate_0.3"] == row["late_rate_0.3"] == 0
    assert row["all_sinks_rate_0.3"] == pytest.approx(5 / 6)
    listed = sinks.list_sinks(data["key_importance"].values, [f"t{i}" for i in range(128)])
    assert [(x["position"], x["token"], x["heads"]) for x in listed] == [(1, "t0", 5), (2, "t1", 5)]
    late = data.isel(row=slice(64, None), head=slice(5))
    assert float(np.exp(late.residual_exact_without_sinks.median())) == pytest.approx(1, abs=0.05)
    assert (
        float(np.exp(late.residual_exact_without_sink_key.median())) < 0.6
    )  # one of the two is still there
    np.testing.assert_allclose(late.all_sinks_mass, 0.5, rtol=1e-5)
    np.testing.assert_allclose(late.length_without_sinks, late.length - 2)
    last = data.isel(head=5)
    np.testing.assert_allclose(last.n_eff_without_sinks, last.n_eff, rtol=1e-5)
    assert np.isnan(last.all_sinks_logit).all()


def test_uniform_attention_has_no_sinks():
    found = measure(np.tri(45) / np.arange(1, 46)[:, None] * np.ones((2, 1, 1)))
    assert not sinks.find_sinks(found["key_importance"].values).any()
    assert sinks.find_sinks(found["key_importance"].values, 0.09).any()
    assert sinks.find_sinks(np.array([0.25, 0.26, np.nan]), 0.25).tolist() == [False, True, False]
