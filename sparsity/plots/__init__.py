"""`plot`: a chart of theory, limit and Monte Carlo in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sparsity import quantities
from sparsity.errors import InputError
from sparsity.kernels import Kernel, Law, RowMap
from sparsity.kernels.parameters import LENGTH
from sparsity.plots import asked as asking
from sparsity.plots.asked import Asked
from sparsity.quantities import Quantity
from sparsity.rows.row import Row

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes

    from sparsity.plots.curves import Drawn
    from sparsity.plots.drawing import Words

__all__ = ["Chart", "chart", "plot"]


class Chart(NamedTuple):
    """Everything of a chart but the drawing.

    Args:
        drawn: the curves.
        words: what is written.
        log_x: whether the abscissa is logarithmic.
        control: the panel's control of it; or None.
        of: the name of what is drawn.
    """

    drawn: tuple[Drawn, ...]
    words: Words
    log_x: bool
    control: Any
    of: str

    def draw(self, ax: Axes, ends: bool = False) -> None:
        """Draw the curves into axes; with labels at their right ends where there is room."""
        from sparsity.plots import drawing

        how: Any = {"log_x": self.log_x, "control": self.control, "ends": ends}
        drawing.draw(self.drawn, ax, self.words, **how)

    def on(self, figure: Any) -> Axes:
        """Draw it on an empty Matplotlib figure, without the headline."""
        from sparsity.figures import plotting

        longest = max(len(curve.exact.label) for curve in self.drawn)
        labelled = 1 < len(self.drawn) and longest <= 26
        ax = plotting.axes(figure, "", "", right=0.94 - 0.0125 * longest if labelled else 0.97)
        self.draw(ax, ends=True)
        return ax


def _quantity(of: str | Quantity | None, curves: Sequence[Asked], x: str) -> Quantity:
    """What is drawn: n_eff of rows of n, else S."""
    if of is not None:
        return quantities.named(of)
    rows = all(
        curve.row.kernel.law is not Law.FEATURES and (x == LENGTH.name or curve.length is not None)
        for curve in curves
    )
    return quantities.n_eff if rows else quantities.S


def _labels(curves: Sequence[Asked]) -> tuple[list[str], str]:
    """What tells the curves apart, of each; and what they have in common."""
    names = list(dict.fromkeys(name for curve in curves for name in curve.held))
    differ = [n for n in names if len({curve.held.get(n, "") for curve in curves}) > 1]
    first = curves[0].held
    common = ", ".join(first[n] for n in names if n not in differ)
    each = [", ".join(c.held[n] for n in differ if c.held.get(n)) for c in curves]
    return [label or c.held["kernel"] for label, c in zip(each, curves, strict=True)], common


def _y(quantity: Quantity) -> str:
    """The ordinate in words."""
    from sparsity.figures import plotting
    from sparsity.panel import plots

    if quantity is quantities.S:
        return plotting.SPARSITY
    if quantity is quantities.n_eff:
        return "effective tokens  n_eff"
    return plots.named(quantity.name).label


def _words(curves: Sequence[Asked], quantity: Quantity, x: str, common: str) -> Words:
    from sparsity.plots.drawing import Words

    drawn = {"n_eff": "Effective tokens n_eff", "S": "Sparsity S"}.get(
        quantity.name, quantity.title[0].upper() + quantity.title[1:]
    )
    kernels = list(dict.fromkeys(curve.row.kernel.name for curve in curves))
    of = f" of {kernels[0]}" if len(kernels) == 1 else ""
    weight = getattr(curves[0].row.kernel, "formula", None) or curves[0].row.kernel.weight
    one = f"a = {weight}" if len(kernels) == 1 and len(str(weight)) < 48 else ""
    rest = common.removeprefix(kernels[0]).removeprefix(", ") if len(kernels) == 1 else common
    said = ", ".join(part for part in (one, rest) if part)
    label = asking.axis_label(curves, x)
    return Words(f"{drawn}{of} against {label.split('  ')[0]}", said, label, _y(quantity))


def chart(
    what: Any,
    x: str = "length",
    *,
    of: str | Quantity | None = None,
    montecarlo: Any = False,
    limit: bool = True,
    seed: int = 0,
    rel_error: float = 0.02,
    max_samples: float = 1e7,
    dtype: Any = None,
    labels: Sequence[str] | None = None,
    title: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    **parameters: Any,
) -> Chart:
    """The numbers and words of `plot`, which describes the arguments.

    Raises:
        InputError: as `plot`.
    """
    if hasattr(what, "data_vars"):
        from sparsity.plots.datasets import of_dataset

        found = of_dataset(what, x, of, limit, parameters)
    else:
        from sparsity.montecarlo import Sampling

        curves, values = asking.asked(what, x, parameters)
        quantity = _quantity(of, curves, x)
        named, common = _labels(curves)
        words = _words(curves, quantity, x, common)
        sampling = Sampling(rel_error, max_samples, seed, dtype)
        found = _computed(curves, quantity, x, values, montecarlo, sampling, named, limit,
                          progress, words)  # fmt: skip
    if labels is not None:
        found = _relabelled(found, labels)
    if title is not None:
        found = found._replace(words=found.words._replace(title=title))
    return found


def _computed(
    curves: Sequence[Asked],
    quantity: Quantity,
    x: str,
    values: np.ndarray,
    montecarlo: Any,
    sampling: Any,
    labels: Sequence[str],
    limit: bool,
    progress: Any,
    words: Words,
) -> Chart:
    from sparsity.plots import curves as numbers
    from sparsity.plots.drawing import is_log

    control = asking.control(curves, x)
    log_x = is_log(values, control, x == LENGTH.name)
    place = numbers.places(montecarlo, x, values)
    drawn = numbers.computed(
        curves, quantity, x, values, place, sampling, labels, limit, progress
    )  # fmt: skip
    return Chart(drawn, words, log_x, control, quantity.name)


def _relabelled(found: Chart, labels: Sequence[str]) -> Chart:
    """The chart with labels of the user's own.

    Raises:
        InputError: not one for each curve.
    """
    from dataclasses import replace

    if isinstance(labels, str) or len(labels) != len(found.drawn):
        raise InputError("labels", labels, f"give {len(found.drawn)} of them, one for each curve")
    drawn = []
    for curve, label in zip(found.drawn, labels, strict=True):
        long = curve.limit and replace(curve.limit, label=f"limit, {label}")
        drawn.append(replace(curve, exact=replace(curve.exact, label=str(label)), limit=long))
    return found._replace(drawn=tuple(drawn))


def plot(
    what: str | Kernel | RowMap | Row | Sequence[str | Kernel | RowMap | Row] | xarray.Dataset,
    x: str = "length",
    *,
    of: str | Quantity | None = None,
    montecarlo: bool | int | Sequence[float] = False,
    limit: bool = True,
    ax: Axes | None = None,
    seed: int = 0,
    rel_error: float = 0.02,
    max_samples: float = 1e7,
    dtype: Any = None,
    labels: Sequence[str] | None = None,
    title: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    **parameters: Any,
) -> Axes:
    """Draw a quantity of one or several rows against the row length or another parameter.

    The exact law is a solid line, the limit of long rows a dashed one. Sampled points have 95 %
    error bars. What no row can reach is shaded: n_eff below 1, S below 1/√n.

        sparsity.plot("log(1 + exp(s))", gamma=2, montecarlo=True)
        sparsity.plot(["exp", "relu2", "sparsemax"], gamma=2, length="1:4096:25:log")
        sparsity.plot("exp", gamma=[1, 2, 3], of="S")
        sparsity.plot("exp", x="gamma", length=1024)
        sparsity.plot(Row("exp", gamma=2, steps=(Window(64),)), x="window", length=4096)
        sparsity.plot(sparsity.sweep("relu2", beta=[-1, 0, 1], gamma="0.1:10:61:log"), x="gamma")

    Args:
        what: a kernel's name, a formula such as "log(1 + exp(s))", a `Kernel`, a `RowMap`, a `Row`,
            or a list of them; or a dataset made by `sweep`.
        x: the abscissa: "length", a kernel's parameter ("gamma", "beta", "decay", "ratio", "dim"),
            or a number of a row's step by its own name or the panel's ("slope", "window", "logit").
            Of a dataset one of its dimensions.
        of: the quantity, as in `exact`: "n_eff", "S", "entropy", …; None is n_eff of rows of n, and
            S of long rows where no `length` is given. Of a dataset one of its variables.
        montecarlo: whether to sample points, too; or how many, or at which x.
        limit: whether to draw the limit of long rows where there is one.
        ax: the Matplotlib axes to draw into; None makes a new pyplot figure in the house style,
            which a notebook shows.
        seed: of the sampling; every point has a stream of its own.
        rel_error: relative standard error for each point to reach.
        max_samples: the most draws to spend on a point.
        dtype: sampling precision; None takes float64 where JAX has it enabled.
        labels: of the curves, in place of what tells them apart.
        title: in place of the one that says what is drawn.
        progress: called with (parts done, parts in all).
        **parameters: of the rows, by name: a number, a list or text such as "0.1:10:61:log". Those
            of `x` are its values; of any other several values make several curves. `beta` is 0
            where it is not given. `length` is n.

    Returns:
        The axes. Nothing is shown or saved; Matplotlib's settings are left as they were.

    Raises:
        InputError: an unknown name, a missing parameter, a value outside its domain, or a quantity
            of which nothing is known here.
    """
    how: dict[str, Any] = {"montecarlo": montecarlo, "limit": limit, "seed": seed, "of": of}
    how |= {"rel_error": rel_error, "max_samples": max_samples, "dtype": dtype, "title": title}
    made = chart(what, x, labels=labels, progress=progress, **how, **parameters)
    import matplotlib

    from sparsity.figures import plotting
    from sparsity.plots.drawing import SIZE

    with matplotlib.rc_context(plotting.STYLE):
        if ax is not None:
            made.draw(ax)
            ax.set_title(made.words.title, loc="left", fontsize=11)
            return ax
        from matplotlib import pyplot

        figure = pyplot.figure(figsize=SIZE)
        plotting.headline(figure, made.words.title, made.words.subtitle)
        return made.on(figure)
