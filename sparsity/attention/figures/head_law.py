"""Picture: rows of real heads against the exact law and the law given their largest logit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sparsity.attention.claims.head_table import LAWS, late
from sparsity.attention.figures.record import Picture, Rows, words
from sparsity.figures import plotting
from sparsity.figures.plotting import GREY, LOOKS

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure as Canvas

_BINS = 40


def _ratios(data: xarray.Dataset) -> dict[str, np.ndarray]:
    """S over each law, rows in the order of their S."""
    rows = late(data)
    names = ("S_without_sinks", *LAWS)
    S, *laws = (rows[name].values.astype(float).ravel() for name in names)
    known = np.isfinite([S, *laws]).all(0) & (np.min(laws, axis=0) > 0)
    order = np.argsort(S[known], kind="stable")
    return {name: (S / x)[known][order] for name, x in zip(LAWS, laws, strict=True)}


def _quartiles(ratio: np.ndarray) -> np.ndarray:
    """Quartiles of each fortieth of the rows, [3, bins]."""
    parts = np.array_split(ratio, min(_BINS, max(len(ratio), 1)))
    return np.array([np.quantile(x, (0.25, 0.5, 0.75)) for x in parts if len(x)]).reshape(-1, 3).T


def _head_title(data: xarray.Dataset) -> str:
    found = [np.median(x) for x in _ratios(data).values()]
    return f"Given its largest logit, S is {found[-1]:.2f} times its law (exact law {found[0]:.2f})"


def _draw_head_law(data: xarray.Dataset, canvas: Canvas) -> None:
    ax = plotting.axes(canvas, "rank of the row's S among all rows", "measured S over the law")
    ax.axhline(1, color=GREY, lw=1)
    for (name, ratio), look in zip(_ratios(data).items(), LOOKS, strict=False):
        low, middle, high = _quartiles(ratio)
        at = (np.arange(len(middle)) + 0.5) / len(middle)
        ax.fill_between(at, low, high, color=look.color, alpha=0.15, lw=0)
        ax.plot(at, middle, color=look.color, ls=look.dash, lw=1.8, label=LAWS[name])
    ax.set(xlim=(0, 1), yscale="log", ylim=(0.3, 2.2))
    plotting.plain_ticks(ax.yaxis, [0.3, 0.5, 0.7, 1, 1.4, 2])
    ax.legend(loc="lower right", fontsize=9.5)


def _table_head_law(data: xarray.Dataset) -> Rows:
    cells = (
        (LAWS[name], i, *(float(x) for x in column))
        for name, ratio in _ratios(data).items()
        for i, column in enumerate(_quartiles(ratio).T, 1)
    )
    return ("law", "fortieth", "lower_quartile", "median", "upper_quartile"), cells


PICTURE = Picture(
    name="head_law",
    title=_head_title,
    subtitle=lambda data: f"Median and middle half of the rows; {words(data)}",
    caption=(
        "Measured S of rows without their sinks over three laws, against the rank of S, every "
        "eighth row of the second half of the context. The exact law knows the row's n and γ̂. The "
        "others are given the row's largest logit as well and take the other logits as Gaussian "
        "below it; the last multiplies γ̂ by one constant κ of the head, fitted on all other texts, "
        "never on the one that is shown."
    ),
    alt=(
        "Three curves of measured S over a law against the rank of S. The exact law is too high "
        "for sparse rows and too low for the others; given the largest logit the curve lies near 1 "
        "everywhere, with the constant of the head on it."
    ),
    draw=_draw_head_law,
    table=_table_head_law,
    needs="S_head_without_sinks",
)
