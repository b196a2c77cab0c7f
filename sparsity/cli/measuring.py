"""`measure`: what a real model does on text."""

from __future__ import annotations

from typing import Any

import click

from sparsity.cli import common, completion, executors, pages
from sparsity.errors import InputError


@click.command(
    cls=pages.Command,
    examples=(
        ("Summaries of one text", "sparsity measure model.gguf text.txt --out text.nc"),
        (
            "Every row, with a page of figures",
            "sparsity measure model.gguf text.txt --out text.nc --report page",
        ),
        (
            "The law of each head, on two texts or more",
            "sparsity measure model.gguf texts --head-law --out heads.nc --report page",
        ),
        (
            "A folder of texts, in windows of 512 tokens",
            "sparsity measure model.safetensors texts --stride 512 --out all.nc",
        ),
    ),
)
@click.argument(
    "given",
    nargs=-1,
    metavar="MODEL TEXT…",
    cls=pages.Argument,
    about="A .gguf or .safetensors checkpoint; then text files, folders of them, or token ids "
    "(.npy).",
    shell_complete=completion.files,
)
@click.option(
    "--model", metavar="FILE", help="MODEL, as an option.", shell_complete=completion.files
)
@click.option(
    "--text",
    "texts",
    multiple=True,
    metavar="FILE",
    help="A TEXT, as an option; repeat it for several.",
    shell_complete=completion.files,
)
@click.option("--tokens", default="512", metavar="T", help="Tokens of each window (default 512).")
@click.option(
    "--offset", default="0", metavar="K", help="Skip the first K tokens of a text (default 0)."
)
@click.option(
    "--stride", metavar="K", help="Start a window every K tokens (default: one window a text)."
)
@click.option("--bos", is_flag=True, help="Begin each window with the model's first token (BOS).")
@click.option(
    "--out",
    required=True,
    metavar="FILE.nc",
    help="The netCDF file to write.",
    shell_complete=completion.files,
)
@click.option("--rows", is_flag=True, help="Write every row instead of summaries of all texts.")
@click.option(
    "--head-law",
    is_flag=True,
    help="Write every row, with the law of each head, fitted on some texts and judged on others.",
)
@click.option(
    "--report",
    metavar="DIR",
    help="Write every row, and a page of figures and claims into this folder; every text runs "
    "with BOS and without.",
    shell_complete=completion.folders,
)
@common.several_of_option
@executors.executor_options
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
    """
    common.refuse_little_memory()
    if model is None and given:
        model, *given = given  # type: ignore[assignment]
    if model is None:
        raise InputError("model", None, "give a .gguf or .safetensors checkpoint")
    for name in ("tokens", "offset", "stride"):
        if options[name] is not None:
            options[name] = common.number(name, options[name], int)
    each = rows or head_law or report is not None
    if each and executor is not None:
        fix = "share summaries of texts; leave it out, or --rows, --head-law and --report"
        raise InputError("workers", "several processes", fix)
    if of and not each:
        raise InputError("of", ",".join(of), "is measured on single rows; add --rows")
    with common.progress("layers") as step:
        options |= (
            {"report_to": report, "of": common.listed(of), "head_law": head_law}
            if each
            else {"executor": executor}
        )
        if each:
            from sparsity.attention.page.job import run as work
        else:  # which needs no report
            from sparsity.attention.measurement.corpus import sum_up as work
        done = work(model, [*given, *texts], progress=step, **options)
    common.show(done, as_json)
