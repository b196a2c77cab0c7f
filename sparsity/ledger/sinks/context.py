"""Judges of the claims about context length and model size."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsity.ledger.judging import Finding
from sparsity.ledger.sinks.routes import PUBLISHED_BESIDES, SinkRoutes
from sparsity.stacks.mixing import Sink, Stack

__all__ = ["larger_models", "longer_context"]

Judged = tuple[list[Finding], dict[str, Any]]


def longer_context(routes: SinkRoutes, seed: int) -> Judged:
    """The logit for half of the mass against n, and what a fixed one leaves of mixing."""
    lengths, gammas = (10**2, 10**3, 10**4, 10**5), (0.5, 1.0, 2.0, 3.0)
    logit = np.array([[routes.sink_logit(0.5, n, g) for n in lengths] for g in gammas])
    annealed = np.log(lengths) + np.square(gammas)[:, None] / 2
    slope = np.diff(logit, axis=1) / np.diff(np.log(lengths))
    back = [
        routes.sink_mass(float(b), n, g)
        for g, row in zip(gammas, logit, strict=True)
        for n, b in zip(lengths, row, strict=True)
    ]
    mass = np.array([routes.sink_mass(5.0, n, 1.0) for n in lengths])
    alone = mass / (np.exp(5.0 - 0.5) / np.array(lengths))  # over e^(b − γ²/2)/n
    longest, at = 512, [30, 126, 510]  # of lengths 2 … 512: n = 32, 128, 512

    def last(sink: Sink | None, common: float) -> np.ndarray:
        return routes.distances(
            Stack(length=longest, depth=8, gamma=1.0, common=common, sink=sink)
        )[-1][at]

    fixed, held, none = (last(s, 0.25) for s in (Sink(logit=4.0), Sink(mass=0.8), None))
    unrelated = last(None, 0.0)
    findings = [
        Finding(
            "core",
            "the logit that gives a sink half of the mass rises like ln n, at γ = 0.5, 1, 2, 3: "
            f"slopes from {slope.max():.2f} down to {slope.min():.4f}, falling to 1 from above",
            np.all(slope >= 1) and np.all(np.diff(slope) < 0) and slope[:, -1].max() < 1.05,
        ),
        Finding(
            "core",
            "it is never above ln n + γ²/2 (Jensen's inequality), and within 0.01 of it for "
            "γ ≤ 1 and n ≥ 100",
            np.all(logit < annealed) and np.abs(logit - annealed)[:2].max() < 0.01,
        ),
        Finding(
            "core",
            f"at these {len(back)} logits the exact mean mass is one half",
            np.allclose(back, 0.5, rtol=0, atol=1e-9),
        ),
        Finding(
            "core",
            "a sink of fixed logit 5 loses its mass as the context grows: "
            + ", ".join(f"{100 * m:.2g} %" for m in mass)
            + " at n = 10² … 10⁵ (γ = 1), in the end like e^(b − γ²/2)/n",
            np.all(np.diff(mass) < 0) and np.all(np.abs(alone[-2:] - 1) < 0.02),
        ),
        Finding(
            "core",
            "eight layers with a sink of fixed logit 4 mix the last two tokens the more the longer "
            f"the context: distance {fixed[0]:.2f}, {fixed[1]:.2f}, {fixed[2]:.2f} at n = 32, 128, "
            f"512; a sink that keeps a mass of 0.8 holds {held[-1]:.2f}",
            np.all(np.diff(fixed) < 0) and fixed[-1] < 0.5 * held[-1] and np.ptp(held) < 0.02,
        ),
        Finding(
            "letter",
            "without a sink a longer context mixes more, also where the tokens are unrelated: "
            f"distance {unrelated[0]:.2f}, {unrelated[1]:.2f}, {unrelated[2]:.2f}",
            np.all(np.diff(unrelated) < 0),
        ),
        Finding(
            "letter",
            "the logit for half of the mass is ln n + γ²/2, to 0.05, also at γ = 3",
            np.abs(logit - annealed)[-1].max() < 0.05,
        ),
        Finding(
            "instead",
            "wide scores need less: at γ = 3 less than ln n + γ²/2 by "
            f"{(annealed - logit)[-1, 0]:.2f} at n = 100, by {(annealed - logit)[-1, -1]:.3f} "
            "at 10⁵",
            np.all(np.diff(annealed - logit, axis=0) > 0),
        ),
    ]
    numbers = {
        "lengths": list(lengths),
        "gammas": list(gammas),
        "half_logit": logit.tolist(),
        "minus_annealed": (logit - annealed).tolist(),
        "mass_at_logit_5": mass.tolist(),
        "distances": {
            "none": none.tolist(),
            "logit 4": fixed.tolist(),
            "mass 0.8": held.tolist(),
            "none, unrelated tokens": unrelated.tolist(),
        },
    }
    return findings, numbers


def larger_models(routes: SinkRoutes, seed: int) -> Judged:
    """Published rates, and what the metric says of attention that has no sink."""
    sizes = [size for _, size, _ in routes.published]
    rates = [rate for _, _, rate in routes.published]
    T = 64
    uniform = np.tril(np.ones((T, T))) / np.arange(1, T + 1)[:, None]
    sink = np.eye(1, T) * np.ones((T, 1))
    first, most = (float(routes.importance(a)[0]) for a in (uniform, sink))
    harmonic = sum(1 / t for t in range(1, T + 1)) / T
    findings = [
        Finding(
            "core",
            f"the {len(rates)} published rates rise with the size of the model: "
            + ", ".join(f"{rate:.2f} %" for rate in rates),
            len(rates) >= 3 and np.all(np.diff(sizes) > 0) and np.all(np.diff(rates) > 0),
        ),
        Finding(
            "core",
            "they are no artefact of the metric: uniform attention has α₁ = H_T/T = "
            f"{first:.4f} at T = {T}, below either threshold, 0.3 and 0.8; all on the first token "
            f"has α₁ = {most:g}",
            abs(first - harmonic) < 1e-12 and harmonic < 0.3 and abs(most - 1) < 1e-12,
        ),
    ]
    return findings, {
        "published_not_recomputed": [
            {"model": name, "sink_rate_percent": rate} for name, _, rate in routes.published
        ],
        "published_besides": [dict(row) for row in PUBLISHED_BESIDES],
        "uniform_importance": first,
    }
