"""Pictures of a measurement, and the explicit tuple of all.

A `Picture` (`record`) names what it draws and has a table of the same numbers. `heads` has maps of
all heads, one row and the change with the context; `laws` holds measured S against laws.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparsity.attention.figures.heads import CONTEXT_PICTURE as context
from sparsity.attention.figures.heads import MAPS_PICTURE as maps
from sparsity.attention.figures.heads import ROW_PICTURE as row
from sparsity.attention.figures.laws import HEAD_LAW_PICTURE as head_law
from sparsity.attention.figures.laws import LAWS_PICTURE as laws
from sparsity.attention.figures.record import Picture

if TYPE_CHECKING:
    import xarray

__all__ = ["ALL", "Picture", "context", "drawn", "head_law", "laws", "maps", "row"]

ALL: tuple[Picture, ...] = (maps, laws, head_law, context, row)


def drawn(data: xarray.Dataset) -> tuple[Picture, ...]:
    """Return the pictures that a measurement has the variables for."""
    return tuple(picture for picture in ALL if picture.needs in data)


def __dir__() -> list[str]:
    return sorted(__all__)
