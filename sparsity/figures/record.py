"""What a figure is: its finding, its words, its data, and how the data are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure as Canvas

from sparsity.arguments import check_budget, check_seed
from sparsity.figures.series import Series
from sparsity.sweeps.curves import sweep

if TYPE_CHECKING:
    import xarray

Data = tuple[Series, ...]


@dataclass(frozen=True)
class Context:
    """How the points are sampled.

    Args:
        seed: of everything sampled.
        rel_error: relative standard error to reach in each point.
    """

    seed: int = 0
    rel_error: float = 1e-3

    def __post_init__(self) -> None:
        """Check them before anything is computed.

        Raises:
            InputError: a value outside its domain.
        """
        check_seed(self.seed)
        check_budget(self.rel_error, math.inf)

    def sample(self, kernel: str, **grids: Any) -> xarray.Dataset:
        """A sweep with Monte Carlo in every cell."""
        return sweep(kernel, montecarlo=True, seed=self.seed, rel_error=self.rel_error, **grids)


@dataclass(frozen=True)
class Figure:
    """One figure of the set.

    Args:
        name: of its files.
        title: the finding.
        subtitle: what is shown, one line.
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
    draw: Callable[[Sequence[Series], Canvas], None]
    size: tuple[float, float] = (7.2, 4.6)


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
        """The picture in words."""
        return f"{self.title}. {self.alt}"

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """As a notebook shows it, trusted or not; at half its pixels, so that it is sharp."""
        png = self.files["png"]
        return png, {"width": int.from_bytes(png[16:20], "big") // 2}
