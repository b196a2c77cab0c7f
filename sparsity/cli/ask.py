"""`list`, `derive`, `eval` and `exact`: what theory says of one kernel or one row."""

from __future__ import annotations

from typing import Any

import click

import sparsity
from sparsity.cli import common, completion, grids, pages
from sparsity.errors import InputError


def _weight(kernel: Any) -> str:
    """The definition in a line: of a kernel f(s), or of a map of whole rows."""
    return str(getattr(kernel, "weight", None) or kernel.formula)


@click.command(
    "list",
    cls=pages.Command,
    examples=(("All of them, a line each", "sparsity list"),),
)
@common.json_option
def list_(as_json: bool) -> None:
    """List the kernels, their weights and their parameters.

    A kernel is the weight a = f(s) of one key with score s = q·k. The maps of whole rows, such as
    sparsemax, stand at the end.
    """
    from sparsity import kernels

    if as_json:
        records = [
            {
                "name": k.name,
                "title": k.title,
                "weight": _weight(k),
                "average_over": k.random,
                "parameters": [
                    {name: getattr(p, name) for name in ("name", "meaning", "domain")}
                    for p in k.parameters
                ],
                "source": k.source,
            }
            for k in (*kernels.known(), *kernels.MAPS)
        ]
        common.print_json({"kernels": records})
        return
    for k in (*kernels.known(), *kernels.MAPS):
        options = " ".join(f"--{p.name.replace('_', '-')}" for p in k.parameters)
        common.echo(f"{k.name:14} {k.title:24} {options:33} a = {_weight(k)}")


@click.command(
    cls=pages.Command,
    examples=(
        ("Squared ReLU", "sparsity derive relu2"),
        ("Softmax, to paste into an article", "sparsity derive exp --format latex"),
        ("A formula of your own", 'sparsity derive "s**3" --max-seconds 20'),
    ),
)
@click.argument(
    "kernel",
    metavar="KERNEL|FORMULA",
    cls=pages.Argument,
    about="A name from `sparsity list`, or a formula of the score s.",
    shell_complete=completion.elementwise_names,
)
@click.option(
    "--format",
    "style",
    default="text",
    metavar="text|latex",
    help="How to print (default text).",
    shell_complete=completion.offering("text", "latex"),
)
@click.option(
    "--max-seconds", metavar="T", default="60", help="Give up after T seconds (default 60)."
)
@common.json_option
def derive(kernel: str, style: str, max_seconds: str, as_json: bool) -> None:
    """Derive S of a kernel symbolically, with its limits.

    Prints the moments E|a| and E a², S in closed form, its limits and its leading asymptotics.
    """
    if style not in ("text", "latex"):
        raise InputError("format", style, "choose text or latex")
    found = sparsity.derive(kernel, max_seconds=common.number("max_seconds", max_seconds))
    if not as_json:
        common.echo(found.text() if style == "text" else found.latex())
        return
    fields = ("quantity", "variable", "point", "condition", "value", "leading")
    common.print_json(
        {
            "kernel": found.kernel.name,
            "weight": str(found.kernel.weight),
            "first_moment": str(found.first_moment),
            "second_moment": str(found.second_moment),
            "S": str(found.S),
            "assumptions": list(found.assumptions),
            "reduced": None if found.reduced is None else str(found.reduced),
            "cases": [
                {"name": case.name, "assumption": case.assumption, "S": str(case.S)}
                for case in found.cases
            ],
            "limits": [{name: str(getattr(x, name)) for name in fields} for x in found.limits],
            "latex": found.latex(),
        }
    )


def _rows(asked: Any) -> dict[str, Any]:
    """The exact laws of rows of n, beside the limit: of n_eff and of S, where they are known."""
    answer: dict[str, Any] = {"n": asked.length}
    for of, name in (("n_eff", "n_eff"), ("S", "S_n")):
        try:
            law = sparsity.exact(asked.row, length=asked.length, of=of)
        except InputError as error:
            if error.argument != "of":
                raise
            continue  # it was not asked for
        answer |= {name: law.value, f"{name}_error_bound": law.error_bound}
        if of == "n_eff":
            answer["S_rms"] = law.S_rms
    return answer


def _rows_text(rows: dict[str, Any]) -> list[str]:
    """What `_rows` found, for people."""
    lines = []
    if "n_eff" in rows:
        lines.append(
            f"n_eff  = {rows['n_eff']:.12g} of n = {rows['n']} tokens, "
            f"√(n_eff/n) = {rows['S_rms']:.12g}"
        )
    if "S_n" in rows:
        lines.append(f"E S_n  = {rows['S_n']:.12g}    mean of ‖a‖₁/(√n‖a‖₂) over rows of n")
    missing = [name for name in ("n_eff", "S_n") if name not in rows]
    if missing:
        lines.append(f"    no exact law of {' and '.join(missing)} is known here; use estimate")
    return lines


