"""`plot` and `sweep`: a chart with its data, and quantities over grids, written to files."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

import sparsity
from sparsity.cli import common, pages
from sparsity.errors import InputError
from sparsity.output import (
    TABLE_HEADER,
    netcdf_bytes,
    refuse_unwritable,
    refuse_unwritable_folder,
    write,
    write_together,
)

_PLOT_SUFFIXES = (".svg", ".png", ".pdf")
_PAGE_SUFFIX = ".html"
_SCALES = ("linear", "log")


def check_chart_file(out: str) -> None:
    """Refuse a chart's file before the work.

    Raises:
        InputError: it is of no kind that is drawn, it or the table beside it cannot be written, or
            a table stands there that is not one of a chart.
    """
    if Path(out).suffix.lower() not in _PLOT_SUFFIXES:
        such = f"such as {Path(out).stem or 'f'}.svg"
        fix = f"give a name that ends in .svg, .png or .pdf, or .html for a page, {such}"
        raise InputError("out", out, fix)
    data = Path(out).with_suffix(".csv")
    for path in (out, data):
        refuse_unwritable(path)
    # Nobody named the .csv: `--out results.svg` must not overwrite a results.csv of measurements.
    # Tables written here are known by how they begin.
    with suppress(FileNotFoundError), open(data, encoding="utf-8", errors="replace") as file:
        begin = file.readline()
        if begin and not begin.startswith(TABLE_HEADER):
            fix = (
                "the data would be written there, and it is another table; give --out another name"
            )
            raise InputError("out", str(data), fix)


def write_chart(made: Any, out: str, size: Any = None) -> tuple[list[Any], str]:
    """Write a chart and its data beside it.

    Args:
        made: the chart, as `sparsity.plots.chart` makes it.
        out: the name of its file, which says by its ending what is drawn.
        size: width and height in inches; None for the usual ones.

    Returns:
        The series of its curves, and the name of the data's file.
    """
    from sparsity import plotting
    from sparsity.plots.drawing import SIZE
    from sparsity.series import csv_of_curves

    lines = (line for curve in made.curves for line in (curve.exact, curve.limit))
    series, words = [line for line in lines if line is not None], made.words
    kind, data = Path(out).suffix.lower().removeprefix("."), str(Path(out).with_suffix(".csv"))
    files = plotting.render(made.on, words.title, None, size or SIZE, (kind,))
    write_together({data: csv_of_curves(series, doubts=True), out: files[kind]})
    return series, data


@click.command()
@click.argument(
    "kernels",
    metavar="KERNEL|FORMULA…",
    nargs=-1,
    required=True,
    shell_complete=pages.offer_kernels,
)
@common.option(
    "--x",
    "NAME",
    "Along the x-axis: length (default), a number that the kernel takes, such as gamma, beta, "
    "decay, ratio or dim, or a number of a step: slope, window, logit, scale, offset, dim.",
    default="length",
)
@common.with_parameters
@common.option("--along", "GRID", "Values along the x-axis, such as 0.1:10:61:log, for any --x.")
@common.steps_option
@common.of_option
@click.option("--montecarlo", is_flag=True, help="Also sample five points of each curve.")
@click.option("--no-limit", is_flag=True, help="Leave out the limit of long rows.")
@common.option(
    "--rel-error", "E", "Relative standard error of a sampled point", default="0.02", kind=float
)
@common.option("--title", "TEXT", "Title, in place of the default one.")
@common.choice("--xscale", _SCALES, "Scale of the x-axis; a grid with even steps is linear.")
@common.choice("--yscale", _SCALES, "Scale of the y-axis (default: what suits the quantity).")
@common.option("--xlim", "LOW,HIGH", "Ends of the x-axis.")
@common.option("--ylim", "LOW,HIGH", "Ends of the y-axis.")
@common.option("--figsize", "W,H", "Width and height in inches; 7.2,4.6 if not given.")
@common.option(
    "--out",
    "FILE",
    "The file to write: .svg, .png or .pdf, with the data beside it as .csv; or .html, a page with "
    "sliders to send.",
    required=True,
    offers=pages.offer_files,
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
    title: str | None,
    figsize: str | None,
    out: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Draw a quantity against length or a parameter, into a file.

    KERNEL is a name from `sparsity list`, or a formula of the score s: "log(1+exp(s))".

    The exact law is a solid line, the limit of long rows dashed, Monte Carlo points with 95 % error
    bars. Parameters are numbers, lists a,b,c or grids start:stop:count[:log]: those of --x run
    along the axis, several of another give several curves. The data are written beside it as CSV.

    \b
    Examples:
      Attended tokens against length:
        sparsity plot exp --gamma 2 --out focus.svg
      Two kernels, S with sampled points:
        sparsity plot exp relu2 --gamma 2 --of S --montecarlo --out s.png
      Against the spread, for two lengths:
        sparsity plot exp --x gamma --gamma 0.1:5:41 --length 64,1024 --out g.pdf
      Against the dimension, of scores q·k and q·k/√d:
        sparsity plot exp --x dim --length 1024 --out d.svg
      A page to send, with sliders:
        sparsity plot exp relu2 --x gamma --length 1024 --out page.html
    """
    given = common.without_none({name: options.pop(name) for name in common.PARAMETERS})
    if Path(out).suffix.lower() == _PAGE_SUFFIX:
        refuse_unwritable(out)
        for_pictures: dict[str, Any] = {"step": ", ".join(steps), "montecarlo": montecarlo}
        for_pictures |= {"no-limit": no_limit, "figsize": figsize}
        for_pictures |= {name: options[name] for name in ("xscale", "yscale", "xlim", "ylim")}
        for name, value in for_pictures.items():
            if value:
                fix = "is for pictures; leave it out, or give --out a name that ends in .svg"
                raise InputError(name, value, fix)
        return write_page(kernels, x, of, _with_along(given, x, along), title, out, as_json)
    check_chart_file(out)
    from sparsity.kernels import named
    from sparsity.plots import chart, figure_size
    from sparsity.plots.requests import check_x_axis
    from sparsity.sweeps.grids import parse_grid

    # With --step a kernel becomes a row, from the parameters that it takes among those of all.
    rows: list[Any] = [*kernels]
    if steps:
        starts = ({} if along is None else {x: along}) | given
        for i, kernel in enumerate(kernels):
            names = {p.name for p in named(kernel).parameters}
            numbers = {name: text for name, text in starts.items() if name in names}
            rows[i] = _row_at_first(kernel, steps, numbers)
    check_x_axis(rows, x)  # here too: a name of an option would pass for one
    size = None if figsize is None else figure_size(parse_grid(figsize, "figsize").tolist())
    ends = common.without_none({name: options[name] for name in ("xlim", "ylim")})
    options |= {name: parse_grid(text, name).tolist() for name, text in ends.items()}
    given = _with_along(given, x, along)
    if montecarlo:
        common.use_float64()
    with common.progress("curves") as report:
        made = chart(
            rows,
            x,
            of=of,
            montecarlo=montecarlo,
            limit=not no_limit,
            title=title,
            progress=report,
            **options,
            **given,
        )
    (series, data), words = write_chart(made, out, size), made.words
    doubted = [(line.label, *doubt) for line in series for doubt in line.doubts.items()]
    if doubted:
        label, place, why = doubted[0]
        more = f" (and {len(doubted) - 1} more, see the CSV)" if len(doubted) > 1 else ""
        said = f"sparsity: warning: Monte Carlo of {label} at {x} = {place:g}: {why}{more}"
        common.echo(said, err=True)
    if as_json:
        labels = [line.label for line in series]
        answer = {"out": out, "data": data, "title": words.title, "x": x}
        common.print_json(answer | {"quantity": made.of, "series": labels})
    else:
        common.echo(f"{out}, {data}: {words.title}")


