"""What a figure is: its words, how its data are computed, and how they are drawn.

An SVG has paths and no numbers; the numbers are in the CSV beside it. The SVG's description joins
them (`describe_places`), so that a page can show the values of its curves on hover: the box of each
pair of axes, its scales, and which rows of the CSV are drawn there.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    from matplotlib.axes import Axes

# Of a point. Draws grow like the inverse square of the error: each point costs 10,000 times what it
# does at the default.
MIN_REL_ERROR = 1e-5
_POINTS_PER_INCH = 72  # the unit of an SVG by Matplotlib

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
        cls, name: str, data: Any, draw: Any, module: str | None = None, **size: Any
    ) -> Figure:
        """Return the figure with the words of a docstring: title, subtitle, caption and alt text.

        Each is a paragraph. The docstring is that of a module with one figure, or of what draws it.
        """
        words = module or draw.__doc__
        text = inspect.cleandoc(words) if words else "\n\n" * 3  # none under python -OO
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


def describe_places(canvas: Canvas, data: Sequence[Series]) -> str:
    """Return where the curves are drawn, as JSON.

    Args:
        canvas: the figure, drawn.
        data: its curves, in the order of the CSV.

    Returns:
        A list with, for each pair of axes on which a curve is drawn, `box`: left, top, width and
        height in points; `name`: what x is called; `x` and `y`: "linear" or "log", and both ends;
        `curves`: of each the first row of the CSV, the number of rows, the colour, and whether x is
        drawn upwards.
    """
    width, height = _POINTS_PER_INCH * canvas.get_size_inches()
    places = []
    for ax in canvas.axes:
        curves = list(dict.fromkeys(_drawn_curves(ax, data)))
        if curves:
            at = ax.get_position()
            box = at.x0 * width, (1 - at.y1) * height, at.width * width, at.height * height
            place = {
                "box": [round(side, 3) for side in box],
                "name": _label_of_x(ax, canvas.axes),
                "x": [ax.get_xscale(), *map(float, ax.get_xlim())],
                "y": [ax.get_yscale(), *map(float, ax.get_ylim())],
            }
            places.append(place | {"curves": curves})
    return json.dumps(places, ensure_ascii=False, separators=(",", ":"))


def _drawn_curves(ax: Axes, data: Sequence[Series]) -> Iterator[tuple[int, int, Any, int]]:
    """Yield the curves whose theory, or samples, are lines or markers of the axes."""
    # Lines are known by their numbers, whoever drew them: those of a guide are nobody's.
    for line in ax.lines:
        drawn, first = np.array(line.get_data(orig=True), float), 0
        for series in data:
            count = drawn.shape[1]
            upright = _is_start_of(drawn, series.x, series.theory)
            lying = not upright and _is_start_of(drawn, series.theory, series.x)
            if upright or lying:
                yield first, min(count, len(series.x)), line.get_color(), int(lying)
            elif _is_start_of(
                drawn, *(column[series.sampled] for column in (series.x, series.estimate))
            ):
                yield first, len(series.x), line.get_color(), 0
            first += len(series.x)


def _is_start_of(drawn: np.ndarray, x: np.ndarray, y: np.ndarray) -> bool:
    """Tell whether a line is the first points of a curve, or all of them."""
    count = drawn.shape[1]
    return 0 < count <= len(x) and np.array_equal(drawn, (x[:count], y[:count]), equal_nan=True)


def _label_of_x(ax: Axes, every: Sequence[Axes]) -> str:
    """Return the label of the x-axis, which of several axes in a column only the last has."""
    left = ax.get_position().x0
    column = [axes for axes in every if axes.get_position().x0 == left]
    return next((axes.get_xlabel() for axes in (ax, *column) if axes.get_xlabel()), "x")
