"""The needle: its step, its quantities and their laws, against definitions and sampled rows."""

import math

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

import sparsity
from sparsity import (
    Alibi,
    InputError,
    Needle,
    Row,
    ScalableSoftmax,
    Sink,
    SinkLogit,
    Window,
    exact,
    kernels,
)
from sparsity.exact_law import needle, sink_chance
from sparsity.quantities.marked import recall, recall_slope
from sparsity.sampling import Sampling
from sparsity.sampling.row_sampling import draw_rows

OF = ("needle_mass", "needle_signal", "needle_largest")
CHANCES = ("needle_odds_above:0.1", "needle_snr_above:1", "needle_recall:32")


def weights(kernel, s):
    """|f| of scores, written out."""
    forms = {"exp": np.exp, "relu2": lambda s: np.maximum(s, 0) ** 2, "identity": np.abs}
    return forms[kernel](s)


def by_definition(of, needle, others):
    """Values of rows [rows] from the needle's weight [rows] and the others' [rows, keys]."""
    l1, l2 = others.sum(-1), (others**2).sum(-1)
    name, _, number = of.partition(":")
    with np.errstate(divide="ignore"):
        return {
            "needle_mass": lambda: needle / (needle + l1),
            "needle_signal": lambda: needle**2 / (needle**2 + l2),
            "needle_largest": lambda: (needle > others.max(-1)).astype(float),
            "needle_odds_above": lambda: (needle / l1 > float(number)).astype(float),
            "needle_snr_above": lambda: (needle / np.sqrt(l2) > float(number)).astype(float),
            "needle_recall": lambda: recall(needle / np.sqrt(l2), int(number)),
        }[name]()


# --- the step ------------------------------------------------------------------------------------


def test_it_stands_where_it_is_put_and_in_the_middle_else():
    for length, distance, there in ((5, None, 2), (1, None, 0), (2, None, 1), (9, 0, 0), (9, 8, 8)):
        tokens = Row("exp", gamma=1, steps=(Needle(3, 0.5, distance),)).tokens_one_by_one(length)
        assert np.flatnonzero(tokens.needle).tolist() == [there]
        assert (tokens.beta[there], tokens.gamma[there], tokens.w[there]) == (3, 0.5, 1)
        assert tokens.needle.sum() == 1


def test_order_of_steps():
    """What stands after the needle changes it, and what stands before does not."""
    mass = {}
    slope, far = Alibi(0.1), Needle(4.0, 0.0, 20)
    for steps in ((far, slope), (slope, far)):
        mass[steps] = float(exact(Row("exp", gamma=1, steps=steps), length=32, of=OF[0]).value)
    assert mass[slope, far] > 2 * mass[far, slope]
    softer = Row("exp", gamma=1, steps=(Needle(4.0), ScalableSoftmax(0.1)))  # s·ln 32 = 0.347
    scaled = Row("exp", gamma=0.1 * math.log(32), steps=(Needle(0.4 * math.log(32)),))
    assert exact(softer, length=32, of=OF[0]).value == pytest.approx(
        exact(scaled, length=32, of=OF[0]).value, rel=1e-12
    )
    with pytest.raises(InputError, match="no needle in sight"):
        exact(Row("exp", gamma=1, steps=(far, Window(8))), length=32, of=OF[0])
    hidden_before = Row("exp", gamma=1, steps=(Window(8), far))
    assert 0.5 < exact(hidden_before, length=32, of=OF[0]).value < 1


@pytest.mark.parametrize(
    ("arguments", "length", "says"),
    [
        ((math.nan,), 8, "beta"), ((1.0, -1.0), 8, "gamma"),
        ((1.0, 0.0, 8), 8, "distance = 8: a row of 8 tokens has distances 0 to 7$"),
    ],
)  # fmt: skip
def test_what_is_refused(arguments, length, says):
    with pytest.raises(InputError, match=says):
        Row("exp", gamma=1, steps=(Needle(*arguments),)).tokens(length)


def test_extreme_spreads_are_refused_before_memory_or_float64_end():
    row = Row("exp", gamma=1e-8, steps=(Needle(4.0, 1.0),))
    with pytest.raises(InputError, match="takes too long"):
        exact(row, length=9, of="needle_largest")
    with pytest.raises(InputError, match="participation: its limit is beyond float64"):
        sparsity.evaluate("exp", gamma=30.0, length=2, of="participation")


def test_rows_without_a_needle_are_refused():
    bare = Row("exp", gamma=1, steps=(Sink(3.0), SinkLogit(1.0)))
    for of in (*OF, *CHANCES):
        for ask in (exact, sparsity.estimate):
            with pytest.raises(InputError, match="has no needle in sight"):
                ask(bare, length=8, of=of)
    with pytest.raises(InputError, match="no needle"):
        sparsity.evaluate(bare, length=8, of="needle_mass")


