"""The command `sparsity`. Exit 0: done; 1: a check disagreed; 2: bad input, one line on stderr.

With --json, stdout carries one JSON value and nothing else. Heavy imports happen inside commands.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import warnings
from contextlib import suppress

import click

import sparsity
from sparsity.cli import common, completion, pages
from sparsity.cli.ask import derive, eval_, exact, list_
from sparsity.cli.check import claims, verify
from sparsity.cli.inverse import design
from sparsity.cli.make import reproduce, sweep
from sparsity.cli.measuring import measure
from sparsity.cli.plot import plot
from sparsity.cli.sampling import estimate
from sparsity.errors import InputError, NoClosedForm

__all__ = ["cli", "main"]

_SECTIONS = {
    "Ask": (list_, derive, eval_, exact, estimate, design),
    "Check": (verify, claims),
    "Draw and explore": (plot, sweep),
    "Measure": (measure,),
    "Reproduce": (reproduce,),
    "Set up": (completion.completion,),
}
_EXAMPLES = (
    ("How sharply softmax focuses when its scores have spread 2", "sparsity eval exp --gamma 2"),
    ("How many of 4096 tokens it then attends to", "sparsity exact exp --gamma 2 --length 4096"),
    ("What a command does, with examples", "sparsity exact --help"),
)


@click.group(
    cls=pages.Commands,
    sections=_SECTIONS,
    examples=_EXAMPLES,
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
    """


def _complete(instruction: str) -> None:
    """Answer a shell: its script (bash_source) or the completions of a line (bash_complete)."""
    from click.shell_completion import shell_complete

    if shell_complete(cli, {}, "sparsity", completion.ASKED, instruction):
        fix = "give bash_source, zsh_source or fish_source"
        raise InputError(completion.ASKED, instruction, fix)


_ROOMY = 4 * 2**30  # bytes of addresses: whoever allows less may meet a lack of them anywhere
_SPARE = 4 * 2**20  # bytes
_BROKEN = 70  # an error that nobody foresaw: 1 would say that a check disagreed


def _open_streams() -> None:
    """Open onto nothing what was closed of stdin, stdout and stderr.

    The next file that is opened would else take its number, and what compiled code tells on stderr
    would be written into that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            place = os.open(os.devnull, os.O_RDWR)  # at the lowest free number, which is this
            os.set_inheritable(place, True)  # by workers
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def _lacking(error: Exception) -> str:
    """What to say of an error that nobody foresaw, where memory is limited; else nothing."""
    limit = common.memory_limit()
    if limit >= _ROOMY:
        return ""
    kind = type(error).__name__
    return f"memory is limited to {limit / 2**20:.0f} MiB and ran out ({kind}); allow more"


def _remember_ctrl_c() -> list[int]:
    """A list that is no longer empty once Ctrl-C was pressed, which raises as ever.

    Where it falls into the import of a compiled module, this raises an ImportError instead.
    """
    pressed: list[int] = []

    def press(number: int, frame: object) -> None:
        pressed.append(number)
        raise KeyboardInterrupt

    own = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if own and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, press)
    return pressed


_INTERRUPTED = "interrupted; nothing half-written is left"


def main() -> None:
    """Run the command; turn every foreseen error into one line and an exit code."""
    _open_streams()
    pressed = _remember_ctrl_c()
    if common.memory_limit() < _ROOMY:  # OpenBLAS reserves some for each of its threads
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    spare = bytearray(_SPARE)
    try:
        if os.environ.get(completion.ASKED):
            return _complete(os.environ[completion.ASKED])
        with warnings.catch_warnings():
            if not sys.warnoptions:  # python -W shows them all
                # NumPy's remarks on overflow are no answer; a number that fell to them is refused.
                warnings.simplefilter("ignore", RuntimeWarning)
            # Not cli.main: it would turn a closed pipe into exit code 1, which means disagreement.
            with cli.make_context("sparsity", sys.argv[1:], color=common.colourless()) as context:
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
        common.fail(f"{said}{' See' if said.endswith('?') else ': see'} {command} --help")
    except MemoryError as error:
        del spare  # in which the line is said
        common.fail(_lacking(error) or "not enough memory for these sizes: lower dim or length")
    except BrokenPipeError:  # the reader of a page of help has left
        common.discard(sys.stdout)
    except OSError as error:
        common.discard(sys.stdout)
        common.fail(f"cannot write the answer: {error}")
    except Exception as error:  # noqa: BLE001
        if pressed:
            common.fail(_INTERRUPTED, code=130)
        if said := _lacking(error):
            common.fail(said)
        with suppress(OSError):
            traceback.print_exc()
        sys.exit(_BROKEN)
