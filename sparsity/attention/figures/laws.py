"""Picture: measured S of every head against the limit law and the exact law."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sparsity.attention.figures.record import Picture, Rows, longest, plain, words
from sparsity.attention.measurement import tables
from sparsity.figures import plotting
from sparsity.figures.plotting import GREY

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure as Canvas


def _heads(data: xarray.Dataset) -> dict[str, np.ndarray]:
    """Geometric means over the rows of each head, [layer, head]: measured and by both laws."""
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
        logs = np.log(np.maximum(np.where(known, values, 1.0), 1e-30))
        with np.errstate(invalid="ignore"):  # no law where γ̂ is unknown or too wide
            out[key] = np.exp(logs.sum((2, 3)) / known.sum((2, 3)))
    return out


def _laws_title(data: xarray.Dataset) -> str:
    row = tables.summarise_context(plain(data), int(data["context"][-1]))
    limit, exact = row["ratio_limit_without_sinks"], row["ratio_exact_without_sinks"]
    return f"S is {limit:.2g} times the limit law and {exact:.2g} times the exact law"


def _draw_laws(data: xarray.Dataset, canvas: Canvas) -> None:
    found = _heads(data)
    depth = np.broadcast_to(np.arange(found["exact"].shape[0])[:, None], found["exact"].shape)
    every = [x[np.isfinite(x)] for x in found.values()]
    lowest = min((float(np.quantile(x, 0.02)) for x in every if len(x)), default=1e-3)
    low = np.clip(10 ** np.floor(np.log10(max(lowest, 1e-6))), 1e-3, 0.1)
    names = (("limit", "limit law  exp(−γ̂²/2)"), ("exact", "exact law at the row's n and γ̂"))
    image = None
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
    found = _heads(data)
    cells = (
        (i, j, *(float(found[key][i, j]) for key in ("measured", "limit", "exact")))
        for i, j in np.ndindex(found["exact"].shape)
    )
    return ("layer", "head", "S", "S_limit", "S_exact"), cells


PICTURE = Picture(
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
)
