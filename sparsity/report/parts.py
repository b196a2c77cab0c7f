"""Pieces of the page: tables, badges, numbers."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

_MARKS = {
    "confirmed": "✓",
    "refined": "±",
    "refuted": "✗",
    "agree": "✓",
    "disagree": "✗",
    "not enough evidence": "?",
    "holds": "✓",
    "fails": "✗",
    "yes": "✓",
    "no": "✗",
}


def badge(verdict: str) -> str:
    """A verdict as a mark and a word; the colour says nothing more."""
    kind, words = escape(verdict.replace(" ", "-")), escape(verdict)
    mark = _MARKS.get(verdict, "")
    return f'<span class="badge {kind}"><span aria-hidden="true">{mark}</span> {words}</span>'


def number(value: Any, digits: int = 6) -> str:
    """A number for reading: few digits, a true minus, powers of ten as superscripts."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return escape(str(value))
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e6):
        text = f"{int(value):,}".replace(",", "\u202f")
        return text.replace("-", "−")
    if not math.isfinite(value):
        return "∞" if value > 0 else "−∞" if value < 0 else "—"
    mantissa, _, power = f"{value:.{digits}g}".partition("e")
    text = mantissa.replace("-", "−")
    return f"{text}\u2009×\u200910<sup>{int(power)}</sup>".replace("-", "−") if power else text


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    label: str,
    numeric: Sequence[int] = (),
    *,
    caption: str = "",
    stacks: bool = False,
) -> str:
    """A table in a container that scrolls by itself.

    Args:
        head: column titles, as HTML; without any of them there is no line of titles.
        rows: cells, as HTML.
        label: what the table is, for who cannot see it.
        numeric: the columns set flush right.
        caption: what stands above it, as HTML.
        stacks: whether a row becomes a card on a narrow screen; the titles are plain text then.
    """

    def cell(tag: str, i: int, content: str) -> str:
        scope = ' scope="col"' if tag == "th" else ""
        kind = ' class="num"' if i in numeric else ""
        told = f' data-title="{head[i]}"' if stacks and tag == "td" else ""
        return f"<{tag}{scope}{kind}{told}>{content}</{tag}>"

    titles = "".join(cell("th", i, content) for i, content in enumerate(head))
    body = "\n".join(
        "<tr>" + "".join(cell("td", i, content) for i, content in enumerate(row)) + "</tr>"
        for row in rows
    )
    above = f"<caption>{caption}</caption>" if caption else ""
    if any(head):
        above += f"<thead><tr>{titles}</tr></thead>\n"
    kind = ' class="stacks"' if stacks else ""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}">'
        f"<table{kind}>{above}<tbody>{body}</tbody></table></div>"
    )


def prose(text: str) -> str:
    """Plain text as HTML: x^2, x^(−1/4), m_p, m_(p−1) and m_{p−1} are raised and lowered."""
    out, at = [], 0
    for found in re.finditer(r"(?<=[^\s^_])([\^_])(?:([({])|(−?[^\W_]+|∞))", text):
        if found.start() < at:
            continue
        tag, end = "sup" if found[1] == "^" else "sub", found.end()
        inner = escape(found[3] or "", quote=False)
        if found[2]:
            end = _closing(text, end)
            inner = prose(text[found.end() : end - 1])
        before = escape(text[at : found.start()], quote=False)
        out.append(f"{before}<{tag}>{inner}</{tag}>")
        at = end
    return "".join(out) + escape(text[at:], quote=False)


def _closing(text: str, at: int) -> int:
    """Where the bracket that was opened before `at` has been closed."""
    depth = 1
    while depth and at < len(text):
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(text[at], 0)
        at += 1
    return at


def mathematics(text: str) -> str:
    """A formula in plain text as HTML: as `prose`, with variables marked for italics.

    A variable is a letter on its own; capital Greek letters, E and words stay upright.
    """
    mark = r"(?<![A-Za-z'’])(?:[B-DF-Zb-z]|A(?! )|a(?! [a-z]{2}))(?![A-Za-z])|[α-ωϵ]"
    pieces = re.split(r"(<[^>]+>|&\w+;)", prose(text.replace("ᵀ", "^(T)")))  # the font has no ᵀ
    return "".join(
        piece if i % 2 else re.sub(mark, r"<i>\g<0></i>", piece) for i, piece in enumerate(pieces)
    )


def details(summary: str, content: str) -> str:
    """A part that opens on demand."""
    return f"<details><summary>{summary}</summary>\n{content}</details>"


def data_link(name: str, content: bytes, kind: str, words: str) -> str:
    """A file inside the page, to save."""
    code = base64.b64encode(content).decode()
    return f'<a download="{escape(name)}" href="data:{kind};base64,{code}">{escape(words)}</a>'


def boxes(facts: Iterable[tuple[str, str]]) -> str:
    """Names and values, both HTML, in boxes side by side."""
    items = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    return f'<dl class="facts">{items}</dl>'


def section(name: str, title: str, content: str) -> str:
    """A part of the page with its heading; `name` is where links lead."""
    return (
        f'<section aria-labelledby="{name}">\n<h2 id="{name}">{title}</h2>\n{content}\n</section>'
    )


def percent(value: float) -> str:
    """A share in percent, two digits."""
    return f"{100 * value:.2g}\u00a0%"
