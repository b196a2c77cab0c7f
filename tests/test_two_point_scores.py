"""Rows whose scores are one of two points: the law by adding up all rows, to 40 digits.

Next to such laws φ has zeros close to the real axis, where the polynomials that shift a token's
table along u are worst: their error has to be in the bound.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import mpmath
import numpy as np

from sparsity import Alibi, Mixture, Row, SinkLogit, exact
from sparsity.exact_law.sums import token_sums

ORDERS = (1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0)


def by_all_rows(
    p: float, height: float, length: int, order: float, slope: float, logit: float
) -> Any:
    """E Σ p_j^order of rows whose scores are 0 with chance p and `height` else, less their mean."""
    with mpmath.workdps(40):
        p, height = mpmath.mpf(p), mpmath.mpf(height)
        points, total = ((p, -height * (1 - p)), (1 - p, height * p)), mpmath.mpf(0)
        for row in itertools.product(points, repeat=length):
            a = [mpmath.e ** (s - mpmath.mpf(slope) * j) for j, (_, s) in enumerate(row)]
            whole = sum(a) + mpmath.e ** mpmath.mpf(logit)
            chance = mpmath.fprod(each for each, _ in row)
            total += chance * sum((x / whole) ** mpmath.mpf(order) for x in a)
        return total


def share_of_the_bound(rng: np.random.Generator) -> float:
    """The error of a random law over its bound."""
    p, height = float(10 ** rng.uniform(-6, -0.4)), float(rng.uniform(0.3, 9))
    length, order = int(rng.integers(1, 5)), float(rng.choice(ORDERS))
    logit, slope = float(rng.uniform(-2, 2)), float(rng.choice([0, rng.uniform(0, 1)]))
    steps = ((Alibi(slope),) if slope else ()) + (SinkLogit(logit),)
    scores = Mixture(((p, 0, 0), (1 - p, 1, 0)))
    row = Row("exp", beta=0.0, gamma=height * math.sqrt(p * (1 - p)), steps=steps, scores=scores)
    found = exact(row, length=length, of=f"power_sum:{order:g}")
    truth = by_all_rows(p, height, length, order, slope, logit)
    return float(abs(found.value / truth - 1)) / float(found.error_bound)


def test_the_bound_holds_the_polynomials_along_u():
    rng = np.random.default_rng(0)
    assert max(share_of_the_bound(rng) for _ in range(60)) < 0.5


def test_without_the_second_version_the_bound_would_not_hold(monkeypatch):
    """With ten points throughout, and the second version alike, the same rows leave the bound."""
    for name, number in {"_TAPS": 10, "_MANY_TAPS": 10, "_FEWER": 0}.items():
        monkeypatch.setattr(token_sums, name, number)
    rng = np.random.default_rng(0)
    assert sum(share_of_the_bound(rng) > 1 for _ in range(60)) >= 10


def test_with_fewer_points_it_holds_as_well(monkeypatch):
    monkeypatch.setattr(token_sums, "_TAPS", 10)
    monkeypatch.setattr(token_sums, "_MANY_TAPS", 10)
    rng = np.random.default_rng(0)
    assert max(share_of_the_bound(rng) for _ in range(60)) < 1
