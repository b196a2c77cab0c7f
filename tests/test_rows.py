"""Row laws: their tokens, the exact law of their rows, spherical keys, sinks, sampled rows."""

import time
from dataclasses import dataclass, replace

import mpmath
import numpy as np
import pytest
from scipy.stats import norm

from sparsity import kernels
from sparsity.errors import InputError
from sparsity.finite import finite_length, finite_rows, mellin, transforms
from sparsity.finite.finite_rows import limit, n_eff, participation, sink_logit, sink_mass
from sparsity.finite.laplace import laplace
from sparsity.kernels import exp, identity, relu2, score_kernel
from sparsity.kernels.symbols import s
from sparsity.montecarlo import Sampling
from sparsity.montecarlo.scores_sampling import sample_rows
from sparsity.rows import classes as token_classes
from sparsity.rows import steps as scores
from sparsity.rows.steps import (
    ALL,
    Alibi,
    Decay,
    LogScaled,
    RowLaw,
    Sink,
    Spherical,
    Unit,
    Window,
    every,
)
from sparsity.theory import sphere
from sparsity.theory.evaluation import evaluate
from sparsity.verification.crosscheck import judge
from sparsity.verification.row_cells import reference_cells

WEIGHT = {"exp": np.exp, "relu2": lambda x: np.maximum(x, 0) ** 2, "identity": np.abs}


def _sampled(name, law, n, rows=200_000):
    """Rows by NumPy alone, from β_j, γ_j, w_j: means and errors of n_eff, Σp², sink mass."""
    rng = np.random.default_rng(20231212)
    beta, gamma, w = law.positions(n)
    tokens = law.tokens(n)
    if tokens.dim:
        k = rng.standard_normal((rows, n, tokens.dim))
        z = np.sqrt(tokens.dim) * k[..., 0] / np.linalg.norm(k, axis=-1)
    else:
        z = rng.standard_normal((rows, n))
    a = w * WEIGHT[name](beta + gamma * z)
    unit = np.exp(tokens.units).sum() if tokens.units else 0.0
    sink = np.repeat(tokens.sink, tokens.count.astype(int))[::-1]
    l1, l2 = a.sum(axis=1), (a * a).sum(axis=1)
    live = l1 > 0
    whole = live | (unit > 0)
    values = {
        "n_eff": l1[live] ** 2 / l2[live],
        "participation": l2[whole] / (l1[whole] + unit) ** 2,
        "sink_mass": ((a * sink).sum(axis=1) + unit)[whole] / (l1[whole] + unit),
    }
    return {k: (v.mean(), v.std() / np.sqrt(len(v))) for k, v in values.items()}


# What a row law says of each token.


def test_positions_from_their_definitions():
    n, j = 7, np.arange(1, 8)
    distance = n - j
    for steps, beta, gamma, w in (
        ((), 0.5 + 0 * j, 2 + 0.0 * j, 1 + 0.0 * j),
        ((Decay(0.8),), 0.5 + 0 * j, 2 + 0.0 * j, 0.8 ** (n - j)),
        ((Alibi(0.25),), 0.5 - 0.25 * distance, 2 + 0.0 * j, 1 + 0.0 * j),
        ((Window(3),), 0.5 + 0 * j, 2 + 0.0 * j, 1.0 * (j > 4)),
        ((LogScaled(0.43),), 0.5 * 0.43 * np.log(7) + 0 * j, 2 * 0.43 * np.log(7) + 0 * j, None),
        ((Sink(3.0, 0.1),), np.where(j == 1, 3, 0.5), np.where(j == 1, 0.1, 2), None),
        ((Window(3), Sink(3.0)), np.where(j == 1, 3, 0.5), None, 1.0 * ((j > 4) | (j == 1))),
        ((Sink(3.0), Window(3)), None, None, 1.0 * (j > 4)),
        ((LogScaled(1.0), Alibi(1.0)), 0.5 * np.log(7) - distance, None, None),
        ((Alibi(1.0), LogScaled(1.0)), np.log(7) * (0.5 - distance), None, None),
        ((Decay(0.5), Decay(0.4)), None, None, 0.2 ** (n - j)),
    ):
        found = RowLaw(0.5, 2.0).then(*steps).positions(n)
        for value, wanted in zip(found, (beta, gamma, w), strict=True):
            assert value.shape == (n,)
            if wanted is not None:
                np.testing.assert_allclose(value, wanted, rtol=1e-14)
    assert RowLaw(steps=(Unit(), Unit(2.0))).tokens(5).units == (0.0, 2.0)
    assert RowLaw(steps=(Spherical(16),)).tokens(5).dim == 16


