"""Claims behind rules that people ship for long contexts, each with the judge that decides it."""

from __future__ import annotations

from sparsity.claims_ledger.judging import Claim, Legend
from sparsity.claims_ledger.rules import needle, routers, scales, temperature

__all__ = ["CLAIMS"]

CLAIMS: tuple[Claim, ...] = (
    Claim(
        key="why-a-tenth",
        source="Llama 4 (2025), attn_scale = 0.1; Mistral 3, llama_4_scaling_beta",
        statement="A temperature of 1 + 0.1·ln r keeps attention as sharp over a context r times "
        "as long.",
        formula="n_eff(n₀r, cγ) = n_eff(n₀, γ) at c = 1 + 0.1·ln r",
        proof="n_eff of n Gaussian scores falls as the spread grows and rises with n; the factor "
        "that keeps it solves one equation of the exact law. No published derivation of 0.1 was "
        "found; 2.9 is the median spread of SmolLM2's heads at 2048 tokens.",
        judge=temperature.why_a_tenth,
        legend=Legend(
            {
                "ratios": "length over 8192",
                "rule": "1 + 0.1·ln r",
                "factors": "Factor that keeps n_eff, by γ",
                "slopes": "Slope at r = 128, by γ",
                "lengths": "length n",
                "n_eff": "n_eff at γ = 3",
            }
        ),
    ),
    Claim(
        key="yarn-square",
        source="Peng et al. (2023), YaRN, arXiv 2309.00071",
        statement="The factor 1 + 0.1·ln r on queries and on keys keeps attention as it was.",
        formula="scores times (1 + 0.1·ln r)²",
        proof="What stands on q and on k stands squared on the score. For independent scores the "
        "factor that keeps n_eff is about 1 + 0.1·ln r at γ = 3, and its square is too much, "
        "unless interpolation has narrowed the scores.",
        judge=temperature.yarn_square,
        legend=Legend(
            {
                "ratios": "length over 8192",
                "n_eff": "n_eff at γ = 3, by r",
                "spread left": "Spread that would keep n_eff, by r",
            }
        ),
    ),
    Claim(
        key="unit-scaling",
        source="Blake et al. (2023), Unit scaling; its fit for attention's output",
        statement="The output of attention over independent values has the scale n^(−2/(γ²+4)).",
        formula="√(E Y₂) against n^(−2/(γ²+4))",
        proof="Independent values of unit variance leave Σp² of variance in a row's output, so its "
        "scale is √(E Y₂); in long rows that is e^(γ²/2)/√n.",
        judge=scales.output_scale,
        legend=Legend(
            {
                "scales": "Scale of a row's output",
                "gamma": "spread γ",
                "fit": "n^(−2/(γ²+4))",
                "scale": "√(E Y₂)",
            }
        ),
    ),
    Claim(
        key="scale-invariant",
        source="Anson et al. (2025), Scale-invariant attention, arXiv 2505.17083",
        statement="Each decade of distances holds the same attention.",
        formula="E e^(c s + 1 − c²) = √e/(t/τ + 1), c² = 2 ln(t/τ + 1) + 1",
        proof="E e^(c s) = e^(c²/2) for s ~ N(0, 1). The sum of 1/(t/τ + 1) over a decade tends to "
        "τ·ln 10 as t/τ grows.",
        judge=scales.flat_decades,
        legend=Legend(
            {
                "decades": "Distances, in tokens",
                "share": "Share of the mean weight",
            }
        ),
    ),
    Claim(
        key="ssmax-start",
        source="Nakanishi (2025), Scalable-Softmax, arXiv 2501.19399",
        statement="Scores times s·ln n keep attention from fading as the context grows.",
        formula="γ = 0.43·ln n",
        proof="n_eff of n Gaussian scores of spread s·ln n, by the exact law.",
        judge=scales.ssmax_at_the_start,
        legend=Legend(
            {
                "lengths": "length n",
                "n_eff": "n_eff, exact law",
            }
        ),
    ),
    Claim(
        key="sigmoid-bias",
        source="Ramapuram et al. (2024), Sigmoid self-attention, arXiv 2409.04431",
        statement="With the bias −ln n the weights of sigmoid attention keep the sum of softmax's.",
        formula="n·E σ(s − ln n) → E e^s",
        proof="σ(s − ln n) ~ e^s/n where e^s is small beside n.",
        judge=scales.sigmoid_bias,
        legend=Legend(
            {
                "lengths": "length n",
                "sum": "sum of a row's weights",
                "n_eff": "n_eff, exact law",
            }
        ),
    ),
    Claim(
        key="flashmoba-snr",
        source="Xiao et al. (2025), Optimizing Mixture of Block Attention, arXiv 2511.11571",
        statement="How well a router finds the right block by its mean key is set by a "
        "signal-to-noise ratio, which smaller blocks and keys that cluster both raise.",
        formula="SNR = Δ_eff √(d/(2B))",
        proof="The mean of B independent scores of variance 1/d has the variance 1/(dB), and that "
        "of a block with m meant keys is mΔ/B higher. The captured mass goes by the correlation of "
        "a score with the mean of its block, ρ² = c + (1 − c)/B, and tends to Φ(ργ + Φ⁻¹(q)).",
        judge=routers.signal_to_noise,
        legend=Legend(
            {
                "single": "A wrong block has the larger mean",
                "size": "keys of a block B",
                "relevant": "meant keys in it",
                "law": "Φ(−SNR)",
                "drawn": "drawn",
                "sizes": "keys of a block B",
                "alone": "mass read, c = 0",
                "alike": "mass read at B = 64, c = 0.3",
            },
            columns=(("sizes", "alone"),),
        ),
    ),
    Claim(
        key="halving-blocks",
        source="Xiao et al. (2025), Optimizing Mixture of Block Attention, arXiv 2511.11571",
        statement="Halving the blocks, and reading twice as many of them, helps.",
        formula="captured mass at B and B/2",
        proof="ρ² = c + (1 − c)/B grows as B falls, at any c < 1, and the captured mass with it; "
        "but it is never below c, so that size matters little from B = (1 − c)/c on.",
        judge=routers.halving_blocks,
        legend=Legend(
            {"sizes": "keys of a block B", "mass": "Mass of an eighth of 4096 keys, by c"}
        ),
    ),
    Claim(
        key="past-attention",
        source="Zhang et al. (2023), H2O, arXiv 2306.14048",
        statement="A fifth of the keys, those of the largest accumulated attention, keeps what "
        "attention needs.",
        formula="Φ(ργ + Φ⁻¹(0.2))",
        proof="Accumulated attention is a proxy of the score now. Where a key's scores at "
        "different queries have the correlation c, the mean of many has ρ = √c with the next one.",
        judge=routers.eviction_by_past_attention,
        legend=Legend(
            {
                "best": "mass of the best fifth",
                "kept": "Mass of the fifth that is kept, by ρ",
                "asked": "ρ that keeps 95 % in long rows, by γ",
            }
        ),
    ),
    Claim(
        key="needle-snr",
        source="Peterson, Birdsall & Fox (1954), signal detectability; here, of one row",
        statement="One key's value stands out of what a row reads by odds·√n_eff of the others.",
        formula="b/√(Σ a²) = (b/Σ|a|)·√(n_eff), b of the needle, a of the others",
        proof="n_eff = (Σ|a|)²/Σa². Values of zero mean that are independent from key to key add "
        "up to noise of variance Σa².",
        judge=needle.signal_to_noise,
        legend=Legend(
            {
                "rows": "rows drawn",
                "rounding": "largest difference of both sides",
                "z": "z of the noise that was read",
                "error": "its relative error",
            }
        ),
    ),
    Claim(
        key="linear-capacity",
        source="Schlag et al. (2021), Fast weight programmers, arXiv 2102.11174",
        statement="Linear attention holds about d keys, whatever the query.",
        formula="n = (t√d)²/E s² = d for s ∼ N(0, t²)",
        proof="The query's length multiplies the needle's score and all others alike.",
        judge=needle.linear_capacity,
        legend=Legend({"dims": "dimension d", "held": "keys held, drawn"}),
    ),
    Claim(
        key="softmax-capacity",
        source="Ramsauer et al. (2020), Hopfield networks is all you need, arXiv 2008.02217",
        statement="What softmax can hold grows exponentially with the dimension.",
        formula="n = e^(2t√d − 2t²), e^(d/2) at t = √d/2",
        proof="E e^(2s) = e^(2t²) of s ~ N(0, t²). For t > √d/2 the mean of a² is that of weights "
        "which no row meets: Σa² is frozen, and the annealed law says too little.",
        judge=needle.softmax_capacity,
        legend=Legend(
            {
                "dims": "dimension d",
                "held": "keys held at t = √d/2, drawn",
                "queries": "length t of the query",
                "steep": "keys held at d = 16, drawn",
            }
        ),
    ),
    Claim(
        key="power-capacity",
        source="Krotov & Hopfield (2016), Dense associative memory, arXiv 1606.01164",
        statement="With the weight max(s, 0)² a row holds about d² keys.",
        formula="n = d²/E max(x, 0)⁴ = 2d²/3",
        proof="The query's length cancels, and E max(x, 0)⁴ = 3/2 for x ~ N(0, 1).",
        judge=needle.power_capacity,
        legend=Legend(
            {"dims": "dimension d", "relu2": "keys held, squared ReLU", "power4": "fourth power"}
        ),
    ),
)
