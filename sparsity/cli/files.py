"""`plot`, `sweep` and `measure`, which write files; `describe`, which reads a model's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

import sparsity
from sparsity.cli import common, pages
from sparsity.errors import InputError

_PLOT_SUFFIXES = (".svg", ".png", ".pdf")


def _check_chart_file(out: str) -> None:
    """Refuse a chart's file that cannot be written, or is of no kind that is drawn."""
    from sparsity.output import refuse_unwritable

    if Path(out).suffix.lower() not in _PLOT_SUFFIXES:
        fix = f"give a name that ends in .svg, .png or .pdf, such as {Path(out).stem or 'f'}.svg"
        raise InputError("out", out, fix)
    data = str(Path(out).with_suffix(".csv"))
    for path in (out, data):
        refuse_unwritable(path)
    _refuse_foreign_table(data)


def _write_chart(made: Any, out: str) -> tuple[list[Any], str]:
    """Write a chart and its data beside it; return the series, and the name of the data's file."""
    from sparsity.figures import plotting
    from sparsity.figures.figure import csv_of_curves
    from sparsity.output import write_together
    from sparsity.plots.drawing import SIZE

    series, words = [each for curve in made.curves for each in curve.series], made.words

    def draw(_: Any, figure: Any) -> None:
        made.on(figure)

    kind, data = Path(out).suffix.lower().removeprefix("."), str(Path(out).with_suffix(".csv"))
    files = plotting.render(draw, series, words.title, words.subtitle, SIZE, (kind,))
    write_together({data: csv_of_curves(series, doubts=True), out: files[kind]})
    return series, data


