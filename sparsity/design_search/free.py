"""What may be free in a row: one record each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sparsity.errors import InputError
from sparsity.limit.long_rows import log_total
from sparsity.rows.row import Row
from sparsity.rows.steps import Alibi, Decay, ScalableSoftmax, SinkLogit, Window


@dataclass(frozen=True)
class Free:
    """A number of a row that can be solved for.

    Args:
        name: as in `free=`.
        field: the kernel's parameter or the step's field that it is.
        step: the kind of step; None for a parameter of the kernel.
        number: x -> the number, rising.
        ends: (row, n) -> the range of x that is looked at.
        whole: whether it is a whole number, x its logarithm.
    """

    name: str
    field: str
    step: type[Any] | None
    number: Callable[[float], float]
    ends: Callable[[Row, int], tuple[float, float]]
    whole: bool = False

    def place(self, row: Row) -> int | None:
        """The number of the step in the row; None for a parameter of the kernel.

        Raises:
            InputError: the row has no such number, or two of them.
        """
        if self.step is None:
            if self.field not in row.params:
                raise InputError("free", self.name, f"{row.kernel.name} has no {self.field}")
            return None
        found = [i for i, step in enumerate(row.steps) if isinstance(step, self.step)]
        if len(found) != 1:
            kind = self.step.__name__
            fix = f"the row has {len(found)} steps {kind}; give it one, with any number"
            raise InputError("free", self.name, fix)
        return found[0]

    def value(self, row: Row, x: float) -> float:
        """The number at x; a bias is counted in spreads."""
        if self.field == "beta":
            return row.gamma * self.number(x)
        return float(round(self.number(x))) if self.whole else self.number(x)

    def at(self, row: Row, value: float) -> Row:
        place = self.place(row)
        number = int(value) if self.whole else value
        if place is None:
            return row.replace(**{self.field: number})
        own: Any = row.steps[place]
        step = replace(own, **{self.field: number})
        steps = (*row.steps[:place], step, *row.steps[place + 1 :])
        return Row(row.kernel, steps=steps, **row.params)

    def without(self, row: Row) -> Row:
        place = self.place(row)
        steps = tuple(step for i, step in enumerate(row.steps) if i != place)
        return Row(row.kernel, steps=steps, **row.params)


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _log_range(low: float, high: float) -> Callable[[Row, int], tuple[float, float]]:
    return lambda row, n: (math.log(low), math.log(high))


def _about_tokens(row: Row, n: int) -> tuple[float, float]:
    """Logits that are felt: about the total of the tokens."""
    centre = log_total(LOGIT.without(row), n)
    return centre - 40.0, centre + 40.0


GAMMA = Free("gamma", "gamma", None, math.exp, _log_range(1e-3, 100.0))
BETA = Free("beta", "beta", None, math.sinh, lambda row, n: (-math.asinh(30), math.asinh(1e3)))
DECAY = Free("decay", "decay", Decay, _logistic, lambda row, n: (-8.0, math.log(n) + 5.0))
SLOPE = Free("slope", "slope", Alibi, math.exp, _log_range(1e-6, 30.0))
WINDOW = Free("window", "size", Window, math.exp, lambda row, n: (0.0, math.log(n)), whole=True)
SCALE = Free("scale", "scale", ScalableSoftmax, math.exp, _log_range(1e-3, 10.0))
LOGIT = Free("logit", "logit", SinkLogit, lambda x: x, _about_tokens)
_OWN_DECAY = Free("decay", "decay", None, _logistic, DECAY.ends)  # of the kernel `decayed`

ALL = (GAMMA, BETA, DECAY, SLOPE, WINDOW, SCALE, LOGIT)


def named(name: str, row: Row) -> Free:
    """What is free, by name.

    Raises:
        InputError: no such name, or the row has no such number.
    """
    names = [free.name for free in ALL]
    if name not in names:
        raise InputError("free", name, f"choose one of {', '.join(names)}")
    own = name == "decay" and "decay" in row.params
    free = _OWN_DECAY if own else ALL[names.index(name)]
    free.place(row)
    return free
