"""The entropy of rows: its definition, its exact law, and the routes that do not share it."""

import functools
import math

import jax
import mpmath
import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose

import sparsity
from sparsity import InputError, Row, SinkLogit, Window, kernels, metric, quantities
from sparsity.crosscheck import verify as crosscheck
from sparsity.crosscheck.cells import Question
from sparsity.exact_law import engine
from sparsity.sampling import Sampling, sample_rows

PLACES = (
    (0.1, 2), (2.0, 10**9), (4.0, 65536),
)  # fmt: skip


def entropy(kernel="exp", **asked):
    return sparsity.exact(kernel, of="entropy", **asked)


def by_stein(gamma, length):
    """E H from participation ratios alone, by E H = ln n + ∫₀^γ g(1 − E Y₂(g)) dg − γ²(1 − E Y₂).

    Stein's lemma gives E Σp s = γ²(1 − E Y₂), and ∂E ln Z/∂γ = γ(1 − E Y₂); H = ln Z − Σp s.
    """
    x, w = np.polynomial.legendre.leggauss(16)
    edges = np.linspace(0.0, gamma, math.ceil(gamma) + 1)  # E Y₂ is smooth on the scale of 1
    half = np.diff(edges)[:, None] / 2
    at, weights = (edges[:-1, None] + half * (1 + x)).ravel(), (half * w).ravel()
    every = np.append(at, gamma)  # in one call: laws of one family share nodes
    asked = quantities.participation, np.array([float(length)])
    y2 = engine.means_over_grid(kernels.exp, 0 * every, every, *asked)[0][:, 0]
    grown = weights @ (at * (1 - y2[:-1]))
    return math.log(length) + grown - gamma**2 * (1 - y2[-1])


@functools.cache
def at_place(gamma, length):
    return entropy(length=length, gamma=gamma)


def test_definition_on_concrete_rows():
    rows = np.random.default_rng(1).exponential(size=(20, 7)) ** 3
    rows[3, 2:] = 0
    found = metric.entropy(rows)
    assert_allclose(found, scipy.stats.entropy(rows, axis=-1), rtol=1e-14)
    assert_allclose(jax.jit(metric.entropy)(rows), found, rtol=1e-14)
    assert metric.entropy(np.eye(4)).tolist() == [0] * 4
    assert_allclose(metric.entropy(np.ones(9)), math.log(9), rtol=1e-15)
    # A sink logit that takes half: the tokens share the other half.
    assert_allclose(metric.entropy(np.ones(4), 4.0), 0.5 * math.log(8), rtol=1e-15)
    # Next to one-hot: ε(1 − ln ε) to all digits, although 1 − ε is 1 in float64.
    tiny = 1e-25
    assert_allclose(metric.entropy(np.array([1, tiny])), tiny * (1 - math.log(tiny)), rtol=1e-14)
    assert metric.entropy(np.zeros(3), 1.0) == 0


@pytest.mark.parametrize("gamma", [0.3, 10.0])
def test_two_tokens_by_brute_force(gamma):
    def weighed(t):  # the difference of two scores is N(0, 2γ²)
        x = mpmath.sqrt(2) * gamma * t
        h = mpmath.log1p(mpmath.exp(-x)) + x / (1 + mpmath.exp(x))
        return h * mpmath.exp(-t * t / 2) / mpmath.sqrt(2 * mpmath.pi)

    with mpmath.workdps(30):
        true = 2 * mpmath.quad(weighed, [0, 0.1, 0.5, 1, 2, 4, 12])
    found = entropy(length=2, gamma=gamma)
    assert abs(found.value / float(true) - 1) <= found.error_bound <= 1e-9


