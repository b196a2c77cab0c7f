"""What the commands share: options, completion, reading and printing. Nothing heavy is imported."""

from __future__ import annotations

import functools
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import click

from sparsity.errors import InputError
from sparsity.output import plain

_PARAMETERS = {
    "beta": "bias β = q·μ, any real number",
    "gamma": "spread γ = σ‖q‖ > 0",
    "decay": "decay λ in (0, 1]",
    "ratio": "noise-to-signal ratio σ̃/μ̃ > 0 of a feature",
    "dim": "dimension d ≥ 1",
    "query": "query family: uniform, one-hot or half-normal",
    "length": "row length n ≥ 1",
    "gamma2": "spread γ₂ > 0 of the second score of differential attention",
    "rho": "correlation ρ in [-1, 1] of its scores",
    "mix": "share λ ≥ 0 of its second map",
    "gate": "bias b of forgetting gates σ(b + cε)",
    "gate_spread": "spread c ≥ 0 of their bias",
    "sigma": "spread σ > 0 of an entry of a Performer's keys",
    "features": "random features m ≥ 1",
}


def offering(*words: str) -> Callable[..., list[str]]:
    """What the shell is to offer: those of the words that begin with what was typed."""
    return lambda context, parameter, typed: [word for word in words if word.startswith(typed)]


def members(module: str) -> Callable[..., list[str]]:
    """What the shell is to offer: those members of a module's ALL, read when it is asked."""

    def offer(context: Any, parameter: Any, typed: str) -> list[str]:
        names = [each.name for each in importlib.import_module(module).ALL]
        return offering(*names)(context, parameter, typed)

    return offer


def _step_names(context: Any, parameter: Any, typed: str) -> list[str]:
    from sparsity.rows import steps

    return offering(*(f"{name}:" for name in steps.typed()))(context, parameter, typed)


def kernel_names(context: Any, parameter: Any, typed: str) -> list[str]:
    """What the shell is to offer for a kernel."""
    from sparsity import kernels

    return offering(*(kernel.name for kernel in kernels.known()))(context, parameter, typed)


def _steps_help() -> str:
    """How each step is typed, read from its fields."""
    from dataclasses import MISSING, fields

    from sparsity.rows import steps

    shown = []
    for name, step in steps.typed().items():
        needed = [x.name.upper() for x in fields(step) if x.default is MISSING]
        other = [x.name.upper() for x in fields(step) if x.default is not MISSING]
        inner = f"[{',' if needed else ':'}{','.join(other)}]" if other else ""
        shown.append(f"{name}{':' if needed else ''}{','.join(needed)}{inner}")
    return "A step along the sequence; may be repeated, in order: " + ", ".join(shown) + "."


def _of_help() -> str:
    from sparsity import quantities

    known = [f"{q.name}, {q.title}" for q in (*quantities.ALL, *quantities.OF_MAPS)]
    known += [f"{each.name}:{each.symbol}, {each.title}" for each in quantities.FAMILIES]
    return "The quantity: " + "; ".join(known) + "."


class ReadLater(click.Option):
    """An option whose help is read from the library, and only when it is asked for."""

    def __init__(self, *declarations: Any, read: Callable[[], str], **attributes: Any) -> None:
        super().__init__(*declarations, **attributes)
        self._read = read

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        self.help = self._read()
        return super().get_help_record(ctx)


kernel_argument = click.argument("kernel", metavar="KERNEL|FORMULA", shell_complete=kernel_names)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
seed_option = click.option("--seed", metavar="K", default="0", help="Seed (default 0).")
_step_option = click.option(
    "--step",
    "steps",
    multiple=True,
    metavar="STEP",
    cls=ReadLater,
    read=_steps_help,
    shell_complete=_step_names,
)
_scores_option = click.option(
    "--scores",
    metavar="LAW",
    help="The law of the scores, Gaussian by default: uniform, t:DEGREES, "
    "mixture:SHARE,MEAN,DEVIATION;…, or a file with a sample of scores (.npy, .txt, .csv).",
    shell_complete=offering("uniform", "t:", "mixture:"),
)


