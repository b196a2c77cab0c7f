"""Pictures of a measurement: maps of heads, laws against rows, what changes with context, a row."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity import metric, plotting
from sparsity.measurement import tables
from sparsity.plotting import BLUE, GREY, INK, ORANGE, VERMILLION

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure as Canvas

__all__ = ["ALL", "Picture", "render"]

Rows = tuple[Sequence[str], Iterable[Sequence[Any]]]


@dataclass(frozen=True)
class Picture:
    """One picture of a measurement.

    Args:
        name: of its files.
        title: (data) -> the finding, with its numbers.
        subtitle: (data) -> what is shown, one line.
        caption: what to see and how it was computed.
        alt: the picture in words.
        draw: (data, canvas) -> None.
        table: (data) -> (columns, rows), what is drawn.
        size: width and height in inches.
    """

    name: str
    title: Callable[[xarray.Dataset], str]
    subtitle: Callable[[xarray.Dataset], str]
    caption: str
    alt: str
    draw: Callable[[xarray.Dataset, Canvas], None]
    table: Callable[[xarray.Dataset], Rows]
    size: tuple[float, float] = (7.2, 4.6)


def render(picture: Picture, data: xarray.Dataset) -> dict[str, bytes]:
    """Its files by suffix: svg, png, csv; the same bytes for the same data."""
    title, subtitle = picture.title(data), picture.subtitle(data)
    draw: Any = picture.draw
    files = plotting.render(draw, data, title, subtitle, picture.size)  # type: ignore[arg-type]
    columns, rows = picture.table(data)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([f"{x:.6g}" if isinstance(x, float) else x for x in row] for row in rows)
    return {**files, "csv": out.getvalue().encode()}


def _plain(data: xarray.Dataset) -> xarray.Dataset:
    """The runs without BOS, or those there are."""
    return data.isel(bos=0)


def _whole(data: xarray.Dataset) -> xarray.Dataset:
    """Rows of the longest context."""
    return tables.rows_at(data, int(data["context"][-1]))


def _says(data: xarray.Dataset) -> str:
    count, T = data.sizes["text"], int(data["context"][-1])
    return f"{data.attrs['model']}, {count} text{'s' * (count > 1)} of {T} tokens"


# Maps of all heads


def _maps(data: xarray.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Median n_eff of the rows, and mean importance of the first token, [layer, head]."""
    here = _plain(data)
    n_eff = _whole(here)["n_eff"].median(("text", "row"))
    return n_eff.values, here["importance"].isel(context=-1).mean("text").values


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
        (sink, "weight of the first token  α₁", Normalize(0, 1), "magma"),
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
    return ("layer", "head", "n_eff", "importance_of_first_token"), cells


# Laws against rows


def _heads(data: xarray.Dataset) -> dict[str, np.ndarray]:
    """Geometric means over the rows of each head, [layer, head]: measured and by both laws."""
    rows = _whole(_plain(data))
    names = {"measured": "S_rest", "limit": "S_limit_rest", "exact": "S_exact_rest"}
    out = {}
    for key, name in names.items():
        values = rows[name].transpose("layer", "head", "text", "row").values
        out[key] = np.exp(np.nanmean(np.log(np.maximum(values, 1e-30)), axis=(2, 3)))
    return out


def _laws_title(data: xarray.Dataset) -> str:
    row = next(row for row in reversed(tables.summary(_pick(data))))
    limit, exact = row["ratio_limit_rest"], row["ratio_exact_rest"]
    return f"S is {limit:.1f} times the limit law and {exact:.2f} times the exact law"


def _pick(data: xarray.Dataset) -> xarray.Dataset:
    return data.isel(bos=slice(0, 1))


