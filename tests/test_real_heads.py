"""The study of a real model: laws of heads, parts of scores, verdicts that follow the numbers."""

import dataclasses

import numpy as np
import pytest
import xarray
from scipy.special import ndtri

from experiments.real_heads import heads
from experiments.real_heads.constants import HeadRows, fit_kappa, log_law_held_back
from experiments.real_heads.heads import WHOLE, Fits
from experiments.real_heads.parts import head_figures, split_scores
from experiments.real_heads.rows import Fit, Law, Rows, judge
from sparsity import InputError, measure


def heads_of_known_kappa(texts=4, rows=60, seed=3):
    """Rows of the law's own kind, their spread κ times the one that is said."""
    from scipy.special import ndtr

    rng = np.random.default_rng(seed)
    kappa = np.array([[0.8, 1.0], [1.2, 1.4]])
    shape, n = (texts, 2, 2, rows), 200
    said = rng.uniform(0.4, 0.8, shape)  # wider rows hang on their largest logit, not on κ
    gamma = kappa[..., None] * said
    zeta = rng.uniform(2.2, 3.5, shape)
    s = ndtri(ndtr(zeta)[..., None] * rng.uniform(size=(*shape, n - 1)))
    a = np.exp(gamma[..., None] * np.concatenate([zeta[..., None], s], -1))
    S = a.sum(-1) / np.sqrt(n * (a * a).sum(-1))
    values = {"length_without_sink_key": np.full(shape, n), "gamma_without_sink_key": said}
    values |= {"top_logit_without_sink_key": gamma * zeta, "S_without_sink_key": S}
    axes = ("text", "layer", "head", "row")
    return kappa, xarray.Dataset({name: (axes, x) for name, x in values.items()})


def test_the_constant_of_a_head_is_found():
    kappa, data = heads_of_known_kappa()
    found = fit_kappa(HeadRows.of(data))
    assert np.all(np.abs(found - kappa) < 0.06)
    assert np.all(np.diff(found.ravel()) > 0.1)
    # Half of a text spoilt: a median does not move with it.
    spoilt = data.copy(deep=True)
    spoilt["S_without_sink_key"][0, :, :, :30] = 0.99
    assert np.all(np.abs(fit_kappa(HeadRows.of(spoilt)) - found) < 0.1)


def test_what_is_held_back_takes_no_part():
    _, data = heads_of_known_kappa()
    law, S = log_law_held_back(HeadRows.of(data)), data["S_without_sink_key"].values
    assert abs(np.median(np.log(S) - law)) < 0.01
    other = data.copy(deep=True)
    other["S_without_sink_key"][2] = 0.5
    changed = log_law_held_back(HeadRows.of(other))
    np.testing.assert_array_equal(changed[2], law[2])
    assert not np.allclose(changed[1], law[1])
    with pytest.raises(InputError, match="two or more"):
        log_law_held_back(HeadRows.of(data.isel(text=[0])))


@pytest.mark.thorough
def test_rows_of_a_measurement_are_without_their_sinks():
    rng = np.random.default_rng(5)
    q, k = rng.normal(size=(2, 2, 96, 16))
    added = np.where(np.isin(np.arange(96), (0, 3)), 7.0, 0.0) * np.ones((96, 1))
    data = measure(queries=2 * q, keys=k, mask=added).expand_dims("text")
    rows = HeadRows.of(data)
    s = np.delete(2 * (q @ k.swapaxes(1, 2))[1, 70, :71] / 4, (0, 3))
    i = (0, 0, 1, 70)
    assert rows.length[i] == 69
    assert rows.gamma[i] == pytest.approx(s.std(ddof=1), rel=1e-5)
    assert rows.top[i] == pytest.approx(s.max() - s.mean(), rel=1e-5)
    assert rows.S[i] == pytest.approx(np.exp(s).sum() / np.sqrt(69 * np.exp(2 * s).sum()), rel=1e-5)
    ratio = (np.log(rows.S) - rows.log_law())[..., 40:]
    assert abs(np.median(ratio)) < 0.02  # Gaussian logits follow it
    assert np.isnan((np.log(rows.S) - rows.log_law())[..., 0]).all()


def law(ratio, rank=0.97, within=0.9, off=0.1):
    return Law(ratio, rank, within, off)


def verdicts(claims):
    return {claim.key: claim.verdict for claim in claims}


