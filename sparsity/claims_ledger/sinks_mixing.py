"""Claims about mixing with their judges, and where judges of all sink claims take numbers from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import sympy

from sparsity.attention.stacks import collapse, influence, mixing, mixing_law, sinks
from sparsity.attention.stacks.collapse import Collapse
from sparsity.attention.stacks.influence import norms
from sparsity.attention.stacks.mixing import Layers, LayerSink, Stack
from sparsity.claims_ledger.findings import (
    ALARM,
    Judged,
    core,
    instead,
    joined,
    listed,
    table_rows,
    toy_core,
    toy_instead,
)
from sparsity.claims_ledger.judging import Claim, seeds_of_claim
from sparsity.crosscheck.outcome import compare_mean
from sparsity.design_search.search import sink_logit
from sparsity.exact_law.exact import exact
from sparsity.rows.row import Row
from sparsity.rows.steps import SinkLogit

# Published, not recomputed here: models in increasing size, parameters in billions and sink rate
# (ε = 0.8) in per cent; Barbero et al. (2025), arXiv 2504.02732, table 1.
PUBLISHED = (
    ("LLaMA 3.1 8B", 8, 45.97),
    ("LLaMA 3.1 70B", 70, 73.49),
    ("LLaMA 3.1 405B", 405, 78.29),
)


# In single precision, so that the record is the same whether or not JAX has float64.
_draw = partial(mixing.draw, dtype=np.float32)
_sampled = partial(mixing.sampled, dtype=np.float32)


def _sink_mass(logit: float, length: int, gamma: float) -> float:
    row = Row("exp", gamma=gamma, steps=(SinkLogit(logit),))
    return float(exact(row, length=length, of="sink_mass").value)


def _sink_logit(mass: float, length: int, gamma: float) -> float:
    return float(sink_logit(mass, Row("exp", gamma=gamma), length=length))


@dataclass(frozen=True)
class SinkRoutes:
    """Routes of the sink claims; a test plants wrong ones to see verdicts flip.

    Args:
        draw: (stack, seed) -> random layers.
        jacobian: layers -> the blocks ∂v_j/∂v_i.
        bound: (attention, strengths, lipschitz, gain) -> the over-squashing bound.
        collapse: states -> the measures of rank and representational collapse.
        sampled: (stack, draws, seed) -> the measures of many drawn stacks.
        average: stack -> the measures' exact averages.
        distances: stack -> the exact distances of neighbours, for every length.
        sink_mass: (logit, n, γ) -> the mean mass of a sink beside n softmax logits.
        sink_logit: (mass, n, γ) -> the logit of a sink that takes that mass.
        importance: attention -> the mean weight of each key, the source's sink metric.
        published: the source's sink rates.
    """

    draw: Callable[[Stack, int], Layers] = _draw
    jacobian: Callable[[Layers], np.ndarray] = influence.jacobian
    bound: Callable[..., np.ndarray] = influence.bound
    collapse: Callable[[Any], Collapse] = collapse.collapse
    sampled: Callable[[Stack, int, int], Collapse] = _sampled
    average: Callable[[Stack], Collapse] = mixing_law.average
    distances: Callable[[Stack], np.ndarray] = mixing_law.distances
    sink_mass: Callable[[float, int, float], float] = _sink_mass
    sink_logit: Callable[[float, int, float], float] = _sink_logit
    importance: Callable[[Any], Any] = sinks.importance
    published: tuple[tuple[str, int, float], ...] = PUBLISHED


sink_claim = partial(
    Claim,
    source="Barbero et al. (2025), Why do LLMs attend to the first token?, arXiv 2504.02732",
    routes=SinkRoutes,
)

# Small enough that Jacobians of all pairs of tokens, [24·8]², are computed in a moment; ¼ of the
# tokens' variance is a vector that they have in common.
_STACK = Stack(length=24, dim=8, depth=6, heads=2, common=0.25)
_MASS = 0.8


def small_stack(sink: LayerSink | None, **changes: Any) -> Stack:
    """Return the stack that the claims are judged on, with a sink and other changes."""
    return replace(_STACK, sink=sink, **changes)


def toy(routes: SinkRoutes, mass: float | None) -> np.ndarray:
    """Return the influence of token 2 on tokens 3, 4, 5 over their own, of six after four layers.

    Layers are M ← (I + A)M with one head, W = I and uniform causal rows; with a sink of that mass
    on token 0, whose value is zero, the rows are uniform over the tokens from 1 on.
    """
    n, depth = 6, 4
    rows, gain = np.tril(np.ones((n, n))), np.ones(n)
    rows[1:, 0] = mass is None
    rows /= rows.sum(axis=1, keepdims=True)
    if mass is not None:
        rows[1:] *= 1 - mass
        rows[1:, 0] = mass
        gain[0] = 0.0
    layers = Layers(
        np.zeros((n, 1), "float32"),
        np.broadcast_to(rows, (depth, 1, n, n)).astype("float32"),
        np.ones((depth, 1, 1, 1), "float32"),
        np.zeros((depth, 1, 1), "float32"),
        gain.astype("float32"),
    )
    reach = norms(routes.jacobian(layers))
    return reach[3:, 2] / reach.diagonal()[3:]


def less_mixing(routes: SinkRoutes, seed: int) -> Judged:
    """Judge Jacobians and collapse of random stacks with a sink of value zero and without."""
    seeds = seeds_of_claim(seed, 21, 6)
    return joined(
        _influence_falls(routes, seeds), _tokens_stay_apart(routes, seeds), _of_six_tokens(routes)
    )


def _influence_falls(routes: SinkRoutes, seeds: list[int]) -> Judged:
    # Entries [j, i] of tokens i on later tokens j. Token 0 is left out: it is the sink, and what it
    # passes on is zero by construction.
    later = np.tril(np.ones((_STACK.length, _STACK.length), bool), -1)
    later[:, 0] = False

    def share(sink: LayerSink | None, key: int) -> float:
        # Over a token's influence on itself: the residual stream grows with depth, and the ratio
        # does not count that as mixing. The same key gives the same weights with every sink.
        reach = norms(routes.jacobian(routes.draw(small_stack(sink), key)))
        return (reach / reach.diagonal()[:, None])[later].mean()

    free, held = (np.array([share(x, key) for key in seeds]) for x in (None, LayerSink(mass=_MASS)))
    finding = toy_core(
        f"a sink of mass {_MASS:g} and value zero lowers the mean influence of a token on the "
        f"later ones, over their own, in all {len(seeds)} random stacks, by at least one half",
        np.all(held < free / 2),
    )
    return [finding], {"influence_with": held, "influence_without": free}


def _tokens_stay_apart(routes: SinkRoutes, seeds: list[int]) -> Judged:
    sinks = {"none": None, "mass 0.5": LayerSink(mass=0.5), "mass 0.8": LayerSink(mass=_MASS)}
    sinks |= {"mass 0.8, full value": LayerSink(mass=_MASS, value=1.0)}
    rows, draws, critical = [], 256, 0.0
    for key, (label, sink) in zip(seeds, sinks.items(), strict=False):
        stack = small_stack(sink, dim=32, heads=1)
        exact, drawn = routes.average(stack), routes.sampled(stack, draws, key)
        # D² = E x/E y. The mean of x − D²y is tested rather than the ratio of means: it is linear
        # in the draws, so that it has no bias at 256 of them.
        x, y = drawn.last_pair[:, -1] ** 2, drawn.last_norm[:, -1] ** 2
        D = exact.distance[-1]
        z, critical = compare_mean(x - D**2 * y, 0.0, ALARM / len(sinks))
        sampled = math.sqrt(x.mean() / y.mean())
        rows.append({"sink": label, "distance": D, "sampled": sampled, "z": z})
    none, half, most, full = (row["distance"] for row in rows)
    findings = [
        toy_core(
            f"after {_STACK.depth} layers of {_STACK.length} tokens the last two are farther "
            f"apart when the sink has a larger mass: {none:.2f}, {half:.2f}, {most:.2f} at mass "
            "0, 0.5, 0.8",
            none < half < most,
        ),
        toy_core(
            f"stacks drawn at random have these distances ({draws} each)",
            max(abs(row["z"]) for row in rows) <= critical,
        ),
        toy_instead(
            f"a sink whose value is that of a common token mixes more than none: {full:.2f}",
            full < none,
        ),
    ]
    return findings, {"collapse": rows, "critical": critical}


def _of_six_tokens(routes: SinkRoutes) -> Judged:
    without, held = toy(routes, None), toy(routes, _MASS)
    finding = toy_core(
        "six tokens, four layers, uniform rows: token 2 reaches tokens 3, 4, 5 with "
        f"{listed(without, '.3f')} of their own influence, with the sink only "
        f"{listed(held, '.3f')}",
        np.all(held < without / 3),
    )
    return [finding], {"toy": {"without": without, "with": held}}


def collapses(routes: SinkRoutes, seed: int) -> Judged:
    """Compare rank collapse with representational collapse, on many token matrices."""
    rng = np.random.default_rng([seed, 23])
    # Norms of tokens over many orders of magnitude: with equal ones the last two are hardly near
    # the extreme of the inequality. Two numbers, n = 2 and d = 1, attain it.
    shapes = ((2, 1), (3, 4), (16, 8), (64, 2))
    states = [
        rng.standard_normal((500, n, d)) * rng.exponential(size=(500, n, 1)) ** 3 for n, d in shapes
    ]
    for sink in (None, LayerSink(mass=0.5)):
        drawn = mixing.forward(routes.draw(small_stack(sink), seed))
        states.append(np.asarray(drawn, np.float64))
    measures = [routes.collapse(v) for v in states]
    worst = max((x.last_pair / x.rank).max() for x in measures)
    count = sum(map(len, states))
    # a, b: one component of the last two tokens, less the mean. The squared distance of the two and
    # twice the squares of both differ by a square, component by component.
    a, b = sympy.symbols("a b", real=True)
    identity = sympy.expand(2 * (a**2 + b**2) - (a - b) ** 2 - (a + b) ** 2) == 0
    extreme = np.zeros((5, 3))  # their mean is 0, and no other token adds to the norm
    extreme[-2:, 0] = -1.0, 1.0
    tight = routes.collapse(extreme)
    counter = np.zeros((5, 3))
    counter[:2, 0] = 1e9, -1e9  # the last two tokens are equal, the first two far apart
    apart = routes.collapse(counter)
    findings = [
        toy_core(
            f"‖v_n − v_(n−1)‖ ≤ √2·‖V − (1/n)11ᵀV‖ for all {count} token matrices, so the first "
            "collapse with Δ/√2 gives the second with Δ",
            worst <= math.sqrt(2) * (1 + 1e-12),
        ),
        core("2(a² + b²) − (a − b)² = (a + b)², so it holds for all (proven)", identity),
        toy_core(
            "not conversely: tokens with v_n = v_(n−1) exactly and ‖V − (1/n)11ᵀV‖ > 10⁹",
            apart.last_pair == 0 and apart.rank > 1e9,
        ),
        instead(
            "the factor √2 is needed: v_n = −v_(n−1), the others 0, attains it",
            abs(tight.last_pair / tight.rank - math.sqrt(2)) < 1e-12,
        ),
    ]
    return findings, {"matrices": count, "largest_ratio": worst, "sqrt_2": math.sqrt(2)}


def no_op(routes: SinkRoutes, seed: int) -> Judged:
    """Judge what a layer does to its tokens as the sink takes all the attention."""
    masses = np.array([0.0, 0.5, 0.9, 0.99, 0.999])

    def update(mass: float, value: float) -> float:
        """Return ‖V′ − V‖ over the tokens after the first, of one layer."""
        layers = routes.draw(small_stack(LayerSink(mass=mass, value=value), depth=1), seed)
        before, after = np.asarray(mixing.forward(layers), np.float64)
        return float(np.linalg.norm((after - before)[1:]))

    # A sink of value zero, one with the value of a common token, and one in between.
    zero, full = (np.array([update(m, value) for m in masses]) for value in (0.0, 1.0))
    small = np.array([update(m, 0.01) for m in masses])
    layers = routes.draw(small_stack(LayerSink(mass=_MASS)), seed)
    column = norms(routes.jacobian(layers))[1:, 0]
    findings = [
        toy_core(
            "with value zero the update of a layer is 1 − m of that without a sink, m the sink's "
            "mass: at m = 0.999 it is 0.001",
            np.allclose(zero / zero[0], 1 - masses, rtol=1e-3, atol=1e-6),
        ),
        toy_core(
            "with one hundredth of a common value the update at m = 0.999 is below 2 % of that "
            "without a sink",
            small[-1] < 0.02 * small[0],
        ),
        toy_core(
            f"no token is influenced by a sink of value zero, after {_STACK.depth} layers",
            np.all(column == 0),
        ),
        toy_instead(
            "with the value of a common token it is not a no-op: the update grows as m → 1",
            full[-1] > full[0],
        ),
    ]
    return findings, {"updates": table_rows(mass=masses, update=zero, with_value=full)}


CLAIMS: tuple[Claim, ...] = (
    sink_claim(
        key="sinks-mix-less",
        statement="Attention sinks reduce the mixing of information between tokens.",
        formula="K′ = K + w² E[A K Aᵀ], K_jk = E v_j·v_k; a sink of mass m and value 0 multiplies "
        "the other weights by 1 − m",
        proof="The weights W_h are centred and independent, so second moments close: what a layer "
        "adds to K is (1 − m)² times what it adds in a stack without token 0.",
        judge=less_mixing,
        labels={
            "influence_without": "influence without",
            "influence_with": "influence with the sink",
            "collapse": "Distance of the last two tokens",
            "toy": "Six tokens: what token 2 adds to tokens 3, 4, 5",
            "without": "without a sink",
            "with": "with a sink",
        },
    ),
    sink_claim(
        key="rank-collapse",
        statement="Rank collapse (with Δ/√2) implies representational collapse (with Δ), and not "
        "conversely.",
        formula="‖v_n − v_(n−1)‖₂ ≤ √2 ‖V − (1/n)11ᵀV‖_F",
        proof="With a, b the components of v_n and v_(n−1) less the mean, (a − b)² ≤ 2(a² + b²).",
        judge=collapses,
        labels={"sqrt_2": "√2"},
    ),
    sink_claim(
        key="no-op",
        statement="Attending to a sink whose value has a small norm is an approximate no-op.",
        formula="z_j = v_j + m g W v_1 + (1 − m) Σ_i p_i W v_i, g ≈ 0",
        proof="As m → 1 and g → 0 the update of every other token vanishes.",
        judge=no_op,
        labels={
            "updates": "Size of a layer’s update",
            "mass": "mass of the sink",
            "update": "sink of value 0",
            "with_value": "sink with a token’s value",
        },
    ),
)
