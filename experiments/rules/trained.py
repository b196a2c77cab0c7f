"""Claims on what small models learn, judged by the trained ones: recall, sinks, temperature."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import partial
from typing import Any

from experiments import recorded
from experiments.recorded import interval
from sparsity.claims_ledger.findings import Judged, core, instead, letter, listed
from sparsity.claims_ledger.judging import Claim

_LINEAR = ("identity", "elu+1 features")
_LAW, _STATE = "the needle law", "the size of the state, d"


def focus(table: Mapping[str, Any], seed: int) -> Judged:
    """Find whether kernels that focus recall more, and whether focus or the state explains it."""
    rows, ranks = table["at_most_pairs"], table["ranks"]
    of = {name: [row for row in rows if row["map"] == name] for name in _LINEAR}
    small = [row for name in _LINEAR for row in of[name] if row["dim"] <= 16]
    best = max(small, key=lambda row: row["accuracy"])
    law, few_keys, state, state_of_pairs, rival = (
        ranks[name]
        for name in (
            *(_LAW, "few keys attended to, −n_eff", _STATE, "d over P"),
            "afterwards: can it focus? then d",
        )
    )
    ahead, among = table["law_ahead_of"][_STATE], table["among_focusing"]
    beats, sizes = table["ahead_at_equal_size"]
    larger = [row["accuracy"] for row in of["identity"]]
    findings = [
        core(
            f"in this task, of one head: with d ≥ 16, {table['recalling']} of the "
            f"{table['focusing']} cells whose kernel can focus recall 0.95 or more; the two linear "
            "ones recall at most "
            f"{best['accuracy']:.2f} ± {best['spread']:.2f} of P = 256 pairs at d ≤ 16",
            table["recalling"] >= 0.9 * table["focusing"] and best["accuracy"] < 0.5,
        ),
        core(
            "neither d nor d/P ranks the accuracies better than the needle law at the measured "
            f"margin and γ̂, which was to refute the prediction: over {table['cells']} cells ρ is "
            f"{interval(law)}, of d {interval(state)}, of d/P {interval(state_of_pairs)} "
            "(intervals over maps)",
            law[0] > max(state[0], state_of_pairs[0]),
        ),
        core(
            "controls: the law of other cells ranks nothing, ρ = "
            f"{interval(ranks['control: the law of other cells'])}, and without the needle’s "
            f"weight {table['without_needle']:.3f} are recalled, by chance {table['chance']:.3f}",
            ranks["control: the law of other cells"][1] < 0
            and table["without_needle"] < 1.2 * table["chance"],
        ),
        letter(
            "the law ranks them better than d by more than twelve maps leave to chance: ρ less "
            f"that of d, over the same draws of maps, is {interval(ahead)}",
            ahead[1] > 0,
        ),
        letter(
            "the number of keys attended to, the needle among them, says it alone: ρ of −n_eff is "
            f"{interval(few_keys)}, its interval apart from that of d",
            few_keys[1] > state[2],
        ),
        instead(
            "looked at after the results: a cruder rule, can it focus, then d, ranks them with "
            f"{interval(rival)}; among the ten maps that can focus the law has "
            f"{interval(among[_LAW])} and d {interval(among[_STATE])}; "
            f"{table['recalling_all']} of {table['cells']} accuracies are exactly 1",
            rival[0] > law[0],
        ),
        instead(
            "looked at after the results: with P and d the same the worst of the maps that can "
            f"focus recalls more than the better linear one in {beats} of {sizes} cases",
            beats > sizes / 2,
        ),
        instead(
            "what cannot focus recalls more with a larger state: identity "
            f"{listed(larger, '.2f')} at d = 8, 16, 32, 64 and P = 256",
            all(a < b for a, b in itertools.pairwise(larger)),
        ),
        instead(
            f"with nothing fitted the law is within 0.1 of the trained accuracy in {table['near']} "
            f"of {table['cells']} cells, and in {table['hard_near']} of the {table['hard']} below "
            f"0.95 (that of other cells, a control: {table['near_others']} and "
            f"{table['hard_near_others']})",
            table["near"] > table["near_others"] and table["hard_near"] > table["hard_near_others"],
        ),
    ]
    return findings, {}


def stronger(table: Mapping[str, Any], seed: int) -> Judged:
    """Find how the logit of a trained sink rises with the length, and what the law says of it."""
    heads = table["slopes"]
    rises, odds, at_mass = (
        [head[name] for head in heads] for name in ("slope", "slope_of_odds", "slope_at_mass")
    )
    lengths = f"n = {table['lengths'][0]} … {table['lengths'][-1]}"
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
    ]
    return findings, {}


def by_law(table: Mapping[str, Any], seed: int) -> Judged:
    """Find how far trained logits of sinks are off the exact law, by the prediction's own rule."""
    off = max(abs(head["off"]) for head in table["slopes"])
    findings = [
        core(
            "every trained logit is within 0.1 of the law at its mass and γ̂, beyond which the "
            f"prediction was to be refuted: off by {table['largest_off']:.3f} at most",
            table["largest_off"] <= 0.1,
        ),
        instead(f"on the average of a kind of head it is off by {off:.3f} at most", off < 0.05),
    ]
    return findings, {}


