"""`plot`: a chart of theory, limit and Monte Carlo in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sparsity.arguments import instance
from sparsity.kernels import Kernel, RowMap
from sparsity.plots.chart import Chart
from sparsity.plots.charts import chart
from sparsity.quantities import Quantity
from sparsity.rows.row import Row

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes

__all__ = ["Chart", "chart", "plot"]


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
        montecarlo: whether to sample points as well; or how many, or at which x.
        limit: whether to draw the limit of long rows where there is one.
        ax: the Matplotlib axes to draw into; None makes a new pyplot figure in the house style,
            which a notebook shows.
        seed: of the sampling; every point has a stream of its own.
        rel_error: relative standard error for each point to reach.
        max_samples: the most draws to spend on a point.
        dtype: sampling precision; None takes float64 where JAX has it enabled.
        labels: of the curves, in place of the default ones.
        title: in place of the default one; into axes of your own the default one has a second line,
            of what is held fixed.
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
    how |= {"rel_error": rel_error, "max_samples": max_samples, "dtype": dtype, "title": title}
    if ax is not None:
        from matplotlib.axes import Axes

        instance("ax", ax, Axes, "give axes of Matplotlib, or None")
    made = chart(what, x, labels=labels, progress=progress, **how, **parameters)
    import matplotlib

    from sparsity.figures import plotting
    from sparsity.plots.drawing import SIZE

    if ax is not None:
        with matplotlib.rc_context(plotting.STYLE):
            made.draw(ax)
            under = [made.words.subtitle] if title is None and made.words.subtitle else []
            said = "\n".join([made.words.title, *under])
            ax.set_title(said, loc="left", fontsize=11, parse_math=False)
        return ax
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=SIZE)  # here: with its first a notebook turns interactive
    with matplotlib.rc_context(plotting.STYLE):
        plotting.headline(figure, made.words.title, made.words.subtitle)
        return made.on(figure)
