"""Formulas and parameters at extremes: an answer or one line, at once."""

import time

import pytest

import sparsity
from sparsity import InputError


def _refused(call, most=5.0):
    start = time.process_time()
    with pytest.raises(InputError) as caught:
        call()
    assert time.process_time() - start < most
    return str(caught.value)


@pytest.mark.thorough
def test_a_plain_zero_has_a_reciprocal():
    formula = "erfc((softplus(s)/relu(s)))"
    assert "unbounded" in _refused(lambda: sparsity.evaluate(formula, beta=0.0, gamma=1.0))


@pytest.mark.parametrize("formula", ["sinh(s**3)", "exp(s**3)"])
def test_a_weight_that_outgrows_the_scores_is_refused_at_once(formula):
    assert "is infinite" in _refused(lambda: sparsity.evaluate(formula, beta=0.0, gamma=1.0))


def test_growth_that_ends_is_no_infinite_moment():
    found = sparsity.evaluate("exp(min(s, 5)**3)", beta=0.0, gamma=1.0)
    assert 0 < found.value < 1e-3


@pytest.mark.parametrize("kernel", ["exp", "softplus", "sigmoid"])
@pytest.mark.parametrize("gamma", [1e6, 1e10, 2.0**53, 1e308])
def test_a_spread_too_wide_for_the_exact_law_is_refused_at_once(kernel, gamma):
    said = _refused(lambda: sparsity.exact(kernel, length=64, beta=0.0, gamma=gamma))
    assert "too wide a range" in said


@pytest.mark.parametrize("kernel", ["exp", "softplus"])
def test_a_spread_below_normal_numbers_is_refused(kernel):
    said = _refused(lambda: sparsity.exact(kernel, length=4, beta=0.0, gamma=5e-324))
    assert said.startswith("gamma = ")
