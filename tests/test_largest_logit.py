"""The largest logit: against order statistics, brute force and draws; what a clip does to it."""

import itertools

import numpy as np
import pytest
from scipy import stats

import sparsity
from sparsity import InputError, monitor
from sparsity.attention.largest_logit import COARSE, FINE, expected_largest
from sparsity.attention.monitoring import log
from sparsity.exact_law.maps.sparsemax import expected_maximum


def test_of_one_law_it_is_the_order_statistic():
    for n, gamma, beta in itertools.product(
        (1, 2, 7, 1000, 10**6, 10**12), (0.3, 3.0), (-2.0, 5.0)
    ):
        found = sparsity.largest_logit(n, gamma, beta)
        assert found.mean == pytest.approx(beta + gamma * expected_maximum(n), abs=1e-12 * gamma)
        for end, chance in ((found.low, 0.005), (found.high, 0.995)):
            log_chance = n * stats.norm.logcdf(end, beta, gamma)
            assert log_chance == pytest.approx(np.log(chance), rel=1e-9)
    # E max of two is γ/√π; √(2 ln N) is above, and nearer for more.
    assert sparsity.largest_logit(2, 1.0).mean == pytest.approx(1 / np.sqrt(np.pi), rel=1e-13)
    near = [sparsity.largest_logit(n, 1.0).mean / np.sqrt(2 * np.log(n)) for n in (1e2, 1e6, 1e12)]
    assert near == sorted(near)
    assert near[-1] < 1


@pytest.mark.parametrize("unit", [1e-300, 1e-14, 1e14, 1e300])
def test_its_unit_is_that_of_the_scores(unit):
    gamma, beta = np.array([1.0, 2.0]), np.array([0.5, -1.0])
    scaled = np.array(sparsity.largest_logit(8, unit * gamma, unit * beta)[:3]) / unit
    np.testing.assert_allclose(scaled, sparsity.largest_logit(8, gamma, beta)[:3], rtol=1e-12)


@pytest.mark.parametrize("given", [{"gamma": 1e-310}, {"gamma": 1.0, "beta": 1e308}])
def test_scores_at_the_ends_of_float64_are_refused(given):
    with pytest.raises(InputError, match=r"too small for float64|overflows"):
        sparsity.largest_logit(8, **given)


ROWS = [
    ([64] * 5, [1.0] * 5, [0.0] * 5),
    ([1, 10, 100, 1000], [4.0, 2.0, 1.0, 0.5], [0.0, 1.0, 2.0, -1.0]),
    ([16, 4], [1e-9, 1.0], [1.5, 0.0]),  # the first holds the largest from below
    ([8], [2.0], [-40.0]),
]


def drawn(n, gamma, beta, draws=40000):
    """Largest of independent scores, by the definition: mean and standard error."""
    rng = np.random.default_rng(1)
    top = np.full(draws, -np.inf)
    for count, spread, mean in zip(n, gamma, beta, strict=True):
        for start in range(0, draws, 4000):
            s = mean + spread * rng.standard_normal((4000, count))
            top[start : start + 4000] = np.maximum(top[start : start + 4000], s.max(1))
    return top


@pytest.mark.parametrize("rows", ROWS)
def test_of_several_laws_it_is_what_is_drawn(rows):
    top, found = drawn(*rows), sparsity.largest_logit(*rows)
    error = top.std(ddof=1) / np.sqrt(len(top))
    assert abs(top.mean() - found.mean) < 4.5 * error + 1e-12
    assert error < 0.01
    beyond = np.array([(top < found.low).mean(), (top > found.high).mean()])
    allowed = 0.005 + 4.5 * np.sqrt(0.005 / len(top))
    assert np.all(beyond < allowed)
    # Planted: a spread off by a twentieth, and one row too many.
    n, gamma, beta = map(np.asarray, rows)
    wrong = [sparsity.largest_logit(n, 1.05 * gamma, beta).mean,
             sparsity.largest_logit(n, gamma, beta + 0.05).mean]  # fmt: skip
    assert all(abs(top.mean() - x) > 4.5 * error for x in wrong)