def _on_grid(f, gamma, beta=0.0, points=160):
    """E H of three tokens by Gauss–Hermite quadrature in three dimensions."""
    x, w = np.polynomial.hermite_e.hermegauss(points)
    w = w / w.sum()
    a = f(beta + gamma * x)
    total = a[:, None, None] + a[:, None] + a
    log = np.log(a, where=a > 0, out=np.zeros_like(a))
    mean_log = (a * log)[:, None, None] + (a * log)[:, None] + a * log
    return np.einsum("i,j,k,ijk->", w, w, w, np.log(total) - mean_log / total)


@pytest.mark.parametrize(
    ("kernel", "f", "at"),
    [
        ("exp", np.exp, {"gamma": 0.5}),
        ("log(1 + exp(s))", lambda s: np.logaddexp(0, s), {"beta": 0.3, "gamma": 1.0}),
    ],
)
def test_three_tokens_by_brute_force(kernel, f, at):
    found = entropy(kernel, length=3, **at)
    assert_allclose(found.value, _on_grid(f, at["gamma"], at.get("beta", 0.0)), rtol=1e-9)
    assert found.error_bound < 1e-10


@pytest.mark.parametrize(("gamma", "length"), PLACES)
def test_half_the_step_agrees(gamma, length, monkeypatch):
    found = at_place(gamma, length)
    monkeypatch.setattr(engine, "STEP_OF_IDENTICAL", engine.STEP_OF_IDENTICAL / 2)
    fine = entropy(length=length, gamma=gamma)
    assert abs(fine.value / found.value - 1) <= 1e-9
    assert abs(fine.value / found.value - 1) <= found.error_bound <= 1e-9


@pytest.mark.parametrize(("gamma", "length"), PLACES)
def test_steins_identity(gamma, length):
    found, value = at_place(gamma, length), by_stein(gamma, length)
    assert abs(value - found.value) <= 1e-10
    if found.value > 1e-3:  # Euler's constant rounded, as a planted error, would be seen
        assert abs(value - found.value) < 1e-4 * found.value < abs(value - 1.01 * found.value)


ROW = (Row("exp", gamma=1.5, steps=(Window(20), SinkLogit(2.0))), 32)


@pytest.mark.thorough
def test_sampled_rows():
    row, length = ROW
    found = sparsity.exact(row, length=length, of="entropy")
    drawn = sample_rows(row, length, Sampling(4e-4, seed=5, dtype=np.float32), "entropy")
    assert drawn.quantity == "entropy"
    assert drawn.rel_stderr <= 4.2e-4  # 2.4e-3 is seen fourteen times in fifteen
    assert abs(drawn.log_value - found.log_value) < 4.5 * drawn.rel_stderr
    assert found.error_bound < 1e-8


def test_a_sampled_planted_error_is_rejected():
    """Without Euler's constant, against sampled rows."""
    row, length = ROW
    cell = Question(row, ("exact law", "whole rows"), "entropy", length)
    true = cell.theory()
    (judged,) = crosscheck.check([cell], seed=2, whole_dtype=np.float32)  # as `test_sampled_rows`
    assert judged.verdict == "agree"
    (judged,) = crosscheck.check(
        [cell], theory=lambda _: true + 5e-3, sample=lambda *_, seen=judged: seen.estimate
    )
    assert judged.verdict == "disagree"


def test_limits_of_the_spread():
    n = 1000
    assert_allclose(
        entropy(length=n, gamma=1e-3).value, math.log(n) - 5e-7 * (1 - 1 / n), rtol=1e-9
    )
    # Long rows: E H → ln n − γ²/2.
    assert_allclose(entropy(length=10**12, gamma=1.0).value, 12 * math.log(10) - 0.5, rtol=1e-9)
    assert entropy(length=1, gamma=1.0).value == 0
    values = entropy(length=[2, 4, 16, 256, 4096], gamma=3.0).value
    assert np.all(np.diff(values) > 0)


def test_rows_too_long_to_hold_are_refused():
    with pytest.raises(InputError, match="entropy needs whole rows, of at most 1048576 tokens"):
        sparsity.estimate("exp", gamma=1.0, length=2**20 + 1, of="entropy")
