"""Claims about why heads of a real model depart from the exact law, judged on `measure_heads`.

Real rows are sparser than Gaussian rows of the same n and γ̂: in the median log S lies below theirs
by a gap. Each judge changes rows in one respect (their largest logits, nearest keys, dependence)
and asks which share of the gap is still there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.head_evidence import NEAR, HeadEvidence
from experiments.head_parts import NEAREST, TAIL
from experiments.row_evidence import claim_on_evidence
from sparsity.claims_ledger.findings import Finding, core, instead, letter
from sparsity.claims_ledger.judging import Claim

if TYPE_CHECKING:
    import xarray

_WHOLE = "without sink key"  # the unchanged rows
_CLOSE = 0.05  # a log ratio below which two medians count as equal


def _share_of_gap(evidence: HeadEvidence, name: str) -> float:
    """Return the share of the gap that is still there in rows changed in one respect.

    Args:
        evidence: the evidence.
        name: the kind of changed rows, as in `Fits.ratios`; Gaussian rows changed alike stand
            beside them, or plain ones where the change says nothing for Gaussian rows.
    """
    real, ideal = evidence.real.ratios, evidence.ideal.ratios
    gap = np.log(real[_WHOLE] / ideal[_WHOLE])
    return float(np.log(real[name] / ideal.get(name, ideal[_WHOLE])) / gap) if gap else np.nan


def _gap_finding(evidence: HeadEvidence) -> Finding:
    real, ideal = (x.ratios[_WHOLE] for x in (evidence.real, evidence.ideal))
    return core(
        f"the median of S over the exact law is {real:.3f}, of Gaussian rows of the same n and γ̂ "
        f"{ideal:.3f}: more than {_CLOSE:.0%} apart",
        abs(np.log(real / ideal)) > _CLOSE,
    )


def upper_tail(evidence: HeadEvidence) -> list[Finding]:
    """Judge rows whose upper tail is exchanged with that of Gaussian rows."""
    # "body": a real row with the tail of a Gaussian one. "tail": a Gaussian row with the real tail.
    body, tail = _share_of_gap(evidence, "body"), _share_of_gap(evidence, "tail")
    given, ideal = evidence.real.given, evidence.ideal.given
    return [
        _gap_finding(evidence),
        core(
            f"with a Gaussian upper tail ({TAIL:.0%} of the keys) less than half of the gap is "
            f"left: the median is {evidence.real.ratios['body']:.3f}, {body:.0%} of the gap",
            body < 0.5,
        ),
        core(
            "a Gaussian row with the real tail has more than half of the gap: "
            f"{evidence.real.ratios['tail']:.3f}, {tail:.0%} of it",
            tail > 0.5,
        ),
        letter(
            "the largest logit stands higher than in Gaussian rows: in the median "
            f"{evidence.real.zeta:.2f} γ̂ above the mean, {evidence.ideal.zeta:.2f} in those",
            evidence.real.zeta > 1.05 * evidence.ideal.zeta,
        ),
        instead(
            "the higher it stands, the lower S over the exact law: rank correlation "
            f"{evidence.real.top:.2f}, which alone tells nothing (Gaussian rows "
            f"{evidence.ideal.top:.2f})",
            evidence.real.top < -0.8,
        ),
        instead(
            "given the largest logit, nothing fitted, the median is within a tenth of its law: "
            f"{given.ratio:.3f} (Gaussian rows {ideal.ratio:.3f}), rank {given.rank:.2f}",
            abs(np.log(given.ratio)) < np.log(1.1),
        ),
    ]


def recency(evidence: HeadEvidence) -> list[Finding]:
    """Judge where the largest logits are, and rows without the nearest keys."""
    # A row without its nearest keys is shorter as well: "mid" lacks as many from its middle.
    far, mid = (_share_of_gap(evidence, name) for name in ("far", "mid"))
    real = evidence.real.ratios
    return [
        _gap_finding(evidence),
        core(
            f"the largest logit is within {NEAR} tokens in {evidence.real.near:.0%} of the rows, "
            f"more than five times as often as in Gaussian ones ({evidence.ideal.near:.1%})",
            evidence.real.near > 5 * evidence.ideal.near,
        ),
        core(
            f"without the {NEAREST} nearest keys at least a third of the gap is closed: the median "
            f"is {real['far']:.3f}, {far:.0%} of the gap is left (of {NEAREST} keys in the middle: "
            f"{mid:.0%})",
            abs(far) < 2 / 3 and abs(mid) > 2 / 3,
        ),
        letter(f"half of it or more is: {far:.0%} is left", abs(far) < 0.5),
        instead(
            f"without all further sinks as well the median is {real['clear']:.3f}, within "
            f"{_CLOSE:.0%} of 1",
            abs(np.log(real["clear"])) < _CLOSE,
        ),
    ]


def content(evidence: HeadEvidence) -> list[Finding]:
    """Judge the scores less their distance profile and key bias."""
    own, ideal = evidence.real.ratios["content"], evidence.content.ratios[_WHOLE]
    # The content is narrower than the row, and a narrow row is near any law. "shape" is the whole
    # row made as narrow: a control that shows what that alone does.
    shape = evidence.real.ratios["shape"]
    off, other = (abs(np.log(x / ideal)) for x in (own, shape))
    texts = ", ".join(f"{x:.3f}" for x in evidence.by_text)
    return [
        core(
            f"the median of its S over the exact law is {own:.3f}, that of Gaussian rows of its "
            f"n and γ̂ to {_CLOSE:.0%} ({ideal:.3f})",
            off < _CLOSE,
        ),
        core(
            f"the whole row's logits, shrunk to that γ̂, are twice as far off or more: {shape:.3f}",
            other > 2 * off and other > _CLOSE,
        ),
        letter(
            f"so it is in every text, to {_CLOSE:.0%}: {texts}",
            all(abs(np.log(x / ideal)) < _CLOSE for x in evidence.by_text),
        ),
        instead(
            f"profile and bias explain {evidence.explained:.0%} of the variance in the median "
            "row, more than half",
            evidence.explained > 0.5,
        ),
    ]


def dependence(evidence: HeadEvidence) -> list[Finding]:
    """Judge Gaussian rows that are correlated from key to key as real rows are."""
    ratio, ideal, real = (
        x.ratios[_WHOLE] for x in (evidence.dependent, evidence.ideal, evidence.real)
    )
    share = np.log(ratio / ideal) / np.log(real / ideal)  # how far dependence alone goes
    return [
        _gap_finding(evidence),
        core(
            f"logits one key apart have a correlation of {evidence.real.lag:.2f}; Gaussian rows "
            f"with it have a median of {ratio:.3f}, which goes less than a quarter of the way from "
            f"{ideal:.3f} to {real:.3f}",
            share < 0.25,
        ),
        letter(f"and are within {_CLOSE:.0%} of the exact law", abs(np.log(ratio)) < _CLOSE),
    ]


def freezings(evidence: HeadEvidence) -> list[Finding]:
    """Compare γ̂ with the two freezings, γ_c/2 of n_eff's moments and γ_c of the row."""
    # Beyond γ_c a few of n Gaussian logits hold all of a row. Already beyond γ_c/2 E e^(2s) is due
    # to logits that no row of n has, and n·e^(−γ²) is no longer its n_eff.
    below, between, above = evidence.real.frozen
    off = max(abs(a - b) for a, b in zip(evidence.real.frozen, evidence.ideal.frozen, strict=True))
    return [
        core(
            f"the median of γ̂/γ_c is between ½ and 1: {evidence.real.gamma:.2f}",
            0.5 < evidence.real.gamma < 1,
        ),
        core(
            f"more than half of the rows are: {between:.0%} (below {below:.0%}, above {above:.0%})",
            between > 0.5,
        ),
        letter("less than a quarter are on either side", max(below, above) < 0.25),
        instead(f"a Gaussian row's own γ̂ says the same, to {off:.2f} of a share", off < 0.03),
    ]


