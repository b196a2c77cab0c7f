"""`sweep`, `reproduce`, `measure` and `bench`: what makes files or takes its time."""

from __future__ import annotations

import re
import sys
from typing import Any

import click

import sparsity
from sparsity.cli import common
from sparsity.errors import InputError
from sparsity.output import netcdf, refuse_unwritable


def _row(kernel: str, steps: tuple[str, ...], grids: dict[str, str]) -> Any:
    """The row to be swept: the kernel itself without steps, else at the first of each grid."""
    if not steps:
        return kernel
    from sparsity.rows.row import Row
    from sparsity.rows.steps import parse

    first = {name: re.split("[:,]", text)[0] for name, text in grids.items() if name != "length"}
    return Row(kernel, steps=tuple(map(parse, steps)), **first)


def _listed(of: tuple[str, ...]) -> list[str]:
    """The quantities of lists; "n_eff,pq_index:1,2" are two: no name begins with a digit."""
    return [name for names in of for name in re.split(r",(?![\d.])", names)]


@click.command()
@common.kernel_argument
@common.with_parameters
@common.steps_option
@common.several_of_option
@click.option("--out", metavar="FILE.nc", help="The netCDF file to write.")
@click.option(
    "--store",
    metavar="DIR",
    help="Keep results there as they come, in Zarr; the same command goes on from them.",
)
@click.option("--montecarlo", is_flag=True, help="Also estimate every cell by sampling.")
@click.option("--rel-error", metavar="E", default="1e-3", help="For it to reach (default 1e-3).")
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
    """Evaluate S of KERNEL, or quantities of its rows, over grids; save a labelled netCDF file.

    A grid is start:stop:count, start:stop:count:log, or a list a,b,c. Without --of it is the limit
    S of long rows, and with --length n_eff; --of may be repeated, or take a list. Give --out,
    --store, or both.
    """
    from sparsity.sweeps import curves

    if out is not None:
        refuse_unwritable(netcdf(out))
    elif store is None:
        raise InputError("out", None, "give --out FILE.nc, --store DIR, or both")
    if montecarlo:
        common.use_float64()
    settings: dict[str, Any] = {
        "montecarlo": montecarlo,
        "rel_error": common.number("rel_error", rel_error),
        "seed": common.number("seed", seed, int),
    }
    asked: dict[str, Any] = {"of": _listed(of)} if of else {}
    grids = common.given(options)
    with common.progress("blocks") as report:
        data = sparsity.sweep(
            _row(kernel, steps, grids),
            store=store,
            executor=executor,
            progress=report,
            **(asked | settings | grids),
        )
    if out is not None:
        curves.save(data, out)
    sizes = {str(name): int(size) for name, size in data.sizes.items()}
    to = {"out": out, "store": store}
    if as_json:
        found = {"kernel": kernel, **common.given(to), "sizes": sizes, "variables": list(data)}
        common.print_json(found)
    else:
        where = " and ".join(common.given(to).values())
        click.echo(f"{where}: " + " × ".join(f"{name} {size}" for name, size in sizes.items()))


@click.command()
@click.option("--out", default="figures", metavar="DIR", help="Output folder (default figures).")
@common.seed_option
@common.executor_options
@common.json_option
def reproduce(out: str, seed: str, executor: Any, as_json: bool) -> None:
    """Every curve with its data, the cross-check and the claims, from nothing, into one folder."""
    from sparsity.report import reproduction

    common.compile_quickly()
    common.use_float64()
    with common.progress("reproduce") as report:
        settings = {"seed": common.number("seed", seed, int), "executor": executor}
        done = reproduction.reproduce(out, **settings, progress=report)
    common.show(done, as_json)
    if not done.agree:
        sys.exit(1)


@click.command()
@click.argument("given", nargs=-1, metavar="MODEL TEXT…")
@click.option("--model", metavar="FILE", help="The same as MODEL.")
@click.option("--text", "texts", multiple=True, metavar="FILE", help="The same as TEXT.")
@click.option("--tokens", default="512", metavar="T", help="Tokens of each window (default 512).")
@click.option("--offset", default="0", metavar="K", help="Tokens before the first (default 0).")
@click.option("--stride", metavar="K", help="Tokens to the next window (default: one a text).")
@click.option("--bos", is_flag=True, help="Begin with the model's first token (default: do not).")
@click.option("--out", required=True, metavar="FILE.nc", help="The netCDF file to write.")
@click.option("--rows", is_flag=True, help="Write every row, not summaries of all texts.")
@click.option("--report", metavar="DIR", help="Rows, pictures, claims and a page; runs both ways.")
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
    """Measure the attention of a model of the Llama family on real text, beside the exact law.

    MODEL is a .gguf or .safetensors checkpoint; TEXT a folder, a file of text, or token ids (.npy).
    A text that cannot be used is named and passed over. A run that was ended goes on where it was
    when the same command is given again. --of, of rows, may be repeated, or take a list; it also
    knows skew, kurtosis and distance, of logits.
    """
    from sparsity.report.measured import job

    if model is None and given:
        model, *given = given  # type: ignore[assignment]
    if model is None:
        raise InputError("model", None, "give a .gguf or .safetensors checkpoint")
    for name in ("tokens", "offset", "stride"):
        if options[name] is not None:
            options[name] = common.number(name, options[name], int)
    each = rows or report is not None
    if each and executor is not None:
        fix = "share summaries of texts; leave it out, or --rows and --report"
        raise InputError("workers", "several processes", fix)
    if of and not each:
        raise InputError("of", ",".join(of), "is of single rows; add --rows")
    with common.progress("layers") as step:
        options |= {"report_to": report, "of": _listed(of)} if each else {"executor": executor}
        work = job.run if each else job.sum_up
        done = work(model, [*given, *texts], progress=step, **options)
    common.show(done, as_json)


@click.command()
@click.option("--out", metavar="DIR", help="Also write bench.json, .txt, .svg and .png there.")
@click.option("--budget", metavar="T", default="2", help="Seconds a peer may take in one cell.")
@click.option("--quick", is_flag=True, help="A few cells only, in seconds.")
@common.json_option
def bench(out: str | None, budget: str, quick: bool, as_json: bool) -> None:
    """Measure speed against peers on the same work, as ratios within one run."""
    from sparsity import bench as benchmark

    common.use_float64()
    with common.progress("bench") as report:
        found = benchmark.run(
            budget_seconds=common.number("budget", budget), out=out, progress=report, quick=quick
        )
    common.show(found, as_json)
