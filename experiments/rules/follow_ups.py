"""Claims judged by studies that go on where others ended: margins, steps, packing, derivatives.

What a prediction said would refute it is in the core of its claim: one that was refuted by its own
rule is refuted here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from experiments import recorded, sink_map
from experiments.margin import FLOOR, LARGEST, LOG_N, ODDS
from experiments.sink_steps import CLOSE
from experiments.temperature_verdict import PLAIN
from sparsity.claims_ledger.findings import Judged, core, instead, letter, listed
from sparsity.claims_ledger.judging import Claim

_WIDE, _NARROW = (-2, -1), 1  # places of the margins first predicted, and of one added later


def told_apart(table: Mapping[str, Any], seed: int) -> Judged:
    """Find whether a margin tells rules of temperature apart, and what gaps forecast."""
    of, margins = {x["rule"]: x for x in table["rules"]}, table["margins"]
    n = f"{table['lengths'][-1]:,}"
    none, floor, log_n = (of[x] for x in (PLAIN, FLOOR, LOG_N))
    shares = list(zip(*(x["longest"] for x in (none, floor, log_n)), strict=True))
    apart = [max(shares[i]) - min(shares[i]) for i in _WIDE]
    alone, kept = min(of[LARGEST]["least"]), min(of[ODDS]["least"])
    factors = [tuple(table["factors"][x][i] for x in (ODDS, LOG_N)) for i in _WIDE]
    findings = [
        core(
            "in this task the largest score alone is right at every length and margin, as a test "
            f"of rules needs: in {alone:.2f} of the rows or more",
            alone >= 0.95,
        ),
        core(
            f"with margins of {listed((margins[i] for i in _WIDE), 'g')} the shares of rows of {n} "
            "items that softmax as trained, floor-log and log-n read out differ by 0.05 or more "
            "(that they do not, for both, was to refute the prediction): they differ by "
            f"{listed(apart, '.3f')}",
            max(apart) >= 0.05,
        ),
        core(
            "gaps of scores at 16 items, drawn independently, forecast what every rule reads out "
            f"to 0.1 in the mean: off by {table['error']:.3f}; forecasts of other rules and "
            f"lengths, a control, by {table['error_of_others']:.3f}",
            table["error"] <= 0.1 and table["error_of_others"] > 3 * table["error"],
        ),
        instead(
            f"dispersed is not lost: with a margin of {margins[-2]:g} softmax as trained attends "
            f"to {none['n_eff'][-2]:.1f} of {n} items and reads out {none['longest'][-2]:.2f}",
            none["n_eff"][-2] > 8 and none["longest"][-2] >= 0.95,
        ),
        instead(
            f"with a margin of {margins[_NARROW]:g}, added after that with a prediction of its "
            f"own, they are told apart: {listed(shares[_NARROW], '.2f')}",
            all(a + 0.05 <= b for a, b in zip(shares[_NARROW], shares[_NARROW][1:], strict=False)),
        ),
        instead(
            f"the factor by which the gaps keep their odds reads out {kept:.2f} or more at every "
            "margin and length, and is smaller than that of log-n: "
            + listed(f"{a:.2f} for {b:.2f}" for a, b in factors),
            kept >= 0.95 and all(a < b for a, b in factors),
        ),
    ]
    return findings, {}


def raced(table: Mapping[str, Any], seed: int) -> Judged:
    """Find what more steps of training do to the slope of a sink's logit in ln n."""
    first, middle, last = (f"{steps:,}" for steps in table["steps"])
    low = table["noise_from"][0]
    signed, other = (
        [x for noise, x in zip(table["noise_from"], table["change"], strict=True) if same(noise)]
        for same in (low.__eq__, low.__ne__)
    )
    late, ends, far = table["rises"][1], table["ends"], max(table["far"])
    seeds = max(map(abs, table["by_seeds"]))
    findings = [
        core(
            f"in this task ln(m/(1 − m)) of the sink’s mass goes on rising from {middle} to {last} "
            f"steps, by {sum(late) / len(late):.2f} in the mean of all n (less than 0.25 was to "
            "refute the prediction)",
            sum(late) / len(late) >= 0.25,
        ),
        core(
            f"with noise from {low:g} its slope in ln n stays as it is for one of the sinks at "
            f"least (a change by more than {CLOSE} for both was to refute it): from {first} to "
            f"{last} steps it changes by {listed(signed, '+.2f')}",
            min(map(abs, signed)) <= CLOSE,
        ),
        letter(
            f"for both, with noise from 0 too: {listed(other, '+.2f')}",
            max(map(abs, [*signed, *other])) < CLOSE,
        ),
        instead(
            f"rows that are behind catch up: after {last} steps ln(m/(1 − m)) differs over n by "
            f"{far:.2f} at most, and slopes are {listed(ends, '.3f')}, near the one of a mass that "
            "is the same at every n",
            far < 1 and all(abs(x - 1) < CLOSE for x in ends),
        ),
        instead(
            f"control: three other seeds change slopes by {seeds:.2f} at most, less than {CLOSE}",
            seeds < CLOSE,
        ),
    ]
    return findings, {}


