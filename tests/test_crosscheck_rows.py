"""Cells of steps, sinks and rotary positions: the right law agrees, each planted one does not.

The laws that errors are planted in are written out here, on a rule of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from sparsity import Coca, FloorLog, LogLength, Rope, Row, ScaleInvariant, SoftCap, Yarn, exact
from sparsity.crosscheck.cells import Question
from sparsity.crosscheck.reference_grid import (
    MAP_CELLS,
    ROTARY_CELLS,
    cells_of_steps,
    of_rows,
    reference_grid,
)
from sparsity.crosscheck.verify import check
from sparsity.kernels import exp

_U = np.arange(-45.0, 12.0, 0.1)
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(80)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def _step(cell: Question) -> Any:
    (step,) = cell.row.steps
    return step


PARTICIPATION = [of_rows(Row(exp, gamma=0.5), 8, "participation")]
ROPE = [c for c in ROTARY_CELLS if isinstance(_step(c), Rope)]
COCA = [c for c in ROTARY_CELLS if isinstance(_step(c), Coca) and _step(c).slack_at is None]


class Degrees(Rope):
    def theta(self, length: int) -> np.ndarray:
        return np.deg2rad(super().theta(length))


class CocaDegrees(Coca):
    def theta(self, length: int) -> np.ndarray:
        return np.deg2rad(super().theta(length))


def of_law(change: Callable[[Any], Any]) -> Callable[[Any], float]:
    """The theory of a rotary cell whose law is changed."""

    def wrong(cell: Question) -> float:
        row = Row(cell.kernel, steps=(change(_step(cell)),))
        return float(exact(row, length=cell.length).log_value)

    return wrong


def in_degrees(law: Any) -> Any:
    turned = Degrees if isinstance(law, Rope) else CocaDegrees
    return turned(**{field.name: getattr(law, field.name) for field in fields(law)})


def other_pairing(law: Any) -> Any:
    return replace(law, pairing="half" if law.pairing == "interleaved" else "interleaved")


def steps_of(kind: type[Any]) -> list[Question]:
    """The cells of one step alone."""
    return [c for c in cells_of_steps() if [type(x) for x in c.row.steps] == [kind]]


RULES = [cell for kind in (FloorLog, LogLength, Yarn, ScaleInvariant) for cell in steps_of(kind)]
CAP = steps_of(SoftCap)


def of_factors(change: Callable[[Any, np.ndarray, int], Any]) -> Callable[[Any], float]:
    """The theory of a cell of a temperature, whose β_j and γ_j are written out."""

    def law(cell: Question) -> float:
        assert cell.length is not None
        beta, factor = change(_step(cell), np.arange(cell.length)[::-1], cell.length)
        tokens = list(zip(beta, cell.row.gamma * factor, strict=True))
        return log_of_tokens(tokens, cell.quantity)

    return law


def log_of_tokens(tokens: list[tuple[float, float]], quantity: str) -> float:
    """Log n_eff, or log E Y₂, of weights e^s of independent normal scores, by one integral."""
    t = np.exp(_U)
    log_phi, ratios = np.zeros_like(t), []
    for beta, gamma in tokens:
        a = np.exp(beta + gamma * _NODES)
        x = a * a if quantity == "n_eff" else a
        e = np.exp(-t[:, None] * x)
        phi, m1, m2 = e @ _WEIGHTS, e @ (_WEIGHTS * a), e @ (_WEIGHTS * a * a)
        log_phi += np.log(np.maximum(phi, 1e-300))
        ratios.append((m1 / np.maximum(phi, 1e-300), m2 / np.maximum(phi, 1e-300)))
    first, second = np.array(ratios).swapaxes(0, 1)
    if quantity == "n_eff":
        inside = second.sum(0) + first.sum(0) ** 2 - (first**2).sum(0)
    else:
        inside = t * second.sum(0)
    return math.log((t * inside * np.exp(log_phi)).sum() * 0.1)


def written_out(step: Any, t: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """β_j and the factor on γ_j under each rule, as its paper or code has it, at distances t."""
    flat = np.ones(n)
    if isinstance(step, FloorLog):
        return 0 * flat, flat * (
            1 + step.slope * math.log(1 + (n - 1 + step.offset) // step.trained)
        )
    if isinstance(step, LogLength):
        return 0 * flat, flat * max(1.0, math.log(n) / math.log(step.trained))
    if isinstance(step, Yarn):
        return 0 * flat, flat * (1 + step.slope * math.log(step.extension)) ** 2
    square = 2 * np.log(t / step.scale + 1) + 1
    return 1 - square, np.sqrt(square)


def mistaken(step: Any, t: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The mistakes that each rule invites: offset, natural or not, the square, the bias."""
    beta, factor = written_out(step, t, n)
    if isinstance(step, FloorLog):
        return written_out(replace(step, offset=1 - step.offset), t, n)
    if isinstance(step, LogLength):
        return beta, factor * math.log(step.trained)
    if isinstance(step, Yarn):
        return beta, np.sqrt(factor)
    return 0 * beta, factor


