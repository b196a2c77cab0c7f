"""The steps along the sequence: each a short file, and the explicit tuple of all."""

from __future__ import annotations

import difflib
from dataclasses import fields
from typing import Any

from sparsity import arguments, reading
from sparsity.errors import InputError
from sparsity.rows import scores
from sparsity.rows.steps.alibi import Alibi
from sparsity.rows.steps.coca import Coca
from sparsity.rows.steps.decay import Decay
from sparsity.rows.steps.length_bias import LengthBias
from sparsity.rows.steps.qk_norm import QKNorm
from sparsity.rows.steps.rope import Rope
from sparsity.rows.steps.scalable_softmax import PUBLISHED_SCALE, ScalableSoftmax
from sparsity.rows.steps.sink import Sink
from sparsity.rows.steps.sink_logit import SinkLogit
from sparsity.rows.steps.window import Window
from sparsity.rows.tokens import Step

__all__ = [
    "ALL",
    "PUBLISHED_SCALE",
    "Alibi",
    "Coca",
    "Decay",
    "LengthBias",
    "QKNorm",
    "Rope",
    "ScalableSoftmax",
    "Sink",
    "SinkLogit",
    "Window",
    "parse",
]

ALL: tuple[type[Any], ...] = (
    Decay,
    Alibi,
    Window,
    ScalableSoftmax,
    LengthBias,
    SinkLogit,
    Sink,
    QKNorm,
    Rope,
    Coca,
)


def typed(steps: tuple[type[Any], ...] = ALL) -> dict[str, type[Any]]:
    """The steps that can be typed, by name: those whose fields are numbers."""
    return {step.name: step for step in steps if all(map(_is_number, step.example))}


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def parse(text: str, steps: tuple[type[Any], ...] = ALL) -> Step:
    """The step that a text writes: its name, a colon and its numbers, "sink:3,0.5".

    Args:
        text: as typed; or a law of scores, as `scores.parse` reads it.
        steps: the kinds of steps there are.

    Raises:
        InputError: an unknown name, or numbers that the step does not take.
    """
    arguments.text("step", text, f"write NAME:NUMBER, of {', '.join(typed(steps))}")
    if scores.known(text):
        return scores.parse(text)
    name, _, numbers = text.partition(":")
    known = typed(steps)
    if name.strip() not in known:
        near = difflib.get_close_matches(name.strip(), known, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InputError("step", text, f"{hint}the steps are {', '.join(known)}")
    given = [item for item in numbers.split(",") if item.strip()]
    values = [reading.parse_number(item, "step", f"write {name}:NUMBER[,NUMBER]") for item in given]
    values = [int(value) if value.is_integer() else value for value in values]
    try:
        return known[name.strip()](*values)
    except TypeError:
        takes = ", ".join(field.name for field in fields(known[name.strip()]))
        raise InputError("step", text, f"{name.strip()} takes {takes}") from None
    except InputError as error:
        raise InputError("step", text, f"{error.argument}: {error.fix}") from None
