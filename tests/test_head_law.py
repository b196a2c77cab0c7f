"""The law given the largest logit: its formula, its constants of heads, parts of scores, claims."""

import dataclasses

import mpmath
import numpy as np
import pytest
import xarray
from scipy.special import ndtri

from experiments import head_parts
from experiments.head_claims import HEAD_CLAIMS, judge_heads
from experiments.head_constants import HeadRows, fit_kappa, log_law_held_back
from experiments.head_evidence import Fits, HeadEvidence
from experiments.head_parts import (
    MEANING,
    head_figures,
    split_scores,
    sum_by_distance,
    view_by_distance,
)
from experiments.row_evidence import Law
from sparsity import InputError, measure
from sparsity.attention.measurement.row_laws import head_law, log_head_law

LENGTHS = (2, 3, 64, 512, 10**6, 10**12)
SPREADS = (1e-8, 1e-3, 0.1, 1.0, 2.0, 5.0, 30.0, 200.0, 1e4)
ZETAS = (-30.0, -1.0, 0.0, 0.05, 1.0, 3.0, 6.0, 30.0, 37.0, 50.0)


def in_digits(n, gamma, top):
    """The definition, Φ and all, to 60 digits."""
    gamma, top = mpmath.mpf(gamma), mpmath.mpf(top)

    def cdf(x):
        return mpmath.erfc(-x / mpmath.sqrt(2)) / 2

    zeta, sums = top / gamma, []
    for k in (1, 2):
        below = cdf(zeta - k * gamma) / cdf(zeta)
        sums.append(mpmath.exp(k * top) + (n - 1) * mpmath.exp((k * gamma) ** 2 / 2) * below)
    return mpmath.log(sums[0]) - mpmath.log(sums[1]) / 2 - mpmath.log(n) / 2


def test_the_law_is_its_definition():
    worst, cells = 0.0, 0
    with mpmath.workdps(60):
        for n in LENGTHS:
            for gamma in SPREADS:
                for zeta in ZETAS:
                    top = gamma * zeta
                    if gamma * abs(zeta) > 2e3:  # beyond, even 60 digits are too few
                        continue
                    expected = in_digits(n, gamma, top)
                    off = abs(log_head_law(n, gamma, top) - expected) / max(1, abs(expected))
                    worst, cells = max(worst, float(off)), cells + 1
    assert worst < 1e-14
    assert cells > 400


def test_ends_of_the_domain():
    n = 512
    one_hot = n**-0.5
    cases = [
        ((0, 0), 1.0),  # all are alike
        ((0, 1), (np.e + n - 1) / np.sqrt(n * (np.e**2 + n - 1))),  # all others at their mean
        ((0, -1), 1.0),  # a largest below the mean: all of them there
        ((1, -np.inf), 1.0),
        ((1, np.inf), one_hot),
        ((np.inf, 1), one_hot),
        ((np.inf, np.inf), one_hot),
        ((1, 1e6), one_hot),
        ((1e-300, 1e-300), 1.0),
        ((1e300, 1e300), one_hot),
    ]
    for (gamma, top), S in cases:
        assert head_law(n, gamma, top) == pytest.approx(S, rel=1e-12), (gamma, top)
    assert head_law(1, 2.0, 0.0) == 1.0
    assert np.isnan(head_law([512, 512, 0, 512], [np.nan, 1, 1, -1], [1, np.nan, 1, 1])).all()
    # γ → 0 is reached without a step.
    np.testing.assert_allclose(head_law(n, 1e-9, [0.5, -0.5]), head_law(n, 0, [0.5, -0.5]), 1e-6)
    # Beyond all bounds it stays between one-hot and uniform.
    gamma, top = (x.ravel() for x in np.meshgrid(np.logspace(-9, 9, 61), np.linspace(-90, 90, 61)))
    S = head_law(7, gamma, top)
    assert np.all((S >= 7**-0.5) & (S <= 1))


