"""Picture: what changes with the length of the row and of the context."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.attention.figures.record import Picture, Rows, plain, words
from sparsity.attention.measurement import tables
from sparsity.figures import plotting
from sparsity.figures.plotting import BLUE, GREY, ORANGE, VERMILLION

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure as Canvas


def _edges(data: xarray.Dataset) -> np.ndarray:
    T = int(data["context"][-1])
    return np.unique(np.round(np.geomspace(8, T, max(6, round(3 * np.log2(T / 8)))))).astype(int)


def _along(data: xarray.Dataset) -> dict[str, np.ndarray]:
    """Medians over all heads and texts of rows binned by n, without BOS."""
    names, edges = ("n_eff", "n_eff_without_sinks", "gamma_without_sinks"), _edges(data)
    here = plain(data)[[*names, "length", "length_without_sinks", "S_exact_without_sinks"]]
    out: dict[str, list[float]] = {key: [] for key in ("n", *names, "exact", "low", "high")}
    for a, b in itertools.pairwise(edges.tolist()):
        rows = here.sel(row=slice(a, b - 1))
        at = rows.variables
        n = at["length"].astype(float)
        out["n"].append(float(np.sqrt(a * (b - 1))))
        for name in names[:2]:
            out[name].append(float(np.median(tables.known_values(rows, name))))
        law = (at["S_exact_without_sinks"] ** 2 * at["length_without_sinks"]).values.ravel()
        out["exact"].append(float(np.nanmedian(law)))
        scaled = (at["gamma_without_sinks"] / np.sqrt(np.log(n))).values.ravel()
        low, middle, high = np.nanquantile(scaled, [0.25, 0.5, 0.75])
        out["gamma_without_sinks"].append(float(middle))
        out["low"].append(float(low))
        out["high"].append(float(high))
    return {key: np.array(values) for key, values in out.items()}


RATES = (  # of the third panel: name in the table, in the legend, dashes, and the rate
    ("all sinks, rows above T/2", "all sinks", "-",
     lambda run, T: tables.late_rate(run, T, EPSILON, "sinks_mass")),
    ("first token, rows above T/2", "first token", (0, (4, 1.6)),
     lambda run, T: tables.late_rate(run, T, EPSILON, "sink_mass")),
    ("first token, all rows, as published", "as published", (0, (1.2, 1.2)),
     lambda run, T: tables.sink_rate(run, T, EPSILON)),
)  # fmt: skip
EPSILON = tables.THRESHOLDS[0]


def _rates(data: xarray.Dataset, b: Any, rate: Any) -> list[float]:
    run = data.sel(bos=b)
    return [rate(run, int(T)) for T in data["context"].values]


def _context_title(data: xarray.Dataset) -> str:
    rate = 100 * np.array(_rates(data, data["bos"].values[0], RATES[0][-1]))
    return (
        f"Sinks take more than {EPSILON:g} in {rate[0]:.0f} % of heads at T = "
        f"{int(data['context'][0])}, in {rate[-1]:.0f} % at {int(data['context'][-1])}"
    )


def _draw_context(data: xarray.Dataset, canvas: Canvas) -> None:
    found = _along(data)
    T = int(data["context"][-1])
    ticks = [8 * 4**k for k in range(12) if 8 * 4**k <= T]
    boxes = [(0.07 + 0.325 * i, 0.13, 0.25, 0.6) for i in range(3)]
    axes = [plotting.calm(canvas.add_axes(box)) for box in boxes]
    for ax, title in zip(
        axes, ("attended tokens  n_eff", "γ̂/√(ln n)", "heads with a sink"), strict=True
    ):
        ax.set_title(title, loc="left", fontsize=11)
        ax.set(
            xscale="log", xlim=(8, T), xlabel="row length n" if ax is not axes[2] else "context T"
        )
        plotting.plain_ticks(ax.xaxis, ticks)
    first, second, third = axes
    first.set_yscale("log")
    top = 2.0 ** np.ceil(np.log2(max(found["exact"].max(), found["n_eff_without_sinks"].max())))
    first.set_ylim(1, top)
    plotting.plain_ticks(first.yaxis, [2.0**k for k in range(round(np.log2(top)) + 1)])
    first.plot(found["n"], found["n_eff"], color=VERMILLION, ls=(0, (6, 1.6)), label="whole row")
    first.plot(found["n"], found["n_eff_without_sinks"], color=BLUE, label="without sinks")
    first.plot(found["n"], found["exact"], color=GREY, ls=(0, (2, 1.5)), lw=1.5, label="exact law")
    first.legend(fontsize=9, loc="upper left", handlelength=2.2, borderpad=0.1)
    second.fill_between(found["n"], found["low"], found["high"], color="#dbe7f3", zorder=0)
    second.plot(found["n"], found["gamma_without_sinks"], color=BLUE)
    second.set_ylim(0, max(2.0, 1.1 * found["high"].max()))
    second.axhline(1, color=GREY, lw=1, ls=(0, (4, 3)))
    third.set_ylim(0, 1)
    contexts = data["context"].values
    runs = list(zip(data["bos"].values, (BLUE, ORANGE), ("o", "s"), strict=False))
    for b, color, marker in runs:
        for *_, dash, rate in RATES:
            third.plot(contexts, _rates(data, b, rate), color=color, ls=dash, marker=marker, ms=4)
    kinds = [third.plot([], [], color=GREY, ls=dash, label=x)[0] for _, x, dash, _ in RATES]
    style = {"fontsize": 9, "handlelength": 2.6, "borderpad": 0.1, "labelcolor": GREY}
    third.add_artist(third.legend(handles=kinds, loc="upper right", **style))
    if len(runs) > 1:
        how = {True: "with BOS", False: "no BOS"}
        marks = [
            third.plot([], [], color=color, marker=m, ms=4, label=how[bool(tables.says_bos(b))])[0]
            for b, color, m in runs
        ]
        third.legend(handles=marks, loc="lower right", **style)
    third.set_xlim(min(contexts) / 1.15, T * 1.15)
    plotting.plain_ticks(third.xaxis, contexts.tolist(), contexts.astype(str).tolist())


def _table_context(data: xarray.Dataset) -> Rows:
    found = _along(data)
    rows: list[tuple[Any, ...]] = [
        (kind, float(n), float(value))
        for kind, key in (
            ("median n_eff", "n_eff"),
            ("median n_eff without sinks", "n_eff_without_sinks"),
            ("exact law without sinks", "exact"),
            ("median gamma/sqrt(ln n) without sinks", "gamma_without_sinks"),
            ("its lower quartile", "low"),
            ("its upper quartile", "high"),
        )
        for n, value in zip(found["n"], found[key], strict=True)
    ]
    for b in data["bos"].values:
        how = {True: ", with BOS", False: ", without BOS", None: ""}[tables.says_bos(b)]
        for said, _, _, rate in RATES:
            for T, value in zip(data["context"].values, _rates(data, b, rate), strict=True):
                rows.append((f"heads above {EPSILON:g}: {said}{how}", float(T), value))
    return ("quantity", "n", "value"), rows


PICTURE = Picture(
    name="context",
    title=_context_title,
    subtitle=lambda data: f"Focus, spread and sinks: {words(data)}",
    caption=(
        "Left: median effective number of tokens of rows of length n, with all sinks and without, "
        "and the exact law of the latter. Middle: spread of their logits over √(ln n), median and "
        "quartiles; at 1 (dashed) the limit law has n·S² = 1. Right: share of heads in which all "
        "sinks together take more than 0.3 of the weight of the rows T/2 < n ≤ T; in which the "
        "first token alone does; and in which it does by the published definition, which averages "
        "over all rows up to T, the early ones too."
    ),
    alt=(
        "Three line charts. The effective number of tokens rises slowly with row length, more "
        "so without the sinks. The scaled spread is nearly level. The share of heads with sinks "
        "falls with context length by less than the published rate of the first token."
    ),
    draw=_draw_context,
    table=_table_context,
    size=(7.2, 4.2),
)
