"""Pieces of the page: tables, badges, numbers, and drawings with nothing in them but shapes."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterable, Sequence
from html import escape, unescape
from typing import Any, NoReturn
from xml.parsers import expat

from sparsity.errors import InputError

_MARKS = {
    "confirmed": "✓",
    "refined": "±",
    "reported": "“",
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
    """Return a verdict as a mark and a word; its colour says nothing more."""
    kind, words = escape(verdict.replace(" ", "-")), escape(verdict)
    mark = _MARKS.get(verdict, "")
    return f'<span class="badge {kind}"><span aria-hidden="true">{mark}</span> {words}</span>'


def number(value: Any, digits: int = 6) -> str:
    """Return a number as HTML: few digits, a true minus, powers of ten raised."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return escape(str(value))
    # Whole numbers have thin spaces between thousands; a float of 10⁶ or more is a rounded one, and
    # all its digits would say more than it knows.
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
    """Return a table in a container that scrolls by itself.

    Args:
        head: column titles, as HTML; without any of them there is no line of titles.
        rows: cells, as HTML.
        label: what the table is, for screen readers.
        numeric: the indices of the columns that are set flush right.
        caption: what stands above it, as HTML.
        stacks: whether a row becomes a card on a narrow screen; the titles are plain text then.
    """

    # Where a row becomes a card, the line of titles is hidden and each cell shows its own: the
    # style sheet writes the attribute `data-title` before it.
    def cell(tag: str, i: int, content: str) -> str:
        scope = ' scope="col"' if tag == "th" else ""
        kind = ' class="num"' if i in numeric else ""
        title = f' data-title="{head[i]}"' if stacks and tag == "td" else ""
        return f"<{tag}{scope}{kind}{title}>{content}</{tag}>"

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
    """Return plain text as HTML, in which x^2, x^(−1/4), m_p, m_(p−1) and m_{p−1} are set."""
    # A mark with a space, another mark or nothing before it is left as text. What is raised is
    # either in brackets, which may be nested, or one word with its sign.
    out, at = [], 0
    for found in re.finditer(r"(?<=[^\s^_])([\^_])(?:([({])|(−?[^\W_]+|∞))", text):
        if found.start() < at:
            continue
        tag, end = "sup" if found[1] == "^" else "sub", found.end()
        inner = escape(found[3] or "", quote=False)
        if found[2]:
            end = _find_closing(text, end)
            inner = prose(text[found.end() : end - 1])
        before = escape(text[at : found.start()], quote=False)
        out.append(f"{before}<{tag}>{inner}</{tag}>")
        at = end
    return "".join(out) + escape(text[at:], quote=False)


def _find_closing(text: str, at: int) -> int:
    """Return the place after the bracket that closes the one opened before `at`."""
    depth = 1
    while depth and at < len(text):
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(text[at], 0)
        at += 1
    return at


def mathematics(text: str) -> str:
    """Return a formula as HTML as `prose` does, with variables in italics.

    A variable is a letter on its own; capital Greek letters, E and words stay upright.
    """
    # "A" and "a" are articles where a space and a word follow. Only text between tags and entities
    # is looked at: the pieces at odd places are these.
    mark = r"(?<![A-Za-z'’])(?:[B-DF-Zb-z]|A(?! )|a(?! [a-z]{2}))(?![A-Za-z])|[α-ωϵ]"
    pieces = re.split(r"(<[^>]+>|&\w+;)", prose(text.replace("ᵀ", "^(T)")))  # the font has none
    return "".join(
        piece if i % 2 else re.sub(mark, r"<i>\g<0></i>", piece) for i, piece in enumerate(pieces)
    )


def details(summary: str, content: str) -> str:
    """Return a part of the page that opens on demand."""
    return f"<details><summary>{summary}</summary>\n{content}</details>"


def data_link(name: str, content: bytes, kind: str, words: str) -> str:
    """Return a link that saves a file, whose bytes are inside the page."""
    code = base64.b64encode(content).decode()
    return f'<a download="{escape(name)}" href="data:{kind};base64,{code}">{escape(words)}</a>'


def boxes(facts: Iterable[tuple[str, str]]) -> str:
    """Return names and values, both HTML, in boxes side by side."""
    items = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    return f'<dl class="facts">{items}</dl>'


def section(name: str, title: str, content: str) -> str:
    """Return a section of the page with its heading; links lead to `name`."""
    return (
        f'<section aria-labelledby="{name}">\n<h2 id="{name}">{title}</h2>\n{content}\n</section>'
    )


def percent(value: float) -> str:
    """Return a share in percent, with two digits."""
    return f"{100 * value:.2g}\u00a0%"


# What an inlined drawing may hold. `reproduce --page` reads SVG files from a folder to which others
# may have written, and an SVG can run scripts, fetch files and restyle the page around it. So this
# is a list of what Matplotlib writes: elements, attributes and values that are not on it are
# refused. A list of what is dangerous would have to know every browser.
_NUMBERS = re.compile(r"[0-9eE.,\s+-]*")
_LENGTH = re.compile(r"[0-9eE.+-]+(?:px|pt|%)?")
_PATH = re.compile(r"[MLHVCSQTAZmlhvcsqtaz0-9eE.,\s+-]*")
_TRANSFORM = re.compile(r"(?:(?:matrix|translate|scale|rotate|skewX|skewY)\([0-9eE.,\s+-]*\)\s*)*")
_WORDS = re.compile(r"[\w\s/-]*")
_PNG = re.compile(r"data:image/png;base64,[A-Za-z0-9+/=\s]*")
_RULE = re.compile(r"(#[\w-]+) \*\{[\w\s:;-]*\}")  # Matplotlib's one rule, for all elements
_DECLARATION = re.compile(r"\s*([a-z-]+)\s*:\s*(#[0-9a-fA-F]+|[\w\s.,%+-]*|url\((#[\w.-]+)\))\s*")

