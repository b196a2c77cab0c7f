"""The pages that --help prints, and what the shell offers on Tab.

A page shows what a command is for, examples, and the parameters and options that most people need;
--help-all also has the rare ones and, at the end, the long lists. The examples are the end of the
command's docstring: under "Examples:" a line about each, then the line to type.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    get_completion_class,
)

from sparsity.errors import InputError

ASKED_BY_SHELL = "_SPARSITY_COMPLETE"  # the variable in which a shell asks for completions
SHELLS = ("bash", "zsh", "fish")

Offer = Callable[[Any, Any, str], list[CompletionItem]]


class Command(click.Command):
    """A command whose page shows the examples of its docstring before its options."""

    # click wraps a docstring as prose. Lines to copy must stay whole, so that the examples are cut
    # off before click sees the text; tests type each of them in.
    def __init__(self, *names: Any, help: str | None = None, **details: Any) -> None:
        said, _, examples = inspect.cleandoc(help or "").partition("\n\nExamples:\n")
        super().__init__(*names, help=said, **details)
        lines = [line.strip().rstrip(":") for line in examples.splitlines() if line.strip()]
        self.examples = tuple(zip(lines[::2], lines[1::2], strict=True))  # (about, to type)
        named = {*re.findall(r"--[\w-]+", help or "")}
        self.rare = [each for each in self.params if is_rare(each) and not named & {*each.opts}]
        if self.rare:
            self.params.append(_HELP_ALL)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the command is for; then lines to copy, which are never wrapped."""
        super().format_help_text(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for about, line in self.examples:
                    formatter.write_text(f"{about}:")
                    formatter.write(f"{'':{formatter.current_indent}}  {line}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write arguments, parameters of kernels and options under their headings; then lists.

        Rare options and the lists stand on the whole page alone, which the short one names; an
        option that the text or an example above has is not rare.
        """
        sections: dict[str, list[tuple[str, str]]] = {}
        whole = bool(ctx.meta.get(_WHOLE))
        parameters = [each for each in self.get_params(ctx) if whole or each not in self.rare]
        # A section stands where its first row came from: arguments are put first, and the long
        # lists of steps and quantities last, where they push nothing out of sight.
        for parameter in sorted(parameters, key=lambda x: not isinstance(x, click.Argument)):
            if isinstance(parameter, click.Argument):
                heading, row = "Arguments", getattr(parameter, "row", None)
            else:
                heading = getattr(parameter, "heading", "Options")
                row = parameter.get_help_record(ctx)
            if row is not None:
                sections.setdefault(heading, []).append(row)
        lists = [each for each in parameters if isinstance(each, Listed)]
        for parameter in lists if whole else ():
            sections[parameter.list_heading] = list(parameter.read())
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows)
        if self.rare and not whole:
            left = [f"{len(self.rare)} more options", *(x.list_heading.lower() for x in lists)]
            said = " and ".join(filter(None, [", ".join(left[:-1]), left[-1]]))
            formatter.write_paragraph()
            formatter.write_text(f"{ctx.command_path} --help-all also has {said}.")

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write nothing: newer versions of click call it, and they stand above the options."""


class Commands(Command, click.Group):
    """All commands, by what they are for.

    Args:
        sections: heading -> its commands.
        details: as `click.Group` takes them.
    """

    def __init__(
        self, *names: Any, sections: dict[str, Sequence[click.Command]], **details: Any
    ) -> None:
        # The commands of the group are those of its sections: none can be left off the page.
        members = {str(x.name): x for section in sections.values() for x in section}
        super().__init__(*names, commands=members, **details)
        self.sections = sections

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the sections."""
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, which are what one looks for; then the options."""
        # click sets each section's second column by its own longest name: padded to the longest of
        # all, the columns stand below each other.
        widest = max(map(len, self.commands))
        for heading, members in self.sections.items():
            about = [(str(x.name), x.get_short_help_str(formatter.width)) for x in members]
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(widest), said) for name, said in about])
        click.Command.format_options(self, ctx, formatter)


class Argument(click.Argument):
    """An argument with a line about it on the page of its command."""

    def __init__(self, *declarations: Any, about: str, **details: Any) -> None:
        super().__init__(*declarations, **details)
        self.row = (details["metavar"].strip("[]"), about)


class Rare(click.Option):
    """An option that few people need: on the whole page alone."""


_OFTEN = ("beta", "gamma", "length")  # what most kernels and their rows take


class OfKernel(click.Option):
    """An option for a parameter of a kernel; those of a few kernels are rare."""

    heading = "Parameters of the kernel (`sparsity list` shows which it takes)"


def is_rare(parameter: click.Parameter) -> bool:
    """Tell whether a parameter of a command stands on the whole page alone."""
    if isinstance(parameter, OfKernel):
        return parameter.name not in _OFTEN
    return isinstance(parameter, Rare)


_WHOLE = "sparsity.whole_page"  # where a context says that all of the page was asked for


def _show_all(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    """Print the whole page and end the command, as --help does with the short one."""
    if asked and not context.resilient_parsing:
        context.meta[_WHOLE] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


_HELP_ALL = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show every option, step and quantity and exit.",
)


class Listed(click.Option):
    """An option with a list of what it takes, read from the library when the page is asked for."""

    def __init__(
        self,
        *declarations: Any,
        list_heading: str,
        read: Callable[[], Iterable[tuple[str, str]]],
        **details: Any,
    ) -> None:
        super().__init__(*declarations, **details)
        self.list_heading, self.read = list_heading, read


