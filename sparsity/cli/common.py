"""What the commands share: options, reading and printing. Nothing heavy is imported."""

from __future__ import annotations

import functools
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import click

from sparsity.cli import completion, pages
from sparsity.errors import InputError, printable
from sparsity.output import plain

PARAMETERS = {
    "beta": "Bias β = q·μ of the scores, any real number.",
    "gamma": "Spread γ = σ‖q‖ > 0 of the scores.",
    "length": "Row length n ≥ 1, in tokens.",
    "decay": "Decay λ in (0, 1].",
    "ratio": "nonnegative: noise-to-signal ratio σ̃/μ̃ > 0 of a feature.",
    "query": "nonnegative: query family, uniform, one-hot or half-normal.",
    "dim": "Dimension d ≥ 1 of keys and queries.",
    "gamma2": "differential: spread γ₂ > 0 of the second scores.",
    "rho": "differential: correlation ρ in [-1, 1] of the two scores.",
    "mix": "differential: share λ ≥ 0 of the second map.",
    "gate": "forgetting: bias b of the gates σ(b + cε).",
    "gate_spread": "forgetting: spread c ≥ 0 of that bias.",
    "sigma": "performer: spread σ > 0 of an entry of the keys.",
    "features": "performer: number of random features m ≥ 1.",
}


def _steps_list() -> list[tuple[str, str]]:
    """How each step is typed, read from its fields, and what it does."""
    from dataclasses import MISSING, fields

    from sparsity.rows import steps

    shown = []
    for name, step in steps.typed().items():
        needed = [x.name.upper() for x in fields(step) if x.default is MISSING]
        other = [x.name.upper() for x in fields(step) if x.default is not MISSING]
        inner = f"[{',' if needed else ':'}{','.join(other)}]" if other else ""
        typed = f"{name}{':' if needed else ''}{','.join(needed)}{inner}"
        shown.append((typed, completion.about(step)))
    return shown


def _quantities_list() -> list[tuple[str, str]]:
    from sparsity import quantities

    known = [(q.name, q.title) for q in (*quantities.ALL, *quantities.OF_MAPS)]
    known += [(f"{each.name}:{each.symbol}", each.title) for each in quantities.FAMILIES]
    return known


kernel_argument = click.argument(
    "kernel",
    metavar="KERNEL|FORMULA",
    cls=pages.Argument,
    about='A name from `sparsity list`, or a formula of the score s: "log(1+exp(s))".',
    shell_complete=completion.kernel_names,
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
seed_option = click.option(
    "--seed", metavar="K", default="0", help="Seed of random numbers (default 0)."
)
_step_option = click.option(
    "--step",
    "steps",
    multiple=True,
    metavar="STEP",
    cls=pages.Listed,
    help="A step along the sequence, from the list below; repeat it for several, in order.",
    list_heading="Steps (--step)",
    read=_steps_list,
    shell_complete=completion.step_names,
)
_scores_option = click.option(
    "--scores",
    metavar="LAW",
    help="Law of the scores (default Gaussian): uniform, t:DEGREES, "
    "mixture:SHARE,MEAN,DEVIATION;…, or a file with a sample of scores (.npy, .txt, .csv).",
    shell_complete=completion.offering("uniform", "t:", "mixture:"),
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


_OF: dict[str, Any] = {
    "metavar": "QUANTITY",
    "cls": pages.Listed,
    "list_heading": "Quantities (--of)",
    "read": _quantities_list,
    "shell_complete": completion.quantity_names,
}
of_option = click.option("--of", help="The quantity, from the list below.", **_OF)
several_of_option = click.option(
    "--of",
    multiple=True,
    help="The quantity, from the list below; several as a,b or by repeating it.",
    **_OF,
)


def with_parameters(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with an option for each parameter of a kernel or its rows."""
    for name, meaning in reversed(PARAMETERS.items()):
        queries = completion.offering("uniform", "one-hot", "half-normal")
        command = click.option(
            f"--{name.replace('_', '-')}",
            cls=pages.OfKernel,
            metavar="FAMILY" if name == "query" else "VALUE",
            help=meaning,
            shell_complete=queries if name == "query" else None,
        )(command)
    return command


def given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def listed(of: tuple[str, ...]) -> list[str]:
    """The quantities of lists; "n_eff,pq_index:1,2" are two: no name begins with a digit."""
    return [name for names in of for name in re.split(r",(?![\d.])", names)]


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


_VERDICTS = {
    **dict.fromkeys(("CONFIRMED", "confirmed", "AGREE"), "green"),
    **dict.fromkeys(("REFINED", "refined", "not enough evidence"), "yellow"),
    **dict.fromkeys(("REFUTED", "refuted", "NOT IN AGREEMENT", "disagree"), "red"),
}
_VERDICT = re.compile(rf"^(\s*(?:\d+  )?)({'|'.join(_VERDICTS)})(?=\s*$|:| )", re.MULTILINE)


def discard(stream: Any) -> None:
    """What is still to be printed there goes nowhere: at the exit Python would try once more."""
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


def colourless() -> bool | None:
    """False, which is no colour, where the environment asks for none; None where click may tell."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return None if wanted else False


def print_json(value: Any) -> None:
    """One JSON value on stdout."""
    echo(json.dumps(plain(value), ensure_ascii=False, allow_nan=False))


def show(found: Any, as_json: bool) -> None:
    """An answer, as JSON or for people."""
    if as_json:
        print_json(found.summary())
    else:
        say(found.text())


@contextmanager
def progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, as the callback (done, total) that the library reports to."""
    from tqdm import tqdm

    with tqdm(desc=label, file=sys.stderr, leave=False, disable=None) as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield report


def fail(message: str, code: int = 2) -> NoReturn:
    """One line on stderr, where that can be written, and the end."""
    try:
        echo("sparsity: " + printable(" ".join(message.split())), err=True)
    except OSError:
        discard(sys.stderr)
    sys.exit(code)


_FOR_JAX = 2 * 2**30  # bytes of addresses in which JAX starts on a few cores; in less it is killed


def memory_limit() -> float:
    """Bytes of addresses that the system lets this process have, as `ulimit -v` sets them."""
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
    if limit < _FOR_JAX:
        fix = f"is too little for sampling; allow {_FOR_JAX >> 20} MiB or more (ulimit -v)"
        raise InputError("memory", f"{limit / 2**20:.0f} MiB", fix)


def use_float64() -> None:
    """The command line samples in float64; the library leaves that choice to its caller."""
    refuse_little_memory()
    import jax

    jax.config.update("jax_enable_x64", True)


def for_long_work() -> None:
    """Settings of commands that compile and derive much; what is set already is left alone.

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
