"""Trained sinks: how strong a sink is learned in longer rows, and which heads need one."""

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

SINKS = Recorded(
    name="sinks",
    basis=TRAINED,
    settings="One head returns the mean of n = 8 to 256 tokens of noise at a trigger and nothing "
    "at any other query; softmax with BOS or a sink logit and four other heads, 36 cells, "
    "108 models",
    runs=3,
    predictions=10,
    failed=(
        "the law gives every trained logit to 0.1 at its mass",
        "sparsemax with BOS leaks less than 10⁻³",
        "without its sink a head leaks 0.5 to 1.5",
    ),
    numbers=read_numbers("sinks"),
)


def stronger(found: Mapping[str, Any]) -> Judged:
    """Find how the logit of a trained sink rises with the length, and what the law says of it."""
    heads = found["slopes"]
    rises, odds, at_mass = (
        [head[name] for head in heads] for name in ("slope", "slope_of_odds", "slope_at_mass")
    )
    lengths = f"n = {found['lengths'][0]} … {found['lengths'][-1]}"
    findings = [
        core(
            "in this task the trained logit, above the mean score, rises with ln n in all "
            f"{len(heads)} kinds of head, {lengths}: slopes " + listed(map(interval, rises)),
            all(low > 0 for _, low, _ in rises),
        ),
        letter(
            "it rises like ln n, as would keep the mass of the sink: slopes of 1 ± 0.1",
            all(abs(slope - 1) <= 0.1 for slope, _, _ in rises),
        ),
        instead(
            "longer rows train less mass: the slopes of ln(m/(1 − m)) are "
            + listed((slope for slope, _, _ in odds), ".2f"),
            all(high < 0 for _, _, high in odds),
        ),
        instead(
            "at the mass that was trained it rises like ln n, which is nearly an identity and says "
            "that the other scores are as good as Gaussian: slopes of b − β̂ − ln(m/(1 − m)) "
            + listed(map(interval, at_mass)),
            all(abs(slope - 1) <= 0.1 for slope, _, _ in at_mass),
        ),
        instead(
            "at its mass and γ̂ the exact law gives the logit to "
            f"{max(abs(head['off']) for head in heads):.3f} on the average of a kind; to "
            f"{found['largest_off']:.3f} at most, more than the 0.1 that was to refute the "
            "prediction",
            max(abs(head["off"]) for head in heads) < 0.05 and found["largest_off"] > 0.1,
        ),
    ]
    shown = [
        {
            "weights": head["head"],
            **{name: interval(head[name]) for name in ("slope", "slope_of_odds", "slope_at_mass")},
            "off": head["off"],
            "off_spread": head["off_spread"],
        }
        for head in heads
    ]
    return findings, {"sink_slopes": shown}


def needed(found: Mapping[str, Any]) -> Judged:
    """Find which heads answer at the trigger and are silent elsewhere."""
    of = {head["weights"]: head for head in found["heads"]}
    with_sink = of["softmax with a sink"]
    relu, sigmoid, sparsemax = (
        of[name] for name in ("relu/n", "sigmoid(s − ln n)", "sparsemax, BOS")
    )
    low, high = found["no_sink_range"]
    least, usual, most = found["leak_without_first"]
    findings = [
        core(
            "in this task, of one head, softmax without a sink leaves a quarter of what is wanted "
            "at the trigger and puts out "
            f"a quarter elsewhere: {low:.3f} to {high:.3f} over lengths and seeds; with BOS or a "
            f"sink logit {with_sink['error']:.1g} and {with_sink['leak']:.1g} at most",
            low > 0.2 and high < 0.3 and max(with_sink["error"], with_sink["leak"]) < 1e-2,
        ),
        core(
            f"relu/n puts out {relu['leak']:.1g} elsewhere and sigmoid(s − ln n) "
            f"{sigmoid['leak']:.1g}, with {relu['error']:.1g} and {sigmoid['error']:.1g} wrong at "
            "the trigger",
            max(x[name] for x in (relu, sigmoid) for name in ("error", "leak")) < 1e-3,
        ),
        core(
            "neither has a sink: the first token takes "
            f"{found['relu_first_mass']:.1g} of the weight and {found['sigmoid_first_share']:.2f} "
            "times its share",
            found["relu_first_mass"] < 1e-3 and found["sigmoid_first_share"] < 1.1,
        ),
        instead(
            "the sink taken away after training, a softmax head puts out "
            f"{least:.2f} to {most:.2f} where it is to be silent, {usual:.2f} in the median",
            least > 0.5,
        ),
        instead(
            "sparsemax with BOS solves it up to n = 32, with "
            f"{found['sparsemax_error_to_32']:.1g} wrong, and did not learn it at 128: "
            f"{sparsemax['error']:.2f}",
            found["sparsemax_error_to_32"] < 1e-3 and sparsemax["error"] > 0.5,
        ),
    ]
    return findings, {"trigger_task": found["heads"]}


CLAIMS: tuple[Claim, ...] = (
    Claim(
        key="trained-sink-grows",
        source="Barbero et al. (2025), Why do LLMs attend to the first token?, arXiv 2504.02732",
        statement="Heads that train in longer rows learn a stronger sink.",
        formula="b − β̂ = ln n + γ̂²/2 + ln(m/(1 − m)) for γ̂² ≪ ln n",
        proof="",
        judge=nothing_computed,
        recorded=(Outcome(SINKS, stronger),),
        labels={
            "sink_slopes": "Slopes in ln n with 95 % intervals",
            "weights": "head",
            "slope": "of b − β̂",
            "slope_of_odds": "of ln(m/(1 − m))",
            "slope_at_mass": "of their difference",
            "off": "b − β̂ less the exact law’s, mean",
            "off_spread": "standard deviation",
        },
    ),
    Claim(
        key="softmax-needs-a-sink",
        source="Ran-Milo (2026), Attention sinks are provably necessary in softmax transformers, "
        "arXiv 2603.11487",
        statement="In the trigger task, to answer at a trigger and to be silent elsewhere, one "
        "trained softmax head needs a sink; one whose weights are not normalised needs none.",
        formula="Σ_j p_j = 1",
        proof="",
        judge=nothing_computed,
        recorded=(Outcome(SINKS, needed),),
        labels={
            "trigger_task": "Largest over lengths of the medians of seeds, of the square wanted",
            "weights": "weights",
            "error": "wrong at the trigger",
            "leak": "put out elsewhere",
        },
        rough=("error", "leak"),
    ),
)
