"""P(the sinks of one row take more than a share): against integrals and sampled rows."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

import sparsity
from sparsity import Alibi, InputError, QKNorm, Row, Sink, SinkLogit, Window, quantities
from sparsity.exact_law import sink_chance
from sparsity.sampling import Sampling, sample_rows


def chance(row, length, share=0.5):
    return sparsity.exact(row, length=length, of=f"sink_mass_above:{share:g}")


def softmax(gamma, *steps):
    return Row("exp", gamma=gamma, steps=steps)


def one_token(gamma, logit, share):
    """P(e^s < e^b (1 − ε)/ε)."""
    return ndtr((logit + math.log((1 - share) / share)) / gamma)


PLACES = [(g, b, e) for g in (0.01, 1.0, 10.0) for b, e in ((0, 0.5), (1.5, 0.3), (-3, 0.7))]


@pytest.mark.parametrize(("gamma", "logit", "share"), PLACES)
def test_one_token(gamma, logit, share):
    true = one_token(gamma, logit, share)
    if true < 1e-250:
        with pytest.raises(InputError, match="too small to be resolved"):
            chance(softmax(gamma, SinkLogit(logit)), 1, share)
        return
    found = chance(softmax(gamma, SinkLogit(logit)), 1, share)
    assert abs(found.value / true - 1) <= found.error_bound
    assert found.error_bound < (1e-10 if gamma <= 4 else 1e-5)


@pytest.mark.parametrize(("gamma", "logit", "share"), [p for p in PLACES[3:] if p[2] < 0.6])
def test_two_tokens(gamma, logit, share):
    c = math.exp(logit) * (1 - share) / share

    def weighed(x):
        rest = c - math.exp(gamma * x)
        density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        return density * ndtr(math.log(rest) / gamma) if rest > 0 else 0.0

    top = min(math.log(c) / gamma, 12.0)
    true, off = quad(weighed, -12, top, epsabs=1e-15, epsrel=1e-11, limit=400)
    found = chance(softmax(gamma, SinkLogit(logit)), 2, share)
    assert abs(found.value - true) <= found.error_bound * true + off
    assert found.error_bound < (1e-9 if gamma <= 4 else 1e-4)


def test_far_tails_keep_their_digits():
    """P(e^(γε) < c) of one token six and twelve standard deviations out."""
    for gamma in (0.3, 2.0, 5.0):
        for z in (-6.0, -12.0):
            group = sink_chance.Others(*(np.array([x]) for x in (0.0, gamma, 1.0)))
            value, error = sink_chance.below(group, gamma * z)
            assert abs(value / ndtr(z) - 1) <= error / value <= 1e-8


ROWS = (
    (softmax(1.0, SinkLogit(3.0)), 32, 0.3),
    (softmax(3.0, SinkLogit(8.0)), 64, 0.5),
    (softmax(1.0, Sink(3.0, 0.7)), 32, 0.3),
    (softmax(1.0, Alibi(0.2), SinkLogit(1.0), Sink(2.0)), 32, 0.6),
    (softmax(1.0, Window(8), SinkLogit(1.0)), 32, 0.2),
)


@pytest.mark.parametrize(("row", "length", "share"), ROWS, ids=lambda x: str(x)[:70])
def test_sampled_rows(row, length, share):
    found = chance(row, length, share)
    drawn = sample_rows(
        row, length, Sampling(4e-3, seed=5, dtype=np.float32), f"sink_mass_above:{share:g}"
    )
    assert 0.05 < found.value < 0.95
    assert abs(drawn.value - found.value) < 4.5 * drawn.stderr
    assert found.error_bound < 1e-6


@pytest.mark.parametrize(("row", "length", "share"), ROWS, ids=lambda x: str(x)[:70])
def test_a_finer_rule_agrees(row, length, share, monkeypatch):
    found = chance(row, length, share)
    monkeypatch.setattr(sink_chance, "_STEP", 0.011)
    monkeypatch.setattr(sink_chance, "_POINTS", 333)
    monkeypatch.setattr(sink_chance, "_SINK_STEP", 0.11)
    fine = chance(row, length, share)
    assert abs(fine.value / found.value - 1) <= found.error_bound


def test_planted_errors_are_rejected(monkeypatch):
    """ε/(1 − ε) for (1 − ε)/ε, a chance of the complement, and φ^(n−1) for φ^n."""
    row, length, name = *ROWS[0][:2], "sink_mass_above:0.3"
    drawn = sample_rows(row, length, Sampling(4e-3, seed=5, dtype=np.float32), name)
    right = quantities.named(name)
    fewer = sink_chance.split_others_from_sinks

    def agrees(value):
        return abs(drawn.value - float(value)) < 4.5 * drawn.stderr

    assert agrees(chance(row, length, 0.3).value)
    wrong = [
        sparsity.exact(
            row, length=length, of=replace(right, above=replace(right.above, odds=7 / 3))
        ).value
    ]
    wrong.append(1 - chance(row, length, 0.3).value)

    def short(row, n, of):
        others, *rest = fewer(row, n, of)
        return others._replace(count=others.count - 1), *rest

    monkeypatch.setattr(sink_chance, "split_others_from_sinks", short)
    wrong.append(chance(row, length, 0.3).value)
    assert [agrees(value) for value in wrong] == [False] * 3


@pytest.mark.parametrize(
    ("row", "length", "says"),
    [
        (softmax(1.0), 8, "no sink"),
        (Row("relu2", beta=0.0, gamma=1.0, steps=(SinkLogit(),)), 8, "known for exp"),
        (softmax(1.0, QKNorm(4), SinkLogit()), 8, "not Gaussian"),
        (softmax(1.0, Alibi(0.1), SinkLogit()), 9000, "tokens that differ"),
        (softmax(0.01, SinkLogit(-3.0)), 4, "too small to be resolved"),
    ],
    ids=str,
)
def test_what_has_no_law_says_so(row, length, says):
    with pytest.raises(InputError, match=says):
        chance(row, length)


def test_weights_beyond_float64():
    """What depends on differences of logits alone: at ±800 no overflow, and no chance of 0."""
    steps = SinkLogit(1.0), SinkLogit(2.0)
    near = chance(softmax(1.0, *steps), 8)
    far = chance(Row("exp", beta=800.0, gamma=1.0, steps=(SinkLogit(801.0), SinkLogit(802.0))), 8)
    assert far.value == pytest.approx(near.value, rel=1e-11)
    assert chance(softmax(1.0, SinkLogit(900.0)), 8).value == 1.0
    for row in (softmax(1.0, SinkLogit(-900.0)), Row("exp", beta=800.0, gamma=1.0, steps=steps)):
        with pytest.raises(InputError, match="too small to be resolved"):
            chance(row, 8)


def test_a_sink_of_a_wide_score():
    """Where it is far below the others its chance is about 0, and not in doubt."""
    gamma = 1.9
    others = np.log(np.exp(np.random.default_rng(3).standard_normal((10**5, 7))).sum(axis=1))
    drawn = ndtr((1.0 - others) / gamma)  # given the others, the sink is above their total
    found = chance(softmax(1.0, Sink(1.0, gamma)), 8)
    assert abs(found.value - drawn.mean()) < 4.5 * drawn.std() / 10**2.5


def test_design_finds_the_logit_in_long_rows():
    """Below its grid the chance is about 0: no reason to call what is wanted impossible."""
    found = sparsity.design(
        softmax(1.0, SinkLogit()),
        length=64,
        free="logit",
        lengths=[4096],
        **{"sink_mass_above:0.5": 0.5},
    )
    (long,) = found.requirements
    assert long.value == pytest.approx(8.8174409, abs=1e-6)
    at = chance(softmax(1.0, SinkLogit(long.value)), 4096)
    assert at.value == pytest.approx(0.5, rel=1e-9)