def by_halves(n, gamma, beta):
    """E max by mpmath, panel by panel: 30 digits, and nothing of the package."""
    from mpmath import mp, mpf, ncdf, quad

    n, gamma, beta = ([mpf(x) for x in each] for each in (n, gamma, beta))
    with mp.workdps(30):
        laws = [*zip(n, gamma, beta, strict=True)]
        low = min(b - 12 * g for _, g, b in laws)
        edges = {b + z * g for _, g, b in laws for z in (-12, -8, -4, -2, 0, 2, 4, 8, 12)}

        def below(x):
            return mp.fprod(ncdf((x - b) / g) ** m for m, g, b in laws)

        return float(low + quad(lambda x: 1 - below(x), sorted(edges)))


LAWS = [  # far apart in spread, mean and number, so that a single rule steps over one of them
    ([1, 1, 1], [100, 10, 1], [0, 100, 150], 152.9313),
    ([1, 1], [1, 1e-6], [0, 0], 0.3989422804),
    ([1, 1, 1, 1], [1.0, 1e-4, 1e-2, 30.0], [0.0, 0.3, -0.4, -10.0], None),
]


@pytest.mark.parametrize("laws", LAWS)
def test_of_laws_far_apart_it_is_within_its_bound(laws):
    *rows, said = laws
    found, true = sparsity.largest_logit(*rows), by_halves(*rows)
    assert said is None or true == pytest.approx(said, abs=6e-5 if said > 1 else 6e-11)
    assert abs(found.mean - true) <= found.error_bound + 1e-15 * abs(true)
    assert found.error_bound < 1e-12 * (max(rows[1]) + abs(true))
    coarse, bound = expected_largest(*(np.asarray(x, float) for x in rows), COARSE)
    assert abs(coarse - true) <= bound < 1e-5 * (max(rows[1]) + abs(true))
    # Planted: a law a thousandth wider.
    wider = sparsity.largest_logit(rows[0], 1.001 * np.asarray(rows[1]), rows[2])
    assert abs(wider.mean - true) > 10 * wider.error_bound


@pytest.mark.thorough
def test_of_many_laws_it_is_within_its_bound():
    """More ends than panels: laws from 1e-6 to 10, against panels between all of their ends."""
    rng = np.random.default_rng(2)
    for _ in range(2):
        beta, gamma = 2 * rng.normal(size=300), 10 ** rng.uniform(-6, 1, 300)
        found = sparsity.largest_logit(1, gamma, beta)
        ends = beta + gamma * np.linspace(-9, 9, 25)[:, None]
        edges = np.unique(np.clip(ends, found.low - 5, 120.0))
        x, w = np.polynomial.legendre.leggauss(20)
        half = np.diff(edges)[:, None] / 2
        points = edges[:-1, None] + half * (1 + x)
        laws = zip(beta, gamma, strict=True)
        below = np.exp(sum(stats.norm.logcdf(points, b, g) for b, g in laws))
        true = edges[0] + ((1 - below) * half * w).sum()
        assert abs(found.mean - true) <= found.error_bound + 1e-12
        assert found.error_bound < 1e-10


def test_rows_of_each_and_the_coarse_rule():
    many = sparsity.largest_logit(50, 2.0, rows=20)
    assert many == sparsity.largest_logit(1000, 2.0)
    for n, rows in ((50, 20), (100, 1000), (1, 5000)):  # independent route: one law of n·rows
        true = 2 * expected_maximum(n * rows)
        each = np.full(rows, float(n)), np.full(rows, 2.0), np.zeros(rows)
        assert expected_largest(*each)[0] == pytest.approx(true, rel=1e-11)
        assert expected_largest(*each, COARSE)[0] == pytest.approx(true, rel=1e-6)
        assert expected_largest(*each)[0] != pytest.approx(
            2 * expected_maximum(n * rows + 1), rel=1e-11
        )
    rng = np.random.default_rng(0)
    for spread in (0.0, 0.3):
        n, beta = np.arange(1.0, 129.0), rng.normal(size=128)
        gamma = 2 * np.exp(spread * rng.normal(size=128))
        fine, coarse = (expected_largest(n, gamma, beta, rule)[0] for rule in (FINE, COARSE))
        assert coarse == pytest.approx(fine, rel=1e-7)


