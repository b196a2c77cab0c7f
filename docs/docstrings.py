"""Docstrings, plain words with names in backticks, as reStructuredText."""

import re

from pages import reference
from sphinx.util import logging

_LOGGER = logging.getLogger(__name__)
_MARKUP = re.compile(r"[|*]|_(?=\W|$)")
_PUBLIC = {
    name.rpartition(".")[2]: f"{part.module}.{name}"
    for part in reversed(reference.ALL)
    for name in part.names
}


def _name(code: str, where: str) -> str:
    """What stands in backticks: a link to what is documented, or code as it is."""
    dotted = code if re.fullmatch(r"sparsity(\.\w+)+", code) else _PUBLIC.get(code)
    if dotted is None:
        return f"``{code}``"
    try:
        reference.found(dotted)
    except (LookupError, AttributeError):
        _LOGGER.warning("%s names %s, which is not there", where, dotted)
    known = dotted in _PUBLIC.values()
    return f":py:obj:`{code} <{dotted}>`" if known else f"``{code}``"


def _plain(text: str, where: str) -> str:
    """Bars, stars and trailing underscores as they stand; names in backticks as links."""
    parts = re.split(r"``?([^`]*)``?", text)
    for k, part in enumerate(parts):
        parts[k] = _name(part, where) if k % 2 else _MARKUP.sub(r"\\\g<0>", part)
    return "".join(parts)


def _returns(lines: list[str]) -> list[str]:
    """`Returns:` and what is indented below it as one field: none of it is a type."""
    out: list[str] = []
    inside = False
    for line in lines:
        if line.strip() == "Returns:":
            inside, field = True, ":returns:"
        elif inside and line.startswith("    "):
            out.append(f"{field} {line.strip()}")
            field = "   "
        else:
            inside = inside and not line
            out.append(line)
    return out


def _examples(lines: list[str]) -> list[str]:
    """Lines set in before the first section as blocks of code, which no rewriting reaches."""
    ends = [k for k, line in enumerate(lines) if re.fullmatch(r"[A-Z]\w+:", line)]
    out: list[str] = []
    for k, line in enumerate(lines):
        code = line.startswith("    ") and k < min(ends, default=len(lines))
        if code and not (out and out[-1].startswith(" ")):
            out += ["::", ""]
        out.append(line)
    return out


def as_rst(app, what, name, obj, options, lines):
    """Rewrite a docstring in place, but for the stars of `**parameters:`, which napoleon reads."""
    blocks = re.split(r"(?m)(^::\n\n(?:    .*\n?)+|^\s*\*{1,2}\w+:)", "\n".join(_examples(lines)))
    parts = [part if k % 2 else _plain(part, name) for k, part in enumerate(blocks)]
    lines[:] = _returns("".join(parts).split("\n"))


def as_in_source(function):
    """Show `**parameters` as the source has it: the names of all kernels' would fill the page."""
    if "__signature__" in getattr(function, "__dict__", {}):
        del function.__signature__


def without_addresses(app, what, name, obj, options, signature, returned):
    """A default that is a function is shown as dots: its address is another in each build."""
    shown = signature and re.sub(r"<(?:[^<>]|<[^<>]*>)*>", "...", signature)
    return shown, returned
