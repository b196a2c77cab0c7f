"""Claims on recorded experiments: their numbers are those of the committed tables, and decide."""

import csv
import functools
import html
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import answer

import sparsity
from experiments import recorded as of_tables
from experiments.frame import PREDICTIONS
from sparsity import claims_ledger as ledger
from sparsity.claims_ledger import sinks
from sparsity.claims_ledger.findings import (
    MEASURED,
    TRAINED,
    Outcome,
    Recorded,
    core,
    in_a_sentence,
    letter,
    nothing_computed,
)
from sparsity.claims_ledger.recorded import CLAIMS, EXPERIMENTS, OF_COCA, OF_SINKS

RESULTS = Path(__file__).parents[1] / "experiments" / "results"
CLAIM = {claim.key: claim for claim in CLAIMS}
BESIDES = [claim for claim in ledger.ALL if claim.key in {*OF_SINKS, *OF_COCA}]
NAMES = [experiment.name for experiment in EXPERIMENTS]
numbers_of_table = functools.cache(of_tables.numbers)  # seconds each; no test changes them


def differences(told, found, where=""):
    """Where two nested values are not the same, numbers to a part in a thousand."""
    if isinstance(found, dict):
        if set(told) != set(found):
            return [where]
        return [
            x for name in found for x in differences(told[name], found[name], f"{where}/{name}")
        ]
    if isinstance(found, list):
        if len(told) != len(found):
            return [where]
        pairs = enumerate(zip(told, found, strict=True))
        return [x for i, (a, b) in pairs for x in differences(a, b, f"{where}/{i}")]
    same = (
        told == found if isinstance(found, str) else told == pytest.approx(found, rel=1e-3, abs=0)
    )
    return [] if same else [where]


# --- the numbers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=NAMES)
def test_every_number_is_that_of_the_committed_table(experiment):
    found = numbers_of_table(experiment.name)
    assert differences(experiment.numbers, found) == []
    assert len(json.dumps(found)) > 500


def planted(numbers, factor, path=()):
    """Each number in turn times a factor: (where, the numbers with that one wrong)."""
    for name in numbers if isinstance(numbers, dict) else range(len(numbers)):
        value, copy = numbers[name], json.loads(json.dumps(numbers))
        if isinstance(value, (dict, list)):
            for where, inside in planted(value, factor, (*path, name)):
                yield where, {**copy, name: inside} if isinstance(copy, dict) else [
                    *copy[:name], inside, *copy[name + 1 :]
                ]  # fmt: skip
        elif not isinstance(value, str):
            copy[name] = value * factor if value else 0.01
            yield "/".join(map(str, ("", *path, name))), copy


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=NAMES)
def test_a_number_that_is_wrong_by_a_hundredth_is_seen(experiment):
    found = numbers_of_table(experiment.name)
    seen = [(where, differences(wrong, found)) for where, wrong in planted(dict(found), 1.01)]
    assert len(seen) > 20
    assert all(different == [where] for where, different in seen)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=NAMES)
