"""`estimate`: what sampling says of one row, beside its theory."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from sparsity.cli import common, completion, grids, pages


def _sampled_text(asked: Any, found: Any, line: str) -> str:
    """An estimate beside its theory, for people."""
    shown, (low, high) = asked.shown, found.ci95
    return (
        f"{asked.text()}\n"
        f"{shown} = {found.value:.8g} ± {found.stderr:.2g}    "
        f"95 % interval [{low:.8g}, {high:.8g}]\n"
        f"    {shown} = {asked.definition}\n"
        f"    {found.method}: {found.samples:.4g} samples, effective {found.ess:.4g}, "
        f"{found.dtype} on {found.device}, {found.seconds:.2f} s, seed {found.seed}\n"
        f"    stopped: {found.stopped}\n"
        f"{line}"
    )


def _sampled(asked: Any, found: Any, theory: dict[str, Any]) -> dict[str, Any]:
    """An estimate beside its theory, in JSON's types; what is no S has no S."""
    of_S = {"S": found.S, "log_S": found.log_S} if found.quantity == "S" else {}
    hidden = {"dof", "length"}
    value = of_S | {name: each for name, each in asdict(found).items() if name not in hidden}
    value |= {"trusted": found.trusted}
    return value | asked.described() | {"n": asked.length} | theory


def _settings(options: dict[str, Any]) -> dict[str, Any]:
    """How to sample, out of all options."""
    read = {
        name: common.number(name, options.pop(name))
        for name in ("rel_error", "max_samples", "max_seconds")
    }
    read["seed"] = common.number("seed", options.pop("seed"), int)
    return read | {"method": options.pop("method"), "dtype": options.pop("dtype")}


@click.command(
    cls=pages.Command,
    examples=(
        ("Squared ReLU, to 1 %", "sparsity estimate relu2 --beta -1 --gamma 0.5 --rel-error 0.01"),
        (
            "n_eff of drawn rows of 64 tokens",
            "sparsity estimate exp --gamma 2 --length 64 --of n_eff --rel-error 0.01",
        ),
        ("From whole keys in R^64", "sparsity estimate exp --gamma 1 --dim 64 --rel-error 0.01"),
    ),
)
@common.kernel_argument
@common.with_parameters
@common.steps_option
@common.of_option
@click.option(
    "--rel-error",
    metavar="E",
    default="1e-3",
    help="Stop at this relative standard error (default 1e-3).",
)
@click.option("--max-samples", metavar="N", default="1e9", help="Stop after N draws (default 1e9).")
@click.option(
    "--max-seconds", metavar="T", default="inf", help="Stop after T seconds (default: never)."
)
@click.option(
    "--method",
    metavar="NAME",
    help="How scalar scores are drawn: stratified (default) or plain.",
    shell_complete=completion.offering("stratified", "plain"),
)
@click.option(
    "--dtype",
    metavar="TYPE",
    help="Precision: float64 (default) or float32.",
    shell_complete=completion.offering("float64", "float32"),
)
@common.seed_option
@common.json_option
def estimate(
    kernel: str, steps: tuple[str, ...], of: str | None, as_json: bool, **options: Any
) -> None:
    """Estimate S or another quantity by Monte Carlo.

    Prints the estimate with its standard error and 95 % interval, and beside it the number that
    theory has for the same quantity.

    Scores are drawn as numbers; --dim draws whole keys, --length whole rows, --decay with --length
    rows of retention.
    """
    grids.refuse("estimate", kernel, options, steps, of)
    settings = _settings(options)
    from sparsity.cli.asked import ask

    asked = ask(kernel, common.given(options), steps, of)
    common.use_float64()
    with common.progress("sampling") as report:
        found = asked.estimate(**settings, progress=report)
    if found.warning:
        common.echo(f"sparsity: warning: {found.warning}", err=True)
    theory, line = asked.beside(found)
    if as_json:
        common.print_json(_sampled(asked, found, theory))
    else:
        common.echo(_sampled_text(asked, found, line))
    if found.stopped == "interrupted":
        common.fail("interrupted; the estimate so far is valid", code=130)
