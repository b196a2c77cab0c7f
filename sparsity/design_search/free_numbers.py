"""The numbers of a row that can be free in `design`: each a record, and the explicit tuple of all.

A number is looked at in a coordinate x in which the quantity changes about as much everywhere:
logarithms of scales, asinh of a bias (linear about 0, a logarithm far out), and of a decay the log
odds ln λ/(1 − λ), about the log of the tokens that are remembered.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsity import quantities
from sparsity.errors import InputError
from sparsity.kernels import Kernel
from sparsity.kernels.formulas import symmetry
from sparsity.limit.long_rows import log_total
from sparsity.quantities import BelowLaw, Quantity
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

GRID_POINTS = 17  # of the range; an exact law each


@dataclass(frozen=True)
class FreeNumber:
    """A number of a row that can be solved for: a parameter of its kernel or a field of a step.

    Args:
        name: as in `free=`.
        field: the kernel's parameter or the step's field that it is.
        step: the kind of step; None for a parameter of the kernel.
        number: x -> the number, rising or falling.
        ends: (row, n) -> the range of x that is looked at.
        whole: whether it is a whole number, x its logarithm.
        looks: points of the grid.
    """

    name: str
    field: str
    step: type[Any] | None
    number: Callable[[float], float]
    ends: Callable[[Row, int], tuple[float, float]]
    whole: bool = False
    looks: int = GRID_POINTS

    def step_index(self, row: Row) -> int | None:
        """Return the index of the one such step in the row; None for a parameter of the kernel.

        Raises:
            InputError: the kernel has no such parameter.
        """
        if self.step is None:
            if self.field not in row.params:
                fix = f"{row.kernel.name} has no {self.field}"
                if row.length is not None:
                    fix = "each token has its own; free a number of a step"
                raise InputError("free", self.name, fix)
            return None
        (index,) = (i for i, step in enumerate(row.steps) if isinstance(step, self.step))
        return index

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
        step: Any = row.steps[index]
        steps = (*row.steps[:index], replace(step, **{self.field: number}), *row.steps[index + 1 :])
        return Row(row.kernel, steps=steps, **row.params)

    def without(self, row: Row) -> Row:
        """Return the row without the step that the number is of."""
        index = self.step_index(row)
        steps = tuple(step for i, step in enumerate(row.steps) if i != index)
        return Row(row.kernel, steps=steps, **row.params)

    def asked(self, quantity: Quantity, value: float) -> Quantity:
        """Return the quantity that is asked for at this number: the same, unless it has it."""
        return quantity

    def grid(self, ends: tuple[float, float]) -> np.ndarray:
        """Return where a range is looked at, ascending in x."""
        x = np.linspace(*ends, self.looks)
        return np.log(np.unique(np.round(np.exp(x)))) if self.whole else x


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _log_range(low: float, high: float) -> Callable[[Row, int], tuple[float, float]]:
    return lambda row, n: (math.log(low), math.log(high))


def _about_tokens(row: Row, n: int) -> tuple[float, float]:
    """Return the range of logits that matter: about the log of the total weight of the tokens."""
    # 40 below, the sink has e^(−40) of the mass, and 40 above it leaves as little.
    centre = log_total(LOGIT.without(row), n)
    return centre - 40.0, centre + 40.0


def _spreads(row: Row, n: int) -> tuple[float, float]:
    """Return the range of spreads; where f is a power only β/γ counts."""
    if _is_power(row):
        unit = max(1.0, abs(row.beta))
        return math.log(1e-3 * unit), math.log(1e3 * unit)
    # Beyond γ = 100 hardly more than the largest weight counts, at any length up to 10¹².
    return math.log(1e-3), math.log(100)


def _is_power(row: Row) -> bool:
    return not isinstance(row.kernel, Kernel) or symmetry(row.kernel.weight)[1] is not None


GAMMA = FreeNumber("gamma", "gamma", None, math.exp, _spreads)


def _biases(row: Row, n: int) -> tuple[float, float]:
    """Return the range of biases, in spreads."""
    # A bias of −30 spreads leaves no score above 0, and one of +1000 no difference between the
    # weights. Where f is no power the bias itself counts as well: sigmoid is e^(−30) at −30.
    least = 30 if _is_power(row) else max(30, 30 / row.gamma)
    return -math.asinh(least), math.asinh(1e3)


BETA = FreeNumber("beta", "beta", None, math.sinh, _biases)
DECAY = FreeNumber("decay", "decay", Decay, _logistic, lambda row, n: (-8.0, math.log(n) + 5.0))
SLOPE = FreeNumber("slope", "slope", Alibi, math.exp, _log_range(1e-6, 30.0))
WINDOW = FreeNumber(
    *("window", "size", Window, math.exp), ends=lambda row, n: (0.0, math.log(n)), whole=True
)
SCALE = FreeNumber("scale", "scale", ScalableSoftmax, math.exp, _log_range(1e-3, 3.0))
LOGIT = FreeNumber("logit", "logit", SinkLogit, lambda x: x, _about_tokens)
# The decay of the kernel `decayed`. At x = 40 it is 1.
_DECAY_OF_KERNEL = replace(DECAY, step=None, ends=lambda row, n: (-20.0, 40.0))
# Of temperatures. Models ship a slope of 0.1. Yarn's counts on q and on k.
FLOOR_SLOPE = FreeNumber("slope", "slope", FloorLog, math.exp, _log_range(1e-4, 10.0))
YARN_SLOPE = FreeNumber("slope", "slope", Yarn, math.exp, _log_range(1e-4, 2.0))
TRAINED = FreeNumber(
    *("trained", "trained", LogLength, math.exp),
    ends=lambda row, n: (math.log(2), math.log(max(n, 2))),
    whole=True,
)
# Every token has its own law, so that a look takes up to seconds; the curve is a slow one.
DISTANCE_SCALE = FreeNumber(
    *("scale", "scale", ScaleInvariant, math.exp, _log_range(0.1, 1e6)), looks=9
)


class _Threshold(FreeNumber):
    """The ln λ of what lies below a threshold: a number of the quantity, not of the row."""

    def step_index(self, row: Row) -> None:
        return None

    def set_in(self, row: Row, value: float) -> Row:
        return row

    def asked(self, quantity: Quantity, value: float) -> Quantity:
        if not isinstance(quantity.rank_law, BelowLaw):
            fix = "has no threshold; ask for below, mass_below, tiles_below or tiles_mass_below"
            raise InputError("of", quantity.name, fix)
        family, _, numbers = quantity.name.partition(":")
        _, comma, tile = numbers.partition(",")
        return quantities.named(f"{family}:{value!r}{comma}{tile}")


# Falling: what is dropped falls with x, and is not resolved only where nothing is, at its end.
THRESHOLD = _Threshold(
    *("threshold", "threshold", None, lambda x: -math.exp(x)),
    ends=lambda row, n: (math.log(1e-3), math.log(80.0)),
)

FREE_NUMBERS = (
    *(GAMMA, BETA, DECAY, SLOPE, WINDOW, SCALE, LOGIT),
    *(FLOOR_SLOPE, YARN_SLOPE, TRAINED, DISTANCE_SCALE, THRESHOLD),
)
NAMES = tuple(dict.fromkeys(free.name for free in FREE_NUMBERS))  # several steps may have a slope


def free_number(name: str, row: Row) -> FreeNumber:
    """Return what is free, by name: of the steps that have such a number, that of the row's own.

    Raises:
        InputError: no such name, or the row has no such number, or two of them.
    """
    if name not in NAMES:
        raise InputError("free", name, f"choose one of {', '.join(NAMES)}")
    if name == "decay" and "decay" in row.params:
        return _DECAY_OF_KERNEL
    named = [free for free in FREE_NUMBERS if free.name == name]
    kinds = tuple(free.step for free in named if free.step is not None)
    if not kinds:
        (free,) = named
        free.step_index(row)
        return free
    matching = [type(step) for step in row.steps if isinstance(step, kinds)]
    if len(matching) != 1:
        said = " or ".join(kind.__name__ for kind in kinds)
        fix = f"the row has {len(matching)} steps {said}; give it one, with any number"
        raise InputError("free", name, fix)
    return next(free for free in named if free.step is matching[0])
