"""Claims on bounded scores, powers and rectified weights, each with the judge that decides it."""

from __future__ import annotations

from sparsity.claims_ledger.judging import Claim, Legend
from sparsity.claims_ledger.weights import maps, powers

__all__ = ["CLAIMS"]

CLAIMS: tuple[Claim, ...] = (
    Claim(
        key="powers",
        source="Kacham et al. (2023), PolySketchFormer, arXiv 2310.01655",
        statement="Polynomial attention of a high even degree p can replace softmax: it focuses "
        "as sharply.",
        formula="S² = Γ((p+1)/2)²/(√π Γ(p+½)) at β = 0; n·S² = O(1) at p ≈ log₂ n",
        proof="E|s|^p = γ^p 2^(p/2) Γ((p+1)/2)/√π, and the duplication formula gives "
        "S² ~ √2·2^(−p). E s^(2p) is due to |s| ≈ γ√(2p), and the largest of n scores is about "
        "γ√(2 ln n): with p > ln n the limit form counts scores that a row does not have. The "
        "largest scores of a row differ by factors 1 + x/(2 ln n), x of order 1, so that their "
        "weights differ by e^x from p = 2 ln n = 1.39 log₂ n on, and O(1) of them hold the mass.",
        judge=powers.focus,
        legend=Legend(
            {
                "degree_for_two_keys": "degree for two keys",
                "limit_form": "Degree at which n·S² = 1",
                "log2_n": "log₂ n",
                "degree": "degree p",
                "ratio": "p/log₂ n",
                "rows": "Keys at p = log₂ n",
                "n_S2": "n·S², limit law",
                "n_eff": "n_eff, exact law",
                "keys_of_1e12": "n·S² at n = 10¹²",
            },
        ),
    ),
    Claim(
        key="bounded-scores",
        source="Veličković et al. (2024), softmax is not enough, arXiv 2410.01104",
        statement="Softmax over bounded scores cannot stay sharp as the row grows: every weight is "
        "Θ(1/n).",
        formula="m ≤ f ≤ M: p_j ≤ M/(mn) and S² ≥ 4mM/(m+M)²; for e^s with |s| ≤ c, 1/cosh² c",
        proof="(f − m)(M − f) ≥ 0 gives E f² ≤ (m+M)E f − mM, so S² ≥ x²/((m+M)x − mM) with "
        "x = E f, least at x = 2mM/(m+M). No law of the scores enters, and none needs to be "
        "independent.",
        judge=powers.dispersed,
        legend=Legend(
            {
                "floors": "Floor of S² for scores in [−c, c]",
                "c": "bound c of the scores",
                "floor": "floor 4mM/(m+M)²",
                "smallest_S2": "smallest S² found",
                "two_valued_S2": "S² of two-valued scores",
                "rows": "Softmax rows",
                "share": "n_eff/n, scores uniform on [−2, 2]",
                "exp": "n_eff at γ = 2√(2 ln n)",
            },
        ),
    ),
    Claim(
        key="softpick-mass",
        source="Zuhri et al. (2025), Softpick, arXiv 2504.20966",
        statement="A row of softpick weights does not sum to one: negative scores take mass and "
        "give none.",
        formula="max(e^s−1, 0)/Σ|e^s−1| keeps [e^(γ²/2)Φ(γ) − ½]/[e^(γ²/2)(2Φ(γ) − 1)] at β = 0",
        proof="Numerator and denominator are integrals of exponentials over half lines; with many "
        "keys the share of a row is the ratio of their means.",
        judge=maps.kept,
        legend=Legend(
            {
                "shares": "Share of the mass that is kept",
                "share": "derived",
                "printed": "printed formula",
            },
        ),
    ),
    Claim(
        key="sparsemax-keys",
        source="Martins and Astudillo (2016), From softmax to sparsemax, arXiv 1602.02068",
        statement="Sparsemax puts its mass on few keys, however long the row is.",
        formula="E K = 1 + λ in long rows, λ = h(Φ̄⁻¹(1/n))/γ ~ √(2 ln n)/γ with h = φ/Φ̄",
        proof="Kac–Rice for the threshold: E F = ∫dτ E[F K δ(Σ(s_j − τ)₊ − 1)]. In long rows the "
        "excesses of the largest scores are those of a Poisson process of exponential rate "
        "h/γ, so K − 1 ~ Poisson(λ).",
        judge=maps.few_keys,
        legend=Legend(
            {
                "rows": "Support by length",
                "support": "exact mean support",
                "long_rows": "law of long rows",
                "z": "z of rows drawn",
                "participation": "exact E Σp² at the length drawn",
            },
        ),
    ),
    Claim(
        key="stick-breaking",
        source="Tan et al. (2024), Stick-breaking attention, arXiv 2410.17980",
        statement="How sharply stick-breaking attends does not depend on the length of the row.",
        formula="E Σa² = E σ² (1 − rⁿ)/(2Eσ − Eσ²), r = E(1 − σ)²",
        proof="a_d = σ_d Π_{i<d}(1 − σ_i) with independent factors: a geometric sum of ratio r.",
        judge=maps.same_at_every_length,
        legend=Legend(
            {
                "limit": "E σ²/(2Eσ − Eσ²)",
                "found": "exact E Σa²",
                "z": "z of rows drawn",
            },
        ),
    ),
)