def _long_rows(asked: Any, as_json: bool) -> None:
    """Print the limit of a quantity other than S."""
    found = asked.limit()
    if as_json:
        names = ("quantity", "value", "log_value", "method", "error_bound")
        own = {name: getattr(found, name) for name in names}
        common.print_json(asked.described() | {"n": asked.length} | own)
        return
    common.echo(asked.text())
    common.echo(f"{asked.shown} = {asked.definition}")
    common.echo(f"{asked.shown} = {float(found.value):.12g}")
    common.echo(f"         {found.method}, relative error ≤ {float(found.error_bound):.1e}")


@click.command(
    "eval",
    cls=pages.Command,
    examples=(
        ("Softmax whose scores have spread 2", "sparsity eval exp --gamma 2"),
        ("The same in rows of 4096 tokens", "sparsity eval exp --gamma 2 --length 4096"),
        ("A kernel of your own", 'sparsity eval "log(1+exp(s))" --beta 0 --gamma 2'),
        ("Softmax with ALiBi", "sparsity eval exp --gamma 2 --length 4096 --step alibi:0.01"),
    ),
)
@common.kernel_argument
@common.with_parameters
@common.steps_option
@common.of_option
@common.json_option
def eval_(
    kernel: str, steps: tuple[str, ...], of: str | None, as_json: bool, **options: Any
) -> None:
    """Evaluate S of a kernel, and of its rows of n tokens.

    S is the limit of long rows. With --length the answer also has the exact means over rows of n
    tokens: of n_eff, and of their own S, shown as E S_n. With --of it is the limit of another
    quantity, such as entropy.

    --decay with --length means rows of retention, as --step decay:DECAY does.
    """
    grids.refuse("eval", kernel, options, steps, of)
    from sparsity.cli.asked import ask

    asked = ask(kernel, common.given(options), steps, of, limit=True)
    common.refuse_dim(asked, options)
    if asked.quantity.name != "S":
        return _long_rows(asked, as_json)
    rows = {} if asked.length is None else _rows(asked)
    value = asked.limit()
    answer = asked.described() | {
        "S": value.S,
        "log_S": value.log_S,
        "method": value.method,
        "error_bound": value.error_bound,
        **rows,
    }
    if as_json:
        common.print_json(answer)
        return
    common.echo(asked.text())
    common.echo(f"S      = {answer['S']:.12g}    log S = {answer['log_S']:.12g}")
    common.echo(f"         {value.method}, |Δ log S| ≤ {answer['error_bound']:.1e}")
    if rows:
        common.echo("\n".join(_rows_text(rows)))


@click.command(
    cls=pages.Command,
    examples=(
        ("Tokens that softmax attends to", "sparsity exact exp --gamma 2 --length 64,1024,16384"),
        ("The mean entropy", "sparsity exact exp --gamma 2 --length 1024 --of entropy"),
        (
            "The mass on a sink of logit 8",
            "sparsity exact exp --gamma 2 --length 99 --step sink-logit:8 --of sink_mass",
        ),
    ),
)
@common.kernel_argument
@common.with_parameters
@common.steps_option
@common.of_option
@common.json_option
def exact(
    kernel: str, steps: tuple[str, ...], of: str | None, as_json: bool, **options: Any
) -> None:
    """Compute the exact mean of a quantity over rows of n tokens.

    The quantity is n_eff unless --of names another. --length is required, and takes a list N,N,…;
    with --json the values and bounds are then lists in the same order.
    """
    grids.refuse("exact", kernel, options, steps, of)
    from sparsity.cli.asked import ask

    lengths = [text for text in (options["length"] or "").split(",") if text.strip()]
    if not lengths:
        raise InputError("length", options["length"], "give the row length n, or a list n,n,…")
    each = [
        ask(kernel, common.given(options | {"length": n}), steps, "n_eff" if of is None else of)
        for n in lengths
    ]
    asked, ns = each[0], [one.length for one in each]
    common.refuse_dim(asked, options)
    law = sparsity.exact(asked.row, length=ns if len(ns) > 1 else ns[0], of=asked.quantity)
    described = asked.described()
    described["params"].pop("length", None)
    if as_json:
        columns = {name: getattr(law, name) for name in ("value", "log_value", "error_bound")}
        answer = {"n": ns if len(ns) > 1 else ns[0], "quantity": asked.quantity.name, **columns}
        common.print_json(described | answer | {"method": law.method})
        return
    common.echo(asked.text(length=False))
    common.echo(f"{asked.shown} = {asked.definition}")
    common.echo(f"{'n':>12}  {asked.shown:<18}  relative error ≤")
    for n, value, bound in zip(ns, law.value.flat, law.error_bound.flat, strict=True):
        common.echo(f"{n:>12}  {value:<18.12g}  {bound:.1e}")
    common.echo(f"    {law.method}")
