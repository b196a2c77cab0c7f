"""Claims about influence, its bound, and what a longer context asks of a sink; their judges."""

from __future__ import annotations

import functools

import jax
import numpy as np

from sparsity.attention.stacks.influence import norms
from sparsity.attention.stacks.mixing import Layers, LayerSink, Stack
from sparsity.claims_ledger.findings import (
    Judged,
    core,
    instead,
    joined,
    letter,
    listed,
    reported,
    toy_core,
    toy_instead,
    toy_letter,
)
from sparsity.claims_ledger.judging import Claim
from sparsity.claims_ledger.sinks_mixing import SinkRoutes, sink_claim, small_stack

_ROUNDING = 1e-5  # of single precision, relative
_STACKS = (  # kernel, sink, ‖M‖
    ("exp", None, 0.0),
    ("exp", LayerSink(mass=0.8), 0.5),
    ("exp", LayerSink(logit=4.0, value=0.1), 0.5),
    ("relu2", None, 0.5),
    ("identity", None, 0.0),
)


@jax.jit
@functools.partial(jax.grad, has_aux=True)
def _moving(v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the influence of two scalar tokens on the second one, and its attention.

    They pass a softmax layer (W = 1, scores v_j v_i) whose attention is computed from them, so that
    the derivative has a term of its own, ∂α/∂v, which the bound does not count.
    """
    weights = jax.nn.softmax(v[1] * v)
    return v[1] + weights @ v, weights


def bounded(routes: SinkRoutes, seed: int) -> Judged:
    """Compare the bound with the Jacobian, entry by entry."""

    def bound(stack: Stack, layers: Layers) -> np.ndarray:
        strengths = norms(np.asarray(layers.values, np.float64))
        return routes.bound(layers.attention, strengths, stack.lipschitz, layers.gain)

    stacks, entries = [], 0
    for i, (kernel, sink, branch) in enumerate(_STACKS):
        stack = small_stack(sink, kernel=kernel, branch=branch, depth=3)
        layers = routes.draw(stack, int(np.random.SeedSequence([seed, 24, i]).generate_state(1)[0]))
        most = bound(stack, layers)
        # Where the bound is 0 (above the diagonal) any influence at all makes the ratio enormous.
        ratio = norms(routes.jacobian(layers)) / np.where(most > 0, most, 1e-300)
        entries += ratio.size
        stacks.append(
            {
                "kernel": kernel,
                "sink": sink is not None,
                "lipschitz": stack.lipschitz,
                "largest_ratio": ratio.max(),
                "median_ratio": np.median(ratio[np.tril_indices_from(ratio)]),
            }
        )
    largest = max(row["largest_ratio"] for row in stacks)
    # One layer of one head has a single path from each token to a later one: no sum in which terms
    # could cancel, and no triangle inequality that loses anything.
    stack = small_stack(None, depth=1, heads=1)
    single = routes.draw(stack, seed)
    below = np.tril_indices(stack.length, -1)
    exact = norms(routes.jacobian(single))[below] / bound(stack, single)[below]
    # At v = (2, 1) the first token's influence on the second is above the bound: a counter-example.
    slope, weights = jax.device_get(_moving(np.array([2.0, 1.0], "float32")))
    moving = abs(float(slope[0]))
    rows = np.array([[1.0, 0.0], weights])
    held = float(routes.bound(rows[None, None], 1.0, 1.0, np.ones(2))[1, 0])
    findings = [
        toy_core(
            f"‖∂v_j/∂v_i‖ stays below the sum over causal paths in all {entries} entries of "
            f"{len(stacks)} stacks (largest ratio {largest:.3f})",
            largest <= 1 + _ROUNDING,
        ),
        toy_letter(
            "it holds as well where the attention is computed from the tokens: two tokens, one "
            f"softmax layer, influence {moving:.3f} and bound {held:.3f}",
            moving <= held,
        ),
        toy_instead(
            "in one linear layer of one head it is attained by every token on every later one",
            np.allclose(exact, 1, rtol=0, atol=_ROUNDING),
        ),
    ]
    return findings, {"stacks": stacks, "entries": entries, "counter_example": [moving, held]}


_LENGTHS = (10**2, 10**3, 10**4, 10**5)
_GAMMAS = (0.5, 1.0, 2.0, 3.0)


def longer_context(routes: SinkRoutes, seed: int) -> Judged:
    """Judge the logit for half of the mass against n, and what a fixed logit leaves of mixing."""
    logit = np.array([[routes.sink_logit(0.5, n, g) for n in _LENGTHS] for g in _GAMMAS])
    annealed = np.log(_LENGTHS) + np.square(_GAMMAS)[:, None] / 2
    return joined(
        _half_of_the_mass(routes, logit, annealed),
        _a_fixed_logit_loses(routes),
        _layers_mix_more(routes),
        _wide_scores(logit, annealed),
    )


def _half_of_the_mass(routes: SinkRoutes, logit: np.ndarray, annealed: np.ndarray) -> Judged:
    # Of the logit against ln n, between one length and the next.
    slope = np.diff(logit, axis=1) / np.diff(np.log(_LENGTHS))
    # Back from the logits to the mass: a root that the search missed would show here.
    back = np.vectorize(routes.sink_mass)(logit, _LENGTHS, np.array(_GAMMAS)[:, None])
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
            f"at these {back.size} logits the exact mean mass is one half",
            np.allclose(back, 0.5, rtol=0, atol=1e-9),
        ),
    ]
    numbers = {"lengths": _LENGTHS, "gammas": _GAMMAS, "half_logit": logit}
    return findings, numbers | {"minus_annealed": logit - annealed}


def _a_fixed_logit_loses(routes: SinkRoutes) -> Judged:
    # At n = 100 the others' mean sum n·e^(γ²/2) is about e^5: there the sink has half of the mass.
    mass = np.array([routes.sink_mass(5.0, n, 1.0) for n in _LENGTHS])
    # Over e^(b − γ²/2)/n, what a small mass is: e^b against the mean n e^(γ²/2) of all others.
    ratio = mass / (np.exp(5.0 - 0.5) / np.array(_LENGTHS))
    finding = core(
        "a sink of fixed logit 5 loses its mass as the context grows: "
        + listed(f"{100 * m:.2g} %" for m in mass)
        + " at n = 10² … 10⁵ (γ = 1), in the end like e^(b − γ²/2)/n",
        np.all(np.diff(mass) < 0) and np.all(np.abs(ratio[-2:] - 1) < 0.02),
    )
    return [finding], {"mass_at_logit_5": mass}


def _layers_mix_more(routes: SinkRoutes) -> Judged:
    def last(sink: LayerSink | None, common: float = 0.25) -> np.ndarray:
        """Return the last two tokens' distance at n = 32, 128, 512, out of lengths 2 … 512."""
        stack = Stack(length=512, depth=8, gamma=1.0, common=common, sink=sink)
        return routes.distances(stack)[-1][[30, 126, 510]]

    fixed, held, none = last(LayerSink(logit=4.0)), last(LayerSink(mass=0.8)), last(None)
    unrelated = last(None, common=0.0)
    findings = [
        toy_core(
            "eight layers with a sink of fixed logit 4 mix the last two tokens more in a longer "
            f"context: distance {fixed[0]:.2f}, {fixed[1]:.2f}, {fixed[2]:.2f} at n = 32, 128, "
            f"512; a sink that keeps a mass of 0.8 holds {held[-1]:.2f}",
            np.all(np.diff(fixed) < 0) and fixed[-1] < 0.5 * held[-1] and np.ptp(held) < 0.02,
        ),
        toy_letter(
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
    """Judge published rates, and what the metric says of attention that has no sink."""
    sizes = [size for _, size, _ in routes.published]
    rates = [rate for _, _, rate in routes.published]
    # Were α₁ of attention without any sink above the threshold ε, a rate would say nothing. Rows of
    # uniform causal attention are 1/t, so that α₁ is their mean H_T/T.
    T = 64
    uniform = np.tril(np.ones((T, T))) / np.arange(1, T + 1)[:, None]
    sink = np.eye(1, T) * np.ones((T, 1))
    first, most = (float(routes.importance(a)[0]) for a in (uniform, sink))
    harmonic = sum(1 / t for t in range(1, T + 1)) / T
    findings = [
        reported(
            f"the {len(rates)} published rates rise with the size of the model: "
            + listed(f"{rate:.2f} %" for rate in rates),
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
        "uniform_importance": first,
    }


CLAIMS: tuple[Claim, ...] = (
    sink_claim(
        key="longer-context",
        statement="A longer context needs a stronger sink.",
        formula="E mass = ∫₀^∞ e^b e^(−t e^b) (E e^(−t e^(γε)))ⁿ dt; half of it at b ≈ ln n + γ²/2",
        proof="Beside n logits with γ² ≪ ln n the sum of the weights is n e^(γ²/2), nearly sure. "
        "The mass is convex in that sum, so half of it never needs more (Jensen).",
        judge=longer_context,
        labels={
            "lengths": "row lengths n",
            "gammas": "spreads γ",
            "half_logit": "Logit for half of the mass",
            "minus_annealed": "That logit, less ln n + γ²/2",
            "mass_at_logit_5": "mass at logit 5, γ = 1",
            "distances": "Distance of the last two tokens, n = 32, 128, 512",
        },
    ),
    sink_claim(
        key="over-squashing",
        statement="The influence of a token on another is bounded by the sum over causal paths of "
        "the products of attention weights, times Lipschitz constants.",
        formula="‖∂v_j^(L)/∂v_i^(0)‖ ≤ (B^(L) … B^(1))_ji, B_ji = c(δ_ji + Σ_h w_h |α_(h,ji)|)",
        proof="The chain rule, layer by layer, with the triangle inequality; the attention must "
        "not depend on the tokens, or its own derivative adds to the sum.",
        judge=bounded,
        labels={
            "median_ratio": "median ratio",
            "stacks": "Influence over its bound",
            "lipschitz": "Lipschitz constant",
            "counter_example": "counter-example: influence, bound",
        },
    ),
    sink_claim(
        key="larger-models",
        statement="Larger models have stronger sinks: the published sink rates rise with size "
        "(published data, not recomputed here).",
        formula="mean over layers and heads of 1[α_1 > ε], α_k = Σ_(t≥k) A_(t,k)/(T − k + 1)",
        proof="",
        judge=larger_models,
        labels={
            "published_not_recomputed": "Published, not computed here",
            "sink_rate_percent": "sink rate, %",
            "uniform_importance": "importance of the first token in uniform attention",
        },
    ),
)