@pytest.mark.thorough
def test_a_batch_of_gaussian_queries_and_keys_and_one_with_an_outlier():
    """Rows share keys and a short row has no tail: the measured one lies a little below."""
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 64, 128, 64), dtype=np.float32)
    told = log(monitor(2 * q, k, rows=None))
    of_heads = [[told[f"layer0.head{i}/{x}"] for i in range(64)]
                for x in ("max_logit", "max_logit_exact")]  # fmt: skip
    ratio = np.divide(*of_heads)
    assert ratio.std(ddof=1) / 8 < 0.015
    assert 0.93 < ratio.mean() < 1
    k[0, 5] *= 12  # one key that grew
    told = log(monitor(2 * q, k, rows=None))
    head, layer = (told[f"layer0{x}/max_logit"] / told[f"layer0{x}/max_logit_exact"]
                   for x in (".head0", ""))  # fmt: skip
    assert head > 1.3
    assert layer > 1.3
    law = [told[f"layer0.head{i}/max_logit_exact"] for i in range(64)]
    assert told["all/max_logit_exact"] == told["layer0/max_logit_exact"] == max(law)


def test_a_clip_of_queries_and_keys():
    plain = sparsity.qk_clip(256, 3.0, 100.0)
    assert plain[:2] == (1.0, 3.0)
    assert plain.n_eff == plain.n_eff_clipped
    assert plain.n_eff_of_row == plain.n_eff_of_row_clipped
    found = sparsity.qk_clip(256, 5.0, 25.0, tau=20)
    assert found.factor == 0.8
    assert found.gamma == 4.0
    for value, gamma in ((found.n_eff, 5), (found.n_eff_clipped, 4)):
        law = sparsity.exact("exp", gamma=gamma, length=256, of="n_eff").value
        assert value == pytest.approx(law, rel=4e-6)
    # A row with its largest logit, by its definition: the others cut off at it.
    rng = np.random.default_rng(0)
    row = sparsity.qk_clip(256, 1.5, 6.0, tau=3.0, beta=1.0)
    others = 1.0 + 1.5 * rng.standard_normal((20000, 255))
    others = np.where(others < 6.0, others, 1.0)  # one in 2,300 is beyond: its place is the mean
    for value, factor in ((row.n_eff_of_row, 1.0), (row.n_eff_of_row_clipped, 0.5)):
        a = np.exp(factor * (others - 6.0))
        # The law is a ratio of means, as the limit law is.
        drawn = (1 + a.sum(1).mean()) ** 2 / (1 + (a * a).sum(1).mean())
        assert value == pytest.approx(drawn, rel=0.01)
    assert row.n_eff_of_row_clipped > 1.5 * row.n_eff_of_row
    assert sparsity.qk_clip(64, 1.0, -3.0).factor == 1.0


def test_errors():
    for make, match in (
        (lambda: sparsity.largest_logit(0, 1.0), "length = 0: must be"),
        (lambda: sparsity.largest_logit([4, 5], [1.0, 1.0, 1.0]), "broadcast"),
        (lambda: sparsity.largest_logit(4, -1.0), "gamma = -1.0"),
        (lambda: sparsity.largest_logit(4, 1.0, np.nan), "beta"),
        (lambda: sparsity.largest_logit(4, 1.0, rows=0), "rows = 0"),
        (lambda: sparsity.qk_clip([4, 5], 1.0, 3.0), "length = "),
        (lambda: sparsity.largest_logit(4, 1e308), "too large"),
        (lambda: sparsity.largest_logit([], 1.0), "at least one"),
        (lambda: sparsity.qk_clip(4, 1.0, np.inf), "max_logit"),
        (lambda: sparsity.qk_clip(4, 1.0, 3.0, tau=0), "tau = 0"),
        (lambda: sparsity.qk_clip(4, 1e3, 3.0), "gamma = 1000"),
    ):
        with pytest.raises(InputError, match=match):
            make()
