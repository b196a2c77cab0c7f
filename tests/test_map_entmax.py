"""Entmax: its definition, and its exact laws against what does not share them."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from row_map_samples import bisected, drawn, hold, law, rows, verdict
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr

from sparsity import InputError, Row, kernels
from sparsity.crosscheck.cells import Question
from sparsity.exact_law.maps import entmax, sparsemax
from sparsity.exact_law.maps.threshold_maps import integrate


def test_entmax_by_bisection():
    for n in (1, 2, 5, 40, 300):
        s = rows(n)
        p = kernels.entmax15.weights(s)
        half = s / 2
        tau = bisected(
            lambda t, half=half: (np.maximum(half - t, 0) ** 2).sum(-1, keepdims=True) - 1, half
        )
        assert_allclose(p, np.maximum(half - tau, 0) ** 2, atol=1e-13)
    # Between softmax and sparsemax.
    s = np.array([[0.0, 0.4, 1.0, 1.5]])
    sizes = [(kernels.named(x).weights(s) > 0).sum() for x in ("sparsemax", "entmax1.5")]
    assert sizes == [2, 4]


def test_other_orders_have_no_law():
    with pytest.raises(InputError, match=r"entmax:1\.25 has no exact law; estimate samples it"):
        law("entmax:1.25", gamma=1.0, length=8)


@pytest.mark.parametrize("alpha", [1.01, 1.25, 1.9])
def test_entmax_of_any_order_by_bisection(alpha):
    kernel, power = kernels.named(f"entmax:{alpha}"), 1 / (alpha - 1)
    for n in (1, 2, 5, 40, 300):
        s = rows(n)
        x = (alpha - 1) * s
        tau = bisected(lambda t, x=x: (np.maximum(x - t, 0) ** power).sum(-1, keepdims=True) - 1, x)
        assert_allclose(kernel.weights(s), np.maximum(x - tau, 0) ** power, atol=3e-12)
    a = np.exp(s - s.max(-1, keepdims=True))
    away = np.abs(kernel.weights(s) - a / a.sum(-1, keepdims=True)).max()
    assert (away < 0.05) == (alpha == 1.01)  # softmax in the limit α → 1, and far from it beyond


def test_orders_of_entmax_with_a_name():
    assert kernels.named("entmax:1.5") is kernels.entmax15
    assert kernels.named("entmax:2") is kernels.sparsemax
    for typed, says in (
        ("0.5", "from 1.01 to 2"),
        ("x", "give a number"),
        ("", "such as entmax:1.25"),
    ):
        with pytest.raises(InputError, match=says):
            kernels.named(f"entmax:{typed}" if typed else "entmax")


def two_keys_of_entmax(gamma, weigh):
    """As `two_keys`: Y₂ = 1 − (1 − d²/4)²/2 of scores d < 2 apart."""
    s = math.sqrt(2) * gamma
    alone = 2 * ndtr(-2 / s)

    def both(d):
        density = 2 * math.exp(-(d**2) / (2 * s * s)) / (s * math.sqrt(2 * math.pi))
        return density * weigh(2, 1 - (1 - d * d / 4) ** 2 / 2)

    cuts = [x * s for x in (0.5, 2, 5, 9) if x * s < 2]
    return alone * weigh(1, 1) + quad(both, 0, 2, epsabs=1e-15, epsrel=1e-13, points=cuts)[0]


@pytest.mark.parametrize("gamma", [1e-4, 0.11, 1.0, 1e4])
def test_entmax_of_two_keys(gamma):
    for of, weigh in (
        ("participation", lambda count, y2: y2),
        ("support", lambda count, y2: count),
        ("n_eff", lambda count, y2: 1 / y2),
        ("max_weight", lambda count, y2: (1 + math.sqrt(2 * y2 - 1)) / 2),
    ):
        found = law("entmax1.5", of, gamma=gamma, length=2)
        true = two_keys_of_entmax(gamma, weigh)
        assert abs(found.value / true - 1) <= min(found.error_bound + 1e-14, 2e-11)
        assert found.error_bound < 1e-7


ENTMAX = ((0.3, 16), (2.0, 4096))


@pytest.mark.parametrize(("gamma", "length"), ENTMAX)
def test_a_finer_rule_of_entmax_agrees(gamma, length, monkeypatch):
    row, n = entmax.EntmaxThreeHalves(gamma), np.array([float(length)])
    value, error = row.support_and_participation(n)
    with np.errstate(all="ignore"):
        (total, *_), _, _ = integrate(row.places(n[:, None]), n[:, None], row.integrands, row.held)
    monkeypatch.setattr(entmax.EntmaxThreeHalves, "points", 401)
    fine, _ = row.support_and_participation(n)
    assert (np.abs(fine / value - 1) <= error).all()
    assert (error <= 1e-6).all()
    assert_allclose(total, 1, atol=1e-11)


def test_entmax_where_every_key_has_a_weight(monkeypatch):
    """The closed form of small spreads against the double integral, which it replaces there."""
    for gamma, n in ((0.09, np.array([2.0])), (0.05, np.array([5.0])), (0.025, np.array([30.0]))):
        row = entmax.EntmaxThreeHalves(gamma)
        closed, error = row.support_and_participation(n)
        assert (error == 1e-15).all()
        with monkeypatch.context() as patch:
            patch.setattr(entmax, "_ALL_IN", np.inf)
            ruled, error = row.support_and_participation(n)
        assert (np.abs(ruled / closed - 1) <= error).all()
        assert (error < 1e-9).all()


def test_entmax_of_sampled_rows():
    row, names = Row("entmax1.5", gamma=2.0), ("participation", "support", "n_eff", "max_weight")
    assert hold(drawn("entmax1.5", gamma=2.0), row, 16, names)


@pytest.mark.parametrize("planted", ["none", "mean field", "no slope", "no root"])
def test_planted_wrong_laws_of_entmax_are_rejected(planted):
    """A threshold at which the mean of the sum is 1, |G′| left out, and p = x of Σx = 1."""
    gamma, n = 1.0, 16
    cell = Question(Row("entmax1.5", gamma=gamma), ("exact law", "whole rows"), "participation", n)
    value = cell.theory()
    if planted == "mean field":

        def mean(t, power):
            return quad(lambda x: (x - t) ** power * math.exp(-x * x / 2), t, 12)[0] / math.sqrt(
                2 * math.pi
            )

        t: float = brentq(lambda t: n * gamma**2 / 4 * mean(t, 2) - 1, -9, 9)  # type: ignore[assignment]
        value = math.log(n * gamma**4 / 16 * mean(t, 4))
    if planted == "no slope":
        value -= math.log(law("entmax1.5", "support", gamma=gamma, length=n).value)
    if planted == "no root":
        value = float(law("sparsemax", gamma=gamma / 2, length=n).log_value)
    assert verdict(cell, value) == ("agree" if planted == "none" else "disagree")


def test_entmax_in_known_places():
    lengths = np.array([1.0, 2.0, 8.0, 1000.0, 65536.0])
    for gamma in (1e-3, 0.1, 2.0):
        size, y2 = entmax.EntmaxThreeHalves(gamma).support_and_participation(lengths)[0]
        assert size[0] == y2[0] == 1
        assert (np.diff(size) > -1e-9).all()
        assert (np.diff(y2) < 0).all()
        assert (y2 * size >= 1 - 1e-9).all()
        sparse = sparsemax.Sparsemax(gamma).support_and_participation(lengths)[0]
        assert (sparse[0] <= size * (1 + 1e-9)).all()  # between softmax and sparsemax
        soft = law("exp", gamma=gamma, length=lengths).value
        assert (soft <= y2 * (1 + 1e-9)).all()
    with pytest.raises(InputError, match="not resolved there; use estimate"):
        law("entmax1.5", gamma=0.3, length=10**9)
