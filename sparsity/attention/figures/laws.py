"""Pictures of measured S against laws: of every head, and of every row by its rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sparsity import plotting
from sparsity.attention.claims.head_evidence import LAWS, late_rows
from sparsity.attention.figures.record import Picture, Rows, longest, plain, words
from sparsity.attention.measurement import tables
from sparsity.plotting import GREY, LOOKS

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure as Canvas


def _head_means(data: xarray.Dataset) -> dict[str, np.ndarray]:
    """Return geometric means over the rows of each head, [layer, head]: measured, by both laws.

    Laws are compared by ratios, so means are of logarithms: an arithmetic mean would be that of the
    few rows of large S.
    """
    rows = longest(plain(data))
    names = {
        "measured": "S_without_sinks",
        "limit": "S_limit_without_sinks",
        "exact": "S_exact_without_sinks",
    }
    out = {}
    for key, name in names.items():
        values = rows[name].transpose("layer", "head", "text", "row").values
        known = np.isfinite(values)
        # The limit law e^(−γ²/2) of wide rows underflows to 0, which has no logarithm.
        logs = np.log(np.maximum(np.where(known, values, 1.0), 1e-30))
        with np.errstate(invalid="ignore"):  # no law where γ̂ is unknown or too wide
            out[key] = np.exp(logs.sum((2, 3)) / known.sum((2, 3)))
    return out


def _laws_title(data: xarray.Dataset) -> str:
    row = tables.summarise_context(plain(data), int(data["context"][-1]))
    limit, exact = row["ratio_limit_without_sinks"], row["ratio_exact_without_sinks"]
    return f"S is {limit:.2g} times the limit law and {exact:.2g} times the exact law"


def _draw_laws(data: xarray.Dataset, canvas: Canvas) -> None:
    """Draw measured S of every head against each law, coloured by layer."""
    found = _head_means(data)
    depth = np.broadcast_to(np.arange(found["exact"].shape[0])[:, None], found["exact"].shape)
    every = [x[np.isfinite(x)] for x in found.values()]
    lowest = min((float(np.quantile(x, 0.02)) for x in every if len(x)), default=1e-3)
    # Axes begin at the power of ten below all but 2 % of the heads, between 10⁻³ and 0.1: the limit
    # law of a few wide heads would squeeze all others together. What is beyond lies on the left
    # edge.
    low = np.clip(10 ** np.floor(np.log10(max(lowest, 1e-6))), 1e-3, 0.1)
    names = (("limit", "limit law  exp(−γ̂²/2)"), ("exact", "exact law at the row's n and γ̂"))
    image = None
    # Axes of both panels are equal, so that a point's height above the diagonal can be compared.
    for i, (key, label) in enumerate(names):
        ax = plotting.calm(canvas.add_axes((0.1 + 0.41 * i, 0.13, 0.36, 0.68)))
        ax.set(xscale="log", yscale="log", xlim=(low, 1), ylim=(low, 1), xlabel=label)
        ax.plot([low, 1], [low, 1], color=GREY, lw=1, zorder=1)
        x, y = np.maximum(found[key], low * 1.06).ravel(), found["measured"].ravel()
        image = ax.scatter(
            x, y, c=depth.ravel(), cmap="viridis", s=13, linewidths=0.3, edgecolors="white"
        )
        ticks = [10.0**k for k in range(round(np.log10(low)), 1)]
        for axis in (ax.xaxis, ax.yaxis):
            plotting.plain_ticks(axis, ticks)
        if i == 0:
            ax.set_ylabel(f"measured S  ({plotting.SMALL})", labelpad=0)
            plotting.inline(ax, 8 * low, 5 * low, "equal", GREY, fontsize=9.5, ha="left")
        else:
            ax.set_yticklabels([])
    bar = canvas.colorbar(image, cax=canvas.add_axes((0.9, 0.13, 0.018, 0.68)))  # type: ignore[arg-type]
    bar.outline.set_visible(False)  # type: ignore[operator]
    bar.set_label("layer")


def _table_laws(data: xarray.Dataset) -> Rows:
    found = _head_means(data)
    cells = (
        (i, j, *(float(found[key][i, j]) for key in ("measured", "limit", "exact")))
        for i, j in np.ndindex(found["exact"].shape)
    )
    return ("layer", "head", "S", "S_limit", "S_exact"), cells


LAWS_PICTURE = Picture(
    name="laws",
    title=_laws_title,
    subtitle=lambda data: f"Each head of {words(data)}; rows without their sinks",
    caption=(
        "Measured sparsity S against the law of Gaussian logits, each at the row's own spread "
        "γ̂ and, for the exact law, its own number n of keys; geometric means over the rows in "
        "the second half of the context, without their sinks: all keys that take more than 0.1 of "
        "the head's weight on average. The numbers above are medians over rows. Points at the "
        "left edge lie beyond it. No parameter is fitted."
    ),
    alt=(
        "Two scatter plots with logarithmic axes. Against the limit law the points lie far "
        "above the diagonal and spread out; against the exact law they gather around it."
    ),
    draw=_draw_laws,
    table=_table_laws,
    size=(7.2, 4.2),
    colours=True,
)


_BINS = 40  # of the rows by rank: more make the curves noisy, fewer hide the ends


def _ratios(data: xarray.Dataset) -> dict[str, np.ndarray]:
    """Return S over each law, rows in the order of their S."""
    rows = late_rows(data)
    names = ("S_without_sinks", *LAWS)
    S, *laws = (rows[name].values.astype(float).ravel() for name in names)
    # Every law is shown on the same rows: those that all of them know.
    known = np.isfinite([S, *laws]).all(0) & (np.min(laws, axis=0) > 0)
    order = np.argsort(S[known], kind="stable")
    return {name: (S / x)[known][order] for name, x in zip(LAWS, laws, strict=True)}


def _quartiles(ratio: np.ndarray) -> np.ndarray:
    """Return the quartiles of each fortieth of the rows, [3, bins]."""
    # Rows come in the order of their S, so that each part is a range of ranks.
    parts = np.array_split(ratio, min(_BINS, max(len(ratio), 1)))
    return np.array([np.quantile(x, (0.25, 0.5, 0.75)) for x in parts if len(x)]).reshape(-1, 3).T


def _head_title(data: xarray.Dataset) -> str:
    # In the order of `LAWS`: the exact law first, the law with κ last.
    found = [np.median(x) for x in _ratios(data).values()]
    return f"Given its largest logit, S is {found[-1]:.2f} times its law (exact law {found[0]:.2f})"


def _draw_head_law(data: xarray.Dataset, canvas: Canvas) -> None:
    """Draw S over each of the three laws against the rank of S, median and middle half."""
    ax = plotting.axes(canvas, "rank of the row's S among all rows", "measured S over the law")
    ax.axhline(1, color=GREY, lw=1)
    for (name, ratio), look in zip(_ratios(data).items(), LOOKS, strict=False):
        low, middle, high = _quartiles(ratio)
        at = (np.arange(len(middle)) + 0.5) / len(middle)
        ax.fill_between(at, low, high, color=look.color, alpha=0.15, lw=0)
        ax.plot(at, middle, color=look.color, lw=1.8, label=LAWS[name])
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


HEAD_LAW_PICTURE = Picture(
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
