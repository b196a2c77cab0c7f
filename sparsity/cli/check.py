"""`verify` and `claims`: what holds, by computation."""

from __future__ import annotations

import sys

import click

import sparsity
from sparsity.cli.options import (
    json_option,
    kernel_names,
    number,
    print_json,
    progress,
    seed_option,
    use_float64,
)

__all__ = ["claims", "verify"]


@click.command()
@click.argument("kernels", metavar="[KERNEL …]", nargs=-1, shell_complete=kernel_names)
@seed_option
@json_option
def verify(kernels: tuple[str, ...], seed: str, as_json: bool) -> None:
    """Cross-check every route over the reference grid; exit 1 if any cell does not agree."""
    import time

    use_float64()
    started = time.perf_counter()
    with progress("cells") as report:
        found = sparsity.verify(*kernels, seed=number("seed", seed, int), progress=report)
    answer = found.summary() | {"seconds": round(time.perf_counter() - started, 2)}
    if as_json:
        print_json(answer)
    else:
        click.echo(found.text())
    if not found.agree:
        sys.exit(1)


@click.command()
@seed_option
@json_option
def claims(seed: str, as_json: bool) -> None:
    """Judge the claims of the sources by computation."""
    from sparsity.ledger import ledger

    use_float64()
    judged = sparsity.claims(seed=number("seed", seed, int))
    if as_json:
        print_json(judged)
    else:
        click.echo(ledger.table(judged))
