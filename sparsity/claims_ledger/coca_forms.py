"""Claims about the forms of CoCA's score with their judges, and the routes of all CoCA claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from sparsity.claims_ledger.findings import Judged, core, instead
from sparsity.claims_ledger.judging import Claim, Routes
from sparsity.rows import rope_planes, rotated_scores
from sparsity.rows.rope_planes import planes
from sparsity.rows.rotated_scores import coca_by_definition, coca_scores


@dataclass(frozen=True)
class CocaRoutes:
    """Routes of the CoCA claims; a test plants wrong ones to see verdicts flip.

    Args:
        angles: (dim, base) -> θ_i of the planes.
        slack_scores: CoCA's scores as the published code has them.
        decay_bounds: both bounds on the score at a distance, RoPE's and CoCA's.
        rising: the tokens over which each plane's score rises from distance 0 on.
        mean_scores: (step, distances, length) -> β at each distance.
        n_eff: (row, length) -> n_eff by the exact law.
        rows: averages over sampled rows of rotated vectors.
    """

    angles: Callable[..., Any] = rope_planes.angles
    slack_scores: Callable[..., Any] = rotated_scores.slack_scores
    decay_bounds: Callable[..., Any] = rotated_scores.decay_bounds
    anomaly_length: Callable[..., Any] = rotated_scores.anomaly_length
    mean_scores: Callable[..., Any] = lambda step, distance, length: step.beta(distance, length)
    n_eff: Callable[..., Any] = Routes.n_eff
    rows: Callable[..., Any] = Routes.rows


coca_claim = partial(
    Claim,
    source="Zhu et al. (2024), Collinear Constrained Attention (CoCA), arXiv 2309.08646v3",
    routes=CocaRoutes,
)

_DIM = 64


def slack(routes: CocaRoutes, seed: int) -> Judged:
    """Judge the published form at pairs of positions of equal distance."""
    rng = np.random.default_rng([seed, 24])
    # A function of m − n would be the same at all of these; the fastest plane turns by a radian a
    # token, so that five tokens are neither near nor a full turn.
    starts, distance = np.array([0, 1, 10, 100, 1000, 10_000]), 5
    q, t = rng.standard_normal((1, _DIM)), np.abs(rng.standard_normal((1, _DIM // 2)))
    even = np.repeat(q[:, 0::2], 2, axis=1)  # q₁ = q₂ in every plane

    def along(form: Any, query: np.ndarray) -> np.ndarray:
        # A key at each start, and a query five tokens after it.
        pairs = ((start + distance, start) for start in starts)
        return np.array([form(query, t, m=[m], n=[n])[0, 0] for m, n in pairs])

    scores, exact = along(routes.slack_scores, q), along(coca_scores, q)
    equal, truth = along(routes.slack_scores, even), along(coca_scores, even)
    scale = np.sum(t * np.abs(planes(q)) ** 2)
    # One query might be lucky: the same over many of them, root mean square.
    queries = rng.standard_normal((4000, 1, _DIM))
    ts = np.maximum(rng.standard_normal((4000, 1, _DIM // 2)), 0)
    gaps = []
    for start in (0, 100, 10_000):
        place: dict[str, Any] = {"m": [start + distance], "n": [start]}
        off = routes.slack_scores(queries, ts, **place) - coca_scores(queries, ts, **place)
        size = np.sum(ts[:, 0] * np.abs(planes(queries[:, 0])) ** 2, axis=-1)
        gaps.append(float(np.sqrt(np.mean((off[:, 0, 0] / size) ** 2))))
    findings = [
        core(
            f"at distance {distance} the slack score moves with the position: from "
            f"{scores.min() / scale:.3f} to {scores.max() / scale:.3f} of Σt|q|²",
            np.ptp(scores) > 0.05 * scale,
        ),
        core(
            "it is the exact score if q₁ = q₂ in every plane",
            np.allclose(equal, truth, rtol=1e-9, atol=1e-9 * scale),
        ),
        core("the exact score is the same at every position", np.ptp(exact) < 1e-9 * scale),
        instead(
            f"it is off by {gaps[0]:.3f}, {gaps[1]:.3f}, {gaps[2]:.3f} of Σt|q|² (root mean "
            "square over random q and t) with the key at position 0, 100, 10 000; only a key at "
            "position 0 has the exact score",
            gaps[0] < 1e-12 and min(gaps[1:]) > 0.05,
        ),
    ]
    numbers = {
        "starts": starts.astype(float),
        "slack": scores,
        "exact": exact,
        "scale": scale,
        "rms_gap": gaps,
    }
    return findings, numbers


def dual(routes: CocaRoutes, seed: int) -> Judged:
    """Judge the dual form under its constraint, and the exact score of any query at RoPE's cost."""
    rng = np.random.default_rng([seed, 25])
    worst = {"dual": 0.0, "redundant": 0.0, "any query": 0.0}
    slack, cells = np.inf, 0
    for dim in (2, 16, 128):
        q = rng.standard_normal((2, 24, dim))
        t = np.maximum(rng.standard_normal((2, 32, dim // 2)), 0)
        even = np.repeat(np.abs(planes(q)) / 2**0.5, 2, axis=-1)  # the same |q_i|, q₁ = q₂
        m = 8 + np.arange(24)
        exact = coca_by_definition(q, t, m=m)

        def off(scores: np.ndarray, exact: np.ndarray = exact) -> float:
            # Of the largest score, not each of its own: scores pass through 0, where a relative
            # error says nothing.
            return float(np.abs(scores - exact).max() / np.abs(exact).max())

        forms = {
            "dual": routes.slack_scores(even, t, m=m),
            "redundant": coca_by_definition(even, t, m=m),
            "any query": coca_scores(q, t, m=m),
        }
        worst = {name: max(worst[name], off(value)) for name, value in forms.items()}
        slack = min(slack, off(routes.slack_scores(q, t, m=m)))
        cells += exact.size
    findings = [
        core(
            f"with q₁ = q₂ in every plane the dual form is the definition, in {cells} scores",
            worst["dual"] < 1e-12,
        ),
        core(
            "the constraint is redundant in the definition: only |q_i| matters",
            worst["redundant"] < 1e-12,
        ),
        instead(
            "no constraint is needed: RoPE between the planes (|q_i|², 0) and (t_i, 0) is the "
            "exact score of any query",
            worst["any query"] < 1e-12,
        ),
        instead(
            "where the constraint is dropped and the dual form kept, as the slack form does, the "
            f"scores are off by {slack:.2f} of the largest and more",
            slack > 0.05,
        ),
    ]
    n, d = 4096, 128  # a head of a usual model, to say what the definition would cost
    numbers = {
        "largest_error": worst,
        "smallest_error_of_slack": slack,
        "scores": cells,
        "numbers_by_definition": n * n * d,
        "numbers_of_vectors": 2 * n * d,
        "at": {"n": n, "d": d},
    }
    return findings, numbers


CLAIMS: tuple[Claim, ...] = (
    coca_claim(
        key="dual-form",
        statement="The collinear score, whose definition has a key for every pair of positions, "
        "n²·d numbers, has an equivalent dual form of n·d numbers, under a constraint "
        "q_(2j) = q_(2j+1) that is redundant.",
        formula="(R_m q)·(R_n (q∘t)) = (R_m q)·(q∘R_n t) if q₁ = q₂ in every plane",
        proof="Each plane of the definition is t_i|q_i|² cos((m−n)θ_i), which depends on |q_i| "
        "alone: it is also the score of RoPE between (|q_i|², 0) and (t_i, 0).",
        judge=dual,
        labels={
            "largest_error": "Largest error, of the largest score",
            "dual": "dual form",
            "redundant": "definition without the constraint",
            "any query": "RoPE between planes, any query",
            "smallest_error_of_slack": "smallest error of the slack form",
            "numbers_by_definition": "numbers by the definition",
            "numbers_of_vectors": "numbers by the dual form",
            "at": "Counted at",
            "d": "dimension d",
        },
    ),
    coca_claim(
        key="slack",
        statement="Without that constraint the score (CoCA-Slack, the published code) is not a "
        "function of m − n.",
        formula="t[|q|² cos mθ cos nθ + (q₂²−q₁²) cos mθ sin nθ + 2q₁q₂ sin mθ sin nθ] a plane",
        proof="It is t|q|² cos((m−n)θ) for all m, n only if q₂² = q₁² and 2q₁q₂ = |q|²: q₁ = q₂.",
        judge=slack,
        labels={
            "starts": "position of the key",
            "slack": "slack form",
            "exact": "exact score",
            "scale": "Σt|q|²",
            "rms_gap": "error over Σt|q|², key at 0, 100, 10 000",
        },
    ),
)
