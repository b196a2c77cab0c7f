"""Rows with steps: their tokens, the exact law, spherical keys, sinks."""

import functools
from dataclasses import dataclass, replace

import mpmath
import numpy as np
import pytest
from example_rows import WEIGHT, every_row, sampled
from scipy.stats import norm
from second_law import n_eff_of_normal_tokens

from sparsity import (
    Alibi,
    Chunk,
    Decay,
    FloorLog,
    InputError,
    LengthBias,
    LogLength,
    Needle,
    NeedleAbove,
    QKNorm,
    Row,
    ScalableSoftmax,
    ScaleInvariant,
    Sink,
    SinkLogit,
    SoftCap,
    Window,
    Yarn,
    errors,
    estimate,
    evaluate,
    exact,
    quantities,
    sink_logit,
)
from sparsity.crosscheck.reference_grid import cells_of_steps
from sparsity.exact_law import engine
from sparsity.exact_law.sums import token_sums
from sparsity.exact_law.transforms.laplace import laplace
from sparsity.rows import classes as token_classes
from sparsity.rows import score_laws
from sparsity.rows.tokens import every
from sparsity.sampling import Sampling
from sparsity.sampling.row_sampling import sample_rows

SHORT = 13  # more than the window of `MIXED`


@functools.cache
def law_of(row, n, of="n_eff"):
    """The exact law: of short rows several tests ask it."""
    return exact(row, length=n, of=of)


# What a row says of each token.


def test_positions_from_their_definitions():
    n, j = 7, np.arange(1, 8)
    distance = n - j
    for steps, beta, gamma, w in (
        ((), 0.5 + 0 * j, 2 + 0.0 * j, 1 + 0.0 * j),
        ((Decay(0.8),), 0.5 + 0 * j, 2 + 0.0 * j, 0.8 ** (n - j)),
        ((Alibi(0.25),), 0.5 - 0.25 * distance, 2 + 0.0 * j, 1 + 0.0 * j),
        ((Window(3),), 0.5 + 0 * j, 2 + 0.0 * j, 1.0 * (j > 4)),
        (
            (ScalableSoftmax(0.43),),
            0.5 * 0.43 * np.log(7) + 0 * j,
            2 * 0.43 * np.log(7) + 0 * j,
            None,
        ),
        ((LengthBias(0.5),), 0.5 + 0.5 * np.log(7) + 0 * j, 2 + 0.0 * j, 1 + 0.0 * j),
        ((ScalableSoftmax(1.0), LengthBias()), -0.5 * np.log(7) + 0 * j, None, None),
        ((Sink(3.0, 0.1),), np.where(j == 1, 3, 0.5), np.where(j == 1, 0.1, 2), None),
        ((Window(3), Sink(3.0)), np.where(j == 1, 3, 0.5), None, 1.0 * ((j > 4) | (j == 1))),
        ((Sink(3.0), Window(3)), None, None, 1.0 * (j > 4)),
        ((ScalableSoftmax(1.0), Alibi(1.0)), 0.5 * np.log(7) - distance, None, None),
        ((Alibi(1.0), ScalableSoftmax(1.0)), np.log(7) * (0.5 - distance), None, None),
        ((Decay(0.5), Decay(0.4)), None, None, 0.2 ** (n - j)),
    ):
        found = Row("exp", beta=0.5, gamma=2.0, steps=steps).positions(n)
        for value, wanted in zip(found, (beta, gamma, w), strict=True):
            assert value.shape == (n,)
            if wanted is not None:
                np.testing.assert_allclose(value, wanted, rtol=1e-14)
    assert Row("exp", gamma=1, steps=(SinkLogit(), SinkLogit(2.0))).tokens(5).units == (0.0, 2.0)
    assert Row("exp", gamma=1, steps=(QKNorm(16),)).tokens(5).scores == QKNorm(16)


NAMES = tuple(WEIGHT)


def by_turns():
    """Every step once, each with the next kernel."""
    return [every_row(NAMES[i % 3])[i] for i in range(len(every_row("exp")))]


