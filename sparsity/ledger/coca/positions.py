"""Judges of the claims about rotary positions: anomaly, k-border, decay bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from sparsity.ledger.coca.routes import CocaRoutes, numbers_of
from sparsity.ledger.judging import ALARM, Finding
from sparsity.rows.rotation import planes

__all__ = ["anomaly", "border", "bounds"]

Judged = tuple[list[Finding], dict[str, Any]]

_DIM = 64


def anomaly(routes: CocaRoutes, seed: int) -> Judged:
    """Random queries and keys: how many planes start by rising, and for how long."""
    rng = np.random.default_rng([seed, 21])
    count = 20_000
    theta = routes.angles(_DIM)
    q, k = (planes(x) for x in rng.standard_normal((2, count, _DIM)))
    tau = routes.rising(q, k, theta)
    # The same from rotated vectors, one plane at a time: the score's first half-step.
    turn = 1e-4  # radians
    start, later = ((q * np.conj(k) * np.exp(1j * x)).real for x in (0.0, turn))
    rises = later > start
    share = float(np.mean(tau > 0))
    low, high = stats.binom.interval(1 - ALARM / 3, tau.size, 0.5)
    mean = np.array([t[t > 0].mean() for t in tau.T])
    spread = np.array([t[t > 0].std(ddof=1) / np.sqrt((t > 0).sum()) for t in tau.T])
    expected = np.pi / (2 * theta)
    z = (mean - expected) / spread
    turned = (tau * theta)[tau > 0]  # radians, all planes alike
    pooled = (turned.mean() - np.pi / 2) / (turned.std(ddof=1) / np.sqrt(turned.size))
    limit = stats.norm.isf(ALARM / 6 / (len(z) + 1))
    # In whole tokens: the score of unit steps, counted until it first falls, fastest planes.
    steps = np.arange(0, 400)
    walked = []
    for i in range(8):
        phase = np.angle(q[:2000, i] * np.conj(k[:2000, i]))[:, None] + steps * theta[i]
        up = np.diff(np.cos(phase), axis=1) > 0
        anomalous = tau[:2000, i] > 0
        walked.append(float(np.argmin(up, axis=1)[anomalous].mean()))
    gap = np.abs(np.array(walked) - mean[:8])
    mixed = rng.standard_normal((count, _DIM)) + 1.0  # keys and queries with a common mean
    aligned = routes.rising(planes(mixed), planes(mixed[::-1]), theta)
    findings = [
        Finding(
            "core",
            f"half of the planes of random q and k start by rising: {share:.4f} of {tau.size}",
            low <= tau.size * share <= high,
        ),
        Finding(
            "core",
            "they are the planes whose rotated score does rise at first",
            np.mean(rises == (tau > turn / theta)) > 1 - 1e-3,
        ),
        Finding(
            "core",
            f"they rise for π/(2θ_i) tokens on average, in each of {len(z)} planes (largest "
            f"|z| {np.abs(z).max():.2f}; of all together {abs(pooled):.2f}), "
            f"from {expected[0]:.2f} to {expected[-1]:.0f} tokens",
            np.abs(z).max() < limit and abs(pooled) < limit,
        ),
        Finding(
            "core",
            "counted in whole tokens the mean differs by less than a token",
            gap.max() < 1,
        ),
        Finding(
            "instead",
            "the half is that of random directions: with a mean that queries and keys share the "
            f"share is {np.mean(aligned > 0):.4f} as well, Θ being even, but the mean rise of the "
            f"fastest plane is {aligned[:, 0][aligned[:, 0] > 0].mean():.2f} tokens, "
            f"not {expected[0]:.2f}",
            abs(np.mean(aligned > 0) - 0.5) < 0.01
            and aligned[:, 0][aligned[:, 0] > 0].mean() < 0.9 * expected[0],
        ),
    ]
    numbers = {
        "share": share,
        "planes": int(tau.size),
        "mean_rise": numbers_of(mean),
        "expected_rise": numbers_of(expected),
        "z": numbers_of(z),
        "z_of_all": float(pooled),
        "whole_tokens": walked,
    }
    return findings, numbers


def border(routes: CocaRoutes, seed: int) -> Judged:
    """Where a plane's score turns: the same distances for every key, or different ones."""
    rng = np.random.default_rng([seed, 22])
    theta = routes.angles(_DIM)
    q = rng.standard_normal((1, _DIM))
    t = np.maximum(rng.standard_normal((500, _DIM // 2)), 0)
    keys = rng.standard_normal((500, _DIM))
    collinear = np.stack([q[0, 0::2] * t, q[0, 1::2] * t], axis=-1).reshape(500, _DIM)
    rise = routes.rising(planes(q), planes(collinear), theta)
    free = routes.rising(planes(q), planes(keys), theta)
    live = t > 0
    # Distances at which the single planes of the definition rise, from unit steps.
    distance = np.arange(33)
    ups = []
    for i in range(_DIM // 2):
        alone = np.zeros_like(t[:1])
        alone[:, i] = 1.0
        score = routes.coca_by_definition(q, alone, m=[40], n=[40])  # its largest value
        row = np.array(
            [routes.coca_by_definition(q, alone, m=[40], n=[40 - m])[0, 0] for m in distance]
        )
        ups.append((np.diff(row) > 1e-12 * score[0, 0]).argmax() if (np.diff(row) > 0).any() else 0)
    first = np.where(np.array(ups) > 0, ups, np.inf)
    due = np.pi / theta
    inside = due < 31
    findings = [
        Finding(
            "core",
            f"with k = q∘t no plane of {live.sum()} starts by rising; with free keys "
            f"{np.mean(free > 0):.3f} of them do",
            np.all(rise[live] * theta.min() < 1e-9) and abs(np.mean(free > 0) - 0.5) < 0.05,
        ),
        Finding(
            "core",
            "where a plane turns does not depend on the key: at multiples of π/θ_i",
            np.all(np.abs(first[inside] - due[inside]) < 1.0) and np.all(first[~inside] > 30),
        ),
        Finding(
            "letter",
            "the score of a plane falls with distance for good",
            not np.isfinite(first).any(),
        ),
        Finding(
            "instead",
            f"it rises again after π/θ_i tokens, the fastest plane after {due[0]:.2f}",
            np.isfinite(first[0]) and abs(first[0] - due[0]) < 1,
        ),
    ]
    numbers = {
        "planes": int(live.sum()),
        "share_of_free_keys": float(np.mean(free > 0)),
        "first_rise": numbers_of(np.where(np.isfinite(first), first, -1)),
        "due": numbers_of(due),
    }
    return findings, numbers


def bounds(routes: CocaRoutes, seed: int) -> Judged:
    """Both bounds against scores, for random vectors at distances up to 32768."""
    rng = np.random.default_rng([seed, 23])
    theta = routes.angles(_DIM)
    distance = np.unique(np.geomspace(1, 32768, 60).astype(int))
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
        near = np.arange(64)
        row = routes.coca_scores(q[None], np.broadcast_to(t, (64, _DIM // 2)), m=[0], n=-near)[0]
        rises += int((np.diff(row) > 0).any())
    ratio = np.array(ratios)
    flat = planes(np.ones(_DIM))
    loose = routes.decay_bounds(flat, flat, np.array([0]), theta)[1]
    findings = [
        Finding("core", "RoPE's bound holds for every score computed", holds_rope),
        Finding("core", "CoCA's bound holds for every score computed", holds_coca),
        Finding(
            "core",
            f"CoCA's bound is the smaller at every one of {ratio.size} points, by a factor of "
            f"{1 / ratio.max():.2f} to {1 / ratio.min():.2f}",
            ratio.max() < 1,
        ),
        Finding(
            "instead",
            f"neither makes the score fall at every step: it rises somewhere in the first 64 "
            f"tokens for {rises} of 40 collinear pairs",
            rises == 40,
        ),
        Finding(
            "instead",
            "the sequence of |q_i||k_i| must end in a zero: with equal ones, the largest "
            "difference is that last step, and the bound at distance 0 is above the score",
            loose[0] >= np.sum(np.abs(flat) ** 2),
        ),
    ]
    shown = [0, 10, 20, 30, 40, len(distance) - 1]
    numbers = {
        "distance": numbers_of(distance[shown]),
        "mean_ratio": numbers_of(ratio.mean(axis=0)[shown]),
        "largest_ratio": float(ratio.max()),
        "smallest_ratio": float(ratio.min()),
    }
    return findings, numbers
