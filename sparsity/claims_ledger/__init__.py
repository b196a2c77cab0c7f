"""Claims of papers, judged by computation: the explicit tuple of all, as records and as a table.

A claim is data (`judging.Claim`): its source, statement, formula and proof, the judge that decides
it and the labels that say what its numbers are called. A module holds the judges of a few claims
and, at its end, the claims themselves. A judge takes its quantities from routes, so that a test can
plant wrong ones, and returns findings and numbers; the verdict follows by one rule.

    routes (evaluate, exact, estimate, derive, stacks) ── judge ── findings ── verdict ─┐
    article, sinks, coca: the claims by source             └── numbers + labels ────────┴── record

A finding says what it rests on where that is not a computation at large: "toy" or "published".
Claims of other sources, and what trained models say, are judged in the folder `experiments/` beside
the package.
"""

from __future__ import annotations

import operator
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sparsity.calls import did_you_mean, public
from sparsity.checks import check_executor, check_progress, check_seed
from sparsity.claims_ledger import (
    article_linear,
    article_matrices,
    article_scores,
    coca_forms,
    coca_positions,
    sinks_context,
    sinks_mixing,
)
from sparsity.claims_ledger.findings import counted_verdicts, with_basis
from sparsity.claims_ledger.judging import Claim
from sparsity.errors import InputError
from sparsity.tables import data_frame, html_table
from sparsity.tasks import TaskExecutor, run_all_tasks

if TYPE_CHECKING:
    import pandas

__all__ = ["ALL", "Records", "claims", "table"]

ALL: tuple[Claim, ...] = (
    *(*article_scores.CLAIMS, *article_linear.CLAIMS, *article_matrices.CLAIMS),
    *(*sinks_mixing.CLAIMS, *sinks_context.CLAIMS),
    *(*coca_positions.CLAIMS, *coca_forms.CLAIMS),
)


class Records(list[dict[str, Any]]):
    """The records of judged claims are a list that a notebook shows as a table."""

    def __repr__(self) -> str:
        return f"<{_counted(self)}>"

    def to_dataframe(self) -> pandas.DataFrame:
        """Return one row a claim, without the evidence."""
        names = ("key", "source", "claim", "formula", "verdict", "explanation")
        return data_frame({n: [str(record[n]) for record in self] for n in names})

    def _repr_html_(self) -> str:
        """Return the claims with their verdicts; of one claim its findings."""
        if len(self) == 1:
            (record,) = self
            rows = [_marked(finding) for finding in record["evidence"]["findings"]]
            head = (record["verdict"], record["claim"])
            return html_table(head, rows, f"{record['source']}: {record['formula']}", len(rows))
        head = ("verdict", "claim", "formula", "explanation", "source")
        rows = [[record[name] for name in head] for record in self]
        return html_table(head, rows, _counted(self), most=len(rows))


def _marked(finding: Mapping[str, Any]) -> list[str]:
    """Return whether a finding holds, as a word, and its statement after what it rests on."""
    return ["holds" if finding["holds"] else "fails", with_basis(finding)]


def _counted(records: Sequence[Mapping[str, Any]]) -> str:
    """Say how many records have which verdict."""
    total = counted_verdicts([record["verdict"] for record in records])
    return f"{len(records)} claim{'' if len(records) == 1 else 's'}: {total}"


@public
def claims(
    *keys: str,
    seed: int = 0,
    executor: TaskExecutor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Records:
    """Judge every claim, or those of the keys that are given, `claims("softmax-gap")`.

    Args:
        *keys: of claims, as their records have them; none for all.
        seed: the seed of the statistical evidence; the same seed gives the same records.
        executor: where claims are judged, as in `sweep`; None for this process.
        progress: called with (claims done, claims in all).

    Returns:
        A list, shown as a table in a notebook, of JSON-ready records {"key", "source", "claim",
        "formula", "verdict", "explanation", "evidence"}; the verdict, "confirmed", "refined",
        "reported" or "refuted", follows from the evidence. One alone is shown with its findings.

    Raises:
        InputError: there is no claim of that key.
    """
    seed = check_seed(seed)
    check_progress(progress)
    check_executor(executor)
    known = {claim.key: claim for claim in ALL}
    for key in keys:
        if key not in [*known]:  # a list of keys is none, and has no hash
            others = "of other sources: `python -m experiments rules`"
            fix = did_you_mean(str(key), known) or f"choose one of {', '.join(known)}; {others}"
            raise InputError("key", key, fix)
    asked = [known[key] for key in keys] or [*ALL]
    # Not a lambda: other processes get the function by pickle. An executor ends the claims in any
    # order; their numbers bring them back into that of `asked`.
    judge = operator.methodcaller("record", seed=seed)
    records = dict(run_all_tasks(judge, asked, executor, progress))
    return Records(records[i] for i in range(len(asked)))


def table(records: Sequence[Mapping[str, Any]], width: int = 96) -> str:
    """Return the records as text: verdict, key, claim, and each finding with whether it holds.

    Args:
        records: what `claims` returned.
        width: the most characters of a line.
    """
    lines = []
    for record in records:
        lines.append(f"{record['verdict'].upper():<10}  {record['key']}")
        lines += _wrapped(" " * 12, record["claim"], width)
        lines += _wrapped(" " * 12, record["formula"], width)
        for finding in record["evidence"]["findings"]:
            mark, statement = _marked(finding)
            lines += _wrapped(" " * 12 + f"{mark}  ", statement, width)
        lines.append("")
    return "\n".join([*lines, *_wrapped("", _counted(records), width)]) + "\n"


def _wrapped(head: str, text: str, width: int) -> list[str]:
    # Formulas are long words without a space to break at: they stay whole, so that they can be
    # copied, and may be wider than the width.
    return textwrap.wrap(
        text, width, initial_indent=head, subsequent_indent=" " * len(head), break_long_words=False
    )


def __dir__() -> list[str]:
    return sorted(__all__)
