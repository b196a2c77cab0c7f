"""What a picture of a measurement is, and the runs and rows that it is drawn from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparsity.measurement import tables

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure as Canvas

Rows = tuple[Sequence[str], Iterable[Sequence[Any]]]


@dataclass(frozen=True)
class Picture:
    """One picture of a measurement.

    Args:
        name: of its files.
        title: (data) -> the finding, with its numbers.
        subtitle: (data) -> what is shown, one line.
        caption: what to see and how it was computed.
        alt: the picture in words.
        draw: (data, canvas) -> None.
        table: (data) -> (columns, rows), what is drawn.
        size: width and height in inches.
        needs: a variable without which there is nothing to draw.
    """

    name: str
    title: Callable[[xarray.Dataset], str]
    subtitle: Callable[[xarray.Dataset], str]
    caption: str
    alt: str
    draw: Callable[[xarray.Dataset, Canvas], None]
    table: Callable[[xarray.Dataset], Rows]
    size: tuple[float, float] = (7.2, 4.6)
    needs: str = "gamma"


def plain(data: xarray.Dataset) -> xarray.Dataset:
    """The runs without BOS, or those there are."""
    return data.isel(bos=0)


def longest(data: xarray.Dataset) -> xarray.Dataset:
    """Rows of the longest context."""
    return tables.rows_at(data, int(data["context"][-1]))


def words(data: xarray.Dataset) -> str:
    """The model and its texts."""
    count, T = data.sizes["text"], int(data["context"][-1])
    return f"{data.attrs['model']}, {count} text{'s' * (count > 1)} of {T} tokens"
