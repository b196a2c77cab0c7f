"""Which modules a watch should see and cannot: refused beforehand, or found silent afterwards."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from sparsity.attention.checkpoints.checkpoint import library
from sparsity.attention.monitoring import interception
from sparsity.errors import InputError


def refuse_unseen(model: Any) -> None:
    """Refuse a model that a watch cannot see at all.

    Raises:
        InputError: a model of TorchScript, or of transformers with an attention of another name.
    """
    torch = library("torch", "torch")
    known = (None, "eager", *interception.INTERFACE)
    for part in model.modules():
        if isinstance(part, torch.jit.ScriptModule):
            fix = "is TorchScript, whose code cannot be watched; give the module it was made from"
            raise InputError("model", type(part).__name__, fix)
        name = getattr(getattr(part, "config", None), "_attn_implementation", None)
        if name not in known:
            fix = 'is not watched; call model.set_attn_implementation("sdpa") first'
            raise InputError("model", f"{type(part).__name__} with {name} attention", fix)


def is_attention(part: Any) -> bool:
    """Tell whether a module is named as attention, and projects its own queries and keys."""
    # Modules without parameters are those that only hold the function, inside one that projects.
    return "attention" in type(part).__name__.lower() and next(part.parameters(), None) is not None


def innermost_silent(ran: Set[str], known: Set[str], attentions: Set[str]) -> list[str]:
    """Return the paths of modules that ran and of which nothing is known, the innermost ones.

    Attention modules may stand inside each other, and either may make the call: one is silent only
    if nothing is known of it, of a part of it, or of an attention module around it.

    Args:
        ran: paths of the modules that should have made a call.
        known: paths of the modules that were seen, or have a reason why not.
        attentions: paths of the modules that are named as attention.
    """
    silent = {
        x
        for x in ran
        if not any(_is_within(y, x) or (_is_within(x, y) and y in attentions) for y in known)
    }
    return sorted(x for x in silent if not any(x != y and _is_within(y, x) for y in silent))


def _is_within(path: str, other: str) -> bool:
    """Return whether a module is another one or a part of it, by their paths."""
    return path == other or path.startswith(f"{other}.")
