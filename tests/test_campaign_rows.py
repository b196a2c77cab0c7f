"""The campaign over rows of n: a fixed part of its cells, and planted mistakes it must find."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.campaign import rows
from benchmarks.campaign.row_cells import Cell, draw, row_of
from benchmarks.campaign.row_reference import KERNELS, Mean
from benchmarks.campaign.rows import Verdict, ask, judge, reference, report
from sparsity import Row, kernels, quantities
from sparsity.exact_law import engine
from sparsity.rows import steps

CELLS, SEED = 20, 7
SLOW = ("alibi", "rope", "decay")  # steps after which every token differs
SLOW_MAPS = ("entmax", "sparsemax")


def _quick(cell: Cell) -> bool:
    differ = any(name in SLOW for name, _ in cell.steps) and cell.length > 2
    heavy = cell.scores is not None and cell.scores[0] in ("t", "mixture", "qk-norm")
    kernel = cell.kernel.startswith(SLOW_MAPS)
    return not (differ or heavy or kernel or cell.length > 100)


@pytest.fixture(scope="module")
def judged() -> list[Verdict]:
    cells = itertools.islice(filter(_quick, draw(160, SEED)), CELLS)
    return [judge(cell, ask(cell.key)) for cell in cells]


@pytest.mark.slow
def test_a_part_of_the_campaign_agrees(judged):
    found = [v.outcome for v in judged]
    assert len(found) == CELLS
    assert not {"violated", "crashed"} & set(found), report(judged)
    assert found.count("agreed") >= 18
    assert sum(not v.sampled and v.error < 1e-9 for v in judged if v.outcome == "agreed") >= 6


@pytest.mark.thorough
def test_an_answer_that_is_off_is_a_violation():
    """Negative control: by brute force known to 1e-9, a value that is off by 1e-6 is convicted."""
    short = [cell for cell in filter(_quick, draw(160, SEED)) if cell.length <= 2]
    judged = [judge(cell, ask(cell.key)) for cell in short[:12]]
    sharp = [v for v in judged if v.outcome == "agreed" and not v.sampled and v.error < 1e-9]
    sharp = [v for v in sharp if v.bound < 1e-7]  # an error within its own bound is none
    for v in sharp:
        worse = v.value * (1 + 1e-6) + 1e-12
        assert rows.holds(v.cell, v.value, v.bound, Mean(v.mean, v.error, v.sampled)), v
        assert not rows.holds(v.cell, worse, v.bound, Mean(v.mean, v.error, v.sampled)), v
    assert len(sharp) >= 3


def _cell(of="participation", n=64, steps=(("sink-logit", (1.0,)),)):
    return Cell("exp", {"beta": 0.0, "gamma": 1.0}, steps, None, n, of, 3)


@pytest.mark.thorough
@pytest.mark.parametrize("n", [2, 64])
def test_a_planted_formula_is_a_violation(n, monkeypatch):
    """φ^(n + 1) for φ^n in every integral, against brute force and against a sample."""
    cell, one = _cell(n=n), engine.integrate_over_u
    assert judge(cell, ask(cell.key)).outcome == "agreed"

    def planted(sums, body, *rest):
        return one(sums, body * np.exp(sums.log_phi / cell.length), *rest)

    monkeypatch.setattr(engine, "integrate_over_u", planted)
    verdict = judge(cell, ask(cell.key))
    assert verdict.outcome == "violated"
    assert verdict.sampled == (n == 64)
    assert "| violated | 1 |" in report([verdict])


def test_a_bound_that_is_too_small_is_a_violation():
    value, bound, *others = ask(_cell(n=2).key)
    assert value is not None
    off = value * (1 + 1e-9)
    assert judge(_cell(n=2), (off, 1e-8, *others)).outcome == "agreed"
    assert judge(_cell(n=2), (off, bound, *others)).outcome == "violated"
    assert judge(_cell(n=2), (np.nan, bound, *others)).outcome == "violated"


def test_what_is_no_answer_is_counted():
    cell = _cell()
    assert judge(cell, (None, np.nan, "row: too long", "", 0.1)).outcome == "refused"
    assert judge(cell, (None, np.nan, "", "ValueError: x", 0.1)).outcome == "crashed"
    assert judge(cell, (1.0, 1e-12, "", "", rows.LIMIT + 1)).outcome == "late"
    refused = ask(replace(cell, of="max_weight", steps=(("alibi", (0.1,)),)).key)
    assert refused[0] is None
    assert "use estimate" in refused[2]


def test_cells_are_always_the_same_and_come_back_from_their_text():
    first = draw(60, SEED)
    assert [cell.key for cell in first] == [cell.key for cell in draw(120, SEED)[:60]]
    assert [Cell.of_key(cell.key).key for cell in first] == [cell.key for cell in first]
    assert all(isinstance(row_of(cell), Row) for cell in first)
    verdict = Verdict(first[0], "agreed", "", 1.0, 1e-12, 1.0, 1e-13, False, 0.1)
    assert Verdict.of_line(verdict.line).outcome == "agreed"


def test_every_quantity_and_step_is_drawn():
    """But recall of routers, and CoCA, whose law of scores the reference does not draw."""
    cells = draw(1500, SEED)
    asked = {cell.of.partition(":")[0] for cell in cells}
    every = (*quantities.ALL, *quantities.FAMILIES, *quantities.OF_MAPS)
    assert {x.name for x in every} - asked == {"recall"}
    made = {name for cell in cells for name, _ in cell.steps}
    laws = {cell.scores[0] for cell in cells if cell.scores}
    assert {step.name for step in steps.ALL} - made - laws == {"coca"}


def test_kernels_of_the_reference_are_those_of_the_library():
    """Written by hand twice: the same logarithm at scores on both sides of every kink."""
    from sparsity.kernels.numeric.definition import definition
    from sparsity.kernels.numeric.points import Approx

    s = np.linspace(-6.05, 6.05, 40)
    for name, (log_f, _) in KERNELS.items():
        own = definition(kernels.named(name)).values_at(s, Approx(np.zeros(len(s)))).log
        with np.errstate(divide="ignore"):
            np.testing.assert_allclose(log_f(s), own, rtol=1e-12, atol=1e-13, err_msg=name)


@pytest.mark.parametrize(
    "cell",
    [
        Cell("exp", {"beta": 0.0, "gamma": 6.0}, (("sink-logit", (40.0,)),), None, 4,
             "power_sum:8", 1),
        # One row in 10³¹ has a score above 0, and with it all there is of the mean.
        Cell("gelu", {"beta": -6.272, "gamma": 0.016524},
             (("sink-logit", (7.3654,)), ("decay", (0.59418,)), ("log-n", (2, 0.5))),
             ("t", (12.0,)), 40, "participation", 173),
    ],
)  # fmt: skip
def test_a_sample_whose_mean_a_few_rows_make_says_nothing(cell):
    mean = reference(cell, sampled=True)
    assert mean is not None
    assert mean.error == np.inf
    assert judge(cell, ask(cell.key)).outcome == "unjudged"


@pytest.mark.parametrize(
    "cell",
    [
        Cell("1/abs(s)**0.4", {"beta": 5.3, "gamma": 1.0}, (("sink-logit", (10.0,)),), None, 2,
             "power_sum:2", 1),
        Cell("sparsemax", {"gamma": 0.08}, (), None, 3, "support", 1),
        Cell("exp", {"beta": -9.5, "gamma": 0.9}, (("sink-logit", (5.3,)),), None, 2,
             "power_sum:7.5", 1),
        Cell("relu3", {"beta": 1.6, "gamma": 0.2}, (("sink", (4.3, 1.4)),), ("t", (4.0,)), 2,
             "abs_sum", 1),
    ],
)  # fmt: skip
def test_a_reference_knows_what_it_may_have_missed(cell):
    """A pole of f² with a part in a million of its mean; a support that no row had; far scores."""
    assert judge(cell, ask(cell.key)).outcome == "agreed"