def test_seeds_and_predictions_are_those_of_the_results(experiment):
    with (RESULTS / f"{experiment.name}.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len({row[experiment.each] for row in rows}) == experiment.runs
    came = of_tables.read_predictions(RESULTS / f"{experiment.name}.md")
    assert len(came) == experiment.predictions
    assert tuple(words for words, held in came.items() if not held) == experiment.failed
    for count in re.findall(r"(\d+) models", experiment.settings):
        assert int(count) == len(rows)
    assert (PREDICTIONS / f"{experiment.name}.md").is_file()


def test_every_experiment_of_the_tables_is_recorded_and_the_other_way_round():
    assert list(of_tables.NUMBERS) == NAMES
    used = {outcome.experiment.name for claim in ledger.ALL for outcome in claim.recorded}
    assert used == set(NAMES)


# --- the verdicts --------------------------------------------------------------------------------


def judged(key, change):
    """The record of a claim by its experiment alone, in a world where that found something else."""
    (claim,) = (each for each in (*CLAIMS, *BESIDES) if each.key == key)
    (outcome,) = claim.recorded
    numbers = json.loads(json.dumps(outcome.experiment.numbers))
    change(numbers)
    experiment = replace(outcome.experiment, numbers=numbers)
    recorded = (replace(outcome, experiment=experiment),)
    return replace(claim, judge=nothing_computed, recorded=recorded).record()


def linear_ones_recall(numbers):
    for row in numbers["at_most_pairs"]:
        row["accuracy"] = 1.0


def the_state_ranks_better(numbers):
    ranks = numbers["ranks"]
    ranks["the needle law"], ranks["the size of the state, d"] = (
        ranks["the size of the state, d"],
        ranks["the needle law"],
    )


def few_keys_say_it(numbers):
    """Where the law is ahead of d for certain, too."""
    numbers["ranks"]["few keys attended to, −n_eff"] = [0.7, 0.6, 0.8]
    numbers["law_ahead_of"]["the size of the state, d"] = [0.3, 0.1, 0.5]


def sinks_do_not_grow(numbers):
    for head in numbers["slopes"]:
        head["slope"] = [0.0, -0.1, 0.1]


def sinks_grow_like_ln_n(numbers):
    for head in numbers["slopes"]:
        head["slope"] = [1.0, 0.95, 1.05]


def softmax_needs_none(numbers):
    numbers["no_sink_range"] = [1e-6, 1e-3]


def relu_leaks(numbers):
    next(head for head in numbers["heads"] if head["weights"] == "relu/n")["leak"] = 0.2


def rule(numbers, name):
    rows = numbers["read"]
    return next(row for row in rows if (row["weights"], row["rule"]) == ("exp", name))


def n_eff_stays(numbers):
    numbers["powers"]["exp"] = [0.1, 0.0, 0.2]


def n_eff_grows_under_any_rule(numbers):
    rule(numbers, "constant n_eff, bounded")["n_eff"] = rule(numbers, "as trained")["n_eff"]


def log_n_gains_nothing(numbers):
    rule(numbers, "log-n")["accuracy"] = rule(numbers, "as trained")["accuracy"]


def log_n_keeps_n_eff(numbers):
    rule(numbers, "log-n")["n_eff"] = [1.25] * 6


def keys(numbers, condition):
    return next(row for row in numbers["keys"] if row["condition"] == condition)


def without_a_sink_words_move_as_far(numbers):
    keys(numbers, "first key hidden")["moved"] = [1.02, 0.9, 1.15]


def any_hidden_key_moves_them(numbers):
    keys(numbers, "one ordinary key hidden")["moved"] = [1.6, 1.3, 2.0]


def the_damage_moves_them(numbers):
    numbers["equal_loss"] = [1.1, 0.8, 1.4]


def they_move_further_at_equal_mass(numbers):
    numbers["equal_mass"] = [1.5, 1.2, 1.8]


def values_of_sinks_are_large(numbers):
    numbers["norms"]["written_norm"] = 1.1


def muted_costs_nothing(numbers):
    keys(numbers, "first key muted")["cost"] = [0.01, -0.02, 0.04]


def reading(numbers, rule, angles="as trained"):
    rows = numbers["read"]
    return next(row for row in rows if (row["rule"], row["reading"]) == (rule, angles))


def rope_reads_further(numbers):
    reading(numbers, "RoPE")["ratio"] = [1.01] * 6


def coca_reads_all(numbers):
    reading(numbers, "CoCA").update(ratio=[1.01] * 6, spread=[0.01] * 6)


def ntk_gains_nothing(numbers):
    reading(numbers, "CoCA", "dynamic NTK")["ratio"] = reading(numbers, "CoCA")["ratio"]


def ntk_keeps_the_loss(numbers):
    reading(numbers, "CoCA", "dynamic NTK")["ratio"] = [1.02] * 6


@pytest.mark.parametrize(
    ("key", "change", "expected"),
    [
        ("focus-decides-recall", linear_ones_recall, "refuted"),
        ("focus-decides-recall", the_state_ranks_better, "refuted"),
        ("focus-decides-recall", few_keys_say_it, "confirmed"),
        ("trained-sink-grows", sinks_do_not_grow, "refuted"),
        ("trained-sink-grows", sinks_grow_like_ln_n, "confirmed"),
        ("softmax-needs-a-sink", softmax_needs_none, "refuted"),
        ("softmax-needs-a-sink", relu_leaks, "refuted"),
        ("softmax-disperses", n_eff_stays, "refuted"),
        ("softmax-disperses", n_eff_grows_under_any_rule, "confirmed"),
        ("log-n-extrapolates", log_n_gains_nothing, "refuted"),
        ("log-n-extrapolates", log_n_keeps_n_eff, "confirmed"),
        ("sinks-mix-less", without_a_sink_words_move_as_far, "refuted"),
        ("sinks-mix-less", any_hidden_key_moves_them, "refuted"),
        ("sinks-mix-less", the_damage_moves_them, "refuted"),
        ("sinks-mix-less", they_move_further_at_equal_mass, "confirmed"),
        ("no-op", values_of_sinks_are_large, "refuted"),
        ("no-op", muted_costs_nothing, "confirmed"),
        ("coca-reads-further", rope_reads_further, "refuted"),
        ("coca-reads-further", coca_reads_all, "confirmed"),
        ("coca-ntk", ntk_gains_nothing, "refuted"),
        ("coca-ntk", ntk_keeps_the_loss, "confirmed"),
    ],
)
def test_another_outcome_changes_the_verdict(key, change, expected):
    assert judged(key, lambda numbers: None)["verdict"] != expected
    assert judged(key, change)["verdict"] == expected


def test_what_is_said_to_hold_besides_does():
    for claim in CLAIMS:
        findings = claim.record()["evidence"]["findings"]
        assert all(each["holds"] for each in findings if each["role"] == "instead")
        assert {each["basis"] for each in findings} == {TRAINED}
    besides = {claim.key: [y for x in claim.recorded for y in x.findings()] for claim in BESIDES}
    assert all(
        found.holds for each in besides.values() for found in each if found.role == "instead"
    )
    assert {key: {found.basis for found in each} for key, each in besides.items()} == {
        "sinks-mix-less": {MEASURED},
        "longer-context": {MEASURED},
        "no-op": {MEASURED},
        "coca-ntk": {TRAINED},
    }


def test_a_window_that_needs_no_sink_is_seen():
    (claim,) = (each for each in BESIDES if each.key == "longer-context")
    (outcome,) = claim.recorded
    numbers = json.loads(json.dumps(outcome.experiment.numbers))
    numbers["windows"][1]["cost"] = numbers["windows"][0]["cost"]
    (finding,) = outcome.find(numbers)[0]
    assert not finding.holds


# --- how it is told ------------------------------------------------------------------------------


def test_each_says_how_it_is_made_again_and_that_it_was_not():
    for claim in CLAIMS:
        (told,) = claim.record()["evidence"]["experiments"]
        assert told["recomputed"] is False
        assert told["command"] == f"python -m experiments {told['name']}"
        said = in_a_sentence(told)
        assert "recorded and not recomputed in this run" in said
        assert f"{told['seeds']} seeds" in said
        assert told["command"] in said
        assert said in " ".join(ledger.table([claim.record()], width=10_000).split())
        assert "not so: " in told["predictions"]
        assert html.escape(said) in sparsity.claims(only=claim.key)._repr_html_()


def test_what_is_measured_says_on_how_many_texts():
    (outcome,) = OF_SINKS["no-op"]
    told = outcome.experiment.told()
    assert told["texts"] == 8
    assert "seeds" not in told
    assert "Measured here, recorded and not recomputed in this run" in in_a_sentence(told)
    assert "; 8 texts." in in_a_sentence(told)


def test_the_command_tells_them_in_text_and_json(command, monkeypatch):
    monkeypatch.setattr(ledger, "ALL", CLAIMS)
    code, out, _ = command("claims")
    text = " ".join(out.split())
    assert code == 0
    assert text.count("python -m experiments recall") == 1
    assert text.count("trained here: ") > 20
    assert text.endswith("6 rest on recorded experiments, not run again here")
    for record in answer(command, "claims"):
        (told,) = record["evidence"]["experiments"]
        assert told["basis"] == "trained here"
        assert told["recomputed"] is False


MEASURED_ONCE = Recorded(
    "real_sinks", MEASURED, "A model", 1, 2, ("a word",), {"moved": 0.5, "moved_without": 0.9}
)


def measured(role, holds):
    return Outcome(
        MEASURED_ONCE, lambda found: ([role(f"moves {found['moved']}", holds)], {"found": found})
    )


@pytest.mark.parametrize(
    ("role", "holds", "expected"),
    [(core, True, "confirmed"), (letter, False, "refined"), (core, False, "refuted")],
)
def test_what_is_measured_joins_a_claim_on_sinks(role, holds, expected):
    assert {claim.key for claim in sinks.CLAIMS} >= set(OF_SINKS)
    (claim,) = (each for each in sinks.CLAIMS if each.key == "no-op")
    record = replace(claim, recorded=(measured(role, holds),)).record()
    assert record["verdict"] == expected
    assert record["evidence"]["findings"][-1] == {
        **{"role": role.args[0], "statement": "moves 0.5", "holds": holds},
        "basis": "measured here",
    }
    assert {"updates", "found"} <= set(record["evidence"]["numbers"])
    assert json.loads(json.dumps(record)) == record
    text = " ".join(ledger.table([record], width=10_000).split())
    assert "measured here: moves 0.5" in text
    assert "1 seed." in text
    assert "1 rests on recorded experiments" in text


def test_a_basis_is_one_of_those_that_are_known():
    with pytest.raises(ValueError, match="basis 'computed' is not"):
        replace(MEASURED_ONCE, basis="computed")
    with pytest.raises(ValueError, match="basis 'guessed' is not one of"):
        core("x", True, basis="guessed")


def test_nothing_of_an_experiment_is_run(monkeypatch):
    monkeypatch.setattr("experiments.frame.run", lambda *a, **k: pytest.fail("an experiment ran"))
    assert len(sparsity.claims(only=list(CLAIM))) == 6
