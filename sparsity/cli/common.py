"""What the commands share: options, reading and printing, and where to compute.

Nothing heavy is imported here: --help and Tab answer before NumPy is up.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import click

from sparsity import parsing
from sparsity.cli import pages
from sparsity.errors import printable
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
    "within": "block-router, tile-softmax: correlation c in [0, 1] of two scores of a block.",
}

# --- options -----------------------------------------------------------------------------------


def option(
    name: str, metavar: str, help: str, *, kind: type | None = None, **details: Any
) -> Callable[..., Any]:
    """Return click's option that takes a value.

    Args:
        name: the option as typed; after a space the name of its parameter, where that differs.
        metavar: what stands for the value on the page.
        help: what the page says of it; a default is added at its end unless it says "(default".
        kind: `float` or `int`, if the value is read as a number; else it stays text.
        **details: as `click.option` takes them; `offers` is what the shell offers for the value.
    """

    def read(context: Any, parameter: click.Parameter, text: str | None) -> Any:
        parse = parsing.parse_whole if kind is int else parsing.parse_number
        return None if text is None else parse(text, str(parameter.name))

    # Not click's own types: they read by Python's `float`, which takes "1_0" and the digits of any
    # script, and they refuse in other words than the library does.
    if kind is not None:
        details["callback"] = read
    details["shell_complete"] = details.pop("offers", None)
    if "default" in details and "(default" not in help:
        help = f"{help} (default {details['default']})."
    return click.option(*name.split(), metavar=metavar, help=help, **details)


def choice(name: str, words: Sequence[str], help: str, **details: Any) -> Callable[..., Any]:
    """Return click's option that takes one of these words."""
    return click.option(*name.split(), type=click.Choice(words), help=help, **details)


def list_steps() -> list[tuple[str, str]]:
    """Return how each step is typed, read from its fields, and what it does."""
    from sparsity.rows import steps
    from sparsity.rows.steps import temperature

    shown = [(steps.spelled(x), pages.first_sentence(x)) for x in steps.typed().values()]
    for rule, said in temperature.described().items():
        make = getattr(temperature.Temperature, rule)
        shown.append((steps.spelled(make, f"temperature:{rule}"), said))
    of_vectors = [step for step in steps.ALL if step.name not in steps.typed()]
    return shown + [
        (f"sparsity.{step.__name__}", f"{pages.first_sentence(step)} (in Python: it takes vectors)")
        for step in of_vectors
    ]


def list_quantities() -> list[tuple[str, str]]:
    """Return the name of each quantity, and what it is."""
    from sparsity import quantities

    known = [(q.name, q.title) for q in (*quantities.ALL, *quantities.OF_MAPS)]
    return known + [(f"{kind.name}:{kind.symbol}", kind.title) for kind in quantities.FAMILIES]


