"""The command `sparsity`. Exit 0: done; 1: a check disagreed; 2: bad input, one line on stderr.

    theory    list, derive, eval, exact, design    what theory says of one row
    checks    estimate, verify, claims, reproduce  what is sampled, and held against theory
    files     plot, sweep                          what is written to files
    models    measure, describe                    a real model, on text or from its configuration
    request   the row that was typed;  common: options and printing;  pages: Tab

With --json, stdout carries one JSON value and nothing else. Heavy imports happen inside commands.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
import warnings
from contextlib import suppress
from typing import Any

import click

import sparsity
from sparsity.calls import did_you_mean
from sparsity.cli import common
from sparsity.cli.checks import claims, estimate, reproduce, verify
from sparsity.cli.files import plot, sweep
from sparsity.cli.models import describe, measure
from sparsity.cli.theory import derive, design, eval_, exact, list_
from sparsity.errors import InputError, NoClosedForm

_THEORY = (list_, derive, eval_, exact, design)
_COMMANDS = (*_THEORY, estimate, verify, claims, reproduce, plot, sweep, measure, describe)

# The exit code of an error of the program, EX_SOFTWARE of sysexits.h: Python's own code for an
# exception is 1, which here says that a check disagreed.
_UNFORESEEN = 70
# How `did_you_mean` writes steps, and how they are typed.
_STEPS_IN_PYTHON = {
    "a rule in steps, such as Temperature.llama4()": "a rule, --step temperature:llama4",
    "steps, such as (sparsity.Window(64),)": "a step, such as --step window:64",
}
_INTERRUPTED = "interrupted; nothing half-written is left"


@click.group(
    commands=_COMMANDS,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="--json makes a command print one line of JSON. Exit codes: 0 done, 1 a check did not "
    "agree, 2 bad input, 70 an error of the program, 130 interrupted."
    " In a notebook, sparsity.explore() is a panel with sliders.",
)
@click.version_option(sparsity.__version__, prog_name="sparsity")
def cli() -> None:
    """How sharply can this attention mechanism focus?

    Weights are a = f(q·k). Their sparsity S = E|a| / √(E a²) is small if a few keys take all, and 1
    if every key counts the same.

    \b
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
    if os.environ.get("_SPARSITY_COMPLETE"):
        cli.main(prog_name="sparsity")  # answers the shell, and exits
    common.look_seldom_for_garbage()
    # A terminal of another encoding has no γ: better \u03b3 than an error in the middle of a line.
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        with warnings.catch_warnings():
            # NumPy warns of overflows whose results are checked afterwards, and refused if bad.
            # `python -W` shows them all.
            if not sys.warnoptions:
                warnings.simplefilter("ignore", RuntimeWarning)
                warnings.showwarning = _warn
            # Not cli.main: it would turn a closed pipe into exit code 1, which means disagreement.
            typed = sys.argv[1:]
            typed = [*typed[1:2], "--help"] if typed[:1] == ["help"] else typed
            with cli.make_context("sparsity", typed) as context:
                cli.invoke(context)
            if sys.stdout is not None:  # as where the shell has closed it
                sys.stdout.flush()
    except (InputError, NoClosedForm) as error:
        common.fail(str(error))
    except (KeyboardInterrupt, click.exceptions.Abort):
        common.fail(_INTERRUPTED, code=130)
    except click.exceptions.Exit as stop:  # --help, --version
        sys.exit(stop.exit_code)
    except click.UsageError as error:
        common.fail(_explained(error))
    except MemoryError:
        common.fail("not enough memory for these sizes: lower dim or length")
    # `sparsity --help | head`: the reader has what it wanted, so that this is no failure. Commands
    # themselves print by `common.echo`, and go on to their exit code.
    except BrokenPipeError:
        common.discard(sys.stdout)
    except OSError as error:
        common.discard(sys.stdout)
        common.fail(f"cannot write the answer: {error}")
    except Exception as error:  # noqa: BLE001
        if _began_with_ctrl_c(error):
            common.fail(_INTERRUPTED, code=130)
        with suppress(OSError):
            traceback.print_exc()
        sys.exit(_UNFORESEEN)


def _warn(said: Any, *where: Any) -> None:
    """Print a warning as the other lines are, without the place in the code."""
    common.echo(f"sparsity: warning: {said}", err=True)


def _explained(error: click.UsageError) -> str:
    """Return one line for what click refuses: the option that was meant, or an example."""
    said, context = error.format_message().rstrip("."), error.ctx  # it may end in a question
    if context is None:
        return f"{said}: see sparsity --help"
    if isinstance(error, click.NoSuchOption):
        known = {str(x.name): x.opts[0] for x in context.command.params}
        hint = did_you_mean(error.option_name.lstrip("-").replace("-", "_"), known).rstrip()
        for in_python, step in _STEPS_IN_PYTHON.items():
            hint = hint.replace(in_python, step)
        option = re.sub(r"\w+(?=\?$)", lambda name: known.get(name[0], name[0]), hint)
        said = f"No such option '{error.option_name}'" + (f"; {option}" if hint else "")
    if said.endswith("?") or isinstance(error, click.NoSuchOption) or context.parent is None:
        return f"{said}{' See' if said.endswith('?') else ': see'} {context.command_path} --help"
    if assigned := re.search(r"unexpected extra arguments? \((\w+)=(\S+?)[ )]", said):
        said += f"; write --{assigned[1].replace('_', '-')} {assigned[2]}"
    lines = map(str.strip, (context.command.help or "").splitlines())
    example = next((x for x in lines if x.startswith(f"{context.command_path} ")), None)
    return f"{said}: {f'as in {example}' if example else f'see {context.command_path} --help'}"


def _began_with_ctrl_c(error: BaseException | None) -> bool:
    """Tell whether an error was raised while a KeyboardInterrupt was being handled."""
    # Where Ctrl-C falls into the import of a compiled module, that module raises an ImportError of
    # its own; the KeyboardInterrupt is then found along `__context__`.
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None
