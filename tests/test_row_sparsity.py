"""E S_n, the mean of ‖a‖₁/(√n‖a‖₂) over rows: printed values, other integrals, sampled rows."""

import functools
import math
from dataclasses import replace

import numpy as np
import pytest
from example_rows import WEIGHT, every_row, sampled
from scipy.special import comb
from sympy import Heaviside

from sparsity import (
    Decay,
    QKNorm,
    Row,
    SinkLogit,
    Window,
    evaluate,
    exact,
    quantities,
    score_kernel,
)
from sparsity.exact_law import engine
from sparsity.exact_law.sums import token_sums
from sparsity.kernels.symbols import s

LENGTHS = np.unique(np.round(np.geomspace(1, 1e12, 7)))
CURVES = [
    Row(kernel, beta=beta, gamma=gamma)
    for kernel, beta, gamma in (
        ("exp", 0, 1), ("exp", 0, 30), ("relu2", 0, 1), ("relu2", -30, 1), ("identity", 3, 1),
    )
]  # fmt: skip


def mean_S(row, length):
    return exact(row, length=length, of="S")


@functools.cache
def as_it_is(row, length=None):
    """With the steps of the library, at LENGTHS or one of them: several tests ask it."""
    return mean_S(row, LENGTHS if length is None else length)


def test_the_printed_value():
    law = exact("exp", length=1024, of="S", gamma=3)
    assert abs(law.value - 0.10937) <= 0.5001e-5
    assert law.error_bound < 1e-10


@pytest.mark.parametrize("row", CURVES, ids=str)
def test_curves(row, monkeypatch):
    """Tight bounds for n from 1 to 10¹²; between 1/√n and √(n_eff/n); → S where annealed."""
    law, rms = as_it_is(row), exact(row, length=LENGTHS)
    value, bound = law.value, law.error_bound
    assert np.max(bound) < 1e-10
    assert (value[0], bound[0]) == (1, 0)
    assert np.all(value >= LENGTHS**-0.5)
    assert np.all(value <= rms.S_rms * (1 + bound + rms.error_bound))  # E X ≤ √(E X²)
    limit = evaluate(row)
    if limit.log_S > -1.1:  # annealed: the corrections are of order 1/n
        assert value[-1] == pytest.approx(float(limit.S), rel=1e-9)
    monkeypatch.setattr(engine, "identical_tokens", lambda *_, **__: False)  # token by token
    other = mean_S(row, LENGTHS)
    assert np.max(other.error_bound) < 1e-9
    assert np.all(np.abs(other.value / value - 1) <= bound + other.error_bound)


KERNELS, STEPS = tuple(WEIGHT), range(len(every_row("exp")))
BY_TURNS = [every_row(KERNELS[(i + 1) % 3])[i] for i in STEPS]  # every step, each with one kernel


@pytest.mark.thorough
def test_half_the_step_agrees(monkeypatch):
    cells = [(row, LENGTHS) for row in CURVES] + [(row, 12) for row in BY_TURNS]
    old = [as_it_is(row, None if length is LENGTHS else length) for row, length in cells]
    monkeypatch.setattr(engine, "STEP_OF_IDENTICAL", 0.07)
    monkeypatch.setattr(token_sums, "GRID_STEP", 0.05)
    monkeypatch.setattr(engine, "GRID_STEP", 0.05)
    for cell, coarse in zip(cells, old, strict=True):
        fine = mean_S(*cell)
        gap = np.abs(fine.value / coarse.value - 1)
        assert np.all(gap <= fine.error_bound + coarse.error_bound)


def test_two_gaussian_tokens():
    """E (|cos θ| + |sin θ|)/√2 = 4/(π√2)."""
    law = exact("identity", length=2, of="S", beta=0, gamma=1)
    assert law.value == pytest.approx(4 / np.pi / np.sqrt(2), rel=1e-11)


