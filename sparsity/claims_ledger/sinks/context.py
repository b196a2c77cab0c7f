"""Judges of the claims about context length and model size."""

from __future__ import annotations

import numpy as np

from sparsity.claims_ledger.judging import Judged, core, instead, joined, letter
from sparsity.claims_ledger.sinks.routes import PUBLISHED_BESIDES, SinkRoutes
from sparsity.stacks.mixing import LayerSink, Stack

_LENGTHS = (10**2, 10**3, 10**4, 10**5)
_GAMMAS = (0.5, 1.0, 2.0, 3.0)


def longer_context(routes: SinkRoutes, seed: int) -> Judged:
    """The logit for half of the mass against n, and what a fixed one leaves of mixing."""
    logit = np.array([[routes.sink_logit(0.5, n, g) for n in _LENGTHS] for g in _GAMMAS])
    annealed = np.log(_LENGTHS) + np.square(_GAMMAS)[:, None] / 2
    return joined(
        _half_of_the_mass(routes, logit, annealed),
        _a_fixed_logit_loses(routes),
        _layers_mix_more(routes),
        _wide_scores(logit, annealed),
    )


def _half_of_the_mass(routes: SinkRoutes, logit: np.ndarray, annealed: np.ndarray) -> Judged:
    slope = np.diff(logit, axis=1) / np.diff(np.log(_LENGTHS))
    cells = [(i, j) for i in range(len(_GAMMAS)) for j in range(len(_LENGTHS))]
    back = [routes.sink_mass(float(logit[i, j]), _LENGTHS[j], _GAMMAS[i]) for i, j in cells]
    findings = [
        core(
            "the logit that gives a sink half of the mass rises like ln n, at γ = 0.5, 1, 2, 3: "
            f"slopes from {slope.max():.2f} down to {slope.min():.4f}, falling to 1 from above",
            np.all(slope >= 1) and np.all(np.diff(slope) < 0) and slope[:, -1].max() < 1.05,
        ),
        core(
            "it is never above ln n + γ²/2 (Jensen's inequality), and within 0.01 of it for "
            "γ ≤ 1 and n ≥ 100",
            np.all(logit < annealed) and np.abs(logit - annealed)[:2].max() < 0.01,
        ),
        core(
            f"at these {len(back)} logits the exact mean mass is one half",
            np.allclose(back, 0.5, rtol=0, atol=1e-9),
        ),
    ]
    numbers = {"lengths": _LENGTHS, "gammas": _GAMMAS, "half_logit": logit}
    return findings, numbers | {"minus_annealed": logit - annealed}


def _a_fixed_logit_loses(routes: SinkRoutes) -> Judged:
    mass = np.array([routes.sink_mass(5.0, n, 1.0) for n in _LENGTHS])
    alone = mass / (np.exp(5.0 - 0.5) / np.array(_LENGTHS))  # over e^(b − γ²/2)/n
    finding = core(
        "a sink of fixed logit 5 loses its mass as the context grows: "
        + ", ".join(f"{100 * m:.2g} %" for m in mass)
        + " at n = 10² … 10⁵ (γ = 1), in the end like e^(b − γ²/2)/n",
        np.all(np.diff(mass) < 0) and np.all(np.abs(alone[-2:] - 1) < 0.02),
    )
    return [finding], {"mass_at_logit_5": mass}


def _layers_mix_more(routes: SinkRoutes) -> Judged:
    def last(sink: LayerSink | None, common: float = 0.25) -> np.ndarray:
        """The last two tokens' distance at n = 32, 128, 512; of all lengths 2 … 512."""
        stack = Stack(length=512, depth=8, gamma=1.0, common=common, sink=sink)
        return routes.distances(stack)[-1][[30, 126, 510]]

    fixed, held, none = last(LayerSink(logit=4.0)), last(LayerSink(mass=0.8)), last(None)
    unrelated = last(None, common=0.0)
    findings = [
        core(
            "eight layers with a sink of fixed logit 4 mix the last two tokens more in a longer "
            f"context: distance {fixed[0]:.2f}, {fixed[1]:.2f}, {fixed[2]:.2f} at n = 32, 128, "
            f"512; a sink that keeps a mass of 0.8 holds {held[-1]:.2f}",
            np.all(np.diff(fixed) < 0) and fixed[-1] < 0.5 * held[-1] and np.ptp(held) < 0.02,
        ),
        letter(
            "without a sink a longer context mixes more, also where the tokens are unrelated: "
            f"distance {unrelated[0]:.2f}, {unrelated[1]:.2f}, {unrelated[2]:.2f}",
            np.all(np.diff(unrelated) < 0),
        ),
    ]
    distances = {"none": none, "logit 4": fixed, "mass 0.8": held}
    return findings, {"distances": distances | {"none, unrelated tokens": unrelated}}


def _wide_scores(logit: np.ndarray, annealed: np.ndarray) -> Judged:
    less = annealed - logit
    findings = [
        letter(
            "the logit for half of the mass is ln n + γ²/2, to 0.05, also at γ = 3",
            np.abs(less)[-1].max() < 0.05,
        ),
        instead(
            "wide scores need less: at γ = 3 less than ln n + γ²/2 by "
            f"{less[-1, 0]:.2f} at n = 100, by {less[-1, -1]:.3f} at 10⁵",
            np.all(np.diff(less, axis=0) > 0),
        ),
    ]
    return findings, {}


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
        core(
            f"the {len(rates)} published rates rise with the size of the model: "
            + ", ".join(f"{rate:.2f} %" for rate in rates),
            len(rates) >= 3 and np.all(np.diff(sizes) > 0) and np.all(np.diff(rates) > 0),
        ),
        core(
            "they are not an artefact of the metric: uniform attention has α₁ = H_T/T = "
            f"{first:.4f} at T = {T}, below either threshold, 0.3 and 0.8; all on the first token "
            f"has α₁ = {most:g}",
            abs(first - harmonic) < 1e-12 and harmonic < 0.3 and abs(most - 1) < 1e-12,
        ),
    ]
    return findings, {
        "published_not_recomputed": [
            {"model": name, "sink_rate_percent": rate} for name, _, rate in routes.published
        ],
        "published_besides": PUBLISHED_BESIDES,
        "uniform_importance": first,
    }
