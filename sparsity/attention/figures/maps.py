"""Picture: all heads, how many tokens they attend to and what their sinks take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sparsity.attention.figures.record import Picture, Rows, longest, plain, words
from sparsity.figures import plotting

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure as Canvas


def _maps(data: xarray.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Median n_eff of the rows, and the mean weight of all their sinks, [layer, head]."""
    here = longest(plain(data))
    n_eff = here["n_eff"].median(("text", "row"))
    return n_eff.values, here["sinks_mass"].mean(("text", "row")).values


def _maps_title(data: xarray.Dataset) -> str:
    n_eff, _ = _maps(data)
    low, high = np.quantile(n_eff, [0.1, 0.9])
    return f"Four of five heads attend to {low:.0f} to {high:.0f} tokens"


def _draw_maps(data: xarray.Dataset, canvas: Canvas) -> None:
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.ticker import MaxNLocator

    n_eff, sink = _maps(data)
    T = int(data["context"][-1])
    panels = (
        (n_eff, "effective tokens  n_eff", LogNorm(1, T), "viridis"),
        (sink, "weight of all sinks together", Normalize(0, 1), "magma"),
    )
    layers, heads = n_eff.shape
    for i, (values, label, norm, colors) in enumerate(panels):
        ax = canvas.add_axes((0.085 + 0.48 * i, 0.1, 0.31, 0.71))
        image = ax.pcolormesh(
            np.arange(heads + 1) - 0.5, np.arange(layers + 1) - 0.5, values, cmap=colors, norm=norm
        )
        ax.set(xlabel="head", xlim=(-0.5, heads - 0.5), ylim=(-0.5, layers - 0.5))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        if i == 0:
            ax.set_ylabel("layer")
        ax.tick_params(length=3)
        bar = canvas.colorbar(image, cax=canvas.add_axes((0.405 + 0.48 * i, 0.1, 0.018, 0.71)))
        bar.outline.set_visible(False)  # type: ignore[operator]
        if i == 0:
            ticks = [2**k for k in range(0, 40, 3) if 2**k <= T]
            plotting.plain_ticks(bar.ax.yaxis, ticks)
        ax.set_title(label, loc="left", fontsize=11)


def _table_maps(data: xarray.Dataset) -> Rows:
    n_eff, sink = _maps(data)
    cells = ((i, j, float(n_eff[i, j]), float(sink[i, j])) for i, j in np.ndindex(n_eff.shape))
    return ("layer", "head", "n_eff", "weight_of_sinks"), cells


PICTURE = Picture(
    name="maps",
    title=_maps_title,
    subtitle=lambda data: f"All layers and heads of {words(data)}",
    caption=(
        "Left: median effective number of tokens n_eff = 1/Σp² of the rows in the second half "
        "of the context. Right: mean weight that the head's sinks receive from these rows "
        "together; a sink is any key that takes more than 0.1 of its weight on average. Both "
        "without BOS where it was left out, over all texts."
    ),
    alt=(
        "Two maps with a cell for each layer and head. The left one shows the effective number "
        "of tokens on a logarithmic scale, the right one the weight of all sinks together: heads "
        "with heavy sinks are those with few effective tokens."
    ),
    draw=_draw_maps,
    table=_table_maps,
    size=(7.2, 5.6),
)
