"""`measure` and `describe`: the attention of a real model, on text and from its configuration."""

from __future__ import annotations

import os
from typing import Any

import click

from sparsity.cli import common, pages
from sparsity.cli.files import check_chart_file, write_chart
from sparsity.errors import InputError
from sparsity.output import (
    netcdf_path,
    refuse_missing,
    refuse_unwritable,
    refuse_unwritable_folder,
)
from sparsity.reading import parse_whole


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
@common.option("--model", "FILE", "MODEL, as an option.", cls=pages.Rare, offers=pages.offer_files)
@common.option(
    "--text texts",
    "FILE",
    "A TEXT, as an option; repeat it for several.",
    multiple=True,
    cls=pages.Rare,
    offers=pages.offer_files,
)
@common.option("--tokens", "T", "Tokens of each window", default="512", kind=int)
@common.option("--offset", "K", "Skip the first K tokens of a text", default="0", kind=int)
@common.option(
    "--stride", "K", "Start a window every K tokens (default: one window a text).", kind=int
)
@click.option("--bos", is_flag=True, help="Begin each window with the model's first token (BOS).")
@common.option(
    "--out", "FILE.nc", "The netCDF file to write.", required=True, offers=pages.offer_files
)
@click.option("--rows", is_flag=True, help="Write every row instead of summaries of all texts.")
@common.option(
    "--report",
    "DIR",
    "Write every row, and a page of figures into this folder; every text runs with BOS and "
    "without.",
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
    logits.

    Examples:
        Summaries of one text:
            sparsity measure model.gguf text.txt --out text.nc
        Every row, with a page of figures:
            sparsity measure model.gguf text.txt --out text.nc --report page
        A folder of texts, in windows of 512 tokens:
            sparsity measure model.safetensors texts --stride 512 --out all.nc
    """
    if model is None and given:
        model, *given = given  # type: ignore[assignment]
    if model is None:
        raise InputError("model", None, "give a .gguf or .safetensors checkpoint")
    every_row = rows or report is not None
    # Summaries of texts can be added up, so that processes can share the texts.
    if every_row and executor is not None:
        fix = "share summaries of texts; leave it out, or --rows and --report"
        raise InputError("workers", "several processes", fix)
    if of and not every_row:
        raise InputError("of", ",".join(of), "is measured on single rows; add --rows")
    # Asked here as well as by the work: its imports take seconds, a missing file none.
    refuse_missing("model", model, "give a .gguf or .safetensors file")
    if not (every_text := (*given, *texts)):
        raise InputError("text", None, "give a folder or files of texts, or --text FILE")
    if not any(map(os.path.exists, every_text)):  # one of several is named and passed over
        refuse_missing("text", every_text[0], "give a folder or files of texts")
    out = str(options["out"])
    # What is there may be a file that this run reads, which is said first, and later.
    refuse_unwritable(out if os.path.exists(out) else netcdf_path(out))
    if report is not None:
        refuse_unwritable_folder(report, "out")
    with common.progress("layers") as step:
        if every_row:
            from sparsity.attention.job import run as work

            options |= {"of": common.split_quantities(of), "report_to": report}
        else:
            from sparsity.attention.measurement.corpus import sum_up as work

            options["executor"] = executor
        done = work(model, [*every_text], progress=step, **options)
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
    "--gamma",
    "G",
    "Spread of the scores before temperature, cap and window (default: see below).",
    kind=float,
)
@common.option("--lengths", "N,N…", "Row lengths of the table", default="4k,32k,128k,1024k")
@common.option(
    "--out",
    "FILE",
    "Also draw them against the length: .svg, .png or .pdf; the data go beside it as .csv.",
    offers=pages.offer_files,
)
@common.option(
    "--of",
    "QUANTITY",
    "What is drawn (default: n_eff; with --needle, needle_signal).",
    offers=pages.offer_quantities,
)
@common.option(
    "--needle",
    "M",
    "Draw rows whose nearest key scores M above the mean, before temperature and cap.",
    kind=float,
)
@common.json_option
def describe(
    config: str,
    gamma: float | None,
    lengths: str,
    out: str | None,
    of: str | None,
    needle: float | None,
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
        check_chart_file(out)
    elif of is not None or needle is not None:
        raise InputError("out", None, "--of and --needle are for a chart; give --out")
    refuse_missing("config", config, "give a config.json or its folder")
    from sparsity.attention.describe import describe as described

    ns = [parse_whole(each, "length") for each in lengths.split(",") if each.strip()]
    common.use_float64()
    found = described(config, gamma=gamma, lengths=ns)
    if out is not None:
        from sparsity.plots import chart
        from sparsity.rows.steps import NeedleAbove

        steps = [] if needle is None else [NeedleAbove(needle, 0.0, 0)]
        what = of or ("n_eff" if needle is None else "needle_signal")
        with common.progress("curves") as report:
            made = chart(found.named_rows(*steps), of=what, limit=False, progress=report)
            write_chart(made, out)
    common.print_json(found.as_json()) if as_json else common.echo(repr(found))