def _draw_laws(data: xarray.Dataset, canvas: Canvas) -> None:
    found = _heads(data)
    depth = np.broadcast_to(np.arange(found["exact"].shape[0])[:, None], found["exact"].shape)
    low = 10 ** np.floor(np.log10(max(1e-6, min(np.quantile(x, 0.02) for x in found.values()))))
    low = max(low, 1e-3)
    names = (("limit", "limit law  exp(−γ̂²/2)"), ("exact", "exact law at the row's n and γ̂"))
    image = None
    for i, (key, label) in enumerate(names):
        ax = plotting.calm(canvas.add_axes((0.1 + 0.41 * i, 0.13, 0.36, 0.68)))
        ax.set(xscale="log", yscale="log", xlim=(low, 1), ylim=(low, 1), xlabel=label)
        ax.plot([low, 1], [low, 1], color=GREY, lw=1, zorder=1)
        x = np.maximum(found[key], low * 1.06)
        image = ax.scatter(
            x, found["measured"], c=depth, cmap="viridis", s=13, linewidths=0.3, edgecolors="white"
        )
        ticks = [10.0**k for k in range(round(np.log10(low)), 1)]
        for axis in (ax.xaxis, ax.yaxis):
            plotting.plain_ticks(axis, ticks)
        if i == 0:
            ax.set_ylabel("measured S")
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


# Against context length


def _edges(data: xarray.Dataset) -> np.ndarray:
    T = int(data["context"][-1])
    return np.unique(np.round(np.geomspace(8, T, max(6, round(3 * np.log2(T / 8)))))).astype(int)


def _along(data: xarray.Dataset) -> dict[str, np.ndarray]:
    """Medians over all heads and texts of rows binned by n, without BOS."""
    here, edges = _plain(data), _edges(data)
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
    rate = [tables.sink_rate(_plain(data), int(T), 0.3) for T in data["context"].values]
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
            label = f"{'BOS' if b else 'no BOS'}, ε = {epsilon:g}"
            third.plot(contexts, rates, color=color, ls=dash, marker=marker, ms=4, label=label)
    third.set_xlim(min(contexts) / 1.15, T * 1.15)
    plotting.plain_ticks(third.xaxis, contexts.tolist())
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
            name = f"sink rate, epsilon = {epsilon:g}, {'with' if b else 'without'} BOS"
            for T in data["context"].values:
                rate = tables.sink_rate(data.sel(bos=b), int(T), epsilon)
                rows.append((name, float(T), rate))
    return ("quantity", "n", "value"), rows


# One row


def _example(data: xarray.Dataset) -> tuple[int, int, np.ndarray]:
    """The head whose last row, in the first text, is the most ordinary: layer, head, weights."""
    here = _plain(data).isel(text=0)
    last = here.isel(row=-1)
    mass, law = last["sink_mass"].values, last["residual_exact_rest"].values
    far = np.abs(mass - 0.5) + np.abs(np.where(np.isfinite(law), law, 9.0))
    layer, head = np.unravel_index(int(np.argmin(far)), far.shape)
    return int(layer), int(head), here["last_row"].values[layer, head]


def _row_title(data: xarray.Dataset) -> str:
    p, sink = _example(data)[2], int(data.attrs["sink"])
    n_eff, mass = metric.effective_tokens(np.delete(p, sink)), 100 * p[sink]
    return f"One row: {mass:.0f} % on the sink, the rest on {n_eff:.0f} of {len(p)} tokens"


