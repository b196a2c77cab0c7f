"""The command `sparsity`. Exit 0: done; 1: a check disagreed; 2: bad input, one line on stderr.

With --json, stdout carries one JSON value and nothing else. Heavy imports happen inside commands.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

import sparsity
from sparsity.errors import InputError, NoClosedForm
from sparsity.interrupts import raised_in_time
from sparsity.output import netcdf, plain, refuse_unwritable

__all__ = ["cli", "main"]

_PARAMETERS = {
    "beta": "bias β = q·μ, any real number",
    "gamma": "spread γ = σ‖q‖ > 0",
    "decay": "decay λ in (0, 1]",
    "ratio": "noise-to-signal ratio σ̃/μ̃ > 0 of a feature",
    "dim": "dimension d ≥ 1",
    "query": "query family: uniform, one-hot or half-normal",
    "length": "row length n ≥ 1",
}


def _offering(*words: str) -> Callable[..., list[str]]:
    """What the shell is to offer: those of the words that begin with what was typed."""
    return lambda context, parameter, typed: [word for word in words if word.startswith(typed)]


def _kernels(context: Any, parameter: Any, typed: str) -> list[str]:
    """The kernels whose names begin with what was typed, for the shell to offer."""
    from sparsity import kernels

    return _offering(*(k.name for k in kernels.ALL))(context, parameter, typed)


_kernel_argument = click.argument("kernel", shell_complete=_kernels)


def _with_parameters(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, meaning in reversed(_PARAMETERS.items()):
        offered = _offering("uniform", "one-hot", "half-normal") if name == "query" else None
        option = click.option(
            f"--{name}", metavar=name.upper(), help=meaning, shell_complete=offered
        )
        command = option(command)
    return command


_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
_seed_option = click.option("--seed", metavar="K", default="0", help="Seed (default 0).")


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _number(name: str, text: str, kind: type = float) -> Any:
    from sparsity import reading

    return reading.whole(text, name) if kind is int else reading.number(text, name)


def _print_json(value: Any) -> None:
    click.echo(json.dumps(plain(value), ensure_ascii=False, allow_nan=False))


@contextmanager
def _progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, as the callback (done, total) that the library reports to."""
    from tqdm import tqdm

    with tqdm(desc=label, file=sys.stderr, leave=False, disable=None) as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield report


def _use_float64() -> None:
    """The command line samples in float64; the library leaves that choice to its caller."""
    import jax

    jax.config.update("jax_enable_x64", True)


@click.group(
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(sparsity.__version__, prog_name="sparsity")
def cli() -> None:
    """How sharply can this attention mechanism focus?

    Derives, evaluates, estimates and cross-checks S = E|a| / √(E a²) of attention weights
    a = f(q·k): small is sparse, 1 is uniform.
    """


@cli.command("list")
@_json_option
def list_(as_json: bool) -> None:
    """The kernels, their weights and their parameters."""
    from sparsity import kernels

    if as_json:
        _print_json(
            {
                "kernels": [
                    {
                        "name": k.name,
                        "title": k.title,
                        "weight": str(k.weight),
                        "average_over": k.law.value,
                        "parameters": [
                            {"name": p.name, "meaning": p.meaning, "domain": p.domain}
                            for p in k.parameters
                        ],
                        "source": k.source,
                    }
                    for k in kernels.ALL
                ]
            }
        )
        return
    for k in kernels.ALL:
        options = " ".join(f"--{p.name}" for p in k.parameters)
        click.echo(f"{k.name:12} {k.title:24} a = {k.weight!s:24} {options}")


@cli.command()
@_kernel_argument
@click.option(
    "--format",
    "style",
    default="text",
    metavar="text|latex",
    help="How to print.",
    shell_complete=_offering("text", "latex"),
)
@_json_option
def derive(kernel: str, style: str, as_json: bool) -> None:
    """Derive S of KERNEL symbolically: moments, S, limits and leading asymptotics."""
    if style not in ("text", "latex"):
        raise InputError("format", style, "choose text or latex")
    found = sparsity.derive(kernel)
    if not as_json:
        click.echo(found.text() if style == "text" else found.latex())
        return
    limits = [
        {
            "quantity": x.quantity,
            "variable": str(x.variable),
            "point": str(x.point),
            "condition": str(x.condition),
            "value": str(x.value),
            "leading": str(x.leading),
        }
        for x in found.limits
    ]
    _print_json(
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
            "limits": limits,
            "latex": found.latex(),
        }
    )


