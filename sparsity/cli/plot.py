"""`plot`: a chart of theory, limit and Monte Carlo as a file, with its data beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sparsity.cli import common, completion, pages
from sparsity.errors import InputError

_SUFFIXES = ("svg", "png", "pdf")


def _suffix(out: str) -> str:
    """The format that a file's name ends in.

    Raises:
        InputError: it is none of those that are drawn.
    """
    suffix = Path(out).suffix.lower().removeprefix(".")
    if suffix not in _SUFFIXES:
        fix = f"give a name that ends in .svg, .png or .pdf, such as {Path(out).stem or 'f'}.svg"
        raise InputError("out", out, fix)
    return suffix


def _refuse_foreign(data: str) -> None:
    """Refuse to overwrite a table that is not one of a chart.

    Raises:
        InputError: the file is there, and begins otherwise than the tables written here.
    """
    from sparsity.figures.figure import TABLE_HEADER

    try:
        with open(data, encoding="utf-8", errors="replace") as file:
            begin = file.readline()
    except FileNotFoundError:
        return
    if begin and not begin.startswith(TABLE_HEADER):
        fix = "the data would be written there, and it is another table; give --out another name"
        raise InputError("out", data, fix)


def _rows(kernels: tuple[str, ...], steps: tuple[str, ...], given: dict[str, Any]) -> list[Any]:
    """The kernels, or rows of them with steps; a row starts from the first of each grid."""
    if not steps:
        return list(kernels)
    from sparsity import kernels as records
    from sparsity.cli.make import _row

    rows = []
    for kernel in kernels:
        names = {p.name for p in records.named(kernel).parameters}
        own = {name: text for name, text in given.items() if name in names}
        if "beta" in names:
            own = {"beta": "0"} | own
        rows.append(_row(kernel, steps, own))
    return rows


def _warn(series: list[Any], x: str) -> None:
    """Say on stderr, in one line, which error bars cannot be trusted."""
    found = [(each, *doubt) for each in series for doubt in each.doubts.items()]
    if found:
        first, place, why = found[0]
        more = f" (and {len(found) - 1} more, see the CSV)" if len(found) > 1 else ""
        said = f"sparsity: warning: Monte Carlo of {first.label} at {x} = {place:g}: {why}{more}"
        common.echo(said, err=True)


@click.command(
    cls=pages.Command,
    examples=(
        ("Attended tokens against length", "sparsity plot exp --gamma 2 --out focus.svg"),
        (
            "Two kernels, S with sampled points",
            "sparsity plot exp relu2 --gamma 2 --of S --montecarlo --out s.png",
        ),
        (
            "Against the spread, for two lengths",
            "sparsity plot exp --x gamma --gamma 0.1:5:41 --length 64,1024 --out g.pdf",
        ),
    ),
)
@click.argument(
    "kernels",
    metavar="KERNEL|FORMULA…",
    nargs=-1,
    required=True,
    shell_complete=completion.kernel_names,
)
@click.option(
    "--x",
    default="length",
    metavar="NAME",
    help="Along the x-axis: length (default), a number that the kernel takes, such as gamma, beta, "
    "decay, ratio or dim, or a number of a step: slope, window, logit, scale, offset, dim.",
)
@common.with_parameters
@click.option(
    "--along", metavar="GRID", help="Values along the x-axis, such as 0.1:10:61:log, for any --x."
)
@common.steps_option
@common.of_option
@click.option("--montecarlo", is_flag=True, help="Also sample five points of each curve.")
@click.option("--no-limit", is_flag=True, help="Leave out the limit of long rows.")
@click.option(
    "--rel-error",
    metavar="E",
    default="0.02",
    help="Relative standard error of a sampled point (default 0.02).",
)
@click.option("--title", metavar="TEXT", help="Title, in place of the default one.")
@click.option(
    "--out",
    required=True,
    metavar="FILE",
    help="The file to write: .svg, .png or .pdf; the data are written beside it as .csv.",
    shell_complete=completion.files,
)
@common.seed_option
@common.json_option
def plot(
    kernels: tuple[str, ...],
    x: str,
    along: str | None,
    steps: tuple[str, ...],
    of: str | None,
    montecarlo: bool,
    no_limit: bool,
    rel_error: str,
    title: str | None,
    out: str,
    seed: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Draw a quantity against length or a parameter, into a file.

    The exact law is a solid line, the limit of long rows dashed, Monte Carlo points with 95 % error
    bars. Parameters are numbers, lists a,b,c or grids start:stop:count[:log]: those of --x are its
    values, several of another are several curves. The data are written beside it as CSV.
    """
    from sparsity.output import refuse_unwritable, write_together

    suffix = _suffix(out)
    data = str(Path(out).with_suffix(".csv"))
    for path in (out, data):
        refuse_unwritable(path)
    _refuse_foreign(data)
    given = common.given(options)
    from sparsity.figures import plotting
    from sparsity.figures.figure import csv_of_curves
    from sparsity.plots import asked, chart
    from sparsity.plots.drawing import SIZE

    rows = _rows(kernels, steps, given if along is None else {x: along} | given)
    asked.subjects(rows, x)
    if along is not None:
        if x in given:
            fix = f"--{x.replace('_', '-')} has values of the x-axis as well; leave one of them out"
            raise InputError("along", along, fix)
        given[x] = along

    settings: dict[str, Any] = {
        "of": of,
        "montecarlo": montecarlo,
        "limit": not no_limit,
        "rel_error": common.number("rel_error", rel_error),
        "seed": common.number("seed", seed, int),
        "title": title,
    }
    if montecarlo:
        common.use_float64()
    with common.progress("curves") as report:
        made = chart(rows, x, progress=report, **settings, **given)
    series = [each for curve in made.drawn for each in curve.series]
    words = made.words

    def draw(_: Any, figure: Any) -> None:
        made.on(figure)

    files = plotting.render(draw, series, words.title, words.subtitle, SIZE, (suffix,))
    write_together({data: csv_of_curves(series, doubts=True), out: files[suffix]})
    _warn(series, x)
    if as_json:
        common.print_json(
            {
                "out": out,
                "data": data,
                "title": words.title,
                "x": x,
                "quantity": made.of,
                "series": [each.label for each in series],
            }
        )
    else:
        common.echo(f"{out}, {data}: {words.title}")