class ReadLater(click.Option):
    """An option whose line is read from the library, when the page is asked for."""

    # The library knows the words, and importing it takes longer than all else that --help does.
    def __init__(self, *declarations: Any, read: Callable[[], str], **details: Any) -> None:
        super().__init__(*declarations, **details)
        self._read = read

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        self.help = self._read()
        return super().get_help_record(ctx)


def _matching(words: dict[str, str], typed: str, before: str = "") -> list[CompletionItem]:
    """Return the words that begin with what was typed; zsh and fish show their meaning too."""
    return [
        CompletionItem(before + word, help=meaning or None)
        for word, meaning in words.items()
        if word.startswith(typed)
    ]


def offer(read: Callable[[], dict[str, str]]) -> Offer:
    """Offer words with their meanings, read when they are asked for."""
    return lambda context, parameter, typed: _matching(read(), typed)


def offer_words(*words: str) -> Offer:
    """Offer some of these words."""
    return offer(lambda: dict.fromkeys(words, ""))


def offer_files(context: Any, parameter: Any, typed: str) -> list[CompletionItem]:
    """Offer files, which the shell knows."""
    return [CompletionItem(typed, type="file")]


def offer_folders(context: Any, parameter: Any, typed: str) -> list[CompletionItem]:
    """Offer folders, which the shell knows."""
    return [CompletionItem(typed, type="dir")]


@offer
def offer_elementwise() -> dict[str, str]:
    """Offer the kernels that are functions of one key."""
    from sparsity import kernels

    return {each.name: each.title for each in kernels.known()}


@offer
def offer_kernels() -> dict[str, str]:
    """Offer the kernels and the maps of whole rows."""
    from sparsity import kernels

    return {each.name: each.title for each in (*kernels.known(), *kernels.MAPS)}


@offer
def offer_steps() -> dict[str, str]:
    """Offer the steps, with the colon that their numbers follow, and the rules of models."""
    from sparsity.rows import steps
    from sparsity.rows.steps import temperature

    found = {f"{name}:": first_sentence(step) for name, step in steps.typed().items()}
    return found | {f"temperature:{rule}": said for rule, said in temperature.described().items()}


def offer_axes(context: Any, parameter: Any, typed: str) -> list[CompletionItem]:
    """Offer what can be along the x-axis: what the kernels and steps that were typed take."""
    from sparsity import kernels
    from sparsity.plots.requests import names_on_axis
    from sparsity.rows.steps import parse

    words: dict[str, str] = {}
    with suppress(InputError):
        steps = [parse(step) for step in context.params.get("steps") or ()]
        # click leaves the arguments unread where the last option has no value yet.
        for name in context.args or [each.name for each in kernels.known()]:
            words |= dict.fromkeys(names_on_axis(kernels.named(name), steps), "")
    return _matching(words, typed)


def offer_quantities(context: Any, parameter: Any, typed: str) -> list[CompletionItem]:
    """Offer the quantities; of an option that takes a list, for the last word of it."""
    from sparsity import quantities

    words = {each.name: each.title for each in (*quantities.ALL, *quantities.OF_MAPS)}
    words |= {f"{each.name}:": each.title for each in quantities.FAMILIES}
    # The shell replaces the whole word that was typed, "n_eff,ent", by what is offered: the part
    # before the last comma is put in front of each.
    comma = typed.rfind(",") + 1 if parameter.multiple else 0
    return _matching(words, typed[comma:], before=typed[:comma])


class BashWords(BashComplete):
    """Bash, whose words end at a colon too: to it "topk:8" is three of them."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one to complete, and that one, each with its colons."""
        args, incomplete = super().get_completion_args()
        found: list[str] = []
        for word in (*args, incomplete):
            after = bool(found) and found[-1].endswith(":") and not word.startswith("--")
            if found and (after or word == ":"):
                found[-1] += word
            else:
                found.append(word)
        # Bash replaces what follows the last colon; where it has left the colons in the word, all.
        self._kept = "" if found[-1] == incomplete else found[-1][: found[-1].rfind(":") + 1]
        return found[:-1], found[-1]

    def format_completion(self, item: CompletionItem) -> str:
        """Return the type and value of a completion, without what bash keeps."""
        return f"{item.type},{str(item.value).removeprefix(self._kept)}"


def first_sentence(record: Any) -> str:
    """Return the first line of a class's docstring, without its full stop."""
    return (record.__doc__ or "").strip().partition("\n")[0].rstrip(".")


@click.command(cls=Command)
@click.argument(
    "shell",
    metavar="|".join(SHELLS),
    cls=Argument,
    about="Your shell.",
    shell_complete=offer_words(*SHELLS),
)
def completion(shell: str) -> None:
    """Print the script that completes commands in your shell.

    With it, Tab completes commands, options, kernels, quantities, steps and files. The command
    sparsity must be on the PATH, as it is where its environment is activated.

    Examples:
        In bash, from the next shell on:
            sparsity completion bash >> ~/.bashrc
        In zsh, the same:
            sparsity completion zsh >> ~/.zshrc
        In fish:
            sparsity completion fish > ~/.config/fish/completions/sparsity.fish
    """
    if shell not in SHELLS:
        raise InputError("shell", shell, f"choose one of {', '.join(SHELLS)}")
    context = click.get_current_context().find_root()
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.command, {}, "sparsity", ASKED_BY_SHELL).source())
