"""What a figure is: its words, how its data are computed, and how they are drawn."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure as Canvas

from sparsity.checks import check_budget, check_seed
from sparsity.errors import InputError
from sparsity.sampling import Sampling
from sparsity.series import Series
from sparsity.sweeps.curves import sweep
from sparsity.sweeps.variables import cell_seed

if TYPE_CHECKING:
    import xarray

# Of a point. Draws grow like the inverse square of the error: each point costs 10,000 times what it
# does at the default.
MIN_REL_ERROR = 1e-5


Data = tuple[Series, ...]


@dataclass(frozen=True)
class Context:
    """How the points are sampled.

    Args:
        seed: of everything sampled.
        rel_error: relative standard error to reach in each point, from `MIN_REL_ERROR` to 1.
    """

    seed: int = 0
    rel_error: float = 1e-3

    def __post_init__(self) -> None:
        """Check both before anything is computed.

        Raises:
            InputError: a value outside its domain.
        """
        check_seed(self.seed)
        check_budget(self.rel_error, math.inf)
        if self.rel_error < MIN_REL_ERROR:
            fix = f"takes hours for all points; give {MIN_REL_ERROR:g} or more"
            raise InputError("rel_error", self.rel_error, fix)

    def sample(self, kernel: str, **grids: Any) -> xarray.Dataset:
        """Return a sweep with Monte Carlo in every cell."""
        return sweep(kernel, montecarlo=True, seed=self.seed, rel_error=self.rel_error, **grids)

    def sampling(self, *stream: Any, rel_error: float = 0.0) -> Sampling:
        """Return settings for float32 draws from the stream of some names.

        Args:
            *stream: what tells these draws from all others.
            rel_error: the least error to ask for; a whole row is one draw and costs accordingly.
        """
        # The rounding of float32, 6e−8, is far below the least error that can be asked for.
        to = max(self.rel_error, rel_error)
        return Sampling(to, seed=cell_seed(self.seed, *stream), dtype=np.float32)


@dataclass(frozen=True)
class Figure:
    """One figure of the set.

    Args:
        name: of its files.
        title: the finding.
        subtitle: against what, and what is shown, one line.
        caption: what it shows and how it was computed.
        alt: the picture in words, for readers who cannot see it.
        data: computes everything that is drawn.
        draw: draws it, and computes nothing.
        size: width and height in inches.
    """

    name: str
    title: str
    subtitle: str
    caption: str
    alt: str
    data: Callable[[Context], Data]
    draw: Callable[[Data, Canvas], None]
    size: tuple[float, float] = (7.2, 4.6)

    def __repr__(self) -> str:
        return f"Figure({self.name!r}: {self.title})"

    @classmethod
    def from_docstring(
        cls, docstring: str | None, name: str, data: Any, draw: Any, **size: Any
    ) -> Figure:
        """Return the figure with the words of a docstring: title, subtitle, caption and alt text.

        Each is a paragraph. The docstring is that of a module with one figure, or of what draws it.
        """
        text = inspect.cleandoc(docstring) if docstring else "\n\n" * 3  # none under python -OO
        paragraphs = text.split("\n\n")
        title, subtitle, caption, alt = (" ".join(x.strip().split("\n")) for x in paragraphs)
        alt = alt.removeprefix("Alt text: ")
        return cls(name, title, subtitle, caption, alt, data, draw, **size)


@dataclass(frozen=True, repr=False)
class Plate:
    """A figure that was drawn: its words, as in `Figure`, and the contents of its files.

    Args:
        files: suffix ("svg", "png", "csv") -> contents.
    """

    name: str
    title: str
    caption: str
    alt: str
    files: Mapping[str, bytes]

    def __repr__(self) -> str:
        """Describe the picture in words."""
        return f"{self.title}. {self.alt}"

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """Return what a notebook shows, trusted or not, at half its pixels so that it is sharp."""
        # A PNG has its width in bytes 16 to 19.
        png = self.files["png"]
        return png, {"width": int.from_bytes(png[16:20], "big") // 2}
