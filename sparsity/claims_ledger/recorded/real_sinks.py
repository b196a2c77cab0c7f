"""Sinks of a real model: what hidden and muted keys do to mixing, to the loss and to a window.

What is found speaks of three claims of `sinks`: sinks-mix-less, no-op and longer-context. Of its
other claims nothing was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparsity.claims_ledger.findings import (
    MEASURED,
    Judged,
    Outcome,
    Recorded,
    core,
    instead,
    interval,
    letter,
    read_numbers,
)

REAL_SINKS = Recorded(
    name="real_sinks",
    basis=MEASURED,
    settings="SmolLM2-135M reads 256 tokens of each text; keys are hidden from the queries 16 and "
    "later or muted (their values read as zero), and token 64 is changed; 22 conditions",
    runs=8,
    each="text",
    predictions=20,
    failed=(
        "hidden late, at most half as many heads have one",
        "the first key hidden costs at least 0.5 nats in every text",
        "muted, the first key costs less than a fifth of what it costs hidden, in the mean",
        "(a) at equal mass too, further than without ordinary keys, which moves no further",
        "without sinks n_eff of the median head at least doubles, in the mean",
    ),
    numbers=read_numbers("real_sinks"),
)
_FIRST, _SINKS, _ONE = "first key hidden", "all sinks hidden", "one ordinary key hidden"
_MUTED, _SINKS_MUTED = "first key muted", "all sinks muted"
_ELSEWHERE = "first key muted, where no sink"
_MATCHED, _OTHERS_MATCHED = "first key hidden, equal mass", "ordinary keys, equal mass"


def _by_condition(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["condition"]: row for row in rows}


def mixing(found: Mapping[str, Any]) -> Judged:
    """Find how far a changed word moves the states of a model with its sinks and without."""
    of, texts = _by_condition(found["keys"]), found["texts"]
    first, one, muted = of[_FIRST], of[_ONE], of[_MUTED]
    matched, others = of[_MATCHED], of[_OTHERS_MATCHED]
    findings = [
        core(
            "in SmolLM2-135M a changed word moves later states "
            f"{interval(first['moved'])} times as far once the first key is hidden, further in "
            f"{found['further']} of {texts} texts; with one ordinary key hidden, a control, "
            f"{interval(one['moved'])} (95 % intervals over texts)",
            first["moved"][1] > 1 and one["moved"][2] < 1.05,
        ),
        core(
            "at equal loss, which is read off few points of each text, it moves them "
            f"{interval(found['equal_loss'])} times as far as without ordinary keys, further in "
            f"{found['equal_loss_further']} of {texts}",
            found["equal_loss"][1] > 1,
        ),
        letter(
            "at equal mass too it moves them further than without ordinary keys: "
            f"{interval(matched['moved'])} and {interval(others['moved'])} times as far as with "
            "all keys (the prediction said that as much by both would refute the claim)",
            found["equal_mass"][1] > 1,
        ),
        instead(
            "equal masses exist only in rows where the first key has "
            f"{matched['mass']:.2f} of its weight of {first['mass']:.2f}, and there neither moves "
            "the states further: of rows in which a sink takes most they say nothing",
            matched["mass"] < first["mass"] / 2
            and all(row["moved"][1] < 1 < row["moved"][2] for row in (matched, others)),
        ),
        instead(
            "what counts is the weight that the sink takes: muted, with its weight kept, it costs "
            f"{interval(muted['cost'])} nats, and the word moves states "
            f"{interval(muted['moved'])} times as far, less than with it hidden in "
            f"{found['further_than_muted']} of {texts} texts",
            muted["cost"][1] > 0 and muted["moved"][2] < first["moved"][1],
        ),
    ]
    return findings, _shown(found["keys"])


def no_op(found: Mapping[str, Any]) -> Judged:
    """Find how large the values of sinks are, and what is lost with them."""
    of, texts = _by_condition(found["keys"]), found["texts"]
    norms, cosines = found["norms"], found["cosines"]
    less, fewer = found["less_when_muted"], found["texts_less"]
    first, muted = of[_FIRST]["cost"], of[_MUTED]["cost"]
    constant, neighbours = cosines["alike"], cosines["alike_others"]
    findings = [
        core(
            "where the first key of SmolLM2-135M is a sink, its value is small: ‖v‖ is "
            f"{norms['value_norm']:.2f} and ‖W_O v‖ {norms['written_norm']:.2f} of the median "
            "key’s, median over layers and texts",
            max(norms.values()) < 0.5,
        ),
        instead(
            "all sinks (a condition added after the first run, predicted by nobody) cost less "
            f"muted than hidden: {interval(of[_SINKS_MUTED]['cost'])} and "
            f"{interval(of[_SINKS]['cost'])} nats, less in {fewer['sinks']} of {texts} texts "
            "(95 % intervals over texts)",
            less["sinks"][1] > 0,
        ),
        letter(
            "what it writes is hardly needed: muted, the first key costs less than a fifth of what "
            f"it costs hidden; {interval(muted)} and {interval(first)} nats, less in "
            f"{fewer['first']} of {texts} texts, by {interval(less['first'])}",
            muted[0] < first[0] / 5,
        ),
        instead(
            "what it writes carries next to nothing of the text, yet the model needs it (measured "
            "after the first run): of BOS and of the "
            "text’s own first token heads write the same direction, cosine "
            f"{constant[0]:.3f} (of neighbours in the text, a control, {neighbours[0]:.3f} ± "
            f"{neighbours[1]:.3f})",
            constant[0] > 0.95 and neighbours[0] + neighbours[1] < 0.95 and muted[1] > 0,
        ),
        instead(
            "control: muted in the heads where it is no sink, the first key costs "
            f"{of[_ELSEWHERE]['cost'][0]:.3f} nats",
            of[_ELSEWHERE]["cost"][2] < 0.05,
        ),
    ]
    return findings, _shown(found["keys"])


def window(found: Mapping[str, Any]) -> Judged:
    """Find what a window of keys costs with the first tokens and without."""
    none, one, _, _ = found["windows"]
    kept, next_kept = found["window_recovered"]
    findings = [
        instead(
            "a context beyond its window needs its sink: with 64 keys SmolLM2-135M loses "
            f"{interval(none['cost'])} nats more than with all, {interval(one['cost'])} with the "
            "first token kept, which "
            f"saves {kept:.0%} of what four of them do; the next four, a control, save "
            f"{next_kept:.0%} (how strong a sink is was not measured against the length)",
            kept > 0.8 and next_kept < 0.2 and one["cost"][2] < none["cost"][1],
        )
    ]
    rows = [{**row, "cost": interval(row["cost"])} for row in found["windows"]]
    return findings, {"kept_in_window": rows}


def _shown(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the conditions as a table."""
    return {
        "hidden_keys": [
            {
                "condition": row["condition"],
                "weight": row["mass"],
                **{name: interval(row[name]) for name in ("cost", "moved")},
            }
            for row in rows
        ]
    }


_LABELS = {
    "hidden_keys": "SmolLM2-135M with keys hidden or muted, 95 % intervals over texts",
    "kept_in_window": "SmolLM2-135M with a window of 64 keys, 95 % intervals over texts",
    "condition": "condition",
    "weight": "weight of these keys",
    "cost": "cost in nats",
    "moved": "a changed word moves states, times",
}
OF_SINKS: Mapping[str, tuple[Outcome, ...]] = {
    "sinks-mix-less": (Outcome(REAL_SINKS, mixing, _LABELS),),
    "no-op": (Outcome(REAL_SINKS, no_op, _LABELS),),
    "longer-context": (Outcome(REAL_SINKS, window, _LABELS),),
}
