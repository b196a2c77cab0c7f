"""Judges of the claims about context length and model size."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsity.claims_sinks.routes import SinkRoutes
from sparsity.judging import Finding
from sparsity.mixing import Sink, Stack

__all__ = ["larger_models", "longer_context"]

Judged = tuple[list[Finding], dict[str, Any]]


def longer_context(routes: SinkRoutes, seed: int) -> Judged:
    """The logit for half of the mass against n, and what a fixed one leaves of mixing."""
    lengths, gammas = (10**2, 10**3, 10**4, 10**5), (0.5, 1.0, 2.0, 3.0)
    logit = np.array([[routes.sink_logit(0.5, n, g) for n in lengths] for g in gammas])
    annealed = np.log(lengths) + np.square(gammas)[:, None] / 2
    slope = np.diff(logit, axis=1) / np.diff(np.log(lengths))
    mass = [routes.sink_mass(5.0, n, 1.0) for n in lengths]
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
            "the logit that gives a sink half of the mass rises at least as fast as ln n, at "
            f"γ = 0.5, 1, 2, 3 (slopes from {slope.min():.4f} to {slope.max():.2f})",
            np.all(slope >= 1),
        ),
        Finding(
            "core",
            "a sink of fixed logit 5 loses its mass as the context grows: "
            + ", ".join(f"{100 * m:.2g} %" for m in mass)
            + " at n = 10² … 10⁵ (γ = 1)",
            np.all(np.diff(mass) < 0) and mass[-1] < 0.01,
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
            "it is ln n + γ²/2, to 0.01, for γ ≤ 1 and n ≥ 100; wide scores need less",
            np.abs(logit - annealed)[:2].max() < 0.01 and np.all(logit < annealed + 0.01),
        ),
    ]
    numbers = {
        "lengths": list(lengths),
        "gammas": list(gammas),
        "half_logit": logit.tolist(),
        "minus_annealed": (logit - annealed).tolist(),
        "mass_at_logit_5": mass,
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
    uniform = np.tril(np.ones((64, 64))) / np.arange(1, 65)[:, None]
    first = float(routes.importance(uniform)[0])
    findings = [
        Finding(
            "core",
            f"the {len(rates)} published rates rise with the size of the model: "
            + ", ".join(f"{rate:.2f} %" for rate in rates),
            len(rates) >= 3 and np.all(np.diff(sizes) > 0) and np.all(np.diff(rates) > 0),
        ),
        Finding(
            "core",
            "they are no artefact of the metric: uniform attention has α₁ = "
            f"{first:.4f} at T = 64, below either threshold, 0.3 and 0.8",
            first < 0.3,
        ),
    ]
    return findings, {
        "published_not_recomputed": [
            {"model": name, "sink_rate_percent": rate} for name, _, rate in routes.published
        ],
        "uniform_importance": first,
    }
