"""How results are shown: a short line, an HTML table, a pandas frame. Text of a user is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas

_ROWS = 20  # of a table that is shown; a frame has all


def brief(value: Any, digits: int = 6) -> str:
    """A number in few digits; of several the first, the last and how many."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        return str(value)
    if array.ndim == 0:
        return f"{array.item():.{digits}g}"
    if not array.size:
        return "no values"
    first, last = (f"{x:.{digits}g}" for x in (array.flat[0], array.flat[-1]))
    return f"{first} … {last} ({' × '.join(map(str, array.shape))} values)"


def table(
    head: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = "", most: int = _ROWS
) -> str:
    """An HTML table; everything in it is escaped.

    Args:
        head: of the columns.
        rows: cells, numbers or text; those beyond `most` are counted, not shown.
        caption: above the table.
        most: rows that are shown.
    """
    every = list(rows)
    below = every[0] if every else head
    cells = [_cell(each, "th", like) for each, like in zip(head, below, strict=True)]
    lines = ["<table>"]
    if caption:
        lines.append(f"<caption>{html.escape(caption)}</caption>")
    lines.append(f"<thead><tr>{''.join(cells)}</tr></thead><tbody>")
    for row in every[:most]:
        lines.append("<tr>" + "".join(_cell(each) for each in row) + "</tr>")
    lines.append("</tbody></table>")
    if len(every) > most:
        lines.append(f"<p>{most} of {len(every)} rows; all with to_dataframe()</p>")
    return "\n".join(lines)


def _cell(value: Any, tag: str = "td", like: Any = None) -> str:
    """One cell, aligned as what it is, or as another value is."""
    text = brief(value) if _is_number(value) else str(value)
    side = "right" if _is_number(value if like is None else like) else "left"
    return f'<{tag} style="text-align:{side}">{html.escape(text)}</{tag}>'


def _is_number(value: Any) -> bool:
    return isinstance(value, (float, int, np.number)) and not isinstance(value, bool)


def frame(columns: Mapping[str, Any]) -> pandas.DataFrame:
    """The columns as a pandas frame; arrays of one shape, flattened, and single values repeated."""
    import pandas

    shape = np.broadcast_shapes(*(np.shape(value) for value in columns.values()))
    flat = {k: np.broadcast_to(np.asarray(v), shape).ravel() for k, v in columns.items()}
    return pandas.DataFrame(flat)


def rows_of(columns: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The same as rows of plain values."""
    shape = np.broadcast_shapes(*(np.shape(value) for value in columns.values()))
    flat = [np.broadcast_to(np.asarray(v), shape).ravel().tolist() for v in columns.values()]
    return list(zip(*flat, strict=True))
