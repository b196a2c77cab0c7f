"""Values as tables for people: a line of few digits, HTML for a notebook, a pandas frame."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas

# Of a table that a notebook shows: with more it fills the screen. A frame has all rows.
_MAX_ROWS_SHOWN = 20


def brief(value: Any) -> str:
    """Return a number in few digits; of several the first, the last and how many."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        return str(value)
    if array.ndim == 0:
        return f"{array.item():.6g}"
    if not array.size:
        return "no values"
    first, last = (f"{x:.6g}" for x in (array.flat[0], array.flat[-1]))
    return f"{first} … {last} ({' × '.join(map(str, array.shape))} values)"


def html_table(
    head: Sequence[str],
    rows: Iterable[Sequence[Any]],
    caption: str = "",
    most: int = _MAX_ROWS_SHOWN,
) -> str:
    """Return an HTML table in which everything is escaped: text of a user comes here.

    Args:
        head: the titles of the columns.
        rows: cells, numbers or text; those beyond `most` are counted, not shown.
        caption: what stands above the table; empty for nothing.
        most: how many rows are shown.
    """
    # A title is aligned as the cell below it, hence the look at the first row.
    rows = list(rows)
    first = rows[0] if rows else head
    cells = [_cell(title, "th", below) for title, below in zip(head, first, strict=True)]
    lines = ["<table>", *([f"<caption>{html.escape(caption)}</caption>"] if caption else [])]
    lines.append(f"<thead><tr>{''.join(cells)}</tr></thead><tbody>")
    lines += ["<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows[:most]]
    lines.append("</tbody></table>")
    if len(rows) > most:
        lines.append(f"<p>{most} of {len(rows)} rows; all with to_dataframe()</p>")
    return "\n".join(lines)


def _cell(value: Any, tag: str = "td", like: Any = None) -> str:
    """Return one cell, aligned as its value is, or as another one."""
    text = brief(value) if _is_number(value) else str(value)
    side = "right" if _is_number(value if like is None else like) else "left"
    return f'<{tag} style="text-align:{side}">{html.escape(text)}</{tag}>'


def _is_number(value: Any) -> bool:
    """Tell a number from text; to Python a bool is an int."""
    return isinstance(value, (float, int, np.number)) and not isinstance(value, bool)


def data_frame(columns: Mapping[str, Any]) -> pandas.DataFrame:
    """Return columns as a pandas frame: arrays of one shape are flattened, numbers repeated."""
    import pandas

    return pandas.DataFrame(_flattened(columns))


def rows_of(columns: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return columns as rows of plain values, flattened as in `data_frame`."""
    return list(zip(*(v.tolist() for v in _flattened(columns).values()), strict=True))


def _flattened(columns: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return columns of one length, by NumPy's rule of shapes: a method beside 50 values is 50."""
    shape = np.broadcast_shapes(*(np.shape(value) for value in columns.values()))
    return {k: np.broadcast_to(np.asarray(v), shape).ravel() for k, v in columns.items()}
