"""No answer depends on a clock: a machine that is ten times as slow or as fast says the same."""

import time

import pytest

from sparsity import Alibi, Row, derivation, derive, design, estimate, sweep
from sparsity.sampling import batches, running

CLOCKS = ("perf_counter", "monotonic", "process_time", "thread_time", "time")


def ask_estimate():
    found = estimate("exp", method="plain", gamma=1.0, rel_error=2e-3, seed=4)
    return found.value, found.stderr, found.samples, found.stopped


def ask_sweep():
    grids = {"beta": 0.5, "gamma": [1, 2], "length": [16]}
    found = sweep("relu2", montecarlo=True, rel_error=0.01, **grids)
    return {name: found[name].values.tolist() for name in found.data_vars}


def ask_design():
    row = Row("exp", gamma=2, steps=(Alibi(0.5),))
    return design(row, length=64, n_eff=8, free="slope").summary()


def ask_derive():
    """Of a formula that is not short."""
    derivation._derive.cache_clear()
    found = derive("exp(2*s) + cosh(1)")
    return str(found.S), len(found.limits)


QUESTIONS = [
    ask_design,
    pytest.param(ask_derive, marks=pytest.mark.thorough),
    ask_estimate,
    pytest.param(ask_sweep, marks=pytest.mark.thorough),
]


@pytest.mark.parametrize("ask", QUESTIONS)
def test_an_answer_is_the_same_under_another_clock(ask, monkeypatch):
    def rounded(sampler, chunks):  # as on an accelerator: many to full calls, few not
        return -(-chunks // 8) * 8 if chunks > 8 else chunks

    for module in (batches, running):
        monkeypatch.setattr(module, "full_calls", rounded)
    answers = [ask()]
    for factor in (10.0, 1e3):  # times the one before
        for name in CLOCKS:
            own = getattr(time, name)
            monkeypatch.setattr(time, name, lambda own=own, by=factor: by * own())
        answers.append(ask())
    assert answers[1] == answers[0]
    assert answers[2] == answers[0]