@pytest.mark.parametrize("row", by_turns(), ids=str)
def test_contract_of_every_step(row):
    n, tokens = 2, row.tokens(2)
    assert tokens.count.sum() == n
    assert np.all(np.diff(tokens.distance) > 0)
    found = law_of(row, n)
    assert 1 - 1e-9 <= found.value <= n * (1 + 1e-9)
    assert found.error_bound < 1e-9
    assert found.S_rms == pytest.approx(np.sqrt(found.value / n), rel=1e-14)
    y2 = law_of(row, n, "participation")
    assert 0 < y2.value <= 1 + 1e-9
    assert y2.error_bound < 1e-9


def test_limit_forms_of_every_step_are_between_0_and_1():
    for row in by_turns():
        for n in (2, SHORT):
            assert 0 < evaluate(row, length=n).S <= 1, (row, n)


def test_long_rows_in_few_groups():
    window = (Window(512), Sink(3.0))
    for steps in (window, (*window, Decay(0.5))):
        row = Row("exp", gamma=1, steps=steps)
        assert len(row.tokens(10**12).count) < 2000
        found = exact(row, length=10**12)
        assert found.error_bound < 1e-9
        assert found.value < 514
    # A window is a row of its own; the rest counts in n only.
    row = Row("relu2", beta=1.0, gamma=1.0)
    inside, whole = exact(row, length=512), exact(row.then(Window(512)), length=10**12)
    assert whole.value == pytest.approx(float(inside.value), rel=1e-11)
    assert whole.S_rms == pytest.approx(np.sqrt(inside.value / 1e12), rel=1e-11)


# The exact law.

LENGTHS = np.unique(np.round(np.geomspace(1, 1e12, 13)))


@pytest.mark.parametrize(
    ("name", "beta", "gamma"), [("exp", 7, 5), ("relu2", -3, 1), ("identity", 0, 1)]
)
def test_rows_without_steps_are_those_of_the_sums_over_tokens(name, beta, gamma, monkeypatch):
    row, quantities = Row(name, beta=beta, gamma=gamma), ("n_eff", "participation", "S")
    plain = [exact(row, length=LENGTHS, of=of) for of in quantities]
    monkeypatch.setattr(engine, "identical_tokens", lambda *_, **__: False)
    for of, law in zip(quantities, plain, strict=True):
        general = exact(row, length=LENGTHS, of=of)
        assert np.max(general.error_bound) < 1e-9
        gap = np.abs(general.value / law.value - 1)
        assert np.all(gap <= general.error_bound + law.error_bound)
        np.testing.assert_allclose(general.p_nonzero, law.p_nonzero, rtol=1e-12)


def test_two_tokens_against_transforms_taken_where_they_are_needed():
    """Two tokens of weights 1 and w, the transforms evaluated at u + ln w² themselves."""
    for name, beta, gamma in (("exp", 0, 2), ("identity", 1, 1), ("relu2", 1, 1)):
        row = Row(name, beta=beta, gamma=gamma)
        law = laplace(row.kernel, float(beta), float(gamma), 2, (0.5, 1.0))
        scale, step = np.exp(law.top), 0.1
        p_row = 1 - (1 - min(scale * law.p_nonzero, 1)) ** 2
        for w in (0.9, 0.123, 1e-3):
            low, high = law.range(2.0)
            u = np.arange(low - 2, high + 12 - 2 * np.log(w), step)
            psi, (m1, m2) = law.at(u)
            psi_w, (m1_w, m2_w) = law.at(u + 2 * np.log(w))
            alone = m2 * (1 - scale * psi_w) + m2_w * (1 - scale * psi)
            direct = np.sum(alone + 2 * scale * m1 * m1_w) * step * scale / p_row
            value = exact(row.then(Decay(w)), length=2).value
            assert value == pytest.approx(direct, rel=1e-11)


def test_alibi_of_exp_is_decay():
    one = exact(Row("exp", beta=0.3, gamma=1.5, steps=(Alibi(0.1),)), length=400)
    decay = Decay(float(np.exp(-0.1)))
    other = exact(Row("exp", gamma=1.5, steps=(decay,)), length=400)
    assert one.value == pytest.approx(float(other.value), rel=1e-11)


