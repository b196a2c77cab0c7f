"""Cells of rows for the reference grid: every step, every quantity, theory against sampled rows."""

from __future__ import annotations

import math

import numpy as np

from sparsity.crosscheck.cells import Question
from sparsity.kernels import Kernel, entmax, exp, identity, relu2
from sparsity.rows.row import Row
from sparsity.rows.scores import Empirical, Mixture, StudentT, Uniform
from sparsity.rows.steps import (
    Alibi,
    Coca,
    Decay,
    LengthBias,
    QKNorm,
    Rope,
    ScalableSoftmax,
    Sink,
    SinkLogit,
    Window,
)
from sparsity.rows.tokens import Step


def of_rows(row: Row, length: int, quantity: str = "n_eff") -> Question:
    """The exact law of a quantity of whole rows, held against sampled ones."""
    return Question(row, ("exact law", "whole rows"), quantity, length)


def reference_cells() -> tuple[Question, ...]:
    """The cells of steps: every step, every law of scores, every quantity, three kernels.

    Cells of one kernel share their length where they can: they compile once.
    """
    mixed = (Decay(0.9), Alibi(0.05), Window(4), Sink(1.0, 0.3))
    found = []
    for kernel, beta, gamma, steps, length, quantity in (
        (exp, 0.0, 0.5, (), 8, "participation"),
        (exp, 0.0, 0.4, (), 8, "entropy"),
        (exp, 0.0, 0.4, (), 8, "max_weight"),
        (relu2, 1.5, 0.4, (), 8, "max_weight"),
        (identity, 2.0, 0.5, (), 8, "max_weight"),
        (exp, 0.0, 0.4, (), 8, "top_k_mass:3"),
        (exp, 0.0, 4.0, (), 8, "gini"),
        (exp, 0.0, 4.0, (), 8, "hoyer"),
        (exp, 0.0, 0.4, (SinkLogit(2.8),), 8, "sink_mass_above:0.6"),
        (relu2, 1.5, 0.2, (Alibi(0.2),), 8, "power_sum:3"),
        (relu2, 1.5, 0.2, (Alibi(0.2),), 8, "entropy"),
        (exp, 0.0, 0.4, (Window(4), SinkLogit(1.0)), 8, "entropy"),
        (exp, 0.0, 0.4, (Decay(0.8),), 8, "n_eff"),
        (identity, 2.0, 0.5, (Decay(0.7),), 8, "n_eff"),
        (exp, 0.0, 0.4, (Alibi(0.3),), 8, "n_eff"),
        (relu2, 2.0, 0.3, (Alibi(0.2),), 8, "n_eff"),
        (identity, 0.0, 1.0, (Alibi(0.2),), 8, "limit"),
        (exp, 0.0, 0.5, (Window(4),), 8, "n_eff"),
        (relu2, 1.0, 0.3, (Window(4),), 8, "n_eff"),
        (exp, 0.0, 0.7, (ScalableSoftmax(),), 8, "n_eff"),
        (relu2, 3.5, 0.4, (LengthBias(),), 8, "n_eff"),
        (exp, 0.0, 0.4, (SinkLogit(),), 8, "sink_mass"),
        (exp, 0.0, 0.4, (SinkLogit(1.5),), 8, "participation"),
        (exp, 0.0, 0.7, (SinkLogit(math.log(8) + 0.7**2 / 2),), 8, "sink_mass"),  # about ½
        (relu2, 1.5, 0.4, (SinkLogit(2.0),), 8, "sink_mass"),
        (exp, 0.0, 0.7, (Sink(2.0),), 8, "sink_mass"),
        (exp, 0.0, 0.5, (Sink(1.0, 0.3),), 8, "n_eff"),
        (exp, 0.0, 0.5, (QKNorm(4),), 4, "n_eff"),
        (relu2, 1.5, 0.3, (QKNorm(2),), 4, "n_eff"),
        (exp, 0.0, 0.5, (QKNorm(4),), 4, "limit"),
        (exp, 0.0, 0.4, (Uniform(),), 8, "n_eff"),
        (relu2, 1.5, 0.4, (StudentT(12),), 8, "entropy"),
        (exp, 0.0, 0.4, (Mixture(((0.9, 0.0, 1.0), (0.1, 4.0, 0.5))),), 8, "entropy"),
        (identity, 2.0, 0.5, (Empirical((-2.0, -0.5, 0.0, 0.25, 3.0)),), 8, "n_eff"),
        (exp, 0.5, 0.5, (*mixed, SinkLogit(1.0)), 8, "sink_mass"),
        (relu2, 1.5, 0.4, mixed, 8, "n_eff"),
    ):
        row = Row(kernel, beta=beta, gamma=gamma, steps=steps)
        pooled = Question(row, ("limit", "pooled rows"), "S", length)
        found.append(pooled if quantity == "limit" else of_rows(row, length, quantity))
    return tuple(found)


def _turned(
    kernel: Kernel, form: str, length: int, dim: int, pairing: str, spread: float, seed: int = 0
) -> Question:
    """n_eff of a row with rotary positions, from rotated vectors.

    The form is "rope" (‖q‖ = ‖μ‖ = 1, spread the γ of the scores), "coca" or "slack" (‖q‖² = d/2,
    center 1/4, spread the spread/center of t); the seed is that of the query and the mean key.
    """
    rng = np.random.default_rng([seed, dim])
    q, mu = rng.standard_normal((2, dim))
    q /= np.linalg.norm(q)
    if form == "rope":
        step: Step = Rope(q, mu / np.linalg.norm(mu), spread, pairing)
    else:
        at = 3 * length if form == "slack" else None
        step = Coca(q * (dim / 2) ** 0.5, 0.25, 0.25 * spread, pairing, slack_at=at)
    return of_rows(Row(kernel, steps=(step,)), length)


ROTARY_CELLS: tuple[Question, ...] = (
    _turned(exp, "rope", 16, 8, "interleaved", 0.15),
    _turned(relu2, "rope", 4, 4, "half", 0.07, seed=5),
    _turned(exp, "coca", 16, 8, "half", 0.1),
    _turned(exp, "coca", 16, 8, "half", 0.6),
    _turned(identity, "coca", 16, 8, "interleaved", 0.1),
    _turned(exp, "slack", 16, 8, "half", 0.35),
)

# Of maps of whole rows, where few rows are enough.
MAP_CELLS: tuple[Question, ...] = (
    of_rows(Row(entmax(1.25), gamma=0.3), 4, "participation"),
    of_rows(Row(entmax(1.25), gamma=1.0), 4, "support"),
)
