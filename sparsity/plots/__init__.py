"""`plot` draws theory, limit and Monte Carlo in one call.

What was given passes through the modules so:

    kernels, rows ──> requests   the curves asked for: rows, and values along the x-axis
                  ──> curves     their numbers: exact law, limit, sampled points
    a dataset     ──> datasets   the same, taken from what `sweep` or `measure` made
    both          ──> drawing    a `Chart`, drawn on Matplotlib axes: `scales` set them; `colors`
                                 and `labels` tell its curves apart
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np

from sparsity import quantities
from sparsity.checks import (
    check_budget,
    check_flag,
    check_instance,
    check_pair,
    check_progress,
    check_seed,
    check_several,
    check_text,
)
from sparsity.errors import InputError
from sparsity.kernels import Law
from sparsity.kernels.parameters import LENGTH, names_parameters
from sparsity.plots import requests
from sparsity.plots.requests import CurveRequest, OnAxes
from sparsity.quantities import Quantity
from sparsity.rows.row import RowLike

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sparsity.attention.describe import Description
    from sparsity.plots.drawing import Chart, Words
    from sparsity.rows.row import Row
    from sparsity.sampling import Sampling

    class _ChartAxes(Axes):
        """The axes of a whole figure, so that a type checker takes `plot(…).figure.savefig(…)`."""

        @property
        def figure(self) -> Figure: ...  # type: ignore[override]


_LONGEST_NAME = 28  # of a kernel in a title; that of a longer formula says "a formula"
ROOT = "S_rms"  # √(n_eff/n), by the name that a sweep's dataset has it
LENGTHS_OF_A_MODEL = "1024:1048576:21:log"  # where rows by name are drawn, if nothing else is said

_SMALLEST, _LARGEST = 2.0, 100.0  # inches: on less there is no room for axes beside their labels


@names_parameters()
def plot(
    what: RowLike | Sequence[RowLike] | Mapping[str, Row] | Description | xarray.Dataset,
    x: str = "length",
    *,
    of: str | Quantity | None = None,
    montecarlo: bool | int | Sequence[float] = False,
    limit: bool = True,
    ax: Axes | None = None,
    seed: int = 0,
    rel_error: float = 0.02,
    max_samples: float = 1e7,
    labels: Sequence[str] | None = None,
    title: str | None = None,
    xscale: str | None = None,
    yscale: str | None = None,
    xlim: Sequence[float] | None = None,
    ylim: Sequence[float] | None = None,
    figsize: Sequence[float] | None = None,
    progress: Callable[[int, int], None] | None = None,
    **parameters: Unpack[OnAxes],
) -> _ChartAxes:
    """Draw a quantity of one or several rows against the row length or another parameter.

    The exact law is a solid line, the limit of long rows a dashed one beside it, and solid where it
    is all there is. Sampled points have 95 % error bars. What no row can have is shaded: n_eff
    below 1, S below 1/√n. On a dark ground, as of `plt.style.use("dark_background")`, text and
    curves are light. In a script `plt.show()` shows the chart and `ax.figure.savefig` saves it.

        sparsity.plot("log(1 + exp(s))", gamma=2, montecarlo=True)
        sparsity.plot(["exp", "relu2", "sparsemax"], gamma=2, length="1:4096:25:log")
        sparsity.plot("exp", gamma=[1, 2, 3], of="S")
        sparsity.plot("exp", x="gamma", length=1024)
        sparsity.plot("exp", x="dim", length=1024)
        sparsity.plot(Row("exp", gamma=2, steps=(Window(64),)), x="window", length=4096)
        sparsity.plot(sparsity.sweep("relu2", beta=[-1, 0, 1], gamma="0.1:10:61:log"), x="gamma")

    Args:
        what: a kernel's name, a formula such as "log(1 + exp(s))", a `Kernel`, a `RowMap`, a `Row`,
            or a list of them; rows by their labels, in a dictionary; what `describe` found, which
            are the rows of its layers; or a dataset made by `sweep`.
        x: the x-axis: "length", a kernel's parameter ("gamma", "beta", "decay", "ratio", "dim"),
            or a number of a row's step by its own name or the panel's ("slope", "window", "logit").
            "dim" of a score kernel is that of q, k ~ N(0, I), which gives γ = √d, or 1 with scores
            q·k/√d; with a `gamma` of keys of that spread. Points are then drawn as whole keys. Of
            a dataset one of its dimensions.
        of: the quantity, as in `exact`: "n_eff", "S", "entropy", …; "S_rms" is √(n_eff/n), beside S
            of long rows; None is n_eff of rows of n, and S of long rows where no `length` is given.
            Of a dataset one of its variables.
        montecarlo: whether to sample points as well; or how many, or at which x.
        limit: whether to draw the limit of long rows where there is one.
        ax: the Matplotlib axes to draw into; None makes a new pyplot figure in the house style,
            which a notebook shows.
        seed: of the sampling; every point has a stream of its own.
        rel_error: relative standard error for each point to reach.
        max_samples: the most draws to spend on a point; a first batch is always drawn.
        labels: of the curves, in place of the default ones.
        title: in place of the default one; into axes of your own the default one has a second line,
            of what is held fixed.
        xscale: "linear" or "log", in place of what the values of x ask for: even steps are linear.
        yscale: "linear" or "log", in place of what is drawn best. Shares are linear; S is too, but
            where all curves fall below a few per cent.
        xlim: the ends of the x-axis.
        ylim: the ends of the y-axis.
        figsize: width and height of the figure in inches.
        progress: called with (parts done, parts in all).
        **parameters: of the rows, by name: a number, a list or text such as "0.1:10:61:log". Those
            of `x` are its values; of any other several values make several curves. `beta` is 0
            where it is not given. `length` is n.

    Returns:
        The axes. Nothing is shown or saved; Matplotlib's settings are left as they were.

    Raises:
        InputError: an unknown name, a missing parameter, a value outside its domain, or a quantity
            that cannot be computed for these rows.
    """
    how: dict[str, Any] = {"montecarlo": montecarlo, "limit": limit, "seed": seed, "of": of}
    how |= {"rel_error": rel_error, "max_samples": max_samples, "title": title}
    how |= {"xscale": xscale, "yscale": yscale, "xlim": xlim, "ylim": ylim}
    if ax is not None:
        from matplotlib.axes import Axes

        check_instance("ax", ax, Axes, "give axes of Matplotlib, or None")
        if figsize is not None:
            raise InputError("figsize", figsize, "the axes given have a figure; leave one out")
    size = None if figsize is None else figure_size(figsize)
    made = chart(what, x, labels=labels, progress=progress, **how, **parameters)
    import matplotlib

    from sparsity.plots.colors import Palette
    from sparsity.plots.drawing import SIZE

    if ax is not None:
        figure: Any = ax.get_figure(root=True)
        palette = Palette.of(figure.get_facecolor(), ax.get_facecolor())
        with matplotlib.rc_context(palette.style):
            made.draw(ax)
            under = [made.words.subtitle] if title is None and made.words.subtitle else []
            said = "\n".join([made.words.title, *under])
            ax.set_title(said, loc="left", fontsize=11, parse_math=False)
        return cast("_ChartAxes", ax)
    from matplotlib import pyplot

    # Outside of the style: the first figure of a notebook turns Matplotlib interactive, and leaving
    # `rc_context` would turn that back.
    figure = pyplot.figure(figsize=size or SIZE)
    palette = Palette.of(figure.get_facecolor(), matplotlib.rcParams["axes.facecolor"])
    with matplotlib.rc_context(palette.style):
        return cast("_ChartAxes", made.on(figure))


def chart(
    what: Any,
    x: str = "length",
    *,
    of: str | Quantity | None = None,
    limit: bool = True,
    labels: Sequence[str] | None = None,
    title: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    **parameters: Any,
) -> Chart:
    """Compute the numbers and words of `plot`, which describes the arguments.

    Among the `parameters` are the settings of the sampling, and what is said of the axes.

    Raises:
        InputError: as `plot`.
    """
    limit = check_flag("limit", limit)
    from sparsity.plots.scales import View, read_view

    view = read_view(**{name: parameters.pop(name, None) for name in View._fields})
    settings = {name: parameters.pop(name, _SAMPLING[name]) for name in _SAMPLING}
    # A dataset is a mapping, too. It is known by its `data_vars`, so that xarray is not imported
    # for a plot without one; likewise what `describe` found by its `named_rows`.
    named = what.named_rows() if hasattr(type(what), "named_rows") else what
    if isinstance(named, Mapping) and not hasattr(type(what), "data_vars"):
        what, labels = list(named.values()), labels or list(map(str, named))
        parameters = {"length": LENGTHS_OF_A_MODEL} | parameters if x == "length" else parameters
    if title is not None:
        check_text("title", title, "give a text")
    if hasattr(type(what), "data_vars"):
        from sparsity.plots.datasets import chart_of_dataset

        if np.any(settings["montecarlo"]):
            fix = "a dataset is drawn as it is; give it to sweep, with montecarlo=True"
            raise InputError("montecarlo", settings["montecarlo"], fix)
        made = chart_of_dataset(what, x, of, limit, parameters)
    else:
        from sparsity.plots.curves import compute_curves, in_units_of_S, sampled_places

        asked, values = requests.read_curves(what, x, parameters)
        root = isinstance(of, str) and of == ROOT
        quantity = _quantity("n_eff" if root else of, asked, x)
        if quantity.token and x == LENGTH.name and x not in parameters:
            values = values[values >= quantity.token]  # shorter rows have no such token
        if root and x != LENGTH.name and any(request.length is None for request in asked):
            raise InputError("of", of, "is √(n_eff/n) of rows of n tokens; give a length")
        names, common = _labels(asked)
        montecarlo = settings.pop("montecarlo")
        places = sampled_places(montecarlo, x, values)
        sampling = _settings_of_sampling(settings, len(places) > 0)
        check_progress(progress)
        curves = compute_curves(
            asked, quantity, x, values, places, sampling, names, limit, progress
        )
        if root:
            pairs = zip(curves, asked, strict=True)
            curves = tuple(in_units_of_S(curve, x, request.length) for curve, request in pairs)
        from sparsity.plots.drawing import Chart  # with Matplotlib, while the curves are checked
        from sparsity.plots.scales import is_log

        drawn = quantities.S if root else quantity
        words, control = _words(asked, drawn, x, common), requests.control_of(asked, x)
        log_x = is_log(values, control, x == LENGTH.name)
        made = Chart(curves, words, log_x, control, drawn.name)
    made = made._replace(view=view)
    if labels is not None:
        made = _relabelled(made, labels)
    if title is not None:
        made = made._replace(words=made.words._replace(title=title))
    return made


def figure_size(given: Any) -> tuple[float, float]:
    """Return width and height of a figure.

    Raises:
        InputError: they are no two sizes, or none that a chart fits on.
    """
    fix = f"give width and height in inches, from {_SMALLEST:g} to {_LARGEST:g}"
    return check_pair(
        "figsize", given, fix, lambda x, y: _SMALLEST <= min(x, y) <= max(x, y) <= _LARGEST
    )


# The defaults of `plot`. A standard error of 2 % is about as large as a marker: less could not be
# seen. A point in a heavy tail may not reach it, and is left at the most samples.
_SAMPLING = {"montecarlo": False, "seed": 0, "rel_error": 0.02, "max_samples": 1e7}


def _settings_of_sampling(settings: Mapping[str, Any], sampled: bool) -> Sampling | None:
    """Return how points are sampled, None where none are; all settings are checked in both cases.

    Raises:
        InputError: a bad setting.
    """
    if sampled:
        from sparsity.sampling import Sampling  # with JAX: a chart of theory alone never loads it

        return Sampling(**settings)
    check_budget(settings["rel_error"], settings["max_samples"])
    check_seed(settings["seed"])
    return None


def _quantity(of: str | Quantity | None, curves: Sequence[CurveRequest], x: str) -> Quantity:
    """Return the quantity that is drawn: by default n_eff of rows of n, else S of long rows."""
    if of is not None:
        return quantities.named(of)
    rows = all(
        curve.row.kernel.law is not Law.FEATURES and (x == LENGTH.name or curve.length is not None)
        for curve in curves
    )
    return quantities.n_eff if rows else quantities.S


def _labels(curves: Sequence[CurveRequest]) -> tuple[list[str], str]:
    """Return what tells each of the curves from the others; and what they have in common.

    Args:
        curves: the curves, each with what it holds fixed, by name.
    """
    # What differs between any two curves goes into all their labels, the rest under the title.
    names = list(dict.fromkeys(name for curve in curves for name in curve.held))
    differ = [n for n in names if len({curve.held.get(n, "") for curve in curves}) > 1]
    first = curves[0].held
    common = ", ".join(first[n] for n in names if n not in differ)
    texts = [", ".join(c.held[n] for n in differ if c.held.get(n)) for c in curves]
    return [label or c.held["kernel"] for label, c in zip(texts, curves, strict=True)], common


def _words(curves: Sequence[CurveRequest], quantity: Quantity, x: str, common: str) -> Words:
    """Return the texts of the chart; `common` is what all curves hold fixed."""
    from sparsity.kernels.typesetting import typeset_weight
    from sparsity.plots.drawing import Words, y_axis_label

    titles = {"n_eff": "Effective tokens n_eff", "S": "Sparsity S"}
    capitalized = quantity.title[0].upper() + quantity.title[1:]
    drawn = titles.get(quantity.name, capitalized)
    kernels = list(dict.fromkeys(curve.row.kernel.name for curve in curves))
    of, weight = "", ""
    if len(kernels) == 1:
        name = curves[0].held["kernel"]
        weight = f"a = {typeset_weight(curves[0].row.kernel)}"
        of = f" of {name}" if len(name) <= _LONGEST_NAME else " of a formula"
        # The title names the kernel already.
        common = common.removeprefix(name).removeprefix(", ")
    said = ", ".join(part for part in (weight, common) if part)
    if any(isinstance(curve.spread, np.ufunc) for curve in curves):
        said += "; of q, k ~ N(0, I) in ℝᵈ only γ = ‖q‖ ≈ √d depends on d"
    elif any(curve.spread for curve in curves):
        said += "; with γ held fixed nothing depends on d"
    label = requests.axis_label(curves, x)
    title = f"{drawn}{of} against {label.split('  ')[0]}"
    return Words(title, said, label, y_axis_label(quantity))


def _relabelled(made: Chart, labels: Sequence[str]) -> Chart:
    """Return the chart with labels of the user's own.

    Raises:
        InputError: not one for each curve.
    """
    fix = f"give {len(made.curves)} of them, one for each curve"
    labels = check_several("labels", labels, fix)
    if len(labels) != len(made.curves):
        raise InputError("labels", labels, fix)
    curves = []
    for curve, label in zip(made.curves, labels, strict=True):
        long = curve.limit and replace(curve.limit, label=f"limit, {label}")
        curves.append(replace(curve, exact=replace(curve.exact, label=str(label)), limit=long))
    return made._replace(curves=tuple(curves))
