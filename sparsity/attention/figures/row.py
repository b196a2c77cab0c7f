"""Picture: one row of one head, its weights and its logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sparsity import metric
from sparsity.attention.figures.record import Picture, Rows, plain
from sparsity.attention.measurement import sinks
from sparsity.attention.measurement.sinks import spell_token
from sparsity.figures import plotting
from sparsity.figures.plotting import BLUE, GREY, INK, VERMILLION

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure as Canvas


def _example(data: xarray.Dataset) -> tuple[int, int, np.ndarray, np.ndarray]:
    """The head whose last row, in the first text, is the most ordinary.

    Returns:
        Layer, head, weights and which keys are its sinks.
    """
    here = plain(data).isel(text=0)
    last = here.isel(row=-1)
    mass, law = last["sinks_mass"].values, last["residual_exact_without_sinks"].values
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
    _, _, p, sink = _example(data)
    n_eff, mass = metric.n_eff(p[~sink]), 100 * p[sink].sum()
    many = "its sink" if sink.sum() == 1 else f"{sink.sum()} sinks"
    return f"One row: {mass:.0f} % on {many}, the rest on {n_eff:.0f} of {len(p)} tokens"


def _mark(data: xarray.Dataset, key: int) -> str:
    """A sink by its position and its token."""
    if "token" not in data:
        return f"key {key + 1}"
    return f"key {key + 1}, “{spell_token(str(plain(data).isel(text=0)['token'].values[key]))}”"


def _draw_row(data: xarray.Dataset, canvas: Canvas) -> None:
    _, _, p, sink = _example(data)
    left = plotting.calm(canvas.add_axes((0.09, 0.13, 0.5, 0.64)))
    right = plotting.calm(canvas.add_axes((0.68, 0.13, 0.29, 0.64)))
    position = np.arange(1, len(p) + 1)
    left.set(yscale="log", xlim=(-len(p) / 50, len(p) * 1.02), ylim=(1e-6, 1.5))
    left.set(xlabel="position of the key", ylabel="weight p")
    keep = ~sink & (p > 1e-6)
    left.vlines(position[keep], 1e-6, p[keep], color="#a9c6de", lw=0.7)
    left.plot(position[keep], p[keep], ".", color=BLUE, ms=3.5)
    left.plot(position[sink], p[sink], "s", color=VERMILLION, ms=6)
    beside = {"ha": "left", "fontsize": 10}
    for key in np.flatnonzero(sink)[:3].tolist():
        x = key + 1 + len(p) * 0.03
        plotting.inline(left, x, float(p[key]), _mark(data, key), VERMILLION, **beside)
    left.axhline(1 / len(p), color=GREY, lw=1, ls=(0, (4, 3)))
    at = {"ha": "left", "va": "bottom", "fontsize": 9}
    plotting.inline(left, 0, 1.2 / len(p), "uniform", GREY, **at)
    with np.errstate(divide="ignore"):
        logits = np.log(p)
    others = logits[~sink & np.isfinite(logits)]
    mean, gamma = others.mean(), max(float(others.std(ddof=1)), 1e-6)  # a constant row has none
    z = (others - mean) / gamma
    share = np.full(len(z), 1 / (0.4 * len(z)))
    right.hist(z, bins=np.arange(-4, 4.3, 0.4).tolist(), weights=share, color="#cfe0ee")
    grid = np.linspace(-4, 4.5, 200)
    right.plot(grid, np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi), color=INK, lw=1.5)
    gap = (logits[sink] - mean) / gamma
    right.plot(gap, np.full(len(gap), 0.012), "s", color=VERMILLION, ms=6, clip_on=False)
    right.set(xlim=(-4, max(4.5, *(gap + 0.5), 0)), ylim=(0, 0.5))
    right.set_xlabel("logit, in γ̂ from the mean")
    left.set_title("its weights", loc="left", fontsize=11)
    right.set_title("its logits, and a Gaussian", loc="left", fontsize=11)


def _table_row(data: xarray.Dataset) -> Rows:
    layer, head, p, sink = _example(data)
    rows = ((layer, head, k + 1, float(p[k]), int(sink[k])) for k in range(len(p)))
    return ("layer", "head", "key", "weight", "sink"), rows


PICTURE = Picture(
    name="row",
    title=_row_title,
    subtitle=lambda data: (
        "Last row of layer {}, head {}: ".format(*_example(data)[:2]) + str(data.attrs["model"])
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