def _with_along(given: dict[str, Any], x: str, along: str | None) -> dict[str, Any]:
    """Return the parameters with the values of --along under the name of the x-axis."""
    if along is None:
        return given
    if x in given:
        fix = f"--{x.replace('_', '-')} has values of the x-axis as well; leave one of them out"
        raise InputError("along", along, fix)
    return given | {x: along}


def write_page(
    kernels: tuple[str, ...],
    x: str,
    of: str | None,
    given: dict[str, Any],
    title: str | None,
    out: str,
    as_json: bool,
) -> None:
    """Write the page of `plot`: sliders move its first values, and curves of further ones stay.

    Raises:
        InputError: a page does not have what is asked for, or the file cannot be written.
    """
    from sparsity.plots import browser

    with_length = x == "length" or "length" in given
    y = ("n_eff" if with_length else "S") if of is None else of
    if y not in browser.VIEWS:
        raise InputError("of", of, f"a page has {', '.join(browser.VIEWS)}; or give --out f.svg")
    start = browser.page_of_request(kernels, x, y, given, title)
    browser.save(out, start)
    shown = [kernel.name for kernel in start.shown]
    if as_json:
        common.print_json({"out": out, "x": x, "quantity": y, "kernels": shown})
    else:
        common.echo(f"{out}: {', '.join(shown)} against {x}, a page that needs no network")


