"""`verify` and `claims`: what holds, by computation."""

from __future__ import annotations

import sys
from typing import Any

import click

import sparsity
from sparsity.cli import common, completion, executors, pages
from sparsity.errors import InputError


@click.command(
    cls=pages.Command,
    examples=(
        ("The whole reference grid, in one or two minutes", "sparsity verify"),
        ("Only the cells of one kernel", "sparsity verify relu2"),
        (
            "A row of your own",
            "sparsity verify exp --gamma 1 --length 64 --step alibi:0.01",
        ),
    ),
)
@click.argument(
    "kernels",
    metavar="[KERNEL …]",
    nargs=-1,
    cls=pages.Argument,
    about="Names from `sparsity list` (default: all of the reference grid).",
    shell_complete=completion.kernel_names,
)
@common.with_parameters
@common.steps_option
@click.option(
    "--detectable",
    metavar="E",
    help="Smallest relative error that every comparison must be able to see (default 1e-3).",
)
@common.seed_option
@executors.executor_options
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
    """Check formulas, quadrature and sampling against each other.

    Without parameters it goes through the reference grid. With one KERNEL, its parameters, --length
    and --step it checks that row by every pair of methods that applies to it.

    The exit code is 1 if any comparison does not agree.
    """
    import time

    settings: dict[str, Any] = {"seed": common.number("seed", seed, int), "executor": executor}
    if detectable is not None:
        settings["detectable"] = common.number("detectable", detectable)
    asked = _row(kernels, common.given(options), steps)
    if asked is None:
        common.for_long_work()
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
        common.say((f"{asked.text()}\n" if asked is not None else "") + found.text())
    if not found.agree:
        sys.exit(1)


def _row(kernels: tuple[str, ...], options: dict[str, Any], steps: tuple[str, ...]) -> Any:
    """The one row that was asked for; None for the reference grid."""
    if not options and not steps:
        return None
    if len(kernels) != 1:
        name, value = next(iter(options.items()), ("step", " ".join(steps)))
        raise InputError(name, value, "is a parameter of one row; name one kernel before it")
    from sparsity.cli.asked import ask

    asked = ask(kernels[0], options, steps)
    common.refuse_dim(asked, options)
    return asked


@click.command(
    cls=pages.Command,
    examples=(
        ("All of them, in about a minute", "sparsity claims"),
        ("With the numbers behind each verdict", "sparsity claims --json"),
    ),
)
@common.seed_option
@common.json_option
def claims(seed: str, as_json: bool) -> None:
    """Judge the published claims by computation.

    Each claim gets a verdict, confirmed, refined or refuted, with the findings it follows from.
    """
    from sparsity import claims_ledger as ledger

    common.for_long_work()
    common.use_float64()
    with common.progress("claims") as report:
        judged = sparsity.claims(seed=common.number("seed", seed, int), progress=report)
    if as_json:
        common.print_json(judged)
    else:
        common.say(ledger.table(judged))
