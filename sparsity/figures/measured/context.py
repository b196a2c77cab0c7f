"""Picture: what changes with the length of the row and of the context."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.figures import plotting
from sparsity.figures.measured.record import Picture, Rows, plain, words
from sparsity.figures.plotting import BLUE, GREY, ORANGE, VERMILLION
from sparsity.measurement import tables

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure as Canvas


def _edges(data: xarray.Dataset) -> np.ndarray:
    T = int(data["context"][-1])
    return np.unique(np.round(np.geomspace(8, T, max(6, round(3 * np.log2(T / 8)))))).astype(int)


def _along(data: xarray.Dataset) -> dict[str, np.ndarray]:
    """Medians over all heads and texts of rows binned by n, without BOS."""
    here, edges = plain(data), _edges(data)
    names = ("n_eff", "n_eff_rest", "gamma_rest")
    out: dict[str, list[float]] = {key: [] for key in ("n", *names, "exact", "low", "high")}
    for a, b in itertools.pairwise(edges.tolist()):
        rows = here.sel(row=slice(a, b - 1))
        n = rows["length"].astype(float)
        out["n"].append(float(np.sqrt(a * (b - 1))))
        for name in names[:2]:
            out[name].append(float(np.median(tables.pooled(rows, name))))
        law = (rows["S_exact_rest"] ** 2 * (n - 1)).values.ravel()
        out["exact"].append(float(np.nanmedian(law)))
        scaled = (rows["gamma_rest"] / np.sqrt(np.log(n))).values.ravel()
        low, middle, high = np.nanquantile(scaled, [0.25, 0.5, 0.75])
        out["gamma_rest"].append(float(middle))
        out["low"].append(float(low))
        out["high"].append(float(high))
    return {key: np.array(values) for key, values in out.items()}


def _context_title(data: xarray.Dataset) -> str:
    rate = [tables.sink_rate(plain(data), int(T), 0.3) for T in data["context"].values]
    word = "fades" if rate[-1] < rate[0] else "grows"
    return (
        f"With context the sink {word}: from {100 * rate[0]:.0f} to {100 * rate[-1]:.0f} % of heads"
    )


def _draw_context(data: xarray.Dataset, canvas: Canvas) -> None:
    found = _along(data)
    T = int(data["context"][-1])
    ticks = [8 * 4**k for k in range(12) if 8 * 4**k <= T]
    boxes = [(0.07 + 0.325 * i, 0.13, 0.25, 0.6) for i in range(3)]
    axes = [plotting.calm(canvas.add_axes(box)) for box in boxes]
    for ax, title in zip(axes, ("attended tokens  n_eff", "γ̂/√(ln n)", "sink rate"), strict=True):
        ax.set_title(title, loc="left", fontsize=11)
        ax.set(
            xscale="log", xlim=(8, T), xlabel="row length n" if ax is not axes[2] else "context T"
        )
        plotting.plain_ticks(ax.xaxis, ticks)
    first, second, third = axes
    first.set_yscale("log")
    top = 2.0 ** np.ceil(np.log2(max(found["exact"].max(), found["n_eff_rest"].max())))
    first.set_ylim(1, top)
    plotting.plain_ticks(first.yaxis, [2.0**k for k in range(round(np.log2(top)) + 1)])
    first.plot(found["n"], found["n_eff"], color=VERMILLION, ls=(0, (6, 1.6)), label="whole row")
    first.plot(found["n"], found["n_eff_rest"], color=BLUE, label="without sink")
    first.plot(found["n"], found["exact"], color=GREY, ls=(0, (2, 1.5)), lw=1.5, label="exact law")
    first.legend(fontsize=9, loc="upper left", handlelength=2.2, borderpad=0.1)
    second.fill_between(found["n"], found["low"], found["high"], color="#dbe7f3", zorder=0)
    second.plot(found["n"], found["gamma_rest"], color=BLUE)
    second.set_ylim(0, max(2.0, 1.1 * found["high"].max()))
    second.axhline(1, color=GREY, lw=1, ls=(0, (4, 3)))
    third.set_ylim(0, 1)
    contexts = data["context"].values
    for b, color, marker in zip(data["bos"].values, (BLUE, ORANGE), ("o", "s"), strict=False):
        run = data.sel(bos=b)
        for epsilon, dash in zip(tables.THRESHOLDS, ("-", (0, (3, 1.4))), strict=True):
            rates = [tables.sink_rate(run, int(c), epsilon) for c in contexts]
            how = {True: "BOS, ", False: "no BOS, ", None: ""}[tables.begins(b)]
            label = f"{how}ε = {epsilon:g}"
            third.plot(contexts, rates, color=color, ls=dash, marker=marker, ms=4, label=label)
    third.set_xlim(min(contexts) / 1.15, T * 1.15)
    plotting.plain_ticks(third.xaxis, contexts.tolist(), contexts.astype(str).tolist())
    third.legend(fontsize=9, loc="upper right", handlelength=2.6, borderpad=0.1)


def _table_context(data: xarray.Dataset) -> Rows:
    found = _along(data)
    rows: list[tuple[Any, ...]] = [
        (kind, float(n), float(value))
        for kind, key in (
            ("median n_eff", "n_eff"),
            ("median n_eff without sink", "n_eff_rest"),
            ("exact law without sink", "exact"),
            ("median gamma/sqrt(ln n) without sink", "gamma_rest"),
            ("its lower quartile", "low"),
            ("its upper quartile", "high"),
        )
        for n, value in zip(found["n"], found[key], strict=True)
    ]
    for b in data["bos"].values:
        for epsilon in tables.THRESHOLDS:
            how = {True: ", with BOS", False: ", without BOS", None: ""}[tables.begins(b)]
            name = f"sink rate, epsilon = {epsilon:g}{how}"
            for T in data["context"].values:
                rate = tables.sink_rate(data.sel(bos=b), int(T), epsilon)
                rows.append((name, float(T), rate))
    return ("quantity", "n", "value"), rows


PICTURE = Picture(
    name="context",
    title=_context_title,
    subtitle=lambda data: f"Focus, spread and sinks: {words(data)}",
    caption=(
        "Left: median effective number of tokens of rows of length n, with the first token and "
        "without it, and the exact law of the latter. Middle: spread of the logits over "
        "√(ln n), median and quartiles; at 1 (dashed) the limit law has n·S² = 1. Right: share "
        "of heads where the first token's importance over the first T tokens exceeds ε."
    ),
    alt=(
        "Three line charts. The effective number of tokens rises slowly with row length, more "
        "so without the first token. The scaled spread is nearly level. The sink rate falls "
        "with context length for both thresholds."
    ),
    draw=_draw_context,
    table=_table_context,
    size=(7.2, 4.0),
)
