"""The steps along the sequence: each a short record, and the explicit tuple of all."""

from __future__ import annotations

import inspect
from typing import Any

from sparsity import checks, parsing
from sparsity.calls import did_you_mean
from sparsity.errors import InputError
from sparsity.rows import score_laws
from sparsity.rows.steps import temperature
from sparsity.rows.steps.bounded import QKNorm, SoftCap
from sparsity.rows.steps.distance import Alibi, Chunk, Decay, Window
from sparsity.rows.steps.marked import Gate, Needle, NeedleAbove, Sink, SinkLogit
from sparsity.rows.steps.rope_and_coca import Coca, Rope
from sparsity.rows.steps.temperature import (
    FloorLog,
    LengthBias,
    LogLength,
    LongRope,
    ScalableSoftmax,
    ScaleInvariant,
    Yarn,
)
from sparsity.rows.steps.temperature import Temperature as Temperature
from sparsity.rows.tokens import Step

ALL: tuple[type[Any], ...] = (
    *(Decay, Alibi, Window, Chunk),
    *(ScalableSoftmax, FloorLog, LogLength, Yarn, LongRope, ScaleInvariant, LengthBias),
    *(SoftCap, SinkLogit, Sink, Needle, NeedleAbove, Gate, QKNorm, Rope, Coca),
)


def typed(steps: tuple[type[Any], ...] = ALL) -> dict[str, type[Any]]:
    """Return the steps that can be typed, by name: those whose fields are numbers."""
    return {
        step.name: step
        for step in steps
        if all(isinstance(value, (int, float)) for value in step.example)
    }


def spelled(step: Any, name: str = "") -> str:
    """Return how a step, or a rule that makes one, is typed: "alibi:SLOPE", "window:SIZE[,KEEP]".

    Args:
        step: its class, or a function.
        name: what it is typed as; that of the class is its own.
    """
    numbers = inspect.signature(step).parameters.values()
    needed = [x.name.upper() for x in numbers if x.default is x.empty]
    other = [x.name.upper() for x in numbers if x.default is not x.empty]
    first = ":" if not name else ","  # the name of a rule is itself behind a colon
    inner = f"[{',' if needed else first}{','.join(other)}]" if other else ""
    return f"{name or step.name}{first if needed else ''}{','.join(needed)}{inner}"


def parse(text: str, steps: tuple[type[Any], ...] = ALL) -> Step:
    """Return the step that a text writes: its name, a colon and its numbers, "sink:3,0.5".

    Args:
        text: as typed; or a law of scores, as `score_laws.parse` reads it.
        steps: the kinds of steps there are.

    Raises:
        InputError: an unknown name, or numbers that the step does not take.
    """
    checks.check_text("step", text, f"write NAME:NUMBER, of {', '.join(typed(steps))}")
    if score_laws.known(text):
        return score_laws.parse(text)
    name, _, numbers = text.partition(":")
    known = typed(steps)
    if name.strip() == "temperature":
        return _temperature(text, numbers)
    if of_vectors := [step for step in steps if step.name == name.strip() not in known]:
        fix = (
            f"takes vectors of the query and the keys: sparsity.{of_vectors[0].__name__} in Python"
        )
        raise InputError("step", text, fix)
    if name.strip() not in known:
        hint = did_you_mean(name.strip(), known)
        every = ", ".join([*known, "temperature:RULE"])
        raise InputError("step", text, f"{hint}write NAME:NUMBER; the steps are {every}")
    values = _numbers(numbers.split(","), f"write {name}:NUMBER[,NUMBER]")
    try:
        return known[name.strip()](*values)
    except TypeError:
        step = known[name.strip()]
        example = f"{step.name}:{','.join(map(str, step.example))}"
        raise InputError("step", text, f"write {spelled(step)}, such as {example}") from None
    except InputError as error:
        raise InputError("step", text, f"{error.argument}: {error.fix}") from None


def _numbers(items: list[str], fix: str) -> list[float]:
    """Return the numbers that items write, whole ones as integers."""
    values = [parsing.parse_number(item, "step", fix) for item in items if item.strip()]
    return [int(value) if value.is_integer() else value for value in values]


def _temperature(text: str, rest: str) -> Step:
    """Return the rule of a model: "temperature:llama4", "temperature:yarn,16"."""
    rule, *items = rest.replace(":", ",").split(",")
    try:
        return temperature.named(rule, _numbers(items, "write temperature:RULE[,NUMBER]"))
    except InputError as error:
        if error.argument == "step":
            raise
        raise InputError("step", text, error.fix) from None