kernel_argument = click.argument(
    "kernel", metavar="KERNEL|FORMULA", shell_complete=pages.offer_kernels
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
seed_option = option("--seed", "K", "Seed of random numbers", default="0", kind=int)
_scores_option = option(
    "--scores",
    "LAW",
    "Law of the scores (default Gaussian): uniform, t:DEGREES, "
    "mixture:SHARE,MEAN,DEVIATION;…, or a file with a sample of scores (.npy, .txt, .csv); "
    "these two keep their own scale without --gamma.",
)
_step_option = option(
    "--step steps",
    "STEP",
    "A step along the sequence, such as alibi:0.01 (see `sparsity list`); repeat it for several, "
    "in order.",
    multiple=True,
    offers=pages.offer_steps,
)


def steps_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command --step, and --scores for the law of the scores, which is the first step."""

    @functools.wraps(command)
    def with_scores(*args: Any, scores: str | None, steps: tuple[str, ...], **rest: Any) -> Any:
        if scores is None:
            return command(*args, steps=steps, **rest)
        from sparsity.rows.score_laws import parse

        parse(scores)  # a step is none of its laws
        return command(*args, steps=(scores, *steps), **rest)

    return _scores_option(_step_option(with_scores))


_QUANTITY = "The quantity, such as n_eff or entropy (see `sparsity list`)"
of_option = option("--of", "QUANTITY", f"{_QUANTITY}.", offers=pages.offer_quantities)
several_of_option = option(
    "--of",
    "QUANTITY",
    f"{_QUANTITY}; several as a,b or by repeating it.",
    multiple=True,
    offers=pages.offer_quantities,
)


def with_parameters(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command an option for each parameter of a kernel or its rows."""
    for name, meaning in reversed(PARAMETERS.items()):
        typed = f"--{name.replace('_', '-')}"
        command = option(typed, "VALUE", meaning)(command)
    return command


def row_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command what describes a quantity of a row: KERNEL, parameters, steps, --of."""
    return kernel_argument(with_parameters(steps_option(of_option(command))))


def executor_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command --workers, and the pool of processes that it asks for as `executor`."""

    @functools.wraps(command)
    def run(*args: Any, workers: int | None, **rest: Any) -> Any:
        if workers is None:
            return command(*args, executor=None, **rest)
        from sparsity.tasks import process_pool

        with process_pool(workers) as executor:
            try:
                return command(*args, executor=executor, **rest)
            except BaseException:  # at Ctrl-C no block that is under way is waited for
                executor.shutdown(wait=False, cancel_futures=True)
                # Python 3.11's pool fails on a cancelled block when a worker is killed, unless its
                # thread has dropped the block: that takes a moment in which this thread sleeps.
                time.sleep(0.5)
                for process in multiprocessing.active_children():
                    process.terminate()
                raise

    said = "Compute in N processes (default: in this one)."
    return option("--workers", "N", said, kind=int)(run)


# --- what was typed ----------------------------------------------------------------------------


def fields_of(record: Any, *names: str) -> dict[str, Any]:
    """Return some fields of a record by name."""
    return {name: getattr(record, name) for name in names}


def without_none(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def split_quantities(of: tuple[str, ...]) -> list[str]:
    """Return the quantities named in lists with commas; those between numbers are one's own."""
    return [name for names in of for name in re.split(r",(?!\s*[-+.\d])", names)]


# --- what is printed ---------------------------------------------------------------------------

LOG_SECONDS = 10.0  # between lines of progress in a log


def discard(stream: Any) -> None:
    """Send what is still to be printed on a stream nowhere."""
    # At its exit Python flushes stdout once more, and would end with a second error about it.
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def echo(text: str, err: bool = False) -> None:
    """Print a text; where its reader has left, as `| head` does, the command goes on."""
    try:
        click.echo(text, err=err)
    except BrokenPipeError:
        discard(sys.stderr if err else sys.stdout)


def print_json(value: Any) -> None:
    """Print one JSON value on stdout."""
    echo(json.dumps(json_ready(value), ensure_ascii=False, allow_nan=False))


def show(answer: Any, as_json: bool) -> None:
    """Print an answer, as JSON or for people."""
    if as_json:
        print_json(answer.summary())
    else:
        echo(answer.text())


class Report:
    """What a work calls with (done, total): a bar on a terminal, and in a log a line now and then.

    Args:
        label: what is counted.
        bar: of tqdm.
    """

    def __init__(self, label: str, bar: Any) -> None:
        self._label, self._bar, self._noted, self._said = label, bar, "", time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Show how far the work is."""
        bar = self._bar
        bar.total = total
        bar.update(done - bar.n) if done > bar.n else bar.refresh()
        if bar.disable and time.monotonic() - self._said > LOG_SECONDS:
            echo(f"{self._label}: {done} of {total}{self._noted and '; '}{self._noted}", err=True)
            self._said = time.monotonic()

    def note(self, text: str) -> None:
        """Say more of it, beside what is counted."""
        self._noted = text
        self._bar.set_postfix_str(text)


@contextmanager
def progress(label: str) -> Iterator[Report]:
    """Show on stderr how far a work is, as the callback that it gives is told.

    Args:
        label: what is counted.
    """
    from tqdm import tqdm

    # `disable=None` is tqdm's word for "only where stderr is a terminal".
    with tqdm(desc=label, file=sys.stderr, leave=False, disable=None) as bar:
        yield Report(label, bar)


def fail(message: str, code: int = 2) -> NoReturn:
    """Print one line on stderr, where that can be written, and end the command."""
    try:
        echo("sparsity: " + printable(" ".join(message.split())), err=True)
    except OSError:
        discard(sys.stderr)
    sys.exit(code)


# --- the settings of libraries ------------------------------------------------------------------


def use_float64() -> None:
    """Set JAX to float64, in which the commands sample."""
    # It is one setting of the whole process. The command owns its process; the library never does.
    import jax

    jax.config.update("jax_enable_x64", True)


def look_seldom_for_garbage() -> None:
    """Let a command keep what it imports: nearly all of a million objects stay to its end."""
    # Python 3.11 looks through them after every 700 that are new, and again when it ends: of 0.95 s
    # of `sparsity exact`, 0.06 s and 0.25 s. What is frozen is not looked at.
    gc.set_threshold(200_000, 20, 50)
    atexit.register(gc.freeze)


def prepare_long_work() -> None:
    """Make the settings of commands that compile and derive much; those made already stay.

    NumPy and SymPy read theirs when they are imported: call it before anything that imports them.
    """
    # The parts of such a command fill the cores, so that a draw and a product of NumPy's each stay
    # on one of them: XLA's threads only waited for each other (an eighth less work without, in
    # three interleaved pairs of runs). SymPy, whose cache keeps 1000 results of a function, keeps
    # more, which trades memory for time. What XLA is told is in `sparsity.xla`.
    from sparsity import xla

    if flags := xla.flags_of_long_work():
        os.environ.setdefault("XLA_FLAGS", flags)
    os.environ.setdefault("NPROC", "1")  # the threads of XLA's pool
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("SYMPY_CACHE_SIZE", "20000")
