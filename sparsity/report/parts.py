"""Pieces of the page: tables, badges, numbers, inlined figures."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterable, Mapping, Sequence
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
}


def badge(verdict: str) -> str:
    """A verdict as a mark and a word; the colour says nothing more."""
    kind = verdict.replace(" ", "-")
    mark = _MARKS.get(verdict, "")
    return f'<span class="badge {kind}"><span aria-hidden="true">{mark}</span> {verdict}</span>'


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
    head: Sequence[str], rows: Iterable[Sequence[str]], label: str, numeric: Sequence[int] = ()
) -> str:
    """A table in a container that scrolls by itself.

    Args:
        head: column titles, as HTML.
        rows: cells, as HTML.
        label: what the table is, for who cannot see it.
        numeric: the columns set flush right.
    """

    def cell(tag: str, i: int, content: str) -> str:
        scope = ' scope="col"' if tag == "th" else ""
        kind = ' class="num"' if i in numeric else ""
        return f"<{tag}{scope}{kind}>{content}</{tag}>"

    titles = "".join(cell("th", i, content) for i, content in enumerate(head))
    body = "\n".join(
        "<tr>" + "".join(cell("td", i, content) for i, content in enumerate(row)) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(label)}"><table>'
        f"<thead><tr>{titles}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )


def prose(text: str) -> str:
    """Plain text as HTML: x^2, x^(−1/4), m_p and m_(p−1) become superscripts and subscripts."""
    for mark, tag in (("\\^", "sup"), ("_", "sub")):
        grouped = rf"\1<{tag}>\2</{tag}>"
        text = re.sub(
            rf"([^\s<>]){mark}\(([^()]*)\)", grouped, escape(text) if tag == "sup" else text
        )
        text = re.sub(rf"([^\s<>]){mark}(−?\w+)", grouped, text)
    return text


def details(summary: str, content: str) -> str:
    """A part that opens on demand."""
    return f"<details><summary>{summary}</summary>\n{content}</details>"


def evidence(value: Any, label: str = "evidence") -> str:
    """Nested JSON-ready data: mappings as lists of terms, lists of mappings as tables."""
    if isinstance(value, Mapping):
        items = "".join(
            f"<dt>{escape(_words(key))}</dt><dd>{evidence(x, key)}</dd>" for key, x in value.items()
        )
        return f"<dl>{items}</dl>"
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(x, Mapping) for x in value):
            keys = list(value[0])
            rows = [[evidence(x.get(key, ""), key) for key in keys] for x in value]
            flush = [i for i, key in enumerate(keys) if isinstance(value[0][key], (int, float))]
            return table([escape(_words(key)) for key in keys], rows, _words(label), flush)
        return ", ".join(evidence(x) for x in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value, 3 if label in _ROUGH else 6)


_ROUGH = ("z", "critical", "largest_abs_z", "stderr", "smallest_detectable")
_SYMBOLS = {"beta": "β", "gamma": "γ", "sigma": "σ", "dim": "d", "decay": "λ", "dims": "d"}


def _words(key: str) -> str:
    return _SYMBOLS.get(key, key.replace("_", " "))


def inline_svg(svg: str, prefix: str, alt: str) -> str:
    """An SVG file as an element of the page: its ids made its own, its styles kept inside.

    Args:
        svg: the file's text.
        prefix: of every id, unique on the page.
        alt: the picture in words.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\sid="([^"]+)"', rf' id="{prefix}-\1"', svg)
    svg = re.sub(r'(?:xlink:)?href="#([^"]+)"', rf'href="#{prefix}-\1"', svg)
    svg = re.sub(r"url\((['\"]?)#([^)'\"]+)\1\)", rf"url(#{prefix}-\2)", svg)
    svg = re.sub(r"(<style[^>]*>)\s*\*", rf"\1#{prefix} *", svg)
    head, rest = svg.split(">", 1)
    box = re.search(r'viewBox="([^"]+)"', head)
    if box is None:
        raise ValueError("the SVG has no viewBox")
    opening = f'<svg id="{prefix}" viewBox="{box[1]}" role="img" aria-label="{escape(alt)}">'
    return opening + rest.strip()


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
