"""The law of a row given its largest logit, against its definition and drawn rows."""

import mpmath
import numpy as np
import pytest
from scipy.special import ndtri

from sparsity.attention.measurement.row_laws import head_law, log_head_law

LENGTHS = (2, 3, 64, 512, 10**6, 10**12)
SPREADS = (1e-8, 1e-3, 0.1, 1.0, 2.0, 5.0, 30.0, 200.0, 1e4)
ZETAS = (-30.0, -1.0, 0.0, 0.05, 1.0, 3.0, 6.0, 30.0, 37.0, 50.0)


def in_digits(n, gamma, top):
    """The definition, Φ and all, to 60 digits."""
    gamma, top = mpmath.mpf(gamma), mpmath.mpf(top)

    def cdf(x):
        return mpmath.erfc(-x / mpmath.sqrt(2)) / 2

    zeta, sums = top / gamma, []
    for k in (1, 2):
        below = cdf(zeta - k * gamma) / cdf(zeta)
        sums.append(mpmath.exp(k * top) + (n - 1) * mpmath.exp((k * gamma) ** 2 / 2) * below)
    return mpmath.log(sums[0]) - mpmath.log(sums[1]) / 2 - mpmath.log(n) / 2


def test_the_law_is_its_definition():
    worst, cells = 0.0, 0
    with mpmath.workdps(60):
        for n in LENGTHS:
            for gamma in SPREADS:
                for zeta in ZETAS:
                    top = gamma * zeta
                    if gamma * abs(zeta) > 2e3:  # beyond, even 60 digits are too few
                        continue
                    expected = in_digits(n, gamma, top)
                    off = abs(log_head_law(n, gamma, top) - expected) / max(1, abs(expected))
                    worst, cells = max(worst, float(off)), cells + 1
    assert worst < 1e-14
    assert cells > 400


def test_ends_of_the_domain():
    n = 512
    one_hot = n**-0.5
    cases = [
        ((0, 0), 1.0),  # all are alike
        ((0, 1), (np.e + n - 1) / np.sqrt(n * (np.e**2 + n - 1))),  # all others at their mean
        ((0, -1), 1.0),  # a largest below the mean: all of them there
        ((1, -np.inf), 1.0),
        ((1, np.inf), one_hot),
        ((np.inf, 1), one_hot),
        ((np.inf, np.inf), one_hot),
        ((1, 1e6), one_hot),
        ((1e-300, 1e-300), 1.0),
        ((1e300, 1e300), one_hot),
    ]
    for (gamma, top), S in cases:
        assert head_law(n, gamma, top) == pytest.approx(S, rel=1e-12), (gamma, top)
    assert head_law(1, 2.0, 0.0) == 1.0
    assert np.isnan(head_law([512, 512, 0, 512], [np.nan, 1, 1, -1], [1, np.nan, 1, 1])).all()
    # γ → 0 is reached without a step.
    np.testing.assert_allclose(head_law(n, 1e-9, [0.5, -0.5]), head_law(n, 0, [0.5, -0.5]), 1e-6)
    # Beyond all bounds it stays between one-hot and uniform.
    gamma, top = (x.ravel() for x in np.meshgrid(np.logspace(-9, 9, 61), np.linspace(-90, 90, 61)))
    S = head_law(7, gamma, top)
    assert np.all((S >= 7**-0.5) & (S <= 1))


def test_long_rows():
    """The limit law at a spread that does not grow, and frozen rows beyond ζ."""
    n = np.array([1e6, 1e9, 1e12])
    typical = -ndtri(1 / n)
    np.testing.assert_allclose(head_law(n, 1.0, typical)[-1], np.exp(-0.5), rtol=1e-4)
    zeta = typical[-1]
    for gamma in (300 * zeta, 3000 * zeta):
        n_eff = 1e12 * head_law(1e12, gamma, gamma * zeta) ** 2
        assert n_eff == pytest.approx(gamma * (gamma - zeta / 2) / (gamma - zeta) ** 2, rel=1e-3)


def sampled(n, gamma, zeta, rows, seed=0):
    """Σe^s and Σe^(2s) over e^(s_max): one at the largest, the others Gaussian below it."""
    from scipy.special import ndtr

    rng = np.random.default_rng(seed)
    s = gamma * (ndtri(ndtr(zeta) * rng.uniform(size=(rows, n - 1))) - zeta)
    a = np.exp(np.concatenate([np.zeros((rows, 1)), s], axis=1))
    return a.sum(1), (a * a).sum(1)


def without_truncation(n, gamma, top):
    m = [1 + (n - 1) * np.exp((k * gamma) ** 2 / 2 - k * top) for k in (1, 2)]
    return m[0] / np.sqrt(n * m[1])


def half_the_second(n, gamma, top):  # e^(γ²) in place of e^(2γ²)
    one = np.sqrt(n) * head_law(n, gamma, top)
    return one / np.sqrt(n) * np.exp(gamma**2 / 50)


@pytest.mark.parametrize("cell", [(64, 1.0, 2.4), (300, 2.0, 3.0), (300, 0.7, 1.0), (20, 3.0, 2.0)])
def test_sampled_rows_follow_the_law_and_wrong_formulas_do_not(cell):
    n, gamma, zeta = cell
    one, two = sampled(*cell, rows=20_000)
    S = one.mean() / np.sqrt(n * two.mean())
    # log S = log E₁ − ½ log E₂: its error by the delta method.
    error = np.std(one / one.mean() - two / two.mean() / 2) / np.sqrt(len(one))

    def z(law):
        return abs(np.log(S) - np.log(law(n, gamma, gamma * zeta))) / error

    assert z(head_law) < 4
    assert z(without_truncation) > 8
    assert z(half_the_second) > 8
