"""The pages that --help prints, and what the shell offers on Tab.

A page shows what a command is for, examples, and options under their headings; at its end the lists
of steps and quantities. The examples are the end of the command's docstring: under "Examples:" a
line about each, then the line to type.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

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

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the command is for; then lines to copy, which are never wrapped."""
        super().format_help_text(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for about, line in self.examples:
                    formatter.write_text(f"{about}:")
                    formatter.write(f"{'':{formatter.current_indent}}  {line}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write arguments and options under their headings, and the long lists last."""
        parameters = self.get_params(ctx)
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], OfKernel.heading: []}
        for parameter in parameters:
            if isinstance(parameter, Argument):
                sections["Arguments"].append(parameter.row)
            elif row := parameter.get_help_record(ctx):
                sections.setdefault(getattr(parameter, "heading", "Options"), []).append(row)
        for parameter in parameters:
            if isinstance(parameter, Listed):
                sections[parameter.list_heading] = list(parameter.read())
        for heading, rows in sections.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

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
        for heading, members in self.sections.items():
            with formatter.section(heading):
                rows = [(str(x.name), x.get_short_help_str(formatter.width)) for x in members]
                formatter.write_dl(rows)
        click.Command.format_options(self, ctx, formatter)


class Argument(click.Argument):
    """An argument with a line about it on the page of its command."""

    def __init__(self, *declarations: Any, about: str, **details: Any) -> None:
        super().__init__(*declarations, **details)
        self.row = (details["metavar"].strip("[]"), about)


class OfKernel(click.Option):
    """An option for a parameter of a kernel."""

    heading = "Parameters of the kernel (`sparsity list` shows which it takes)"


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


def offer(read: Callable[[], dict[str, str]]) -> Offer:
    """Offer words with their meanings, which zsh and fish show, read when they are asked for."""
    return lambda context, parameter, typed: [
        CompletionItem(word, help=meaning or None)
        for word, meaning in read().items()
        if word.startswith(typed)
    ]


def offer_files(context: Any, parameter: Any, typed: str) -> list[CompletionItem]:
    """Offer files, which the shell knows."""
    return [CompletionItem(typed, type="file")]


def offer_folders(context: Any, parameter: Any, typed: str) -> list[CompletionItem]:
    """Offer folders, which the shell knows."""
    return [CompletionItem(typed, type="dir")]


@offer
def offer_kernels() -> dict[str, str]:
    """Offer the kernels and the maps of whole rows."""
    from sparsity import kernels

    return {each.name: each.title for each in (*kernels.known(), *kernels.MAPS)}


@offer
def offer_steps() -> dict[str, str]:
    """Offer the steps, with the colon that their numbers follow."""
    from sparsity.rows import steps

    return {f"{name}:": first_sentence(step) for name, step in steps.typed().items()}


@offer
def offer_quantities() -> dict[str, str]:
    """Offer the quantities."""
    from sparsity import quantities

    words = {each.name: each.title for each in (*quantities.ALL, *quantities.OF_MAPS)}
    return words | {f"{each.name}:": each.title for each in quantities.FAMILIES}


def first_sentence(record: Any) -> str:
    """Return the first line of a class's docstring, without its full stop."""
    return (record.__doc__ or "").strip().partition("\n")[0].rstrip(".")
