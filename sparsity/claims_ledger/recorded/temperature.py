"""Trained temperature: heads read rows far longer than those that they were trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparsity.claims_ledger.findings import TRAINED, Judged, core, instead, letter, listed
from sparsity.claims_ledger.judging import Claim
from sparsity.claims_ledger.recording import Outcome, Recorded, interval, nothing_computed

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
    numbers={
        "trained": 16,
        "lengths": [16, 64, 256, 1024, 4096, 16384],
        "read": [
            {
                "weights": "exp",
                "rule": "as trained",
                "accuracy": [0.9961, 0.9759, 0.7786, 0.4062, 0.2103, 0.1543],
                "spread": [0.0, 0.00813, 0.02765, 0.01034, 0.0207, 0.01033],
                "n_eff": [1.253, 1.943, 5.322, 19.31, 76.99, 306.4],
            },
            {
                "weights": "exp",
                "rule": "log-n",
                "accuracy": [0.9961, 0.9811, 0.9069, 0.6393, 0.3086, 0.1901],
                "spread": [0.0, 0.006858, 0.009835, 0.05795, 0.01172, 0.01804],
                "n_eff": [1.253, 1.616, 3.052, 7.937, 25.44, 84.92],
            },
            {
                "weights": "exp",
                "rule": "floor-log",
                "accuracy": [0.9961, 0.9785, 0.8353, 0.4915, 0.2513, 0.1732],
                "spread": [0.0, 0.006767, 0.01751, 0.02426, 0.0233, 0.02289],
                "n_eff": [1.253, 1.822, 4.321, 13.72, 49.46, 180.2],
            },
            {
                "weights": "exp",
                "rule": "constant n_eff, Gaussian",
                "accuracy": [0.9961, 0.9805, 0.8789, 0.5703, 0.2741, 0.1836],
                "spread": [0.0, 0.00586, 0.01525, 0.03711, 0.01814, 0.0155],
                "n_eff": [1.253, 1.686, 3.531, 10.32, 36.07, 129.8],
            },
            {
                "weights": "exp",
                "rule": "constant n_eff, bounded",
                "accuracy": [0.9961, 0.985, 0.9479, 0.7917, 0.487, 0.2318],
                "spread": [0.0, 0.004065, 0.02142, 0.03157, 0.09057, 0.1121],
                "n_eff": [1.253, 1.222, 1.224, 1.175, 1.131, 1.055],
            },
            {
                "weights": "exp",
                "rule": "control: its inverse",
                "accuracy": [0.9961, 0.7871, 0.2194, 0.1315, 0.1074, 0.1009],
                "spread": [0.0, 0.03251, 0.0299, 0.01466, 0.0155, 0.006858],
                "n_eff": [1.253, 5.236, 76.65, 836.0, 4037.0, 16370.0],
            },
            {
                "weights": "exp",
                "rule": "largest score",
                "accuracy": [0.9974, 0.9857, 0.9486, 0.791, 0.487, 0.2318],
                "spread": [0.001132, 0.004913, 0.01897, 0.0307, 0.09057, 0.1121],
                "n_eff": [1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
            },
            {
                "weights": "sparsemax",
                "rule": "as trained",
                "accuracy": [0.9954, 0.9779, 0.8867, 0.6224, 0.3392, 0.1914],
                "spread": [0.002257, 0.002257, 0.01188, 0.02519, 0.01241, 0.01924],
                "n_eff": [1.19, 1.603, 2.772, 5.09, 9.649, 16.63],
            },
            {
                "weights": "entmax1.5",
                "rule": "as trained",
                "accuracy": [0.9948, 0.9772, 0.8398, 0.5384, 0.2832, 0.1699],
                "spread": [0.001126, 0.001132, 0.007042, 0.02106, 0.008515, 0.01188],
                "n_eff": [1.216, 1.718, 3.447, 7.947, 19.39, 46.13],
            },
        ],
        "powers": {
            "exp": [0.9973, 0.9327, 1.062],
            "sparsemax": [0.4269, 0.3927, 0.4611],
            "entmax1.5": [0.6343, 0.5884, 0.6803],
        },
        "seeds_log_n_ahead": 1,
    },
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