@cli.command("eval")
@_kernel_argument
@_with_parameters
@_json_option
def eval_(kernel: str, as_json: bool, **options: Any) -> None:
    """Evaluate S of KERNEL; with --length also the exact law of rows of that length.

    For score kernels --decay with --length is for rows of retention.
    """
    from sparsity.quantities import ask

    question = ask(kernel, _given(options))
    record = question.kernel
    if "dim" in question.extra:
        fix = f"{record.name} does not take it: S is the same in every dimension; leave it out"
        raise InputError("dim", options["dim"], fix)
    rows, value = question.rows(), question.limit()
    answer = {
        "kernel": record.name,
        "params": question.params,
        "S": float(value.S),
        "log_S": float(value.log_S),
        "method": value.method,
        "error_bound": float(value.error_bound),
        **({} if rows is None else asdict(rows)),
    }
    if as_json:
        _print_json(answer)
        return
    click.echo(question.text())
    click.echo(f"S      = {answer['S']:.12g}    log S = {answer['log_S']:.12g}")
    click.echo(f"         {value.method}, |Δ log S| ≤ {answer['error_bound']:.1e}")
    if rows is not None:
        click.echo(
            f"n_eff  = {rows.n_eff:.12g} of n = {rows.n} tokens, √(n_eff/n) = {rows.S_rms:.12g}\n"
            f"E S_n  = {rows.S_n:.12g}    mean of ‖a‖₁/(√n‖a‖₂) over rows of n"
        )


