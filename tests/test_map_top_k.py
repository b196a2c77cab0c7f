"""Top-k softmax and its laws, against what does not share them; sticks by their definition."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from row_map_samples import drawn, hold, law, rows, verdict
from scipy.integrate import quad
from scipy.special import ndtr

import sparsity
from sparsity import InputError, Row, kernels, quantities
from sparsity.crosscheck.cells import Question
from sparsity.exact_law import integration
from sparsity.exact_law.maps import top_k


def sorted_weights(s, k):
    """Softmax of the k largest, by sorting."""
    a = np.exp(-np.sort(-s, axis=-1)[:, :k])
    return a / a.sum(-1, keepdims=True)


def test_top_k_by_sorting():
    rng = np.random.default_rng(8)
    for n, k in ((1, 8), (5, 8), (8, 8), (9, 8), (60, 3), (60, 59), (30, 1)):
        s = rng.normal(size=(100, n)) * 2
        p = kernels.top_k(k).weights(s)
        assert_allclose(-np.sort(-p, axis=-1)[:, :k], sorted_weights(s, k), rtol=1e-13)
        assert ((p > 0).sum(-1) == min(n, k)).all()
    assert kernels.named("topk:16") == kernels.top_k(16) != kernels.top_k(8)
    for name, says in (("topk", "topk:8"), ("topk:0", ">= 1"), ("topk:two", "whole number")):
        with pytest.raises(InputError, match=says):
            kernels.named(name)


def test_the_top_of_two_and_of_three():
    """Two of three scores: the gap between the largest two has a density of its own."""
    for gamma in (0.3, 4.0):
        for of in ("participation", "n_eff", "entropy", "S"):
            found = law("topk:2", of, gamma=gamma, length=[1, 2])
            same = law("exp", of, gamma=gamma, length=[1, 2])
            assert_allclose(found.value, same.value, rtol=1e-13)

        def weighed(d, power, gamma=gamma):  # of s₁ − s₂ in a row of three
            p = 1 / (1 + math.exp(-d))
            z = d / gamma
            density = 6 / (gamma * 2 * math.sqrt(math.pi)) * math.exp(-z * z / 4)
            # the mean of s₁ and s₂ is N(0, γ²/2), the third is below s₂ = mean − d/2
            return density * ndtr(-z / math.sqrt(6)) * (p * p + (1 - p) ** 2) ** power

        for of, power in (("participation", 1), ("n_eff", -1)):
            true = quad(weighed, 0, 20 * gamma, (power,), epsabs=1e-14, epsrel=1e-13)[0]
            found = law("topk:2", of, gamma=gamma, length=3)
            assert abs(found.value / true - 1) <= found.error_bound < 1e-8


@pytest.mark.thorough
def test_top_k_of_sampled_rows():
    row, names = Row("topk:8", gamma=1.0), ("participation", "n_eff", "entropy", "S")
    assert hold(drawn("topk:8", gamma=1.0), row, 16, names, bound=1e-8)


def test_top_k_in_known_places(monkeypatch):
    lengths = np.unique(np.geomspace(9, 65536, 20).astype(int))
    for gamma in (0.3, 2.0):
        for of in ("participation", "entropy"):
            found = law("topk:8", of, gamma=gamma, length=lengths)
            assert (found.error_bound < 1e-8).all()
            assert (np.diff(found.value) * (1 if of == "entropy" else -1) > 0).all()
    # With as many kept as there are but one, it is near softmax of them all.
    near, all_ = (law(x, gamma=1.0, length=200).value for x in ("topk:199", "exp"))
    assert_allclose(near, all_, rtol=1e-3)
    assert law("topk:1", gamma=2.0, length=50).value == 1
    assert law("topk:5", "support", gamma=2.0, length=[3, 50]).value.tolist() == [3, 5]
    with pytest.raises(InputError, match="takes too long"):
        law("topk:8", gamma=5000.0, length=50)
    found = law("topk:8", gamma=2.0, length=lengths)
    monkeypatch.setattr(top_k, "_NODES", 121)
    monkeypatch.setattr(integration, "STEP_OF_U", 0.13)
    fine = law("topk:8", gamma=2.0, length=lengths)
    assert (np.abs(fine.value / found.value - 1) <= found.error_bound).all()


def test_a_planted_wrong_law_of_top_k_is_rejected():
    """k scores above the level, where the k-th is at it."""
    cell = Question(Row("topk:8", gamma=1.0), ("exact law", "whole rows"), "participation", 16)
    right, wrong = (
        cell.theory(),
        top_k.top_k_mean(9, 1.0, np.array([16]), quantities.participation.integral),
    )
    assert verdict(cell, right) == "agree"
    assert verdict(cell, math.log(wrong[0][0])) == "disagree"


def test_top_k_has_the_power_sums_too():
    asked = {"length": [4, 64], "beta": 0.0, "gamma": 2.0}
    sums = sparsity.exact("topk:8", of="power_sum:2", **asked)
    ratio = sparsity.exact("topk:8", of="participation", **asked)
    assert_allclose(sums.value, ratio.value, rtol=1e-12)


def broken(s):
    """Stick-breaking weights, key by key from the query back, and what is left."""
    rest, found = np.ones(len(s)), np.zeros(s.shape)
    for j in range(s.shape[1] - 1, -1, -1):
        share = 1 / (1 + np.exp(-s[:, j]))
        found[:, j], rest = share * rest, rest * (1 - share)
    return found, rest


def test_stick_breaking_key_by_key():
    s = rows(12) + 0.5
    found, rest = broken(s)
    assert_allclose(kernels.stick_breaking.weights(s), found, rtol=1e-9, atol=1e-15)
    left = kernels.stick_breaking.residual_mass
    assert left is not None
    assert_allclose(left(s), rest, rtol=1e-9, atol=1e-15)


def test_stick_breaking_has_no_law():
    with pytest.raises(InputError, match="stick-breaking has no exact law; estimate samples it"):
        law("stick-breaking", beta=0.0, gamma=1.0, length=7)