@click.command(cls=pages.Command)
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
@common.option("--rel-error", "E", "Relative standard error of a sampled point", default="0.02")
@common.option("--title", "TEXT", "Title, in place of the default one.")
@common.option(
    "--out",
    "FILE",
    "The file to write: .svg, .png or .pdf; the data are written beside it as .csv.",
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

    Examples:
        Attended tokens against length:
            sparsity plot exp --gamma 2 --out focus.svg
        Two kernels, S with sampled points:
            sparsity plot exp relu2 --gamma 2 --of S --montecarlo --out s.png
        Against the spread, for two lengths:
            sparsity plot exp --x gamma --gamma 0.1:5:41 --length 64,1024 --out g.pdf
    """
    _check_chart_file(out)
    given = common.without_none(options)
    from sparsity.plots import chart
    from sparsity.plots.requests import check_abscissa

    starts = given if along is None else {x: along} | given
    rows = [_row_with_steps(kernel, steps, starts) for kernel in kernels] if steps else [*kernels]
    check_abscissa(rows, x)
    if along is not None:
        if x in given:
            fix = f"--{x.replace('_', '-')} has values of the x-axis as well; leave one of them out"
            raise InputError("along", along, fix)
        given[x] = along
    settings: dict[str, Any] = {
        "of": of,
        "montecarlo": montecarlo,
        "limit": not no_limit,
        "rel_error": common.read_number("rel_error", rel_error),
        "seed": common.read_number("seed", seed, int),
        "title": title,
    }
    if montecarlo:
        common.use_float64()
    with common.progress("curves") as report:
        made = chart(rows, x, progress=report, **settings, **given)
    (series, data), words = _write_chart(made, out), made.words
    doubted = [(each.label, *doubt) for each in series for doubt in each.doubts.items()]
    if doubted:
        label, place, why = doubted[0]
        more = f" (and {len(doubted) - 1} more, see the CSV)" if len(doubted) > 1 else ""
        said = f"sparsity: warning: Monte Carlo of {label} at {x} = {place:g}: {why}{more}"
        common.echo(said, err=True)
    if as_json:
        labels = [each.label for each in series]
        found = {"out": out, "data": data, "title": words.title, "x": x}
        common.print_json(found | {"quantity": made.of, "series": labels})
    else:
        common.echo(f"{out}, {data}: {words.title}")


def _refuse_foreign_table(data: str) -> None:
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


def _row_with_steps(kernel: str, steps: tuple[str, ...], given: dict[str, str]) -> Any:
    """Return the row to be drawn, at the first value of each of its own grids."""
    from sparsity import kernels

    names = {p.name for p in kernels.named(kernel).parameters}
    own = {name: text for name, text in given.items() if name in names}
    return _row_at_first(kernel, steps, ({"beta": "0"} if "beta" in names else {}) | own)


def _row_at_first(kernel: str, steps: tuple[str, ...], grids: dict[str, str]) -> Any:
    """Return the row with steps, at the first value of each grid."""
    from sparsity.rows.row import Row
    from sparsity.rows.steps import parse

    first = {name: re.split("[:,]", text)[0] for name, text in grids.items() if name != "length"}
    return Row(kernel, steps=tuple(map(parse, steps)), **first)


@click.command(cls=pages.Command)
@common.kernel_argument
@common.with_parameters
@common.steps_option
@common.several_of_option
@common.option("--out", "FILE", "The file to write: .nc, .zarr or .csv.", offers=pages.offer_files)
@common.option(
    "--store",
    "DIR",
    "Keep results in this Zarr folder as they come; the same command continues from them.",
    offers=pages.offer_folders,
)
@click.option("--montecarlo", is_flag=True, help="Also estimate every cell by sampling.")
@common.option("--rel-error", "E", "Relative standard error of each estimate", default="1e-3")
@common.seed_option
@common.executor_options
@common.json_option
def sweep(
    kernel: str,
    steps: tuple[str, ...],
    of: tuple[str, ...],
    out: str | None,
    store: str | None,
    montecarlo: bool,
    rel_error: str,
    seed: str,
    executor: Any,
    as_json: bool,
    **options: Any,
) -> None:
    """Evaluate quantities over grids of parameters, into a file.

    Every parameter takes one value, a list a,b,c, or a range start:stop:count, with :log at its end
    for logarithmic spacing. Without --of the quantity is S of long rows; with --length it is n_eff.

    Give --out, --store, or both. The file has named axes; xarray opens .nc and .zarr.

    Examples:
        S against the spread:
            sparsity sweep exp --gamma 0.1:10:50:log --out exp.nc
        Three biases, each cell also by Monte Carlo:
            sparsity sweep relu2 --beta -1,0,1 --gamma 1 --montecarlo --out relu2.nc
        n_eff and entropy against length:
            sparsity sweep exp --gamma 2 --length 64,99 --of n_eff,entropy --out rows.nc
    """
    from sparsity.sweeps import saving

    if out is not None:
        saving.writable(out)
    elif store is None:
        raise InputError("out", None, "give --out FILE, --store DIR, or both")
    if montecarlo:
        common.use_float64()
    settings: dict[str, Any] = {
        "montecarlo": montecarlo,
        "rel_error": common.read_number("rel_error", rel_error),
        "seed": common.read_number("seed", seed, int),
        "store": store,
        "executor": executor,
    }
    if of:
        settings["of"] = common.split_quantities(of)
    grids = common.without_none(options)
    with common.progress("blocks") as report:
        row = _row_at_first(kernel, steps, grids) if steps else kernel
        data = sparsity.sweep(row, progress=report, **settings, **grids)
    if out is not None:
        saving.save(data, out)
    sizes = {str(name): int(data[name].size) for name in data.coords}
    places = common.without_none({"out": out, "store": store})
    if as_json:
        found = {"kernel": kernel, **places, "sizes": sizes, "variables": list(data)}
        common.print_json(found)
    else:
        shape = " × ".join(f"{name} {size}" for name, size in sizes.items())
        common.echo(f"{' and '.join(places.values())}: {shape}")


@click.command(cls=pages.Command)
@click.argument(
    "given",
    nargs=-1,
    metavar="MODEL TEXT…",
    cls=pages.Argument,
    about="A .gguf or .safetensors checkpoint; then text files, folders of them, or token ids "
    "(.npy).",
    shell_complete=pages.offer_files,
)
@common.option("--model", "FILE", "MODEL, as an option.", offers=pages.offer_files)
@common.option(
    "--text texts",
    "FILE",
    "A TEXT, as an option; repeat it for several.",
    multiple=True,
    offers=pages.offer_files,
)
@common.option("--tokens", "T", "Tokens of each window", default="512")
@common.option("--offset", "K", "Skip the first K tokens of a text", default="0")
@common.option("--stride", "K", "Start a window every K tokens (default: one window a text).")
@click.option("--bos", is_flag=True, help="Begin each window with the model's first token (BOS).")
@common.option(
    "--out", "FILE.nc", "The netCDF file to write.", required=True, offers=pages.offer_files
)
@click.option("--rows", is_flag=True, help="Write every row instead of summaries of all texts.")
@click.option(
    "--head-law",
    is_flag=True,
    help="Write every row, with the law of each head, fitted on some texts and judged on others.",
)
@common.option(
    "--report",
    "DIR",
    "Write every row, and a page of figures and claims into this folder; every text runs "
    "with BOS and without.",
    offers=pages.offer_folders,
)
@common.several_of_option
@common.executor_options
@common.json_option
def measure(
    given: tuple[str, ...],
    model: str | None,
    texts: tuple[str, ...],
    rows: bool,
    head_law: bool,
    report: str | None,
    of: tuple[str, ...],
    executor: Any,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure the attention of a real model on text.

    The model is one of the Llama family. The exact law of rows with the same length and spread
    stands beside each measured row.

    A text that cannot be used is named and passed over. If the run is stopped, the same command
    continues it. --of needs --rows or --report; it also knows skew, kurtosis and distance, of the
    logits. --head-law predicts each row from its largest logit as well, with one constant of each
    head fitted on the other texts, and judges six claims on why real rows miss the exact law.

    Examples:
        Summaries of one text:
            sparsity measure model.gguf text.txt --out text.nc
        Every row, with a page of figures:
            sparsity measure model.gguf text.txt --out text.nc --report page
        The law of each head, on two texts or more:
            sparsity measure model.gguf texts --head-law --out heads.nc --report page
        A folder of texts, in windows of 512 tokens:
            sparsity measure model.safetensors texts --stride 512 --out all.nc
    """
    common.refuse_little_memory()
    if model is None and given:
        model, *given = given  # type: ignore[assignment]
    if model is None:
        raise InputError("model", None, "give a .gguf or .safetensors checkpoint")
    for name in ("tokens", "offset", "stride"):
        if options[name] is not None:
            options[name] = common.read_number(name, options[name], int)
    every_row = rows or head_law or report is not None
    if every_row and executor is not None:
        fix = "share summaries of texts; leave it out, or --rows, --head-law and --report"
        raise InputError("workers", "several processes", fix)
    if of and not every_row:
        raise InputError("of", ",".join(of), "is measured on single rows; add --rows")
    with common.progress("layers") as step:
        if every_row:
            from sparsity.attention.page.job import run as work

            of_rows = {"report_to": report, "head_law": head_law}
            options |= {"of": common.split_quantities(of), **of_rows}
        else:  # which needs no report
            from sparsity.attention.measurement.corpus import sum_up as work

            options["executor"] = executor
        done = work(model, [*given, *texts], progress=step, **options)
    common.show(done, as_json)


@click.command(cls=pages.Command)
@click.argument(
    "config",
    metavar="CONFIG",
    cls=pages.Argument,
    about="A config.json, a folder that has one, or a GGUF file.",
    shell_complete=pages.offer_files,
)
@common.option(
    "--gamma", "G", "Spread of the scores before temperature, cap and window (default: see below)."
)
@common.option("--lengths", "N,N…", "Row lengths of the table", default="4k,32k,128k,1024k")
@common.option(
    "--out",
    "FILE",
    "Also draw them against the length: .svg, .png or .pdf; the data go beside it as .csv.",
    offers=pages.offer_files,
)
@common.option("--of", "QUANTITY", "What is drawn (default: n_eff; with --needle, needle_signal).")
@common.option(
    "--needle",
    "M",
    "Draw rows whose nearest key scores M above the mean, before temperature and cap.",
)
@common.json_option
def describe(
    config: str,
    gamma: str | None,
    lengths: str,
    out: str | None,
    of: str | None,
    needle: str | None,
    as_json: bool,
) -> None:
    """Describe a model's layers from its configuration alone.

    Prints each kind of layer with its head dimension, RoPE, window, cap and temperature, and how
    many tokens a query attends to at each length, by the exact law.

    Without --gamma the spread is that of gains 1 where queries and keys are normalised, and else
    2.9, the median of SmolLM2's heads.

    Examples:
        A checkpoint's folder:
            sparsity describe Llama-4-Scout/
        With a measured spread, at other lengths:
            sparsity describe config.json --gamma 4 --lengths 8k,64k
        Up to which length a key 12 above the mean is read out:
            sparsity describe config.json --needle 12 --out needle.svg
    """
    if out is not None:
        _check_chart_file(out)
    elif of is not None or needle is not None:
        raise InputError("out", None, "--of and --needle are for a chart; give --out")
    from sparsity.attention.describe import describe as described
    from sparsity.reading import parse_whole

    spread = None if gamma is None else common.read_number("gamma", gamma)
    ns = [parse_whole(each, "length") for each in lengths.split(",") if each.strip()]
    common.use_float64()
    found = described(config, gamma=spread, lengths=ns)
    if out is not None:
        from sparsity.plots import chart
        from sparsity.rows.steps import NeedleAbove

        margin = None if needle is None else common.read_number("needle", needle)
        steps = [] if margin is None else [NeedleAbove(margin, 0.0, 0)]
        with common.progress("curves") as report:
            what = of or ("n_eff" if needle is None else "needle_signal")
            _write_chart(
                chart(found.named_rows(*steps), of=what, limit=False, progress=report), out
            )
    common.print_json(found.as_json()) if as_json else common.echo(repr(found))
