"""Laws that need a third integral: largest weight and n_eff of rows of maps."""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import ndtr

from sparsity import Row
from sparsity.crosscheck.cells import Question
from sparsity.crosscheck.verify import check
from sparsity.exact_law.maps import entmax, sparsemax


def two_keys(alpha, gamma, weigh):
    """The mean of a function of both weights over rows of two, from the smaller one."""
    q, s = 1 / (alpha - 1), math.sqrt(2) * gamma

    def body(y):
        x = (1 - y**q) ** (1 / q)
        d, slope = q * (x - y), q * (1 + (y / x) ** (q - 1))
        return (
            2
            * math.exp(-d * d / (2 * s * s))
            / (s * math.sqrt(2 * math.pi))
            * slope
            * weigh(x**q, y**q)
        )

    top = 0.5 ** (1 / q)
    cuts = [0.0, *(top * (1 - 10.0**-k) for k in (0.1, 0.3, 0.6, 1, 1.5, 2, 3)), top]
    ends = itertools.pairwise(cuts)
    both = sum(quad(body, a, b, epsabs=1e-16, epsrel=1e-13)[0] for a, b in ends)
    return 2 * ndtr(-q / s) * weigh(1.0, 0.0) + both


OF_TWO = {
    1.0: lambda x, y: 1 / (x * x + y * y),
    0.5: lambda x, y: (x * x + y * y) ** -0.5,
    None: lambda x, y: x,
}


@pytest.mark.parametrize("gamma", [1e-4, 0.3, 1e4])
def test_the_largest_weight_of_two_keys_of_sparsemax(gamma):
    value, error = sparsemax.max_weight(gamma, np.array([1, 2]))
    s = math.sqrt(2) * gamma
    cuts = [x * s for x in (0.5, 2, 5, 9) if x * s < 1]

    def density(d):
        return 2 * math.exp(-(d**2) / (2 * s * s)) / (s * math.sqrt(2 * math.pi))

    body = quad(lambda d: (1 + d) / 2 * density(d), 0, 1, epsabs=1e-15, epsrel=1e-13, points=cuts)
    assert value[0] == 1
    assert abs(value[1] / (2 * ndtr(-1 / s) + body[0]) - 1) <= min(error[1], 1e-11)


@pytest.mark.parametrize(("gamma", "power"), [(0.3, 0.5), (100.0, 1.0)])
def test_n_eff_of_two_keys_of_sparsemax(gamma, power):
    (value,), (error,) = sparsemax.n_eff_powers(gamma, np.array([2]), power)
    assert abs(value / two_keys(2.0, gamma, OF_TWO[power]) - 1) <= 2e-12  # what quad resolves
    assert error < 1e-7
    if gamma < 50:  # beyond, one key has the weight nearly always
        planted = two_keys(2.0, gamma * (1 + 1e-4), OF_TWO[power])
        assert abs(value / planted - 1) > 1e-11


def test_row_lengths_that_share_a_contour():
    gamma = 1000.0
    n = np.unique(np.round(np.geomspace(2, 65536, 20)))[::-1]
    with np.errstate(all="ignore"):
        groups = sparsemax.lengths_by_contour(n[::-1], 1 / gamma)
    together, _ = sparsemax.n_eff_powers(gamma, n, 1.0)
    for length in (2, 16, 256, 65536):
        (i,) = np.flatnonzero(n == n[np.abs(n - length).argmin()])
        (alone,), _ = sparsemax.n_eff_powers(gamma, n[i : i + 1], 1.0)
        assert abs(together[i] / alone - 1) <= 2e-11
    assert len(groups) < len(n) or gamma < 1


def test_the_largest_of_many_scores():
    for n, first in ((2, 1 / math.sqrt(math.pi)), (3, 1.5 / math.sqrt(math.pi))):
        assert_allclose(sparsemax.expected_maximum(n), first, rtol=1e-13)
    assert_allclose(sparsemax.expected_maximum(2, 2), 1, rtol=1e-13)


@pytest.mark.slow
def test_two_keys_of_entmax():
    gamma = 0.3
    for power in (1.0, None):
        weigh = OF_TWO[power]
        (value,), (error,) = entmax.powers_and_largest(gamma, np.array([2]), power)
        true = two_keys(1.5, gamma, weigh)
        assert abs(value / true - 1) <= min(error, 1e-9)
        assert error < (1e-7 if power else 1e-9)
        planted = two_keys(1.5, gamma * (1 + 1e-4), weigh)
        assert abs(value / planted - 1) > error


@pytest.mark.slow
def test_even_rows_of_entmax_by_both_routes():
    """Powers of γ against the integrals, at a spread at which both hold."""
    for power in (1.0, None):
        rough, bound = entmax.even_rows(1e-3, 64.0, power)
        row = entmax.EntmaxThreeHalves(1e-3)
        with np.errstate(all="ignore"):
            fine, off = entmax.by_grids(row, 64.0, power, 64.0)
        assert abs(rough / fine - 1) <= bound + off < 1e-4
        assert abs(rough * 64.0 ** (-1 if power else 1) - 1) > 50 * (off + 1e-14)


# Wrong formulas.


def test_planted_wrong_laws_are_rejected():
    """Sparsemax without the largest score's own law."""
    cell = Question(Row("sparsemax", gamma=1.0), ("exact law", "whole rows"), "max_weight", 8)
    (right,) = check([cell], seed=4, detectable=2e-2)
    assert right.verdict == "agree"
    (judged,) = check(
        [cell], theory=lambda *_: math.log(1 / 8 + 1.42), sample=lambda *_: right.estimate,
        detectable=2e-2,
    )  # fmt: skip
    assert judged.verdict == "disagree"