@pytest.mark.parametrize("law", ALL, ids=str)
def test_contract_of_every_law(law):
    for n in (2, 7, 40):
        tokens = law.tokens(n)
        assert tokens.count.sum() == n
        assert np.all(np.diff(tokens.distance) > 0)
        for name in ("exp", "relu2", "identity"):
            found = n_eff(name, law, n)
            assert 1 - 1e-9 <= found.n_eff <= n * (1 + 1e-9)
            assert found.error_bound < 1e-9
            assert found.S_rms == pytest.approx(np.sqrt(found.n_eff / n), rel=1e-14)
            assert 0 < limit(name, law, n).S <= 1
            y2, bound = participation(name, law, n)
            assert 0 < y2 <= 1 + 1e-9
            assert bound < 1e-9


def test_long_rows_in_few_groups():
    window = (Window(512), Sink(3.0))
    for steps in (window, (*window, Decay(0.5))):
        law = RowLaw(steps=steps)
        assert len(law.tokens(10**12).count) < 2000
        found = n_eff("exp", law, 10**12)
        assert found.error_bound < 1e-9
        assert found.n_eff < 514
    # A window is a row of its own; the rest counts in n only.
    inside, whole = (n_eff("relu2", law, n) for law, n in (
        (RowLaw(1.0, 1.0), 512), (RowLaw(1.0, 1.0, (Window(512),)), 10**12)
    ))  # fmt: skip
    assert whole.n_eff == pytest.approx(float(inside.n_eff), rel=1e-11)
    assert whole.S_rms == pytest.approx(np.sqrt(inside.n_eff / 1e12), rel=1e-11)


# The exact law.

LENGTHS = np.unique(np.round(np.geomspace(1, 1e12, 13)))


@pytest.mark.parametrize(
    ("name", "beta", "gamma"),
    [("exp", 0, 1), ("exp", 7, 5), ("exp", 0, 30), ("relu2", -3, 1), ("relu2", -30, 1),
     ("identity", 0, 1), ("identity", -30, 1)],
)  # fmt: skip
def test_iid_rows_are_those_of_finite_length(name, beta, gamma):
    plain = finite_length.n_eff(name, LENGTHS, beta=beta, gamma=gamma)
    law = n_eff(name, RowLaw(beta, gamma), LENGTHS)
    assert np.max(law.error_bound) < 1e-9
    gap = np.abs(law.n_eff / plain.n_eff - 1)
    assert np.all(gap <= law.error_bound + plain.error_bound)
    np.testing.assert_allclose(law.p_nonzero, plain.p_nonzero, rtol=1e-12)
    y2, bound = participation(name, RowLaw(beta, gamma), LENGTHS)
    other, other_bound = finite_length.participation(name, LENGTHS, beta=beta, gamma=gamma)
    assert np.all(np.abs(y2 / other - 1) <= bound + other_bound)


def test_two_tokens_against_transforms_taken_where_they_are_needed():
    """Two tokens of weights 1 and w, the transforms evaluated at u + ln w² themselves."""
    done = 0
    for name, beta, gamma in (("exp", 0, 0.05), ("exp", 0, 2), ("identity", 1, 1), ("relu2", 1, 1)):
        law = laplace(kernels.named(name), float(beta), float(gamma), 2, (0.5, 1.0))
        scale, step = np.exp(law.top), 0.1
        for w in (0.9, 0.123, 1e-3):
            low, high = law.range(2.0)
            u = np.arange(low - 2, high + 12 - 2 * np.log(w), step)
            psi, (m1, m2) = (np.array(x) for x in law(u))
            psi_w, (m1_w, m2_w) = law(u + 2 * np.log(w))
            alone = m2[:, 0] * (1 - scale * psi_w[:, 0]) + m2_w[:, 0] * (1 - scale * psi[:, 0])
            direct = np.sum(alone + 2 * scale * m1[:, 0] * m1_w[:, 0]) * step
            direct /= finite_length._p_row(law, np.array([2.0]))[0, 0]
            value = n_eff(name, RowLaw(beta, gamma, (Decay(w),)), 2)
            assert value.n_eff == pytest.approx(direct, rel=1e-11)
            done += 1
    assert done == 12


