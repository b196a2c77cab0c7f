"""Claims about the attention of a real model, judged on a measurement of it.

They need a model, so they are not part of `sparsity claims`: `sparsity measure --report` judges
them on what it has measured.

    a measurement of rows ── evidence ── judges ── CLAIMS ───────┐
    a measurement of heads ── head_evidence ── heads.HEAD_CLAIMS ┴── records, as of the ledger
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sparsity.attention.claims import head_evidence, judges
from sparsity.attention.claims.evidence import Evidence, claim_on_evidence
from sparsity.attention.claims.heads import judge_heads
from sparsity.claims_ledger.judging import Claim

if TYPE_CHECKING:
    import xarray

__all__ = ["CLAIMS", "Evidence", "head_evidence", "judge", "judge_heads"]

_GU = "Gu et al. (2024), When Attention Sink Emerges in Language Models, arXiv 2410.10781"
_BARBERO = "Barbero et al. (2025), Why do LLMs attend to the first token?, arXiv 2504.02732"
_NO_SINK = (
    "Rows without their sinks, the keys that take more than 0.1 of the weight on average; at "
    "length T all rows with T/2 < n ≤ T."
)


# What `Evidence.numbers` gives, which every claim shows.
_LABELS = {
    "bos": "BOS",
    "n_eff": "n_eff",
    "n_eff_without_sinks": "n_eff without sinks",
    "sink_rate_0.3": "sink rate of the first token, ε = 0.3",
    "sink_rate_0.8": "sink rate of the first token, ε = 0.8",
    "any_rate_0.3": "sink rate of any token, ε = 0.3",
    "late_rate_0.3": "sink rate of the first token, rows n > T/2",
    "sinks_rate_0.3": "rate of all sinks together, ε = 0.3",
    "gamma_without_sinks": "spread γ̂ without sinks",
    "ratio_limit_without_sinks": "median S/limit law",
    "ratio_exact_without_sinks": "median S/exact law",
    "rank_limit_without_sinks": "rank correlation with the limit law",
    "rank_exact_without_sinks": "rank correlation with the exact law",
    "real": "real rows",
    "gaussian": "Gaussian rows",
    "ratio": "median S/exact law",
    "within": "share within a quarter of it",
    "off_limit": "median |log(S/limit law)|",
    "off_exact": "median |log(S/exact law)|",
    "rank_limit": "rank correlation with the limit law",
    "rank_exact": "rank correlation with the exact law",
    "mass": "mass of the sinks",
    "logit": "logit of the sinks",
    "needed": "logit that would keep their mass",
}
_claim = partial(claim_on_evidence, labels=_LABELS)

CLAIMS: tuple[Claim, ...] = (
    _claim(
        key="real-rows-follow-the-exact-law",
        source="this project's law of rows of finite length",
        statement="Real rows follow the exact law of n Gaussian logits, not the limit law.",
        formula="S_rms = √(E n_eff/n) at the row's own n and γ̂, against S = e^(−γ̂²/2)",
        proof=_NO_SINK,
        find=judges.exact_law,
    ),
    _claim(
        key="first-token-is-a-sink",
        source=_GU,
        statement="The first token is an attention sink, whether or not it is BOS.",
        formula="Sink^ε = mean over texts, layers and heads of 1[α₁ > ε], α₁ = (1/T) Σ_t A_(t,1)",
        proof="",
        find=judges.first_token,
    ),
    _claim(
        key="sinks-against-context",
        source=_BARBERO,
        statement="A longer context needs a stronger sink.",
        formula="E[e^b/(e^b + Σ_j e^(γ z_j))] = m; b = ln n + γ²/2 + ln m/(1 − m) for γ² ≪ ln n",
        proof="Solved for b by quadrature, at the median n and γ̂ of heads that start as sinks.",
        find=judges.longer_context,
    ),
    _claim(
        key="dropping-the-sink",
        source="this project's sums over rows",
        statement="The sink hides how many tokens a head attends to.",
        formula="1/n_eff = m² + (1 − m)²/n_eff′, with mass m on one sink and n_eff′ without it",
        proof="Σp² splits into the sink's and the others'.",
        find=judges.dropping,
    ),
    _claim(
        key="spread-against-length",
        source="log-n scaling: Su, kexue.fm/archives/8823; Nakanishi (2025), arXiv 2501.19399",
        statement="The spread γ̂ of a trained model's logits grows like ln n.",
        formula="γ = s·ln n, which would keep n_eff nearly the same",
        proof=_NO_SINK,
        find=judges.spread,
    ),
)


def judge(data: xarray.Dataset) -> list[dict[str, Any]]:
    """Judge every claim on a measurement.

    Args:
        data: a dataset of `measure_model`, with and without BOS where the model has one, at several
            context lengths.

    Returns:
        Records as those of `sparsity.claims`.
    """
    evidence = Evidence.of(data)
    return [claim.record(evidence) for claim in CLAIMS]


def __dir__() -> list[str]:
    return sorted(__all__)
