"""What the shell offers on Tab, and the first sentence that stands for a thing in a list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

Offer = Callable[[Any, Any, str], list[CompletionItem]]


def offer(read: Callable[[], dict[str, str]]) -> Offer:
    """Offer words with their meanings, which zsh and fish show, read when they are asked for."""
    return lambda context, parameter, typed: [
        CompletionItem(word, help=meaning or None)
        for word, meaning in read().items()
        if word.startswith(typed)
    ]


# The shell knows its files and folders.
offer_files, offer_folders = (click.Path(file_okay=x).shell_complete for x in (True, False))


@offer
def offer_kernels() -> dict[str, str]:
    """Offer the kernels and the maps of whole rows."""
    from sparsity import kernels

    words = [(word, k.title) for k in kernels.as_listed() for word in (*kernels.aliases(k), k.name)]
    return dict(words)


@offer
def offer_steps() -> dict[str, str]:
    """Offer the steps, with the colon that their numbers follow."""
    from sparsity.rows import steps

    return {f"{name}:": first_sentence(step) for name, step in steps.typed().items()}


@offer
def offer_claims() -> dict[str, str]:
    """Offer the keys of the claims."""
    from sparsity import claims_ledger

    return {claim.key: claim.statement for claim in claims_ledger.ALL}


@offer
def offer_quantities() -> dict[str, str]:
    """Offer the quantities."""
    from sparsity import quantities

    words = {q.name: q.title for q in (*quantities.ALL, *quantities.OF_MAPS)}
    return words | {f"{family.name}:": family.title for family in quantities.FAMILIES}


def first_sentence(record: Any) -> str:
    """Return the first line of a class's docstring, without its full stop."""
    return (record.__doc__ or "").strip().partition("\n")[0].rstrip(".")
