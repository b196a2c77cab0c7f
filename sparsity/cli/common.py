"""What the commands share: options, reading and printing, memory, and where to compute.

Nothing heavy is imported here: the command line is up before NumPy is.
"""

from __future__ import annotations

import functools
import importlib
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import click

from sparsity.cli import pages
from sparsity.errors import InputError, printable
from sparsity.output import json_ready

PARAMETERS = {
    "beta": "Bias β = q·μ of the scores, any real number.",
    "gamma": "Spread γ = σ‖q‖ > 0 of the scores.",
    "length": "Row length n ≥ 1, in tokens.",
    "decay": "Decay λ in (0, 1].",
    "ratio": "nonnegative: noise-to-signal ratio σ̃/μ̃ > 0 of a feature.",
    "query": "nonnegative: query family, uniform, one-hot or half-normal.",
    "dim": "Dimension d ≥ 1 of keys and queries.",
    "gamma2": "differential: spread γ₂ > 0 of the second scores.",
    "rho": "differential, router: correlation ρ in [-1, 1] of two scores, or of score and proxy.",
    "mix": "differential: share λ ≥ 0 of the second map.",
    "gate": "forgetting: bias b of the gates σ(b + cε).",
    "gate_spread": "forgetting: spread c ≥ 0 of that bias.",
    "sigma": "performer: spread σ > 0 of an entry of the keys.",
    "features": "performer: number of random features m ≥ 1.",
    "within": "block-router: correlation c in [0, 1] of two scores of a block.",
}

# --- options -----------------------------------------------------------------------------------


def option(name: str, metavar: str, help: str, **details: Any) -> Callable[..., Any]:
    """Return click's option that takes a value.

    Args:
        name: as typed; after a space the name of its parameter, where that differs.
        metavar: what stands for the value on the page.
        help: about it; a default is told at its end, where "(default" is not in it.
        **details: as `click.option` takes them; `offers` is what the shell offers for the value.
    """
    details["shell_complete"] = details.pop("offers", None)
    if "default" in details and "(default" not in help:
        help = f"{help} (default {details['default']})."
    return click.option(*name.split(), metavar=metavar, help=help, **details)


def _list_steps() -> list[tuple[str, str]]:
    """Return how each step is typed, read from its fields, and what it does."""
    from dataclasses import MISSING, fields

    from sparsity.rows import steps

    shown = []
    for name, step in steps.typed().items():
        needed = [x.name.upper() for x in fields(step) if x.default is MISSING]
        other = [x.name.upper() for x in fields(step) if x.default is not MISSING]
        inner = f"[{',' if needed else ':'}{','.join(other)}]" if other else ""
        typed = f"{name}{':' if needed else ''}{','.join(needed)}{inner}"
        shown.append((typed, pages.first_sentence(step)))
    return shown


def _list_quantities() -> list[tuple[str, str]]:
    from sparsity import quantities

    known = [(q.name, q.title) for q in (*quantities.ALL, *quantities.OF_MAPS)]
    return known + [(f"{each.name}:{each.symbol}", each.title) for each in quantities.FAMILIES]


