"""The page of a measurement: three pictures, a table, and the keys that are sinks.

A measurement is what `measure` returns, of one text or several. The pictures are SVG files
beside the page, which `report.html` lays out and explains; their numbers are in the measurement.
"""

from __future__ import annotations

import functools
import itertools
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np

from sparsity import plotting
from sparsity._version import __version__
from sparsity.attention.measurement import sinks, tables
from sparsity.output import folder, length_label, write, write_together

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

PICTURES = ("heads.svg", "context.svg", "sinks.svg")
SINKS_NAMED = 8  # of a text, those of most heads: a line on a page holds no more
FIRST_LENGTH = 8  # of the picture against n: shorter rows are focused by that alone
EPSILON = tables.THRESHOLDS[0]  # of the weight that makes a head one with sinks


@dataclass(frozen=True)
class Picture:
    """A picture on the page.

    Args:
        file: its name.
        title: what was found.
        draw: (measurement, figure) -> None.
    """

    file: str
    title: str
    draw: Callable[[xarray.Dataset, Figure], None]


def write_report(
    data: xarray.Dataset, out: str | os.PathLike[str], command: str
) -> tuple[Path, ...]:
    """Write the page of a measurement and its pictures, all or none of them.

    Args:
        data: what `sparsity.measure` returns.
        out: the folder, made if need be.
        command: what was typed, to stand on the page.

    Returns:
        The files, the page last.

    Raises:
        InputError: a folder that cannot be had.
    """
    run, home = _with_texts(data), folder(out)
    pictures = [_picture_heads(run), _picture_context(run), _picture_sinks(run)]
    contents: dict[Path, bytes | str] = {home / x.file: _rendered(x, run) for x in pictures}
    contents[home / "index.html"] = _render_page(run, pictures, command)
    write_together(contents)
    return tuple(contents)


def write_picture(data: xarray.Dataset, path: str | os.PathLike[str]) -> Path:
    """Write the first picture alone, n_eff by layer and head, as SVG.

    Raises:
        InputError: a path that cannot be written.
    """
    run, place = _with_texts(data), Path(path)
    write(place, _rendered(_picture_heads(run), run))
    return place


def _rendered(picture: Picture, run: xarray.Dataset) -> bytes:
    size, form = (7.2, 4.4), "svg"
    draw = functools.partial(picture.draw, run)
    return plotting.render(draw, picture.title, _said_of(run), size, (form,))[form]


def _with_texts(data: xarray.Dataset) -> xarray.Dataset:
    """Return the measurement over text, of length one where it is of a single one."""
    if "text" in data.dims:
        return data
    return (data if "text" in data.coords else data.assign_coords(text="text")).expand_dims("text")


def _said_of(run: xarray.Dataset) -> str:
    count, T = run.sizes["text"], int(run["context"][-1])
    model = run.attrs.get("model", "attention")
    bos = " after the model's first token" if run.attrs.get("bos") else ""
    return f"{model}: {count} text{'s' * (count > 1)} of {T} tokens{bos}, every layer and head"


def _late_rows(run: xarray.Dataset) -> xarray.Dataset:
    """Return the rows in the second half of the longest context."""
    return tables.rows_at(run, int(run["context"][-1]))


def _picture_heads(run: xarray.Dataset) -> Picture:
    low, high = np.nanquantile(_median_of_heads(run), [0.1, 0.9])
    T = int(run["context"][-1])
    title = f"Four of five heads attend to {low:.1f} to {high:.1f} of {T} tokens"
    return Picture(PICTURES[0], title, _draw_heads)


def _median_of_heads(run: xarray.Dataset) -> np.ndarray:
    return _late_rows(run)["n_eff"].median(("text", "row")).transpose("layer", "head").values


def _draw_heads(run: xarray.Dataset, figure: Figure) -> None:
    from matplotlib.colors import LogNorm

    # From 1 to T for every model, so that pages can be compared; n_eff covers decades.
    T = int(run["context"][-1])
    bar = _draw_map(figure, _median_of_heads(run), LogNorm(1, T), "viridis", plotting.TOKENS)
    plotting.plain_ticks(bar.ax.yaxis, [4**k for k in range(16) if 4**k <= T])


def _top_of_axes(figure: Figure) -> float:
    """Return how high axes reach, under a headline of as many lines as it has."""
    lowest = min((text.get_window_extent().y0 for text in figure.texts), default=np.inf)
    return min(0.81, lowest / figure.bbox.height - 0.04)


