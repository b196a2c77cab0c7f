"""Numbers as text, in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as they need; the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *rest = (
            text.ljust(width) if i == 0 else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join([first, *rest]).rstrip()


def seconds(value: float) -> str:
    """In the unit that fits."""
    for unit, scale in (("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)):
        if value < 1000 * scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.1e} s"