# --- exact laws ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["exp", "relu2", "identity"])
def test_three_keys_by_brute_force(kernel):
    """Sums over the others' scores, Gauss-Legendre on pieces between which nothing bends."""
    m, gamma = 2.0, 0.8
    row = Row(kernel, beta=0.3, gamma=gamma, steps=(Needle(m),))
    needle = float(weights(kernel, m))
    bends = {"exp": [m], "relu2": [0.0, m], "identity": [-m, 0.0, m]}[kernel]
    edges = np.unique([*np.linspace(0.3 - 9 * gamma, 0.3 + 9 * gamma, 41), *bends])
    x, w = np.polynomial.legendre.leggauss(24)
    s = (edges[:-1, None] + np.diff(edges)[:, None] / 2 * (1 + x)).ravel()
    p = (np.diff(edges)[:, None] / 2 * w).ravel() * norm.pdf(s, 0.3, gamma)
    a = weights(kernel, s)
    grid, mass = np.stack(np.broadcast_arrays(a[:, None], a), -1), p[:, None] * p
    for of in OF:
        values = by_definition(of, needle, grid)
        found = exact(row, length=3, of=of)
        assert float(found.value) == pytest.approx(float((values * mass).sum()), rel=1e-9)
        assert found.error_bound < 1e-9


def test_chances_of_two_keys():
    """P(m − s > ln x) and P(2(m − s) > 2 ln x) are the same, and recall is a sum over s."""
    m, gamma = 1.0, 0.7
    row = Row("exp", gamma=gamma, steps=(Needle(m),))
    for x in (0.5, 1.0, 4.0):
        wanted = norm.cdf((m - math.log(x)) / gamma)
        for of in ("needle_odds_above", "needle_snr_above"):
            assert float(exact(row, length=2, of=f"{of}:{x}").value) == pytest.approx(wanted, 1e-9)
    s = np.linspace(-9 * gamma, 9 * gamma, 4001)
    values = recall(np.exp(m - s), 8)
    wanted = float(values @ norm.pdf(s, 0, gamma)) * (s[1] - s[0])
    found = exact(row, length=2, of="needle_recall:8")
    assert float(found.value) == pytest.approx(wanted, rel=float(found.error_bound) + 1e-9)


@pytest.mark.thorough
def test_recall_of_a_random_needle():
    """Of two keys the SNR is e^(m − s), and m − s is normal with the spreads of both."""
    gamma, spread = 0.7, 3.0
    row = Row("exp", gamma=gamma, steps=(Needle(1.0, spread),))
    both = math.hypot(gamma, spread)
    x = np.linspace(1 - 9 * both, 1 + 9 * both, 8001)
    wanted = float(recall(np.exp(np.minimum(x, 50)), 8) @ norm.pdf(x, 1, both)) * (x[1] - x[0])
    found = exact(row, length=2, of="needle_recall:8")
    assert found.error_bound < 1e-7
    assert float(found) == pytest.approx(wanted, rel=float(found.error_bound) + 1e-9)


def test_recall_among_many_tokens_that_differ_is_refused_at_once():
    row = Row("exp", gamma=1.0, steps=(Alibi(0.1), Needle(3.0)))
    with pytest.raises(InputError, match=r"length = 64: .* at most 40 tokens that differ"):
        exact(row, length=64, of="needle_recall:32")


def test_the_rank_of_a_random_needle():
    """A needle of the others' own law is the largest of n with chance 1/n; else a sum over it."""
    for n in (1, 2, 7, 1000, 10**6):
        same = Row("exp", beta=0.4, gamma=1.3, steps=(Needle(0.4, 1.3),))
        found = exact(same, length=n, of="needle_largest")
        assert float(found.value) == pytest.approx(1 / n, rel=1e-9)
        assert found.error_bound < 1e-8
    row = Row("relu2", beta=-0.5, gamma=1.0, steps=(Needle(0.5, 2.0),))
    s = np.linspace(0, 20, 200_001)
    wins = np.trapezoid(norm.pdf(s, 0.5, 2.0) * ndtr(s + 0.5) ** 9, s)
    all_zero = norm.cdf(-0.25) * norm.cdf(0.5) ** 9
    found = exact(row, length=10, of="needle_largest")
    assert float(found.value) == pytest.approx(wins / (1 - all_zero), rel=1e-8)


def test_a_random_needle_beside_fixed_scores():
    """The chance jumps where the needle passes a sink: P(s > 1.5, the largest of 6 others)."""
    for kernel in ("exp", "relu2"):
        row = Row(kernel, beta=0.0, gamma=1.0, steps=(Sink(1.5), Needle(1.0, 0.8)))
        s = np.linspace(1.5, 12, 200_001)
        wanted = np.trapezoid(norm.pdf(s, 1.0, 0.8) * ndtr(s) ** 6, s)
        found = exact(row, length=8, of="needle_largest")
        assert float(found.value) == pytest.approx(wanted, rel=1e-8)
        assert found.error_bound < 1e-9