def _draw_map(figure: Figure, values: np.ndarray, norm: Any, colours: str, label: str) -> Any:
    """Draw a map over layers and heads, and return its colour bar."""
    height = _top_of_axes(figure) - 0.12
    ax = figure.add_axes((0.09, 0.12, 0.72, height))
    image = ax.imshow(values, cmap=colours, norm=norm, origin="lower", aspect="auto")
    ax.set(xlabel="head", ylabel="layer")
    for axis, count in zip((ax.yaxis, ax.xaxis), values.shape, strict=True):
        axis.set_ticks(range(0, count, -(-count // 10)))  # ten labels at most
    bar = figure.colorbar(image, cax=figure.add_axes((0.84, 0.12, 0.025, height)))
    bar.set_label(label)
    return bar


def _picture_context(run: xarray.Dataset) -> Picture:
    n, lines = _medians_by_length(run)
    whole, *others = [(name, f"{values[-1]:.3g}") for name, values in lines.items()]
    beside = f" ({', '.join(f'{name}: {value}' for name, value in others)})" if others else ""
    title = f"Of {n[-1]:.0f} keys the median row attends to {whole[1]}{beside}"
    return Picture(PICTURES[1], title, _draw_context)


def _medians_by_length(run: xarray.Dataset) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return middles of ranges of n, three in each octave, and medians of n_eff over their rows."""
    measured = {"whole row": run["n_eff"], "without sinks": run["n_eff_without_sinks"]}
    if "S_exact_without_sinks" in run:  # of weights alone no logits are known, and no law
        measured["exact law"] = run["S_exact_without_sinks"] ** 2 * run["length_without_sinks"]
    length = run["length"].broadcast_like(run["n_eff"]).transpose(*run["n_eff"].dims).values
    longest = int(length.max())
    first = min(FIRST_LENGTH, longest)
    edges = np.geomspace(first, longest + 0.5, 2 + round(3 * np.log2(longest / first)))
    ranges = [(low <= length) & (length < high) for low, high in itertools.pairwise(edges)]
    ranges = [rows for rows in ranges if rows.any()]
    # Where every key is a sink no row is left without them, and there is no line.
    lines = {}
    for name, x in measured.items():
        of_rows = x.transpose(*run["n_eff"].dims).values
        values = np.array([tables.median(of_rows[rows]) for rows in ranges])
        lines |= {name: values} if np.isfinite(values[-1]) else {}
    return np.array([np.median(length[rows]) for rows in ranges]), lines


def _draw_context(run: xarray.Dataset, figure: Figure) -> None:
    n, lines = _medians_by_length(run)
    height = _top_of_axes(figure) - 0.13
    ax = plotting.axes(figure, "keys n that the row sees", plotting.TOKENS, right=0.8)
    ax.set_position((*ax.get_position().p0, ax.get_position().width, height))
    colours = (plotting.VERMILLION, plotting.BLUE, plotting.GREY)
    for (name, values), colour in zip(lines.items(), colours, strict=False):
        style: Any = {"lw": 1.8} if name == "exact law" else {"marker": "o", "ms": 4, "ls": "none"}
        ax.plot(n, values, color=colour, **style)
    top = 2.0 ** np.ceil(np.log2(max(2.0, *(np.nanmax(x) for x in lines.values()))))
    ax.set(xscale="log", yscale="log", ylim=(1, top))
    ticks = [2.0**k for k in range(40) if n[0] / 1.5 <= 2.0**k <= n[-1]]
    ticks = ticks if len(n) > 1 else [n[0]]
    plotting.plain_ticks(ax.xaxis, ticks, list(map(length_label, ticks)))
    plotting.plain_ticks(ax.yaxis, [2.0**k for k in range(round(np.log2(top)) + 1)])
    ends = zip(lines.items(), colours, strict=False)
    plotting.end_labels(ax, [(float(x[-1]), name, colour) for (name, x), colour in ends])


def _picture_sinks(run: xarray.Dataset) -> Picture:
    share = tables.summarise_context(run, int(run["context"][-1]))[f"all_sinks_rate_{EPSILON:g}"]
    title = f"Sinks take more than {EPSILON:g} of the weight in {100 * share:.0f} % of the heads"
    return Picture(PICTURES[2], title, _draw_sinks)


def _draw_sinks(run: xarray.Dataset, figure: Figure) -> None:
    from matplotlib.colors import Normalize

    mass = _late_rows(run)["all_sinks_mass"].mean(("text", "row")).transpose("layer", "head")
    _draw_map(figure, mass.values, Normalize(0, 1), "magma", "weight of all sinks together")


def _name_sinks(run: xarray.Dataset) -> list[tuple[str, str]]:
    """Return the name of each text and its sinks, those of most heads first."""
    named = []
    for text in run["text"].values:
        one = run.sel(text=text)
        words = [str(x) for x in one["token"].values] if "token" in one else [""] * len(one["key"])
        listed = sinks.list_sinks(one["key_importance"].values, words)
        listed = sorted(listed, key=lambda sink: -sink["heads"])[:SINKS_NAMED]
        spelt = ((x, f" “{sinks.spell_token(x['token'])}”" if x["token"] else "") for x in listed)
        keys = (f"{x['position']}{word} ({x['heads']})" for x, word in spelt)
        named.append((str(text), ", ".join(keys) or "none"))
    return named


def _render_page(run: xarray.Dataset, pictures: list[Picture], command: str) -> str:
    rows = tables.summary(run)
    columns = [x for x in tables.columns_of(rows[0]) if x not in tables.FIRST_TOKEN]
    home = resources.files("sparsity")
    template = home.joinpath("attention", "report.html").read_text("utf-8")
    page = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return page.from_string(template).render(
        style=home.joinpath("report", "style.css").read_text("utf-8"),
        model=run.attrs.get("model", "Attention"),
        said=_said_of(run),
        pictures=pictures,
        least=sinks.MIN_SINK_WEIGHT,
        titles=[title for _, title, _ in columns],
        rows=[[f"{row[key]:{form}}" for key, _, form in columns] for row in rows],
        sinks=_name_sinks(run),
        command=command,
        versions=f"sparsity {__version__}, NumPy {np.__version__}, Python "
        f"{platform.python_version()}",
    )
