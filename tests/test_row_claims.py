"""Claims on the rows of a real model: verdicts follow the numbers, and numbers the rows."""

import dataclasses
import functools

import numpy as np
import pytest
import xarray

from experiments import row_claims
from experiments.row_evidence import Evidence, LawFit, ModelRun, Sinks
from sparsity import Row, SinkLogit, exact, measure
from sparsity.attention.measurement import SHAPE


def whole_run(one):
    """What `measure` found as if it had come from a model."""
    data = xarray.concat([one, one], "bos").expand_dims(text=["a"]).assign_coords(bos=[0, 1])
    data["loss"] = (("text", "bos"), np.ones((1, 2)))
    tokens = one.sizes["row"]
    return data.assign_attrs(one.attrs, model="m", model_sha256="0", tokens=tokens)


def evidence(**changes):
    """What a model that confirms every claim would show, with some of it changed."""
    T = np.array([64, 128, 256])
    n = 0.75 * T
    ones = np.ones(3)
    table = {
        "T": T,
        "ratio_limit_without_sinks": 3 * ones,
        "ratio_exact_without_sinks": 0.95 * ones,
        "rank_limit_without_sinks": 0.9 * ones,
        "rank_exact_without_sinks": 0.91 * ones,
        "any_rate_0.3": np.array([0.6, 0.5, 0.4]),
        "late_rate_0.3": np.array([0.5, 0.5, 0.5]),
        "sinks_rate_0.3": np.array([0.7, 0.7, 0.7]),
        "sink_rate_0.3": np.array([0.6, 0.5, 0.4]),
        "sink_rate_0.8": np.array([0.2, 0.1, 0.05]),
        "sink_mass": np.array([0.5, 0.4, 0.3]),
        "n_eff": 4 * ones,
        "n_eff_without_sinks": 9 * ones,
        "gamma_without_sinks": 0.5 * np.log(n),
    }
    fit = LawFit(0.97, 0.6, 1.1, 0.2, 0.78, 0.8)
    fields = {
        "real": (dataclasses.replace(fit, ratio=0.95, within=0.58),) * 3,
        "ideal": (fit,) * 3,
        "sinks": sinks_of(),
        "departs": 0.01,
        "identity": 1e-6,
    }
    table |= {key: value for key, value in changes.items() if key in table}
    fields |= {key: value for key, value in changes.items() if key in fields}
    assert set(changes) <= table.keys() | fields.keys()
    runs = (ModelRun(bos=bos, T=T, n=n, table=table, **fields) for bos in (False, True))
    return Evidence(tuple(runs))


def sinks_of(mass=(0.5, 0.4, 0.3), logit=(5.0, 5.3, 5.6)):
    """Sinks that need 5, 6 and 7 above the mean of the others to keep what they have."""
    return Sinks(9, np.array(mass), np.array(logit), np.array([5.0, 6.0, 7.0]))


def verdicts(found):
    return {claim.key: claim.record(found)["verdict"] for claim in row_claims.CLAIMS}


def test_verdicts_follow_the_numbers():
    good = verdicts(evidence())
    assert set(good.values()) == {"confirmed"}
    fit = LawFit(0.95, 0.58, 1.1, 0.2, 0.78, 0.8)

    def real(**changes):
        return {"real": (dataclasses.replace(fit, **changes),) * 3}

    flips = [
        ("real-rows-follow-the-exact-law", "refuted", real(off_exact=0.6)),
        (
            "real-rows-follow-the-exact-law",
            "refuted",
            {"ratio_limit_without_sinks": 0.97 * np.ones(3)},
        ),
        ("real-rows-follow-the-exact-law", "refined", real(ratio=0.8)),
        ("real-rows-follow-the-exact-law", "refined", real(within=0.5)),
        ("real-rows-follow-the-exact-law", "refined", real(rank_exact=0.6)),
        ("real-rows-follow-the-exact-law", "refined", {"departs": 0.3}),
        ("first-token-is-a-sink", "refuted", {"sink_rate_0.3": 0.1 * np.ones(3)}),
        ("first-token-is-a-sink", "refined", {"any_rate_0.3": 0.8 * np.ones(3)}),
        ("dropping-the-sink", "refuted", {"n_eff_without_sinks": 4 * np.ones(3)}),
        ("spread-against-length", "refuted", {"gamma_without_sinks": np.ones(3)}),
        (
            "spread-against-length",
            "refuted",
            {"gamma_without_sinks": np.sqrt(np.log([48, 384, 9e4]))},
        ),
    ]  # fmt: skip
    for key, verdict, changes in flips:
        assert verdicts(evidence(**changes))[key] == verdict, (key, changes)