def test_two_gaussian_tokens_of_different_weight():
    """E (|x| + w|y|)/√(2(x² + w²y²)), over the angle."""
    from scipy.integrate import quad

    w = 1e-3

    def at(angle):
        x, y = np.cos(angle), w * np.sin(angle)
        return (x + y) / np.sqrt(2 * (x * x + y * y))

    knee = float(np.arctan(1 / w))
    direct = (quad(at, 0, knee, epsrel=1e-12)[0] + quad(at, knee, np.pi / 2, epsrel=1e-12)[0]) * (
        2 / np.pi
    )
    law = mean_S(Row("identity", beta=0, gamma=1, steps=(Decay(w),)), 2)
    assert law.error_bound < 1e-9
    assert law.value == pytest.approx(direct, rel=1e-10)


def test_rows_that_are_all_zero_are_left_out(monkeypatch):
    """f = 1[s > 0]: E[√(K/n); K > 0]/P(K > 0) with K binomial."""
    row = Row(score_kernel("step", Heaviside(s)), beta=0, gamma=1)
    for n in (1, 2, 9):
        k = np.arange(1, n + 1)
        p = comb(n, k) / 2**n
        wanted = (p * np.sqrt(k / n)).sum() / p.sum()
        assert mean_S(row, n).value == pytest.approx(wanted, rel=1e-11)
        assert mean_S(row.then(Window(n)), n).value == pytest.approx(wanted, rel=1e-11)
        with monkeypatch.context() as patch:
            patch.setattr(engine, "identical_tokens", lambda *_, **__: False)
            law = mean_S(row, n)
        assert law.value == pytest.approx(wanted, rel=1e-11)
        assert law.p_nonzero == pytest.approx(1 - 0.5**n, rel=1e-12)


@pytest.mark.parametrize("row", BY_TURNS, ids=str)
def test_sampled_rows_of_every_step(row):
    law, (mean, error) = as_it_is(row, 12), sampled(row, 12, 50_000)["S"]
    assert law.error_bound < 1e-9
    assert abs(mean - law.value) < 4.5 * error


def _scaled_body(one):
    """φ^n for φ^(n−1)."""
    return lambda sums, body, *rest: one(sums, body * np.exp(sums.log_phi), *rest)


PLANTED = {
    "φ^n for φ^(n−1)": None,
    "no √π": lambda n: 1 / math.sqrt(n),
    "n for √n": lambda n: 1 / (math.sqrt(math.pi) * n),
}


@pytest.mark.parametrize("planted", [None, *PLANTED])
def test_planted_errors_are_rejected(planted, monkeypatch):
    """The right integral (None) passes the very test that each wrong one fails."""
    quantity = quantities.S
    if planted and PLANTED[planted]:
        wide = (0.0, math.inf)
        integral = replace(quantity.integral, factor=PLANTED[planted], ends=lambda *row: wide)
        quantity = replace(quantity, integral=integral)
    elif planted:
        monkeypatch.setattr(engine, "integrate_over_u", _scaled_body(engine.integrate_over_u))
    row = Row("exp", gamma=1.0)
    law, (mean, error) = exact(row, length=5, of=quantity), sampled(row, 5, 400_000)["S"]
    assert (abs(mean - law.value) < 4 * error) == (planted is None)


def test_sink_logits_do_not_enter_and_one_token_is_one_hot(monkeypatch):
    row = Row("relu2", beta=0.3, gamma=1.2)
    sunk = row.then(SinkLogit(2.0))
    bare, beside = mean_S(row, 9), mean_S(sunk, 9)
    assert beside.value == bare.value
    with monkeypatch.context() as patch:
        patch.setattr(engine, "identical_tokens", lambda *_, **__: False)
        slow = [mean_S(each, 9) for each in (row, sunk)]
    assert slow[0].value == slow[1].value
    assert abs(beside.value / slow[0].value - 1) <= beside.error_bound + slow[0].error_bound
    alone = mean_S(Row("exp", gamma=1, steps=(Window(1),)), [1, 16])
    np.testing.assert_array_equal(alone.value, [1, 0.25])
    np.testing.assert_array_equal(alone.error_bound, 0)
    # Out of sight counts in n only.
    few = mean_S(Row("exp", gamma=1, steps=(Window(8), QKNorm(16))), [8, 32]).value
    assert few[1] == pytest.approx(few[0] / 2, rel=1e-11)
