"""`list`, `derive`, `eval`, `exact` and `design`: what theory says of one kernel or one row."""

from __future__ import annotations

from typing import Any

import click

import sparsity
from sparsity.cli import common, pages
from sparsity.errors import InputError


@click.command("list")
@common.json_option
def list_(as_json: bool) -> None:
    """List the kernels, the steps and the quantities, by name.

    A kernel is the weight a = f(s) of one key with score s = q·k. Maps of whole rows, such as
    sparsemax, come last. Each line shows its parameters.

    \b
    Examples:
      All of them, a line each:
        sparsity list
    """
    from sparsity import kernels
    from sparsity.kernels.typesetting import typeset_weight

    known: tuple[Any, ...] = kernels.as_listed()
    records = [
        {
            "name": k.name,
            "title": k.title,
            # A map of whole rows has no weight of one score, but a formula of all of them.
            "weight": str(getattr(k, "weight", None) or k.formula),
            "average_over": k.random,
            "parameters": [common.fields_of(p, "name", "meaning", "domain") for p in k.parameters],
            "source": k.source,
        }
        for k in known
    ]
    lists = {"steps": common.list_steps(), "quantities": common.list_quantities()}
    if as_json:
        common.print_json({"kernels": records} | {key: dict(rows) for key, rows in lists.items()})
        return
    for k in known:
        aliases = kernels.aliases(k)
        name = k.name if k.title in aliases else kernels.name_with_title(k)
        name = ", ".join([*aliases, name])
        options = " ".join(f"--{p.name.replace('_', '-')}" for p in k.parameters)
        common.echo(f"{name:38} {options:33} a = {typeset_weight(k)}")
    for heading, key in (("Steps (--step)", "steps"), ("Quantities (--of)", "quantities")):
        common.echo(f"\n{heading}:")
        for name, said in lists[key]:
            common.echo(f"  {name:38} {said}")


@click.command()
@common.kernel_argument
@common.choice(
    "--format style", ("text", "latex"), "How to print.", default="text", show_default=True
)
@common.json_option
def derive(kernel: str, style: str, as_json: bool) -> None:
    """Derive S of a kernel symbolically, with its limits.

    KERNEL is a name from `sparsity list`, or a formula of the score s: "log(1+exp(s))".

    Prints the moments E|a| and E a², S in closed form, its limits and its leading asymptotics.

    \b
    Examples:
      Squared ReLU:
        sparsity derive relu2
      Softmax, to paste into an article:
        sparsity derive exp --format latex
      A formula of your own:
        sparsity derive "s**3"
    """
    derivation = sparsity.derive(kernel)
    if not as_json:
        common.echo(derivation.text() if style == "text" else derivation.latex())
        return
    cases = [{"name": x.name, "assumption": x.assumption, "S": str(x.S)} for x in derivation.cases]
    fields = ("quantity", "variable", "point", "condition", "value", "leading")
    common.print_json(
        {
            "kernel": derivation.kernel.name,
            "weight": str(derivation.kernel.weight),
            "first_moment": str(derivation.first_moment),
            "second_moment": str(derivation.second_moment),
            "S": str(derivation.S),
            "assumptions": list(derivation.assumptions),
            "reduced": None if derivation.reduced is None else str(derivation.reduced),
            "cases": cases,
            "limits": [{name: str(getattr(x, name)) for name in fields} for x in derivation.limits],
            "latex": derivation.latex(),
        }
    )


