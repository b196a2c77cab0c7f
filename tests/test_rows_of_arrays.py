"""Rows whose tokens each have their own law, and the mean weight of one token."""

import pickle

import numpy as np
import pytest

import sparsity
from sparsity import Alibi, Decay, InputError, Needle, Rope, Row, Sink, SoftCap, Uniform, exact
from sparsity.plots.axes.row_choices import of_row

BETA, GAMMA = [-1, 0, 0.5, 1], [0.5, 0, 2, 1]


def drawn(score, rows=300_000, n=4, weigh=np.exp):
    """E p_j and its standard errors, of scores made of normals, without the package."""
    a = weigh(score(np.random.default_rng(56).standard_normal((rows, n))))
    p = a / a.sum(-1, keepdims=True)
    return p.mean(0), np.maximum(p.std(0) / rows**0.5, 1e-15)


CASES = {
    "of one spread": (Row("exp", beta=BETA, gamma=1), lambda z: BETA + z),
    "of several": (Row("exp", beta=BETA, gamma=GAMMA), lambda z: BETA + GAMMA * z),
    "fixed": (Row("exp", beta=BETA, gamma=0), lambda z: BETA + 0 * z),
    "equals": (Row("exp", beta=[0, 0, 2, 2], gamma=1), lambda z: np.array([0, 0, 2, 2]) + z),
    "with ALiBi": (
        Row("exp", beta=BETA, gamma=GAMMA, steps=(Alibi(0.5),)),
        lambda z: BETA + GAMMA * z - 0.5 * np.array([3, 2, 1, 0]),
    ),
    "of no array": (Row("exp", gamma=1, steps=(Alibi(0.5),)), lambda z: z + np.arange(4) / 2),
}


@pytest.mark.parametrize("case", CASES)
def test_the_mean_weight_of_each_token_is_what_is_drawn(case):
    row, score = CASES[case]
    mean, error = drawn(score)
    laws = [exact(row, length=4, of=f"weight:{j}") for j in (1, 2, 3, 4)]
    values = np.array([float(law) for law in laws])
    assert np.all(np.abs(mean - values) < 4.8 * error + 1e-11)
    assert values.sum() == pytest.approx(1, rel=1e-12)
    if np.ptp(values) > 0.1:  # the order of the tokens counts
        assert np.abs(mean[::-1] - values).max() > 0.05


@pytest.mark.thorough
def test_sigmoid_weights_and_many_tokens():
    sigmoid = lambda s: 1 / (1 + np.exp(-s))  # noqa: E731
    mean, error = drawn(lambda z: BETA + GAMMA * z, weigh=sigmoid)
    law = exact(Row("sigmoid", beta=BETA, gamma=GAMMA), of="weight:3")
    assert abs(mean[2] - float(law)) < 4.8 * error[2]
    rng = np.random.default_rng(0)
    beta, gamma = rng.normal(size=200), rng.uniform(0, 2, 200)
    mean, error = drawn(lambda z: beta + gamma * z, rows=20_000, n=200)
    for j in (1, 200, int(mean.argmax()) + 1):
        law = exact(Row("exp", beta=beta, gamma=gamma), of=f"weight:{j}")
        assert abs(mean[j - 1] - float(law)) < 4.8 * error[j - 1]


@pytest.mark.parametrize(
    "row",
    [
        Row("exp", beta=BETA, gamma=GAMMA),
        pytest.param(Row("exp", gamma=1, steps=(Decay(0.5),)), marks=pytest.mark.thorough),
        pytest.param(
            Row("exp", steps=(Rope((2.0, 1.0), (1.0, 0.4), 0.3),)), marks=pytest.mark.thorough
        ),
    ],
    ids=["arrays", "decay", "rope"],
)
def test_samplers_count_tokens_from_the_first(row):
    found = sparsity.estimate(row, length=4, of="weight:1", rel_error=1e-2)
    assert abs(found.value - float(exact(row, length=4, of="weight:1"))) < 4.8 * found.stderr


@pytest.mark.slow
def test_a_map_counts_tokens_from_the_first():
    """Stick-breaking: the last key takes half on average, each before it half of what is left."""
    for j in (1, 4):
        options = {"of": f"weight:{j}", "rel_error": 1e-2}
        found = sparsity.estimate("stick-breaking", beta=0, gamma=1, length=4, **options)
        assert abs(found.value - 0.5 ** (5 - j)) < 4.8 * found.stderr


def test_a_row_of_arrays_is_a_row():
    row = Row("exp", beta=BETA, gamma=GAMMA, steps=(Sink(2.0), SoftCap(3.0)), scores=Uniform())
    names = {name: getattr(sparsity, name) for name in ("Row", "Sink", "SoftCap", "Uniform")}
    assert eval(repr(row), names) == row == pickle.loads(pickle.dumps(row))
    assert row.length == 4
    assert Row("exp", gamma=1).length is None
    assert exact(row).value == exact(row, length=4).value
    plain = Row("exp", beta=[0.3] * 9, gamma=0.7).then(Needle(2.0))
    same = Row("exp", beta=0.3, gamma=0.7, steps=(Needle(2.0),))
    assert float(exact(plain, of="entropy")) == float(exact(same, length=9, of="entropy"))
    assert float(sparsity.evaluate(plain)) == float(sparsity.evaluate(same, length=9))
    assert sparsity.estimate(plain, max_samples=100).length == 9
    swept = sparsity.sweep(plain)
    assert float(swept["n_eff"]) == float(exact(plain))
    assert list(swept.coords) == ["length"]


@pytest.mark.parametrize(
    ("ask", "match"),
    [
        (lambda row: exact(row, length=5), "length = 5: beta and gamma are of 4 tokens"),
        (lambda row: exact(row, of="weight:5"), "is not in sight"),
        (lambda row: row.replace(gamma=2), "gamma = 2.0: each token has its own"),
        (lambda row: Row("exp", beta=[1, 2], gamma=[1, 2, 3]), "beta = array"),
        (lambda row: Row("exp", beta=[1, 2], gamma=-1), "gamma = -1: must be finite and >= 0"),
        (lambda row: Row("exp", beta=[1, 2]), "exp needs gamma"),
        (lambda row: Row("sparsemax", gamma=[1, 2]), "give one value"),
        (lambda row: row.then(Rope((1.0, 2.0), (1.0, 2.0), 1.0)), "has one of them"),
        (lambda row: sparsity.estimate(row, of="weight:9"), "no such token"),
        (lambda row: sparsity.evaluate("exp", gamma=[1, 2], steps=(Sink(1.0),)), "give one value"),
        (lambda row: exact("exp", gamma=1), "length is missing"),
        (lambda row: of_row(row), "which no axis moves"),
        (lambda row: sparsity.design(row, length=4, n_eff=2.0), "free = gamma: each token has its"),
        (lambda row: sparsity.plot(row, x="gamma"), "x = gamma: each of the row's 4 tokens"),
        (lambda row: sparsity.plot(row.then(Alibi(0.1))), "x = length: each .* law; give slope"),
        (lambda row: sparsity.sweep(row, gamma=[1.0]), r"gamma = \[1.0\]: each token has its own"),
        (lambda row: sparsity.estimate(Row("relu2", beta=[-1, -2], gamma=0)), "no token in sight"),
    ],
)  # fmt: skip
def test_what_such_rows_refuse(ask, match):
    with pytest.raises(InputError, match=match):
        ask(Row("exp", beta=BETA, gamma=GAMMA))
