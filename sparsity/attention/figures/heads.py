"""Pictures of heads: maps of all of them, one row of one, and how they change with the context."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity import metric, plotting
from sparsity.attention.figures.record import Picture, Rows, longest, plain, words
from sparsity.attention.measurement import sinks, tables
from sparsity.attention.measurement.sinks import spell_token
from sparsity.plotting import BLUE, GREY, INK, ORANGE, VERMILLION

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure as Canvas


def _length_edges(data: xarray.Dataset) -> np.ndarray:
    """Return the ends of bins of row lengths: three in each octave, from n = 8."""
    T = int(data["context"][-1])
    return np.unique(np.round(np.geomspace(8, T, max(6, round(3 * np.log2(T / 8)))))).astype(int)


def _bin_by_length(data: xarray.Dataset) -> dict[str, np.ndarray]:
    """Return medians over all heads and texts of rows binned by n, without BOS."""
    names, edges = ("n_eff", "n_eff_without_sinks", "gamma_without_sinks"), _length_edges(data)
    here = plain(data)[[*names, "length", "length_without_sinks", "S_exact_without_sinks"]]
    out: dict[str, list[float]] = {key: [] for key in ("n", *names, "exact", "low", "high")}
    for a, b in itertools.pairwise(edges.tolist()):
        rows = here.sel(row=slice(a, b - 1))
        at = rows.variables
        n = at["length"].astype(float)
        out["n"].append(float(np.sqrt(a * (b - 1))))
        for name in names[:2]:
            out[name].append(float(np.median(tables.known_values(rows, name))))
        # n_eff = n S² of the law, at each row's own number of keys.
        law = (at["S_exact_without_sinks"] ** 2 * at["length_without_sinks"]).values.ravel()
        out["exact"].append(float(np.nanmedian(law)))
        scaled = (at["gamma_without_sinks"] / np.sqrt(np.log(n))).values.ravel()
        low, middle, high = np.nanquantile(scaled, [0.25, 0.5, 0.75])
        out["gamma_without_sinks"].append(float(middle))
        out["low"].append(float(low))
        out["high"].append(float(high))
    return {key: np.array(values) for key, values in out.items()}


EPSILON = tables.THRESHOLDS[0]  # Gu et al.'s
RATES = (  # of the third panel: name in the table, in the legend, marker, and the rate
    ("all sinks, rows above T/2", "all sinks", "o",
     lambda run, T: tables.late_rate(run, T, EPSILON, "sinks_mass")),
    ("first token, rows above T/2", "first token", "^",
     lambda run, T: tables.late_rate(run, T, EPSILON, "sink_mass")),
    ("first token, all rows, as published", "as published", "s",
     lambda run, T: tables.sink_rate(run, T, EPSILON)),
)  # fmt: skip


def _rates(data: xarray.Dataset, b: Any, rate: Any) -> list[float]:
    run = data.sel(bos=b)
    return [rate(run, int(T)) for T in data["context"].values]


def _context_title(data: xarray.Dataset) -> str:
    # The title tells of the first way of running the texts, and of all sinks (`RATES[0]`).
    rate = 100 * np.array(_rates(data, data["bos"].values[0], RATES[0][-1]))
    return (
        f"Sinks take more than {EPSILON:g} in {rate[0]:.0f} % of heads at T = "
        f"{int(data['context'][0])}, in {rate[-1]:.0f} % at {int(data['context'][-1])}"
    )


def _draw_context(data: xarray.Dataset, canvas: Canvas) -> None:
    """Draw n_eff and γ̂/√(ln n) against the row's length, and sinks against the context's."""
    found = _bin_by_length(data)
    T = int(data["context"][-1])
    ticks = [8 * 4**k for k in range(12) if 8 * 4**k <= T]
    boxes = [(0.07 + 0.325 * i, 0.13, 0.25, 0.6) for i in range(3)]
    axes = [plotting.calm(canvas.add_axes(box)) for box in boxes]
    for ax, title in zip(axes, (plotting.TOKENS, "γ̂/√(ln n)", "heads with a sink"), strict=True):
        ax.set_title(title, loc="left", fontsize=11)
        ax.set(
            xscale="log", xlim=(8, T), xlabel="row length n" if ax is not axes[2] else "context T"
        )
        plotting.plain_ticks(ax.xaxis, ticks)
    # Left panel: the y-axis ends at a power of two, so that its ticks are whole numbers of
    # tokens.
    first, second, third = axes
    first.set_yscale("log")
    top = 2.0 ** np.ceil(np.log2(max(found["exact"].max(), found["n_eff_without_sinks"].max())))
    first.set_ylim(1, top)
    plotting.plain_ticks(first.yaxis, [2.0**k for k in range(round(np.log2(top)) + 1)])
    first.plot(found["n"], found["n_eff"], color=VERMILLION, label="whole row")
    first.plot(found["n"], found["n_eff_without_sinks"], color=BLUE, label="without sinks")
    first.plot(found["n"], found["exact"], color=GREY, lw=1.5, label="exact law")
    first.legend(fontsize=9, loc="upper left", handlelength=2.2, borderpad=0.1)
    second.fill_between(found["n"], found["low"], found["high"], color="#dbe7f3", zorder=0)
    second.plot(found["n"], found["gamma_without_sinks"], color=BLUE)
    second.set_ylim(0, max(2.0, 1.1 * found["high"].max()))
    second.axhline(1, color=GREY, lw=1)
    third.set_ylim(0, 1)
    contexts = data["context"].values
    runs = list(zip(data["bos"].values, (BLUE, ORANGE), strict=False))
    for b, color in runs:
        for *_, marker, rate in RATES:
            third.plot(contexts, _rates(data, b, rate), color=color, marker=marker, ms=4)
    # Right panel: colour says how texts begin and markers say which rate, so there are two legends;
    # the second call of `legend` would take the first one away.
    kinds = [third.plot([], [], color=GREY, marker=m, ms=4, label=x)[0] for _, x, m, _ in RATES]
    style = {"fontsize": 9, "handlelength": 2.6, "borderpad": 0.1, "labelcolor": GREY}
    third.add_artist(third.legend(handles=kinds, loc="upper right", **style))
    if len(runs) > 1:
        how = {True: "with BOS", False: "no BOS"}
        marks = [
            third.plot([], [], color=color, label=how[bool(tables.says_bos(b))])[0]
            for b, color in runs
        ]
        third.legend(handles=marks, loc="lower right", **style)
    third.set_xlim(min(contexts) / 1.15, T * 1.15)
    plotting.plain_ticks(third.xaxis, contexts.tolist(), contexts.astype(str).tolist())


def _table_context(data: xarray.Dataset) -> Rows:
    found = _bin_by_length(data)
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


CONTEXT_PICTURE = Picture(
    name="context",
    title=_context_title,
    subtitle=lambda data: f"Focus, spread and sinks: {words(data)}",
    caption=(
        "Left: median effective number of tokens of rows of length n, with all sinks and without, "
        "and the exact law of the latter. Middle: spread of their logits over √(ln n), median and "
        "quartiles; at 1 (grey) the limit law has n·S² = 1. Right: share of heads in which all "
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


def _map_heads(data: xarray.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return the median n_eff of the rows and the mean weight of all their sinks, [layer, head]."""
    here = longest(plain(data))
    n_eff = here["n_eff"].median(("text", "row"))
    return n_eff.values, here["sinks_mass"].mean(("text", "row")).values


