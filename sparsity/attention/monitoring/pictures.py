"""What was logged, drawn over the steps of a training, with the exact law beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.checks import check_instance, check_several, check_vector
from sparsity.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LAWS = {"n_eff": "n_eff_exact", "max_logit": "max_logit_exact"}
_NAMES = {"max_logit": "largest logit", "gamma": "spread  γ̂"}
_LOW, _HIGH = 0.1, 0.9  # of heads, between which eight of ten lie


def plot_training(
    logged: Sequence[Mapping[str, float]],
    steps: Sequence[float] | None = None,
    *,
    of: str = "n_eff",
    layer: str = "all",
    ax: Axes | None = None,
) -> Axes:
    """Draw a measured statistic over training, with the exact law of the same rows beside it.

    One line is the mean that was measured, at the steps that were looked at. The band about it is
    no error: it holds eight of ten heads, or of one layer logged without its heads all of them. The
    other line is what the exact law says of rows of the measured n and γ̂, where there is one: where
    the measured one is far below it, a few keys stand out.

    Args:
        logged: what `log` returned at each step, {} where a step was not looked at.
        steps: the number of each, ascending; None for 0, 1, 2, ….
        of: the statistic, such as "n_eff", "gamma" or "max_logit".
        layer: the name of a layer as in the log, or "all".
        ax: the Matplotlib axes to draw into; None makes a new pyplot figure.

    Returns:
        The axes. Nothing is shown or saved.

    Raises:
        InputError: nothing of that name was logged, or steps that do not fit.
    """
    fix = "give the dictionaries that log returned, one a step"
    logs = [check_instance("logged", x, Mapping, fix) for x in check_several("logged", logged, fix)]
    at = np.arange(len(logs)) if steps is None else check_vector("steps", steps, "give numbers")
    if len(at) != len(logs) or np.any(np.diff(at) <= 0):
        fix = f"give one for each of the {len(logs)} logs, ascending"
        raise InputError("steps", f"{len(at)} numbers", fix)
    name = f"{layer}/{of}"
    seen = np.array([name in numbers for numbers in logs], bool)
    if not seen.any():
        known = sorted({key for numbers in logs for key in numbers if ".head" not in key})
        fix = f"was not logged; there are {', '.join(known[:8]) or 'no numbers at all'}"
        raise InputError("of", name, fix)
    at, named = at[seen], [numbers for numbers in logs if name in numbers]
    mean = np.array([numbers[name] for numbers in named])
    lows, highs, shares = zip(*(_heads_between(x, layer, of) for x in named), strict=True)

    from sparsity.plotting import BLUE, TOKENS, VERMILLION, calm, plain_ticks

    ax = _new_axes() if ax is None else ax
    calm(ax, "#8a8f9833")  # half clear: it is pale on a light ground and on a dark one
    law = _LAWS.get(of, "")
    exact = np.array([numbers.get(f"{layer}/{law}", np.nan) for numbers in named])
    if np.isfinite(exact).any():
        ax.plot(at, exact, color=BLUE, lw=2, label="exact law of Gaussian rows")
    label = "measured"
    if np.isfinite(lows).any():
        label = f"measured; band holds {shares[0]}"
        ends = np.fmin(lows, mean), np.fmax(highs, mean)
        ax.fill_between(at, *ends, color=VERMILLION, alpha=0.3, lw=0)
    ax.plot(at, mean, color=VERMILLION, lw=2, label=label)
    ax.set(xlabel="training step", ylabel=TOKENS if of == "n_eff" else _NAMES.get(of, of))
    if of == "n_eff":
        ax.set_yscale("log")
        low, high = ax.get_ylim()
        ticks = [m * 10**k for k in range(9) for m in (1, 2, 5) if low <= m * 10**k <= high]
        plain_ticks(ax.yaxis, ticks)
    ax.set_title(_finding(of, layer, at, mean, exact), loc="left", fontsize=12, fontweight="bold")
    ax.legend(frameon=False)
    return ax


def _new_axes() -> Axes:
    """Return axes of a new pyplot figure in the house style, on a dark ground in its colours."""
    import matplotlib
    from matplotlib import pyplot
    from matplotlib.colors import to_rgb

    from sparsity import plotting

    figure = pyplot.figure(figsize=(7.2, 4.0))
    light = sum(to_rgb(figure.get_facecolor())) > 1.5
    style = {name: value for name, value in plotting.STYLE.items() if light or "color" not in name}
    with matplotlib.rc_context(style):
        return figure.add_axes((0.1, 0.13, 0.87, 0.78))


def _heads_between(numbers: Mapping[str, float], layer: str, of: str) -> tuple[float, float, str]:
    """Return between which values heads lie, NaN if unknown, and which: eight of ten, or all."""
    most, name = "8 of 10 heads", f"{layer}/{of}"
    prefix = ".*" if layer == "all" else re.escape(layer)
    of_head = re.compile(rf"{prefix}\.head\d+/{re.escape(of)}")
    if heads := [value for key, value in numbers.items() if of_head.fullmatch(key)]:
        return float(np.quantile(heads, _LOW)), float(np.quantile(heads, _HIGH)), most
    for low, high, share in (("q10", "q90", most), ("min", "max", "all heads")):
        if f"{name}_{low}" in numbers and f"{name}_{high}" in numbers:
            return numbers[f"{name}_{low}"], numbers[f"{name}_{high}"], share
    return np.nan, np.nan, ""


def _finding(of: str, layer: str, at: Any, mean: Any, exact: Any) -> str:
    """Say in a line what the picture shows."""
    where = "all layers" if layer == "all" else layer
    said = f"{of} of {where}: {mean[0]:.3g} at step {at[0]:g}, {mean[-1]:.3g} at step {at[-1]:g}"
    return said + (f" (exact law {exact[-1]:.3g})" if np.isfinite(exact[-1]) else "")
