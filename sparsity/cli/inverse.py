"""`design`: the parameter that gives what is wanted."""

from __future__ import annotations

from typing import Any

import click

import sparsity
from sparsity.cli import common
from sparsity.errors import InputError


def _free_help() -> str:
    from sparsity.inversion import free

    return f"What is solved for: {', '.join(each.name for each in free.ALL)}."


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
            raise InputError("gamma", None, "--sink-mass needs --gamma")
        if kernel != "exp":
            fix = "--sink-mass is for a sink among softmax logits: exp; else give --step, --free"
            raise InputError("kernel", kernel, fix)
    return sparsity.design(kernel, length=n, free=free, **aim, **held)


@click.command()
@click.argument("name", metavar="[KERNEL]", required=False, shell_complete=common.kernel_names)
@click.option(
    "--kernel",
    metavar="KERNEL",
    shell_complete=common.kernel_names,
    help="The same; exp by default.",
)
@click.option("--length", required=True, metavar="N", help="Row length n.")
@click.option("--n-eff", metavar="M", help="Effective number of tokens wanted.")
@click.option("--sink-mass", metavar="P", help="Instead: mean mass wanted on a sink, in (0, 1).")
@common.of_option
@click.option("--value", metavar="V", help="Instead of --n-eff: with --of, the value wanted.")
@click.option(
    "--free",
    metavar="NAME",
    cls=common.ReadLater,
    read=_free_help,
    shell_complete=common.members("sparsity.inversion.free"),
)
@click.option("--beta", metavar="BETA", help="Hold the bias at this value.")
@click.option("--gamma", metavar="GAMMA", help="Hold the spread at this value.")
@common.steps_option
@common.json_option
def design(
    name: str | None,
    kernel: str | None,
    length: str,
    free: str | None,
    steps: tuple[str, ...],
    as_json: bool,
    **options: str | None,
) -> None:
    """Find the parameter that gives the wanted focus, and how it must grow with length.

    exp: the spread γ, or at a given --gamma the scale s of γ·s·ln n. relu2: the bias β, or at a
    given --beta the spread. decayed: the decay λ. --sink-mass with --gamma: the sink's logit. With
    --step the spread γ; --free names any other.
    """
    from sparsity.kernels.parameters import LENGTH

    if name is not None and kernel not in (None, name):
        raise InputError("kernel", kernel, f"{name} was given besides; give one of them")
    beta, gamma = options.pop("beta"), options.pop("gamma")
    wanted, value = _target(**options)
    held = {
        key: common.number(key, text)
        for key, text in common.given({"beta": beta, "gamma": gamma}).items()
    }
    n = int(LENGTH.check(length))
    found = _designed(name or kernel or "exp", steps, free, {wanted: value}, held, n)
    common.show(found, as_json)