def test_alibi_of_exp_is_decay():
    one = n_eff("exp", RowLaw(0.3, 1.5, (Alibi(0.1),)), 400)
    other = n_eff("exp", RowLaw(0.0, 1.5, (Decay(float(np.exp(-0.1))),)), 400)
    assert one.n_eff == pytest.approx(float(other.n_eff), rel=1e-11)


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "law", "n"),
    [(relu2, RowLaw(0.0, 1.0, (Wave(1.0),)), 120), (identity, RowLaw(0.0, 2.0, (Wave(),)), 120),
     (relu2, RowLaw(-8.0, 1.0, (Wave(1.0),)), 120), (exp, RowLaw(0.0, 1.0, (Wave(2.0, 0.2),)), 120),
     (score_kernel("cubic", s**3 + s), RowLaw(0.0, 1.0, (Wave(0.8),)), 60)],
    ids=["relu2", "identity", "relu2 left", "exp", "cubic"],
)  # fmt: skip
def test_interpolation_between_laws_against_every_law_itself(kernel, law, n, monkeypatch):
    found, form = n_eff(kernel, law, n), limit(kernel, law, n)
    row = token_classes.row(kernel, law, n)
    assert any(piece.matrix is not None for piece in token_classes.pieces(row.classes))
    assert found.error_bound < 1e-9
    monkeypatch.setattr(token_classes, "_NODES", 10**6)
    direct, direct_form = n_eff(kernel, law, n), limit(kernel, law, n)
    assert abs(found.n_eff / direct.n_eff - 1) <= found.error_bound + direct.error_bound
    assert abs(form.log_S - direct_form.log_S) <= form.error_bound + direct_form.error_bound


def test_a_coarse_interpolation_says_so(monkeypatch):
    """With too few nodes the measured bound grows, and covers the error."""
    law = RowLaw(0.0, 1.0, (Wave(2.0),))
    fine = n_eff("identity", law, 120)
    monkeypatch.setattr(token_classes, "_NODES", 6)
    coarse = n_eff("identity", law, 120)
    assert 1e-9 < abs(coarse.n_eff / fine.n_eff - 1) < coarse.error_bound


def test_half_the_step_agrees(monkeypatch):
    laws = [(name, law) for name in ("exp", "relu2", "identity") for law in ALL]
    coarse = [n_eff(name, law, 30) for name, law in laws]
    monkeypatch.setattr(transforms, "STEP", 0.05)
    monkeypatch.setattr(finite_rows, "STEP", 0.05)
    for (name, law), old in zip(laws, coarse, strict=True):
        new = n_eff(name, law, 30)
        assert abs(new.n_eff / old.n_eff - 1) <= old.error_bound + new.error_bound


@pytest.mark.parametrize("name", WEIGHT)
def test_sampled_rows_of_every_law(name):
    cells = 0
    for law in ALL:
        sampled = _sampled(name, law, 12, 100_000)
        exact = {
            "n_eff": n_eff(name, law, 12).n_eff,
            "participation": participation(name, law, 12)[0],
        }
        if law.tokens(12).sink.any() or law.tokens(12).units:
            exact["sink_mass"] = sink_mass(name, law, 12)[0]
        for quantity, value in exact.items():
            mean, error = sampled[quantity]
            assert abs(mean - value) < 4.5 * error, (law, quantity)
            cells += 1
    assert cells == 2 * len(ALL) + 3