def given_the_largest(evidence: HeadEvidence) -> list[Finding]:
    """Judge the law given the largest logit, with the constants of heads from other texts."""
    # Whoever knows s_max knows much of a row's S. So the exact law, which is not given it, stands
    # beside this one, and Gaussian rows, for which it holds by construction, are the control.
    fit, plain, ideal, exact = (
        evidence.fitted,
        evidence.real.given,
        evidence.ideal.given,
        evidence.real.exact,
    )
    return [
        core(
            f"on texts held back the median of S over it is within 2 % of 1: {fit.ratio:.3f} "
            f"(exact law {exact.ratio:.3f})",
            abs(np.log(fit.ratio)) < np.log(1.02),
        ),
        core(
            f"it ranks rows with a correlation of 0.95 or more: {fit.rank:.3f} (exact law "
            f"{exact.rank:.2f})",
            fit.rank >= 0.95,
        ),
        core(
            f"{fit.within:.0%} of rows are within a quarter of it, 85 % or more (exact law "
            f"{exact.within:.0%})",
            fit.within >= 0.85,
        ),
        core(
            f"Gaussian rows, nothing fitted, have a median within 1 %: {ideal.ratio:.3f}",
            abs(np.log(ideal.ratio)) < np.log(1.01),
        ),
        letter(
            f"nothing needs to be fitted: the median is then {plain.ratio:.3f}, within 2 %, with "
            f"{plain.within:.0%} within a quarter",
            abs(np.log(plain.ratio)) < np.log(1.02),
        ),
        instead(f"without the constant it ranks rows at {plain.rank:.3f}", plain.rank > 0.9),
    ]


