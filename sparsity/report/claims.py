"""The judged claims on the page: the refuted ones up front, then all with their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from sparsity.report.labels import COLUMNS, GRIDS, ROUGH, words
from sparsity.report.parts import badge, details, mathematics, number, prose, section, table


def _value(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return escape(value)
    if value is None:
        return "—"
    if isinstance(value, (list, tuple)):
        return ", ".join(_value(name, x) for x in value)
    return number(value, 3 if name in ROUGH else 6)


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose mappings are spread out into columns of their own."""
    out: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            out |= {f"{name}: {key}": x for key, x in _flat(value).items()}
        else:
            out[name] = value
    return out


def _head(name: str, claim: str) -> str:
    """The words of a column, also of one that was in a mapping."""
    return prose(": ".join(words(part, claim) for part in name.split(": ")))


def _records(rows: Sequence[Mapping[str, Any]], title: str, claim: str) -> str:
    flat = [_flat(row) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    cells = [[_value(name, row.get(name)) for name in names] for row in flat]
    flush = [
        i
        for i, name in enumerate(names)
        if all(not isinstance(row.get(name), (str, bool, list)) for row in flat)
    ]
    return table([_head(name, claim) for name in names], cells, title, flush, caption=prose(title))


def _column_table(names: Sequence[str], numbers: Mapping[str, Any], claim: str) -> str:
    cells = zip(*([_value(name, x) for x in numbers[name]] for name in names), strict=True)
    title = ", ".join(words(name, claim) for name in names)
    return table([_head(name, claim) for name in names], cells, title, range(len(names)))


def _grid(name: str, numbers: Mapping[str, Any], claim: str) -> str:
    down, across = (numbers[axis] for axis in GRIDS[name])
    corner = " by ".join(words(axis, claim) for axis in GRIDS[name])
    rows = [
        (number(at), *(_value(name, x) for x in line))
        for at, line in zip(down, numbers[name], strict=True)
    ]
    title = words(name, claim)
    head = [prose(corner), *(number(x) for x in across)]
    return table(head, rows, title, range(1, len(head)), caption=prose(title))


def _lines(rows: Mapping[str, Sequence[Any]], title: str, claim: str) -> str:
    """Names, each with a list of its own."""
    cells = [(_head(name, claim), *(_value(name, x) for x in line)) for name, line in rows.items()]
    head = [""] * max(map(len, cells))
    return table(head, cells, title, range(1, len(head)), caption=prose(title))


def _is_line(value: Any) -> bool:
    """Whether it is a list of single values."""
    return isinstance(value, (list, tuple)) and not any(isinstance(x, Mapping) for x in value)


def _taken(numbers: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The groups of lists that are all there and equally long."""
    return [
        names
        for names in COLUMNS
        if all(isinstance(numbers.get(name), (list, tuple)) for name in names)
        and len({len(numbers[name]) for name in names}) == 1
    ]


def tables(numbers: Mapping[str, Any], claim: str = "", title: str = "Numbers") -> str:
    """Nested numbers as tables: single ones as names and values, records and columns as such.

    Args:
        numbers: JSON-ready, by name.
        claim: the key of the claim whose they are.
        title: of the table of single values.
    """
    groups = _taken(numbers)
    grids = [name for name in numbers if name in GRIDS]
    gone = {name for names in groups for name in names} | set(grids)
    gone |= {axis for name in grids for axis in GRIDS[name]}
    single, out = [], [_column_table(names, numbers, claim) for names in groups]
    out += [_grid(name, numbers, claim) for name in grids]
    for name, value in numbers.items():
        if name in gone:
            continue
        inside = list(value.values()) if isinstance(value, Mapping) else value
        if not isinstance(inside, (list, tuple)) or not inside:
            single.append((_head(name, claim), _value(name, value)))
        elif isinstance(value, Mapping):
            lists = all(_is_line(x) for x in inside)
            below = _lines if lists else lambda v, t, c: tables(v, c, t)
            out.append(below(value, words(name, claim), claim))
        elif all(isinstance(x, Mapping) for x in inside):
            out.append(_records(inside, words(name, claim), claim))
        else:
            single.append((_head(name, claim), _value(name, value)))
    if single:
        named = table(["number", "value"], single, title, caption=prose(title))
        out.insert(0, f'<div class="compact">{named}</div>')
    return "\n".join(out)


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
    numbers = f'<div class="numbers">{tables(found["numbers"], record["key"])}</div>'
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
