"""Claims about rotary positions, with their judges: anomaly, k-border, decay bounds."""

from __future__ import annotations

import numpy as np
from scipy.special import bdtr

from sparsity.claims_ledger.coca_forms import CocaRoutes, coca_claim
from sparsity.claims_ledger.findings import ALARM, Judged, core, instead, joined, letter
from sparsity.claims_ledger.judging import Claim
from sparsity.crosscheck.outcome import compare_mean
from sparsity.rows.rope_planes import planes

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
        alone = np.broadcast_to(plane, (len(distance), _DIM // 2))
        row = routes.coca_by_definition(q, alone, m=[40], n=40 - distance)[0]
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
        score = routes.rope_scores(q[None], k[None].repeat(len(distance), 0), m=[0], n=-distance)[0]
        t = np.abs(y) / np.abs(x)  # the same |q_i||k_i| with Θ_i = 0
        keys = np.broadcast_to(t, (len(distance), _DIM // 2))
        collinear = routes.coca_scores(q[None], keys, m=[0], n=-distance)[0]
        holds_rope &= bool(np.all(np.abs(score) <= rope * (1 + 1e-12)))
        holds_coca &= bool(np.all(np.abs(collinear) <= coca * (1 + 1e-12)))
        ratios.append(coca / rope)
        near = np.arange(64)  # every distance, where the others are log-spaced
        row = routes.coca_scores(q[None], np.broadcast_to(t, (64, _DIM // 2)), m=[0], n=-near)[0]
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
)
