"""Formulas at random: a value that plain quadrature confirms, or one line, in seconds."""

import collections
import types

import numpy as np
import pytest
import random_formulas
from random_formulas import FINE, Asked, asked, examine, outcome, plain, wrong

import sparsity
from sparsity import NoClosedForm

FOUND = {  # what took over 10 CPU seconds or ended in another error: now a value or one line
    "erf(sin(exp(abs(s))))": (-1e6, 1e4, "unbounded at more scores"),
    "atan(s**3)": (0.0, 1e4, None),
    "atan(1/s)": (0.0, 0.01, None),
}


@pytest.mark.thorough
@pytest.mark.parametrize("formula", FOUND)
def test_what_was_found_at_random(formula):
    beta, gamma, line = FOUND[formula]
    cell = Asked(formula, beta, gamma)
    how, said = outcome(lambda: sparsity.evaluate(formula, beta=beta, gamma=gamma))
    if line is None:
        assert (how, wrong(cell, said)) == ("found", "agrees")
    else:
        assert how == "refused"
        assert line in said


def test_numbers_that_sympy_cannot_compare_are_no_closed_form():
    with pytest.raises(NoClosedForm, match="SymPy cannot"):
        sparsity.derive("where(s <= abs(s), s**2, 1e-24)/min(cosh(1e-8), s*s)")


def _census(seeds, derive=False):
    counts, odd = collections.Counter(), []
    for seed in seeds:
        said = examine(asked(seed), derive=derive)
        counts.update(said)
        odd += [(seed, asked(seed), x) for x in said if x not in FINE]
    return counts, odd


@pytest.mark.thorough
def test_formulas_at_random():
    counts, odd = _census(range(1003, 1013))
    assert not odd
    assert counts["evaluate found"] + counts["evaluate refused"] == 10
    assert counts["exact found"] + counts["exact refused"] == 10
    assert counts["evaluate agrees"] >= 4


@pytest.mark.slow
def test_many_formulas_at_random():
    counts, odd = _census(range(600), derive=True)
    assert not odd
    assert counts["evaluate found"] + counts["evaluate refused"] == 600
    assert counts["derive found"] + counts["derive refused"] >= 300  # those that take seconds
    assert counts["evaluate agrees"] >= 300


def test_plain_quadrature_knows_what_is_known():
    for formula, exact in {
        "exp(s)": np.exp(-0.5),
        "s": np.sqrt(2 / np.pi),
        "where(s > 0.3, 2, 0)": np.sqrt(0.3820885778110474),
    }.items():
        value, off = plain(Asked(formula, 0.0, 1.0))
        assert abs(value / exact - 1) <= 10 * off + 1e-9
        assert off < 1e-3


def _answer(value, bound):
    return types.SimpleNamespace(value=value, error_bound=bound)


def test_the_examination_sees_what_is_wrong(monkeypatch):
    cell, right = Asked("exp(s)", 0.0, 1.0), np.exp(-0.5)
    assert wrong(cell, _answer(right, 1e-12)) == "agrees"
    assert "plain quadrature" in str(wrong(cell, _answer(right * (1 + 1e-7), 1e-12)))
    assert "bound" in str(wrong(cell, _answer(right, 2e-3)))
    assert "bound" in str(wrong(cell, _answer(np.nan, 1e-12)))

    def fail(error):
        raise error

    def endless():
        while True:
            pass

    assert outcome(lambda: fail(ZeroDivisionError("planted")))[0].startswith("raised Zero")
    assert outcome(lambda: fail(NoClosedForm("a", "one\ntwo")))[0] == "several lines"
    assert outcome(endless, 0.05)[0] == "hang"
    planted = _answer(right * 1.01, 1e-12)
    monkeypatch.setattr(random_formulas, "asked", lambda seed: cell)
    monkeypatch.setattr(sparsity, "evaluate", lambda *_, **__: planted)
    assert any("plain quadrature" in x for x in examine(cell, derive=False))
