"""What the shell offers on Tab, and `completion`, which prints the script that makes it ask."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from sparsity.cli import pages
from sparsity.errors import InputError

ASKED = "_SPARSITY_COMPLETE"  # what a shell sets to ask for completions
SHELLS = ("bash", "zsh", "fish")

Offer = Callable[[Any, Any, str], list[CompletionItem]]


def _offered(words: dict[str, str], typed: str, before: str = "") -> list[CompletionItem]:
    """Those of the words that begin with what was typed; zsh and fish show their meaning too."""
    return [
        CompletionItem(before + word, help=meaning or None)
        for word, meaning in words.items()
        if word.startswith(typed)
    ]


def offering(*words: str) -> Offer:
    """Offer some of these words."""
    return lambda context, parameter, typed: _offered(dict.fromkeys(words, ""), typed)


def members(module: str) -> Offer:
    """Offer the names of a module's ALL, read when they are asked for."""

    def offer(context: Any, parameter: Any, typed: str) -> list[CompletionItem]:
        names = [each.name for each in importlib.import_module(module).ALL]
        return _offered(dict.fromkeys(names, ""), typed)

    return offer


def files(context: Any, parameter: Any, typed: str) -> list[CompletionItem]:
    """Offer files: the shell knows them."""
    return [CompletionItem(typed, type="file")]


def folders(context: Any, parameter: Any, typed: str) -> list[CompletionItem]:
    """Offer folders."""
    return [CompletionItem(typed, type="dir")]


def elementwise_names(context: Any, parameter: Any, typed: str) -> list[CompletionItem]:
    """Offer the kernels that are functions of one key."""
    from sparsity import kernels

    return _offered({each.name: each.title for each in kernels.known()}, typed)


def kernel_names(context: Any, parameter: Any, typed: str) -> list[CompletionItem]:
    """Offer the kernels and the maps of whole rows."""
    from sparsity import kernels

    return _offered({each.name: each.title for each in (*kernels.known(), *kernels.MAPS)}, typed)


def step_names(context: Any, parameter: Any, typed: str) -> list[CompletionItem]:
    """Offer the steps, with the colon that their numbers follow."""
    from sparsity.rows import steps

    return _offered({f"{name}:": about(step) for name, step in steps.typed().items()}, typed)


def quantity_names(context: Any, parameter: Any, typed: str) -> list[CompletionItem]:
    """Offer the quantities; of an option that takes a list, the last word of it."""
    from sparsity import quantities

    words = {each.name: each.title for each in (*quantities.ALL, *quantities.OF_MAPS)}
    words |= {f"{each.name}:": each.title for each in quantities.FAMILIES}
    comma = typed.rfind(",") + 1 if parameter.multiple else 0
    return _offered(words, typed[comma:], before=typed[:comma])


def about(record: Any) -> str:
    """The first sentence of what a class says of itself, without its full stop."""
    return (record.__doc__ or "").strip().partition("\n")[0].rstrip(".")


@click.command(
    cls=pages.Command,
    examples=(
        ("In bash, from the next shell on", "sparsity completion bash >> ~/.bashrc"),
        ("In zsh, the same", "sparsity completion zsh >> ~/.zshrc"),
        ("In fish", "sparsity completion fish > ~/.config/fish/completions/sparsity.fish"),
    ),
)
@click.argument(
    "shell",
    metavar="|".join(SHELLS),
    cls=pages.Argument,
    about="Your shell.",
    shell_complete=offering(*SHELLS),
)
def completion(shell: str) -> None:
    """Print the script that completes commands in your shell.

    With it, Tab completes commands, options, kernels, quantities, steps and files. The command
    sparsity must be on the PATH, as it is where its environment is activated.
    """
    if shell not in SHELLS:
        raise InputError("shell", shell, f"choose one of {', '.join(SHELLS)}")
    context = click.get_current_context().find_root()
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.command, {}, "sparsity", ASKED).source())
