"""Sparsemax: its definition, and its exact laws against what does not share them."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from row_map_samples import bisected, drawn, hold, law, rows, verdict
from scipy.integrate import dblquad, quad
from scipy.optimize import brentq
from scipy.special import ndtr

import sparsity
from sparsity import Row, kernels
from sparsity.crosscheck.cells import Question
from sparsity.exact_law.maps import sparsemax, threshold_maps


def test_sparsemax_by_sorting_and_by_bisection():
    for n in (1, 2, 5, 40, 300):
        s = rows(n)
        p = kernels.sparsemax.weights(s)
        tau = bisected(lambda t, s=s: np.maximum(s - t, 0).sum(-1, keepdims=True) - 1, s)
        assert_allclose(p, np.maximum(s - tau, 0), atol=1e-13)
        falling = -np.sort(-s, axis=-1)
        over = np.cumsum(falling, axis=-1)
        rank = np.arange(1, n + 1)
        count = (1 + rank * falling > over).sum(-1)
        tau = (over[np.arange(len(s)), count - 1] - 1) / count
        assert_allclose(p, np.maximum(s - tau[:, None], 0), atol=1e-13)
    assert kernels.sparsemax.weights(np.array([0.0, 5.0, 1.0])).tolist() == [0, 1, 0]
    assert_allclose(kernels.sparsemax.weights(np.full(7, 3.0)), 1 / 7, rtol=1e-15)


def two_keys(gamma, weigh=lambda count, y2: y2):
    """The mean of a function of K and Y₂ over rows of two, from their difference N(0, 2γ²)."""
    s = math.sqrt(2) * gamma
    alone = 2 * ndtr(-1 / s)

    def both(d):
        density = 2 * math.exp(-(d**2) / (2 * s * s)) / (s * math.sqrt(2 * math.pi))
        return density * weigh(2, (1 + d * d) / 2)

    cuts = [x * s for x in (0.5, 2, 5, 9) if x * s < 1]
    return alone * weigh(1, 1) + quad(both, 0, 1, epsabs=1e-15, epsrel=1e-13, points=cuts)[0]


@pytest.mark.parametrize("gamma", [1e-4, 0.09, 1.0, 1e4])
def test_sparsemax_of_two_keys(gamma):
    for of, true in (
        ("participation", two_keys(gamma)),
        ("support", two_keys(gamma, lambda count, y2: count)),
    ):
        found = law("sparsemax", of, gamma=gamma, length=2)
        assert abs(found.value / true - 1) <= min(found.error_bound + 1e-14, 5e-12)
        assert found.error_bound < 2e-9
    for of, true in (
        ("n_eff", two_keys(gamma, lambda count, y2: 1 / y2)),
        ("S", two_keys(gamma, lambda count, y2: (2 * y2) ** -0.5)),
    ):
        found = law("sparsemax", of, gamma=gamma, length=2)
        assert abs(found.value / true - 1) <= min(found.error_bound + 1e-14, 1e-11)
        assert found.error_bound < 2e-7


@pytest.mark.parametrize("gamma", [0.2, 0.5])
def test_sparsemax_of_three_keys(gamma):
    """By the two gaps between sorted scores: no threshold, no contour."""

    def of_gaps(b, a, what):
        scatter = 2 / 3 * (a * a + a * b + b * b)
        density = math.exp(-scatter / (2 * gamma**2)) * math.sqrt(3) / (math.pi * gamma**2)
        if a >= 1:
            return density
        if a + 2 * b >= 1:
            return density * (2 if what == "support" else (1 + a * a) / 2)
        return density * (3 if what == "support" else 1 / 3 + scatter)

    far = 12 * gamma
    for what in ("support", "participation"):
        true = 0.0
        for first, last in ((0.0, 1.0), (1.0, 1.0 + far)):
            for low, high in (
                (lambda a: 0.0, lambda a: max((1 - a) / 2, 0.0)),
                (lambda a: max((1 - a) / 2, 0.0), lambda a: max((1 - a) / 2, 0.0) + far),
            ):
                part = dblquad(
                    of_gaps, first, min(last, far) if first == 0 else last, low, high,
                    args=(what,), epsabs=1e-11, epsrel=1e-11,
                )  # fmt: skip
                true += part[0]
        found = law("sparsemax", what, gamma=gamma, length=3)
        assert abs(found.value / true - 1) < 1e-9


@pytest.mark.parametrize("gamma", [0.3, 1.0])
def test_sparsemax_of_sampled_rows(gamma):
    rows, names = drawn("sparsemax", gamma=gamma), ("participation", "support", "n_eff", "S")
    assert hold(rows, Row("sparsemax", gamma=gamma), 16, names)


@pytest.mark.parametrize(
    ("gamma", "length"), [(1.0, 16), (2.0, 256), (2.0, 4096), (0.02, 64), (0.1, 10**9)]
)
def test_a_finer_rule_of_sparsemax_agrees(gamma, length, monkeypatch):
    row, n = sparsemax.Sparsemax(gamma), np.array([float(length)])
    value, error = row.support_and_participation(n)
    with np.errstate(all="ignore"):
        place = row.places(n[:, None])
        (total, *_), _, _ = threshold_maps.integrate(place, n[:, None], row.integrands, row.held)
    monkeypatch.setattr(threshold_maps, "CONTOUR_STEP", 0.037)
    monkeypatch.setattr(sparsemax.Sparsemax, "points", 301)
    monkeypatch.setattr(sparsemax.Sparsemax, "bend", 0.3)  # another contour, the same integral
    fine, _ = row.support_and_participation(n)
    assert (np.abs(fine / value - 1) <= error).all()
    assert (error <= 1e-8).all()
    assert_allclose(total, 1, atol=1e-11)


@pytest.mark.thorough
def test_sparsemax_in_known_places():
    lengths = np.unique(np.geomspace(1, 65536, 6).round())
    for gamma in (1e-3, 30.0):
        (size, y2), error = sparsemax.Sparsemax(gamma).support_and_participation(lengths)
        assert (error < 2e-9).all()
        assert size[0] == y2[0] == 1
        assert (np.diff(size) > 0).all()
        assert (np.diff(y2) < 0).all()
        assert (y2 * size >= 1 - 1e-9).all()  # Y₂ ≥ 1/K, and E 1/K ≥ 1/E K
    assert_allclose(law("sparsemax", gamma=2.0, length=256).value, 0.6511567, atol=1e-7)
    shifted = law("sparsemax", gamma=2.0, beta=-7.0, length=256)
    assert shifted.value == law("sparsemax", gamma=2.0, length=256).value
    for gamma in (0.02, 2.0):
        y2, n_eff, S = (
            law("sparsemax", of, gamma=gamma, length=[16, 4096]).value
            for of in ("participation", "n_eff", "S")
        )
        root_n = np.array([4.0, 64.0])
        assert (n_eff * y2 >= 1).all()  # Jensen
        assert (n_eff * (root_n * S) ** -2 >= 1).all()
    shaped = law("sparsemax", gamma=2.0, length=[[2, 16], [256, 4096]])
    assert shaped.value.shape == shaped.error_bound.shape == (2, 2)
    data = sparsity.sweep("sparsemax", gamma=[1.0, 2.0], length=[16, 256], of="participation")
    found = data["participation"].sel(gamma=2.0, length=256).squeeze()
    assert_allclose(found, 0.6511567, atol=1e-7)


@pytest.mark.parametrize("planted", ["none", "mean field", "no slope"])
def test_planted_wrong_laws_of_sparsemax_are_rejected(planted):
    """The threshold of nE(s − τ)₊ = 1, and the factor |G′| = K left out."""
    gamma, n = 1.0, 16
    cell = Question(Row("sparsemax", gamma=gamma), ("exact law", "whole rows"), "participation", n)
    value = cell.theory()
    if planted == "mean field":
        density = lambda t: math.exp(-t * t / 2) / math.sqrt(2 * math.pi)  # noqa: E731
        excess = lambda t: n * gamma * (density(t) - t * ndtr(-t)) - 1  # noqa: E731
        t: float = brentq(excess, -9, 9)  # type: ignore[assignment]
        over = density(t)
        value = math.log(n * gamma**2 * ((1 + t * t) * ndtr(-t) - t * over))
    if planted == "no slope":
        bare = two_keys(gamma, lambda count, y2: y2 / count)
        assert abs(law("sparsemax", gamma=gamma, length=2).value / bare - 1) > 0.1
        value = value - math.log(law("sparsemax", "support", gamma=gamma, length=n).value)
    assert verdict(cell, value) == ("agree" if planted == "none" else "disagree")
