"""An SVG file as a part of the page: nothing in it but what a drawing is made of.

The files of a run may have been in other hands. What Matplotlib writes is a short list of elements
and attributes; anything else, such as a script, an event, a link or an import, is refused.
"""

from __future__ import annotations

import re
from html import escape
from typing import NoReturn
from xml.parsers import expat

from sparsity.errors import InputError

_NUMBERS = re.compile(r"[0-9eE.,\s+-]*")
_LENGTH = re.compile(r"[0-9eE.+-]+(?:px|pt|%)?")
_PATH = re.compile(r"[MLHVCSQTAZmlhvcsqtaz0-9eE.,\s+-]*")
_TRANSFORM = re.compile(r"(?:(?:matrix|translate|scale|rotate|skewX|skewY)\([0-9eE.,\s+-]*\)\s*)*")
_WORDS = re.compile(r"[\w\s/-]*")
_PNG = re.compile(r"data:image/png;base64,[A-Za-z0-9+/=\s]*")
_RULE = re.compile(r"(#[\w-]+) \*\{[\w\s:;-]*\}")  # what Matplotlib sets for all elements
_DECLARATION = re.compile(r"\s*([a-z-]+)\s*:\s*(#[0-9a-fA-F]+|[\w\s.,%+-]*|url\((#[\w.-]+)\))\s*")

_PLAIN = {  # attribute -> all that it may be
    **dict.fromkeys(("x", "y", "width", "height"), _LENGTH),
    "d": _PATH,
    "transform": _TRANSFORM,
    "viewBox": _NUMBERS,
    **dict.fromkeys(("type", "role", "patternUnits", "preserveAspectRatio"), _WORDS),
    "aria-label": re.compile(".*", re.DOTALL),
}
_REFERS = ("href", "clip-path", "style")  # looked at by what they lead to
_SHAPES = ("svg", "g", "defs", "path", "rect", "use", "clipPath", "pattern", "image", "style")
_PROPERTIES = {
    *("fill", "fill-opacity", "fill-rule", "opacity", "clip-rule", "image-rendering"),
    *("stroke", "stroke-width", "stroke-opacity", "stroke-linejoin", "stroke-linecap"),
    *("stroke-dasharray", "stroke-dashoffset", "stroke-miterlimit"),
}


class _Checked:
    """Handlers of a parser that refuse what no drawing has."""

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
            if not self._fits(element, name, value):
                self.refuse(f"{name}={value}")

    def end(self, element: str) -> None:
        self.inside = ""

    def text(self, words: str) -> None:
        rule = _RULE.fullmatch(words.strip()) if self.inside == "style" else None
        if words.strip() and not (rule and self._own(rule[1])):
            self.refuse(words.strip())

    def _own(self, reference: str) -> bool:
        """Whether it leads into this very drawing."""
        return re.fullmatch(rf"#{re.escape(self.prefix)}(-[\w.-]+)?", reference) is not None

    def _fits(self, element: str, name: str, value: str) -> bool:
        if name in _PLAIN:
            return _PLAIN[name].fullmatch(value) is not None
        if name == "id":
            return self._own(f"#{value}")
        if name == "clip-path":
            return value.startswith("url(") and self._own(value[4:].removesuffix(")"))
        if name in ("href", "xlink:href"):
            picture = element == "image" and _PNG.fullmatch(value) is not None
            return picture or (name == "href" and self._own(value))
        return name == "style" and all(map(self._declared, value.rstrip("; ").split(";")))

    def _declared(self, text: str) -> bool:
        """Whether it is a declaration of a known property, with a plain value."""
        found = _DECLARATION.fullmatch(text)
        return not text.strip() or bool(
            found and found[1] in _PROPERTIES and (found[3] is None or self._own(found[3]))
        )


def _refuse_active(svg: str, prefix: str) -> None:
    """Refuse anything that is not of a drawing.

    Raises:
        InputError: such a thing, named.
    """
    checked = _Checked(prefix)
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


def inline_svg(svg: str, prefix: str, alt: str) -> str:
    """An SVG file as an element of the page: its ids made its own, its styles kept inside.

    Args:
        svg: the file's text.
        prefix: of every id, unique on the page.
        alt: the picture in words.

    Raises:
        InputError: it is no drawing, or holds more than a drawing does.
    """
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
