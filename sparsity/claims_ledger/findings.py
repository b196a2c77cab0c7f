"""What a judge or an experiment finds, and the rule that turns findings into a verdict.

A judge computes its numbers. An experiment trains or measures models for minutes, in the folder
`experiments/` beside the package, and is not run again when a claim is judged: the package has its
numbers as data, which `python -m experiments.recorded` takes from the committed tables; a test
computes each of them again. An outcome finds something in them, and the rule is the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import resources
from typing import Any

import numpy as np

# The probability that chance alone changes any statistical finding of one claim, which divides it
# among its comparisons (Bonferroni). With 46 claims at most one run in 217 has a false alarm.
ALARM = 1e-4
CHANCE_BELOW_1E5 = 4.5  # standard errors, beyond which a normal error is with less than that chance

VERDICTS = ("confirmed", "refined", "reported", "refuted")
RULE = (
    "refuted if a finding of its core fails; refined if the core holds and a finding of its letter "
    "fails; confirmed if all hold. It is reported, not confirmed, where one of them only reads "
    "published numbers that are not recomputed here; where those speak against it, it is refuted. "
    "What holds instead, or besides, does not enter."
)
_ROLES = ("core", "reported", "letter", "instead")

# What a finding rests on. Where nothing is said it is computed when the claim is judged, by theory,
# an exact law or sampling of rows.
COMPUTED = "computed"
TOY = "toy"  # computed as well, on random layers or a few tokens: nothing is trained
PUBLISHED = "published"  # numbers of others, which nothing here recomputes
TRAINED = "trained here"  # small models; recorded, and not run again when the claim is judged
MEASURED = "measured here"  # a model that others trained; recorded likewise
BASES = (COMPUTED, TOY, PUBLISHED, TRAINED, MEASURED)


@dataclass(frozen=True)
class Finding:
    """A finding is one thing that a computation decides.

    Args:
        role: "core" (what the claim says), "reported" (what numbers say that others published and
            nothing here recomputes), "letter" (what it says if read without conditions) or
            "instead" (what holds in its place, or besides).
        statement: a sentence that is true or false.
        holds: whether it is true, from the numbers.
        basis: what it rests on, one of `BASES`.
    """

    role: str
    statement: str
    holds: bool | np.bool
    basis: str = COMPUTED

    def __post_init__(self) -> None:
        """Make `holds` a plain bool: judges compare NumPy numbers, and JSON knows no `np.bool`."""
        if self.role not in _ROLES:
            raise ValueError(f"role {self.role!r} is not one of {_ROLES}")
        if self.basis not in BASES:
            raise ValueError(f"basis {self.basis!r} is not one of {BASES}")
        object.__setattr__(self, "holds", bool(self.holds))


# `core(statement, holds)` reads as a sentence in a judge, so the roles are functions.
core, letter, instead = (partial(Finding, role) for role in ("core", "letter", "instead"))
reported = partial(Finding, "reported", basis=PUBLISHED)
# What a judge returns: its findings, and the numbers behind them.
Judged = tuple[list[Finding], dict[str, Any]]


def listed(values: Iterable[Any], spec: str = "") -> str:
    """Write values one after another, each in a format: "0.50, 0.33"."""
    return ", ".join(format(value, spec) for value in values)


def table_rows(**columns: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the rows of a table of these columns, as a record of a claim has them."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def joined(*parts: Judged) -> Judged:
    """Join the findings of several parts of a claim, sorted by role, and all their numbers."""
    findings = [finding for found, _ in parts for finding in found]
    numbers = {name: value for _, more in parts for name, value in more.items()}
    return sorted(findings, key=lambda finding: _ROLES.index(finding.role)), numbers


def verdict(findings: Sequence[Finding]) -> str:
    """Apply `RULE`.

    Returns:
        One of `VERDICTS`.
    """
    # A role without findings holds: most claims have no "letter", nearly all no "reported".
    held = {role: all(f.holds for f in findings if f.role == role) for role in _ROLES}
    if not (held["core"] and held["reported"]):
        return "refuted"
    if not held["letter"]:
        return "refined"
    return "reported" if any(f.role == "reported" for f in findings) else "confirmed"


def bases_of(findings: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what the findings of a record rest on, each once, in the order of `BASES`."""
    found = {each.get("basis", COMPUTED) for each in findings}
    return [basis for basis in BASES if basis in found]


def with_basis(finding: Mapping[str, Any]) -> str:
    """Return the statement of a finding after what it rests on, if it is not computed at large."""
    basis = finding.get("basis", COMPUTED)
    return finding["statement"] if basis == COMPUTED else f"{basis}: {finding['statement']}"


def counted_verdicts(verdicts: Sequence[str]) -> str:
    """Say how many verdicts there are of each kind; of "reported" only where there is one."""
    counts = {v: verdicts.count(v) for v in VERDICTS}
    return ", ".join(f"{n} {v}" for v, n in counts.items() if n or v != "reported")


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