def test_the_verdict_on_sinks_is_that_of_its_statement():
    """Mass goes with the logit above the one that would keep it, whichever way both go."""
    kept, falling = (0.5, 0.5, 0.5), (0.5, 0.3, 0.2)
    cases = [
        ("confirmed", falling, (5.0, 5.0, 5.0)),  # a fixed logit loses
        ("confirmed", kept, (5.0, 6.0, 7.0)),  # one that rises as needed keeps
        ("confirmed", (0.5, 0.6, 0.7), (5.0, 7.0, 9.0)),
        ("refuted", kept, (5.0, 5.001, 5.002)),  # a fixed one keeps
        ("refuted", (0.5, 0.6, 0.7), (5.0, 5.3, 5.6)),
        ("refuted", falling, (5.0, 7.0, 9.0)),
    ]
    for verdict, mass, logit in cases:
        found = verdicts(evidence(sinks=sinks_of(mass, logit)))
        assert found["sinks-against-context"] == verdict, (mass, logit)
    flat = dataclasses.replace(sinks_of(kept, (5.0, 5.0, 5.0)), needed=np.full(3, 5.0))
    assert verdicts(evidence(sinks=flat))["sinks-against-context"] == "refuted"
    none = Sinks(0, *np.empty((3, 0)))
    assert verdicts(evidence(sinks=none))["sinks-against-context"] == "refuted"
    assert len(cases) == 6


@functools.cache
def gaussian_heads(tail=False, length=256):
    """A layer of logits drawn one by one, of a spread that differs from row to row."""
    rng = np.random.default_rng(11)
    gamma = rng.uniform(0.5, 4, size=(8, length, 1))
    draws = rng.normal(size=(8, length, length))
    if tail:  # of the same variance, with heavy tails
        draws = rng.standard_t(3, size=draws.shape) / np.sqrt(3)
    s = gamma * draws
    s[..., 0] += 6
    return whole_run(
        measure(
            queries=np.broadcast_to(np.eye(length), s.shape),
            keys=s.swapaxes(1, 2),
            scale=1.0,
            of=SHAPE,
        )
    )


@pytest.mark.thorough
def test_gaussian_rows_confirm_the_exact_law_and_others_do_not():
    record = row_claims.judge(gaussian_heads())[0]
    assert record["verdict"] == "confirmed", record["explanation"]
    heavy = row_claims.judge(gaussian_heads(tail=True))[0]
    assert heavy["verdict"] != "confirmed"
    assert "scatter" in heavy["explanation"]
    one = row_claims.judge(gaussian_heads())[0]
    assert one == record


@pytest.mark.thorough
def test_the_needed_logit_keeps_the_mass():
    """Beside Gaussian others a fixed logit loses what the exact law says."""
    run = Evidence.of(gaussian_heads()).runs[0]
    assert run.sinks.heads == 8
    assert np.all(run.sinks.change[1:] < -0.3)
    np.testing.assert_allclose(run.sinks.change, run.sinks.short, atol=0.3)
    n, gamma = 191, 2.25
    row = Row("exp", gamma=gamma, steps=(SinkLogit(run.sinks.needed[-1]),))
    mass = exact(row, length=n, of="sink_mass").value
    assert float(mass) == pytest.approx(run.sinks.mass[0], abs=0.03)


@pytest.mark.thorough
def test_evidence_is_that_of_the_data():
    q, k = np.random.default_rng(0).normal(size=(2, 6, 128, 16)) * 1.7
    one = measure(queries=q, keys=k, of=SHAPE)
    data = xarray.concat([one, one], "bos").expand_dims(text=["a"]).assign_coords(bos=[0, 1])
    found = Evidence.of(data)
    assert [run.bos for run in found.runs] == [False, True]
    run = found.runs[0]
    assert run.identity < 1e-5
    rows = one.sel(row=slice(65, 128))
    off = float(abs(rows.residual_exact_without_sinks).median())
    assert run.real[-1].off_exact == pytest.approx(off, rel=1e-5)
    assert run.real[-1].rank_exact == pytest.approx(
        run.table["rank_exact_without_sinks"][-1], abs=1e-6
    )
    assert 0.5 < run.ideal[-1].within < 0.9
    assert run.departs == float((one.departs > 0.5).mean())
    records = row_claims.judge(data)
    assert [record["key"] for record in records] == [claim.key for claim in row_claims.CLAIMS]