def evidence(**changes):
    """A world in which every claim on heads holds."""
    good = law(1.0)
    names = (WHOLE, "far", "mid", "tail", "body", "clear", "content")
    near = dict(zip(names, (0.83, 0.96, 0.83, 0.85, 0.96, 1.01, 1.0), strict=True)) | {
        "shape": 0.84
    }
    frozen = (0.17, 0.72, 0.11)
    real = Fits(near, law(0.83, 0.6, 0.4), good, 0.5, 4.0, -0.92, 0.55, frozen, 0.68)
    alike = dict.fromkeys(names, 0.97)
    ideal = Fits(alike, law(0.97, 0.8, 0.7), good, 0.03, 3.0, -0.92, 0.0, frozen, 0.68)
    found = heads.Evidence(
        real, ideal, ideal._replace(ratios={WHOLE: 1.0}),
        ideal._replace(ratios={WHOLE: 1.0}), good, (1.01, 0.99), 0.67,
    )  # fmt: skip
    for name, value in changes.items():
        if name in near:
            value = real._replace(ratios=near | {name: value})
            name = "real"
        elif name in ("near", "zeta", "frozen", "gamma", "given"):
            name, value = "real", found.real._replace(**{name: value})
        found = dataclasses.replace(found, **{name: value})
    return found


def test_verdicts_on_heads_follow_the_numbers():
    assert [*verdicts(heads.judge(evidence())).values()] == ["confirmed"] * 6
    off = evidence().ideal._replace(ratios={WHOLE: 0.86}, given=law(1.02))
    flips = [
        ("largest-logit", "refuted", {"fitted": law(1.03, 0.97, 0.9)}),
        ("largest-logit", "refuted", {"fitted": law(1.0, 0.94, 0.9)}),
        ("largest-logit", "refuted", {"fitted": law(1.0, 0.97, 0.8)}),
        ("largest-logit", "refuted", {"ideal": off}),
        ("largest-logit", "refined", {"given": law(1.08, 0.97, 0.9)}),
        ("upper-tail", "refuted", {"body": 0.85}),
        ("upper-tail", "refuted", {"tail": 0.95}),
        ("upper-tail", "refuted", {WHOLE: 0.96}),
        ("upper-tail", "refined", {"zeta": 3.0}),
        ("recency", "refuted", {"near": 0.1}),
        ("recency", "refuted", {"far": 0.85}),
        ("recency", "refuted", {"mid": 0.95}),
        ("recency", "refined", {"far": 0.89}),
        ("content", "refuted", {"content": 0.93}),
        ("content", "refuted", {"shape": 0.99}),
        ("content", "refined", {"by_text": (1.1, 0.9)}),
        ("dependence", "refuted", {"dependent": off}),
        ("between-freezings", "refuted", {"gamma": 1.2}),
        ("between-freezings", "refuted", {"frozen": (0.4, 0.4, 0.2)}),
        ("between-freezings", "refined", {"frozen": (0.3, 0.6, 0.1)}),
    ]  # fmt: skip
    for key, verdict, changes in flips:
        assert verdicts(heads.judge(evidence(**changes)))[key] == verdict, (key, changes)


def world(scores_of, count=6, texts=3, length=256):
    """A dataset of planted heads, as `measure_heads` makes it of real ones."""
    rows, found = np.arange(136, 160, 4), []
    for head in range(count):
        s = scores_of(np.random.default_rng(head), (texts, length, length))
        split = split_scores(s.astype(np.float32), rows)
        first = s[:, rows, 0] - s[:, rows].mean(-1, where=split.seen)
        found.append(head_figures(split, first, 64, head))
    return xarray.Dataset(
        {
            name: (("text", "layer", "head", "row"), np.stack([x[name] for x in found], 1)[:, None])
            for name in found[0]
        },
        coords={"text": list("abc")},
    )