_PLAIN = {  # attribute -> all that it may be
    **dict.fromkeys(("x", "y", "width", "height"), _LENGTH),
    "d": _PATH,
    "transform": _TRANSFORM,
    "viewBox": _NUMBERS,
    **dict.fromkeys(("type", "role", "patternUnits", "preserveAspectRatio"), _WORDS),
    "aria-label": re.compile(".*", re.DOTALL),
}
_SHAPES = ("svg", "g", "defs", "path", "rect", "use", "clipPath", "pattern", "image", "style")
_PROPERTIES = {
    *("fill", "fill-opacity", "fill-rule", "opacity", "clip-rule", "image-rendering"),
    *("stroke", "stroke-width", "stroke-opacity", "stroke-linejoin", "stroke-linecap"),
    *("stroke-dasharray", "stroke-dashoffset", "stroke-miterlimit"),
}


class _DrawingCheck:
    """The handlers of an XML parser, which refuse what no drawing has.

    Args:
        prefix: the id of the drawing, with which every id in it begins.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix, self.inside = prefix, ""

    def refuse(self, what: str) -> NoReturn:
        fix = f"holds {what[:60]!r}, which no drawing has; run `sparsity reproduce`"
        raise InputError("svg", self.prefix.removeprefix("svg-"), fix)

    def start(self, element: str, attributes: dict[str, str]) -> None:
        if element not in _SHAPES or self.inside == "style":
            self.refuse(f"<{element}>")
        self.inside = element
        for name, value in attributes.items():
            if not self._is_allowed(element, name, value):
                self.refuse(f"{name}={value}")

    def end(self, element: str) -> None:
        self.inside = ""

    def text(self, words: str) -> None:
        rule = _RULE.fullmatch(words.strip()) if self.inside == "style" else None
        if words.strip() and not (rule and self._leads_inside(rule[1])):
            self.refuse(words.strip())

    def _leads_inside(self, reference: str) -> bool:
        """Tell whether a reference leads into this drawing, not to the page or to another site."""
        return re.fullmatch(rf"#{re.escape(self.prefix)}(-[\w.-]+)?", reference) is not None

    def _is_allowed(self, element: str, name: str, value: str) -> bool:
        if name in _PLAIN:
            return _PLAIN[name].fullmatch(value) is not None
        if name == "id":
            return self._leads_inside(f"#{value}")
        if name == "clip-path":
            return value.startswith("url(") and self._leads_inside(value[4:].removesuffix(")"))
        if name in ("href", "xlink:href"):
            picture = element == "image" and _PNG.fullmatch(value) is not None
            return picture or (name == "href" and self._leads_inside(value))
        return name == "style" and all(map(self._is_declaration, value.rstrip("; ").split(";")))

    def _is_declaration(self, text: str) -> bool:
        """Tell whether a declaration sets a known property to a plain value."""
        found = _DECLARATION.fullmatch(text)
        return not text.strip() or bool(
            found and found[1] in _PROPERTIES and (found[3] is None or self._leads_inside(found[3]))
        )


def _refuse_active(svg: str, prefix: str) -> None:
    """Refuse an SVG that holds anything that no drawing has.

    Raises:
        InputError: it does, and what, or it is no XML.
    """
    # Checked as the XML that it is, after the rewriting: a check by patterns before it could be
    # passed by text that the rewriting turns into something else.
    checked = _DrawingCheck(prefix)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = checked.start, checked.end
    parser.CharacterDataHandler = checked.text
    parser.StartCdataSectionHandler = lambda: checked.refuse("CDATA")
    parser.CommentHandler = lambda text: checked.refuse("<!--")
    parser.ProcessingInstructionHandler = lambda target, data: checked.refuse(f"<?{target}")
    try:
        parser.Parse(svg, True)
    except expat.ExpatError as error:
        checked.refuse(f"{error}")


def described(svg: str) -> str:
    """Return what an SVG file says of itself, as text; "" where it says nothing."""
    found = re.search(r"<dc:description>(.*?)</dc:description>", svg, re.DOTALL)
    return unescape(found[1]) if found else ""


def inline_svg(svg: str, prefix: str, alt: str) -> str:
    """Return an SVG file as an element of the page, with ids and styles of its own.

    Args:
        svg: the file's text.
        prefix: what every id is made to begin with, unique on the page.
        alt: the picture in words.

    Raises:
        InputError: it is no drawing, or holds more than a drawing does.
    """
    # Matplotlib names parts alike in every file (figure_1, patch_2) and has a rule for all
    # elements, `*{...}`. On one page a link by id would lead to the first drawing, and the rule
    # would reach the text.
    svg = svg[max(svg.find("<svg"), 0) :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\sid="([^"]+)"', rf' id="{prefix}-\1"', svg)
    svg = re.sub(r'(?:xlink:)?href="#([^"]+)"', rf'href="#{prefix}-\1"', svg)
    svg = re.sub(r"url\((['\"]?)#([^)'\"]+)\1\)", rf"url(#{prefix}-\2)", svg)
    svg = re.sub(r"(<style[^>]*>)\s*\*", rf"\1#{prefix} *", svg)
    head, _, rest = svg.partition(">")
    box = re.search(r'viewBox="([^"]+)"', head)
    if box is None:
        raise InputError("svg", prefix.removeprefix("svg-"), "has no viewBox; draw it again")
    opening = f'<svg id="{prefix}" viewBox="{box[1]}" role="img" aria-label="{escape(alt)}">'
    drawn = opening + rest.strip()
    _refuse_active(drawn, prefix)
    return drawn