def test_limit_form():
    """Independent factors multiply; the pooled moments of distinct tokens by their closed forms."""
    for name in ("exp", "relu2", "identity"):
        window, score = evaluate("decayed", decay=0.9, length=50), evaluate(name, beta=0.4, gamma=1)
        law = limit(name, RowLaw(0.4, 1.0, (Decay(0.9),)), 50)
        assert law.log_S == pytest.approx(float(window.log_S + score.log_S), abs=1e-13)
    beta, gamma, w = (law := RowLaw(1.0, 0.8, (Alibi(0.1), Sink(2.0, 0.3)))).positions(20)
    m1 = gamma * np.sqrt(2 / np.pi) * np.exp(-(beta**2) / gamma**2 / 2)
    m1 += beta * (1 - 2 * norm.cdf(-beta / gamma))
    S = (w * m1).sum() / np.sqrt(20 * (w**2 * (beta**2 + gamma**2)).sum())
    assert limit("identity", law, 20).S == pytest.approx(S, rel=1e-12)


# Keys on a sphere.


def test_spherical_keys_printed_values():
    wanted = {4: 0.48805, 16: 0.29041, 64: 0.18647}
    for dim, value in wanted.items():
        assert abs(np.exp(sphere.log_sparsity(2.0, dim)) - value) <= 0.5001e-5
        assert limit("exp", RowLaw(0.0, 2.0, (Spherical(dim),)), 9).S == pytest.approx(
            float(np.exp(sphere.log_sparsity(2.0, dim))), rel=1e-12
        )
    assert np.exp(sphere.log_sparsity(2.0, 10**6)) == pytest.approx(np.exp(-2), rel=1e-4)
    assert limit("exp", RowLaw(0.0, 2.0, (Spherical(10**6),)), 9).log_S == pytest.approx(
        float(sphere.log_sparsity(2.0, 10**6)), abs=1e-11
    )


def test_spherical_mean_against_high_precision():
    cells = 0
    with mpmath.workdps(40):
        for dim in (2, 3, 4, 16, 49, 50, 51, 1000, 10**6):
            for kappa in (1e-8, 0.3, 3.0, 20.0, 100.0, 2000.0):
                nu = mpmath.mpf(dim) / 2 - 1
                x = mpmath.mpf(kappa)
                exact = mpmath.log(mpmath.hyp0f1(nu + 1, x * x / 4))
                found = float(sphere.log_exp_mean(kappa, dim))
                assert abs(found - exact) <= 2e-14 * max(1, abs(exact))
                cells += 1
    assert cells == 54


def test_spherical_axis_is_a_probability_law():
    for dim in (2, 3, 10, 10**6):
        law = n_eff("exp", RowLaw(0.0, 1.0, (Spherical(dim),)), [3, 40])
        assert np.all(law.p_nonzero == 1)
    # relu², d = 2: P(β + γ√2 cos θ > 0) = arccos(−β/(γ√2))/π
    law = n_eff("relu2", RowLaw(-0.5, 2.0, (Spherical(2),)), 1)
    assert law.p_nonzero == pytest.approx(np.arccos(0.5 / 2 / np.sqrt(2)) / np.pi, rel=1e-12)


# Sinks.

SINKS = [(1, 100, 3, 0.11004), (2, 1000, 8, 0.29300), (3, 1000, 8, 0.04396),
         (1, 1000, np.log(1000) + 0.5, 0.50021)]  # fmt: skip


@pytest.mark.parametrize(("gamma", "n", "b", "value"), SINKS)
def test_printed_sink_mass(gamma, n, b, value):
    mass, bound = sink_mass("exp", RowLaw(0.0, gamma, (Unit(b),)), n)
    assert abs(mass - value) <= 0.5001e-5
    assert bound < 1e-9
    # A sink token of fixed score beside n others is the same.
    token, _ = sink_mass("exp", RowLaw(0.0, gamma, (Sink(b),)), n + 1)
    assert token == pytest.approx(float(mass), rel=1e-12)
    assert sink_logit(float(mass), RowLaw(0.0, gamma), n) == pytest.approx(b, abs=1e-11)


