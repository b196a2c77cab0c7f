"""The figure: time to a target in every cell, ours and the peers'. Computes nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from sparsity.figures import plotting

__all__ = ["render"]

_LOW, _HIGH = 1e-5, 1e9  # seconds shown; what takes longer stands at the right, with its number
_OURS = plotting.LOOKS[1]
_PEERS = [look for look in plotting.LOOKS if look is not _OURS]


def _time(seconds: float) -> str:
    """Milliseconds to two digits, or a power of ten of seconds."""
    if seconds < 10:
        return f"{seconds * 1e3:.2g} ms"
    return f"$10^{{{round(math.log10(seconds))}}}$ s"


def _draw(rows: Sequence[Mapping[str, Any]], figure: Figure) -> None:
    height = figure.get_size_inches()[1]
    bottom, top = 0.95 / height, 1 - 0.8 / height  # room for words, in inches
    ax = figure.add_axes((0.15, bottom, 0.75, top - bottom))
    plotting.calm(ax)
    ax.set_xscale("log")
    ax.set_xlim(_LOW, _HIGH)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_yticks(range(len(rows)), [row["cell"] for row in rows])
    ax.set_xlabel("seconds to a relative standard error of S")
    names = list(rows[0]["peers"])
    for y, row in enumerate(rows):
        for name, look in zip(names, _PEERS, strict=False):
            peer = row["peers"][name]
            face = look.color if peer["how"] == "measured" else "white"
            at = min(peer["seconds"], _HIGH)
            style = {"markerfacecolor": face, "markeredgecolor": look.color, "clip_on": False}
            ax.plot(at, y, look.marker, color=look.color, markersize=5.5, alpha=0.9, **style)
        shortest = min((peer["seconds"] for peer in row["peers"].values()), default=0.0)
        if shortest > _HIGH:
            text = f"from $10^{{{round(math.log10(shortest))}}}$ s"
            ax.text(1.02, y, text, transform=ax.get_yaxis_transform(), va="center", fontsize=9)
        ours, face = row["ours"], _OURS.color if row["ours"]["reached"] else "white"
        style = {"markerfacecolor": face, "markeredgecolor": _OURS.color, "zorder": 4}
        ax.plot(ours["seconds"], y, _OURS.marker, color=_OURS.color, markersize=7.5, **style)
    looks = [("sparsity", _OURS), *zip(names, _PEERS, strict=False)]
    for name, look in looks:
        ax.plot([], [], look.marker, color=look.color, label=name, markersize=6)
    ax.plot([], [], "o", color=plotting.GREY, markerfacecolor="white", label="computed")
    figure.legend(
        loc="lower center", ncols=len(looks) + 1, columnspacing=1.2, handletextpad=0.2,
        labelcolor=plotting.INK, fontsize=9.5,
    )  # fmt: skip


def render(rows: Sequence[Mapping[str, Any]], rel_error: float) -> dict[str, bytes]:
    """The figure as file contents by suffix.

    Args:
        rows: of `sparsity.bench.target.times`.
        rel_error: the target to show.
    """
    shown = [row for row in rows if row["rel_error"] == rel_error]
    ours = max(row["ours"]["seconds"] for row in shown)
    best = [min(peer["seconds"] for peer in row["peers"].values()) for row in shown]
    title = f"S to {rel_error:.1%} in {_time(ours)} or less, in every cell"
    subtitle = (
        f"The quickest peer: {_time(min(best))} to {_time(max(best))}. "
        "Filled: measured. Hollow: computed from the draws needed."
    )
    size = (8.6, 1.75 + 0.27 * len(shown))
    return plotting.render(_draw, shown, title, subtitle, size)  # type: ignore[arg-type]
