"""The largest weight of a row: its exact law against integrals and rows that do not share it."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import ndtr

import sparsity
from sparsity import Row
from sparsity.errors import InputError
from sparsity.finite import largest
from sparsity.montecarlo import Sampling, sample_rows
from sparsity.rows.steps import Alibi, QKNorm, ScalableSoftmax, SinkLogit
from sparsity.verification.cells import Question
from sparsity.verification.crosscheck import check


def law(kernel="exp", **asked):
    return sparsity.exact(kernel, of="max_weight", **asked)


def _normal(x):
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


@pytest.mark.parametrize("gamma", [0.01, 0.5, 1.0, 4.0, 20.0])
def test_two_tokens_of_softmax(gamma):
    def weighed(t):  # the difference of two scores is N(0, 2γ²)
        return 2 * _normal(t) / (1 + math.exp(-math.sqrt(2) * gamma * t))

    true, off = quad(weighed, 0, 12, epsabs=1e-14, epsrel=1e-13, points=[0.05, 0.3, 1, 3])
    found = law(length=2, gamma=gamma)
    assert off < 1e-11
    assert abs(found.value - true) <= found.error_bound * true + off
    assert found.error_bound < 1e-11


@pytest.mark.parametrize(
    ("kernel", "power", "sides"), [("relu2", 2, (1,)), ("identity", 1, (1, -1))]
)
@pytest.mark.parametrize("beta", [-3.0, 0.0, 1.0, 5.0, 8.9, 10.0, 15.0, 40.0])
def test_two_tokens_by_their_ratio(kernel, power, sides, beta):
    """E max p = ∫∫ f(s₁)f(s₂) over the ratio of the smaller to the larger score."""

    def density(s):
        return sum(_normal(side * s - beta) for side in sides)

    def of_ratio(r):
        cuts = [max(abs(beta) - 8, 0.1), abs(beta) + 0.1, abs(beta) + 8]
        product = lambda s: density(s) * density(r * s) * s  # noqa: E731
        inner = quad(product, 0, 60, epsrel=1e-12, limit=200, points=cuts)[0]
        return 2 * inner / (1 + r**power)

    both = quad(of_ratio, 0, 1, epsrel=1e-11, limit=200, points=[max(0.5, 1 - 4 / max(beta, 4))])[0]
    alone = ndtr(beta) * ndtr(-beta) * 2 if len(sides) == 1 else 0.0
    seen = 1 - ndtr(-beta) ** 2 if len(sides) == 1 else 1.0
    found = law(kernel, length=2, beta=beta, gamma=1.0)
    assert_allclose(found.value, (both + alone) / seen, rtol=1e-9)
    assert_allclose(found.p_nonzero, seen, rtol=1e-12)


PLACES = (
    ("exp", 0.0, 1.0, 16), ("exp", 0.0, 2.0, 256), ("exp", 0.0, 4.0, 4096), ("exp", 0.0, 8.0, 2),
    ("relu2", 0.0, 1.0, 16), ("relu2", -2.0, 1.0, 256), ("identity", 0.0, 1.0, 256),
    ("identity", 2.0, 0.5, 16),
)  # fmt: skip


@pytest.mark.parametrize(("kernel", "beta", "gamma", "length"), PLACES)
def test_a_finer_rule_agrees(kernel, beta, gamma, length, monkeypatch):
    found = law(kernel, length=length, beta=beta, gamma=gamma)
    monkeypatch.setattr(largest, "_STEPS", (0.08, 0.16))
    monkeypatch.setattr(largest, "_POINTS", (24, 16))
    fine = law(kernel, length=length, beta=beta, gamma=gamma)
    assert abs(fine.value / found.value - 1) <= found.error_bound <= 1e-10


@pytest.mark.parametrize(("kernel", "beta", "gamma", "length"), PLACES)
def test_sampled_rows(kernel, beta, gamma, length):
    row = Row(kernel, beta=beta, gamma=gamma)
    to = 5e-4 if length <= 256 else 1.5e-3
    drawn = sample_rows(row, length, Sampling(to, seed=7, dtype=np.float32), "max_weight")
    found = law(kernel, length=length, beta=beta, gamma=gamma)
    assert drawn.quantity == "max_weight"
    assert abs(drawn.log_value - found.log_value) < 4.5 * drawn.rel_stderr


@pytest.mark.parametrize("planted", [0.0, 1e-3])
def test_a_planted_error_is_rejected(planted):
    cell = Question(Row("exp", gamma=0.5), ("exact law", "whole rows"), "max_weight", 8)
    true = cell.theory()
    (judged,) = check([cell], theory=lambda asked: true + planted, seed=4)
    assert judged.verdict == ("disagree" if planted else "agree")


def test_a_planted_wrong_law_of_weights_is_rejected(monkeypatch):
    """A spread that is a millionth too wide fails the gate that the right one passes."""
    right = largest._LEVELS[sparsity.kernels.exp.weight]
    test_two_tokens_of_softmax(1.0)
    wider = {sparsity.kernels.exp.weight: lambda beta, gamma, n: right(beta, gamma * (1 + 1e-6), n)}
    monkeypatch.setattr(largest, "_LEVELS", largest._LEVELS | wider)
    with pytest.raises(AssertionError):
        test_two_tokens_of_softmax(1.0)


def test_known_values_and_order():
    lengths = [1, 2, 16, 256, 4096, 65536]
    for gamma in (0.5, 2.0, 6.0):
        found = law(length=lengths, gamma=gamma)
        assert found.value[0] == 1
        assert np.all(np.diff(found.value) < 0)
        y2 = sparsity.exact("exp", length=lengths, gamma=gamma, of="participation").value
        assert np.all(found.value >= y2 * (1 - 1e-12))  # max p ≥ Σp²
        assert np.all(found.value**2 <= y2 * (1 + 1e-12))  # (E max p)² ≤ E (max p)² ≤ E Σp²
    # Narrow laws: E max p ≈ (1 + c·power·γ/β)/n, the mean c of the largest of two normals 1/√π.
    for beta, gamma in ((1000.0, 1.0), (-30.0, 1e-3)):
        found = law("identity", length=[1, 2], beta=beta, gamma=gamma)
        near = 0.5 + 0.5 * gamma / abs(beta) / math.sqrt(math.pi)
        assert_allclose(found.value, [1, near], rtol=1e-6)
    # Equal weights but for their ties.
    assert_allclose(law(length=64, gamma=1e-9).value, 1 / 64, rtol=1e-7)
    assert_allclose(law("relu2", length=64, beta=-20.0, gamma=1.0).value, 1.0, rtol=2e-12)


def test_steps_that_leave_tokens_alike():
    scaled = Row("exp", gamma=1.0, steps=(ScalableSoftmax(),))
    found = law(scaled, length=[4, 64])
    for n, value in zip((4, 64), found.value, strict=True):
        alone = law(scaled, length=n)
        assert_allclose(value, alone.value, rtol=1e-11)
        spread = float(scaled.positions(n)[1][0])
        assert_allclose(alone.value, law(length=n, gamma=spread).value, rtol=1e-11)


@pytest.mark.parametrize(
    ("row", "length", "says"),
    [
        (Row("exp", gamma=1.0, steps=(Alibi(0.1),)), 8, "rows of one law"),
        (Row("exp", gamma=1.0, steps=(SinkLogit(1.0),)), 8, "rows of one law"),
        (Row("exp", gamma=1.0, steps=(QKNorm(4),)), 8, "rows of one law"),
        (Row("softplus", beta=0.0, gamma=1.0), 8, "known for exp, relu2 and identity"),
        (Row("exp", gamma=1e4), 8, "panels"),
        (Row("relu2", beta=-40.0, gamma=1.0), 8, "next to never above 0"),
    ],
    ids=str,
)
def test_what_has_no_law_here_says_so(row, length, says):
    with pytest.raises(InputError, match=says):
        law(row, length=length)


def test_design_round_trip():
    found = sparsity.design("exp", length=4096, max_weight=0.5, free="gamma", lengths=())
    assert_allclose(law(length=4096, gamma=found.value).value, 0.5, rtol=1e-9)


def test_a_sweep_has_it_beside_the_others():
    data = sparsity.sweep("exp", gamma=[1.0, 2.0], length=[16, 64], of=["max_weight", "entropy"])
    for gamma in (1.0, 2.0):
        at = data.sel(gamma=gamma, length=64).squeeze()
        assert_allclose(at["max_weight"], law(length=64, gamma=gamma).value, rtol=1e-11)
        assert at["entropy"] <= math.log(64)