def test_sink_logit_grows_like_ln_n():
    n = np.array([1e3, 1e6, 1e9, 1e12])
    for gamma in (0.5, 1.0, 2.0):
        b = sink_logit(0.5, RowLaw(0.0, gamma), n)
        assert b[-1] == pytest.approx(np.log(n[-1]) + gamma**2 / 2, abs=1e-3)
        assert np.all(np.diff(b - np.log(n)) > -1e-9)
        back = [
            float(sink_mass("exp", RowLaw(0.0, gamma, (Unit(x),)), m)[0])
            for x, m in zip(b, n, strict=True)
        ]
        np.testing.assert_allclose(back, 0.5, rtol=1e-11)


def test_a_unit_takes_mass_and_changes_no_ratio():
    bare, beside = RowLaw(0.0, 1.0), RowLaw(0.0, 1.0, (Unit(2.0),))
    assert n_eff("exp", bare, 20).n_eff == n_eff("exp", beside, 20).n_eff
    assert limit("exp", bare, 20).S == limit("exp", beside, 20).S
    assert participation("exp", beside, 20)[0] < participation("exp", bare, 20)[0]


# Sampling, and errors planted in the theory.


def _check(cell, theory):
    estimate = cell.sample(Sampling(rel_error=4e-4, seed=3))
    return judge(cell, theory, estimate, 1e-4)


def test_reference_cells():
    cells = reference_cells()
    assert len(cells) >= 12
    for cell in cells:
        verdict = judge(
            cell, cell.theory(), cell.sample(Sampling(rel_error=1e-3, seed=11)), 1e-4 / len(cells)
        )
        assert verdict.verdict != "disagree", verdict
        assert verdict.estimate.trusted
    kinds = {type(step) for cell in cells for step in cell.law.steps}
    assert kinds == {Alibi, Decay, LogScaled, Sink, Spherical, Unit, Window}
    assert {cell.quantity for cell in cells} == {"n_eff", "participation", "sink_mass", "S"}


def _pairs_with_themselves(one):
    """N for n − 1: the pairs of a token with itself are kept."""

    def planted(row, c, k, channels, longest):
        sums = one(row, c, k, channels, longest)
        if len(channels) == 3:
            sums.channels[2] *= 0.0
        return sums

    return planted


def _scaled_channels(power):
    """Πφ^(1 + power/n) in place of Πφ: φ^n for φ^(n−1)."""

    def plant(one):
        def planted(row, c, k, channels, longest):
            sums = one(row, c, k, channels, longest)
            return sums._replace(log_phi=sums.log_phi * (1 + power / row.count.sum()))

        return planted

    return plant


def _lost_t(one):
    def planted(row, c, k, channels, longest):
        return one(row, c, tuple(x / 2 if x == 2.0 else x for x in k), channels, longest)

    return planted


def _unit_twice(one):
    def planted(row, c, k, channels, longest):
        units = row.token == 0
        return one(row._replace(count=np.where(units, 2.0, row.count)), c, k, channels, longest)

    return planted


PLANTED = {
    "n for n − 1": (_pairs_with_themselves, "n_eff"),
    "φ^n for φ^(n−1)": (_scaled_channels(1), "n_eff"),
    "a lost t": (_lost_t, "participation"),
    "φ^n for φ^(n−1) in Y₂": (_scaled_channels(1), "participation"),
    "the unit counted twice": (_unit_twice, "sink_mass"),
    "φ^(n+1) in the sink mass": (_scaled_channels(1), "sink_mass"),
}


@pytest.mark.parametrize("planted", [None, *PLANTED])
def test_planted_errors_are_rejected(planted, monkeypatch):
    """The right law (None) passes the very test that each wrong one fails."""
    if planted:
        plant, quantity = PLANTED[planted]
        monkeypatch.setattr(transforms, "sums", plant(transforms.sums))
    cells = [c for c in reference_cells() if c.kernel is exp]
    if planted:
        cells = [c for c in cells if c.quantity == quantity]
    else:
        cells = [
            next(c for c in cells if c.quantity == q)
            for q in ("n_eff", "participation", "sink_mass")
        ]
    judged = [_check(cell, cell.theory()).verdict for cell in cells[:2]]
    assert judged
    assert ("disagree" in judged) == (planted is not None)