def test_long_rows():
    """The limit law at a spread that does not grow, and frozen rows beyond ζ."""
    n = np.array([1e6, 1e9, 1e12])
    typical = -ndtri(1 / n)
    np.testing.assert_allclose(head_law(n, 1.0, typical)[-1], np.exp(-0.5), rtol=1e-4)
    zeta = typical[-1]
    for gamma in (300 * zeta, 3000 * zeta):
        n_eff = 1e12 * head_law(1e12, gamma, gamma * zeta) ** 2
        assert n_eff == pytest.approx(gamma * (gamma - zeta / 2) / (gamma - zeta) ** 2, rel=1e-3)


def sampled(n, gamma, zeta, rows, seed=0):
    """Σe^s and Σe^(2s) over e^(s_max): one at the largest, the others Gaussian below it."""
    from scipy.special import ndtr

    rng = np.random.default_rng(seed)
    s = gamma * (ndtri(ndtr(zeta) * rng.uniform(size=(rows, n - 1))) - zeta)
    a = np.exp(np.concatenate([np.zeros((rows, 1)), s], axis=1))
    return a.sum(1), (a * a).sum(1)


def without_truncation(n, gamma, top):
    m = [1 + (n - 1) * np.exp((k * gamma) ** 2 / 2 - k * top) for k in (1, 2)]
    return m[0] / np.sqrt(n * m[1])


def half_the_second(n, gamma, top):  # e^(γ²) in place of e^(2γ²)
    one = np.sqrt(n) * head_law(n, gamma, top)
    return one / np.sqrt(n) * np.exp(gamma**2 / 50)


@pytest.mark.parametrize("cell", [(64, 1.0, 2.4), (300, 2.0, 3.0), (300, 0.7, 1.0), (20, 3.0, 2.0)])
def test_sampled_rows_follow_the_law_and_wrong_formulas_do_not(cell):
    n, gamma, zeta = cell
    one, two = sampled(*cell, rows=20_000)
    S = one.mean() / np.sqrt(n * two.mean())
    # log S = log E₁ − ½ log E₂: its error by the delta method.
    error = np.std(one / one.mean() - two / two.mean() / 2) / np.sqrt(len(one))

    def z(law):
        return abs(np.log(S) - np.log(law(n, gamma, gamma * zeta))) / error

    assert z(head_law) < 4
    assert z(without_truncation) > 8
    assert z(half_the_second) > 8


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
    values = {
        "length": np.full(shape, n + 1),
        "sink_logit": np.zeros(shape),
        "gamma_without_sink_key": said,
    }
    values |= {"top_logit_without_sink_key": gamma * zeta, "S_without_sink_key": S}
    axes = ("text", "layer", "head", "row")
    return kappa, xarray.Dataset({name: (axes, x) for name, x in values.items()})


def test_the_constant_of_a_head_is_found():
    kappa, data = heads_of_known_kappa()
    found = fit_kappa(data)
    assert (found.texts, found.resamples, found.seed) == (4, 30, 0)
    assert np.all(found.rows == 240)
    assert np.all((found.stderr > 1e-4) & (found.stderr < 0.05))
    # The median of S lies a little above its mean: a bias of a hundredth.
    assert np.all(np.abs(found.kappa - kappa) < 5 * found.stderr + 0.015)
    assert np.all(np.diff(found.kappa.ravel()) > 0.1)
    again = fit_kappa(data)
    np.testing.assert_array_equal(found.stderr, again.stderr)
    # Half of a text spoilt: a median does not move with it.
    spoilt = data.copy(deep=True)
    spoilt["S_without_sink_key"][0, :, :, :30] = 0.99
    assert np.all(np.abs(fit_kappa(spoilt).kappa - found.kappa) < 0.1)


def test_what_is_held_back_takes_no_part():
    _, data = heads_of_known_kappa()
    law, S = log_law_held_back(data), data["S_without_sink_key"].values
    assert abs(np.median(np.log(S) - law)) < 0.01
    other = data.copy(deep=True)
    other["S_without_sink_key"][2] = 0.5
    changed = log_law_held_back(other)
    np.testing.assert_array_equal(changed[2], law[2])
    assert not np.allclose(changed[1], law[1])
    gone = data.copy(deep=True)
    gone["S_without_sink_key"][1, 0, 0] = np.nan
    assert np.isnan(log_law_held_back(gone)[1, 0, 0]).all()
    assert np.isfinite(fit_kappa(gone).kappa).all()
    assert np.isnan(fit_kappa(data.isel(text=0)).stderr).all()


