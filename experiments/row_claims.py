"""Claims on the attention of a real model, and their judges: from a measurement to findings.

Every threshold stands in the words of its finding and says how far apart counts as far. Rows are
compared with Gaussian rows of the same n and γ̂, or one context with another, where that can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.row_evidence import Evidence, LawFit, ModelRun, claim_on_evidence
from sparsity.claims_ledger.findings import Finding, core, instead, letter
from sparsity.claims_ledger.judging import Claim

if TYPE_CHECKING:
    import xarray

_SMALL_LOGIT = 0.25  # a change of a logit or of log odds below which its sign says nothing


def _list(values: Any, form: str = ".2f") -> str:
    return ", ".join(f"{value:{form}}".replace("-", "−") for value in values)


def _percents(values: Any) -> str:
    return ", ".join(f"{100 * value:.0f} %" for value in values)


def _named(run: ModelRun) -> str:
    how = {True: "with BOS, ", False: "without BOS, ", None: ""}[run.bos]
    return f"{how}T = {', '.join(map(str, run.T))}"


def _of_fits(fits: Sequence[LawFit], name: str) -> np.ndarray:
    return np.array([getattr(fit, name) for fit in fits])


def exact_law(evidence: Evidence) -> list[Finding]:
    """Compare both laws on the same rows, beside Gaussian rows of the same lengths and spreads."""
    findings = []
    for run in evidence.runs:
        off, exact_off = (_of_fits(run.real, "off_limit"), _of_fits(run.real, "off_exact"))
        # Medians over rows at each context length; without sinks, as the laws know of none.
        limit = run.table["ratio_limit_without_sinks"]
        # Each a pair: of real rows, and of Gaussian ones.
        ratio, within, rank, other = (
            (_of_fits(run.real, name), _of_fits(run.ideal, name))
            for name in ("ratio", "within", "rank_exact", "rank_limit")
        )
        findings += [
            core(
                "in the median row |log S/law| is less than half as large with the exact law as "
                f"with the limit law: {_list(exact_off)} against {_list(off, '.3g')} "
                f"({_named(run)})",
                np.all(2 * exact_off < off),
            ),
            core(
                f"the median of S over the limit law is {_list(limit, '.3g')}, over the exact law "
                f"{_list(ratio[0])}",
                np.all(np.abs(np.log(limit)) > 2 * np.abs(np.log(ratio[0]))),
            ),
            letter(
                "the latter is that of Gaussian rows of the same n and γ̂, to 10 %: they have "
                f"{_list(ratio[1])} ({_named(run)})",
                np.all(np.abs(np.log(ratio[0] / ratio[1])) < 0.1),
            ),
            letter(
                f"rows scatter about it no more than Gaussian rows: {_percents(within[0])} are "
                f"within a quarter of it, and {_percents(within[1])} of those ({_named(run)})",
                np.all(within[0] > within[1] - 0.05),
            ),
            letter(
                f"it ranks rows as it does Gaussian rows: {_list(rank[0])}, and {_list(rank[1])} "
                f"for those ({_named(run)})",
                np.all(rank[0] > rank[1] - 0.05),
            ),
            letter(
                "the logits are Gaussian: most rows pass Lilliefors' test at 1 % in nine of ten "
                f"heads (they do in {100 * (1 - run.departs):.0f} %, {_named(run)})",
                run.departs < 0.1,
            ),
            instead(
                "both laws rank rows much alike, since both fall with γ̂: rank correlation with the "
                f"limit law {_list(other[0])}, with the exact law {_list(rank[0])} ({_named(run)})",
                np.all(np.abs(other[0] - rank[0]) < 0.05),
            ),
        ]
    return findings


def first_token(evidence: Evidence) -> list[Finding]:
    """Judge sink rates with and without BOS, beside uniform attention."""
    findings = []
    for run in evidence.runs:
        rate = run.table["sink_rate_0.3"]
        findings.append(
            # Uniform attention gives it H_T/T = 0.07 at T = 64, and less in longer texts.
            core(
                f"it takes more than 0.3 of the attention in a quarter of the heads or more: "
                f"{_percents(rate)} ({_named(run)}); uniform attention has a rate of 0",
                np.all(rate > 0.25),
            )
        )
        findings += _other_sinks(run)
    if len(evidence.runs) == 2:
        without, with_bos = (run.table["sink_rate_0.3"] for run in evidence.runs)
        findings += [
            letter(
                "BOS in its place changes the rate by less than 0.1 at every length "
                f"(by {_list(with_bos - without, '+.2f')})",
                np.all(np.abs(with_bos - without) < 0.1),
            ),
            instead("BOS makes it a stronger sink", np.all(with_bos > without)),
        ]
    strict = np.concatenate([run.table["sink_rate_0.8"] for run in evidence.runs])
    findings.append(
        instead(
            "the rate hangs on the threshold: at ε = 0.8 it is at most half of that at 0.3 "
            f"(between {100 * strict.min():.0f} and {100 * strict.max():.0f} %)",
            all(
                np.all(2 * run.table["sink_rate_0.8"] <= run.table["sink_rate_0.3"])
                for run in evidence.runs
            ),
        )
    )
    return findings


def _other_sinks(run: ModelRun) -> list[Finding]:
    """Return findings about other keys than the first, and about the rows of the second half."""
    # "any": any key of a head in place of the first. "late": the rows T/2 < n ≤ T alone, as early
    # rows give the first token much for want of others. "sinks": all sinks of a head together.
    rate, some, late, joint = (
        run.table[f"{name}_rate_0.3"] for name in ("sink", "any", "late", "sinks")
    )
    return [
        letter(
            "no other key is one in a tenth of the heads or more: with any key in its place the "
            f"rate is {_percents(some)} ({_named(run)})",
            np.all(some - rate < 0.1),
        ),
        instead(
            "several keys share a sink: all that take more than 0.1 have more than 0.3 together "
            f"in {_percents(joint)} of the heads, the first token alone in {_percents(late)}, over "
            "the rows T/2 < n ≤ T",
            np.all(joint > late + 0.1),
        ),
        instead(
            "over these rows the rate of the first token alone changes with T by less than half "
            f"of what the published one does: {_percents(late)}",
            np.ptp(late) < np.ptp(rate) / 2,
        ),
    ]


def longer_context(evidence: Evidence) -> list[Finding]:
    """Compare the logit of sinks with that which would keep their mass, and the mass they keep."""
    findings = []
    for run in evidence.runs:
        sinks = run.sinks
        # Both are in logits, 0 at the shortest T. Beside Gaussian others they would be equal: what
        # a sink's logit rose too little, the log odds of its mass lose.
        more, change = sinks.short[1:], sinks.change[1:]
        rates = np.stack([run.table["sink_rate_0.3"], run.table["sink_rate_0.8"]])
        # Without heads that have sinks all columns are empty, and nothing holds.
        some, size = sinks.heads > 0, np.maximum(abs(more), abs(change))
        findings += [
            core(
                f"the logit that keeps the mass of the sinks rises with n: {_list(sinks.needed)} "
                f"above the mean of Gaussian others ({sinks.heads} heads with sinks, "
                f"{_named(run)})",
                some and np.all(np.diff(sinks.needed) > 0),
            ),
            core(
                f"the mass of real sinks goes with it: their logit is {_list(sinks.logit)}, which "
                f"since the first T rose by {_list(more, '+.2f')} more than that, and the log odds "
                f"of their mass {_list(sinks.mass)} changed by {_list(change, '+.2f')}: of the "
                f"same sign, or both less than {_SMALL_LOGIT}",
                some and np.all((more * change > 0) | (size < _SMALL_LOGIT)),
            ),
            instead(
                "the change has the size that the law says, to half of it",
                some and np.all(abs(change - more) < size / 2),
            ),
            instead(
                "the published sink rate of one and the same model falls with the context, as it "
                "averages in the early rows: "
                f"{_percents(rates[0])} at ε = 0.3, {_percents(rates[1])} at 0.8 ({_named(run)})",
                np.all(np.diff(rates, axis=1) < 0),
            ),
        ]
    return findings


def dropping(evidence: Evidence) -> list[Finding]:
    """Compare n_eff with the sinks and without them."""
    findings = []
    for run in evidence.runs:
        gain = run.table["n_eff_without_sinks"] / run.table["n_eff"]
        findings.append(
            core(
                "without its sinks the median row attends to more tokens: "
                f"{_list(run.table['n_eff_without_sinks'], '.1f')} in place of "
                f"{_list(run.table['n_eff'], '.1f')} ({_named(run)})",
                np.all(gain > 1.1),
            )
        )
    worst = max(run.identity for run in evidence.runs)
    findings.append(
        instead(
            f"n_eff counted over the row is that of the identity in every row, to {worst:.0e}",
            worst < 1e-3,
        )
    )
    return findings


def spread(evidence: Evidence) -> list[Finding]:
    """Compare the growth of γ̂ with that of ln n and of √(ln n)."""
    findings = []
    for run in evidence.runs:
        gamma = run.table["gamma_without_sinks"]
        # ln n would keep n_eff nearly the same; √(ln n) is what a limit law with n·S² fixed needs.
        log, root = gamma / np.log(run.n), gamma / np.sqrt(np.log(run.n))
        findings += [
            core(f"γ̂ rises with n: {_list(gamma)} ({_named(run)})", np.all(np.diff(gamma) > 0)),
            core(
                f"γ̂/ln n is the same at every length, to 10 %: {_list(log)}",
                np.ptp(log) < 0.1 * log.mean(),
            ),
            instead(
                f"γ̂/√(ln n) is, to 10 %: {_list(root)}. At 1 the limit law has n·S² = 1; the "
                f"median row attends to {_list(run.table['n_eff_without_sinks'], '.1f')} tokens",
                np.ptp(root) < 0.1 * root.mean(),
            ),
        ]
    return findings


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
        find=exact_law,
    ),
    _claim(
        key="first-token-is-a-sink",
        source=_GU,
        statement="The first token is an attention sink, whether or not it is BOS.",
        formula="Sink^ε = mean over texts, layers and heads of 1[α₁ > ε], α₁ = (1/T) Σ_t A_(t,1)",
        proof="",
        find=first_token,
    ),
    _claim(
        key="sinks-against-context",
        source=_BARBERO,
        statement="A longer context needs a stronger sink.",
        formula="E[e^b/(e^b + Σ_j e^(γ z_j))] = m; b = ln n + γ²/2 + ln m/(1 − m) for γ² ≪ ln n",
        proof="Solved for b by quadrature, at the median n and γ̂ of heads that start as sinks.",
        find=longer_context,
    ),
    _claim(
        key="dropping-the-sink",
        source="this project's sums over rows",
        statement="The sink hides how many tokens a head attends to.",
        formula="1/n_eff = m² + (1 − m)²/n_eff′, with mass m on one sink and n_eff′ without it",
        proof="Σp² splits into the sink's and the others'.",
        find=dropping,
    ),
    _claim(
        key="spread-against-length",
        source="log-n scaling: Su, kexue.fm/archives/8823; Nakanishi (2025), arXiv 2501.19399",
        statement="The spread γ̂ of a trained model's logits grows like ln n.",
        formula="γ = s·ln n, which would keep n_eff nearly the same",
        proof=_NO_SINK,
        find=spread,
    ),
)


def judge(data: xarray.Dataset) -> list[dict[str, Any]]:
    """Judge every claim on a measurement.

    Args:
        data: of `sparsity measure`, with and without BOS where the model has one, at several
            context lengths.

    Returns:
        Records as those of `sparsity.claims`.
    """
    evidence = Evidence.of(data)
    return [claim.record(evidence) for claim in CLAIMS]