@click.command("eval")
@common.row_options
@common.json_option
def eval_(
    kernel: str, steps: tuple[str, ...], of: str | None, as_json: bool, **options: Any
) -> None:
    """Evaluate S of a kernel, and of its rows of n tokens.

    KERNEL is a name from `sparsity list`, or a formula of the score s: "log(1+exp(s))".

    S is the limit of long rows. With --length the answer also has the exact means over rows of n
    tokens: of n_eff, and of their own S, shown as E S_n. With --of it is the limit of another
    quantity, such as entropy.

    --decay with --length means rows of retention, as --step decay:DECAY does.

    \b
    Examples:
      Softmax whose scores have spread 2:
        sparsity eval exp --gamma 2
      The same in rows of 4096 tokens:
        sparsity eval exp --gamma 2 --length 4096
      A kernel of your own:
        sparsity eval "log(1+exp(s))" --beta 0 --gamma 2
      Softmax with ALiBi:
        sparsity eval exp --gamma 2 --length 4096 --step alibi:0.01
    """
    from sparsity.cli.request import read_request, refuse_grid

    refuse_grid("eval", kernel, options)
    request = read_request(kernel, common.without_none(options), steps, of, limit=True)
    n, of_S = request.length, request.quantity.name == "S"
    # JSON calls the limit S, and the mean over rows of their own S, another number, S_n.
    rows = {} if n is None or not of_S else {"n": n} | _means_over_rows(request)
    limit = request.limit()
    if as_json:
        answer = {"S": limit.value, "log_S": limit.log_value}
        if not of_S:
            answer = {"n": n, **common.fields_of(limit, "quantity", "value", "log_value")}
        how = common.fields_of(limit, "method", "error_bound", "error_kind")
        common.print_json(request.described() | answer | how | rows)
        return
    common.echo(request.text())
    if not of_S:
        common.echo(f"{request.shown} = {request.definition}")
        common.echo(f"{request.shown} = {float(limit):.12g}")
        common.echo(f"         {limit.method}, {limit.error_in_words}")
        return
    common.echo(f"S      = {float(limit):.12g}    log S = {float(limit.log_value):.12g}")
    common.echo(f"         {limit.method}, {limit.error_in_words}")
    if "n_eff" in rows:
        tokens, root = rows["n_eff"], rows["S_rms"]
        common.echo(f"n_eff  = {tokens:.12g} of n = {n} tokens, √(n_eff/n) = {root:.12g}")
    if "S_n" in rows:
        common.echo(f"E S_n  = {rows['S_n']:.12g}    mean of ‖a‖₁/(√n‖a‖₂) over rows of n")
    missing = [name for name in ("n_eff", "S_n") if rows and name not in rows]
    if missing:
        common.echo(f"    no exact law of {' and '.join(missing)} is known here; use estimate")


def _means_over_rows(request: Any) -> dict[str, Any]:
    """Return the exact means over rows of n of n_eff and of S, where their laws are known."""
    answer: dict[str, Any] = {}
    for of, name in (("n_eff", "n_eff"), ("S", "S_n")):
        try:
            law = sparsity.exact(request.row, length=request.length, of=of)
        except InputError as error:
            # Nobody asked for this quantity: one without a law is left out. What is wrong with the
            # row itself, as its length, is refused under another name.
            if error.argument != "of":
                raise
            continue
        answer |= {name: law.value, f"{name}_error_bound": law.error_bound}
        if of == "n_eff":
            answer["S_rms"] = law.S_rms
    return answer


@click.command()
@common.row_options
@common.json_option
def exact(
    kernel: str, steps: tuple[str, ...], of: str | None, as_json: bool, **options: Any
) -> None:
    """Compute the exact mean of a quantity over rows of n tokens.

    KERNEL is a name from `sparsity list`, or a formula of the score s: "log(1+exp(s))".

    The quantity is n_eff unless --of names another. --length is required, and takes a list N,N,…;
    with --json the values and bounds are then lists in the same order.

    \b
    Examples:
      Tokens that softmax attends to:
        sparsity exact exp --gamma 2 --length 64,1024,16384
      The mean entropy:
        sparsity exact exp --gamma 2 --length 1024 --of entropy
      The mass on a sink of logit 8:
        sparsity exact exp --gamma 2 --length 9 --step sink-logit:8 --of sink_mass
    """
    from sparsity.cli.request import read_request, refuse_grid

    refuse_grid("exact", kernel, options)
    lengths = [text for text in (options["length"] or "").split(",") if text.strip()]
    if not lengths:
        raise InputError("length", options["length"], "give the row length n, or a list n,n,…")
    typed = [common.without_none(options | {"length": n}) for n in lengths]
    # Every length is checked as a request of its own; one call then computes them all.
    asked = "n_eff" if of is None else of
    requests = [read_request(kernel, given, steps, asked) for given in typed]
    request, ns = requests[0], [one.length for one in requests if one.length is not None]
    n = ns if len(ns) > 1 else ns[0]
    law = sparsity.exact(request.row, length=n, of=request.quantity)
    if as_json:
        described = request.described()
        described["params"].pop("length", None)  # that of decay, of the first length; `n` has all
        answer = {"n": n, "quantity": request.quantity.name}
        numbers = ("value", "log_value", "error_bound", "method", "error_kind")
        common.print_json(described | answer | common.fields_of(law, *numbers))
        return
    common.echo(request.text(length=False))
    common.echo(f"{request.shown} = {request.definition}")
    common.echo(f"{'n':>12}  {request.shown:<18}  relative error, estimated")
    for n, value, bound in zip(ns, law.value.flat, law.error_bound.flat, strict=True):
        common.echo(f"{n:>12}  {value:<18.12g}  {bound:.1e}")
    common.echo(f"    {law.method}")