@dataclass(frozen=True)
class Wave:
    """A bias that differs from token to token, and on wish a spread."""

    swing: float = 2.0
    spread: float = 0.0

    def breaks(self, length):
        return every(length)

    def __call__(self, tokens, length):
        wave = np.cos(0.05 * tokens.distance)
        gamma = tokens.gamma * (1 + self.spread * np.sin(0.37 * tokens.distance))
        return replace(tokens, beta=tokens.beta + self.swing * wave, gamma=gamma)


def test_a_coarse_interpolation_says_so(monkeypatch):
    """With too few nodes the measured bound grows, and covers the error."""
    row = Row("identity", beta=0, gamma=1, steps=(Wave(1.0),))
    fine, participation = (exact(row, length=120, of=of) for of in ("n_eff", "participation"))
    assert max(fine.error_bound, participation.error_bound) < 1e-9
    assert 0 < evaluate(row, length=120).S <= 1
    monkeypatch.setattr(token_classes, "CHEBYSHEV_NODES", 6)
    monkeypatch.setattr(errors, "RESOLVED", 1.0)  # as it is, it would be refused
    coarse = exact(row, length=120)
    assert 1e-9 < abs(coarse.value / fine.value - 1) < coarse.error_bound


@pytest.mark.thorough
def test_half_the_step_agrees(monkeypatch):
    length, rows = SHORT, by_turns()
    coarse = [law_of(row, length) for row in rows]
    monkeypatch.setattr(engine, "STEP_OF_IDENTICAL", 0.07)
    monkeypatch.setattr(token_sums, "GRID_STEP", 0.05)
    monkeypatch.setattr(engine, "GRID_STEP", 0.05)
    for row, old in zip(rows, coarse, strict=True):
        new = exact(row, length=length)
        assert abs(new.value / old.value - 1) <= old.error_bound + new.error_bound


@pytest.mark.thorough
def test_sampled_rows_of_every_step():
    rows = by_turns()
    for row in rows:
        found, tokens = sampled(row, SHORT, 50_000), row.tokens(SHORT)
        quantities = ["n_eff", "participation"]
        if tokens.sink.any() or tokens.units:
            quantities.append("sink_mass")
        for of in quantities:
            mean, error = found[of]
            assert abs(mean - law_of(row, SHORT, of).value) < 4.5 * error, (row, of)


def test_limit_form():
    """Independent factors multiply; the pooled moments of distinct tokens by their closed forms."""
    for name in WEIGHT:
        window = evaluate("decayed", decay=0.9, length=50)
        score = evaluate(name, beta=0.4, gamma=1)
        row = Row(name, beta=0.4, gamma=1.0, steps=(Decay(0.9),))
        found = evaluate(row, length=50)
        assert found.method == "limit form"
        assert found.log_S == pytest.approx(float(window.log_S + score.log_S), abs=1e-13)
    row = Row("identity", beta=1.0, gamma=0.8, steps=(Alibi(0.1), Sink(2.0, 0.3)))
    beta, gamma, w = row.positions(20)
    m1 = gamma * np.sqrt(2 / np.pi) * np.exp(-(beta**2) / gamma**2 / 2)
    m1 += beta * (1 - 2 * norm.cdf(-beta / gamma))
    S = (w * m1).sum() / np.sqrt(20 * (w**2 * (beta**2 + gamma**2)).sum())
    assert evaluate(row, length=20).S == pytest.approx(S, rel=1e-12)


# Keys on a sphere.


def _spherical_log_s(gamma, dim):
    """log S of exp on the sphere, E e^(κ cos θ) = ₀F₁(; d/2; κ²/4) with κ = γ√d."""
    with mpmath.workdps(40):
        kappa = mpmath.mpf(gamma) * mpmath.sqrt(dim)
        first, second = (
            mpmath.log(mpmath.hyp0f1(mpmath.mpf(dim) / 2, (p * kappa) ** 2 / 4)) for p in (1, 2)
        )
        return float(first - second / 2)