def test_wrong_row_laws_are_rejected():
    """The step off by one token, ALiBi of the wrong sign, κ for γ on the sphere."""
    cells = {type(c.law.steps[0]): c for c in reference_cells()
             if c.kernel is exp and len(c.law.steps) == 1 and c.quantity == "n_eff"}  # fmt: skip
    wrong = {
        Window: (Window(5),),
        Decay: (Decay(0.79),),
        LogScaled: (LogScaled(0.44),),
        Spherical: (Spherical(2),),
        Sink: (Sink(1.0, 0.6),),
        Alibi: (Alibi(0.31),),
    }
    assert set(cells) == set(wrong)
    for kind, steps in wrong.items():
        cell = cells[kind]
        other = replace(cell, law=replace(cell.law, steps=steps))
        assert _check(cell, other.theory()).verdict == "disagree", kind


def test_sampled_quantities_together():
    rows = sample_rows("exp", RowLaw(0.0, 1.0, (Unit(1.0),)), 16, Sampling(rel_error=1e-3))
    law = RowLaw(0.0, 1.0, (Unit(1.0),))
    for name, value in (
        ("n_eff", n_eff("exp", law, 16).n_eff),
        ("participation", participation("exp", law, 16)[0]),
        ("sink_mass", sink_mass("exp", law, 16)[0]),
        ("S", limit("exp", law, 16).S),
    ):
        estimate = getattr(rows, name)
        assert abs(estimate.S - value) < 4.5 * estimate.stderr
    bare = sample_rows("exp", RowLaw(), 4, Sampling(rel_error=1e-2))
    assert bare.sink_mass is None


def test_a_curve_of_a_row_law_is_fast():
    """60 lengths of a window with a sink; the best of five, for the sake of busy machines."""
    law, lengths = (
        RowLaw(0.0, 2.0, (Window(512), Sink(4.0))),
        np.unique(np.round(np.geomspace(1, 1e12, 60))),
    )
    times = []
    for _ in range(5):
        start = time.perf_counter()
        n_eff("exp", law, lengths)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.25


def test_errors():
    for make, match in (
        (lambda: RowLaw(np.nan), "beta"),
        (lambda: RowLaw(0.0, 0.0), "gamma = 0"),
        (lambda: RowLaw(0.0, "x"), "gamma = x"),
        (lambda: Decay(0.0), "decay = 0"),
        (lambda: Decay([0.5, 0.6]), "decay"),
        (lambda: Alibi(-1.0), "slope = -1"),
        (lambda: Window(0), "size = 0"),
        (lambda: Window(2.5), "size = 2.5"),
        (lambda: LogScaled(0.0), "scale = 0"),
        (lambda: Unit(np.inf), "logit = inf"),
        (lambda: Sink(np.nan), "beta = nan"),
        (lambda: Sink(0.0, -1.0), "gamma = -1"),
        (lambda: Spherical(1), "dim = 1"),
        (lambda: Spherical(2.5), "dim = 2.5"),
        (lambda: Spherical("3"), "dim = 3"),  # type: ignore[arg-type]
        (lambda: Spherical([4, 8]), "dim"),  # type: ignore[arg-type]
        (lambda: RowLaw().tokens(0), "length = 0"),
        (lambda: RowLaw().tokens([1, 2]), "length"),
        (lambda: RowLaw(steps=(Alibi(0.1),)).tokens(10**9), "length = 1000000000"),
        (lambda: RowLaw(steps=(Decay(1 - 1e-9),)).tokens(10**12), "decay"),
        (lambda: n_eff("exp", Decay(0.5), 5), "law"),
        (lambda: n_eff("nonnegative", RowLaw(), 5), "kernel = nonnegative"),
        (lambda: n_eff("identity", RowLaw(steps=(Sink(0.0),)), 1), "in sight"),
        (lambda: sink_mass("exp", RowLaw(), 5), "no sink"),
        (lambda: sink_logit(1.5, RowLaw(), 5), "mass = 1.5"),
        (lambda: sink_logit(0.5, RowLaw(-3.0, 1.0), 1, "relu2"), "mass = 0.5"),
        (lambda: sink_logit(0.1, RowLaw(0.0, 1.0, (Unit(9.0),)), 5), "mass = 0.1"),
        (lambda: sphere.log_exp_mean(1.0, 1), "dim"),
        (lambda: sphere.log_exp_mean(np.inf, 4), "kappa"),
        (lambda: sample_rows("exp", RowLaw(), 10**9, Sampling()), "length"),
        (lambda: sample_rows("exp", RowLaw(), 5, Sampling(), "sink_mass"), "no sink"),
        (lambda: sample_rows("exp", RowLaw(), 5, Sampling(), "mass"), "quantity = mass"),
    ):
        with pytest.raises(InputError, match=match):
            make()
    assert all(isinstance(law, RowLaw) for law in scores.ALL)


