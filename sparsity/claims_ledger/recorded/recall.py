"""Trained recall: whether what cannot focus cannot find the key that counts."""

from __future__ import annotations

import itertools
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

RECALL = Recorded(
    name="recall",
    basis=TRAINED,
    settings="One layer and head recalls P = 16, 64 or 256 pairs of a key and one of 32 values, "
    "with twelve kernels and maps and d = 8 to 64: 144 cells, 432 models",
    runs=3,
    predictions=13,
    failed=(
        "the law's rank correlation is above 0.7",
        "n_eff/P comes second",
        "d alone comes last",
        "a small d limits the two linear ones only: all others recall 0.95 or more",
    ),
    numbers=read_numbers("recall"),
)
_LINEAR = ("identity", "elu+1 features")
_LAW, _STATE = "the needle law", "the size of the state, d"


def focus(found: Mapping[str, Any]) -> Judged:
    """Find whether kernels that focus recall more, and whether focus or the state explains it."""
    table, ranks = found["at_most_pairs"], found["ranks"]
    of = {name: [row for row in table if row["map"] == name] for name in _LINEAR}
    small = [row for name in _LINEAR for row in of[name] if row["dim"] <= 16]
    best = max(small, key=lambda row: row["accuracy"])
    law, few_keys, state, state_of_pairs, rival = (
        ranks[name]
        for name in (
            *(_LAW, "few keys attended to, −n_eff", _STATE, "d over P"),
            "afterwards: can it focus? then d",
        )
    )
    ahead, among = found["law_ahead_of"][_STATE], found["among_focusing"]
    beats, sizes = found["ahead_at_equal_size"]
    larger = [row["accuracy"] for row in of["identity"]]
    findings = [
        core(
            f"in this task, of one head: with d ≥ 16, {found['recalling']} of the "
            f"{found['focusing']} cells whose kernel can focus recall 0.95 or more; the two linear "
            "ones recall at most "
            f"{best['accuracy']:.2f} ± {best['spread']:.2f} of P = 256 pairs at d ≤ 16",
            found["recalling"] >= 0.9 * found["focusing"] and best["accuracy"] < 0.5,
        ),
        core(
            "neither d nor d/P ranks the accuracies better than the needle law at the measured "
            f"margin and γ̂, which was to refute the prediction: over {found['cells']} cells ρ is "
            f"{interval(law)}, of d {interval(state)}, of d/P {interval(state_of_pairs)} "
            "(intervals over maps)",
            law[0] > max(state[0], state_of_pairs[0]),
        ),
        core(
            "controls: the law of other cells ranks nothing, ρ = "
            f"{interval(ranks['control: the law of other cells'])}, and without the needle’s "
            f"weight {found['without_needle']:.3f} are recalled, by chance {found['chance']:.3f}",
            ranks["control: the law of other cells"][1] < 0
            and found["without_needle"] < 1.2 * found["chance"],
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
            f"{found['recalling_all']} of {found['cells']} accuracies are exactly 1",
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
            f"with nothing fitted the law is within 0.1 of the trained accuracy in {found['near']} "
            f"of {found['cells']} cells, and in {found['hard_near']} of the {found['hard']} below "
            f"0.95 (that of other cells, a control: {found['near_others']} and "
            f"{found['hard_near_others']})",
            found["near"] > found["near_others"] and found["hard_near"] > found["hard_near_others"],
        ),
    ]
    ranked = [
        {"explanation": name, "rank": rho, "low": low, "high": high}
        for name, (rho, low, high) in ranks.items()
    ]
    return findings, {"at_most_pairs": table, "ranked": ranked}


CLAIMS: tuple[Claim, ...] = (
    Claim(
        key="focus-decides-recall",
        source="Su Jianlin (2023-12-12), kexue.fm/archives/9889",
        statement="Linear attention falls behind softmax mainly because it cannot focus, and so "
        "finds the key that counts less surely.",
        formula="recall ≈ P(the needle’s value wins), by SNR = odds(needle) √n_eff of the others",
        proof="",
        judge=nothing_computed,
        recorded=(Outcome(RECALL, focus),),
        labels={
            "at_most_pairs": "Recalled of P = 256 pairs, by the trained models and by the law",
            "map": "kernel",
            "dim": "dimension d",
            "accuracy": "trained",
            "spread": "standard deviation of seeds",
            "law": "needle law",
            "n_eff": "n_eff with the needle",
            "ranked": "Rank correlation with the accuracy, over cells; intervals over maps",
            "rank": "Spearman’s ρ",
            "low": "95 % from",
            "high": "to",
        },
    ),
)
