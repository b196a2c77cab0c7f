"""The claims of [Barbero] on attention sinks and over-mixing, each with the judge that decides."""

from __future__ import annotations

from functools import partial

from sparsity.claims_ledger.judging import Claim, Legend
from sparsity.claims_ledger.sinks import context, mixing
from sparsity.claims_ledger.sinks.mixing import PUBLISHED_BESIDES, SinkRoutes

__all__ = ["CLAIMS", "PUBLISHED_BESIDES", "SinkRoutes"]

_BARBERO = "Barbero et al. (2025), Why do LLMs attend to the first token?, arXiv 2504.02732"

_claim = partial(Claim, source=_BARBERO, routes=SinkRoutes)

CLAIMS: tuple[Claim, ...] = (
    _claim(
        key="sinks-mix-less",
        statement="Attention sinks reduce the mixing of information between tokens.",
        formula="K′ = K + w² E[A K Aᵀ], K_jk = E v_j·v_k; a sink of mass m and value 0 multiplies "
        "the other weights by 1 − m",
        proof="The weights W_h are centred and independent, so second moments close: what a layer "
        "adds to K is (1 − m)² times what it adds in a stack without token 0.",
        judge=mixing.less_mixing,
        legend=Legend(
            {
                "influence_without": "influence without",
                "influence_with": "influence with the sink",
                "collapse": "Distance of the last two tokens",
                "toy": "Six tokens: what token 2 adds to tokens 3, 4, 5",
                "without": "without a sink",
                "with": "with a sink",
            },
            columns=(
                ("influence_with", "influence_without"),
                ("without", "with"),
            ),
        ),
    ),
    _claim(
        key="longer-context",
        statement="A longer context needs a stronger sink.",
        formula="E mass = ∫₀^∞ e^b e^(−t e^b) (E e^(−t e^(γε)))ⁿ dt; half of it at b ≈ ln n + γ²/2",
        proof="Beside n logits with γ² ≪ ln n the sum of the weights is n e^(γ²/2), nearly sure. "
        "The mass is convex in that sum, so half of it never needs more (Jensen).",
        judge=context.longer_context,
        legend=Legend(
            {
                "lengths": "row lengths n",
                "gammas": "spreads γ",
                "half_logit": "Logit for half of the mass",
                "minus_annealed": "That logit, less ln n + γ²/2",
                "mass_at_logit_5": "mass at logit 5, γ = 1",
                "distances": "Distance of the last two tokens, n = 32, 128, 512",
            },
            columns=(("lengths", "mass_at_logit_5"),),
            grids={"half_logit": ("gammas", "lengths"), "minus_annealed": ("gammas", "lengths")},
        ),
    ),
    _claim(
        key="rank-collapse",
        statement="Rank collapse (with Δ/√2) implies representational collapse (with Δ), and not "
        "conversely.",
        formula="‖v_n − v_(n−1)‖₂ ≤ √2 ‖V − (1/n)11ᵀV‖_F",
        proof="With a, b the components of v_n and v_(n−1) less the mean, (a − b)² ≤ 2(a² + b²).",
        judge=mixing.collapses,
        legend=Legend(
            {
                "largest_ratio": "largest ratio",
                "sqrt_2": "√2",
            },
        ),
    ),
    _claim(
        key="over-squashing",
        statement="The influence of a token on another is bounded by the sum over causal paths of "
        "the products of attention weights, times Lipschitz constants.",
        formula="‖∂v_j^(L)/∂v_i^(0)‖ ≤ (B^(L) … B^(1))_ji, B_ji = c(δ_ji + Σ_h w_h |α_(h,ji)|)",
        proof="The chain rule, layer by layer, with the triangle inequality; the attention must "
        "not depend on the tokens, or its own derivative adds to the sum.",
        judge=context.bounded,
        legend=Legend(
            {
                "largest_ratio": "largest ratio",
                "median_ratio": "median ratio",
                "stacks": "Influence over its bound",
                "lipschitz": "Lipschitz constant",
                "counter_example": "counter-example: influence, bound",
            },
        ),
    ),
    _claim(
        key="no-op",
        statement="Attending to a sink whose value has a small norm is an approximate no-op.",
        formula="z_j = v_j + m g W v_1 + (1 − m) Σ_i p_i W v_i, g ≈ 0",
        proof="As m → 1 and g → 0 the update of every other token vanishes.",
        judge=mixing.no_op,
        legend=Legend(
            {
                "updates": "Size of a layer’s update",
                "mass": "mass of the sink",
                "update": "sink of value 0",
                "with_value": "sink with a token’s value",
            },
        ),
    ),
    _claim(
        key="larger-models",
        statement="Larger models have stronger sinks: the published sink rates rise with size "
        "(published data, not recomputed here).",
        formula="mean over layers and heads of 1[α_1 > ε], α_k = Σ_(t≥k) A_(t,k)/(T − k + 1)",
        proof="",
        judge=context.larger_models,
        legend=Legend(
            {
                "published_not_recomputed": "Published, not computed here",
                "sink_rate_percent": "sink rate, %",
                "published_besides": "Published besides, not computed here",
                "uniform_importance": "importance of the first token in uniform attention",
            },
        ),
    ),
)