# Tokens far lighter than the heaviest: the square root of a weight is felt long before the weight.


def test_light_tokens_beside_heavy_ones_against_the_second_exact_law():
    seen = 0
    for step, slope, n in (
        (Decay(0.5), -np.log(0.5), 40),
        (Decay(0.2), -np.log(0.2), 20),
        (Alibi(1.0), 1.0, 30),
        (Alibi(3.0), 3.0, 10),
        (Alibi(0.05), 0.05, 500),
    ):
        found = n_eff("exp", RowLaw(0, 1.0, (step,)), n)
        other, bound = mellin.n_eff_of_normal_prefixes(-slope * np.arange(n), np.ones(n), n)
        assert abs(found.n_eff / other - 1) < found.error_bound + bound + 1e-12
        assert found.error_bound < 1e-10
        seen += 1
    assert seen == 5


@pytest.mark.parametrize("n", [10**9, 10**12])
def test_many_light_tokens_beside_a_heavy_sink(n):
    """Their sum is certain: n_eff = (1 + r)², r = n E[a]/a_sink, but for its variance, ~1/n."""
    found = n_eff("exp", RowLaw(0, 0.1, (Sink(np.log(n) + 5),)), n)
    r = np.exp(-5 + 0.1**2 / 2)
    assert found.n_eff == pytest.approx((1 + r) ** 2, rel=1e-9)


@pytest.mark.parametrize("b", [-60, -40, -20, -5, 5, 20])
def test_mass_of_one_unit_beside_one_token(b):
    with mpmath.workdps(30):
        share = mpmath.quad(
            lambda x: mpmath.npdf(x) / (1 + mpmath.exp(x - b)),
            [-30, -20, -10, -5, -2, 0, 2, 5, 10, 20, 30] if b > -30 else np.arange(-30, 31, 1),
        )
    mass, bound = sink_mass("exp", RowLaw(0, 1.0, (Unit(float(b)),)), 1)
    assert abs(float(mass / share) - 1) < 1e-11 + bound
    assert bound < 1e-11


@pytest.mark.parametrize("gamma", [1.0, 20.0, 30.0, 60.0])
@pytest.mark.parametrize("mass", [1e-20, 1e-8, 0.5, 1 - 1e-9])
def test_sink_logit_of_any_mass_and_spread(mass, gamma):
    law = RowLaw(0, gamma)
    b = float(sink_logit(mass, law, 1000))
    found = float(sink_mass("exp", law.then(Unit(b)), 1000)[0])
    assert found == pytest.approx(mass, rel=1e-8)
    if gamma == 1.0 and mass == 1 - 1e-9:  # e^b·E 1/Σ: the odds are e^(b)/E Σ where tokens vanish
        assert b == pytest.approx(np.log(1e9) + np.log(1000) + 0.5, abs=1e-5)


def test_a_steep_slope_costs_no_more_than_a_flat_one():
    found = n_eff("exp", RowLaw(0, 1.0, (Alibi(1e5),)), 4)
    assert found.n_eff == 1.0


@pytest.mark.parametrize(("steps", "n"), [((Sink(2.0),), 1), ((Window(1), Unit(3.0)), 1)])
def test_a_row_of_nothing_but_sinks_gives_them_all(steps, n):
    law = RowLaw(0, 1.0, steps)
    mass, bound = sink_mass("exp", law, n)
    if isinstance(steps[0], Sink):
        assert mass == pytest.approx(1.0, rel=1e-12)
        assert bound < 1e-11
    else:
        assert 0.5 < mass < 1