def needed(table: Mapping[str, Any], seed: int) -> Judged:
    """Find which heads answer at the trigger and are silent elsewhere."""
    of = {head["weights"]: head for head in table["heads"]}
    with_sink = of["softmax with a sink"]
    relu, sigmoid, sparsemax = (
        of[name] for name in ("relu/n", "sigmoid(s − ln n)", "sparsemax, BOS")
    )
    low, high = table["no_sink_range"]
    least, usual, most = table["leak_without_first"]
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
            f"{table['relu_first_mass']:.1g} of the weight and {table['sigmoid_first_share']:.2f} "
            "times its share",
            table["relu_first_mass"] < 1e-3 and table["sigmoid_first_share"] < 1.1,
        ),
        instead(
            "the sink taken away after training, a softmax head puts out "
            f"{least:.2f} to {most:.2f} where it is to be silent, {usual:.2f} in the median",
            least > 0.5,
        ),
        instead(
            "sparsemax with BOS solves it up to n = 32, with "
            f"{table['sparsemax_error_to_32']:.1g} wrong, and did not learn it at 128: "
            f"{sparsemax['error']:.2f}",
            table["sparsemax_error_to_32"] < 1e-3 and sparsemax["error"] > 0.5,
        ),
    ]
    return findings, {}


_PLAIN, _LOG_N, _LIKE_N = "as trained", "log-n", "constant n_eff, bounded"
_LARGEST, _INVERSE = "largest score", "control: its inverse"


def _by_rule(table: Mapping[str, Any], weights: str = "exp") -> dict[str, Mapping[str, Any]]:
    """Return what was read with some weights, by the rule."""
    return {row["rule"]: row for row in table["read"] if row["weights"] == weights}


def disperses(table: Mapping[str, Any], seed: int) -> Judged:
    """Find how the keys attended to grow in longer rows, and what becomes of the answers."""
    of, powers = _by_rule(table), table["powers"]
    plain, largest, inverse, linear = (of[x] for x in (_PLAIN, _LARGEST, _INVERSE, _LIKE_N))
    n_eff, accuracy = plain["n_eff"], plain["accuracy"]
    findings = [
        core(
            f"in this task one softmax head trained with {table['trained']} items attends to "
            f"{n_eff[0]:.2f} of them, and to {n_eff[-1]:.0f} of {table['lengths'][-1]:,}: n_eff "
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
            f"n/{table['trained']}: n_eff {listed(linear['n_eff'], '.3g')}",
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
    return findings, {}


def log_n(table: Mapping[str, Any], seed: int) -> Judged:
    """Find what a factor that grows like ln n gains, and what it does not keep."""
    of = _by_rule(table)
    plain, scaled, linear, largest = (of[x] for x in (_PLAIN, _LOG_N, _LIKE_N, _LARGEST))
    longer = table["lengths"][1:]
    gain = [b - a for a, b in zip(plain["accuracy"], scaled["accuracy"], strict=True)][1:]
    behind = [a - b for a, b in zip(largest["accuracy"], linear["accuracy"], strict=True)]
    start, last = linear["n_eff"][0] - 1, linear["n_eff"][-1] - 1
    findings = [
        core(
            f"in this task, with scores times ln n/ln {table['trained']}, one head trained with "
            f"{table['trained']} items reads out more rows right than without, by means of seeds: "
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
            f"is ahead in {table['seeds_log_n_ahead']} of {table['seeds']} seeds",
            max(behind) < 0.01,
        ),
    ]
    return findings, {}


CLAIMS: tuple[Claim, ...] = (
    Claim(
        key="focus-decides-recall",
        source="Su Jianlin (2023-12-12), kexue.fm/archives/9889",
        statement="Linear attention falls behind softmax mainly because it cannot focus, and so "
        "finds the key that counts less surely.",
        formula="recall ≈ P(the needle’s value wins), by SNR = odds(needle) √n_eff of the others",
        proof="",
        judge=focus,
        routes=partial(recorded.numbers, "recall"),
    ),
    Claim(
        key="trained-sink-grows",
        source="Barbero et al. (2025), Why do LLMs attend to the first token?, arXiv 2504.02732",
        statement="Heads that train in longer rows learn a stronger sink.",
        formula="b − β̂ = ln n + γ̂²/2 + ln(m/(1 − m)) for γ̂² ≪ ln n",
        proof="",
        judge=stronger,
        routes=partial(recorded.numbers, "sinks"),
    ),
    Claim(
        key="trained-sink-law",
        source="experiments/predictions/sinks.md",
        statement="A trained head’s sink has the logit that the exact law gives it at its mass and "
        "at the spread of the other scores, to 0.1.",
        formula="b − β̂ = ln n + γ̂²/2 + ln(m/(1 − m)) for γ̂² ≪ ln n",
        proof="",
        judge=by_law,
        routes=partial(recorded.numbers, "sinks"),
    ),
    Claim(
        key="softmax-needs-a-sink",
        source="Ran-Milo (2026), Attention sinks are provably necessary in softmax transformers, "
        "arXiv 2603.11487",
        statement="In the trigger task, to answer at a trigger and to be silent elsewhere, one "
        "trained softmax head needs a sink; one whose weights are not normalised needs none.",
        formula="Σ_j p_j = 1",
        proof="",
        judge=needed,
        routes=partial(recorded.numbers, "sinks"),
    ),
    Claim(
        key="softmax-disperses",
        source="Veličković et al. (2024), softmax is not enough, arXiv 2410.01104",
        statement="A head that has learned to find the largest item must disperse as the number of "
        "items grows beyond those it was trained with.",
        formula="p_j = Θ(1/n) for bounded scores",
        proof="",
        judge=disperses,
        routes=partial(recorded.numbers, "temperature"),
    ),
    Claim(
        key="log-n-extrapolates",
        source="Su Jianlin (2021), kexue.fm/archives/8823",
        statement="With scores scaled by ln n the entropy of attention hardly depends on the "
        "length, and a model generalises better to longer rows than it was trained on.",
        formula="softmax((ln n / ln n₀) q·k/√d)",
        proof="",
        judge=log_n,
        routes=partial(recorded.numbers, "temperature"),
    ),
)
