"""What an experiment found, as the ledger carries it: recorded, and not run again to judge a claim.

The experiments train or measure models for minutes, and stand in the folder `experiments/` beside
the package. So the package has their numbers as data, which `python -m experiments.recorded` takes
from their committed tables and writes; a test computes each of them from these tables again. A
verdict still follows from the numbers: an outcome finds something in them, by the same rule as a
judge.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

from sparsity.claims_ledger.findings import MEASURED, TRAINED, Finding, Judged


def read_numbers(name: str) -> Mapping[str, Any]:
    """Return the numbers of an experiment, from its file among `recorded`."""
    folder = resources.files("sparsity.claims_ledger").joinpath("recorded")
    return json.loads(folder.joinpath(f"{name}.json").read_text("utf-8"))


@dataclass(frozen=True)
class Recorded:
    """An experiment with its settings and numbers.

    Args:
        name: of the experiment, as `python -m experiments` takes it.
        basis: "trained here" or "measured here".
        settings: what was run, in words.
        runs: how many seeds, or texts; a spread of a number is the standard deviation over them.
        predictions: how many were committed before the results.
        failed: those of them that did not come so, in the words of the experiment's page.
        numbers: JSON-ready, by name.
        each: what is another one in each run, "seed" or "text".
    """

    name: str
    basis: str
    settings: str
    runs: int
    predictions: int
    failed: tuple[str, ...]
    numbers: Mapping[str, Any] = field(repr=False)
    each: str = "seed"

    def __post_init__(self) -> None:
        """Check the basis."""
        if self.basis not in (TRAINED, MEASURED):
            raise ValueError(f"basis {self.basis!r} is not {TRAINED!r} or {MEASURED!r}")

    @property
    def command(self) -> str:
        """The command that runs the experiment again, in a clone of the repository."""
        return f"python -m experiments {self.name}"

    def told(self) -> dict[str, Any]:
        """Return in JSON's types what was run, and that it was not run for this record."""
        held = self.predictions - len(self.failed)
        missed = f"; not so: {'; '.join(self.failed)}" if self.failed else ""
        return {
            "name": self.name,
            "basis": self.basis,
            "settings": self.settings,
            f"{self.each}s": self.runs,
            "predictions": f"{held} of {self.predictions} held{missed}",
            "command": self.command,
            "recomputed": False,
        }


def in_a_sentence(told: Mapping[str, Any]) -> str:
    """Say of an experiment, as `told` has it, what was run and how it is run again."""
    each = "text" if "texts" in told else "seed"
    runs = f"{told[f'{each}s']} {each}{'' if told[f'{each}s'] == 1 else 's'}"
    return (
        f"{told['basis'].capitalize()}, recorded and not recomputed in this run (to run it again: "
        f"{told['command']}). {told['settings']}; {runs}. Of what was predicted before the "
        f"results {told['predictions']}."
    )


@dataclass(frozen=True)
class Outcome:
    """What an experiment says of a claim.

    Args:
        experiment: the experiment.
        find: its numbers -> findings, and those of the numbers that are shown with the claim.
        labels: what these are called beside those of the claim's judge, as in `Legend`.
    """

    experiment: Recorded
    find: Callable[[Mapping[str, Any]], Judged]
    labels: Mapping[str, str] = field(default_factory=dict)

    def findings(self) -> list[Finding]:
        """Return the findings, each marked with what the experiment is."""
        found, _ = self.find(self.experiment.numbers)
        return [replace(each, basis=self.experiment.basis) for each in found]

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers that are shown with the claim."""
        return self.find(self.experiment.numbers)[1]


def nothing_computed(routes: Any, seed: int) -> Judged:
    """Find nothing: the judge of a claim that experiments alone speak of."""
    return [], {}


def interval(found: Sequence[float]) -> str:
    """Write a number with the ends of its 95 % interval."""
    value, low, high = (round(x, 2) + 0.0 for x in found)  # + 0.0: no minus before a 0
    return f"{value:.2f} ({low:.2f} to {high:.2f})"


def count_recorded(records: Sequence[Mapping[str, Any]]) -> str:
    """Say how many records have experiments in their evidence; nothing where none has."""
    count = sum(bool(record["evidence"].get("experiments")) for record in records)
    rest = "rests" if count == 1 else "rest"
    return f"; {count} {rest} on recorded experiments, not run again here" if count else ""