def _draw_row(data: xarray.Dataset, canvas: Canvas) -> None:
    layer, head, p = _example(data)
    sink = int(data.attrs["sink"])
    own = _plain(data).isel(text=0, layer=layer, head=head, row=-1)
    left = plotting.calm(canvas.add_axes((0.09, 0.13, 0.5, 0.64)))
    right = plotting.calm(canvas.add_axes((0.68, 0.13, 0.29, 0.64)))
    position = np.arange(1, len(p) + 1)
    left.set(yscale="log", xlim=(-len(p) / 50, len(p) * 1.02), ylim=(1e-6, 1.5))
    left.set(xlabel="position of the key", ylabel="weight p")
    keep = (position != sink + 1) & (p > 1e-6)
    left.vlines(position[keep], 1e-6, p[keep], color="#a9c6de", lw=0.7)
    left.plot(position[keep], p[keep], ".", color=BLUE, ms=3.5)
    left.plot([sink + 1], [p[sink]], "s", color=VERMILLION, ms=6)
    beside = {"ha": "left", "fontsize": 10}
    plotting.inline(left, len(p) * 0.03 + sink, p[sink], "first token", VERMILLION, **beside)
    left.axhline(1 / len(p), color=GREY, lw=1, ls=(0, (4, 3)))
    at = {"ha": "left", "va": "bottom", "fontsize": 9}
    plotting.inline(left, 0, 1.2 / len(p), "uniform", GREY, **at)
    with np.errstate(divide="ignore"):
        logits = np.log(p)
    others = np.delete(logits, sink)
    others = others[np.isfinite(others)]
    mean, gamma = others.mean(), float(own["gamma_rest"])
    z = (others - mean) / gamma
    right.hist(z, bins=np.arange(-4, 4.3, 0.4).tolist(), density=True, color="#cfe0ee")
    grid = np.linspace(-4, 4.5, 200)
    right.plot(grid, np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi), color=INK, lw=1.5)
    gap = (logits[sink] - mean) / gamma
    right.plot([gap], [0.012], "s", color=VERMILLION, ms=6, clip_on=False)
    right.set(xlim=(-4, max(4.5, gap + 0.5)), ylim=(0, 0.5), xlabel="logit, in γ̂ from the mean")
    left.set_title("its weights", loc="left", fontsize=11)
    right.set_title("its logits, and a Gaussian", loc="left", fontsize=11)


def _table_row(data: xarray.Dataset) -> Rows:
    layer, head, p = _example(data)
    rows = ((layer, head, k, float(x)) for k, x in enumerate(p, 1))
    return ("layer", "head", "key", "weight"), rows


ALL: tuple[Picture, ...] = (
    Picture(
        name="maps",
        title=_maps_title,
        subtitle=lambda data: f"All layers and heads of {_says(data)}",
        caption=(
            "Left: median effective number of tokens n_eff = 1/Σp² of the rows in the second half "
            "of the context. Right: importance of the first token, the mean weight that it "
            "receives. Both without BOS where it was left out, over all texts."
        ),
        alt=(
            "Two maps with a cell for each layer and head. The left one shows the effective number "
            "of tokens on a logarithmic scale, the right one the weight of the first token: heads "
            "with a heavy first token are those with few effective tokens."
        ),
        draw=_draw_maps,
        table=_table_maps,
        size=(7.2, 5.6),
    ),
    Picture(
        name="laws",
        title=_laws_title,
        subtitle=lambda data: f"Each head of {_says(data)}; rows without the sink",
        caption=(
            "Measured sparsity S against the law of Gaussian logits, each at the row's own spread "
            "γ̂ and, for the exact law, its own number n of keys; geometric means over the rows in "
            "the second half of the context, the first token taken out. The numbers above are "
            "medians over rows. Points at the left edge lie beyond it. No parameter is fitted."
        ),
        alt=(
            "Two scatter plots with logarithmic axes. Against the limit law the points lie far "
            "above the diagonal and spread out; against the exact law they gather around it."
        ),
        draw=_draw_laws,
        table=_table_laws,
        size=(7.2, 4.2),
    ),
    Picture(
        name="context",
        title=_context_title,
        subtitle=lambda data: f"Focus, spread and sinks: {_says(data)}",
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
    ),
    Picture(
        name="row",
        title=_row_title,
        subtitle=lambda data: (
            "Last row of layer {}, head {}: ".format(*_example(data)[:2]) + str(data.attrs["model"])
        ),
        caption=(
            "Left: the weights that the last query of the first text gives to all keys. Right: its "
            "logits less their mean, in standard deviations, without the first token, beside a "
            "Gaussian; the square is the first token. The row was chosen as the one whose sink "
            "takes nearest to half of the mass and whose rest is nearest to the exact law."
        ),
        alt=(
            "Left, weights of one row against position on a logarithmic scale: the first token "
            "stands far above the others. Right, a histogram of its logits beside a Gaussian "
            "curve, with the first token far in the upper tail."
        ),
        draw=_draw_row,
        table=_table_row,
        size=(7.2, 4.0),
    ),
)