# What `HeadEvidence.numbers` gives, which every claim shows.
_LABELS = {
    "ratio": "median S/law",
    "rank": "rank correlation of S with it",
    "within": "share within a quarter of it",
    "near": f"share with the largest logit within {NEAR} tokens",
    "zeta": "median ζ of the largest logit",
    "top": "rank correlation of S/exact law with ζ",
    "lag": "correlation of logits one key apart",
    "gamma": "median γ̂/γ_c",
    "below": "share γ̂/γ_c < ½",
    "between": "share ½ < γ̂/γ_c < 1",
    "above": "share γ̂/γ_c > 1",
    "explained": "variance that profile and bias explain",
}
_claim = partial(
    claim_on_evidence,
    source="this project's law of rows of finite length, on real heads",
    labels=_LABELS,
)
_ROWS = "Rows of the second half of the text, without the first token."
_PARTS = "s_ij = (row) + β_(i−j) + κ_j + ε_ij"

HEAD_CLAIMS: tuple[Claim, ...] = (
    _claim(
        key="largest-logit",
        statement="n, γ̂, the largest logit and one constant of the head give S of a real row.",
        formula="n S² = [1 + (n−1) r₁]²/[1 + (n−1) r₂], r_k = R(kγ − ζ)/R(−ζ), γ = κ_h γ̂",
        proof="The others are Gaussian below the largest. A law given the largest logit: no "
        "prediction from the spread alone.",
        find=given_the_largest,
    ),
    _claim(
        key="upper-tail",
        statement="Real rows are sparser than the exact law says because of their upper tail.",
        formula="S/S_exact with the largest logits of real and Gaussian rows exchanged",
        proof=_ROWS,
        find=upper_tail,
    ),
    _claim(
        key="recency",
        statement="The upper tail comes from the nearest tokens.",
        formula=f"S/S_exact of the row without its {NEAREST} nearest keys",
        proof=_ROWS,
        find=recency,
    ),
    _claim(
        key="content",
        statement="Without distance profile and key bias real rows follow the exact law.",
        formula=_PARTS,
        proof="β from other texts, κ from later queries: neither has seen the row.",
        find=content,
    ),
    _claim(
        key="dependence",
        statement="That neighbouring keys have similar logits plays no part.",
        formula="S(s_1 … s_n) is symmetric",
        proof="Gaussian rows of the same n, γ̂ and correlation from key to key.",
        find=dependence,
    ),
    _claim(
        key="between-freezings",
        statement="Real rows attend to more than n·e^(−γ²), and not yet to a few keys alone.",
        formula="½ < γ̂/γ_c < 1, γ_c = √(2 ln n)",
        proof="Below ½ n_eff ≈ n e^(−γ²); above 1 a few keys have all of the mass.",
        find=freezings,
    ),
)


def judge_heads(data: xarray.Dataset) -> list[dict[str, Any]]:
    """Judge every claim on heads.

    Args:
        data: a dataset of `experiments.head_parts.measure_heads`.

    Returns:
        Records as those of `sparsity.claims`.
    """
    evidence = HeadEvidence.of(data)
    return [claim.record(evidence) for claim in HEAD_CLAIMS]
