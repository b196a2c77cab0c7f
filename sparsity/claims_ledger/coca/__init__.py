"""The claims of [CoCA] on rotary positions, each with the judge that decides it."""

from __future__ import annotations

from functools import partial

from sparsity.claims_ledger.coca import forms, long_contexts, positions
from sparsity.claims_ledger.coca.forms import CocaRoutes
from sparsity.claims_ledger.judging import Claim, Legend

__all__ = ["CLAIMS", "PUBLISHED_PERPLEXITY", "CocaRoutes"]

_COCA = "Zhu et al. (2024), Collinear Constrained Attention (CoCA), arXiv 2309.08646v3"

# Published in the source, trained at 512 tokens; not recomputed here, and no claim rests on them.
PUBLISHED_PERPLEXITY: dict[str, dict[int, float]] = {
    "RoFormer": {512: 19.66, 2048: 3276.0, 8192: 3028.0, 32768: float("inf")},
    "RoFormer + dynamic NTK": {512: 19.66, 2048: 38.00, 8192: 138.13, 32768: 380.75},
    "CoCA": {512: 20.11, 2048: 69.06, 8192: 157.38, 32768: 171.63},
    "CoCA + dynamic NTK": {512: 20.11, 2048: 25.88, 8192: 55.75, 32768: 101.13},
}

_claim = partial(Claim, source=_COCA, routes=CocaRoutes)

CLAIMS: tuple[Claim, ...] = (
    _claim(
        key="rope-anomaly",
        statement="Under RoPE, planes with Θ_i > π have a score that rises with distance at first: "
        "half of the planes, for π/(2θ_i) tokens on average.",
        formula="cos(Θ_i + mθ_i) rises for τ = (2π − Θ_i)/θ_i tokens, Θ_i uniform on [0, 2π)",
        proof="d/dm cos(Θ + mθ) = −θ sin(Θ + mθ) > 0 exactly while Θ + mθ is in (π, 2π); "
        "E[2π − Θ | Θ > π] = π/2.",
        judge=positions.anomaly,
        legend=Legend(
            {
                "share": "share of planes with Θ_i > π",
                "mean_rise": "mean rise, tokens",
                "expected_rise": "π/(2θ_i)",
                "z_of_all": "z of all planes together",
                "whole_tokens": "mean rise counted in whole tokens, eight fastest planes",
            },
            columns=(("mean_rise", "expected_rise", "z"),),
            rough=("z_of_all",),
        ),
    ),
    _claim(
        key="k-border",
        statement="Collinearity, k = q∘t with t ≥ 0, removes the border that depends on the key, "
        "so that the score falls with distance.",
        formula="Θ_i = 0: the score of plane i is t_i|q_i|² cos(mθ_i)",
        proof="arg(t_i q_i) = arg q_i for t_i > 0, so that Θ_i = 0; cos(mθ_i) falls until mθ_i = π "
        "and then rises, whatever t.",
        judge=positions.border,
        legend=Legend(
            {
                "share_of_free_keys": "share of planes that rise with free keys",
                "first_rise": "first rise, tokens (−1: none seen)",
                "due": "π/θ_i",
            },
            columns=(("first_rise", "due"),),
        ),
    ),
    _claim(
        key="decay-bound",
        statement="CoCA has a stronger bound on long-range decay than RoPE.",
        formula="|a(s)| ≤ max|l_(i+1) − l_i| Σ_j|C_(j+1)|, C_j = Σ_(k<j) cos(sθ_k), against "
        "max|h_(i+1) − h_i| Σ_j|S_(j+1)|, S_j = Σ_(k<j) e^(isθ_k), l_i = |h_i|",
        proof="Summation by parts with l, h ending in a zero. |C_j| ≤ |S_j| as C_j = Re S_j, and "
        "|l_(i+1) − l_i| ≤ |h_(i+1) − h_i| by the triangle inequality.",
        judge=positions.bounds,
        legend=Legend(
            {
                "largest_ratio": "largest ratio",
                "smallest_ratio": "smallest ratio",
                "distance": "distance, tokens",
                "mean_ratio": "mean ratio of the bounds",
            },
            columns=(("distance", "mean_ratio"),),
        ),
    ),
    _claim(
        key="dual-form",
        statement="The collinear score, whose definition has a key for every pair of positions, "
        "n²·d numbers, has an equivalent dual form of n·d numbers, under a constraint "
        "q_(2j) = q_(2j+1) that is redundant.",
        formula="(R_m q)·(R_n (q∘t)) = (R_m q)·(q∘R_n t) if q₁ = q₂ in every plane",
        proof="Each plane of the definition is t_i|q_i|² cos((m−n)θ_i), which depends on |q_i| "
        "alone: it is also the score of RoPE between (|q_i|², 0) and (t_i, 0).",
        judge=forms.dual,
        legend=Legend(
            {
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
    ),
    _claim(
        key="slack",
        statement="Without that constraint the score (CoCA-Slack, the published code) is not a "
        "function of m − n.",
        formula="t[|q|² cos mθ cos nθ + (q₂²−q₁²) cos mθ sin nθ + 2q₁q₂ sin mθ sin nθ] a plane",
        proof="It is t|q|² cos((m−n)θ) for all m, n only if q₂² = q₁² and 2q₁q₂ = |q|²: q₁ = q₂.",
        judge=forms.slack,
        legend=Legend(
            {
                "starts": "position of the key",
                "slack": "slack form",
                "exact": "exact score",
                "scale": "Σt|q|²",
                "rms_gap": "error over Σt|q|², key at 0, 100, 10 000",
            },
            columns=(("starts", "slack", "exact"),),
        ),
    ),
    _claim(
        key="coca-ntk",
        statement="With dynamic NTK, CoCA extends its context: beyond the trained length L a "
        "query's scores, and what it attends to, are as at L.",
        formula="θ_i of base·(n/L)^(d/(d−2)) in contexts of n > L",
        proof="The slowest plane turns by n·θ_min·L/n = L·θ_min from end to end, as at L; the "
        "fastest by a radian a token, as ever. What lies between is computed.",
        judge=long_contexts.extends,
        legend=Legend(
            {
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
            columns=(
                ("length", "CoCA", "CoCA + dynamic NTK", "RoPE", "RoPE + dynamic NTK"),
                ("length", "new", "new + dynamic NTK", "new, RoPE"),
            ),
            rough=("CoCA", "CoCA + dynamic NTK", "RoPE", "RoPE + dynamic NTK"),
        ),
    ),
)
