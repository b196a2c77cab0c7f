"""RoPE and CoCA: rotation, scores, row laws, sampling and claims; planted errors are rejected."""

import functools
import math
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from second_law import n_eff_of_normal_tokens

from sparsity import Coca, InputError, Needle, Rope, Row, Sink, exact, metric
from sparsity.claims_ledger import coca_forms, coca_positions
from sparsity.claims_ledger.coca_forms import CocaRoutes
from sparsity.rows import rope_planes, rotated_scores
from sparsity.rows.steps.rope_and_coca import rectified_moments
from sparsity.sampling import Sampling
from sparsity.sampling.row_sampling import sample_rows
from sparsity.sampling.row_sources import rotary_scores

jax.config.update("jax_enable_x64", True)

PAIRINGS = rope_planes.PAIRINGS
FALSE_ALARM = 1e-4


def vectors(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def n_eff(step, length, kernel="exp"):
    return exact(Row(kernel, beta=0, steps=(step,)), length=length)


def critical(count: int, dof: int = 63) -> float:
    return float(stats.t.isf(FALSE_ALARM / 2 / count, dof))


# Vectors


def test_angles_are_those_of_the_source():
    assert rope_planes.angles(4) == pytest.approx([1.0, 0.01], rel=1e-15)
    theta = rope_planes.angles(128)
    assert theta.shape == (64,)
    assert theta[63] == pytest.approx(10000 ** (-126 / 128))
    np.testing.assert_allclose(theta[1:] / theta[:-1], 10000 ** (-1 / 64), rtol=1e-13)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_rotation_by_matrices(pairing):
    d, n = 6, 5
    x, positions = vectors(n, d), np.array([0, 1, 7, 100, 30000])
    found = rope_planes.rotate(x, positions, pairing)
    for row, position, got in zip(x, positions, found, strict=True):
        turn = np.zeros((d, d))
        for i in range(d // 2):
            a, b = (2 * i, 2 * i + 1) if pairing == "interleaved" else (i, i + d // 2)
            angle = position * 10000.0 ** (-2 * i / d)
            turn[np.ix_([a, b], [a, b])] = [
                [np.cos(angle), -np.sin(angle)],
                [np.sin(angle), np.cos(angle)],
            ]
        np.testing.assert_allclose(got, turn @ row, atol=1e-12)
    np.testing.assert_allclose((found**2).sum(axis=1), (x**2).sum(axis=1), rtol=1e-12)


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_to_join_undoes_to_split(pairing):
    for turned in (None, 4, 8):
        planes = rope_planes.split(np.arange(8), pairing, turned)
        np.testing.assert_array_equal(rope_planes.join(*planes, pairing, turned), np.arange(8))
    first = [0, 2] if pairing == "interleaved" else [0, 1]
    np.testing.assert_array_equal(rope_planes.split(np.arange(8), pairing, 4)[0], [*first, 4, 6])


@pytest.mark.parametrize("pairing", PAIRINGS)
@settings(max_examples=20)
@given(shift=st.integers(0, 10**5), seed=st.integers(0, 2**20))
def test_scores_depend_on_the_distance_alone_and_slack_does_not(pairing, shift, seed):
    d, m, n = 8, np.array([5, 9]), np.array([0, 3, 5])
    q, k, t = vectors(2, d, seed=seed), vectors(3, d, seed=seed + 1), None
    t = np.abs(vectors(3, d // 2, seed=seed + 2))
    for form, key in ((rotated_scores.rope_scores, k), (rotated_scores.coca_scores, t)):
        here, there = (
            form(q, key, pairing, m=m, n=n),
            form(q, key, pairing, m=m + shift, n=n + shift),
        )
        np.testing.assert_allclose(here, there, atol=1e-8)
    even = q.copy()
    a, b = (slice(0, None, 2), slice(1, None, 2))
    if pairing == "half":
        a, b = slice(0, d // 2), slice(d // 2, None)
    even[:, b] = even[:, a]
    exact = rotated_scores.coca_scores(even, t, pairing, m=m + shift, n=n + shift)
    np.testing.assert_allclose(
        rotated_scores.slack_scores(even, t, pairing, m=m + shift, n=n + shift), exact, atol=1e-8
    )


@pytest.mark.parametrize("pairing", PAIRINGS)
def test_scores_are_the_formulas(pairing):
    d = 16
    q, k, t = vectors(3, 7, d), vectors(3, 9, d, seed=1), np.abs(vectors(3, 9, d // 2, seed=2))
    x, y, theta = (
        rope_planes.planes(q, pairing),
        rope_planes.planes(k, pairing),
        rope_planes.angles(d),
    )
    m, n = np.arange(7)[:, None], np.arange(9)[None, :]
    x, y = x[:, :, None], y[:, None]
    phase = np.angle(x) - np.angle(y) + (m - n)[..., None] * theta
    formula = (np.abs(x) * np.abs(y) * np.cos(phase)).sum(axis=-1)
    np.testing.assert_allclose(rotated_scores.rope_scores(q, k, pairing), formula, atol=1e-12)
    exact = (t[:, None] * np.abs(x) ** 2 * np.cos((m - n)[..., None] * theta)).sum(axis=-1)
    np.testing.assert_allclose(rotated_scores.coca_by_definition(q, t, pairing), exact, atol=1e-12)
    np.testing.assert_allclose(rotated_scores.coca_scores(q, t, pairing), exact, atol=1e-12)
    slack = (t[:, None] * rotated_scores.slack_coefficients(x, m, n, theta)).sum(axis=-1)
    np.testing.assert_allclose(rotated_scores.slack_scores(q, t, pairing), slack, atol=1e-12)
    assert np.abs(slack - exact).max() > 1


def test_half_of_the_planes_rise_for_pi_over_two_theta():
    theta = rope_planes.angles(8)
    q, k = (rope_planes.planes(vectors(50_000, 8, seed=s)) for s in (1, 2))
    tau = rotated_scores.anomaly_length(q, k, theta)
    # By walking: the first distance, in hundredths of a token of the plane, where it falls.
    step = np.arange(400) * 0.01
    phase = (np.angle(q) - np.angle(k))[:500, :, None] + step
    walked = np.argmin(np.diff(np.cos(phase), axis=-1) > 0, axis=-1) * 0.01
    clear = np.abs(np.cos(phase[:, :, 0]) + 1) > 1e-4  # not within a step of Θ = π
    assert clear.mean() > 0.98
    np.testing.assert_allclose(walked[clear], (tau[:500] * theta)[clear], atol=0.011)
    assert np.mean(tau > 0) == pytest.approx(0.5, abs=4 / np.sqrt(tau.size))
    for column, expected in zip(tau.T, np.pi / (2 * theta), strict=True):
        up = column[column > 0]
        assert up.mean() == pytest.approx(expected, abs=4 * up.std() / np.sqrt(up.size))


def test_decay_bounds_hold_and_need_their_last_step():
    theta, s = rope_planes.angles(16), np.arange(200)
    for seed in range(20):
        q, k = (rope_planes.planes(vectors(16, seed=2 * seed + i)) for i in (0, 1))
        rope, coca = rotated_scores.decay_bounds(q, k, s, theta)
        turned = np.exp(1j * s[:, None] * theta)
        assert np.all(np.abs((q * np.conj(k) * turned).sum(axis=-1).real) <= rope)
        assert np.all(np.abs((np.abs(q * k) * np.real(turned)).sum(axis=-1)) <= coca)
        assert np.all(coca <= rope)
    flat = np.ones(8)
    assert np.abs(np.diff(flat)).max() == 0  # without the zero at the end the bound would be 0
    assert rotated_scores.decay_bounds(flat, flat, np.array([0]), theta)[1][0] >= 8


# Steps


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("form", "pairing"), [("rope", "half"), ("coca", "interleaved"), ("slack", "half")]
)
def test_mean_and_band_from_rotated_vectors(form, pairing):
    q = vectors(8, seed=3)
    laws = {
        "rope": Rope(q, vectors(8, seed=4), 0.4, pairing),
        "coca": Coca(q, 0.1, 0.5, pairing),
        "slack": Coca(q, 0.1, 0.5, pairing, slack_at=40),
    }
    law, distance = laws[form], np.array([0, 1, 5, 17, 40])
    found = rotary_scores(law, distance, Sampling(seed=5, dtype=np.float64), chunks=2)
    z = [
        (found.beta - law.beta(distance)) / found.beta_stderr,
        (found.gamma - law.gamma(distance)) / found.gamma_stderr,
    ]
    assert np.abs(z).max() < critical(10 * 6)
    assert found.beta_stderr.max() < 0.02
    if form == "rope":
        assert np.all(law.gamma(distance) == 0.4 * np.linalg.norm(q))


class Degrees(Rope):
    def theta(self, length):
        return np.deg2rad(super().theta(length))


class FromOne(Rope):
    def theta(self, length):
        return self.base ** (-2 * np.arange(1, self.query.size // 2 + 1) / self.query.size)


def wrong_pairing(query, mean, spread):
    return Rope(query, mean, spread, "half")


ARGUMENTS = (vectors(8, seed=3), vectors(8, seed=4), 0.4)
NEAR = np.arange(1, 9)


@functools.cache
def drawn_once():
    """Moments of scores, and n_eff of 16 tokens, by rotated vectors."""
    right = Rope(*ARGUMENTS)
    asked = Sampling(rel_error=1.5e-3, seed=7, dtype=np.float64)
    return (
        rotary_scores(right, NEAR, Sampling(seed=6, dtype=np.float64), chunks=2),
        sample_rows(Row("exp", steps=(right,)), 16, asked),
    )


def deviations(law):
    """Of β_m and of n_eff, in standard errors."""
    found, rows = drawn_once()
    gap = rows.log_value - np.log(n_eff(law, 16).value)
    return np.abs((found.beta - law.beta(NEAR)) / found.beta_stderr).max(), gap / rows.rel_stderr


@pytest.mark.thorough
def test_the_law_is_that_of_rotated_vectors():
    beta, tokens = deviations(Rope(*ARGUMENTS))
    assert beta < critical(len(NEAR))
    assert abs(tokens) < critical(4)


@pytest.mark.parametrize("wrong", [Degrees, FromOne, wrong_pairing])
def test_planted_errors_are_rejected(wrong):
    beta, tokens = deviations(wrong(*ARGUMENTS))
    assert beta > 10 * critical(len(NEAR))
    assert abs(tokens) > 2 * critical(4)


def test_rectified_moments():
    for center, spread in ((0.0, 1.0), (-1.0, 0.5), (2.0, 0.7)):
        z: Any = stats.norm(center, spread)
        m1, _ = integrate.quad(lambda t, z=z: t * z.pdf(t), 0, 12, epsabs=1e-13)
        m2, _ = integrate.quad(lambda t, z=z: t * t * z.pdf(t), 0, 12, epsabs=1e-13)
        assert rectified_moments(center, spread) == pytest.approx((m1, m2 - m1**2), rel=1e-9)


# The exact law of tokens that all differ


@pytest.mark.parametrize(
    "step",
    [
        Rope(vectors(16, seed=1), vectors(16, seed=2), 0.3),
        Coca(vectors(64, seed=4), 4.0, 0.01),  # means of the scores spread over 400
        Coca(vectors(32, seed=5), 2.0, 0.1, slack_at=700),
    ],
    ids=["RoPE", "CoCA, far apart", "CoCA, slack form"],
)
def test_the_law_of_different_tokens_by_sums_over_scores(step):
    for n in (2, 30):
        distance = np.arange(n)
        found = n_eff(step, n)
        other = n_eff_of_normal_tokens(step.beta(distance), step.gamma(distance))
        assert abs(float(found.value) / other - 1) < float(found.error_bound) + 1e-11
        wrong = n_eff_of_normal_tokens(step.beta(distance), 1.01 * step.gamma(distance))
        assert abs(float(found.value) / wrong - 1) > 1e-9


@pytest.mark.parametrize("step", [Rope([1.0, 2.0], [1.0, 0.5], 0.5), Coca([1.0, 2.0], 0.9, 0.05)])
def test_what_does_not_turn_keeps_its_score(step):
    tokens = Row("exp", steps=(Sink(3.0, 0.5), Needle(4.0, 0.25, 5), step)).tokens(12)
    still = np.isin(tokens.distance, [5, 11])
    assert [*tokens.beta[still], *tokens.gamma[still]] == [4.0, 3.0, 0.25, 0.5]
    assert not np.isin(tokens.beta[~still], [3.0, 4.0]).any()


def test_rows_of_coca_that_is_cut_at_zero_are_sampled():
    q, t = vectors(1, 6, seed=8), np.maximum(vectors(4000, 12, 3, seed=9), 0) * 0.4
    s = rotated_scores.coca_scores(q, t, m=[11], n=11 - np.arange(12))[:, 0]
    drawn = metric.n_eff(np.exp(s))
    row = Row("exp", steps=(Coca(q[0], 0.0, 0.4),))
    rows = sample_rows(row, 12, Sampling(rel_error=2e-3, seed=3, dtype=np.float32))
    error = math.hypot(drawn.std() / np.sqrt(4000), rows.stderr)
    assert abs(drawn.mean() - rows.value) < 4 * error
    with pytest.raises(InputError, match="must be >= 8·spread; else only estimate"):
        exact(row, length=12)


@pytest.mark.parametrize(("kind", "pairing"), [*zip(("jax", "lists"), PAIRINGS, strict=True)])
def test_integers_are_turned_as_numbers(pairing, kind):
    def every(x, k, t):
        """Scores of each form, turned vectors and their planes."""
        forms = (
            rotated_scores.coca_scores,
            rotated_scores.coca_by_definition,
            rotated_scores.slack_scores,
        )
        scores = [
            rotated_scores.rope_scores(x, k, pairing),
            *(form(x, t, pairing) for form in forms),
        ]
        return *scores, rope_planes.rotate(x, [1, 2, 3], pairing), rope_planes.planes(x, pairing)

    x = np.arange(12).reshape(3, 4) - 3
    whole = x, x[::-1] + 1, np.arange(6).reshape(3, 2)
    given = [y.tolist() for y in whole] if kind == "lists" else whole
    *found, turned, planes = (jax.jit(every) if kind == "jax" else every)(*given)
    *exact, as_numbers, _ = every(*(y.astype(float) for y in whole))
    for one, other in zip(found, exact, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
        assert np.any(other != np.round(other))
    assert len(found) == 4
    np.testing.assert_allclose(turned, as_numbers)
    np.testing.assert_array_equal(planes, rope_planes.planes(x, pairing))


def test_slack_positions_stay_within_the_row():
    law = Coca(vectors(8), 10.0, 1.0, slack_at=6)
    assert n_eff(law, 7).value > 1
    with pytest.raises(InputError, match=r"slack_at = 6: .*distance 7"):
        n_eff(law, 8)


# Bad input


def test_the_first_negative_t_is_said():
    with pytest.raises(InputError, match=r"t = -2\.0"):
        rotated_scores.coca_scores(vectors(2, 4), np.array([[0.0, -2.0], [-3.0, 1.0]]))


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: rope_planes.angles(7), "dim"),
        (lambda: rope_planes.angles(8, base=1.0), "base"),
        (lambda: rope_planes.rotate(vectors(3, 5), np.arange(3)), "dim"),
        (lambda: rope_planes.rotate(vectors(3, 4), np.arange(3), "pairs"), "pairing"),
        (lambda: rotated_scores.coca_scores(vectors(3, 4), -np.ones((3, 2))), "t"),
        (lambda: Rope(np.zeros(8), vectors(8), 1.0), "query"),
        (lambda: Rope(vectors(8), vectors(6), 1.0), "mean"),
        (lambda: Rope(vectors(8), vectors(8), 0.0), "spread"),
        (lambda: Rope(vectors(8), vectors(8), 1.0, "other"), "pairing"),
        (lambda: Coca(vectors(8), 9.0, 1.0, slack_at=-1), "slack_at"),
        (lambda: rotated_scores.rope_scores(vectors(3, 4), vectors(3, 6)), "key"),
        (lambda: Coca(vectors(8), -9.0, 1.0), "center"),
        (lambda: Coca(vectors(8), 0.0, -1.0), "spread"),
        (lambda: n_eff(Coca(vectors(8), 0.0, 1.0), 8, "relu2"), "center"),
    ],
)
def test_bad_input(call, argument):
    with pytest.raises(InputError) as caught:
        call()
    assert caught.value.argument == argument


# Claims


CLAIMS = (*coca_positions.CLAIMS, *coca_forms.CLAIMS)
VERDICTS = {
    "rope-anomaly": "confirmed",
    "k-border": "refined",
    "decay-bound": "confirmed",
    "dual-form": "confirmed",
    "slack": "confirmed",
    "coca-ntk": "refined",
}


# The laws and samples of one world are those of another that changes neither.
HONEST = CocaRoutes(n_eff=functools.cache(CocaRoutes.n_eff), rows=functools.cache(CocaRoutes.rows))


@pytest.fixture(scope="module", autouse=True)
def few_queries():
    """Two queries in place of eight: the committed claims are of eight."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coca_positions, "_QUERIES", 2)
        yield


def test_verdicts(committed_claims):
    records = [committed_claims[claim.key] for claim in CLAIMS]
    assert {r["key"]: r["verdict"] for r in records} == VERDICTS
    extra = [f for r in records for f in r["evidence"]["findings"] if f["role"] == "instead"]
    assert len(extra) == 10
    assert all(f["holds"] for f in extra)


def degrees(*_: Any, dim: int = 64) -> np.ndarray:
    return np.deg2rad(rope_planes.angles(dim))


WRONG_WORLDS = {
    "rope-anomaly": CocaRoutes(
        anomaly_length=lambda q, k, th: 0.99 * rotated_scores.anomaly_length(q, k, th)
    ),
    "k-border": CocaRoutes(angles=degrees),
    "decay-bound": CocaRoutes(
        decay_bounds=lambda *a: (
            rotated_scores.decay_bounds(*a)[0],
            0.05 * rotated_scores.decay_bounds(*a)[1],
        )
    ),
    "dual-form": CocaRoutes(
        slack_scores=lambda q, t, m: rotated_scores.coca_scores(q, 1.001 * t, m=m)
    ),
    "slack": CocaRoutes(slack_scores=rotated_scores.coca_scores),
    "coca-ntk": replace(HONEST, mean_scores=lambda step, m, n: replace(step, scaling=None).beta(m)),
}


@pytest.mark.thorough
@pytest.mark.parametrize(  # rows two per cent off are the quicker wrong world of coca-ntk, below
    "claim",
    [pytest.param(c, marks=[pytest.mark.slow] * (c.key == "coca-ntk")) for c in CLAIMS],
    ids=lambda c: c.key,
)
def test_a_wrong_world_changes_the_verdict(claim):
    assert claim.record(WRONG_WORLDS[claim.key])["verdict"] == "refuted"


@pytest.mark.thorough
def test_a_law_two_per_cent_off_is_seen_by_rows_of_rotated_vectors():
    (claim,) = (claim for claim in CLAIMS if claim.key == "coca-ntk")
    wrong = replace(HONEST, n_eff=lambda row, n: 1.02 * np.asarray(HONEST.n_eff(row, n)))
    record = claim.record(wrong)
    assert record["verdict"] == "refuted"
    failed = [f for f in record["evidence"]["findings"] if f["role"] == "core" and not f["holds"]]
    assert [f["statement"].split(" in ")[0] for f in failed] == [
        "n_eff is that of sampled rows of rotated vectors"
    ]
