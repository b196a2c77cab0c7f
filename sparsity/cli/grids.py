"""A grid that was given to a command of single values: the line to type instead."""

from __future__ import annotations

import shlex
from typing import Any

from sparsity.cli import common
from sparsity.errors import InputError

_ROWS = {"eval": "S,n_eff", "exact": "n_eff", "estimate": "S"}  # what each tells of rows of n


def refuse(
    verb: str, kernel: str, options: dict[str, Any], steps: tuple[str, ...], of: str | None
) -> None:
    """Refuse a grid among the parameters; a list of lengths is fine for `exact`.

    Args:
        verb: the command.
        kernel: as typed; likewise all that follow.
        options: the parameters, and what else was given.
        steps: with the law of the scores.
        of: the quantity.

    Raises:
        InputError: there is one; with the line of `sweep` that takes it.
    """
    typed = common.given({name: options[name] for name in common.PARAMETERS})
    for name, text in typed.items():
        listed = "," in text and not (verb == "exact" and name == "length")
        if ":" in text or listed:
            line = _sweep(verb, kernel, typed, steps, of, name)
            fix = f"for a grid type: {line}" if line else "give one"
            raise InputError(name, text, f"{verb} takes one value; {fix}")


def _sweep(
    verb: str,
    kernel: str,
    typed: dict[str, str],
    steps: tuple[str, ...],
    of: str | None,
    grid: str,
) -> str | None:
    """The same for `sweep`, to which a decay of scores is a step; None: it has no such grid."""
    from sparsity import kernels
    from sparsity.rows import scores

    own = {p.name for p in kernels.named(kernel).parameters}
    if grid not in own | {"length"} or (verb == "eval" and of not in (None, "S")):
        return None  # it takes neither grids of steps nor limits of other quantities
    if of is None and "length" in typed and "length" not in own:
        of = _ROWS[verb]
    if "decay" in typed and "decay" not in own:
        steps = (f"decay:{typed['decay']}", *steps)
    words = ["sparsity", "sweep", kernel]
    for name, text in typed.items():
        if name in own | {"length"}:
            words += [f"--{name.replace('_', '-')}", text]
    for step in steps:
        words += ["--scores" if scores.known(step) else "--step", step]
    words += [] if of is None else ["--of", of]
    words += ["--montecarlo"] if verb == "estimate" else []
    return shlex.join([*words, "--out", "sweep.nc"])
