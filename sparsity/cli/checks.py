"""`estimate`, `verify`, `claims` and `reproduce`: what is sampled, and held against theory."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import asdict
from typing import Any

import click

import sparsity
from sparsity.cli import common, pages
from sparsity.errors import InputError
from sparsity.output import refuse_missing, refuse_unwritable_folder

_SECONDS_PER_SCORE = 1.5e-7  # of rows that are sorted in float64; measured on one core
_LONG_LOOK = 2.0  # seconds of a first look from which on it is announced


def _say_what_it_takes(request: Any, max_samples: float | None) -> None:
    """Say on stderr how long whole rows will take, before anything is drawn."""
    n = request.length
    if n is None or not request.quantity.whole:
        return
    rows = 256 if n < 2**20 else 32  # that long rows are drawn in: JAX, which knows, loads slowly
    most = max(rows, 1e9 / n if max_samples is None else max_samples)
    first, last = (f"some {x * n * _SECONDS_PER_SCORE:.0f} s" for x in (rows, most))
    if rows * n * _SECONDS_PER_SCORE >= _LONG_LOOK:
        said = f"{request.quantity.name} takes whole rows of {n} tokens: {rows} at first, {first}"
        sooner = "--rel-error, --max-samples or Ctrl-C end it sooner, with an answer"
        common.echo(f"sparsity: {said}; {most:.0f} at most, {last}; {sooner}", err=True)


@click.command()
@common.row_options
@common.option(
    "--rel-error", "E", "Stop at this relative standard error", default="1e-3", kind=float
)
@common.option(
    "--max-samples",
    "N",
    "Stop after N draws or a first batch (default: 1e9 scores).",
    kind=float,
)
@common.choice(
    "--method", ("stratified", "plain"), "How scalar scores are drawn (default stratified)."
)
@common.choice(
    "--dtype", ("float64", "float32"), "Precision (default: float64, for long rows float32)."
)
@common.seed_option
@common.json_option
def estimate(
    kernel: str, steps: tuple[str, ...], of: str | None, as_json: bool, **options: Any
) -> None:
    """Estimate S or another quantity by Monte Carlo.

    KERNEL is a name from `sparsity list`, or a formula of the score s: "log(1+exp(s))".

    Prints the estimate with its standard error and 95 % interval, and the theoretical value.

    By default single scores are drawn; --dim draws whole keys, --length whole rows, --decay with
    --length rows of retention.

    \b
    Examples:
      Squared ReLU, to 1 %:
        sparsity estimate relu2 --beta -1 --gamma 0.5 --rel-error 0.01
      n_eff of drawn rows of 64 tokens:
        sparsity estimate exp --gamma 2 --length 64 --of n_eff --rel-error 0.01
      From whole keys in R^64:
        sparsity estimate exp --gamma 1 --dim 64 --rel-error 0.01
    """
    from sparsity.cli.request import read_request, refuse_grid

    refuse_grid("estimate", kernel, options)
    names = ("method", "dtype", "rel_error", "max_samples", "seed")
    settings = {name: options.pop(name) for name in names}
    request = read_request(kernel, common.without_none(options), steps, of, keys=True)
    _say_what_it_takes(request, settings["max_samples"])
    common.use_float64()
    with common.progress("sampling") as report:
        report(0, 1)
        drawn = request.estimate(**settings, progress=report)
    if drawn.warning:
        common.echo(f"sparsity: warning: {drawn.warning}", err=True)
    theory, line = request.theory_beside(drawn)
    if as_json:
        # S stands under its own name besides `value`, as `eval` has it.
        answer = {"S": drawn.S, "log_S": drawn.log_S} if drawn.quantity == "S" else {}
        answer |= {
            k: item for k, item in asdict(drawn).items() if k not in ("dof", "length", "assumed")
        }
        answer |= {"trusted": drawn.trusted}
        common.print_json(answer | request.described() | {"n": request.length} | theory)
    else:
        shown, (low, high) = request.shown, drawn.ci95
        common.echo(
            f"{request.text()}\n"
            f"{shown} = {drawn.value:.8g} ± {drawn.stderr:.2g}    "
            f"95 % interval [{low:.8g}, {high:.8g}]\n"
            f"    {shown} = {request.definition}\n"
            f"    {drawn.method}: {drawn.samples:.4g} samples, effective {drawn.ess:.4g}, "
            f"{drawn.dtype} on {drawn.device}, {drawn.seconds:.2f} s, seed {drawn.seed}\n"
            f"    stopped: {drawn.stopped}\n"
            f"{line}"
        )
    # Sampling ends at Ctrl-C with what it has. The answer is printed; the exit code says the rest.
    if drawn.stopped == "interrupted":
        common.fail("interrupted; the estimate so far is valid", code=130)


@click.command()
@click.argument("kernels", metavar="[KERNEL …]", nargs=-1, shell_complete=pages.offer_kernels)
@common.with_parameters
@common.steps_option
@common.option(
    "--detectable",
    "E",
    "Smallest relative error that every comparison must detect (default 2e-3).",
    kind=float,
)
@common.seed_option
@common.executor_options
@common.json_option
def verify(
    kernels: tuple[str, ...],
    steps: tuple[str, ...],
    detectable: float | None,
    seed: int,
    executor: Any,
    as_json: bool,
    **options: Any,
) -> None:
    """Check formulas, quadrature and sampling against each other.

    KERNEL is a name from `sparsity list` (default: all of the reference grid).

    Without parameters it goes through the reference grid. With one KERNEL, its parameters, --length
    and --step it checks that row by every pair of methods that applies to it.

    The exit code is 1 if any comparison does not agree.

    \b
    Examples:
      The whole reference grid, in one or two minutes:
        sparsity verify
      Only the cells of one kernel:
        sparsity verify relu2
      A row of your own:
        sparsity verify exp --gamma 1 --length 64 --step alibi:0.01
    """
    rows: Any = kernels
    length, described, said = None, {}, ""
    given = common.without_none(options)
    if given or steps:
        if len(kernels) != 1:
            name, value = next(iter(given.items()), ("step", " ".join(steps)))
            raise InputError(name, value, "is a parameter of one row; name one kernel before it")
        from sparsity.cli.request import read_request

        request = read_request(kernels[0], given, steps)
        rows, length, said = (request.row,), request.length, f"{request.text()}\n"
        described = request.described() | {"n": length}
    else:
        common.prepare_long_work()
    # `detectable` has its default in the library: it is passed on only if it was given.
    settings = common.without_none({"detectable": detectable})
    common.use_float64()
    started = time.perf_counter()
    with common.progress("cells") as report:
        outcome = sparsity.verify(
            *rows, length=length, seed=seed, executor=executor, progress=report, **settings
        )
    seconds = round(time.perf_counter() - started, 2)
    if as_json:
        common.print_json(described | outcome.summary() | {"seconds": seconds})
    else:
        common.echo(said + outcome.text())
    if not outcome.agree:
        sys.exit(1)


@click.command()
@click.argument("keys", metavar="[KEY …]", nargs=-1, shell_complete=pages.offer_claims)
@common.seed_option
@common.json_option
def claims(keys: tuple[str, ...], seed: int, as_json: bool) -> None:
    """Judge the published claims by computation.

    KEY names a claim, as the output shows (default: all of them).

    Each claim gets a verdict, confirmed, refined, reported (published numbers, not recomputed) or
    refuted, with the findings it follows from.

    \b
    Examples:
      All of them, in about a minute:
        sparsity claims
      One of them:
        sparsity claims softmax-gap
      With the numbers behind each verdict:
        sparsity claims --json
    """
    common.prepare_long_work()
    from sparsity import claims_ledger as ledger

    common.use_float64()
    with common.progress("claims") as report:
        judged = sparsity.claims(*keys, seed=seed, progress=report)
    common.print_json(judged) if as_json else common.echo(ledger.table(judged))


@click.command()
@common.option(
    "--out",
    "DIR",
    "Folder to write to (default figures; with --check one that is removed).",
    offers=pages.offer_folders,
)
@common.option(
    "--check",
    "DIR",
    "Compare with the run in this folder, file by file.",
    offers=pages.offer_folders,
)
@common.seed_option
@common.executor_options
@common.json_option
def reproduce(out: str | None, check: str | None, seed: int, executor: Any, as_json: bool) -> None:
    """Make every figure, its data, the checks and the claims.

    Everything is computed and written into one folder; open index.html there. The exit code is 1 if
    the checks do not agree. --check compares the run with an earlier one: each file is the same,
    the same to rounding, or other; the exit code is then also 1 if any is other.

    \b
    Examples:
      Into the folder figures, in a few minutes:
        sparsity reproduce
      Whether this machine gives the same:
        sparsity reproduce --check figures
    """
    if check is not None:
        refuse_missing("check", check, "`sparsity reproduce` writes it")
    out = out or ("figures" if check is None else None)
    common.prepare_long_work()  # before the check, which imports NumPy
    if out is not None:
        refuse_unwritable_folder(out)
    from sparsity.report import reproduction

    common.use_float64()
    with tempfile.TemporaryDirectory() as home, common.progress("reproduce") as report:
        done = reproduction.reproduce(out or home, seed=seed, executor=executor, progress=report)
        checked = None if check is None else done.compared_with(check)
    common.show(done if checked is None else checked, as_json)
    if not done.agree or not (checked is None or checked.same):
        sys.exit(1)