def test_spherical_keys_printed_values():
    wanted = {4: 0.48805, 16: 0.29041, 64: 0.18647}
    for dim, value in wanted.items():
        assert abs(np.exp(_spherical_log_s(2.0, dim)) - value) <= 0.5001e-5
        row = Row("exp", gamma=2.0, steps=(QKNorm(dim),))
        assert evaluate(row, length=9).S == pytest.approx(
            float(np.exp(_spherical_log_s(2.0, dim))), rel=1e-12
        )
    assert np.exp(_spherical_log_s(2.0, 10**6)) == pytest.approx(np.exp(-2), rel=1e-4)
    row = Row("exp", gamma=2.0, steps=(QKNorm(10**6),))
    assert evaluate(row, length=9).log_S == pytest.approx(_spherical_log_s(2.0, 10**6), abs=1e-11)


def test_spherical_axis_is_a_probability_law():
    for dim in (2, 10**6):
        law = exact(Row("exp", gamma=1.0, steps=(QKNorm(dim),)), length=[3, 40])
        assert np.all(law.p_nonzero == 1)
    # relu², d = 2: P(β + γ√2 cos θ > 0) = arccos(−β/(γ√2))/π
    law = exact(Row("relu2", beta=-0.5, gamma=2.0, steps=(QKNorm(2),)), length=1)
    assert law.p_nonzero == pytest.approx(np.arccos(0.5 / 2 / np.sqrt(2)) / np.pi, rel=1e-12)


# Sinks.

SINKS = [(2, 1000, 8, 0.29300), (1, 1000, np.log(1000) + 0.5, 0.50021)]


@pytest.mark.parametrize(("gamma", "n", "b", "value"), SINKS)
def test_printed_sink_mass(gamma, n, b, value):
    row = Row("exp", gamma=gamma)
    law = exact(row.then(SinkLogit(b)), length=n, of="sink_mass")
    assert abs(law.value - value) <= 0.5001e-5
    assert law.error_bound < 1e-9
    # A sink token of fixed score beside n others is the same.
    token = exact(row.then(Sink(b)), length=n + 1, of="sink_mass")
    assert token.value == pytest.approx(float(law.value), rel=1e-12)
    assert sink_logit(float(law.value), row, length=n) == pytest.approx(b, abs=1e-11)


def test_sink_logit_grows_like_ln_n():
    n = np.array([1e3, 1e6, 1e9, 1e12])
    for gamma in (0.5, 1.0, 2.0):
        row = Row("exp", gamma=gamma)
        b = sink_logit(0.5, row, length=n)
        assert b[-1] == pytest.approx(np.log(n[-1]) + gamma**2 / 2, abs=1e-3)
        assert np.all(np.diff(b - np.log(n)) > -1e-9)
        back = [
            exact(row.then(SinkLogit(float(x))), length=m, of="sink_mass").value
            for x, m in zip(b, n, strict=True)
        ]
        np.testing.assert_allclose(back, 0.5, rtol=1e-11)


def test_a_sink_logit_takes_mass_and_changes_no_ratio(monkeypatch):
    bare = Row("exp", gamma=1.0)
    beside = bare.then(SinkLogit(2.0))
    forms = [evaluate(row.then(Window(20)), length=20).log_S for row in (bare, beside)]
    assert forms[0] == forms[1]
    assert float(evaluate(beside).S) == pytest.approx(np.exp(-0.5), rel=1e-13)  # of long rows
    drawn = estimate(beside, rel_error=3e-3)
    assert abs(drawn.S - np.exp(-0.5)) < 4 * drawn.stderr
    y2, less = (exact(row, length=20, of="participation").value for row in (bare, beside))
    assert less < y2
    assert exact(bare, length=20).value == exact(beside, length=20).value
    monkeypatch.setattr(engine, "identical_tokens", lambda *_, **__: False)  # token by token
    assert exact(bare, length=20).value == exact(beside, length=20).value


# Sampled rows: the cells of the reference grid, and what cannot be sampled.


