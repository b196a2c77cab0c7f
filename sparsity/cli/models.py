"""`measure` and `describe`: the attention of a real model, on text and from its configuration."""

from __future__ import annotations

import os
from typing import Any

import click

from sparsity.cli import common, pages
from sparsity.cli.files import check_chart_file, write_chart
from sparsity.errors import InputError
from sparsity.output import netcdf_path, refuse_missing, refuse_unwritable, refuse_unwritable_folder


@click.command()
@click.argument("model", metavar="MODEL", shell_complete=pages.offer_files)
@click.argument("texts", nargs=-1, required=True, metavar="TEXT…", shell_complete=pages.offer_files)
@common.option("--tokens", "T", "Tokens of each text", default="512", kind=int)
@click.option("--bos", is_flag=True, help="Begin each text with the model's first token (BOS).")
@common.option(
    "--out", "FILE.nc", "The netCDF file to write.", required=True, offers=pages.offer_files
)
@common.option(
    "--report", "DIR", "Also write a page of pictures into this folder.", offers=pages.offer_folders
)
@common.several_of_option
@common.json_option
def measure(
    model: str,
    texts: tuple[str, ...],
    tokens: int,
    bos: bool,
    out: str,
    report: str | None,
    of: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure the attention of a real model on text.

    MODEL is the folder of a model of transformers, a GGUF file, or a name of the hub; TEXT a text
    file, a folder of them, or token ids (.npy).

    transformers runs the model, with your PyTorch; every row is measured inside the model's own
    attention calls. Each measured row comes with the exact law of its length and spread. A map of
    n_eff by layer and head is drawn beside FILE.nc.

    Unusable texts are reported and skipped.

    \b
    Examples:
      One text:
        sparsity measure SmolLM2-135M-Instruct.Q4_1.gguf text.txt --out text.nc
      A folder of texts, with a page of pictures:
        sparsity measure HuggingFaceTB/SmolLM2-135M texts --out a.nc --report page
    """
    # Before the libraries are loaded, which takes seconds. A name without a file may be of the hub.
    if model.endswith(".gguf"):
        refuse_missing("model", model, "give a GGUF file, or the folder of a model")
    if not any(map(os.path.exists, texts)):  # one of several is reported and skipped
        refuse_missing("text", texts[0], "give files or folders of texts")
    refuse_unwritable(netcdf_path(out))
    if report is not None:
        refuse_unwritable_folder(report, "report")
    from sparsity.attention.job import run

    with common.progress("layers") as step:
        done = run(
            model, texts, out=out, tokens=tokens, bos=bos, of=common.split_quantities(of),
            report_to=report, progress=step,
        )  # fmt: skip
    common.show(done, as_json)


@click.command()
@click.argument("config", metavar="CONFIG", shell_complete=pages.offer_files)
@common.option(
    "--gamma",
    "G",
    "Spread of the scores before temperature, cap and window (default: see above).",
    kind=float,
)
@common.option(
    "--lengths",
    "N,N…",
    "Row lengths of the table (default: 4k,32k,128k,1024k up to the model's own, and that).",
)
@common.option(
    "--out",
    "FILE",
    "Also draw them against the length: .svg, .png or .pdf; the data go beside it as .csv.",
    offers=pages.offer_files,
)
@common.option(
    "--of",
    "QUANTITY",
    "What is drawn, as `sparsity list` names it (default: n_eff; with --needle, needle_signal).",
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
    lengths: str | None,
    out: str | None,
    of: str | None,
    needle: float | None,
    as_json: bool,
) -> None:
    """Describe a model's layers from its configuration alone.

    CONFIG is a config.json, a folder that has one, or a GGUF file.

    Prints each kind of layer with its head dimension, RoPE, window, cap and temperature, and how
    many tokens a query attends to at each length, by the exact law.

    A config.json is read by the class of its family, where transformers is installed; nothing is
    downloaded, and no code of a model runs. Without it, or for an unknown family, n_eff is not
    given: the file alone leaves out defaults.

    Without --gamma the spread is that of gains 1 where queries and keys are normalised, else 2.9,
    the median of SmolLM2's heads. γ = 2, 3 and 4 are listed too.

    \b
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

    ns: Any = None if lengths is None else [x for x in lengths.split(",") if x.strip()]
    description = described(config, gamma=gamma, lengths=ns)
    if out is not None:
        from sparsity.plots import chart
        from sparsity.rows.steps import NeedleAbove

        steps = [] if needle is None else [NeedleAbove(needle, 0.0, 0)]
        what = of or ("n_eff" if needle is None else "needle_signal")
        with common.progress("curves") as report:
            made = chart(description.named_rows(*steps), of=what, limit=False, progress=report)
            title = f"{description.family}: {made.words.title}"
            made = made._replace(words=made.words._replace(title=title))
            _, data = write_chart(made, out)
    common.print_json(description.as_json()) if as_json else common.echo(repr(description))
    if out is not None:
        common.echo(f"{out}, {data}: {title}", err=as_json)
