"""What routes are off by: no more than a small multiple of what is recorded, worst cases with it."""

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf

import sparsity
from sparsity.exact_law import rules


def n_eff_of_two(gamma):
    """E[(Σa)²/Σa²] = 1 + E[1/cosh d] of two softmax weights, d ~ N(0, 2γ²) between their scores."""
    with mp.workdps(30):
        spread = mpf(gamma) * mpmath.sqrt(2)
        density = lambda d: mpmath.npdf(d, 0, spread) * mpmath.sech(d)  # noqa: E731
        reach = min(14 * spread, 80)
        half: Any = mpmath.quad(density, mpmath.linspace(0, reach, 40))
        return 1 + 2 * half


@pytest.mark.parametrize("gamma", [1.0, 30.0, 137.3])
def test_the_sum_over_a_grid_has_the_step_of_its_grid(gamma):
    # NumPy's arange steps by (start + step) − start: this was off by 2e-14 … 9e-13.
    found = float(sparsity.exact("exp", gamma=gamma, length=2))
    assert abs(found / n_eff_of_two(gamma) - 1) < 4e-15


def test_points_of_a_grid_are_rounded_one_by_one():
    low, step = -20_000.3, 0.16
    points = rules.spaced(low, 400.0, step)
    assert len(points) == math.ceil((400.0 - low) / step) > 100_000
    ideal = low + step * np.arange(len(points))
    assert np.array_equal(points, ideal)
    assert points[-1] < 400.0
    off = np.arange(low, 400.0, step)[-1] - points[-1]
    assert abs(off) > 1e-8  # what it is for


def test_the_bound_of_an_index_next_to_one_holds_its_rounding():
    found = sparsity.evaluate("exp", gamma=4.0, of="pq_index:2,3.5", length=100)
    with mp.workdps(40):
        off = abs(mpf(float(found.value)) + mpmath.expm1(mpf(-12)))
    assert 0 < off < float(found.error_bound)  # the bound was 1e-18, the error 1.5e-17