@cli.command()
@_kernel_argument
@_with_parameters
@click.option("--rel-error", metavar="E", default="1e-3", help="Relative standard error to reach.")
@click.option("--max-samples", metavar="N", default="1e9", help="Most draws to spend.")
@click.option("--max-seconds", metavar="T", default="inf", help="Most wall time to spend.")
@click.option(
    "--method",
    metavar="NAME",
    help="stratified (default) or plain, for scalar draws.",
    shell_complete=_offering("stratified", "plain"),
)
@click.option(
    "--dtype",
    metavar="TYPE",
    help="float64 (default) or float32.",
    shell_complete=_offering("float64", "float32"),
)
@_seed_option
@_json_option
def estimate(
    kernel: str,
    rel_error: str,
    max_samples: str,
    max_seconds: str,
    method: str | None,
    dtype: str | None,
    seed: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Estimate S of KERNEL by Monte Carlo.

    For score kernels --dim draws whole keys, --length whole rows, --decay retention rows.
    """
    settings = {
        "rel_error": _number("rel_error", rel_error),
        "max_samples": _number("max_samples", max_samples),
        "max_seconds": _number("max_seconds", max_seconds),
        "seed": _number("seed", seed, int),
    }
    from sparsity.quantities import ask

    given = _given(options)
    _use_float64()
    with _progress("sampling") as report:
        found = sparsity.estimate(
            kernel, **settings, method=method, dtype=dtype, progress=report, **given
        )
    if found.warning:
        click.echo(f"sparsity: warning: {found.warning}", err=True)
    asked = ask(kernel, given)
    beside = asked.beside(found)
    if as_json:
        value = asdict(found) | {"trusted": found.trusted, "kernel": asked.kernel.name}
        del value["dof"]
        _print_json(value | {"params": asked.params, "n": asked.length} | beside.summary())
    else:
        low, high = found.ci95
        name = asked.quantity
        click.echo(
            f"{asked.text()}\n"
            f"{name} = {found.S:.8g} ± {found.stderr:.2g}    "
            f"95 % interval [{low:.8g}, {high:.8g}]\n"
            f"    {name} = {asked.definition}\n"
            f"    {found.method}: {found.samples:.4g} samples, effective {found.ess:.4g}, "
            f"{found.dtype} on {found.device}, {found.seconds:.2f} s, seed {found.seed}\n"
            f"    stopped: {found.stopped}\n"
            f"{beside.text()}"
        )
    if found.stopped == "interrupted":
        _fail("interrupted; the estimate so far is valid", code=130)


@cli.command()
@click.argument("kernels", metavar="[KERNEL …]", nargs=-1, shell_complete=_kernels)
@_seed_option
@_json_option
def verify(kernels: tuple[str, ...], seed: str, as_json: bool) -> None:
    """Cross-check every route over the reference grid; exit 1 if any cell does not agree."""
    import time

    _use_float64()
    started = time.perf_counter()
    with _progress("cells") as report:
        found = sparsity.verify(*kernels, seed=_number("seed", seed, int), progress=report)
    answer = found.summary() | {"seconds": round(time.perf_counter() - started, 2)}
    if as_json:
        _print_json(answer)
    else:
        click.echo(found.text())
    if not found.agree:
        sys.exit(1)


@cli.command()
@_seed_option
@_json_option
def claims(seed: str, as_json: bool) -> None:
    """Judge the claims of the sources by computation."""
    from sparsity.ledger import ledger

    _use_float64()
    judged = sparsity.claims(seed=_number("seed", seed, int))
    if as_json:
        _print_json(judged)
    else:
        click.echo(ledger.table(judged))


@cli.command()
@_kernel_argument
@_with_parameters
@click.option("--out", required=True, metavar="FILE.nc", help="The netCDF file to write.")
@_json_option
def sweep(kernel: str, out: str, as_json: bool, **options: Any) -> None:
    """Evaluate S of KERNEL over grids and save a labelled netCDF file.

    A grid is start:stop:count, start:stop:count:log, or a list a,b,c.
    """
    from sparsity.sweeps import curves

    refuse_unwritable(netcdf(out))
    data = sparsity.sweep(kernel, **_given(options))
    curves.save(data, out)
    sizes = {str(name): int(size) for name, size in data.sizes.items()}
    if as_json:
        _print_json({"kernel": kernel, "out": out, "sizes": sizes, "variables": list(data)})
    else:
        click.echo(f"{out}: " + " × ".join(f"{name} {size}" for name, size in sizes.items()))


@cli.command()
@click.option("--out", default="figures", metavar="DIR", help="Output folder (default figures).")
@_seed_option
@_json_option
def reproduce(out: str, seed: str, as_json: bool) -> None:
    """Every curve with its data, the cross-check and the claims, from nothing, into one folder."""
    from sparsity.report import reproduction

    _use_float64()
    with _progress("reproduce") as report:
        done = reproduction.reproduce(out, seed=_number("seed", seed, int), progress=report)
    if as_json:
        _print_json(done.summary())
    else:
        click.echo(done.text())
    if not done.agree:
        sys.exit(1)


@cli.command()
@click.option(
    "--kernel",
    default="exp",
    metavar="KERNEL",
    shell_complete=_kernels,
    help="exp (default), relu2 … decayed.",
)
@click.option("--length", required=True, metavar="N", help="Row length n.")
@click.option("--n-eff", metavar="M", help="Effective number of tokens wanted.")
@click.option("--sink-mass", metavar="P", help="Instead: mean mass wanted on a sink, in (0, 1).")
@click.option("--beta", metavar="BETA", help="Hold the bias at this value.")
@click.option("--gamma", metavar="GAMMA", help="Hold the spread at this value.")
@_json_option
def design(
    kernel: str,
    length: str,
    n_eff: str | None,
    sink_mass: str | None,
    beta: str | None,
    gamma: str | None,
    as_json: bool,
) -> None:
    """Find the parameter that gives the wanted focus, and how it must grow with length.

    exp: the spread γ, or at a given --gamma the scale s of γ·s·ln n. relu2: the bias β, or at a
    given --beta the spread. decayed: the decay λ. --sink-mass with --gamma: the sink's logit.
    """
    from sparsity.inversion.design import design as solve
    from sparsity.inversion.sink_design import design_sink
    from sparsity.kernels.parameters import LENGTH

    if (n_eff is None) == (sink_mass is None):
        raise InputError("n_eff", n_eff, "give either --n-eff or --sink-mass")
    held = {
        name: _number(name, text)
        for name, text in (("beta", beta), ("gamma", gamma))
        if text is not None
    }
    n = int(LENGTH.check(length))
    if sink_mass is not None:
        mass = _number("sink_mass", sink_mass)
        if set(held) != {"gamma"}:
            raise InputError("gamma", gamma, "--sink-mass needs --gamma, and no --beta")
        if kernel != "exp":
            raise InputError(
                "kernel", kernel, "--sink-mass is for a sink among softmax logits: exp"
            )
        found: Any = design_sink(mass, length=n, **held)
    else:
        wanted = _number("n_eff", str(n_eff))
        found = solve(kernel, length=n, n_eff=wanted, **held)
    if as_json:
        _print_json(found.summary())
    else:
        click.echo(found.text())


@cli.command()
@click.option("--model", required=True, metavar="FILE", help="A .gguf or .safetensors checkpoint.")
@click.option("--text", "texts", multiple=True, metavar="FILE", help="A text; may be repeated.")
@click.option("--tokens", default="512", metavar="T", help="Tokens of each text (default 512).")
@click.option("--bos", is_flag=True, help="Begin with the model's first token (default: do not).")
@click.option("--out", required=True, metavar="FILE.nc", help="The netCDF file to write.")
@click.option("--report", metavar="DIR", help="Also pictures, claims and a page; runs both ways.")
@_json_option
def measure(
    model: str,
    texts: tuple[str, ...],
    tokens: str,
    bos: bool,
    out: str,
    report: str | None,
    as_json: bool,
) -> None:
    """Measure the attention of a model of the Llama family on real text, beside the exact law.

    A run that was ended goes on where it was when the same command is given again.
    """
    from sparsity.report.measured import job

    with _progress("layers") as step:
        done = job.run(
            model,
            texts,
            out=out,
            tokens=_number("tokens", tokens, int),
            bos=bos,
            report_to=report,
            progress=step,
        )
    if as_json:
        _print_json(done.summary())
    else:
        click.echo(done.text())


@cli.command()
@click.option("--out", metavar="DIR", help="Also write bench.json, .txt, .svg and .png there.")
@click.option("--budget", metavar="T", default="2", help="Seconds a peer may take in one cell.")
@click.option("--quick", is_flag=True, help="A few cells only, in seconds.")
@_json_option
def bench(out: str | None, budget: str, quick: bool, as_json: bool) -> None:
    """Measure speed against peers on the same work, as ratios within one run."""
    from sparsity import bench as benchmark

    _use_float64()
    with _progress("bench") as report:
        found = benchmark.run(
            budget_seconds=_number("budget", budget), out=out, progress=report, quick=quick
        )
    if as_json:
        _print_json(found.summary())
    else:
        click.echo(found.text())


_COMPLETE = "_SPARSITY_COMPLETE"  # what a shell sets to ask for completions


def _complete(instruction: str) -> None:
    """Answer a shell: its script (bash_source) or the completions of a line (bash_complete).

    Raises:
        InputError: an instruction of no shell.
    """
    from click.shell_completion import shell_complete

    if shell_complete(cli, {}, "sparsity", _COMPLETE, instruction):
        fix = "give bash_source, zsh_source or fish_source"
        raise InputError(_COMPLETE, instruction, fix)


def main() -> None:
    """Run the command; turn every foreseen error into one line and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        if os.environ.get(_COMPLETE):
            return _complete(os.environ[_COMPLETE])
        with raised_in_time(), warnings.catch_warnings():
            if not sys.warnoptions:  # python -W shows them all
                # NumPy's remarks on overflow are no answer; a number that fell to them is refused.
                warnings.simplefilter("ignore", RuntimeWarning)
            # Not cli.main: it would turn a closed pipe into exit code 1, which means disagreement.
            with cli.make_context("sparsity", sys.argv[1:]) as context:
                cli.invoke(context)
    except (InputError, NoClosedForm) as error:
        _fail(str(error))
    except (KeyboardInterrupt, click.exceptions.Abort):
        # If Ctrl-C fell into code that Python runs from text, as dataclasses and SymPy do, it would
        # end by the signal and not by the exit code; running other text takes that back.
        exec("")
        _fail("interrupted; nothing half-written is left", code=130)
    except click.exceptions.Exit as stop:  # --help, --version
        sys.exit(stop.exit_code)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "sparsity"
        _fail(f"{error.format_message().rstrip('.')}: see {command} --help")
    except MemoryError:
        _fail("not enough memory for these sizes: lower dim or length")
    except BrokenPipeError:  # the reader has left; what Python still holds goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        _fail(f"cannot write the answer: {error}")


def _fail(message: str, code: int = 2) -> None:
    click.echo("sparsity: " + " ".join(message.split()), err=True)
    sys.exit(code)