@pytest.mark.thorough
def test_planted_heads_are_judged_as_they_were_made():
    """Gaussian heads have nothing to explain; heads with a bonus for near tokens are recent."""
    distance = np.arange(256)[:, None] - np.arange(256)

    def gaussian(rng, shape):
        return rng.uniform(1, 2) * rng.normal(size=shape)

    def recent(rng, shape):
        return gaussian(rng, shape) + np.where(distance < 3, rng.uniform(4, 6), 0)

    def sink(rng, shape):  # a second one
        return gaussian(rng, shape) + np.where(np.arange(256) == 7, rng.uniform(6, 8), 0)

    found = [heads.Evidence.of(world(x)) for x in (gaussian, recent, sink)]
    plain, near, far = (verdicts(heads.judge(x)) for x in found)
    assert {plain[key] for key in ("upper-tail", "recency", "dependence")} == {"refuted"}
    assert plain["content"] == "refuted"  # the shape is as good
    assert plain["largest-logit"] == "confirmed"
    assert near["recency"] == near["upper-tail"] == "confirmed"
    assert near["content"] != "refuted"
    assert far["upper-tail"] == "confirmed"
    assert far["recency"] == "refuted"
    ratios = found[2].real.ratios
    assert ratios["clear"] > 0.9 > 0.8 > ratios["far"]


def rows_of(**changes):
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
        "all_sinks_rate_0.3": np.array([0.7, 0.7, 0.7]),
        "sink_rate_0.3": np.array([0.6, 0.5, 0.4]),
        "sink_rate_0.8": np.array([0.2, 0.1, 0.05]),
        "sink_mass": np.array([0.5, 0.4, 0.3]),
        "n_eff": 4 * ones,
        "n_eff_without_sinks": 9 * ones,
        "gamma_without_sinks": 0.5 * np.log(n),
    }
    near = Fit(law(3.0, 0.78, 0.1, 1.1), law(0.97, 0.8, 0.6, 0.2))
    fields = {
        "real": (near._replace(exact=law(0.95, 0.8, 0.58, 0.2)),) * 3,
        "ideal": (near,) * 3,
        "departs": 0.01,
    } | sinks_of()
    table |= {key: value for key, value in changes.items() if key in table}
    fields |= {key: value for key, value in changes.items() if key in fields}
    assert set(changes) <= table.keys() | fields.keys()
    return Rows(T=T, table=table, **fields)


def sinks_of(mass=(0.5, 0.4, 0.3), logit=(5.0, 5.3, 5.6), needed=(5.0, 6.0, 7.0)):
    """Sinks that need 5, 6 and 7 above the mean of the others to keep what they have."""
    columns = zip(("mass", "logit", "needed"), (mass, logit, needed), strict=True)
    return {"sink_heads": len(mass)} | {name: np.array(x) for name, x in columns}


def test_verdicts_follow_the_numbers():
    assert [*verdicts(judge(rows_of())).values()] == ["confirmed"] * 5

    def real(limit=3.0, **changes):
        fit = Fit(law(limit, 0.78, 0.1, 1.1), law(0.95, 0.8, 0.58, 0.2)._replace(**changes))
        return {"real": (fit,) * 3}

    flips = [
        ("real-rows-follow-the-exact-law", "refuted", real(off=0.6)),
        ("real-rows-follow-the-exact-law", "refuted", real(limit=0.97)),
        ("real-rows-follow-the-exact-law", "refined", real(ratio=0.8)),
        ("real-rows-follow-the-exact-law", "refined", real(within=0.5)),
        ("real-rows-follow-the-exact-law", "refined", real(rank=0.6)),
        ("real-rows-follow-the-exact-law", "refined", {"departs": 0.3}),
        ("first-token-is-a-sink", "refuted", {"sink_rate_0.3": 0.1 * np.ones(3)}),
        ("first-token-is-a-sink", "refined", {"any_rate_0.3": 0.8 * np.ones(3)}),
        ("dropping-the-sink", "refuted", {"n_eff_without_sinks": 4 * np.ones(3)}),
        ("spread-against-length", "refuted", {"gamma_without_sinks": np.ones(3)}),
        ("spread-against-length", "refuted",
         {"gamma_without_sinks": np.sqrt(np.log([48, 384, 9e4]))}),
    ]  # fmt: skip
    for key, verdict, changes in flips:
        assert verdicts(judge(rows_of(**changes)))[key] == verdict, (key, changes)


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
        found = verdicts(judge(rows_of(**sinks_of(mass, logit))))
        assert found["sinks-against-context"] == verdict, (mass, logit)
    for none in (sinks_of(kept, (5.0, 5.0, 5.0), (5.0, 5.0, 5.0)), sinks_of((), (), ())):
        assert verdicts(judge(rows_of(**none)))["sinks-against-context"] == "refuted"
