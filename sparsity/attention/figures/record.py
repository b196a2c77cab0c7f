"""The record of a picture of a measurement, and the choice of the runs and rows that it shows."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparsity import plotting
from sparsity.attention.measurement import tables
from sparsity.output import csv_text

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure as Canvas

Rows = tuple[Sequence[str], Iterable[Sequence[Any]]]


@dataclass(frozen=True)
class Picture:
    """A picture of a measurement.

    Args:
        name: the name of its files, without a suffix.
        title: (data) -> the finding, with its numbers.
        subtitle: (data) -> what is shown, one line.
        caption: what to see and how it was computed.
        alt: the picture in words, for those who do not see it.
        draw: (data, canvas) -> None; it draws everything but title and subtitle.
        table: (data) -> (columns, rows) of the numbers that are drawn.
        size: width and height in inches.
        needs: a variable of the dataset without which there is nothing to draw.
        colours: whether a colour on it is a value, as in a heat map.
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
    colours: bool = False

    def render(self, data: xarray.Dataset) -> dict[str, bytes]:
        """Return the picture's files by suffix, svg, png and csv: same data, same bytes."""
        title, subtitle = self.title(data), self.subtitle(data)
        draw: Any = self.draw
        files = plotting.render(draw, data, title, subtitle, self.size)  # type: ignore[arg-type]
        columns, rows = self.table(data)
        # Six digits: the last ones of a sum differ between machines, and files would with them.
        cells = ([f"{x:.6g}" if isinstance(x, float) else x for x in row] for row in rows)
        return {**files, "csv": csv_text([columns, *cells]).encode()}

    def of(self, data: xarray.Dataset) -> Drawn:
        """Return the picture of a measurement, as a notebook shows it."""
        return Drawn(self.render(data)["png"], self.alt)


@dataclass(frozen=True)
class Drawn:
    """A picture that was drawn, for notebooks.

    Args:
        png: the content of the file.
        alt: the picture in words.
    """

    png: bytes
    alt: str

    def __repr__(self) -> str:
        """Return the picture in words."""
        return self.alt

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """Return the picture in 128 colours, so that it stays small in a notebook's file."""
        from PIL import Image

        image, small = Image.open(io.BytesIO(self.png)).convert("RGB"), io.BytesIO()
        palette = image.convert("RGB").quantize(128, Image.Quantize.MAXCOVERAGE)  # keeps thin lines
        palette.save(small, "png", optimize=True)
        return small.getvalue(), {"width": image.width // 2}


def plain(data: xarray.Dataset) -> xarray.Dataset:
    """Return the runs without BOS, or those there are: they are the first where both were made."""
    return data.isel(bos=0)


def longest(data: xarray.Dataset) -> xarray.Dataset:
    """Return the rows in the second half of the longest context."""
    return tables.rows_at(data, int(data["context"][-1]))


def words(data: xarray.Dataset) -> str:
    """Return the model and its texts in a few words."""
    count, T = data.sizes["text"], int(data["context"][-1])
    return f"{data.attrs['model']}, {count} text{'s' * (count > 1)} of {T} tokens"
