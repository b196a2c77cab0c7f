"""The claims of [Su] on what attention can focus, each with the judge that decides it."""

from __future__ import annotations

from functools import partial

from sparsity.claims_ledger.judging import Claim, Legend
from sparsity.claims_ledger.su import linear, matrices, scores

__all__ = ["CLAIMS"]

_SU = "Su Jianlin (2023-12-12), kexue.fm/archives/9889"

_claim = partial(Claim, source=_SU)

CLAIMS: tuple[Claim, ...] = (
    _claim(
        key="isotropy",
        statement="With keys k ~ N(μ, σ²I), S depends on q, μ, σ and d only through the bias "
        "β = q·μ and the spread γ = σ‖q‖.",
        formula="S = E|f(β+γε)| / √E f(β+γε)², ε ~ N(0, 1)",
        proof="q·k is a linear function of a Gaussian vector, so it is N(q·μ, σ²‖q‖²).",
        judge=scores.isotropy,
        legend=Legend(
            {
                "sigma": "spread σ of the keys",
                "mean_across_queries": "part of the keys’ mean across the query",
            },
        ),
    ),
    _claim(
        key="exp",
        statement="Softmax attention can be arbitrarily sparse: its S tends to 0 as γ grows.",
        formula="S = exp(−γ²/2)",
        proof="The formula is the limit n → ∞ at fixed γ. A row of n weights has "
        "‖a‖₁ ≥ ‖a‖₂, hence S ≥ 1/√n, which exp(−γ²/2) passes when γ² > ln n.",
        judge=scores.exponential,
        legend=Legend(
            {
                "floor": "floor of rows, 1/√n",
                "rows": "Limit law and exact law",
                "formula": "limit law",
                "exact_S_rms": "exact law, √(n_eff/n)",
                "n_eff": "n_eff, exact law",
            },
        ),
    ),
    _claim(
        key="relu2",
        statement="Squared-ReLU attention can be sparse only when the bias β is negative.",
        formula="S = m₂/√m₄, m_p = E max(β+γε, 0)^p, a function of z = β/γ",
        proof="dm_p/dβ = p·m_(p−1), so d ln S/dβ = 2(m₁m₄ − m₂m₃)/(m₂m₄) ≥ 0 because ln m_p is "
        "convex in p (Lyapunov): S rises with z, from 0 through 1/√6 at z = 0 to 1.",
        judge=scores.squared_relu,
        legend=Legend(
            {
                "S_of_z": "S against β/γ",
                "z": "β/γ",
                "one_over_sqrt_6": "1/√6",
                "smallest_step_of_log_S": "smallest step of log S on a grid of β/γ",
            },
        ),
    ),
    _claim(
        key="identity",
        statement="Linear attention without activation cannot be sparse: S is even in β and never "
        "below √(2/π).",
        formula="S = [√(2/π) γ e^(−z²/2) + β erf(z/√2)] / √(β²+γ²), z = β/γ",
        proof="With m₁(z), m₂(z) in units of γ, dS/dz has the sign of N = m₂m₁′ − m₁m₂′/2; "
        "N(0) = 0 and N′ = √(2/π) z² e^(−z²/2) ≥ 0, so S falls to z = 0 and rises after it.",
        judge=scores.identity,
        legend=Legend(
            {
                "floor": "floor of S",
                "smallest_S": "smallest S found",
                "at_z": "at β/γ",
            },
        ),
    ),
    _claim(
        key="nonnegative",
        statement="Linear attention with nonnegative features can be sparse only at a low "
        "signal-to-noise ratio μ̃/σ̃.",
        formula="S = 1/√(1 + (r‖q̃‖₂/‖q̃‖₁)²), r = σ̃/μ̃",
        proof="(Σq̃)² − Σq̃² grows by 2q̃ᵢΣq̃ ≥ 0 with each further entry, so ‖q̃‖₂ ≤ ‖q̃‖₁ for every d "
        "and S ≥ 1/√(1+r²): S ≤ s needs r ≥ √(1/s² − 1).",
        judge=linear.nonnegative,
        legend=Legend(
            {
                "ratio_needed": "Noise that S takes",
                "ratio_at_least": "σ̃/μ̃ at least",
            },
        ),
    ),
    _claim(
        key="dimension",
        statement="To make it sparser, increase ‖q̃‖₂/‖q̃‖₁, whose maximum is √d: hence increase "
        "the dimension d.",
        formula="max over q̃ ≥ 0 of ‖q̃‖₂/‖q̃‖₁ = √d",
        proof="Σq̃² ≤ (Σq̃)² ≤ dΣq̃², by induction over d: the two gaps grow by 2q̃ᵢΣq̃ ≥ 0 and by "
        "(Σq̃ − dq̃ᵢ)²/d ≥ 0. So 1/√d ≤ ‖q̃‖₂/‖q̃‖₁ ≤ 1; the ratio whose maximum is √d is its inverse.",
        judge=linear.dimension,
        legend=Legend(
            {
                "norm_ratio": "‖q̃‖₂/‖q̃‖₁ of queries",
                "sqrt_d": "√d",
                "S_at_ratio_1": "S at σ̃/μ̃ = 1",
                "uniform": "uniform query",
                "one-hot": "one-hot query",
                "half-normal": "half-normal query",
            },
        ),
    ),
    _claim(
        key="softmax-gap",
        statement="Only d → ∞ closes the gap between linear attention and softmax.",
        formula="a = φ(q)·φ(k), d features; Taylor features of even degree p: "
        "a = Σ_(r≤p) s^r/r! → e^s",
        proof="f_p − f_p′ = s^p/p!, so f_p = s^p/p! > 0 wherever f_p′ = 0: f_p > 0 for even p, and "
        "E|f_p| = E f_p: polynomial moments, exact by Gauss–Hermite quadrature.",
        judge=linear.softmax_gap,
        legend=Legend(
            {
                "softmax": "S of softmax",
                "taylor": "Taylor features of even degree p",
                "degree": "degree p",
                "features_at_64": "features at d = 64",
                "excess": "S over softmax’s, less 1",
                "iid_smallest_S": "smallest S of i.i.d. features",
            },
            rough=("excess",),
        ),
    ),
    _claim(
        key="decay",
        statement="With exponential decay, any λ < 1 gives S → 0 as the row grows.",
        formula="S = √[(1−λⁿ)(1+λ) / (n(1−λ)(1+λⁿ))]",
        proof="λⁿ → 0, so n·S² → (1+λ)/(1−λ), a finite window, and S falls like n^(−1/2).",
        judge=linear.decay_to_zero,
        legend=Legend(
            {
                "rows": "Rows of λ^(n−j)",
                "S_at_n_4096": "S at n = 4096",
                "window": "window n·S²",
                "slopes": "slopes of ln S against ln n",
            },
        ),
    ),
    _claim(
        key="absolute-position",
        statement="Nonnegative linear attention can express only absolute position: its weights "
        "hardly depend on the query.",
        formula="Var_j(E_i a_ij) / E_i Var_j(a_ij) = μ̃²/(μ̃² + σ̃²)",
        proof="Given the query, a = q̃·k̃ varies over keys by σ̃_k²‖q̃‖², on the average by "
        "σ̃_k² d(μ̃² + σ̃²). Its mean over queries, μ̃ Σ_l k̃_l, varies by σ̃_k² d μ̃². The ratio is S² "
        "of one feature of the query.",
        judge=matrices.column_share,
        routes=matrices.MatrixRoutes,
        legend=Legend(
            {
                "share": "Share of the variance along rows that all queries have in common",
                "noise": "noise to signal σ̃/μ̃",
                "theory": "μ̃²/(μ̃² + σ̃²)",
                "estimate": "in sampled matrices",
            },
        ),
    ),
    _claim(
        key="masked-rank",
        statement="A causal mask makes the attention matrix full rank, so low rank is not the "
        "whole reason why linear attention falls behind softmax.",
        formula="det tril(A) = Π_i a_ii ≠ 0",
        proof="A triangular matrix has full rank if no entry of its diagonal is zero. The "
        "effective rank is e^H, H the entropy of the singular values as shares (Roy and Vetterli "
        "2007); rows are divided by the sum of their absolute weights.",
        judge=matrices.masked_rank,
        routes=matrices.MatrixRoutes,
        legend=Legend(
            {
                "draws": "matrices drawn",
                "ranks": "Rank of attention matrices",
                "masked": "causal mask",
                "effective_rank": "effective rank",
                "rank": "numerical rank",
                "n_eff": "attended tokens of a row",
            },
        ),
    ),
)
