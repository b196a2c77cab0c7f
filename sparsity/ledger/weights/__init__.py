"""Claims on bounded scores, powers and rectified weights, each with the judge that decides it."""

from __future__ import annotations

from sparsity.ledger.judging import Claim
from sparsity.ledger.weights import bounded, powers, softpick

__all__ = ["CLAIMS"]

CLAIMS: tuple[Claim, ...] = (
    Claim(
        key="powers",
        source="Kacham et al. (2023), PolySketchFormer, arXiv 2310.01655",
        statement="Polynomial attention of a high even degree p can take the place of softmax: it "
        "focuses as sharply.",
        formula="S² = Γ((p+1)/2)²/(√π Γ(p+½)) at β = 0; n·S² = O(1) at p ≈ log₂ n",
        proof="E|s|^p = γ^p 2^(p/2) Γ((p+1)/2)/√π, and the duplication formula gives "
        "S² ~ √2·2^(−p). E s^(2p) is due to |s| ≈ γ√(2p), and the largest of n scores is about "
        "γ√(2 ln n): with p > ln n the limit form counts scores that a row does not have. The "
        "largest scores of a row differ by factors 1 + x/(2 ln n), x of order 1, so that their "
        "weights differ by e^x from p = 2 ln n = 1.39 log₂ n on, and O(1) of them hold the mass.",
        judge=powers.focus,
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
        judge=bounded.dispersed,
    ),
    Claim(
        key="softpick-mass",
        source="Zuhri et al. (2025), Softpick, arXiv 2504.20966",
        statement="A row of softpick weights does not sum to one: negative scores take mass and "
        "give none.",
        formula="max(e^s−1, 0)/Σ|e^s−1| keeps [e^(γ²/2)Φ(γ) − ½]/[e^(γ²/2)(2Φ(γ) − 1)] at β = 0",
        proof="Numerator and denominator are integrals of exponentials over half lines; with many "
        "keys the share of a row is the ratio of their means.",
        judge=softpick.kept,
    ),
)
