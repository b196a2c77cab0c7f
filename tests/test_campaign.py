"""The campaign against the quadrature: its own machinery, and a fixed sample of its cells."""

import math

import pytest

pytest.importorskip("flint")

import mpmath
from mpmath import mp, mpf
from sympy import Symbol, exp, log

from benchmarks.campaign.blocks import BLOCKS
from benchmarks.campaign.cells import Cell, load, parse, text
from benchmarks.campaign.judge import Answer, ask, judge
from benchmarks.campaign.reference import log_s
from benchmarks.campaign.run import FAILURES, report, sample, verdicts
from benchmarks.campaign.worker import Late, Worker

SAMPLE = 120
s = Symbol("s", real=True)


def _cell(log_S, method="Arb"):
    return Cell("exp(s)", (0.0).hex(), (1.0).hex(), "named", log_S, method)


def _answer(value, bound, reason=""):
    shown = None if value is None else value.hex()
    return Answer(shown, None if value is None else bound.hex(), reason, "", 0.1)


def test_a_kernel_comes_back_from_its_text():
    assert len({name for name, _ in BLOCKS}) == len(BLOCKS) >= 36
    for name, block in BLOCKS:
        assert parse(text(block)) == block, name


@pytest.mark.thorough
def test_references_known_by_hand():
    assert log_s(exp(s), 0.0, 3.0).log_S == "-4.50000000000000000000000000000000"
    tail = log_s(log(1 + exp(s)), -1100.0, 3.0)
    assert (tail.method, float(tail.log_S)) == ("Arb", -4.5)
    assert log_s(1 / s, 0.0, 1.0).method == "infinite"
    assert log_s(log(s), 0.0, 1.0).method == "not real"
    assert log_s(exp(s**2 / 8), 0.0, 2.0).method == "infinite"


@pytest.mark.parametrize(
    ("cell", "answer", "outcome"),
    [
        (_cell("-0.5"), _answer(-0.5, 1e-14), "agreed"),
        (_cell("-0.5"), _answer(-0.5 - 1e-9, 1e-14), "violated"),
        (_cell("-0.5"), _answer(-0.5 - 1e-9, 1e-8), "agreed"),
        (_cell("-0.5"), _answer(-0.5, math.nan), "violated"),
        (_cell("-0.5"), _answer(math.nan, 1.0), "violated"),
        (_cell("-0.5"), _answer(None, None, "infinite"), "refused"),
        (_cell(None, "infinite"), _answer(None, None, "infinite"), "refused rightly"),
        (_cell(None, "infinite"), _answer(-0.5, 1e-14), "violated"),
        (_cell(None, "none: time"), _answer(-0.5, 1e-14), "unjudged"),
        (_cell("-0.5"), None, "late"),
        (_cell("-0.5"), Answer(None, None, "", "ZeroDivisionError", 0.1), "crashed"),
    ],
)
def test_verdicts(cell, answer, outcome):
    verdict = judge(cell, answer)
    assert verdict.outcome == outcome
    assert f"| {outcome} | 1 |" in report([verdict])


def test_a_cell_that_hangs_is_ended():
    worker = Worker(math.factorial, (1,))
    with pytest.raises(Late):
        worker(0.5, 10**8)
    assert worker(20.0, 5) == 120
    worker.close()


def test_the_library_is_asked():
    answer = ask("exp(s)", (0.3).hex(), (2.0).hex())
    assert judge(_cell("-2"), answer).outcome == "agreed"
    assert ask("exp(exp(s))", (0.0).hex(), (1.0).hex()).log_S is None


@pytest.mark.slow
def test_a_sample_of_the_campaign():
    chosen = sample(load(), SAMPLE)
    found = verdicts(chosen)
    assert len(found) == SAMPLE
    judged = [v for v in found if v.outcome in ("agreed", "violated")]
    assert len(judged) >= 80
    # Negative control: a reference moved by 1e-9 is seen wherever the bound is below 1e-10.
    sharp = [v for v in judged if v.outcome == "agreed" and v.bound < 1e-10]
    assert len(sharp) >= 40
    for verdict in sharp:
        with mp.workdps(60):
            log_S = mpmath.nstr(mpf(verdict.cell.log_S) + mpf("1e-9"), 45)
        moved = Cell(*verdict.cell.key, verdict.cell.kind, log_S, "Arb")
        assert judge(moved, verdict.answer).outcome == "violated", verdict

    bad = [v for v in found if v.outcome in FAILURES]
    assert not bad, report(bad)