kernel_argument = click.argument(
    "kernel",
    metavar="KERNEL|FORMULA",
    cls=pages.Argument,
    about='A name from `sparsity list`, or a formula of the score s: "log(1+exp(s))".',
    shell_complete=pages.offer_kernels,
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
seed_option = option("--seed", "K", "Seed of random numbers", default="0")
_scores_option = option(
    "--scores",
    "LAW",
    "Law of the scores (default Gaussian): uniform, t:DEGREES, "
    "mixture:SHARE,MEAN,DEVIATION;…, or a file with a sample of scores (.npy, .txt, .csv).",
    offers=pages.offer_words("uniform", "t:", "mixture:"),
)
_step_option = option(
    "--step steps",
    "STEP",
    "A step along the sequence, from the list below; repeat it for several, in order.",
    multiple=True,
    cls=pages.Listed,
    list_heading="Steps (--step)",
    read=_list_steps,
    offers=pages.offer_steps,
)


def steps_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command --step, and --scores for the law of the scores, which is the first step."""

    @functools.wraps(command)
    def with_scores(*args: Any, scores: str | None, steps: tuple[str, ...], **rest: Any) -> Any:
        if scores is None:
            return command(*args, steps=steps, **rest)
        from sparsity.rows.scores import parse

        parse(scores)  # a step is none of its laws
        return command(*args, steps=(scores, *steps), **rest)

    return _scores_option(_step_option(with_scores))


_of_option = functools.partial(
    option,
    "--of",
    "QUANTITY",
    cls=pages.Listed,
    list_heading="Quantities (--of)",
    read=_list_quantities,
    offers=pages.offer_quantities,
)
of_option = _of_option("The quantity, from the list below.")
several_of_option = _of_option(
    "The quantity, from the list below; several as a,b or by repeating it.", multiple=True
)


def with_parameters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command an option for each parameter of a kernel or its rows."""
    queries = pages.offer_words("uniform", "one-hot", "half-normal")
    for name, meaning in reversed(PARAMETERS.items()):
        of_query = name == "query"
        metavar, offers = ("FAMILY", queries) if of_query else ("VALUE", None)
        typed = f"--{name.replace('_', '-')}"
        command = option(typed, metavar, meaning, cls=pages.OfKernel, offers=offers)(command)
    return command


def row_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command what describes a quantity of a row: KERNEL, parameters, steps, --of."""
    return kernel_argument(with_parameters(steps_option(of_option(command))))


def executor_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command --workers and --scheduler, and what they open as `executor`."""

    @functools.wraps(command)
    def run(*args: Any, workers: str | None, scheduler: str | None, **rest: Any) -> Any:
        with _open_executor(workers, scheduler) as executor:
            return command(*args, executor=executor, **rest)

    said = "Compute on the Dask scheduler at this address, such as tcp://host:8786."
    run = option("--scheduler", "ADDRESS", said)(run)
    return option("--workers", "N", "Compute in N processes (default: in this one).")(run)


@contextmanager
def _open_executor(workers: str | None, scheduler: str | None) -> Iterator[Any]:
    """Open what runs the tasks: processes of this machine, those of a Dask scheduler, or None."""
    if workers is not None and scheduler is not None:
        raise InputError("workers", workers, "a Dask scheduler has its own; give one of the two")
    if workers is not None:
        from sparsity.tasks import Workers

        with Workers(read_number("workers", workers, int)) as pool:
            yield pool
    elif scheduler is not None:
        with connect_dask(scheduler) as client, client.get_executor() as pool:
            yield pool
    else:
        yield None


def connect_dask(scheduler: str) -> Any:
    """Return a client of the scheduler at an address.

    Raises:
        InputError: Dask is not installed, or nothing answers there.
    """
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


# --- what was typed ----------------------------------------------------------------------------


def without_none(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def split_quantities(of: tuple[str, ...]) -> list[str]:
    """Return the quantities of lists; "n_eff,pq_index:1,2" are two: no name begins with a digit."""
    return [name for names in of for name in re.split(r",(?![\d.])", names)]


def read_number(name: str, text: str, kind: type = float) -> Any:
    """Return the number that a text writes; a whole one for `int`.

    Raises:
        InputError: it writes none.
    """
    from sparsity import reading

    return (reading.parse_whole if kind is int else reading.parse_number)(text, name)


# --- what is printed ---------------------------------------------------------------------------

_VERDICTS = {
    **dict.fromkeys(("CONFIRMED", "confirmed", "AGREE"), "green"),
    **dict.fromkeys(("REFINED", "refined", "not enough evidence"), "yellow"),
    **dict.fromkeys(("REPORTED", "reported"), "yellow"),
    **dict.fromkeys(("REFUTED", "refuted", "NOT IN AGREEMENT", "disagree"), "red"),
}
_VERDICT = re.compile(rf"^(\s*(?:\d+  )?)({'|'.join(_VERDICTS)})(?=\s*$|:| )", re.MULTILINE)


def discard(stream: Any) -> None:
    """Let what is still to be printed there go nowhere: at the exit Python would try once more."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def echo(text: str, err: bool = False) -> None:
    """Print; to a reader who has left nothing more, and the command goes on to its exit code."""
    try:
        click.echo(text, err=err)
    except BrokenPipeError:
        discard(sys.stderr if err else sys.stdout)


def say(text: str) -> None:
    """Print text for people: verdicts that begin a line in colour, where stdout is a terminal."""
    painted = _VERDICT.sub(lambda m: m[1] + click.style(m[2], fg=_VERDICTS[m[2]]), text)
    echo(painted)  # which click takes the colour out again for a file or a pipe


def print_json(value: Any) -> None:
    """Print one JSON value on stdout."""
    echo(json.dumps(json_ready(value), ensure_ascii=False, allow_nan=False))


def show(found: Any, as_json: bool) -> None:
    """Print an answer, as JSON or for people."""
    if as_json:
        print_json(found.summary())
    else:
        say(found.text())


@contextmanager
def progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on stderr, moved by the callback (done, total) that is given."""
    from tqdm import tqdm

    with tqdm(desc=label, file=sys.stderr, leave=False, disable=None) as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield report


def fail(message: str, code: int = 2) -> NoReturn:
    """Print one line on stderr, where that can be written, and end the command."""
    try:
        echo("sparsity: " + printable(" ".join(message.split())), err=True)
    except OSError:
        discard(sys.stderr)
    sys.exit(code)


# --- memory and the settings of libraries ------------------------------------------------------

_ENOUGH_FOR_JAX = 2 * 2**30  # bytes of addresses in which it starts on a few cores; else killed


def memory_limit() -> float:
    """Return the bytes of addresses that this process may have, as `ulimit -v` sets them."""
    try:
        import resource
    except ImportError:  # Windows
        return math.inf
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return math.inf if limit == resource.RLIM_INFINITY else limit


def refuse_little_memory() -> None:
    """Refuse to load JAX where there is no room for it: it would end the process by a signal.

    Raises:
        InputError: the limit is too low.
    """
    limit = memory_limit()
    if limit < _ENOUGH_FOR_JAX:
        fix = f"is too little for sampling; allow {_ENOUGH_FOR_JAX >> 20} MiB or more (ulimit -v)"
        raise InputError("memory", f"{limit / 2**20:.0f} MiB", fix)


def use_float64() -> None:
    """Sample in float64: the command line may say so, the library leaves it to its caller."""
    refuse_little_memory()
    import jax

    jax.config.update("jax_enable_x64", True)


def prepare_long_work() -> None:
    """Make the settings of commands that compile and derive much; those made already stay.

    The parts of such a command fill the cores, so that a draw and a product of NumPy's each stay on
    one of them: threads that wait for each other took a tenth of the work. Garbage is looked for
    less often among a million objects that stay, and SymPy remembers more. What XLA is told, and
    what was measured of it, is in `sparsity.xla`.
    """
    import gc

    from sparsity import xla

    refuse_little_memory()
    if flags := xla.flags_of_long_work():
        os.environ.setdefault("XLA_FLAGS", flags)
    os.environ.setdefault("NPROC", "1")  # of XLA's threads
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy is not imported yet
    os.environ.setdefault("SYMPY_CACHE_SIZE", "20000")  # nor is SymPy
    gc.set_threshold(200_000, 20, 50)