def test_reference_cells():
    """They hold every step and every law; `test_crosscheck` samples them with the whole grid."""
    cells = cells_of_steps()
    assert len(cells) == 52
    kinds = {type(step) for cell in cells for step in cell.row.steps}
    steps = {Alibi, Chunk, Decay, FloorLog, LengthBias, LogLength, Needle, NeedleAbove,
             ScalableSoftmax, ScaleInvariant,
             Sink, QKNorm, SinkLogit, SoftCap, Window, Yarn}  # fmt: skip
    assert kinds == steps | set(score_laws.ALL)
    laws = {q.name for q in quantities.ALL if q.has_law}
    assert {cell.quantity for cell in cells} == laws | {
        *("top_k_mass:3", "power_sum:3", "sink_mass_above:0.6"),
        *("needle_odds_above:0.3", "needle_snr_above:0.8"),
        *("below:-1", "mass_below:-1", "overlap:0.5", "top_k_overlap:3,0.5"),
    }


def test_what_cannot_be_sampled():
    bare, few = Row("exp", gamma=1.0), Sampling(rel_error=1e-2)
    for make, match in (
        (lambda: sample_rows(bare.then(Sink(1.0)), 10**9, few), "length"),
        (lambda: sample_rows(bare, 5, few, "sink_mass"), "no sink"),
    ):
        with pytest.raises(InputError, match=match):
            make()


# Errors planted in the theory, against rows by NumPy.


def _pairs_with_themselves(one):
    """N for n − 1: the pairs of a token with itself are kept."""

    def planted(row, c, k, channels, longest, **options):
        sums = one(row, c, k, channels, longest, **options)
        if len(channels) == 3:
            sums.channels[2] *= 0.0
        return sums

    return planted


def _scaled_channels(power):
    """Πφ^(1 + power/n) in place of Πφ: φ^n for φ^(n−1)."""

    def plant(one):
        def planted(row, c, k, channels, longest, **options):
            sums = one(row, c, k, channels, longest, **options)
            return sums._replace(log_phi=sums.log_phi * (1 + power / row.count.sum()))

        return planted

    return plant


def _lost_t(one):
    def planted(row, c, k, channels, longest, **options):
        return one(row, c, tuple(x / 2 if x == 2.0 else x for x in k), channels, longest, **options)

    return planted


def _unit_twice(one):
    def planted(row, c, k, channels, longest, **options):
        units = row.token == 0
        return one(
            row._replace(count=np.where(units, 2.0, row.count)), c, k, channels, longest, **options
        )

    return planted


PLANTED = {
    "n for n − 1": (_pairs_with_themselves, "n_eff"),
    "φ^n for φ^(n−1)": (_scaled_channels(1), "n_eff"),
    "a lost t": (_lost_t, "participation"),
    "the unit counted twice": (_unit_twice, "sink_mass"),
    "φ^(n+1) in the sink mass": (_scaled_channels(1), "sink_mass"),
}
STEPS = {
    "n_eff": (Decay(0.8),),
    "participation": (Alibi(0.1), SinkLogit(-1.0)),
    "sink_mass": (SinkLogit(1.0),),
}
SAMPLED = 400_000  # rows: a gap of four of their errors is one in 16,000


@functools.cache
def _drawn(row):
    return sampled(row, 8, SAMPLED)


def _agrees(row, of, theory=None):
    mean, error = _drawn(row)[of]
    return abs(mean - exact(theory or row, length=8, of=of).value) < 4 * error


@pytest.mark.parametrize("planted", PLANTED)
def test_planted_errors_are_rejected(planted, monkeypatch):
    """The right law passes the very test that each wrong one fails."""
    plant, of = PLANTED[planted]
    row = Row("exp", gamma=0.5, steps=STEPS[of])
    assert _agrees(row, of)
    monkeypatch.setattr(token_sums, "sums", plant(token_sums.sums))
    assert not _agrees(row, of)


WRONG = {  # a decay that is faster, κ for γ on the sphere, a sink that spreads more
    Decay(0.8): Decay(0.79),
    QKNorm(3): QKNorm(2),
    Sink(1.0, 0.5): Sink(1.0, 0.6),
}


