"""The command `sparsity`. Exit 0: done; 1: a check disagreed; 2: bad input, one line on stderr.

    theory    list, derive, eval, exact, design    what theory says of one row
    checks    estimate, verify, claims, reproduce  what is sampled, and held against theory
    files     plot, sweep                          what is written to files
    models    measure, describe                    a real model, on text or from its configuration
    request   the row that was typed;  common: options and printing;  pages: --help and Tab

With --json, stdout carries one JSON value and nothing else. Heavy imports happen inside commands.
"""

from __future__ import annotations

import difflib
import errno
import os
import sys
import traceback
import warnings
from contextlib import suppress

import click

import sparsity
from sparsity.cli import common, pages
from sparsity.cli.checks import claims, estimate, reproduce, verify
from sparsity.cli.files import plot, sweep
from sparsity.cli.models import describe, measure
from sparsity.cli.theory import derive, design, eval_, exact, list_
from sparsity.errors import InputError, NoClosedForm

__all__ = ["cli", "main"]

_SECTIONS = {
    "Ask": (list_, derive, eval_, exact, estimate, design),
    "Check": (verify, claims),
    "Draw and explore": (plot, sweep),
    "Measure": (measure, describe),
    "Reproduce": (reproduce,),
    "Set up": (pages.completion,),
}

# Bytes of addresses (`ulimit -v`), twice what JAX needs to start. Below it an error of any kind may
# be a lack of memory and is reported as one; a larger number would blame memory for errors of the
# program, a smaller one would show a traceback where memory is the reason.
_AMPLE_MEMORY = 4 * 2**30
# Bytes that are set free when memory has run out: without them the message itself may not fit.
_RESERVE = 4 * 2**20
# The exit code of an error of the program, EX_SOFTWARE of sysexits.h: Python's own code for an
# exception is 1, which here says that a check disagreed.
_UNFORESEEN = 70
# Options that people type by the symbol of the formulas or by another tool's word: what is meant,
# the first that the command has.
_LENGTHS = ("length", "lengths", "tokens")
_MEANT = {
    **dict.fromkeys(("n", "seq-len", "context", "context-length", "tokens"), _LENGTHS),
    **dict.fromkeys(("β", "b", "bias"), ("beta",)),
    **dict.fromkeys(("γ", "g", "spread", "std"), ("gamma",)),
    **dict.fromkeys(("λ", "lambda", "lam"), ("decay",)),
    **dict.fromkeys(("d", "head-dim"), ("dim",)),
    **dict.fromkeys(("quantity", "metric"), ("of",)),
    **dict.fromkeys(("o", "output", "file"), ("out",)),
    "temperature": ("step",),
}
_ALIKE = 0.7  # of difflib's ratio: "gama" and "gamma" have 0.89, "temperature" and "features" 0.63
_INTERRUPTED = "interrupted; nothing half-written is left"


@click.group(
    cls=pages.Commands,
    sections=_SECTIONS,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="--json makes a command print one line of JSON. Exit codes: 0 done, 1 a check did not "
    "agree, 2 bad input, 70 an error of the program, 130 interrupted. NO_COLOR=1 turns colour off. "
    "In a notebook, sparsity.explore() is a panel with sliders.",
)
@click.version_option(sparsity.__version__, prog_name="sparsity")
def cli() -> None:
    """How sharply can this attention mechanism focus?

    Weights are a = f(q·k). Their sparsity S = E|a| / √(E a²) is small if a few keys take all, and 1
    if every key counts the same.

    Examples:
        How sharply softmax focuses when its scores have spread 2:
            sparsity eval exp --gamma 2
        How many of 4096 tokens it then attends to:
            sparsity exact exp --gamma 2 --length 4096
        What a command does, with examples:
            sparsity exact --help
    """