def check_table_file(out: str) -> None:
    """Refuse the file of a sweep before the work.

    Raises:
        InputError: its name ends in none of .nc, .csv and .zarr, or it cannot be written.
    """
    suffix = Path(out).suffix.lower()
    if suffix == ".zarr":
        refuse_unwritable_folder(out)
    elif suffix not in (".nc", ".csv") and not Path(out).is_dir():
        fix = f"give a name that ends in .nc, .zarr or .csv, such as {Path(out).stem}.nc"
        raise InputError("out", out, fix)
    else:
        refuse_unwritable(out)


def write_table(dataset: Any, out: str) -> None:
    """Write the dataset of a sweep as netCDF or CSV, whole or not at all."""
    if Path(out).suffix.lower() == ".nc":
        write(out, netcdf_bytes(dataset))
        return
    # Of one cell there is no dimension to make rows of.
    table = (dataset if dataset.sizes else dataset.expand_dims("cell")).to_dataframe()
    names = [*map(str, dataset.coords), *map(str, dataset.data_vars)]
    write(out, table.reset_index()[names].to_csv(index=False))


def _row_at_first(kernel: str, steps: tuple[str, ...], grids: dict[str, str]) -> Any:
    """Return the row with steps, at the first value of each grid."""
    from sparsity.rows.row import Row
    from sparsity.rows.steps import parse

    # A `Row` has one value of each parameter. Which one does not matter here: `chart` and `sweep`
    # put their own grids in its place.
    first = {name: re.split("[:,]", text)[0] for name, text in grids.items() if name != "length"}
    return Row(kernel, steps=tuple(map(parse, steps)), **first)


@click.command()
@common.kernel_argument
@common.with_parameters
@common.steps_option
@common.several_of_option
@common.option(
    "--out",
    "FILE",
    "The file to write: .nc or .csv at the end; or .zarr, written as results come: the same "
    "command resumes it.",
    required=True,
    offers=pages.offer_files,
)
@click.option("--montecarlo", is_flag=True, help="Also estimate every cell by sampling.")
@common.option(
    "--rel-error", "E", "Relative standard error of each estimate", default="1e-3", kind=float
)
@common.seed_option
@common.executor_options
@common.json_option
def sweep(
    kernel: str,
    steps: tuple[str, ...],
    of: tuple[str, ...],
    out: str,
    montecarlo: bool,
    rel_error: float,
    seed: int,
    executor: Any,
    as_json: bool,
    **options: Any,
) -> None:
    """Evaluate quantities over grids of parameters, into a file.

    KERNEL is a name from `sparsity list`, or a formula of the score s: "log(1+exp(s))".

    Every parameter takes one value, a list a,b,c, or a range start:stop:count, with :log at its end
    for logarithmic spacing. Without --of the quantity is S of long rows, with --length n_eff too.

    The file has named axes; xarray opens .nc and .zarr.

    \b
    Examples:
      S against the spread:
        sparsity sweep exp --gamma 0.1:10:50:log --out exp.nc
      Three biases, each cell also by Monte Carlo:
        sparsity sweep relu2 --beta -1,0,1 --gamma 1 --montecarlo --out relu2.nc
      n_eff and entropy against length:
        sparsity sweep exp --gamma 2 --length 64,99 --of n_eff,entropy --out n.nc
    """
    check_table_file(out)
    store = out if Path(out).suffix.lower() == ".zarr" else None
    if montecarlo:
        common.use_float64()
    grids = common.without_none(options)
    try:
        with common.progress("blocks") as report:
            data = sparsity.sweep(
                _row_at_first(kernel, steps, grids) if steps else kernel,
                of=common.split_quantities(of) or None,
                montecarlo=montecarlo,
                rel_error=rel_error,
                seed=seed,
                store=store,
                executor=executor,
                progress=report,
                **grids,
            )
    except InputError as error:
        if error.argument != "store":
            raise
        raise InputError("out", error.value, error.fix) from error  # the name that was typed
    if store is None:
        write_table(data, out)
    sizes = {str(name): int(data[name].size) for name in data.coords}
    if as_json:
        answer = {"kernel": kernel, "out": out, "sizes": sizes, "variables": list(data)}
        common.print_json(answer)
    else:
        shape = " × ".join(f"{name} {size}" for name, size in sizes.items())
        common.echo(f"{out}: {shape}")