def test_refusals():
    _, data = heads_of_known_kappa()
    with pytest.raises(InputError, match="two or more"):
        log_law_held_back(data.isel(text=[0]))
    with pytest.raises(InputError, match="measure queries and keys"):
        fit_kappa(data.drop_vars("top_logit_without_sink_key"))
    with pytest.raises(InputError, match="bos=0"):
        fit_kappa(data.expand_dims(bos=2))
    with pytest.raises(InputError, match="resamples"):
        fit_kappa(data, resamples=1)


def test_windows_of_a_text_stay_together():
    """One text cut in two is one text: never fitted on for its own other window."""
    _, data = heads_of_known_kappa()
    data["S_without_sink_key"][1] *= 0.9  # its heads are others
    data["text"] = ["a@0", "a@64", "b@0", "c@0"]
    cut = data.assign_attrs(stride=64)
    order = [0, 2, 3, 1]
    moved = log_law_held_back(cut.isel(text=order))
    np.testing.assert_array_equal(moved, log_law_held_back(cut)[order])
    alone = log_law_held_back(data.isel(text=[0, 2, 3]).assign_attrs(stride=64))
    np.testing.assert_array_equal(log_law_held_back(cut)[0], alone[0])
    assert not np.allclose(log_law_held_back(data)[0], alone[0])  # windows taken for texts
    found, apart = fit_kappa(cut), fit_kappa(data)
    assert (found.texts, apart.texts) == (3, 4)
    np.testing.assert_array_equal(found.kappa, apart.kappa)
    assert not np.allclose(found.stderr, apart.stderr)
    with pytest.raises(InputError, match="two or more"):
        log_law_held_back(cut.isel(text=[0, 1]))


def test_rows_of_a_measurement_are_without_their_sinks():
    rng = np.random.default_rng(5)
    q, k = rng.normal(size=(2, 2, 96, 16))
    added = np.where(np.isin(np.arange(96), (0, 3)), 7.0, 0.0) * np.ones((96, 1))
    data = measure(queries=2 * q, keys=k, mask=added)
    rows = HeadRows.of(data)
    s = np.delete(2 * (q @ k.swapaxes(1, 2))[1, 70, :71] / 4, (0, 3))
    i = (0, 0, 1, 70)
    assert rows.length[i] == 69
    assert rows.gamma[i] == pytest.approx(s.std(ddof=1), rel=1e-5)
    assert rows.top[i] == pytest.approx(s.max() - s.mean(), rel=1e-5)
    assert rows.S[i] == pytest.approx(np.exp(s).sum() / np.sqrt(69 * np.exp(2 * s).sum()), rel=1e-5)
    ratio = rows.log_ratio()[..., 40:]
    assert abs(np.median(ratio)) < 0.02  # Gaussian logits follow it
    assert np.isnan(rows.log_ratio()[..., 0]).all()
    first = HeadRows.of(data.drop_vars("length_without_sinks"))  # the first key alone left out
    assert first.length[i] == 70
    assert abs(np.median(first.log_ratio()[..., 40:])) > 0.03


def test_sums_by_distance():
    rng = np.random.default_rng(0)
    x = np.tril(rng.normal(size=(2, 9, 9)))
    expected = [[np.diagonal(one, -d).sum() for d in range(9)] for one in x]
    np.testing.assert_allclose(sum_by_distance(x), expected, atol=1e-12)
    profile = rng.normal(size=(2, 9))
    view = view_by_distance(profile)
    for i in range(9):
        for j in range(9):
            expected = profile[:, i - j] if j <= i else 0
            np.testing.assert_array_equal(view[:, i, j], expected)


