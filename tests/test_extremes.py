"""Exact laws at the ends of their parameters: a right number or one line, within seconds."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import resource

import numpy as np
import pytest

import sparsity
from sparsity import Alibi, Decay, InputError, Row
from sparsity.exact_law.sums import token_pieces

GAMMA = (1e-6, 1e-3, 0.1, 1.0, 5.0, 20.0, 50.0, 300.0, 1e4, 1e9, 1e30, 1e99)
LENGTHS = (1, 2, 3, 10, 1000, 10**6, 10**12)
SUMS = ("n_eff", "S", "participation", "entropy", "power_sum:0.5", "power_sum:7.5")
LEAST = {"n_eff": 1.0}

CELLS = [
    *(
        (f"topk:{k}", {"gamma": g}, of)
        for k, g, of in itertools.product((1, 2, 8, 64, 10**9), GAMMA, SUMS)
    ),
    *(
        (name, {"gamma": g}, of)
        for name, g, of in itertools.product(
            ("sparsemax", "entmax1.5", "entmax:4"),
            GAMMA,
            ("n_eff", "S", "participation", "max_weight", "support"),
        )
    ),
]


def _scan(cells: list, seed: int) -> int:
    """Ask cells for a random length each; how many had a number."""
    lengths, numbers, wrong = random.Random(seed), 0, []
    for name, parameters, of in cells:
        n = lengths.choice(LENGTHS)
        cell = name, parameters, of, n
        try:
            found = sparsity.exact(name, length=n, of=of, **parameters)
        except InputError as refusal:
            blamed, said = refusal.argument, str(refusal)
            family = name.partition(":")[0]  # entmax = 4.0: must be from 1.01 to 2
            known = blamed in {*parameters, "of", "length", "weight", family}
            wrong += [] if known and "\n" not in said else [(cell, said)]
        else:
            numbers += 1
            value, bound = float(found.value), float(found.error_bound)
            assert math.isfinite(value), cell
            if bound < 1e-3:
                assert value >= LEAST.get(of, 0.0) * (1 - bound), cell
                assert of in ("entropy", "power_sum:0.5") or value <= n * (1 + bound)
    assert not wrong, wrong
    return numbers


@pytest.mark.thorough
def test_extremes_end_in_a_number_or_a_line():
    cells = random.Random(3).sample(CELLS, 10)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert _scan(cells, 4) > 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 2 * 2**20


@pytest.mark.slow
def test_every_extreme_ends_in_a_number_or_a_line():
    assert _scan(CELLS, 6) > 200


def test_spreads_out_of_reach_are_blamed():
    with pytest.raises(InputError, match="gamma = "):
        sparsity.exact("topk:8", length=64, gamma=1e99)


ROWS = [
    ("sigmoid", -1.0, 0.5, (Alibi(0.06), Decay(0.97)), 100),
    ("relu2", 1.0, 1.0, (Alibi(0.08),), 70),
]  # of more laws than are looked at one by one


@pytest.mark.thorough
@pytest.mark.parametrize(("row", "of"), [*zip(ROWS, ("n_eff", "power_sum:0.5"), strict=True)])
def test_interpolated_and_light_tokens_are_those_of_each_token(row, of, monkeypatch):
    """The same law with a transform for every token, and none left out."""
    name, beta, gamma, steps, n = row
    asked = Row(name, beta=beta, gamma=gamma, steps=steps)
    found = sparsity.exact(asked, length=n, of=of)

    def each(classes):
        return (
            token_pieces.InterpolatedLaws(np.array([i]), [one]) for i, one in enumerate(classes)
        )

    monkeypatch.setattr(token_pieces, "pieces", each)
    monkeypatch.setattr(token_pieces, "FEW_LAWS", 10**9)
    true = sparsity.exact(asked, length=n, of=of)
    assert float(found.value) == pytest.approx(float(true.value), rel=1e-12)
    assert float(found.error_bound) < 1e-10


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kernel", ["relu2", "abs", "softplus"])
def test_scores_at_the_ends_of_float64_end_in_a_number_or_a_line(kernel):
    ends = ("max_weight", "abs_sum"), (0, -3, 3e300), (1e-307, 1e9)
    for of, beta, gamma in itertools.product(*ends):
        with contextlib.suppress(InputError):
            assert sparsity.exact(kernel, beta=beta, gamma=gamma, length=2, of=of).value >= 0