def _maps_title(data: xarray.Dataset) -> str:
    # Quantiles 0.1 and 0.9 hold four of five heads between them.
    n_eff, _ = _map_heads(data)
    low, high = np.quantile(n_eff, [0.1, 0.9])
    return f"Four of five heads attend to {low:.0f} to {high:.0f} tokens"


def _draw_maps(data: xarray.Dataset, canvas: Canvas) -> None:
    """Draw n_eff and the weight of all sinks as maps over layers and heads."""
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.ticker import MaxNLocator

    # n_eff goes from 1 to T, over which a linear scale would show the widest heads alone; both
    # scales are the same for every model, so that maps can be compared.
    n_eff, sink = _map_heads(data)
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
    n_eff, sink = _map_heads(data)
    cells = ((i, j, float(n_eff[i, j]), float(sink[i, j])) for i, j in np.ndindex(n_eff.shape))
    return ("layer", "head", "n_eff", "weight_of_sinks"), cells


MAPS_PICTURE = Picture(
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
    colours=True,
)


def _choose_row(data: xarray.Dataset) -> tuple[int, int, np.ndarray, np.ndarray]:
    """Return the head whose last row, in the first text, shows both a sink and a law that holds.

    It is the one whose sinks take nearest to half of the mass and whose other keys are nearest to
    the exact law, both distances added up.

    Returns:
        Layer, head, weights and which keys are its sinks.
    """
    here = plain(data).isel(text=0)
    last = here.isel(row=-1)
    mass, law = last["sinks_mass"].values, last["residual_exact_without_sinks"].values
    # A row without a law counts as far off (9), to be shown only where no head has one.
    far = np.abs(mass - 0.5) + np.abs(np.where(np.isfinite(law), law, 9.0))
    layer, head = np.unravel_index(int(np.argmin(far)), far.shape)
    own = here.isel(layer=int(layer), head=int(head))
    return (
        int(layer),
        int(head),
        own["last_row"].values,
        sinks.find_sinks(own["key_importance"].values),
    )