def uncapped(cell: Question) -> float:
    return float(exact(Row(exp, gamma=cell.row.gamma), length=cell.length).log_value)


def by_nodes(cell: Question) -> float:
    """Log n_eff of capped scores, by one integral over quadrature of cap·tanh(s/cap)."""
    (cap,) = cell.row.steps
    a = np.exp(cap.cap * np.tanh(cell.row.gamma * _NODES / cap.cap))
    x, n = np.exp(_U)[:, None] * a * a, cell.length
    assert n is not None
    phi, m1, m2 = (f @ _WEIGHTS for f in (np.exp(-x), np.sqrt(x) * np.exp(-x), x * np.exp(-x)))
    body = n * m2 * phi ** (n - 1) + n * (n - 1) * m1**2 * phi ** (n - 2)
    return math.log(body.sum() * 0.1)


# cells, the honest law, the planted one, and how many of the cells must reject it
PLANTED: dict[str, tuple[list[Any], Any, Any, int]] = {
    "temperatures: offset, base, square, bias": (
        RULES,
        of_factors(written_out),
        of_factors(mistaken),
        4,
    ),
    "soft cap: left out": (CAP, by_nodes, uncapped, 1),
    "RoPE: degrees for radians": (ROPE, of_law(lambda law: law), of_law(in_degrees), 1),
    "RoPE: wrong pairing": (ROPE, of_law(lambda law: law), of_law(other_pairing), 1),
    "CoCA: degrees for radians": (COCA, of_law(lambda law: law), of_law(in_degrees), 1),
    "CoCA: wrong pairing": (COCA, of_law(lambda law: law), of_law(other_pairing), 1),
    "CoCA: the slack form": (
        COCA,
        of_law(lambda law: law),
        of_law(lambda law: replace(law, slack_at=48)),
        1,
    ),
}


def test_the_grid_holds_every_cell_of_rows_and_positions():
    grid = reference_grid()
    assert all(isinstance(cell, Question) for cell in grid)
    assert sum(cell in grid for cell in cells_of_steps()) == len(cells_of_steps()) == 52
    assert sum(cell in grid for cell in ROTARY_CELLS) == len(ROTARY_CELLS) == 3
    assert sum(cell.quantity == "sink_mass" for cell in grid) == 6
    assert sum(cell in grid for cell in MAP_CELLS) == len(MAP_CELLS) == 4
    assert len(grid) == 236
    assert len(ROPE) == 1
    assert len(COCA) == 1
    only = reference_grid(("relu2",))
    assert {cell.kernel.name for cell in only} == {"relu2"}
    assert {cell.instruments[1] for cell in only} == {
        "scalars", "whole keys", "whole rows", "pooled rows",
    }  # fmt: skip
    assert {len(RULES), len(CAP)} == {4, 1}
    assert any(cell in reference_grid(("exp",)) for cell in CAP)
    assert any(
        isinstance(step, Rope) for cell in reference_grid(("exp",)) for step in cell.row.steps
    )


def test_the_written_out_laws_are_right_where_nothing_is_planted():
    for cells, honest, _, _ in PLANTED.values():
        for cell in cells:
            assert honest(cell) == pytest.approx(cell.theory(), abs=1e-9)


_FAMILIES = {id(cells): cells for cells, *_ in PLANTED.values()}


@pytest.fixture(scope="module")
def agreeing() -> dict[int, list[Any]]:
    """Every family of cells, sampled once and in agreement with the right theory."""
    found = {}
    for key, cells in _FAMILIES.items():
        judged = check(cells, seed=2, dtype=np.float32)
        assert [cell.verdict for cell in judged] == ["agree"] * len(cells)
        found[key] = judged
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("name", PLANTED)
def test_planted_error_is_rejected(name, agreeing):
    """`check` with the wrong theory, on the samples with which the right one agrees."""
    cells, _, wrong, rejecting = PLANTED[name]
    sampled: dict[int, Any] = {
        id(cell): judged.estimate for cell, judged in zip(cells, agreeing[id(cells)], strict=True)
    }
    planted = check(cells, theory=wrong, sample=lambda cell, _: sampled[id(cell)])
    assert [cell.verdict for cell in planted].count("disagree") == rejecting == len(cells)


def test_a_cell_of_rows_is_checked_like_any_other():
    planted = {"theory": lambda c: c.theory() + 1e-3, "dtype": np.float32}  # compiled above
    (judged,) = check(PARTICIPATION, seed=1, **planted)
    assert judged.verdict == "disagree"
    assert judged.quantity == "participation"
