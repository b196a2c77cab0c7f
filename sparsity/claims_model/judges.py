"""Judges of the claims: from the numbers of a measurement to findings."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsity.claims_model.evidence import Evidence, Run
from sparsity.judging import Finding

__all__ = ["dropping", "exact_law", "first_token", "longer_context", "spread"]

Judged = tuple[list[Finding], dict[str, Any]]


def _list(values: Any, form: str = ".2f") -> str:
    return ", ".join(f"{value:{form}}" for value in values)


def _percents(values: Any) -> str:
    return ", ".join(f"{100 * value:.0f} %" for value in values)


def _named(run: Run) -> str:
    return f"{'with' if run.bos else 'without'} BOS, T = {', '.join(map(str, run.T))}"


def exact_law(evidence: Evidence, seed: int) -> Judged:
    """The two laws on the same rows."""
    findings = []
    for run in evidence.runs:
        limit, exact = run.table["ratio_limit_rest"], run.table["ratio_exact_rest"]
        nearer = run.off["limit"] / run.off["exact"]
        findings += [
            Finding(
                "core",
                "in the median row log S is nearer to the exact law than to the limit law, by a "
                f"factor of {_list(nearer, '.1f')} ({_named(run)})",
                np.all(nearer > 2),
            ),
            Finding(
                "core",
                f"the median of S over the limit law is {_list(limit)}, over the exact law "
                f"{_list(exact)}",
                np.all(np.abs(np.log(limit)) > 2 * np.abs(np.log(exact))),
            ),
            Finding(
                "letter",
                f"the latter stays within a quarter of 1 ({_named(run)})",
                np.all(np.abs(np.log(exact)) < np.log(1.25)),
            ),
        ]
    longest = evidence.runs[0]
    findings += [
        Finding(
            "letter",
            "it holds row by row: within a quarter in nine of ten rows "
            f"({_percents(longest.within)}, {_named(longest)})",
            np.all(longest.within > 0.9),
        ),
        Finding(
            "letter",
            "the logits are Gaussian: most rows pass Lilliefors' test at 1 % in nine of ten heads "
            f"(they do in {100 * (1 - longest.departs):.0f} %)",
            longest.departs < 0.1,
        ),
        Finding(
            "instead",
            "both laws rank rows much alike, since both fall with γ̂: rank correlations "
            f"{_list(longest.table['rank_limit_rest'])} and "
            f"{_list(longest.table['rank_exact_rest'])} ({_named(longest)})",
            np.all(
                np.abs(longest.table["rank_limit_rest"] - longest.table["rank_exact_rest"]) < 0.05
            ),
        ),
    ]
    numbers = evidence.numbers() | {
        "median |log(S/law)|": [
            {"bos": run.bos, "T": int(T), "limit": float(a), "exact": float(b), "within": float(w)}
            for run in evidence.runs
            for T, a, b, w in zip(run.T, *run.off.values(), run.within, strict=True)
        ]
    }
    return findings, numbers


def first_token(evidence: Evidence, seed: int) -> Judged:
    """Sink rates with and without BOS, beside uniform attention."""
    findings = []
    for run in evidence.runs:
        rate = run.table["sink_rate_0.3"]
        findings.append(
            Finding(
                "core",
                f"it takes more than 0.3 of the attention in a quarter of the heads or more: "
                f"{_percents(rate)} ({_named(run)}); uniform attention has a rate of 0",
                np.all(rate > 0.25),
            )
        )
    if len(evidence.runs) == 2:
        without, with_bos = (run.table["sink_rate_0.3"] for run in evidence.runs)
        findings += [
            Finding(
                "letter",
                "BOS in its place changes the rate by less than 0.1 at every length "
                f"(by {_list(with_bos - without, '+.2f')})",
                np.all(np.abs(with_bos - without) < 0.1),
            ),
            Finding("instead", "BOS makes it a stronger sink", np.all(with_bos > without)),
        ]
    strict = np.concatenate([run.table["sink_rate_0.8"] for run in evidence.runs])
    findings.append(
        Finding(
            "instead",
            "the rate hangs on the threshold: at ε = 0.8 it is at most half of that at 0.3 "
            f"(between {100 * strict.min():.0f} and {100 * strict.max():.0f} %)",
            all(
                np.all(2 * run.table["sink_rate_0.8"] <= run.table["sink_rate_0.3"])
                for run in evidence.runs
            ),
        )
    )
    return findings, evidence.numbers()


def longer_context(evidence: Evidence, seed: int) -> Judged:
    """The sink's logit against n, and what is left of its mass."""
    findings = []
    for run in evidence.runs:
        slope = np.diff(run.sink_logit[[0, -1]]) / np.diff(np.log(run.n[[0, -1]]))
        needed = np.diff(run.needed[[0, -1]]) / np.diff(np.log(run.n[[0, -1]]))
        rates = np.stack([run.table["sink_rate_0.3"], run.table["sink_rate_0.8"]])
        findings += [
            Finding(
                "core",
                f"the sink's logit rises with n, by {slope[0]:.2f} for each ln n: "
                f"{_list(run.sink_logit)} above the mean of the others ({_named(run)})",
                np.all(np.diff(run.sink_logit) > 0),
            ),
            Finding(
                "core",
                f"it rises less than ln n + γ̂²/2 does ({needed[0]:.2f} for each ln n), and its "
                f"mean mass falls: {_list(run.table['sink_mass'])}",
                slope[0] < needed[0] and np.all(np.diff(run.table["sink_mass"]) < 0),
            ),
            Finding(
                "instead",
                "so the sink rate of one and the same model falls with the context it is measured "
                f"at: {_percents(rates[0])} at ε = 0.3, {_percents(rates[1])} at 0.8",
                np.all(np.diff(rates, axis=1) < 0),
            ),
        ]
    return findings, evidence.numbers()


def dropping(evidence: Evidence, seed: int) -> Judged:
    """n_eff with the sink and without it."""
    findings = []
    for run in evidence.runs:
        gain = run.table["n_eff_rest"] / run.table["n_eff"]
        findings.append(
            Finding(
                "core",
                "without the first token the median row attends to more tokens: "
                f"{_list(run.table['n_eff_rest'], '.1f')} in place of "
                f"{_list(run.table['n_eff'], '.1f')} ({_named(run)})",
                np.all(gain > 1.1),
            )
        )
    worst = max(run.identity for run in evidence.runs)
    findings.append(
        Finding(
            "instead",
            f"the identity holds in every row, to {worst:.0e}",
            worst < 1e-3,
        )
    )
    return findings, evidence.numbers()


def spread(evidence: Evidence, seed: int) -> Judged:
    """γ̂ against ln n and √(ln n)."""
    findings = []
    for run in evidence.runs:
        gamma = run.table["gamma_rest"]
        log, root = gamma / np.log(run.n), gamma / np.sqrt(np.log(run.n))
        findings += [
            Finding(
                "core",
                f"γ̂ rises with n: {_list(gamma)} ({_named(run)})",
                np.all(np.diff(gamma) > 0),
            ),
            Finding(
                "core",
                f"γ̂/ln n is the same at every length, to 10 %: {_list(log)}",
                np.ptp(log) < 0.1 * log.mean(),
            ),
            Finding(
                "instead",
                f"γ̂/√(ln n) is, to 10 %: {_list(root)}. At 1 the limit law has n·S² = 1; the "
                f"median row attends to {_list(run.table['n_eff_rest'], '.1f')} tokens",
                np.ptp(root) < 0.1 * root.mean(),
            ),
        ]
    return findings, evidence.numbers()