def packed(table: Mapping[str, Any], seed: int) -> Judged:
    """Find whether trained relu² recalls no more than keys that interfere least would."""
    off, hard = table["off"], table["hard"]
    findings = [
        core(
            f"of {table['cells']} cells of trained relu² none recalls more than the bound by more "
            f"than 0.05, which was to refute it: by {table['over']:+.3f} at most",
            table["over"] <= 0.05,
        ),
        core(
            f"over the {hard} cells that do not recall everything it is nearer than a tight frame, "
            f"or it was to be refuted: off by {off['bound']:.3f} for {off['frame']:.3f}",
            off["bound"] < off["frame"],
        ),
        letter(
            "it bounds the recall, to 0.02 (what is bounded is the mean square of the weights): "
            f"above it by {table['over']:+.3f}",
            table["over"] <= 0.02,
        ),
        instead(
            f"with nothing fitted it is within {table['largest']:.3f} in these {hard} cells; "
            f"random keys are off by {off['random']:.3f} in the mean, the bound of twice the "
            f"dimension, a control, by {off['next_bound']:.3f}",
            table["largest"] <= 0.1 and off["bound"] < min(off["random"], off["next_bound"]) / 2,
        ),
    ]
    return findings, {}


def derived(table: Mapping[str, Any], seed: int) -> Judged:
    """Find whether derivatives say what a changed word moves, with the sink and without."""
    texts = table["texts_derived"]
    as_is, hidden = (table["ranks"][x][0] for x in (sink_map.AS_IS, sink_map.FIRST))
    first, ordinary = (table["larger"][x] for x in (sink_map.FIRST, sink_map.ORDINARY))
    findings = [
        core(
            f"in SmolLM2-135M, {texts} texts, ‖J_ij‖ ranks by layer and octave of distance as "
            f"what a changed word moves: ρ is {as_is:.2f} as it is and {hidden:.2f} with the first "
            "key hidden (below 0.5 was to refute it)",
            min(as_is, hidden) >= 0.5,
        ),
        core(
            f"with the first key hidden derivatives are {first:.2f} times as large, larger in "
            f"{table['texts_larger']} of {texts} texts (no larger was to refute it); with an "
            f"ordinary key hidden, a control, {ordinary:.3f} times",
            first > 1 and table["texts_larger"] == texts and abs(ordinary - 1) <= 0.05,
        ),
        letter("by a factor of 1.3 or more, as was predicted", first >= 1.3),
    ]
    return findings, {}


def switching(table: Mapping[str, Any], seed: int) -> Judged:
    """Find how many heads rest on the sink and are active by turns, and what tells when."""
    often = f"{sink_map.OFTEN:.0%} or more of the queries"
    findings = [
        core(
            f"in SmolLM2-135M, {table['texts']} texts, {table['share']:.0%} of the heads put more "
            f"than {sink_map.RESTS:g} of their weight on the first key at {often} and less than "
            f"{sink_map.ACTIVE:g} at as many (fewer than 2 % of the heads was to refute it)",
            table["share"] >= 0.02,
        ),
        letter(
            "which heads do so is a trait of theirs: of those that do in one text half or more do "
            f"in three quarters of the texts; {table['again']:.0%} do",
            table["again"] >= 0.5,
        ),
        instead(
            "the query’s own token tells in part when: it explains "
            f"{table['by_token']:.2f} of the variance of that weight in the median of these heads, "
            f"tokens in random order, a control, {table['by_mixed']:+.3f}",
            table["by_token"] >= 0.3 and abs(table["by_mixed"]) <= 0.05,
        ),
    ]
    return findings, {}


CLAIMS: tuple[Claim, ...] = (
    Claim(
        key="margin-tells-rules-apart",
        source="experiments/predictions/margin.md",
        statement="Where the wanted item stands out by a tenth or a fifth, softmax as trained "
        "loses it in long rows, and rules of temperature keep it, log-n more than floor-log.",
        formula="(n − 1)·E e^(−c·gap) beside 1",
        proof="",
        judge=told_apart,
        routes=partial(recorded.numbers, "margin"),
    ),
    Claim(
        key="sink-slope-stays",
        source="experiments/predictions/sink_steps.md",
        statement="A trained sink grows slower than ln n since training carries it equally far at "
        "every length, so that more steps leave its slope as it is.",
        formula="b − β̂ = ln n + γ̂²/2 + ln(m/(1 − m)) for γ̂² ≪ ln n",
        proof="",
        judge=raced,
        routes=partial(recorded.numbers, "sink_steps"),
    ),
    Claim(
        key="packing-bounds-recall",
        source="experiments/predictions/packing.md",
        statement="Trained relu² recalls no more than keys would that interfere least, and nearly "
        "as much.",
        formula="min Σ f(cos)² over cosines with nonnegative sums of Gegenbauer polynomials",
        proof="",
        judge=packed,
        routes=partial(recorded.numbers, "packing"),
    ),
    Claim(
        key="derivatives-say-what-moves",
        source="experiments/predictions/sink_map.md",
        statement="Derivatives of the states by a token say how far a changed word moves them, and "
        "are larger without the sink.",
        formula="‖∂x_j/∂x_i‖_F by layer and distance",
        proof="",
        judge=derived,
        routes=partial(recorded.numbers, "sink_map"),
    ),
    Claim(
        key="heads-rest-and-switch",
        source="Guo et al. (2024), Active-dormant attention heads, arXiv 2410.13835",
        statement="Some heads rest on the sink on some inputs and are active on others.",
        formula="the weight of a head on the first key, query by query",
        proof="",
        judge=switching,
        routes=partial(recorded.numbers, "sink_map"),
    ),
)
