"""The numbers of a row that can be solved for, each in a coordinate that suits a search.

A number is a parameter of the kernel or a field of a step. The coordinate x is one in which the
quantity changes about as much everywhere: logarithms of scales, asinh of a bias (linear about 0, a
logarithm far out), and of a decay the log odds ln λ/(1 − λ), about the log of the tokens that are
remembered. A grid that is even in x then misses as little at one end of the range as at the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sparsity.errors import InputError
from sparsity.limit.long_rows import log_total
from sparsity.rows.row import Row
from sparsity.rows.steps import (
    Alibi,
    Decay,
    FloorLog,
    LogLength,
    ScalableSoftmax,
    ScaleInvariant,
    SinkLogit,
    Window,
    Yarn,
)


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

    def step_index(self, row: Row) -> int | None:
        """Return the index of the one such step in the row; None for a parameter of the kernel.

        Raises:
            InputError: the kernel has no such parameter.
        """
        if self.step is None:
            if self.field not in row.params:
                raise InputError("free", self.name, f"{row.kernel.name} has no {self.field}")
            return None
        (found,) = (i for i, step in enumerate(row.steps) if isinstance(step, self.step))
        return found

    def value(self, row: Row, x: float) -> float:
        """Return the number at x; a bias is counted in spreads."""
        if self.field == "beta":
            return row.gamma * self.number(x)
        return float(round(self.number(x))) if self.whole else self.number(x)

    def set_in(self, row: Row, value: float) -> Row:
        """Return the row with this number."""
        index = self.step_index(row)
        number = int(value) if self.whole else value
        if index is None:
            return row.replace(**{self.field: number})
        own: Any = row.steps[index]
        step = replace(own, **{self.field: number})
        steps = (*row.steps[:index], step, *row.steps[index + 1 :])
        return Row(row.kernel, steps=steps, **row.params)

    def without(self, row: Row) -> Row:
        """Return the row without the step that the number is of."""
        index = self.step_index(row)
        steps = tuple(step for i, step in enumerate(row.steps) if i != index)
        return Row(row.kernel, steps=steps, **row.params)


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _log_range(low: float, high: float) -> Callable[[Row, int], tuple[float, float]]:
    return lambda row, n: (math.log(low), math.log(high))


def _about_tokens(row: Row, n: int) -> tuple[float, float]:
    """Return the range of logits that matter: about the log of the total weight of the tokens."""
    # 40 below, the sink has e^(−40) of the mass, and 40 above it leaves as little.
    centre = log_total(LOGIT.without(row), n)
    return centre - 40.0, centre + 40.0


GAMMA = Free("gamma", "gamma", None, math.exp, _log_range(1e-3, 100.0))
# Beyond γ = 100 hardly more than the largest weight counts, at any length up to 10¹². A bias of −30
# spreads leaves no score above 0, and one of +1000 no difference between the weights.
BETA = Free("beta", "beta", None, math.sinh, lambda row, n: (-math.asinh(30), math.asinh(1e3)))
DECAY = Free("decay", "decay", Decay, _logistic, lambda row, n: (-8.0, math.log(n) + 5.0))
SLOPE = Free("slope", "slope", Alibi, math.exp, _log_range(1e-6, 30.0))
WINDOW = Free("window", "size", Window, math.exp, lambda row, n: (0.0, math.log(n)), whole=True)
SCALE = Free("scale", "scale", ScalableSoftmax, math.exp, _log_range(1e-3, 10.0))
LOGIT = Free("logit", "logit", SinkLogit, lambda x: x, _about_tokens)
_OWN_DECAY = Free("decay", "decay", None, _logistic, DECAY.ends)  # of the kernel `decayed`
# Of temperatures. Models ship a slope of 0.1; one of 10 multiplies the scores by tens.
FLOOR_SLOPE = Free("slope", "slope", FloorLog, math.exp, _log_range(1e-4, 10.0))
YARN_SLOPE = Free("slope", "slope", Yarn, math.exp, _log_range(1e-4, 10.0))
TRAINED = Free(
    *("trained", "trained", LogLength, math.exp),
    ends=lambda row, n: (math.log(2), math.log(max(n, 2))),
    whole=True,
)
DISTANCE_SCALE = Free("scale", "scale", ScaleInvariant, math.exp, _log_range(1e-2, 1e6))

ALL = (
    *(GAMMA, BETA, DECAY, SLOPE, WINDOW, SCALE, LOGIT),
    *(FLOOR_SLOPE, YARN_SLOPE, TRAINED, DISTANCE_SCALE),
)
NAMES = tuple(dict.fromkeys(free.name for free in ALL))  # several steps may have a slope


def free_number(name: str, row: Row) -> Free:
    """Return what is free, by name: of the steps that have such a number, that of the row's own.

    Raises:
        InputError: no such name, or the row has no such number, or two of them.
    """
    if name not in NAMES:
        raise InputError("free", name, f"choose one of {', '.join(NAMES)}")
    if name == "decay" and "decay" in row.params:
        return _OWN_DECAY
    named = [free for free in ALL if free.name == name]
    kinds = tuple(free.step for free in named if free.step is not None)
    if not kinds:
        (free,) = named
        free.step_index(row)
        return free
    own = [type(step) for step in row.steps if isinstance(step, kinds)]
    if len(own) != 1:
        said = " or ".join(kind.__name__ for kind in kinds)
        fix = f"the row has {len(own)} steps {said}; give it one, with any number"
        raise InputError("free", name, fix)
    return next(free for free in named if free.step is own[0])
