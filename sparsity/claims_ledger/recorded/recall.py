"""Trained recall: whether what cannot focus cannot find the key that counts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from sparsity.claims_ledger.findings import TRAINED, Judged, core, instead, letter, listed
from sparsity.claims_ledger.judging import Claim
from sparsity.claims_ledger.recording import Outcome, Recorded, interval, nothing_computed

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
    numbers={
        "cells": 144,
        "recalling_all": 100,
        "focusing": 90,
        "recalling": 89,
        "spread": 0.00419,
        "at_most_pairs": [
            {"map": "exp", "dim": 8, "accuracy": 1.0, "spread": 0.0, "law": 0.6569, "n_eff": 2.786},
            {
                "map": "exp",
                "dim": 16,
                "accuracy": 1.0,
                "spread": 0.0,
                "law": 0.9731,
                "n_eff": 1.673,
            },
            {
                "map": "exp",
                "dim": 32,
                "accuracy": 1.0,
                "spread": 0.0,
                "law": 0.9991,
                "n_eff": 1.151,
            },
            {"map": "exp", "dim": 64, "accuracy": 1.0, "spread": 0.0, "law": 1.0, "n_eff": 1.013},
            {
                "map": "relu2",
                "dim": 8,
                "accuracy": 0.9336,
                "spread": 0.04116,
                "law": 0.6174,
                "n_eff": 1.841,
            },
            {
                "map": "relu2",
                "dim": 16,
                "accuracy": 1.0,
                "spread": 0.0,
                "law": 0.9202,
                "n_eff": 1.606,
            },
            {
                "map": "relu2",
                "dim": 32,
                "accuracy": 1.0,
                "spread": 0.0,
                "law": 0.9765,
                "n_eff": 1.342,
            },
            {
                "map": "relu2",
                "dim": 64,
                "accuracy": 1.0,
                "spread": 0.0,
                "law": 0.9997,
                "n_eff": 1.184,
            },
            {
                "map": "identity",
                "dim": 8,
                "accuracy": 0.1582,
                "spread": 0.01015,
                "law": 0.1902,
                "n_eff": 166.7,
            },
            {
                "map": "identity",
                "dim": 16,
                "accuracy": 0.2715,
                "spread": 0.01692,
                "law": 0.2998,
                "n_eff": 161.0,
            },
            {
                "map": "identity",
                "dim": 32,
                "accuracy": 0.4753,
                "spread": 0.01492,
                "law": 0.5033,
                "n_eff": 150.7,
            },
            {
                "map": "identity",
                "dim": 64,
                "accuracy": 0.7904,
                "spread": 0.01956,
                "law": 0.8045,
                "n_eff": 133.0,
            },
            {
                "map": "elu+1 features",
                "dim": 8,
                "accuracy": 0.1048,
                "spread": 0.007893,
                "law": 0.1954,
                "n_eff": 74.2,
            },
            {
                "map": "elu+1 features",
                "dim": 16,
                "accuracy": 0.166,
                "spread": 0.01033,
                "law": 0.2823,
                "n_eff": 72.66,
            },
            {
                "map": "elu+1 features",
                "dim": 32,
                "accuracy": 0.2643,
                "spread": 0.02879,
                "law": 0.4223,
                "n_eff": 82.84,
            },
            {
                "map": "elu+1 features",
                "dim": 64,
                "accuracy": 0.4512,
                "spread": 0.01474,
                "law": 0.6097,
                "n_eff": 98.37,
            },
        ],
        "ranks": {
            "the needle law": [0.6678, 0.4687, 0.8029],
            "few keys attended to, −n_eff": [0.5061, 0.02994, 0.7883],
            "−n_eff over P": [0.461, -0.003149, 0.7101],
            "the size of the state, d": [0.3797, 0.2471, 0.5808],
            "d over P": [0.2955, 0.1406, 0.4729],
            "afterwards: can it focus? then d": [0.7295, 0.5018, 0.8464],
            "control: the law of other cells": [0.004674, -0.1155, 0.109],
        },
        "law_ahead_of": {
            "the size of the state, d": [0.288, -0.0165, 0.4734],
            "afterwards: can it focus? then d": [-0.06175, -0.1342, 0.03897],
        },
        "among_focusing": {
            "the needle law": [0.5467, 0.333, 0.7057],
            "the size of the state, d": [0.5412, 0.3994, 0.6617],
        },
        "ahead_at_equal_size": [10, 12],
        "near": 125,
        "near_others": 106,
        "hard": 24,
        "hard_near": 14,
        "hard_near_others": 5,
        "without_needle": 0.032,
        "chance": 0.03125,
    },
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