@pytest.mark.parametrize("spread", [0.0, 0.3, 4.0])
def test_means_over_a_random_score(spread):
    """E e^(−4(x + spread·y)²) by the rule for y, and by half its nodes."""
    x, wide = np.array([0.0, 0.5]), 1 + 8 * spread**2
    means = needle._mean_over_score(lambda c: np.exp(-4 * np.log(c) ** 2), x, spread)
    np.testing.assert_allclose(means, [np.exp(-4 * x * x / wide) / wide**0.5] * 2, rtol=1e-12)


def test_a_chance_below_the_range_of_float64_is_refused():
    """(2 Φ(0.1) − 1)^400 is e^−1012, where a score fixed above the needle's makes it 0 itself."""
    with pytest.raises(InputError, match="is not resolved"):
        exact(Row("identity", gamma=1.0, steps=(Needle(0.1),)), length=401, of="needle_largest")
    beaten = Row("exp", gamma=1.0, steps=(Sink(1.5), Needle(1.0)))
    assert float(exact(beaten, length=8, of="needle_largest").value) == 0


def test_recall_against_mpmath():
    for snr, values in ((0.0, 2), (0.1, 32), (0.7, 5), (2.0, 1000)):
        wanted = mpmath.quad(
            lambda z, snr=snr, v=values: mpmath.npdf(z)
            * mpmath.ncdf(z + mpmath.sqrt(v) * snr) ** (v - 1),
            [-10, -5, -2, 0, 2, 5, 10],
        )  # fmt: skip
        assert float(recall(snr, values)) == pytest.approx(float(wanted), rel=1e-12)
    c, h = np.linspace(0.1, 8, 30), 1e-4
    slope = (recall((c + h) / 4, 16) - recall((c - h) / 4, 16)) / (2 * h)
    np.testing.assert_allclose(recall_slope(c, 16), slope, rtol=1e-6, atol=1e-12)


def test_snr_is_odds_times_the_root_of_n_eff():
    """Row by row, and its negative control: n_eff of all keys in the place of the others'."""
    rng = np.random.default_rng(3)
    for kernel in ("exp", "relu2", "identity"):
        others = weights(kernel, rng.normal(size=(50, 40)))
        needle = weights(kernel, rng.normal(5, 1, size=50))
        odds = needle / others.sum(-1)
        snr = needle / np.sqrt((others**2).sum(-1))
        np.testing.assert_allclose(snr, odds * np.sqrt(sparsity.n_eff(others)), rtol=1e-13)
        every = np.concatenate([others, needle[:, None]], -1)
        assert np.abs(odds * np.sqrt(sparsity.n_eff(every)) / snr - 1).max() > 0.1


def test_limits():
    """a*/(a* + (n − 1) E|a|), and its square's with E a²; the exact law tends to both."""
    row, t = Row("relu2", beta=0.0, gamma=0.5, steps=(Needle(3.0),)), 9.0
    for of, power, moment in (("needle_mass", 1, 0.125), ("needle_signal", 2, 1.5 * 0.5**4)):
        for n in (10**3, 10**5):
            wanted = t**power / (t**power + (n - 1) * moment)
            limit = sparsity.evaluate(row, length=n, of=of)
            assert float(limit.value) == pytest.approx(wanted, rel=1e-9)
        law = exact(row, length=10**5, of=of)
        assert float(law.value) == pytest.approx(wanted, rel=2e-3)


# --- sampled rows --------------------------------------------------------------------------------

SETTINGS = [  # (kernel, dim, query length t, n): keys ~ N(0, I), the query along the needle
    ("relu2", 16, 1.0, 64),
    *(pytest.param(x, 16, 1.0, 64, marks=pytest.mark.thorough) for x in ("exp", "identity")),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "dim", "t", "n"), SETTINGS)
def test_laws_against_sampled_rows(kernel, dim, t, n):
    row = Row(kernel, beta=0.0, gamma=t, steps=(Needle(t * dim**0.5),))
    names = (*OF, *CHANCES) if kernel == "exp" else OF
    drawn = draw_rows(row, n, Sampling(4e-3, seed=11, max_samples=2**18), names)
    cells, seen = 0, 0
    for of in names:
        found, law = drawn.estimate(of), float(exact(row, length=n, of=of).value)
        if not found.stderr > 0 or law > 1 - 1e-3 or law < 1e-3:
            continue  # no row is other than the rest
        assert abs(found.value - law) < 4.5 * found.stderr + 1e-6
        seen += abs(found.value - 1.03 * law) > 4.5 * found.stderr
        cells += 1
    assert cells >= 2
    assert seen == cells  # a law that is 3 % off