def _row_title(data: xarray.Dataset) -> str:
    _, _, p, sink = _choose_row(data)
    n_eff, mass = metric.n_eff(p[~sink]), 100 * p[sink].sum()
    many = "its sink" if sink.sum() == 1 else f"{sink.sum()} sinks"
    return f"One row: {mass:.0f} % on {many}, the rest on {n_eff:.0f} of {len(p)} tokens"


def _label_sink(data: xarray.Dataset, key: int) -> str:
    """Return how a sink is labelled: by its position and its token."""
    if "token" not in data:
        return f"key {key + 1}"
    return f"key {key + 1}, “{spell_token(str(plain(data).isel(text=0)['token'].values[key]))}”"


def _draw_row(data: xarray.Dataset, canvas: Canvas) -> None:
    """Draw the weights of one row against their positions, and its logits beside a Gaussian."""
    _, _, p, sink = _choose_row(data)
    left = plotting.calm(canvas.add_axes((0.09, 0.13, 0.5, 0.64)))
    right = plotting.calm(canvas.add_axes((0.68, 0.13, 0.29, 0.64)))
    position = np.arange(1, len(p) + 1)
    left.set(yscale="log", xlim=(-len(p) / 50, len(p) * 1.02), ylim=(1e-6, 1.5))
    left.set(xlabel="position of the key", ylabel="weight p")
    keep = ~sink & (p > 1e-6)  # the axis ends there: smaller weights have no place on it
    left.vlines(position[keep], 1e-6, p[keep], color="#a9c6de", lw=0.7)
    left.plot(position[keep], p[keep], ".", color=BLUE, ms=3.5)
    left.plot(position[sink], p[sink], "s", color=VERMILLION, ms=6)
    beside = {"ha": "left", "fontsize": 10}
    for key in np.flatnonzero(sink)[:3].tolist():
        x = key + 1 + len(p) * 0.03
        plotting.inline(left, x, float(p[key]), _label_sink(data, key), VERMILLION, **beside)
    left.axhline(1 / len(p), color=GREY, lw=1)
    at = {"ha": "left", "va": "bottom", "fontsize": 9}
    plotting.inline(left, 0, 1.2 / len(p), "uniform", GREY, **at)
    # The weights are kept and the logits are not: ln p is the logit but for a constant of the row,
    # which falls out when the mean is taken off.
    with np.errstate(divide="ignore"):
        logits = np.log(p)
    others = logits[~sink & np.isfinite(logits)]
    mean, gamma = others.mean(), max(float(others.std(ddof=1)), 1e-6)  # a constant row has none
    z = (others - mean) / gamma
    # Cells are 0.4 wide; shares over their width are a density, as the Gaussian beside it.
    share = np.full(len(z), 1 / (0.4 * len(z)))
    right.hist(z, bins=np.arange(-4, 4.3, 0.4).tolist(), weights=share, color="#cfe0ee")
    # Sinks lie far to the right, on the axis, which is drawn as wide as they need.
    grid = np.linspace(-4, 4.5, 200)
    right.plot(grid, np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi), color=INK, lw=1.5)
    gap = (logits[sink] - mean) / gamma
    right.plot(gap, np.full(len(gap), 0.012), "s", color=VERMILLION, ms=6, clip_on=False)
    right.set(xlim=(-4, max(4.5, *(gap + 0.5), 0)), ylim=(0, 0.5))
    right.set_xlabel("logit, in γ̂ from the mean")
    left.set_title("its weights", loc="left", fontsize=11)
    right.set_title("its logits, and a Gaussian", loc="left", fontsize=11)


def _table_row(data: xarray.Dataset) -> Rows:
    layer, head, p, sink = _choose_row(data)
    rows = ((layer, head, k + 1, float(p[k]), int(sink[k])) for k in range(len(p)))
    return ("layer", "head", "key", "weight", "sink"), rows


ROW_PICTURE = Picture(
    name="row",
    title=_row_title,
    subtitle=lambda data: (
        "Last row of layer {}, head {}: ".format(*_choose_row(data)[:2]) + str(data.attrs["model"])
    ),
    caption=(
        "Left: the weights that the last query of the first text gives to all keys. Right: its "
        "logits less their mean, in standard deviations, without its sinks, beside a Gaussian; "
        "squares are the sinks, keys that take more than 0.1 of the head's weight on average. The "
        "row was chosen as the one whose sinks take nearest to half of the mass and whose rest is "
        "nearest to the exact law."
    ),
    alt=(
        "Left, weights of one row against position on a logarithmic scale: its sinks stand far "
        "above the other keys. Right, a histogram of its logits beside a Gaussian curve, with the "
        "sinks far in the upper tail."
    ),
    draw=_draw_row,
    table=_table_row,
    size=(7.2, 4.0),
)
