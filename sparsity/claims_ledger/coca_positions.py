"""Claims about rotary positions, with their judges: anomaly, border, decay, longer contexts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import bdtr

from sparsity.claims_ledger.coca_forms import CocaRoutes, coca_claim
from sparsity.claims_ledger.findings import ALARM, Judged, core, instead, joined, letter
from sparsity.claims_ledger.judging import Claim, sampling, z_tests
from sparsity.crosscheck.outcome import compare_mean
from sparsity.rows.rope_planes import join, planes
from sparsity.rows.rope_scaling import DynamicNtkScaling, RopeScaling
from sparsity.rows.rotated_scores import coca_by_definition, coca_scores, rope_scores
from sparsity.rows.row import Row
from sparsity.rows.steps import Coca, Rope

_DIM = 64
_PAIRS = 20_000  # of random queries and keys: a share of planes is then known to 6e-4


def anomaly(routes: CocaRoutes, seed: int) -> Judged:
    """Judge how many planes of random q and k start by rising, and for how long."""
    rng = np.random.default_rng([seed, 21])
    theta = routes.angles(_DIM)
    q, k = (planes(x) for x in rng.standard_normal((2, _PAIRS, _DIM)))
    # Tokens, [pairs, planes]; 0 where a plane starts by falling.
    tau = routes.anomaly_length(q, k, theta)
    # Keys and queries with a common mean: each vector is paired with another of the same sample.
    mixed = rng.standard_normal((_PAIRS, _DIM)) + 1.0
    aligned = routes.anomaly_length(planes(mixed), planes(mixed[::-1]), theta)
    return joined(
        _half_start_by_rising(q * np.conj(k), theta, tau),
        _they_rise_for(theta, tau),
        _in_whole_tokens(np.angle(q * np.conj(k)), theta, tau),
        _with_a_common_mean(theta, aligned),
    )


def _half_start_by_rising(score: np.ndarray, theta: np.ndarray, tau: np.ndarray) -> Judged:
    # By the score itself, not by the sign of sin Θ: each plane is turned by this many radians. In
    # 1.6e-5 of the planes an extreme lies inside so small a turn, and the two may differ.
    turn = 1e-4
    rises = np.real(score * np.exp(1j * turn)) > np.real(score)
    share = np.mean(tau > 0)
    rising = np.sum(tau > 0)
    # P(so few heads of a fair coin), one tail of two; the claim has three statistical findings.
    tail = bdtr(min(rising, tau.size - rising), tau.size, 0.5)
    findings = [
        core(
            f"half of the planes of random q and k start by rising: {share:.4f} of {tau.size}",
            tail >= ALARM / 3 / 2,
        ),
        core(
            "they are the planes whose rotated score does rise at first",
            np.mean(rises == (tau > turn / theta)) > 1 - 1e-3,
        ),
    ]
    return findings, {"share": share, "planes": tau.size}


def _they_rise_for(theta: np.ndarray, tau: np.ndarray) -> Judged:
    # The mean over planes that rise at all, E[2π − Θ | Θ > π]/θ: each plane alone, and all together
    # in radians, where they have one law.
    expected = np.pi / (2 * theta)
    alarm = ALARM / 3 / (len(theta) + 1)
    tests = [compare_mean(t[t > 0], m, alarm) for t, m in zip(tau.T, expected, strict=True)]
    pooled, limit = compare_mean((tau * theta)[tau > 0], np.pi / 2, alarm)  # radians
    z = np.array([z for z, _ in tests])
    finding = core(
        f"they rise for π/(2θ_i) tokens on average, in each of {len(z)} planes (largest "
        f"|z| {np.abs(z).max():.2f}; of all together {abs(pooled):.2f}), "
        f"from {expected[0]:.2f} to {expected[-1]:.0f} tokens",
        all(abs(z) < limit for z, limit in (*tests, (pooled, limit))),
    )
    rise = [t[t > 0].mean() for t in tau.T]
    numbers = {"mean_rise": rise, "expected_rise": expected, "z": z, "z_of_all": pooled}
    return [finding], numbers


def _in_whole_tokens(angle: np.ndarray, theta: np.ndarray, tau: np.ndarray) -> Judged:
    """Count unit steps until the score first falls, in the eight fastest planes.

    The eighth plane turns by 0.13 radians a token; slower ones rise for too many tokens to count.
    """
    steps, walked, gaps = np.arange(0, 400), [], []
    for i in range(8):
        up = np.diff(np.cos(angle[:2000, i, None] + steps * theta[i]), axis=1) > 0
        walked.append(np.argmin(up, axis=1)[tau[:2000, i] > 0].mean())
        gaps.append(abs(walked[i] - tau[tau[:, i] > 0, i].mean()))
    counted = core("counted in whole tokens the mean differs by less than a token", max(gaps) < 1)
    return [counted], {"whole_tokens": walked}


def _with_a_common_mean(theta: np.ndarray, aligned: np.ndarray) -> Judged:
    share, expected = np.mean(aligned > 0), np.pi / (2 * theta[0])
    fastest = aligned[:, 0][aligned[:, 0] > 0].mean()
    finding = instead(
        "the half is that of random directions: with a mean that queries and keys share the "
        f"share is {share:.4f} as well, Θ being even, but the mean rise of the "
        f"fastest plane is {fastest:.2f} tokens, not {expected:.2f}",
        abs(share - 0.5) < 0.01 and fastest < 0.9 * expected,
    )
    return [finding], {}


def border(routes: CocaRoutes, seed: int) -> Judged:
    """Judge where a plane's score turns: at distances that depend on the key, or not."""
    rng = np.random.default_rng([seed, 22])
    theta = routes.angles(_DIM)
    q = rng.standard_normal((1, _DIM))
    t = np.maximum(rng.standard_normal((500, _DIM // 2)), 0)
    keys = rng.standard_normal((500, _DIM))
    collinear = np.stack([q[0, 0::2] * t, q[0, 1::2] * t], axis=-1).reshape(500, _DIM)
    rise = routes.anomaly_length(planes(q), planes(collinear), theta)
    free = routes.anomaly_length(planes(q), planes(keys), theta)
    live = t > 0  # a plane without a key has no score
    # Distances at which the single planes of the definition rise, from unit steps.
    distance = np.arange(33)
    ups = []
    for plane in np.eye(_DIM // 2):
        key = np.broadcast_to(plane, (len(distance), _DIM // 2))
        row = coca_by_definition(q, key, m=[40], n=40 - distance)[0]
        ups.append((np.diff(row) > 1e-12 * row[0]).argmax())  # row[0] is the largest score
    # `argmax` of no True at all is 0, and no plane rises with the very first step (Θ = 0).
    first = np.where(np.array(ups) > 0, ups, np.inf)  # ∞: not within these distances
    due = np.pi / theta
    inside = due < 31  # turns that 33 distances must show; later ones they must not
    # Θ = 0 may be computed as 2π less a rounding: such a plane "rises" for 1e-9 radians at most.
    findings = [
        core(
            f"with k = q∘t no plane of {live.sum()} starts by rising; with free keys "
            f"{np.mean(free > 0):.3f} of them do",
            np.all(rise[live] * theta.min() < 1e-9) and abs(np.mean(free > 0) - 0.5) < 0.05,
        ),
        core(
            "where a plane turns does not depend on the key: at multiples of π/θ_i",
            np.all(np.abs(first[inside] - due[inside]) < 1.0) and np.all(first[~inside] > 30),
        ),
        letter("the score of a plane keeps falling with distance", not np.isfinite(first).any()),
        instead(
            f"it rises again after π/θ_i tokens, the fastest plane after {due[0]:.2f}",
            np.isfinite(first[0]) and abs(first[0] - due[0]) < 1,
        ),
    ]
    numbers = {
        "planes": live.sum(),
        "share_of_free_keys": np.mean(free > 0),
        "first_rise": np.where(np.isfinite(first), first, -1),
        "due": due,
    }
    return findings, numbers


def bounds(routes: CocaRoutes, seed: int) -> Judged:
    """Compare both bounds with scores, for random vectors at distances up to 32768."""
    rng = np.random.default_rng([seed, 23])
    theta = routes.angles(_DIM)
    distance = np.unique(np.rint(np.geomspace(1, 32768, 60)).astype(int))
    # One pair of random vectors after another: a bound must hold for each at every distance. Above
    # the score by 1e-12 is rounding.
    ratios, holds_rope, holds_coca, rises = [], True, True, 0
    for _ in range(40):
        q, k = rng.standard_normal((2, _DIM))
        x, y = planes(q), planes(k)
        rope, coca = routes.decay_bounds(x, y, distance, theta)
        score = rope_scores(q[None], k[None].repeat(len(distance), 0), m=[0], n=-distance)[0]
        t = np.abs(y) / np.abs(x)  # the same |q_i||k_i| with Θ_i = 0
        keys = np.broadcast_to(t, (len(distance), _DIM // 2))
        collinear = coca_scores(q[None], keys, m=[0], n=-distance)[0]
        holds_rope &= bool(np.all(np.abs(score) <= rope * (1 + 1e-12)))
        holds_coca &= bool(np.all(np.abs(collinear) <= coca * (1 + 1e-12)))
        ratios.append(coca / rope)
        near = np.arange(64)  # every distance, where the others are log-spaced
        row = coca_scores(q[None], np.broadcast_to(t, (64, _DIM // 2)), m=[0], n=-near)[0]
        rises += int((np.diff(row) > 0).any())
    ratio = np.array(ratios)
    # Why both sequences end in a zero: were all |q_i||k_i| equal and no zero added, all differences
    # would be 0 and so the bound, which a score at distance 0 exceeds.
    flat = planes(np.ones(_DIM))
    loose = routes.decay_bounds(flat, flat, np.array([0]), theta)[1]
    findings = [
        core("RoPE's bound holds for every score computed", holds_rope),
        core("CoCA's bound holds for every score computed", holds_coca),
        core(
            f"CoCA's bound is the smaller at every one of {ratio.size} points, by a factor of "
            f"{1 / ratio.max():.2f} to {1 / ratio.min():.2f}",
            ratio.max() < 1,
        ),
        instead(
            f"neither makes the score fall at every step: it rises somewhere in the first 64 "
            f"tokens for {rises} of 40 collinear pairs",
            rises == 40,
        ),
        instead(
            "the sequence of |q_i||k_i| must end in a zero: with equal ones, the largest "
            "difference is that last step, and the bound at distance 0 is above the score",
            loose[0] >= np.sum(np.abs(flat) ** 2),
        ),
    ]
    shown = [0, 10, 20, 30, 40, len(distance) - 1]
    numbers = {
        "distance": distance[shown].astype(float),
        "mean_ratio": ratio.mean(axis=0)[shown],
        "largest_ratio": ratio.max(),
        "smallest_ratio": ratio.min(),
    }
    return findings, numbers


TRAINED = 512  # as in the source
_LENGTHS = (512, 2048, 8192)
_QUERIES = 8  # random ones, of whose mean scores the findings speak
# Of them, of whose rows there is the exact law: all findings hold for each, or for their mean.
_ATTENDED = 3
_STRENGTH = 6.0  # mean collinear score of a key beside the query
# Trained and actual length of sampled rows: twice and four times the trained length. They are short
# as each row draws whole vectors; the law under test is the same at any length.
_CELLS = ((32, 64), (32, 128))
_RARE = 0.05  # the share of keys up to which new mean scores count as "hardly any"


def _laws(seed: int) -> list[tuple[Coca, Rope]]:
    """Return CoCA of random queries, ‖q‖² = d, and with each RoPE with a mean key to match.

    Both have the same |q_i||k_i| in every plane and the same γ at distance 0, so that what differs
    is the angle Θ_i between q_i and k_i alone: 0 with CoCA, random with RoPE.
    """
    rng, laws = np.random.default_rng([seed, 25]), []
    for query in rng.standard_normal((_QUERIES, _DIM)):
        query *= _DIM**0.5 / np.linalg.norm(query)
        center = _STRENGTH / _DIM
        # t ~ N(c, (c/8)²) is cut at 0 eight standard deviations below its mean: hardly ever, so
        # that its mean, which the key of RoPE is made from, is c.
        coca = Coca(query, center, center / 8)
        mean = center * planes(query) * np.exp(1j * rng.uniform(0, 2 * np.pi, _DIM // 2))
        key = join(mean.real, mean.imag, coca.pairing)
        laws.append((coca, Rope(query, key, float(coca.gamma(0)) / _DIM**0.5)))
    return laws


def extends(routes: CocaRoutes, seed: int) -> Judged:
    """Compare mean scores and the tokens attended to with those up to the trained length."""
    laws, rule = _laws(seed), DynamicNtkScaling(1.0, TRAINED)
    coca, rope = zip(*laws, strict=True)
    plain, scaled, turned, turned_scaled = (
        _shares(routes, law[:_ATTENDED], scaling)
        for law in (coca, rope)
        for scaling in (None, rule)
    )
    # Geometric means over queries of how the share changes: of ratios, the logarithms are averaged.
    kept, left = (np.exp(np.log(x[:, 1:] / x[:, :1]).mean(axis=0)) for x in (scaled, plain))
    outside, outside_plain = (_new_scores(routes, coca, x) for x in (rule, None))
    outside_rope = _new_scores(routes, rope, None)
    agree, tested = _sampled(routes, coca[0], seed)
    # n_eff in the longest context over that in the trained one, of each query.
    tokens = _LENGTHS[-1] / TRAINED * scaled[:, -1] / scaled[:, 0]
    findings = [
        core(f"n_eff is that of sampled rows of rotated vectors in {len(_CELLS)} cells", agree),
        core(
            "with the rule a key's mean score is one that training has seen: at "
            f"{_LENGTHS[-1]} tokens {outside[-1]:.1%} of the keys have one outside the range up to "
            f"{TRAINED}; without it {outside_plain[-1]:.0%} (mean of {_QUERIES} random queries)",
            bool(np.all(outside < _RARE) and outside_plain[-1] > 4 * _RARE),
        ),
        letter(
            f"the number of tokens attended to is that of {TRAINED} tokens",
            np.all(np.abs(tokens - 1) < 0.1),
        ),
        letter(
            f"the share of the context attended to is that of {TRAINED} tokens",
            np.all(np.abs(kept - 1) < 0.1),
        ),
        instead(
            f"the number is {tokens.min():.0f} to {tokens.max():.0f} times that at {TRAINED} "
            f"tokens in 16 times the context, for {len(tokens)} of the queries: the share grows to "
            f"{kept[0]:.2f} and {kept[1]:.2f} times at 4 and 16 times; without the rule it falls, "
            f"to {left[0]:.2f} and {left[1]:.2f}",
            bool(np.all(kept > 1) and np.all(left < 1)),
        ),
        instead(
            "CoCA attends to fewer tokens than RoPE with mean keys of random direction, with the "
            "rule and without, at every length and for every query",
            bool(np.all(plain < turned) and np.all(scaled < turned_scaled)),
        ),
        instead(
            f"RoPE's mean scores hardly leave their range, with or without the rule: "
            f"{outside_rope[-1]:.1%}",
            bool(outside_rope[-1] < outside_plain[-1] / 2),
        ),
    ]
    numbers = {
        "length": _LENGTHS,
        "CoCA": plain.mean(axis=0),
        "CoCA + dynamic NTK": scaled.mean(axis=0),
        "RoPE": turned.mean(axis=0),
        "RoPE + dynamic NTK": turned_scaled.mean(axis=0),
        "new": outside_plain,
        "new + dynamic NTK": outside,
        "new, RoPE": outside_rope,
        "sampling": tested,
    }
    return findings, numbers


def _shares(
    routes: CocaRoutes, steps: Sequence[Rope | Coca], scaling: RopeScaling | None
) -> np.ndarray:
    """Return n_eff/n of rows under each step, [queries, lengths]."""
    rows = [Row("exp", steps=(replace(step, scaling=scaling),)) for step in steps]
    return np.array([routes.n_eff(row, _LENGTHS) for row in rows]) / _LENGTHS


def _new_scores(
    routes: CocaRoutes, steps: Sequence[Rope | Coca], scaling: RopeScaling | None
) -> np.ndarray:
    """Return the share of keys with a mean score outside those up to the trained length, [lengths].

    Such a score is one that the model has never met in training, whatever the distance.
    """
    outside = np.zeros(len(_LENGTHS))
    for step in (replace(step, scaling=scaling) for step in steps):
        # Training has seen every distance up to L, under the angles of a context of L tokens.
        seen = routes.mean_scores(step, np.arange(TRAINED), TRAINED)
        for i, n in enumerate(_LENGTHS):
            beta = routes.mean_scores(step, np.arange(n), n)
            outside[i] += np.mean((beta < seen.min()) | (beta > seen.max()))
    return outside / len(steps)


def _sampled(routes: CocaRoutes, step: Coca, seed: int) -> tuple[bool, dict[str, Any]]:
    """Compare the exact law of rows under the rule with rows of rotated vectors."""
    cells = []
    for i, (trained, n) in enumerate(_CELLS):
        row = Row("exp", steps=(replace(step, scaling=DynamicNtkScaling(1.0, trained)),))
        theory = float(np.log(routes.n_eff(row, n)))
        drawn = routes.rows(row, n, sampling(3e-3, seed + 250 + i))
        cells.append(({"trained": trained, "n": n}, theory, drawn))
    return z_tests(cells)


CLAIMS: tuple[Claim, ...] = (
    coca_claim(
        key="rope-anomaly",
        statement="Under RoPE, planes with Θ_i > π have a score that rises with distance at first: "
        "half of the planes, for π/(2θ_i) tokens on average.",
        formula="cos(Θ_i + mθ_i) rises for τ = (2π − Θ_i)/θ_i tokens, Θ_i uniform on [0, 2π)",
        proof="d/dm cos(Θ + mθ) = −θ sin(Θ + mθ) > 0 exactly while Θ + mθ is in (π, 2π); "
        "E[2π − Θ | Θ > π] = π/2.",
        judge=anomaly,
        labels={
            "share": "share of planes with Θ_i > π",
            "mean_rise": "mean rise, tokens",
            "expected_rise": "π/(2θ_i)",
            "z_of_all": "z of all planes together",
            "whole_tokens": "mean rise counted in whole tokens, eight fastest planes",
        },
        rough=("z_of_all",),
    ),
    coca_claim(
        key="k-border",
        statement="Collinearity, k = q∘t with t ≥ 0, removes the border that depends on the key, "
        "so that the score falls with distance.",
        formula="Θ_i = 0: the score of plane i is t_i|q_i|² cos(mθ_i)",
        proof="arg(t_i q_i) = arg q_i for t_i > 0, so that Θ_i = 0; cos(mθ_i) falls until mθ_i = π "
        "and then rises, whatever t.",
        judge=border,
        labels={
            "share_of_free_keys": "share of planes that rise with free keys",
            "first_rise": "first rise, tokens (−1: none seen)",
            "due": "π/θ_i",
        },
    ),
    coca_claim(
        key="decay-bound",
        statement="CoCA has a stronger bound on long-range decay than RoPE.",
        formula="|a(s)| ≤ max|l_(i+1) − l_i| Σ_j|C_(j+1)|, C_j = Σ_(k<j) cos(sθ_k), against "
        "max|h_(i+1) − h_i| Σ_j|S_(j+1)|, S_j = Σ_(k<j) e^(isθ_k), l_i = |h_i|",
        proof="Summation by parts with l, h ending in a zero. |C_j| ≤ |S_j| as C_j = Re S_j, and "
        "|l_(i+1) − l_i| ≤ |h_(i+1) − h_i| by the triangle inequality.",
        judge=bounds,
        labels={
            "smallest_ratio": "smallest ratio",
            "distance": "distance, tokens",
            "mean_ratio": "mean ratio of the bounds",
        },
    ),
    coca_claim(
        key="coca-ntk",
        statement="With dynamic NTK, CoCA extends its context: beyond the trained length L a "
        "query's scores, and what it attends to, are as at L.",
        formula="θ_i of base·(n/L)^(d/(d−2)) in contexts of n > L",
        proof="The slowest plane turns by n·θ_min·L/n = L·θ_min from end to end, as at L; the "
        "fastest by a radian a token, as ever. What lies between is computed.",
        judge=extends,
        labels={
            "length": "context length n",
            "trained": "trained length L",
            "CoCA": "mean share n_eff/n, CoCA",
            "CoCA + dynamic NTK": "n_eff/n, CoCA with dynamic NTK",
            "RoPE": "n_eff/n, RoPE with mean keys of random direction",
            "RoPE + dynamic NTK": "n_eff/n, RoPE with dynamic NTK",
            "new": "keys with a mean score outside those up to 512 tokens, CoCA",
            "new + dynamic NTK": "the same, CoCA with dynamic NTK",
            "new, RoPE": "the same, RoPE",
        },
        rough=("CoCA", "CoCA + dynamic NTK", "RoPE", "RoPE + dynamic NTK"),
    ),
)