MAPS = (("sparsemax", 7), *(("stick-breaking", place) for place in (0, 2, 7)))


def drawn_by_numpy(name, rows, n, score, distance, reverse=False):
    """Weights of the needle [rows] and of the others, in rows N(−½, 1), the query's key last."""
    s = np.random.default_rng(3).standard_normal((rows, n)) - 0.5
    place = distance if reverse else n - 1 - distance
    s[:, place] = score
    p = np.asarray(kernels.named(name).weights(s))
    return p[:, place], np.delete(p, place, 1)


@pytest.mark.slow
def test_maps_against_draws_by_numpy():
    """A needle among scores of a map is sampled: every quantity, and where in the row it stands."""
    rows, n = 100_000, 8
    for seed, (name, distance) in enumerate(MAPS):
        row = Row(name, beta=-0.5, gamma=1.0, steps=(Needle(2.0, distance=distance),))
        sampling = Sampling(1e-3, max_samples=rows, seed=seed)
        drawn = draw_rows(row, n, sampling, (*OF, *CHANCES[:2]))
        needle, others = drawn_by_numpy(name, rows, n, 2.0, distance)
        for of in (*OF, *CHANCES[:2]):
            found = drawn.estimate(of)
            values = needle if of == "needle_mass" else by_definition(of, needle, others)
            apart = math.hypot(found.stderr, values.std() / math.sqrt(rows), 1e-6)
            assert abs(found.value - values.mean()) < 4.5 * apart, (name, distance, of)
    # Stick-breaking knows the order of its keys: the reversed row is rejected.
    row = Row("stick-breaking", beta=-0.5, gamma=1.0, steps=(Needle(2.0, distance=2),))
    found = sparsity.estimate(row, length=n, of="needle_mass", rel_error=1e-3)
    planted, _ = drawn_by_numpy("stick-breaking", rows, n, 2.0, 2, reverse=True)
    assert abs(found.value - planted.mean()) > 100 * found.stderr


def test_maps_with_a_needle_have_no_exact_law():
    row = Row("sparsemax", gamma=1.0, steps=(Needle(3.0),))
    for call in (exact, sparsity.evaluate, sparsity.verify):
        with pytest.raises(InputError, match=r"use (exact, )?estimate"):
            call(row, length=16)
    for steps in ((Alibi(0.1),), (Needle(3.0), Window(4))):
        with pytest.raises(InputError, match="law of its scores or set a needle; leave them out"):
            Row("sparsemax", gamma=1.0, steps=steps)
    with pytest.raises(InputError, match="draws its own tokens"):
        Row("forgetting", gamma=1.0, gate=3.0, gate_spread=1.0, steps=(Needle(3.0),))


def of_one_other(gamma: float, ratio: float) -> float:
    """P(e^(2γε) < e^(2·ratio)) of one other key."""
    return float(ndtr(ratio / gamma))


def of_two_others(gamma: float, ratio: float) -> float:
    """The same of the sum of two, by an integral over the first: Gauss-Legendre in 400 panels."""
    x, w = np.polynomial.legendre.leggauss(24)
    # Over the gap to the end, where the first is all there may be: there the second's chance falls.
    edges = np.concatenate([[0.0], np.geomspace(1e-15, 1.0, 200), np.linspace(1, 40, 200)[1:]])
    half = 0.5 * np.diff(edges)[:, None]
    gap = edges[:-1, None] + half * (1 + x)
    left = ratio + 0.5 * np.log(-np.expm1(-2 * gamma * gap))
    at = ratio / gamma - gap
    return float(
        (np.exp(-0.5 * at**2) / math.sqrt(2 * math.pi) * ndtr(left / gamma) * w * half).sum()
    )


@pytest.mark.parametrize("points", [161, 41])
def test_the_chance_of_an_snr_is_that_of_one_and_of_two_keys_at_any_spread(points, monkeypatch):
    """At 161 points of the transform to 13 digits; a rule too coarse is off, within its bound."""
    monkeypatch.setattr(sink_chance, "_POINTS", points)
    cells, worst = 0, 0.0
    for gamma in (0.001, 0.1, 0.3, 1.0, 2.0, 4.0, 8.0, 16.0, 86.7):
        for ratio in (-1.5 * gamma, 0.2 * gamma, 2.0 * gamma, 3.457 * gamma):
            for length, truth in ((2, of_one_other), (3, of_two_others)):
                others = sink_chance.Others(
                    np.zeros(1), np.array([2 * gamma]), np.array([length - 1.0])
                )
                value, bound = sink_chance.below(others, 2 * ratio)
                off = abs(value - truth(gamma, ratio))
                assert off <= bound + 2e-15  # the rounding of the reference
                worst, cells = max(worst, off), cells + 1
    assert cells == 72
    assert worst < 1e-13 if points == 161 else worst > 1e-9
