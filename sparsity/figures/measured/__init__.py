"""Pictures of a measurement: each a short file, and the explicit tuple of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparsity.figures import plotting
from sparsity.figures.measured.context import PICTURE as context
from sparsity.figures.measured.head_law import PICTURE as head_law
from sparsity.figures.measured.laws import PICTURE as laws
from sparsity.figures.measured.maps import PICTURE as maps
from sparsity.figures.measured.record import Picture
from sparsity.figures.measured.row import PICTURE as row
from sparsity.output import csv_text

if TYPE_CHECKING:
    import xarray

__all__ = ["ALL", "Picture", "drawn", "render"]

ALL: tuple[Picture, ...] = (maps, laws, head_law, context, row)


def drawn(data: xarray.Dataset) -> tuple[Picture, ...]:
    """Those that a measurement has the variables for."""
    return tuple(picture for picture in ALL if picture.needs in data)


def render(picture: Picture, data: xarray.Dataset) -> dict[str, bytes]:
    """Its files by suffix: svg, png, csv; the same bytes for the same data."""
    title, subtitle = picture.title(data), picture.subtitle(data)
    draw: Any = picture.draw
    files = plotting.render(draw, data, title, subtitle, picture.size)  # type: ignore[arg-type]
    columns, rows = picture.table(data)
    cells = ([f"{x:.6g}" if isinstance(x, float) else x for x in row] for row in rows)
    return {**files, "csv": csv_text([columns, *cells]).encode()}