@pytest.mark.parametrize("step", WRONG, ids=str)
def test_wrong_steps_are_rejected(step):
    row = Row("exp", gamma=1.0, steps=(step,))
    assert _agrees(row, "n_eff")
    assert not _agrees(row, "n_eff", Row("exp", gamma=1.0, steps=(WRONG[step],)))


def test_errors():
    bare = Row("exp", gamma=1.0)
    for make, match in (
        (lambda: Row("exp", beta=np.nan, gamma=1), "beta"),
        (lambda: Row("exp", gamma=0.0), "gamma = 0"),
        (lambda: Decay(0.0), "decay = 0"),
        (lambda: Alibi(-1.0), "slope = -1"),
        (lambda: Window(0), "size = 0"),
        (lambda: Sink(0.0, -1.0), "gamma = -1"),
        (lambda: QKNorm(1), "dim = 1"),
        (lambda: bare.tokens(0), "length = 0"),
        (lambda: bare.then(Alibi(0.1)).tokens(10**9), "length = 1000000000"),
        (lambda: bare.then(Decay(1 - 1e-9)).tokens(10**12), "decay"),
        (lambda: exact(bare, length=5, gamma=2), "gamma = 2: the row has its own"),
        (lambda: exact("nonnegative", length=5, ratio=1, dim=2, query="uniform"), "kernel = nonn"),
        (lambda: exact(Row("identity", beta=0, gamma=1, steps=(Sink(0.0),)), length=1), "in sight"),
        (lambda: exact(bare, length=5, of="sink_mass"), "no sink"),
        (lambda: sink_logit(1.5, bare, length=5), "mass = 1.5"),
        (lambda: sink_logit(0.5, Row("relu2", beta=-3, gamma=1), length=1), "mass = 0.5"),
    ):
        with pytest.raises(InputError, match=match):
            make()


# Tokens far lighter than the heaviest: the square root of a weight matters long before the weight.


def test_light_tokens_beside_heavy_ones_by_sums_over_scores():
    for step, slope, n in (
        (Decay(0.2), -np.log(0.2), 20),
        (Alibi(1.0), 1.0, 30),
        (Alibi(0.05), 0.05, 100),
    ):
        found = exact(Row("exp", gamma=1.0, steps=(step,)), length=n)
        other = n_eff_of_normal_tokens(-slope * np.arange(n), np.ones(n))
        assert abs(found.value / other - 1) < found.error_bound + 1e-12
        assert found.error_bound < 1e-10


@pytest.mark.parametrize("b", [-40, -5, 20])
def test_mass_of_one_unit_beside_one_token(b):
    with mpmath.workdps(30):
        share = mpmath.quad(
            lambda x: mpmath.npdf(x) / (1 + mpmath.exp(x - b)),
            [-30, -20, -10, -5, -2, 0, 2, 5, 10, 20, 30] if b > -30 else np.arange(-30, 31, 1),
        )
    row = Row("exp", gamma=1.0, steps=(SinkLogit(float(b)),))
    law = exact(row, length=1, of="sink_mass")
    assert abs(float(law.value / share) - 1) < 1e-11 + law.error_bound
    assert law.error_bound < 1e-11


@pytest.mark.parametrize(("mass", "gamma"), [(1e-20, 1.0), (1 - 1e-9, 1.0)])
def test_sink_logit_of_any_mass_and_spread(mass, gamma):
    row = Row("exp", gamma=gamma)
    b = float(sink_logit(mass, row, length=1000))
    found = float(exact(row.then(SinkLogit(b)), length=1000, of="sink_mass").value)
    assert found == pytest.approx(mass, rel=1e-8)
    if gamma == 1.0 and mass == 1 - 1e-9:  # e^b·E 1/Σ: the odds are e^(b)/E Σ where tokens vanish
        assert b == pytest.approx(np.log(1e9) + np.log(1000) + 0.5, abs=1e-5)


def test_a_row_of_nothing_but_a_sink_gives_it_all():
    law = exact(Row("exp", gamma=1.0, steps=(Sink(2.0),)), length=1, of="sink_mass")
    assert law.value == pytest.approx(1.0, rel=1e-12)
    assert law.error_bound < 1e-11
