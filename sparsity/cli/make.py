"""`sweep` and `reproduce`: what makes files and takes its time."""

from __future__ import annotations

import re
import sys
from typing import Any

import click

import sparsity
from sparsity.cli import common, completion, executors, pages
from sparsity.errors import InputError


def _row(kernel: str, steps: tuple[str, ...], grids: dict[str, str]) -> Any:
    """The row to be swept: the kernel itself without steps, else at the first of each grid."""
    if not steps:
        return kernel
    from sparsity.rows.row import Row
    from sparsity.rows.steps import parse

    first = {name: re.split("[:,]", text)[0] for name, text in grids.items() if name != "length"}
    return Row(kernel, steps=tuple(map(parse, steps)), **first)


@click.command(
    cls=pages.Command,
    examples=(
        ("S against the spread", "sparsity sweep exp --gamma 0.1:10:50:log --out exp.nc"),
        (
            "Three biases, each cell also by Monte Carlo",
            "sparsity sweep relu2 --beta -1,0,1 --gamma 1 --montecarlo --out relu2.nc",
        ),
        (
            "n_eff and entropy against length",
            "sparsity sweep exp --gamma 2 --length 64,99 --of n_eff,entropy --out rows.nc",
        ),
    ),
)
@common.kernel_argument
@common.with_parameters
@common.steps_option
@common.several_of_option
@click.option(
    "--out",
    metavar="FILE",
    help="The file to write: .nc, .zarr or .csv.",
    shell_complete=completion.files,
)
@click.option(
    "--store",
    metavar="DIR",
    help="Keep results in this Zarr folder as they come; the same command continues from them.",
    shell_complete=completion.folders,
)
@click.option("--montecarlo", is_flag=True, help="Also estimate every cell by sampling.")
@click.option(
    "--rel-error",
    metavar="E",
    default="1e-3",
    help="Relative standard error of each estimate (default 1e-3).",
)
@common.seed_option
@executors.executor_options
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
        "rel_error": common.number("rel_error", rel_error),
        "seed": common.number("seed", seed, int),
    }
    asked: dict[str, Any] = {"of": common.listed(of)} if of else {}
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
        saving.save(data, out)
    sizes = {str(name): int(data[name].size) for name in data.coords}
    to = {"out": out, "store": store}
    if as_json:
        found = {"kernel": kernel, **common.given(to), "sizes": sizes, "variables": list(data)}
        common.print_json(found)
    else:
        where = " and ".join(common.given(to).values())
        common.echo(f"{where}: " + " × ".join(f"{name} {size}" for name, size in sizes.items()))


@click.command(
    cls=pages.Command,
    examples=(
        ("Into the folder figures, in a few minutes", "sparsity reproduce"),
        ("The page again, in seconds", "sparsity reproduce --page"),
    ),
)
@click.option(
    "--out",
    default="figures",
    metavar="DIR",
    help="Folder to write to (default figures).",
    shell_complete=completion.folders,
)
@common.seed_option
@click.option("--page", is_flag=True, help="Only write the page again, from the files in DIR.")
@executors.executor_options
@common.json_option
def reproduce(out: str, seed: str, page: bool, executor: Any, as_json: bool) -> None:
    """Make every figure, its data, the checks and the claims.

    Everything is computed and written into one folder; open index.html there. The exit code is 1 if
    the checks do not agree. With --page, nothing is computed: the page is written from the files of
    an earlier run.
    """
    from sparsity.report import reproduction

    if page:
        if seed != "0":
            raise InputError("seed", seed, "the page has the seed of its files; leave it out")
        written = str(reproduction.page(out))
        common.print_json({"page": written}) if as_json else common.echo(written)
        return
    common.for_long_work()
    common.use_float64()
    with common.progress("reproduce") as report:
        settings = {"seed": common.number("seed", seed, int), "executor": executor}
        done = reproduction.reproduce(out, **settings, progress=report)
    common.show(done, as_json)
    if not done.agree:
        sys.exit(1)