def steps_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with an option for steps, and for the law of the scores, which is the first."""

    @functools.wraps(command)
    def with_scores(*args: Any, scores: str | None, steps: tuple[str, ...], **rest: Any) -> Any:
        if scores is None:
            return command(*args, steps=steps, **rest)
        from sparsity.rows.scores import parse

        parse(scores)  # a step is none of its laws
        return command(*args, steps=(scores, *steps), **rest)

    return _scores_option(_step_option(with_scores))


_OF = {
    "metavar": "QUANTITY",
    "cls": ReadLater,
    "read": _of_help,
    "shell_complete": members("sparsity.quantities"),
}
of_option = click.option("--of", **_OF)
several_of_option = click.option("--of", multiple=True, **_OF)


def with_parameters(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with an option for each parameter of a kernel or its rows."""
    for name, meaning in reversed(_PARAMETERS.items()):
        offered = offering("uniform", "one-hot", "half-normal") if name == "query" else None
        typed = f"--{name.replace('_', '-')}"
        option = click.option(typed, metavar=name.upper(), help=meaning, shell_complete=offered)
        command = option(command)
    return command


def given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def refuse_dim(asked: Any, options: dict[str, Any]) -> None:
    """A dimension is for drawing whole keys only.

    Raises:
        InputError: one was given.
    """
    if asked.dim is not None:
        name = asked.row.kernel.name
        fix = f"{name} does not take it: S is the same in every dimension; leave it out"
        raise InputError("dim", options["dim"], fix)


def number(name: str, text: str, kind: type = float) -> Any:
    """The number that a text writes; a whole one for `int`.

    Raises:
        InputError: it writes none.
    """
    from sparsity import reading

    return reading.whole(text, name) if kind is int else reading.number(text, name)


def print_json(value: Any) -> None:
    """One JSON value on stdout."""
    click.echo(json.dumps(plain(value), ensure_ascii=False, allow_nan=False))


def show(found: Any, as_json: bool) -> None:
    """An answer, as JSON or for people."""
    if as_json:
        print_json(found.summary())
    else:
        click.echo(found.text())


@contextmanager
def progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, as the callback (done, total) that the library reports to."""
    from tqdm import tqdm

    with tqdm(desc=label, file=sys.stderr, leave=False, disable=None) as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield report


def _with_executor(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with options for where its blocks are computed, opened as `executor`."""

    @functools.wraps(command)
    def run(*args: Any, workers: str | None, scheduler: str | None, **rest: Any) -> Any:
        with _opened(workers, scheduler) as executor:
            return command(*args, executor=executor, **rest)

    return run


def executor_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--workers` and `--scheduler`."""
    command = _with_executor(command)
    command = click.option(
        "--scheduler", metavar="ADDRESS", help="Of a Dask scheduler, such as tcp://host:8786."
    )(command)
    return click.option("--workers", metavar="N", help="Processes to compute in (default: one).")(
        command
    )


@contextmanager
def _opened(workers: str | None, scheduler: str | None) -> Iterator[Any]:
    """What runs the tasks: processes of this machine, those of a Dask scheduler, or nothing."""
    if workers is not None and scheduler is not None:
        raise InputError("workers", workers, "a Dask scheduler has its own; give one of the two")
    if workers is not None:
        from sparsity.tasks import Workers

        with Workers(number("workers", workers, int)) as pool:
            yield pool
    elif scheduler is not None:
        with _client(scheduler) as client, client.get_executor() as pool:
            yield pool
    else:
        yield None


def _client(scheduler: str) -> Any:
    try:
        dask = importlib.import_module("distributed")
        addressing = importlib.import_module("distributed.comm.addressing")
    except ImportError:
        fix = "Dask is not installed: pip install 'sparsity[dask]'"
        raise InputError("scheduler", scheduler, fix) from None
    try:
        addressing.get_address_host_port(scheduler)  # a client that has begun takes 20 s to give up
        return dask.Client(scheduler, timeout=10, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError("scheduler", scheduler, f"cannot be reached: {error}") from None


def fail(message: str, code: int = 2) -> NoReturn:
    """One line on stderr, and the end."""
    click.echo("sparsity: " + " ".join(message.split()), err=True)
    sys.exit(code)


def use_float64() -> None:
    """The command line samples in float64; the library leaves that choice to its caller."""
    import jax

    jax.config.update("jax_enable_x64", True)


def compile_quickly() -> None:
    """For commands that compile much and draw little: XLA without its fusion emitters.

    It compiles in half the time; rows are then drawn more slowly, and a sum may differ in its last
    bits. The parts of such a command fill the cores, so that NumPy's products stay on one of them.
    What is set already is left alone.
    """
    import importlib.metadata
    import os

    if importlib.metadata.version("jaxlib").startswith("0.10."):  # XLA dies of a flag it has not
        os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy is not imported yet
