"""`verify` and `claims`: what holds, by computation."""

from __future__ import annotations

import sys
from typing import Any

import click

import sparsity
from sparsity.cli import common
from sparsity.errors import InputError


@click.command()
@click.argument("kernels", metavar="[KERNEL …]", nargs=-1, shell_complete=common.kernel_names)
@common.with_parameters
@common.steps_option
@click.option(
    "--detectable",
    metavar="E",
    help="Relative error that every cell must be able to see (default 1e-3).",
)
@common.seed_option
@common.executor_options
@common.json_option
def verify(
    kernels: tuple[str, ...],
    steps: tuple[str, ...],
    detectable: str | None,
    seed: str,
    executor: Any,
    as_json: bool,
    **options: Any,
) -> None:
    """Cross-check every route against every other; exit 1 if any cell does not agree.

    Over the reference grid; or, of one KERNEL with its parameters, every pair of instruments that
    applies to that row of --length N tokens with its --step.
    """
    import time

    settings: dict[str, Any] = {"seed": common.number("seed", seed, int), "executor": executor}
    if detectable is not None:
        settings["detectable"] = common.number("detectable", detectable)
    asked = _row(kernels, common.given(options), steps)
    if asked is None:
        common.compile_quickly()
    common.use_float64()
    started = time.perf_counter()
    with common.progress("cells") as report:
        rows, length = (kernels, None) if asked is None else ((asked.row,), asked.length)
        found = sparsity.verify(*rows, length=length, **settings, progress=report)
    described = {} if asked is None else asked.described() | {"n": asked.length}
    seconds = round(time.perf_counter() - started, 2)
    if as_json:
        common.print_json(described | found.summary() | {"seconds": seconds})
    else:
        click.echo((f"{asked.text()}\n" if asked is not None else "") + found.text())
    if not found.agree:
        sys.exit(1)


def _row(kernels: tuple[str, ...], options: dict[str, Any], steps: tuple[str, ...]) -> Any:
    """The one row that was asked for; None for the reference grid."""
    if not options and not steps:
        return None
    if len(kernels) != 1:
        name, value = next(iter(options.items()), ("step", " ".join(steps)))
        raise InputError(name, value, "belongs to a row of one kernel; name that kernel")
    from sparsity.cli.asked import ask

    asked = ask(kernels[0], options, steps)
    common.refuse_dim(asked, options)
    return asked


@click.command()
@common.seed_option
@common.json_option
def claims(seed: str, as_json: bool) -> None:
    """Judge the claims of the sources by computation."""
    from sparsity import ledger

    common.compile_quickly()
    common.use_float64()
    judged = sparsity.claims(seed=common.number("seed", seed, int))
    if as_json:
        common.print_json(judged)
    else:
        click.echo(ledger.table(judged))