@click.command()
@click.argument("kernel", metavar="[KERNEL]", default="exp", shell_complete=pages.offer_kernels)
@common.option("--length", "N", "Row length n, in tokens.", required=True)
@common.option("--n-eff", "M", "Wanted number of attended tokens, 1 < M < N.", kind=float)
@common.option(
    "--sink-mass", "P", "Wanted mean mass on a sink, in (0, 1), instead of --n-eff.", kind=float
)
@common.of_option
@common.option(
    "--value", "V", "Wanted value of the quantity of --of, instead of --n-eff.", kind=float
)
@common.option(
    "--free",
    "NAME",
    "What to solve for: gamma, beta, decay, a number of a step, such as slope or logit, or the "
    "threshold of the quantity below:-1.",
)
@common.option("--beta", "VALUE", "Hold the bias of the scores at this value.", kind=float)
@common.option("--gamma", "VALUE", "Hold the spread of the scores at this value.", kind=float)
@common.option("--within", "C", common.PARAMETERS["within"], kind=float)
@common.steps_option
@common.json_option
def design(
    kernel: str,
    length: str,
    free: str | None,
    steps: tuple[str, ...],
    beta: float | None,
    gamma: float | None,
    within: float | None,
    as_json: bool,
    **goals: Any,
) -> None:
    """Find the parameter that gives the focus you want.

    KERNEL is a name from `sparsity list`, or a formula of the score s (default exp).

    It is given at other lengths too. What is solved for:

    \b
    exp          the spread γ; with --gamma the scale s of scores γ·s·ln n
    relu2        the bias β; with --beta the spread γ
    decayed      the decay λ
    --sink-mass  the logit of the sink, at the --gamma you give
    --step       the spread γ, or what --free names; of a sink it is
                 --step sink-logit:0 --free logit

    \b
    Examples:
      The spread at which softmax attends to 8 of 4096:
        sparsity design --length 4096 --n-eff 8
      The bias of squared ReLU:
        sparsity design relu2 --length 4096 --n-eff 8 --gamma 1
      The logit of a sink that takes half of the mass:
        sparsity design --length 4096 --sink-mass 0.5 --gamma 1
      The slope of ALiBi:
        sparsity design --length 9 --n-eff 4 --gamma 1 --step alibi:1 --free slope
      The threshold under the largest weight below which half of the keys lie:
        sparsity design --length 4096 --of below:-1 --value 0.5 --free threshold
    """
    from sparsity import kernels
    from sparsity.kernels.parameters import LENGTH

    held: Any = common.without_none({"beta": beta, "gamma": gamma, "within": within})
    what: Any = kernel
    aim = {"length": int(LENGTH.check(length)), "free": free} | common.without_none(goals)
    if steps:
        from sparsity.rows.row import Row
        from sparsity.rows.steps import parse

        if kernels.elementwise(kernel).law is not kernels.Law.SCORE:
            raise InputError("step", steps[0], f"{kernel} has no scores for it to change")
        # A `Row` is complete, so what is solved for has a value in it too; any will do.
        solved_for = free or "gamma"
        anything = {solved_for: 1.0} if solved_for in ("gamma", "beta") else {}
        what, held = Row(kernel, steps=tuple(map(parse, steps)), **(anything | held)), {}
    with common.progress("looks") as report:
        answer = sparsity.design(what, **aim, **held, progress=report)
    common.show(answer, as_json)
