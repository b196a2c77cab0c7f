"""The judged claims on the page: the refuted ones up front, then all with their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from sparsity.claims_ledger.findings import with_basis
from sparsity.claims_ledger.judging import Claim, Legend
from sparsity.report.parts import badge, details, mathematics, number, prose, section, table


def _format_value(name: str, value: Any, legend: Legend) -> str:
    """Return a value of a JSON record as HTML, a list with commas."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return escape(value)
    if value is None:
        return "—"
    if isinstance(value, (list, tuple)):
        return ", ".join(_format_value(name, x, legend) for x in value)
    return number(value, legend.digits(name))


def _flatten(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row in which each mapping is spread out into columns, "NAME: KEY"."""
    out: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            out |= {f"{name}: {key}": x for key, x in _flatten(value).items()}
        else:
            out[name] = value
    return out


def _heading(name: str, legend: Legend) -> str:
    """Return the heading of a column as HTML; of "NAME: KEY" the words of both."""
    return prose(": ".join(legend.words(part) for part in name.split(": ")))


def _table_of_records(rows: Sequence[Mapping[str, Any]], title: str, legend: Legend) -> str:
    """Return a table with a row for each record; a value that is missing is a dash."""
    flat = [_flatten(row) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    cells = [[_format_value(name, row.get(name), legend) for name in names] for row in flat]
    # A column without text or lists is one of numbers, and set flush right.
    flush = [
        i
        for i, name in enumerate(names)
        if all(not isinstance(row.get(name), (str, bool, list)) for row in flat)
    ]
    return table(
        [_heading(name, legend) for name in names], cells, title, flush, caption=prose(title)
    )


def _table_of_columns(names: Sequence[str], numbers: Mapping[str, Any], legend: Legend) -> str:
    """Return lists of one length as a table with a column for each."""
    cells = zip(
        *([_format_value(name, x, legend) for x in numbers[name]] for name in names), strict=True
    )
    title = ", ".join(legend.words(name) for name in names)
    return table([_heading(name, legend) for name in names], cells, title, range(len(names)))


def _table_of_grid(name: str, numbers: Mapping[str, Any], legend: Legend) -> str:
    """Return a list of lists as a table between its two axes, which the legend names."""
    down, across = (numbers[axis] for axis in legend.grids[name])
    corner = " by ".join(legend.words(axis) for axis in legend.grids[name])
    rows = [
        (number(at), *(_format_value(name, x, legend) for x in line))
        for at, line in zip(down, numbers[name], strict=True)
    ]
    title = legend.words(name)
    head = [prose(corner), *(number(x) for x in across)]
    return table(head, rows, title, range(1, len(head)), caption=prose(title))


def _table_of_lists(rows: Mapping[str, Sequence[Any]], title: str, legend: Legend) -> str:
    """Return lists of any lengths as a table with a row for each, its name first."""
    cells = [
        (_heading(name, legend), *(_format_value(name, x, legend) for x in line))
        for name, line in rows.items()
    ]
    head = [""] * max(map(len, cells))
    return table(head, cells, title, range(1, len(head)), caption=prose(title))


def _is_line(value: Any) -> bool:
    """Tell whether a value is a list of single values."""
    return isinstance(value, (list, tuple)) and not any(isinstance(x, Mapping) for x in value)


def _equally_long(numbers: Mapping[str, Any], legend: Legend) -> list[tuple[str, ...]]:
    """Return the legend's groups of lists that are all there and equally long."""
    # The legend of a claim is written for its whole evidence; a record may have a part of it, and
    # lists of different lengths are not columns of one table.
    return [
        names
        for names in legend.columns
        if all(isinstance(numbers.get(name), (list, tuple)) for name in names)
        and len({len(numbers[name]) for name in names}) == 1
    ]


def tables(numbers: Mapping[str, Any], legend: Legend, title: str = "Numbers") -> str:
    """Return nested numbers as tables, by the shape that each has.

    Lists that the legend names as a group become columns of one table, and a grid one between its
    axes. Records become rows, mappings of lists rows, other mappings tables of their own. All
    single values are in one table, which comes first.

    Args:
        numbers: JSON-ready, by name.
        legend: the words for the names.
        title: of the table of single values.
    """
    groups = _equally_long(numbers, legend)
    grids = [name for name in numbers if name in legend.grids]
    gone = {name for names in groups for name in names} | set(grids)
    gone |= {axis for name in grids for axis in legend.grids[name]}
    single, out = [], [_table_of_columns(names, numbers, legend) for names in groups]
    out += [_table_of_grid(name, numbers, legend) for name in grids]
    for name, value in numbers.items():
        if name in gone:
            continue
        inside = list(value.values()) if isinstance(value, Mapping) else value
        several = isinstance(inside, (list, tuple)) and len(inside) > 0
        if several and isinstance(value, Mapping):
            lists = all(_is_line(x) for x in inside)
            below = _table_of_lists if lists else lambda v, t, c: tables(v, c, t)
            out.append(below(value, legend.words(name), legend))
        elif several and all(isinstance(x, Mapping) for x in inside):
            out.append(_table_of_records(inside, legend.words(name), legend))
        else:
            single.append((_heading(name, legend), _format_value(name, value, legend)))
    if single:
        named = table(["number", "value"], single, title, caption=prose(title))
        out.insert(0, f'<div class="compact">{named}</div>')
    return "\n".join(out)


Record = Mapping[str, Any]


def links(claims: Sequence[Record]) -> list[tuple[str, str]]:
    """Return the anchor of each claim, and the line that the contents have for it."""
    return [
        (f"claim-{i}", f"{i}. {record['claim'].rstrip('.')}: {record['verdict']}")
        for i, record in enumerate(claims, 1)
    ]


def _findings_of_role(record: Record, *roles: str) -> list[Mapping[str, Any]]:
    """Return the findings of a claim that have one of some roles."""
    return [f for f in record["evidence"]["findings"] if f["role"] in roles]


def _list_findings(findings: Sequence[Mapping[str, Any]]) -> str:
    """Return findings as a list, each with a badge that says whether it holds."""
    items = (
        f"<li>{badge('holds' if f['holds'] else 'fails')} <span>{prose(with_basis(f))}</span></li>"
        for f in findings
    )
    return f'<ul class="findings">{"".join(items)}</ul>'


def refuted(claims: Sequence[Record]) -> str:
    """Return what was claimed and does not hold, and what holds instead; empty if nothing was."""
    out = []
    for i, record in enumerate(claims, 1):
        if record["verdict"] != "refuted":
            continue
        failing = [f for f in _findings_of_role(record, "core", "reported") if not f["holds"]]
        instead = [f for f in _findings_of_role(record, "instead") if f["holds"]]
        out.append(
            f'<article class="refuted-claim">\n<h3>{badge("refuted")} '
            f"“{prose(record['claim'])}”</h3>\n"
            f'<p class="note">Claimed by {escape(record["source"])}. '
            f'<a href="#claim-{i}">All findings and numbers</a></p>\n'
            f"<h4>What was found</h4>{_list_findings(failing + instead)}\n</article>"
        )
    title = "The refuted claim" if len(out) == 1 else "The refuted claims"
    return f'<h2 id="refuted">{title}</h2>\n' + "\n".join(out) if out else ""


def _table_of_verdicts(claims: Sequence[Record]) -> str:
    """Return the table of all claims with their verdicts, linked to the evidence."""
    rows = [
        (str(i), f'<a href="#claim-{i}">{prose(r["claim"])}</a>', badge(r["verdict"]))
        for i, r in enumerate(claims, 1)
    ]
    verdicts = table(["", "claim", "verdict"], rows, "Claims and verdicts")
    return f'<div class="summary">{verdicts}</div>'


def _claim_article(i: int, record: Record, legend: Legend) -> str:
    """Return one claim with its verdict, findings, proof and numbers."""
    found = record["evidence"]
    findings = (
        f"<h4>Claimed</h4>{_list_findings(_findings_of_role(record, 'core', 'reported', 'letter'))}"
    )
    instead = _findings_of_role(record, "instead")
    if instead:
        findings += f"<h4>Besides, or instead</h4>{_list_findings(instead)}"
    proof = f"<h4>Why</h4><p>{prose(found['proof'])}</p>" if found["proof"] else ""
    numbers = f'<div class="numbers">{tables(found["numbers"], legend)}</div>'
    return (
        f'<article class="claim" id="claim-{i}">\n<h3><span class="text">{i}. '
        f"{prose(record['claim'])}</span> {badge(record['verdict'])}</h3>\n"
        f'<p class="formula">{mathematics(record["formula"])}</p>\n{findings}\n'
        f"{proof}\n"
        f"{details('Numbers', numbers)}\n"
        f'<p class="note">{escape(record["source"])}</p>\n</article>'
    )


def section_of(claims: Sequence[Record], ledger: Sequence[Claim]) -> str:
    """Return the section of the claims: a table of verdicts, then each with its numbers.

    Args:
        claims: their records.
        ledger: the claims that were judged, which say what their numbers are called.
    """
    legends = {claim.key: claim.legend for claim in ledger}
    out = [_table_of_verdicts(claims)]
    if claims:
        out.append(f'<p class="note">A claim is {escape(claims[0]["evidence"]["rule"])}</p>')
    articles = "\n".join(
        _claim_article(i, record, legends.get(record["key"], Legend()))
        for i, record in enumerate(claims, 1)
    )
    out.append(f'<div class="claims">\n{articles}\n</div>')
    return section("claims", "Claims", "\n".join(out))
