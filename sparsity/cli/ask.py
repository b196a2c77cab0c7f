"""`list`, `derive`, `eval`, `exact` and `estimate`: what is asked of one kernel or one row."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

import sparsity
from sparsity.cli import common
from sparsity.errors import InputError


def _weight(kernel: Any) -> str:
    """The definition in a line: of a kernel f(s), or of a map of whole rows."""
    return str(getattr(kernel, "weight", None) or kernel.formula)


@click.command("list")
@common.json_option
def list_(as_json: bool) -> None:
    """The kernels and maps of whole rows, their weights and their parameters."""
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
        click.echo(f"{k.name:14} {k.title:24} {options:24} a = {_weight(k)}")


@click.command()
@common.kernel_argument
@click.option(
    "--format",
    "style",
    default="text",
    metavar="text|latex",
    help="How to print.",
    shell_complete=common.offering("text", "latex"),
)
@click.option("--max-seconds", metavar="T", default="60", help="The longest it may take.")
@common.json_option
def derive(kernel: str, style: str, max_seconds: str, as_json: bool) -> None:
    """Derive S of KERNEL symbolically: moments, S, limits and leading asymptotics."""
    if style not in ("text", "latex"):
        raise InputError("format", style, "choose text or latex")
    found = sparsity.derive(kernel, max_seconds=common.number("max_seconds", max_seconds))
    if not as_json:
        click.echo(found.text() if style == "text" else found.latex())
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
    click.echo(asked.text())
    click.echo(f"{asked.shown} = {asked.definition}")
    click.echo(f"{asked.shown} = {float(found.value):.12g}")
    click.echo(f"         {found.method}, relative error ≤ {float(found.error_bound):.1e}")


@click.command("eval")
@common.kernel_argument
@common.with_parameters
@common.steps_option
@common.of_option
@common.json_option
def eval_(
    kernel: str, steps: tuple[str, ...], of: str | None, as_json: bool, **options: Any
) -> None:
    """Evaluate S of KERNEL, the limit of long rows; with --length also the law of rows of n.

    With --of the limit of another quantity: of the entropy of softmax, ln n − γ²/2.

    For score kernels --decay with --length is for rows of retention, as --step decay:DECAY.
    """
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
    click.echo(asked.text())
    click.echo(f"S      = {answer['S']:.12g}    log S = {answer['log_S']:.12g}")
    click.echo(f"         {value.method}, |Δ log S| ≤ {answer['error_bound']:.1e}")
    if rows:
        click.echo("\n".join(_rows_text(rows)))


@click.command()
@common.kernel_argument
@common.with_parameters
@common.steps_option
@common.of_option
@common.json_option
def exact(
    kernel: str, steps: tuple[str, ...], of: str | None, as_json: bool, **options: Any
) -> None:
    """The mean of a quantity over rows of --length N tokens, exactly; n_eff by default.

    --length also takes a list N,N,…: values and bounds are then lists in the same order.
    """
    from sparsity.cli.asked import ask

    lengths = [text for text in (options["length"] or "").split(",") if text.strip()]
    if not lengths:
        raise InputError("length", options["length"], "give the row length n, or n,n,…")
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
    click.echo(asked.text(length=False))
    click.echo(f"{asked.shown} = {asked.definition}")
    click.echo(f"{'n':>12}  {asked.shown:<18}  relative error ≤")
    for n, value, bound in zip(ns, law.value.flat, law.error_bound.flat, strict=True):
        click.echo(f"{n:>12}  {value:<18.12g}  {bound:.1e}")
    click.echo(f"    {law.method}")


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


@click.command()
@common.kernel_argument
@common.with_parameters
@common.steps_option
@common.of_option
@click.option("--rel-error", metavar="E", default="1e-3", help="Relative standard error to reach.")
@click.option("--max-samples", metavar="N", default="1e9", help="Most draws to spend.")
@click.option("--max-seconds", metavar="T", default="inf", help="Most wall time to spend.")
@click.option(
    "--method",
    metavar="NAME",
    help="stratified (default) or plain, for scalar draws.",
    shell_complete=common.offering("stratified", "plain"),
)
@click.option(
    "--dtype",
    metavar="TYPE",
    help="float64 (default) or float32.",
    shell_complete=common.offering("float64", "float32"),
)
@common.seed_option
@common.json_option
def estimate(
    kernel: str, steps: tuple[str, ...], of: str | None, as_json: bool, **options: Any
) -> None:
    """Estimate S of KERNEL by Monte Carlo, or another quantity of its rows, beside its theory.

    For score kernels --dim draws whole keys, --length whole rows, --decay retention rows.
    """
    settings = _settings(options)
    from sparsity.cli.asked import ask

    asked = ask(kernel, common.given(options), steps, of)
    common.use_float64()
    with common.progress("sampling") as report:
        found = asked.estimate(**settings, progress=report)
    if found.warning:
        click.echo(f"sparsity: warning: {found.warning}", err=True)
    theory, line = asked.beside(found)
    if as_json:
        common.print_json(_sampled(asked, found, theory))
    else:
        click.echo(_sampled_text(asked, found, line))
    if found.stopped == "interrupted":
        common.fail("interrupted; the estimate so far is valid", code=130)
