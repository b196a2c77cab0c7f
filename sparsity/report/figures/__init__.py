"""The figures: each with its words, what it computes and its drawing; and the tuple of all.

`figure` has what a figure is and where on it the curves lie; these are records of
`sparsity.series`, drawn by `sparsity.plotting`.
"""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Callable

from sparsity import plotting
from sparsity.checks import check_executor, check_instance, check_progress
from sparsity.output import folder, write_together
from sparsity.report.figures.design import FIGURE as design
from sparsity.report.figures.figure import Context, Data, Figure, Plate, describe_places
from sparsity.report.figures.kernels import BIAS as bias
from sparsity.report.figures.kernels import EXP as exp
from sparsity.report.figures.kernels import IDENTITY as identity
from sparsity.report.figures.kernels import NONNEGATIVE as nonnegative
from sparsity.report.figures.kernels import RELU2 as relu2
from sparsity.report.figures.measures import FIGURE as measures
from sparsity.report.figures.overview import FIGURE as overview
from sparsity.report.figures.rotary import CONTEXT as context
from sparsity.report.figures.rotary import ROPE as rope
from sparsity.report.figures.rows import DECAYED as decayed
from sparsity.report.figures.rows import LENGTHS as lengths
from sparsity.report.figures.rows import PHASE as phase
from sparsity.report.figures.rows import ROWS as rows
from sparsity.report.figures.sinks import MIXING as mixing
from sparsity.report.figures.sinks import SINKS as sinks
from sparsity.series import csv_of_curves
from sparsity.tasks import TaskExecutor, run_all_tasks

__all__ = ["ALL", "Context", "Figure", "Plate", "draw", "render", "write_all"]

ALL: tuple[Figure, ...] = (
    *(relu2, identity, exp, bias, nonnegative, decayed, rows, lengths, overview),  # kernels
    *(phase, measures, design, sinks, mixing, rope, context),  # length and position
)

_WORKERS = 2  # threads: one compiles while another samples


def render(figure: Figure, data: Data) -> dict[str, bytes]:
    """Return the contents of a figure's files by suffix: svg, png, csv; same data, same bytes.

    All three have the digits that are the same on every processor.
    """
    data = tuple(series.rounded() for series in data)
    draw = functools.partial(figure.draw, data)
    says = functools.partial(describe_places, data=data)
    files = plotting.render(draw, figure.title, figure.subtitle, figure.size, describe=says)
    return {**files, "csv": csv_of_curves(data).encode()}


def _plate(figure: Figure, data: Data) -> Plate:
    words = figure.name, figure.title, figure.caption, figure.alt
    return Plate(*words, render(figure, data))


def draw(figure: Figure, *, seed: int = 0, rel_error: float = 3e-3) -> Plate:
    """Compute a figure, its Monte Carlo points included, and draw it; a notebook shows it.

    Args:
        figure: one of `ALL`, or one like them.
        seed: of everything sampled; the same seed gives the same picture.
        rel_error: relative standard error to reach in each sampled point.
    """
    check_instance("figure", figure, Figure, "give one of sparsity.figures.ALL")
    return _plate(figure, figure.data(Context(seed, rel_error)))


def write_all(
    out: str | os.PathLike[str],
    *,
    seed: int = 0,
    rel_error: float = 1e-3,
    executor: TaskExecutor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Plate, ...]:
    """Compute and write every figure: NAME.svg, NAME.png and its data NAME.csv.

    Args:
        out: the folder, made if need be.
        seed: of everything sampled; the same seed gives the same files.
        rel_error: relative standard error to reach in each sampled point.
        executor: where their data are computed, as in `sweep`; the same bytes likewise. None is two
            threads of this process. They are drawn here.
        progress: called with (figures done, figures in all).

    Returns:
        What was written, in the order of `ALL`.

    Raises:
        InputError: the folder or a file cannot be written, or a bad seed or rel_error.
    """
    # Not a lambda: other processes get the function by pickle.
    work = operator.methodcaller("data", Context(seed, rel_error))
    check_progress(progress)
    check_executor(executor)
    out, written = folder(out), {}
    for index, data in run_all_tasks(work, ALL, executor, progress, threads=_WORKERS):
        # Drawn in this thread alone: a style is set in the state of all of Matplotlib.
        plate = _plate(ALL[index], data)
        write_together({out / f"{plate.name}.{x}": content for x, content in plate.files.items()})
        written[index] = plate
    return tuple(written[i] for i in range(len(ALL)))


def __dir__() -> list[str]:
    return sorted(__all__)
