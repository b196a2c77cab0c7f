"""The pages that --help prints: commands by what they are for, examples first, lists at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

Rows = Sequence[tuple[str, str]]


class Command(click.Command):
    """A command whose page shows examples before its options, and long lists after them.

    Args:
        examples: pairs (what it does, the line to type).
        details: as `click.Command` takes them.
    """

    def __init__(self, *names: Any, examples: Rows = (), **details: Any) -> None:
        super().__init__(*names, **details)
        self.examples = tuple(examples)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        write_examples(formatter, self.examples)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Arguments, parameters of kernels and options, each under its heading; then the lists."""
        sections: dict[str, list[tuple[str, str]]] = {}
        parameters = self.get_params(ctx)
        for parameter in sorted(parameters, key=lambda x: not isinstance(x, click.Argument)):
            if isinstance(parameter, click.Argument):
                heading, row = "Arguments", getattr(parameter, "row", None)
            else:
                heading = getattr(parameter, "heading", "Options")
                row = parameter.get_help_record(ctx)
            if row is not None:
                sections.setdefault(heading, []).append(row)
        for parameter in parameters:
            if isinstance(parameter, Listed):
                sections[parameter.list_heading] = list(parameter.read())
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows)

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Nothing: newer versions of click call it, and they stand above the options already."""


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


class ReadLater(click.Option):
    """An option whose line is read from the library, when the page is asked for."""

    def __init__(self, *declarations: Any, read: Callable[[], str], **details: Any) -> None:
        super().__init__(*declarations, **details)
        self._read = read

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        self.help = self._read()
        return super().get_help_record(ctx)


class Commands(click.Group):
    """All commands, by what they are for.

    Args:
        sections: heading -> its commands.
        examples: pairs (what it does, the line to type).
        details: as `click.Group` takes them.
    """

    def __init__(
        self,
        *names: Any,
        sections: dict[str, Sequence[click.Command]],
        examples: Rows = (),
        **details: Any,
    ) -> None:
        members = {str(x.name): x for section in sections.values() for x in section}
        super().__init__(*names, commands=members, **details)
        self.sections, self.examples = sections, tuple(examples)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the sections."""
        return list(self.commands)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help_text(ctx, formatter)
        write_examples(formatter, self.examples)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands, which are what one looks for; then the options."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A section for each purpose, all of one width."""
        widest = max(map(len, self.commands))
        for heading, members in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [
                        (str(x.name).ljust(widest), x.get_short_help_str(formatter.width))
                        for x in members
                    ]
                )


def write_examples(formatter: click.HelpFormatter, examples: Rows) -> None:
    """Lines to copy, which are never wrapped, each under what it does."""
    if not examples:
        return
    with formatter.section("Examples"):
        for about, line in examples:
            formatter.write_text(f"{about}:")
            formatter.write(f"{'':{formatter.current_indent}}  {line}\n")
