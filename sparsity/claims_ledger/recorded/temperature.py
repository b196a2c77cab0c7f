"""Trained temperature: heads read rows far longer than those that they were trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparsity.claims_ledger.findings import (
    TRAINED,
    Judged,
    Outcome,
    Recorded,
    core,
    instead,
    interval,
    letter,
    listed,
    nothing_computed,
    read_numbers,
)
from sparsity.claims_ledger.judging import Claim

TEMPERATURE = Recorded(
    name="temperature",
    basis=TRAINED,
    settings="One head finds the largest of n numbers, trained with n = 16 and read with 16 to "
    "16,384: softmax, entmax-1.5 and sparsemax as trained, softmax under rules of temperature; "
    "512 rows each",
    runs=3,
    predictions=10,
    failed=(
        "under n/16 n_eff stays within a tenth",
        "rules in ln n have an n_eff above 100 there",
        "as trained n_eff of sparsemax grows like n^0.5, within the interval of its power",
    ),
    numbers=read_numbers("temperature"),
)
_PLAIN, _LOG_N, _LINEAR = "as trained", "log-n", "constant n_eff, bounded"
_LARGEST, _INVERSE = "largest score", "control: its inverse"


def _by_rule(found: Mapping[str, Any], weights: str = "exp") -> dict[str, Mapping[str, Any]]:
    """Return what was read with some weights, by the rule."""
    return {row["rule"]: row for row in found["read"] if row["weights"] == weights}


def _shown(found: Mapping[str, Any], *rules: str) -> dict[str, Any]:
    """Return the numbers of some rules for a table: a row a rule and length."""
    rows = [row for row in found["read"] if row["rule"] in rules]
    return {
        "reading": [
            {
                **{name: row[name] for name in ("weights", "rule")},
                "n": n,
                **{name: row[name][i] for name in ("accuracy", "spread", "n_eff")},
            }
            for row in rows
            for i, n in enumerate(found["lengths"])
        ]
    }


def disperses(found: Mapping[str, Any]) -> Judged:
    """Find how the keys attended to grow in longer rows, and what becomes of the answers."""
    of, powers = _by_rule(found), found["powers"]
    plain, largest, inverse, linear = (of[x] for x in (_PLAIN, _LARGEST, _INVERSE, _LINEAR))
    n_eff, accuracy = plain["n_eff"], plain["accuracy"]
    findings = [
        core(
            f"in this task one softmax head trained with {found['trained']} items attends to "
            f"{n_eff[0]:.2f} of them, and to {n_eff[-1]:.0f} of {found['lengths'][-1]:,}: n_eff "
            "grows like "
            f"n to the power of {interval(powers['exp'])} over the longer half",
            powers["exp"][1] > 0.9 and n_eff[-1] > 100 * n_eff[0],
        ),
        core(
            f"and reads out {accuracy[-1]:.2f} ± {plain['spread'][-1]:.2f} of the rows right in "
            f"place of {accuracy[0]:.2f}",
            accuracy[0] > 0.95 and accuracy[-1] < 0.3,
        ),
        core(
            f"control: a head that is made flatter reads out {inverse['accuracy'][-1]:.2f}, by "
            "chance 0.10",
            abs(inverse["accuracy"][-1] - 0.1) < 0.03,
        ),
        letter(
            "it must at any temperature, also with its scores times "
            f"n/{found['trained']}: n_eff {listed(linear['n_eff'], '.3g')}",
            linear["n_eff"][-1] > linear["n_eff"][0],
        ),
        instead(
            "sparsemax and entmax-1.5 disperse less as trained, with powers of "
            f"{interval(powers['sparsemax'])} and {interval(powers['entmax1.5'])} (½ and ⅔ were "
            "predicted)",
            powers["sparsemax"][2] < powers["entmax1.5"][1] and powers["entmax1.5"][2] < 0.8,
        ),
        instead(
            "dispersion is not all that is lost: the largest score alone reads out "
            f"{largest['accuracy'][-1]:.2f} ± {largest['spread'][-1]:.2f} of the longest rows",
            largest["accuracy"][-1] < 0.5,
        ),
    ]
    return findings, _shown(found, _PLAIN, _LINEAR, _LARGEST, _INVERSE)


def log_n(found: Mapping[str, Any]) -> Judged:
    """Find what a factor that grows like ln n gains, and what it does not keep."""
    of = _by_rule(found)
    plain, scaled, linear, largest = (of[x] for x in (_PLAIN, _LOG_N, _LINEAR, _LARGEST))
    longer = found["lengths"][1:]
    gain = [b - a for a, b in zip(plain["accuracy"], scaled["accuracy"], strict=True)][1:]
    behind = [a - b for a, b in zip(largest["accuracy"], linear["accuracy"], strict=True)]
    start, last = linear["n_eff"][0] - 1, linear["n_eff"][-1] - 1
    findings = [
        core(
            f"in this task, with scores times ln n/ln {found['trained']}, one head trained with "
            f"{found['trained']} items reads out more rows right than without, by means of seeds: "
            f"{listed(scaled['accuracy'][1:], '.2f')} for {listed(plain['accuracy'][1:], '.2f')} "
            f"at n = {listed(longer, ',')}",
            min(gain) > 0,
        ),
        letter(
            "it then attends to as many items at every length, to a tenth: n_eff "
            + listed(scaled["n_eff"], ".3g"),
            max(abs(x / scaled["n_eff"][0] - 1) for x in scaled["n_eff"]) <= 0.1,
        ),
        instead(
            "a factor that grows like n, which bounded scores were predicted to need, does not "
            f"keep n_eff to a tenth either, as was to refute the prediction: n_eff − 1 falls from "
            f"{start:.3f} to {last:.3f}",
            last < start / 2 and start - last > 0.1 * (1 + start),
        ),
        instead(
            "with n_eff so near 1 that factor reads out as many rows as the largest score alone, "
            f"to 0.01; of the longest {linear['accuracy'][-1]:.2f} ± {linear['spread'][-1]:.2f}, "
            f"where log-n reads out {scaled['accuracy'][-1]:.2f} ± {scaled['spread'][-1]:.2f} and "
            f"is ahead in {found['seeds_log_n_ahead']} of {TEMPERATURE.runs} seeds",
            max(behind) < 0.01,
        ),
    ]
    return findings, _shown(found, _PLAIN, _LOG_N, _LINEAR, _LARGEST)


_LABELS = {
    "reading": "Rows read out right, beyond the trained length",
    "n": "items n",
    "accuracy": "read out right",
    "spread": "standard deviation of seeds",
    "n_eff": "n_eff",
}
CLAIMS: tuple[Claim, ...] = (
    Claim(
        key="softmax-disperses",
        source="Veličković et al. (2024), softmax is not enough, arXiv 2410.01104",
        statement="A head that has learned to find the largest item must disperse as the number of "
        "items grows beyond those it was trained with.",
        formula="p_j = Θ(1/n) for bounded scores",
        proof="",
        judge=nothing_computed,
        recorded=(Outcome(TEMPERATURE, disperses),),
        labels=_LABELS,
        rough=("n_eff",),
    ),
    Claim(
        key="log-n-extrapolates",
        source="Su Jianlin (2021), kexue.fm/archives/8823",
        statement="With scores scaled by ln n the entropy of attention hardly depends on the "
        "length, and a model generalises better to longer rows than it was trained on.",
        formula="softmax((ln n / ln n₀) q·k/√d)",
        proof="",
        judge=nothing_computed,
        recorded=(Outcome(TEMPERATURE, log_n),),
        labels=_LABELS,
        rough=("n_eff",),
    ),
)
