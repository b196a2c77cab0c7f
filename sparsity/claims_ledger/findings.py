"""What a judge finds, and the rule that turns findings into a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

# The probability that chance alone changes any statistical finding of one claim, which divides it
# among its comparisons (Bonferroni). With 22 claims at most one run in 454 has a false alarm.
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


@dataclass(frozen=True)
class Finding:
    """A finding is one thing that a computation decides.

    Args:
        role: "core" (what the claim says), "reported" (what numbers say that others published and
            nothing here recomputes), "letter" (what it says if read without conditions) or
            "instead" (what holds in its place, or besides).
        statement: a sentence that is true or false.
        holds: whether it is true, from the numbers.
        basis: what it rests on, computed, toy or published.
    """

    role: str
    statement: str
    holds: bool | np.bool
    basis: str = COMPUTED

    def __post_init__(self) -> None:
        """Make `holds` a plain bool: judges compare NumPy numbers, and JSON knows no `np.bool`."""
        object.__setattr__(self, "holds", bool(self.holds))


# `core(statement, holds)` reads as a sentence in a judge, so the roles are functions.
core, letter, instead = (partial(Finding, role) for role in ("core", "letter", "instead"))
toy_core, toy_letter, toy_instead = (partial(x, basis=TOY) for x in (core, letter, instead))
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
    findings = [finding for part, _ in parts for finding in part]
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


def with_basis(finding: Mapping[str, Any]) -> str:
    """Return the statement of a finding after what it rests on, if it is not computed at large."""
    basis = finding.get("basis", COMPUTED)
    return finding["statement"] if basis == COMPUTED else f"{basis}: {finding['statement']}"


def counted_verdicts(verdicts: Sequence[str]) -> str:
    """Say how many verdicts there are of each kind; of "reported" only where there is one."""
    counts = {v: verdicts.count(v) for v in VERDICTS}
    return ", ".join(f"{n} {v}" for v, n in counts.items() if n or v != "reported")
