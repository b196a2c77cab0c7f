"""`design`: the parameter that gives what is wanted."""

from __future__ import annotations

from typing import Any

import click

import sparsity
from sparsity.cli import common, completion, pages
from sparsity.errors import InputError


def _free_help() -> str:
    from sparsity.design_search.scan import ALL

    return f"What to solve for: {', '.join(each.name for each in ALL)}."


def _target(n_eff: str | None, sink_mass: str | None, of: str | None, value: str | None) -> Any:
    """The quantity to aim at and its value."""
    from sparsity import quantities

    if (of is None) != (value is None):
        raise InputError("value", value, "give --of and --value together")
    asked = common.given({"n_eff": n_eff, "sink_mass": sink_mass})
    if of is not None:
        asked[quantities.named(of).name] = value
    if len(asked) != 1 or (of is not None and (n_eff or sink_mass)):
        raise InputError("n_eff", n_eff, "give one of --n-eff, --sink-mass, or --of with --value")
    ((name, text),) = asked.items()
    return name, common.number(name, str(text))


def _designed(
    kernel: str, steps: tuple[str, ...], free: str | None, aim: dict[str, Any], held: Any, n: int
) -> Any:
    """The design of a kernel or of a row with steps."""
    if steps:
        from sparsity import kernels
        from sparsity.rows.row import Row
        from sparsity.rows.steps import parse

        if kernels.elementwise(kernel).law is not kernels.Law.SCORE:
            raise InputError("step", steps[0], f"{kernel} has no scores for it to change")
        own = free or "gamma"  # whose value in the row does not matter
        anything = {own: 1.0} if own in ("gamma", "beta") else {}
        row = Row(kernel, steps=tuple(map(parse, steps)), **(anything | held))
        return sparsity.design(row, length=n, free=free, **aim)
    if free is None and "sink_mass" in aim:
        if "gamma" not in held:
            raise InputError("gamma", None, "--sink-mass needs it; give --gamma")
        if kernel != "exp":
            fix = (
                "--sink-mass is for a sink among softmax logits; use exp, or give --step and --free"
            )
            raise InputError("kernel", kernel, fix)
    return sparsity.design(kernel, length=n, free=free, **aim, **held)


@click.command(
    cls=pages.Command,
    examples=(
        (
            "The spread at which softmax attends to 8 of 4096",
            "sparsity design --length 4096 --n-eff 8",
        ),
        ("The bias of squared ReLU", "sparsity design relu2 --length 4096 --n-eff 8 --gamma 1"),
        (
            "The logit of a sink that takes half of the mass",
            "sparsity design --length 4096 --sink-mass 0.5 --gamma 1",
        ),
        (
            "The slope of ALiBi",
            "sparsity design --length 99 --n-eff 8 --gamma 1 --step alibi:1 --free slope",
        ),
    ),
)
@click.argument(
    "name",
    metavar="[KERNEL]",
    required=False,
    cls=pages.Argument,
    about="A name from `sparsity list`, or a formula of the score s (default exp).",
    shell_complete=completion.kernel_names,
)
@click.option(
    "--kernel",
    metavar="KERNEL",
    shell_complete=completion.kernel_names,
    help="KERNEL, as an option.",
)
@click.option("--length", required=True, metavar="N", help="Row length n, in tokens.")
@click.option("--n-eff", metavar="M", help="Wanted number of attended tokens, 1 < M < N.")
@click.option(
    "--sink-mass", metavar="P", help="Wanted mean mass on a sink, in (0, 1), instead of --n-eff."
)
@common.of_option
@click.option(
    "--value", metavar="V", help="Wanted value of the quantity of --of, instead of --n-eff."
)
@click.option(
    "--free",
    metavar="NAME",
    cls=pages.ReadLater,
    read=_free_help,
    shell_complete=completion.members("sparsity.design_search.scan"),
)
@click.option("--max-seconds", metavar="T", help="CPU time of a search (default 7).")
@click.option("--beta", metavar="VALUE", help="Hold the bias of the scores at this value.")
@click.option("--gamma", metavar="VALUE", help="Hold the spread of the scores at this value.")
@common.steps_option
@common.json_option
def design(
    name: str | None,
    kernel: str | None,
    length: str,
    free: str | None,
    steps: tuple[str, ...],
    max_seconds: str | None,
    as_json: bool,
    **options: str | None,
) -> None:
    """Find the parameter that gives the focus you want.

    Also tells how that parameter must grow with length. What is solved for:

    \b
    exp          the spread γ; with --gamma the scale s of scores γ·s·ln n
    relu2        the bias β; with --beta the spread γ
    decayed      the decay λ
    --sink-mass  the logit of the sink, at the --gamma you give
    --step       the spread γ, or what --free names
    """
    from sparsity.kernels.parameters import LENGTH

    if name is not None and kernel not in (None, name):
        raise InputError("kernel", kernel, f"the argument says {name}; give only one of them")
    beta, gamma = options.pop("beta"), options.pop("gamma")
    wanted, value = _target(**options)
    held = {
        key: common.number(key, text)
        for key, text in common.given({"beta": beta, "gamma": gamma}).items()
    }
    n = int(LENGTH.check(length))
    aim = {wanted: value}
    if max_seconds is not None:
        aim["max_seconds"] = common.number("max_seconds", max_seconds)
    found = _designed(name or kernel or "exp", steps, free, aim, held, n)
    common.show(found, as_json)