def planted(texts=4, length=256, seed=1):
    """Scores with a known profile and key bias, and Gaussian content of spread 1.5."""
    rng = np.random.default_rng(seed)
    distance = np.maximum(np.arange(length)[:, None] - np.arange(length), 0)
    profile = 4 * np.exp(-distance / 6.0)
    bias = 1.2 * rng.normal(size=(texts, 1, length))
    content = 1.5 * rng.normal(size=(texts, length, length))
    own = rng.normal(size=(texts, length, 1))  # of the row: nothing to see of it
    return profile + bias + content + own, content


def test_the_parts_of_planted_scores_are_found():
    scores, content = planted()
    rows = np.arange(136, 176, 8)
    parts = split_scores(scores, rows)
    for part in (parts.scores, parts.profile, parts.bias, parts.content):
        assert np.abs(part.sum(-1)).max() < 1e-9
        assert np.all(part[:, ~parts.seen] == 0)
    gamma = head_parts.row_gamma(parts.content, parts.seen)
    assert gamma.mean() == pytest.approx(1.5, rel=0.03)
    true = content[:, rows]
    known = np.broadcast_to(parts.seen, true.shape)
    assert np.corrcoef(parts.content[known], true[known])[0, 1] > 0.98
    near = parts.profile[:, parts.distance == 0] - parts.profile[:, parts.distance == 60]
    assert near.mean() == pytest.approx(4, abs=0.3)
    # Neither part has seen the rows that it is taken from.
    one = scores.copy()
    one[0, 136] += 10 * np.random.default_rng(2).normal(size=256)
    moved = split_scores(one, rows)
    np.testing.assert_allclose(moved.profile[0], parts.profile[0], atol=1e-12)
    np.testing.assert_allclose(moved.bias[0, 0], parts.bias[0, 0], atol=1e-12)
    assert np.abs(moved.profile[1] - parts.profile[1]).max() > 1e-3


