"""The figure of `real_sinks`: what a word moves, norms of the sink, what conditions cost."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from experiments.frame import Record
from experiments.real_sinks_shown import Table
from experiments.sink_conditions import (
    AS_IS,
    BOS,
    BOS_HIDDEN,
    FIRST,
    FIRST_MATCHED,
    FROM_ALL,
    MUTED,
    ONE,
    ORDINARY_MATCHED,
    SHORTER,
    SINKS,
    SINKS_MUTED,
    WINDOW,
)
from sparsity import plotting

DRAWN_CHANGES = (1e-3, 1.0)  # of states, over their norm, from the darkest to the lightest colour


def draw(records: list[Record], figure: Figure) -> None:
    """Draw what a changed word moves, norms of sinks, and losses."""
    table = Table(records)
    axes = figure.subplots(2, 3, width_ratios=(1, 1.1, 1))
    _draw_moves(table, figure, axes[0, 0], axes[0, 1])
    _draw_against_loss(table, axes[0, 2])
    _draw_norms(table, axes[1, 0])
    names = [SHORTER, FROM_ALL, BOS, ONE, ORDINARY_MATCHED, FIRST_MATCHED]
    _draw_costs(table, axes[1, 1], [*names, MUTED, SINKS_MUTED, BOS_HIDDEN, FIRST, SINKS])
    axes[1, 1].set_title("What hiding and muting costs")
    _draw_costs(table, axes[1, 2], table.named(WINDOW)[::-1])
    axes[1, 2].set_title("What a window costs")
    further, cost = np.exp(table.moves(FIRST).mean()), table.costs(FIRST).mean()
    figure.suptitle(
        f"The first key hidden costs {cost:.1f} nats; a changed word moves later states "
        f"{further:.1f} times as far ({len(table.texts)} texts, mean ± sd)"
    )


def _draw_moves(table: Table, figure: Figure, *axes: Any) -> None:
    """Draw how far the word moves states by layer and distance, with the sink and without."""
    distances = sorted({key[-1] for key in table.values if key[2] == "moved_at"})
    for ax, name, title in zip(axes, (AS_IS, FIRST), ("as it is", "first key hidden"), strict=True):
        rows = ([table.of(name, "moved_at", x, d).mean() for d in distances] for x in table.layers)
        image = ax.imshow(
            np.array(list(rows)), origin="lower", aspect="auto", cmap="viridis",
            norm=LogNorm(*DRAWN_CHANGES, clip=True),
            extent=(-0.5, len(distances) - 0.5, 0.5, len(table.layers) + 0.5),
        )  # fmt: skip
        ax.grid(visible=False)
        ax.set_xticks(range(len(distances)), [f"{d}" for d in distances])
        ax.set_xlabel("tokens after the changed word, from")
        ax.set_ylabel("layer")
        ax.set_title(f"Moved by a changed word: {title}")
    figure.colorbar(image, ax=axes[1], label="‖change‖ / ‖state‖")


def _draw_against_loss(table: Table, ax: Any) -> None:
    """Draw how far the word moves states against what is lost, by sinks and by ordinary keys."""
    groups = {
        "first key hidden: some heads, all": [*table.named("of heads"), FIRST],
        "all sinks hidden": [SINKS],
        "first key muted": [MUTED],
        "ordinary keys hidden (control)": table.named("of ordinary"),
    }
    ddof = len(table.texts) > 1
    for i, (label, names) in enumerate(groups.items()):
        x, y = (np.array([f(name) for name in names]) for f in (table.costs, table.moves))
        low, mid, high = (np.exp(y.mean(1) + k * y.std(1, ddof=ddof)) for k in (-1, 0, 1))
        look: Any = {"color": f"C{i}", "marker": "oDvs"[i], "ls": "none", "capsize": 2}
        bars = {"yerr": [mid - low, high - mid], "xerr": x.std(1, ddof=ddof), "elinewidth": 0.8}
        ax.errorbar(x.mean(1), mid, label=label, **look, **bars)
    ax.plot(0, 1, "k*", ms=9, label="as it is")
    ax.axhline(1, color=plotting.GREY, lw=0.8)
    ax.set_ylim(0.5, 3.3)
    ax.set_xlabel("loss over as it is (nats)")
    ax.set_ylabel("states moved, over as it is")
    ax.legend(fontsize=9, loc="upper right")
    ax.set_title("Damage alone moves states less")


def _draw_norms(table: Table, ax: Any) -> None:
    """Draw norms of the first key over the median key's, where it is a sink."""
    labels = {"value_norm": "‖v‖ of it", "written_norm": "‖W_O v‖ of it", "first_mass": "its mass"}
    for i, (name, label) in enumerate(labels.items()):
        each = np.ma.masked_invalid(table.by_layer(name))
        x = np.array(table.layers) + 1
        look: Any = {"color": f"C{i}", "marker": "osD"[i], "ms": 4, "ls": "none", "label": label}
        ax.errorbar(x, each.mean(1), each.std(1), **look)
    ax.axhline(1, color=plotting.GREY, lw=0.8)
    ax.set_ylim(0)
    ax.set_xlabel("layer (norms: those with a sink)")
    ax.set_ylabel("norms over the median key's; mass")
    ax.legend(fontsize=9, loc="upper right", bbox_to_anchor=(1, 0.97))
    ax.set_title("The sink's values are small")


def _draw_costs(table: Table, ax: Any, names: list[str]) -> None:
    """Draw what conditions cost, a row each."""
    costs = np.array([table.costs(name) for name in names])
    error = costs.std(1, ddof=len(table.texts) > 1)
    ax.errorbar(costs.mean(1), range(len(names)), xerr=error, fmt="o", color="C0", capsize=2)
    ax.axvline(0, color=plotting.GREY, lw=0.8)
    ax.set_yticks(range(len(names)), names, fontsize=9)
    ax.set_xlabel("loss over as it is (nats)")
