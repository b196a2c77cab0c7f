"""The judged claims on the page: all of them with their numbers, and the refuted ones up front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from sparsity.report import evidence
from sparsity.report.parts import badge, details, mathematics, prose, section, table

Record = Mapping[str, Any]


def links(claims: Sequence[Record]) -> list[tuple[str, str]]:
    """Where each claim stands, and what the contents say of it."""
    return [
        (f"claim-{i}", f"{i}. {record['claim'].rstrip('.')}: {record['verdict']}")
        for i, record in enumerate(claims, 1)
    ]


def _of_role(record: Record, *roles: str) -> list[Mapping[str, Any]]:
    return [f for f in record["evidence"]["findings"] if f["role"] in roles]


def _findings(findings: Sequence[Mapping[str, Any]]) -> str:
    items = (
        f"<li>{badge('holds' if f['holds'] else 'fails')} <span>{prose(f['statement'])}</span></li>"
        for f in findings
    )
    return f'<ul class="findings">{"".join(items)}</ul>'


def refuted(claims: Sequence[Record]) -> str:
    """What was claimed and is not so, and what is so in its place."""
    out = []
    for i, record in enumerate(claims, 1):
        if record["verdict"] != "refuted":
            continue
        failing = [f for f in _of_role(record, "core") if not f["holds"]]
        instead = [f for f in _of_role(record, "instead") if f["holds"]]
        out.append(
            f'<article class="refuted-claim">\n<h3>{badge("refuted")} '
            f"“{prose(record['claim'])}”</h3>\n"
            f'<p class="note">Claimed by {escape(record["source"])}. '
            f'<a href="#claim-{i}">All findings and numbers</a></p>\n'
            f"<h4>What was found</h4>{_findings(failing + instead)}\n</article>"
        )
    title = "The refuted claim" if len(out) == 1 else "The refuted claims"
    return f'<h2 id="refuted">{title}</h2>\n' + "\n".join(out) if out else ""


def _summary(claims: Sequence[Record]) -> str:
    rows = [
        (str(i), f'<a href="#claim-{i}">{prose(r["claim"])}</a>', badge(r["verdict"]))
        for i, r in enumerate(claims, 1)
    ]
    verdicts = table(["", "claim", "verdict"], rows, "Claims and verdicts")
    return f'<div class="summary">{verdicts}</div>'


def _article(i: int, record: Record) -> str:
    found = record["evidence"]
    findings = f"<h4>Claimed</h4>{_findings(_of_role(record, 'core', 'letter'))}"
    instead = _of_role(record, "instead")
    if instead:
        findings += f"<h4>Besides, or instead</h4>{_findings(instead)}"
    proof = f"<h4>Why</h4><p>{prose(found['proof'])}</p>" if found["proof"] else ""
    numbers = f'<div class="numbers">{evidence.tables(found["numbers"], record["key"])}</div>'
    return (
        f'<article class="claim" id="claim-{i}">\n<h3><span class="text">{i}. '
        f"{prose(record['claim'])}</span> {badge(record['verdict'])}</h3>\n"
        f'<p class="formula">{mathematics(record["formula"])}</p>\n{findings}\n{proof}\n'
        f"{details('Numbers', numbers)}\n"
        f'<p class="note">{escape(record["source"])}</p>\n</article>'
    )


def section_of(claims: Sequence[Record]) -> str:
    """The judged claims: a table of verdicts, then each with its findings and numbers."""
    out = [_summary(claims)]
    if claims:
        out.append(f'<p class="note">A claim is {escape(claims[0]["evidence"]["rule"])}</p>')
    articles = "\n".join(_article(i, record) for i, record in enumerate(claims, 1))
    out.append(f'<div class="claims">\n{articles}\n</div>')
    return section("claims", "Claims", "\n".join(out))