def test_figures_are_their_definitions():
    rng = np.random.default_rng(0)
    length = 80
    seen = np.tri(length, dtype=bool)[[60, 79]]
    seen[:, 0] = False
    distance = np.array([[60], [79]]) - np.arange(length)
    x = rng.normal(size=(3, 2, length))
    c = np.where(seen, x, 0)
    c = np.where(seen, c - (c.sum(-1) / seen.sum(-1))[..., None], 0)
    found = head_parts.row_figures(c, seen, distance, np.random.default_rng(1))
    assert set(found) == set(head_parts.ROW_MEANING)

    def S(s):
        return np.exp(s).sum() / np.sqrt(len(s) * np.exp(2 * s).sum())

    for head in range(3):
        for i, last in enumerate((60, 79)):
            s = c[head, i, 1 : last + 1]
            at = head, i
            assert found["S_without_sink_key"][at] == pytest.approx(S(s))
            assert found["gamma_without_sink_key"][at] == pytest.approx(s.std(ddof=1))
            assert found["nearest"][at] == len(s) - 1 - s.argmax()
            assert found["lag"][at] == pytest.approx((s[1:] * s[:-1]).sum() / (s * s).sum())
            assert found["S_far"][at] == pytest.approx(S(s[:-4]))
            assert found["gamma_far"][at] == pytest.approx(s[:-4].std(ddof=1))
            mid = np.delete(s, np.arange(len(s) // 2, len(s) // 2 + 4))
            assert found["S_mid"][at] == pytest.approx(S(mid))
            # A tail exchanged: of one the largest twentieth, of the other the rest.
            assert found["S_tail"][at] != found["S_without_sink_key"][at] != found["S_body"][at]


def evidence(**changes):
    """A world in which every claim on heads holds."""
    good = Law(1.0, 0.97, 0.9)
    names = ("without sink key", "far", "mid", "tail", "body", "clear", "content")
    near = dict(zip(names, (0.83, 0.96, 0.83, 0.85, 0.96, 1.01, 1.0), strict=True)) | {
        "shape": 0.84
    }
    frozen = (0.17, 0.72, 0.11)
    real = Fits(near, Law(0.83, 0.6, 0.4), good, 0.5, 4.0, -0.92, 0.55, frozen, 0.68)
    alike = dict.fromkeys(names, 0.97)
    ideal = Fits(alike, Law(0.97, 0.8, 0.7), good, 0.03, 3.0, -0.92, 0.0, frozen, 0.68)
    found = HeadEvidence(
        9000, ("a", "b"), real, ideal, dataclasses.replace(ideal, ratios={"without sink key": 1.0}),
        dataclasses.replace(ideal, ratios={"without sink key": 1.0}), good, (1.01, 0.99), 0.67,
    )  # fmt: skip
    for name, value in changes.items():
        if name in near:
            value = dataclasses.replace(real, ratios=near | {name: value})
            name = "real"
        elif name in ("near", "zeta", "frozen", "gamma", "given"):
            name, value = "real", dataclasses.replace(found.real, **{name: value})
        found = dataclasses.replace(found, **{name: value})
    return found


def verdicts(found):
    return {claim.key: claim.record(found)["verdict"] for claim in HEAD_CLAIMS}


def test_verdicts_on_heads_follow_the_numbers():
    assert set(verdicts(evidence()).values()) == {"confirmed"}
    assert len(HEAD_CLAIMS) == 6
    off = dataclasses.replace(
        evidence().ideal, ratios={"without sink key": 0.86}, given=Law(1.02, 0.97, 0.9)
    )
    flips = [
        ("largest-logit", "refuted", {"fitted": Law(1.03, 0.97, 0.9)}),
        ("largest-logit", "refuted", {"fitted": Law(1.0, 0.94, 0.9)}),
        ("largest-logit", "refuted", {"fitted": Law(1.0, 0.97, 0.8)}),
        ("largest-logit", "refuted", {"ideal": off}),
        ("largest-logit", "refined", {"given": Law(1.08, 0.97, 0.9)}),
        ("upper-tail", "refuted", {"body": 0.85}),
        ("upper-tail", "refuted", {"tail": 0.95}),
        ("upper-tail", "refuted", {"without sink key": 0.96}),
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
        assert verdicts(evidence(**changes))[key] == verdict, (key, changes)


def world(scores_of, heads=6, texts=3, length=256):
    """A dataset of planted heads, as `measure_heads` makes it of real ones."""
    rows, found = np.arange(136, 160, 4), []
    for head in range(heads):
        s = scores_of(np.random.default_rng(head), (texts, length, length))
        parts = split_scores(s.astype(np.float32), rows)
        first = s[:, rows, 0] - s[:, rows].mean(-1, where=parts.seen)
        found.append(head_figures(parts, first, 64, head))
    return xarray.Dataset(
        {
            name: (("text", "layer", "head", "row"), np.stack([x[name] for x in found], 1)[:, None])
            for name in MEANING
        },
        coords={"text": list("abc")},
    )


def test_planted_heads_are_judged_as_they_were_made():
    """Gaussian heads have nothing to explain; heads with a bonus for near tokens are recent."""
    distance = np.arange(256)[:, None] - np.arange(256)

    def gaussian(rng, shape):
        return rng.uniform(1, 2) * rng.normal(size=shape)

    def recent(rng, shape):
        return gaussian(rng, shape) + np.where(distance < 3, rng.uniform(4, 6), 0)

    def sink(rng, shape):  # a second one
        return gaussian(rng, shape) + np.where(np.arange(256) == 7, rng.uniform(6, 8), 0)

    plain, near, far = (
        {r["key"]: r for r in judge_heads(world(x))} for x in (gaussian, recent, sink)
    )
    assert {plain[key]["verdict"] for key in ("upper-tail", "recency", "dependence")} == {"refuted"}
    assert plain["content"]["verdict"] == "refuted"  # the shape is as good
    assert plain["largest-logit"]["verdict"] == "confirmed"
    assert near["recency"]["verdict"] == near["upper-tail"]["verdict"] == "confirmed"
    assert near["content"]["verdict"] != "refuted"
    assert far["upper-tail"]["verdict"] == "confirmed"
    assert far["recency"]["verdict"] == "refuted"
    clear = far["recency"]["evidence"]["numbers"]["S over the exact law"][0]
    assert clear["clear"] > 0.9 > 0.8 > clear["far"]