def main() -> None:
    """Run the command; turn every foreseen error into one line and an exit code."""
    open_closed_streams()
    common.look_seldom_for_garbage()
    # OpenBLAS reserves a buffer for each of its threads when NumPy is imported.
    if common.memory_limit() < _AMPLE_MEMORY:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # A terminal of another encoding has no γ: better \u03b3 than an error in the middle of a line.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    reserve = bytearray(_RESERVE)
    try:
        if instruction := os.environ.get(pages.ASKED_BY_SHELL):
            return _complete(instruction)
        with warnings.catch_warnings():
            # NumPy warns of overflows whose results are checked afterwards, and refused if bad.
            # `python -W` shows them all.
            if not sys.warnoptions:
                warnings.simplefilter("ignore", RuntimeWarning)
            plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
            color = False if plain else None  # None lets click tell a terminal from a file
            # Not cli.main: it would turn a closed pipe into exit code 1, which means disagreement.
            with cli.make_context("sparsity", sys.argv[1:], color=color) as context:
                cli.invoke(context)
            sys.stdout.flush()
    except (InputError, NoClosedForm) as error:
        common.fail(str(error))
    except (KeyboardInterrupt, click.exceptions.Abort):
        common.fail(_INTERRUPTED, code=130)
    except click.exceptions.Exit as stop:  # --help, --version
        sys.exit(stop.exit_code)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "sparsity"
        said = error.format_message().rstrip(".")  # which may end in a question
        if isinstance(error, click.NoSuchOption) and error.ctx:
            said = f"No such option '{error.option_name}'. {_advice(error)}".rstrip(". ")
        common.fail(f"{said}{' See' if said.endswith('?') else ': see'} {command} --help")
    except MemoryError as error:
        del reserve
        common.fail(_lack_of_memory(error) or "not enough memory for these sizes: lower dim or "
                    "length")  # fmt: skip
    # `sparsity --help | head`: the reader has what it wanted, so that this is no failure. Commands
    # themselves print by `common.echo`, and go on to their exit code.
    except BrokenPipeError:
        common.discard(sys.stdout)
    except OSError as error:
        common.discard(sys.stdout)
        # ENOMEM: imports list folders and open files, which need memory too.
        said = _lack_of_memory(error) if error.errno == errno.ENOMEM else ""
        common.fail(said or f"cannot write the answer: {error}")
    except Exception as error:  # noqa: BLE001
        if _began_with_ctrl_c(error):
            common.fail(_INTERRUPTED, code=130)
        if said := _lack_of_memory(error):
            common.fail(said)
        with suppress(OSError):
            traceback.print_exc()
        sys.exit(_UNFORESEEN)


def _advice(error: click.NoSuchOption) -> str:
    """Return what to type in place of an option that a command does not have; empty if unknown."""
    assert error.ctx is not None
    # click's own hint names up to three options, the right one anywhere among them.
    typed = error.option_name.lstrip("-").lower().replace("_", "-")
    known = _options_of(error.ctx.command)
    meant = [name for name in _MEANT.get(typed, ()) if name in known]
    meant += difflib.get_close_matches(typed, known, n=1, cutoff=_ALIKE)
    meant += [name for name in known if len(typed) > 2 and typed in name.split("-")]
    if meant:
        return f"Did you mean '--{meant[0]}'?"
    others = [f"`{name}`" for name, each in cli.commands.items() if typed in _options_of(each)]
    return f"It is an option of {', '.join(others[:3])}" if others else ""


def _options_of(command: click.Command) -> list[str]:
    """Return the options of a command, without their dashes."""
    names = [name for each in command.params for name in each.opts if name.startswith("--")]
    return [name.removeprefix("--") for name in names]


def open_closed_streams() -> None:
    """Open /dev/null in place of each of stdin, stdout and stderr that was closed."""
    # Whoever starts the command with `2>&-` leaves number 2 free, and the next file that is opened
    # would take it: what compiled code writes to stderr would then go into a result.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The system gives the lowest free number: those below were opened in earlier rounds.
            place = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(place, True)  # by worker processes
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def _complete(instruction: str) -> None:
    """Answer a shell: its script (bash_source) or the completions of a line (bash_complete)."""
    from click.shell_completion import shell_complete

    if instruction == "bash_complete":
        common.echo(pages.BashWords(cli, {}, "sparsity", pages.ASKED_BY_SHELL).complete())
    elif shell_complete(cli, {}, "sparsity", pages.ASKED_BY_SHELL, instruction):
        fix = "give bash_source, zsh_source or fish_source"
        raise InputError(pages.ASKED_BY_SHELL, instruction, fix)


def _began_with_ctrl_c(error: BaseException | None) -> bool:
    """Tell whether an error was raised while a KeyboardInterrupt was being handled."""
    # Where Ctrl-C falls into the import of a compiled module, that module raises an ImportError of
    # its own; the KeyboardInterrupt is then found along `__context__`.
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _lack_of_memory(error: Exception) -> str:
    """Return the line that blames a low limit of memory for an error; empty without such a limit.

    Under `ulimit -v` libraries fail in many ways: MemoryError, OSError, ImportError, or whatever
    SymPy and XLA make of an allocation that failed.
    """
    limit = common.memory_limit()
    if limit >= _AMPLE_MEMORY:
        return ""
    kind = type(error).__name__
    return f"memory is limited to {limit / 2**20:.0f} MiB and ran out ({kind}); allow more"
