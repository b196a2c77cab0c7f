"""The exact law of CoCA's rows over ordinary queries and keys, however far its scores lie apart."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from sparsity import Coca, InputError, Row, errors, exact, metric, quantities
from sparsity.exact_law import engine, mellin, normal_prefixes
from sparsity.exact_law.normal_prefixes import n_eff_of_normal_prefixes
from sparsity.rows.steps.rope_and_coca import rectified_moments


def coca(dim: int, center: float, spread: float, **options) -> Coca:
    return Coca(np.random.default_rng(0).standard_normal(dim), center, spread, **options)


def n_eff(step, lengths):
    """By the second exact law."""
    found = exact(Row("exp", steps=(step,)), length=lengths)
    assert found.method == "moment generating function"
    return found


def gaussian(beta, gamma):
    return lambda j, p: beta[j][:, None] * p + (gamma[j][:, None] * p) ** 2 / 2


def between(*settings):
    """Settings between the corners, or pairs of them, which are slow tests."""
    return [pytest.param(setting, marks=pytest.mark.slow) for setting in settings]


NORMAL = [  # means of the scores spread over 1 … 400
    (16, 0.1, 0.01),
    (16, 4, 0.5),
    (64, 4, 0.01),
    (128, 0.1, 0.0125),
    (128, 4, 0.5),
    *between((32, 2, 0.1), (32, 0.5, 0.05), (64, 0.25, 0.03), (64, 1, 0.1), (128, 1, 0.1)),
]
CUT = [
    (16, 0.1, 0.05),
    (16, 0.1, 0.5),
    (32, 0.0, 0.1),
    (32, -0.35, 0.05),
    (128, 0.1, 0.05),
    (128, 3.99, 0.5),
]
INSIDE = [(32, 2, 0.5), (64, 0.25, 0.15), (64, 1, 0.5), (128, 3, 0.5)]
CUT_AND_SLACK = [  # what is cut and what slack does are lines apart: two pairs of them will do
    *((setting, None) for setting in CUT),
    *((setting, 700) for setting in (CUT[1], CUT[-1])),
    *between(*((setting, 700) for setting in CUT[:1] + CUT[2:-1])),
    *between(*itertools.product(INSIDE, (None, 700))),
]
LENGTHS = [2, 16, 100]


# The reproduction, and the whole of the ordinary domain.


def test_a_law_whose_means_lie_fifty_apart():
    found = n_eff(coca(32, center=2, spread=0.1), 128)
    assert float(found.value) == pytest.approx(2.5409978003, rel=1e-10)
    assert found.error_bound < 1e-8


@pytest.mark.parametrize("setting", NORMAL, ids=str)
def test_normal_scores_against_the_general_law(setting):
    law = coca(*setting)
    found = n_eff(law, LENGTHS)
    general, _, error = engine.law(Row("exp", steps=(law,)), quantities.n_eff, LENGTHS)
    assert found.error_bound.max() < 1e-9
    gap = np.abs(found.value / general - 1)
    assert np.all(gap < found.error_bound + error)
    assert gap.max() < 1e-12
    each, bound = mellin.n_eff_of_prefixes(law.log_mgf, LENGTHS)
    assert np.all(np.abs(each / found.value - 1) < bound + found.error_bound)
    assert bound.max() < 1e-9
    # A spread off by a thousandth would be seen.
    wrong = n_eff(replace(law, spread=1.001 * law.spread), LENGTHS[:2])
    assert np.all(np.abs(wrong.value / general[:2] - 1) > 100 * found.error_bound[:2])


def of_two(law: Coca) -> float:
    """n_eff of two tokens, 1 + E sech(s_0 − s_1): sech by its Fourier transform, ½ sech(πω/2)."""
    two = np.arange(2)
    reach = np.ptp(law.beta(two)) + 40 * (1 + law.gamma(two).sum())
    omega = np.pi / reach * np.arange(int(26 * reach / np.pi))
    one, other = law.log_mgf(two, 1j * omega)
    terms = np.exp(one + np.conj(other)).real / np.cosh(np.pi * omega / 2)
    return 1 + (terms.sum() - terms[0] / 2) * np.pi / reach


@pytest.mark.parametrize("case", CUT_AND_SLACK, ids=str)
def test_scores_cut_at_zero(case):
    setting, slack_at = case
    law = coca(*setting, slack_at=slack_at)
    assert not law.normal
    found = n_eff(law, LENGTHS)
    assert found.error_bound.max() < 1e-9
    two = of_two(law)
    assert abs(float(found.value[0]) / two - 1) < float(found.error_bound[0]) + 1e-12
    if law.center > 0:  # else nearly all t are 0, whatever their spread
        assert abs(of_two(replace(law, spread=1.001 * law.spread)) / two - 1) > 1e-8


@pytest.mark.parametrize("setting", [(32, 2, 0.1), (32, 1, 0.3), (64, 1, 0.5)], ids=str)
def test_against_rows_of_rotated_numbers(setting):
    law, n, rows = coca(*setting), 64, 4000
    q = law.query[0::2] ** 2 + law.query[1::2] ** 2
    turn = np.arange(n)[:, None] * 10000.0 ** (-np.arange(0, len(law.query), 2) / len(law.query))
    rng = np.random.default_rng(5)
    t = np.maximum(law.center + law.spread * rng.standard_normal((rows, n, len(q))), 0)
    drawn = metric.n_eff(np.exp(np.einsum("rni,ni->rn", t, q * np.cos(turn)) - 20))
    stderr = drawn.std() / np.sqrt(rows)
    assert abs(drawn.mean() - float(n_eff(law, n).value)) < 4 * stderr
    # What a row of equal scores of that spread would give is far off.
    flat = exact("exp", length=n, gamma=float(law.gamma(0)))
    assert abs(drawn.mean() - float(flat.value)) > 10 * stderr


# The parts


@pytest.mark.parametrize("gamma", [1e-6, 0.02, 0.3, 5.0, 20.0, 60.0])
def test_equal_tokens_of_any_spread(gamma):
    lengths, beta = [2, 30, 100], np.full(100, 300.0)
    law = exact("exp", length=lengths, gamma=gamma)
    for found, bound in (
        n_eff_of_normal_prefixes(beta, np.full(100, gamma), lengths),
        mellin.n_eff_of_prefixes(gaussian(beta, np.full(100, gamma)), lengths),
    ):
        assert np.all(np.abs(found / law.value - 1) < bound + law.error_bound)
        assert bound.max() < 2e-9


def test_tokens_between_the_points_of_the_table():
    rng = np.random.default_rng(1)
    for low, high, apart in ((0.05, 0.1, 2), (0.2, 4, 3), (2, 9, 20), (0.05, 6, 8)):
        beta, gamma = apart * rng.standard_normal(60), rng.uniform(low, high, 60)
        lengths = [4, 60]
        merged, bound = n_eff_of_normal_prefixes(beta, gamma, lengths)
        each, slip = mellin.n_eff_of_prefixes(gaussian(beta, gamma), lengths)
        np.testing.assert_allclose(merged, each, rtol=2e-12)
        assert max(bound.max(), slip.max()) < 1e-9


def test_too_few_points_of_the_table_would_be_seen(monkeypatch):
    law = coca(64, 0.25, 0.03)
    right = n_eff(law, 128)
    monkeypatch.setattr(normal_prefixes, "TAPS", 6)
    assert abs(n_eff(law, 128).value / right.value - 1) > 1e-8


def test_heavy_tokens_that_come_late():
    """Rows whose heaviest tokens differ by hundreds do not share one range of u."""
    rng = np.random.default_rng(2)
    beta, gamma = np.arange(60) * 15 + rng.standard_normal(60), np.full(60, 4.0)
    lengths = [1, 2, 5, 20, 60]
    merged, _ = n_eff_of_normal_prefixes(beta, gamma, lengths)
    each, _ = mellin.n_eff_of_prefixes(gaussian(beta, gamma), lengths)
    np.testing.assert_allclose(merged, each, rtol=1e-11)
    for n, found in zip(lengths, merged, strict=True):
        alone, _ = n_eff_of_normal_prefixes(beta[:n][::-1], gamma[:n], n)
        assert found == pytest.approx(float(alone), rel=1e-11)


def test_light_tokens_are_left_out_only_where_they_do_not_matter(monkeypatch):
    beta = -np.arange(400) / 4
    law = gaussian(beta, np.full(400, 0.7))
    found, _ = mellin.n_eff_of_prefixes(law, 400)
    monkeypatch.setattr(mellin, "heavy_enough", lambda powers, first, n: np.full(len(powers), True))
    every, _ = mellin.n_eff_of_prefixes(law, 400)
    assert abs(found / every - 1) < 1e-14
    monkeypatch.setattr(
        mellin, "heavy_enough", lambda powers, first, n: np.arange(len(powers)) < 100
    )
    fewer, _ = mellin.n_eff_of_prefixes(law, 400)
    assert abs(fewer / every - 1) > 1e-12


@pytest.mark.parametrize("period", [8.0, 14.0, 20.0])
def test_the_bound_tells_of_an_inversion_with_too_short_a_period(monkeypatch, period):
    law = coca(32, 1, 0.3)
    right = float(n_eff(law, 16).value)
    monkeypatch.setattr(mellin, "PERIOD", period)
    monkeypatch.setattr(mellin, "BACK", np.inf)
    monkeypatch.setattr(mellin, "USELESS", np.inf)
    monkeypatch.setattr(errors, "RESOLVED", np.inf)  # as they are, they would be refused
    found = n_eff(law, 16)
    assert 1e-13 < abs(float(found.value) / right - 1) < float(found.error_bound)


def test_variance_of_narrow_numbers_far_from_zero():
    for center in (4.0, 1e4, 1e9):
        assert rectified_moments(center, 0.01) == pytest.approx((center, 1e-4), rel=1e-14)
    for below, above in ((-1e-9, 1e-9),):  # where the formula changes
        np.testing.assert_allclose(
            rectified_moments(below, 1.0), rectified_moments(above, 1.0), rtol=1e-8
        )


# Refusals name an argument of the caller.


@pytest.mark.parametrize(
    ("law", "message"),
    [
        (coca(32, 1.0, 20.0), r"^spread = 20.0: .*deviation of about .*below 64"),
        (coca(32, 400.0, 20.0), r"^spread = 20.0: "),
        (coca(32, 1e10, 0.1), r"^center = 10000000000.0: .*lower it"),
        (Coca(1e5 * np.ones(8), 4.0, 1e-9), r"^center = 4.0: .*make the query shorter"),
    ],
    ids=["wide", "wide and far", "far", "long query"],
)
def test_what_cannot_be_computed_is_refused_by_name(law, message):
    with pytest.raises(InputError, match=message):
        n_eff(law, [2, 30])


def test_overflow_and_rows_too_long_are_refused_by_name():
    with np.errstate(all="ignore"), pytest.raises(InputError, match=r"^query = .*1e\+200.*reduce"):
        n_eff(Coca(1e200 * np.ones(8), 4.0, 1e-9), 4)
    with pytest.raises(InputError, match=r"^length = 1000000000: "):
        n_eff(coca(8, 1.0, 0.1), 10**9)
    with pytest.raises(InputError, match="deviations up to 70") as caught:
        mellin.n_eff_of_prefixes(gaussian(np.zeros(9), np.full(9, 70.0)), 9)
    assert "function" not in str(caught.value)
