"""What may be free in a row: one record each, and the exact law inverted in any of them.

A quantity is looked at on a grid of the free number; each crossing of the wanted value is solved.
The mass of a sink logit is solved for without a grid.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from sparsity.arguments import number
from sparsity.errors import InputError, TooRare
from sparsity.finite.exact import exact
from sparsity.inversion.sink_logit import sink_logit
from sparsity.quantities import Quantity, sink_mass
from sparsity.rows.row import Row
from sparsity.rows.steps import Alibi, Decay, ScalableSoftmax, SinkLogit, Window
from sparsity.theory.limit_form import log_total

_POINTS = 33  # of a grid
_NONE = -700.0  # the logarithm of what is about 0
_FLAT = 1e-11  # of a logarithm: differences below are rounding


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


class Scan(NamedTuple):
    """What a quantity can be, and where it is what is wanted.

    Args:
        values: the numbers that give the wanted value, ascending.
        low: the least value on the grid.
        high: the largest.
        first: the first number of the grid.
        last: the last one.
    """

    values: tuple[float, ...]
    low: float
    high: float
    first: float
    last: float


def scan(
    row: Row, free: Free, lengths: Sequence[int], quantity: Quantity, wanted: float
) -> list[Scan]:
    """Look at a quantity over the range of the free number, and solve for each crossing.

    Returns:
        What was found at each length.

    Raises:
        InputError: the row has no exact law anywhere on the grid of some length.
    """
    if free is LOGIT and quantity is sink_mass:
        return [_of_mass(free.without(row), n, wanted) for n in lengths]
    ranges = [free.ends(row, n) for n in lengths]
    seen = {}
    for ends in dict.fromkeys(ranges):  # lengths of one range are looked at together
        own = [n for n, range_ in zip(lengths, ranges, strict=True) if range_ == ends]
        seen |= _seen(row, free, own, ends, quantity)
    return [_crossings(row, free, n, quantity, wanted, *seen[n]) for n in lengths]


def _logs(row: Row, free: Free, x: float, lengths: Sequence[int], quantity: Quantity) -> Any:
    """The logarithm of the quantity at a free number, [lengths]."""
    try:
        found = exact(free.at(row, free.value(row, x)), length=np.array(lengths), of=quantity)
    except TooRare:
        if len(lengths) > 1:  # of one of them; each then speaks for itself
            raise
        return np.array([_NONE])
    return np.maximum(found.log_value, _NONE)


def _seen(
    row: Row, free: Free, lengths: Sequence[int], ends: tuple[float, float], quantity: Quantity
) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """The grid where there is a law, and its logarithms, by length."""
    grid = np.linspace(*ends, _POINTS)
    if free.whole:
        grid = np.log(np.unique(np.round(np.exp(grid))))
    found = np.full((len(grid), len(lengths)), np.nan)
    refusals: dict[int, InputError] = {}
    for i, x in enumerate(grid.tolist()):
        with contextlib.suppress(InputError):  # of one of them; each then speaks for itself
            found[i] = _logs(row, free, x, lengths, quantity)
            continue
        for j, n in enumerate(lengths):
            try:
                found[i, j] = _logs(row, free, x, [n], quantity)[0]
            except InputError as error:
                refusals.setdefault(n, error)
    known = np.isfinite(found)
    for j, n in enumerate(lengths):
        if not known[:, j].any():
            raise refusals[n]
    return {n: (grid[known[:, j]], found[known[:, j], j]) for j, n in enumerate(lengths)}


def _crossings(
    row: Row,
    free: Free,
    n: int,
    quantity: Quantity,
    wanted: float,
    grid: np.ndarray,
    seen: np.ndarray,
) -> Scan:
    """Where the quantity is what is wanted, from looks at it."""

    def excess(x: float) -> float:
        try:
            return float(_logs(row, free, x, [n], quantity)[0]) - math.log(wanted)
        except InputError:
            return math.nan

    off = seen - math.log(wanted)
    values = []
    for i in np.flatnonzero((off[1:] >= 0) != (off[:-1] >= 0)):
        if max(abs(off[i]), abs(off[i + 1])) > _FLAT:
            between = _nearest if free.whole else _root
            x = between(excess, float(grid[i]), float(grid[i + 1]))
            values.append(free.value(row, x))
    ends = free.value(row, float(grid[0])), free.value(row, float(grid[-1]))
    low, high = float(np.exp(seen.min())), float(np.exp(seen.max()))
    return Scan(tuple(values), low, high, *ends)


def _of_mass(row: Row, n: int, wanted: float) -> Scan:
    """It takes any share that all-zero rows and other sinks leave; its odds are solved."""
    number("sink_mass", wanted, "must be between 0 and 1", lambda x: 0 < x < 1)
    found: tuple[float, ...] = ()
    try:
        found = (float(sink_logit(wanted, row, length=n)),)
    except InputError as error:
        if error.argument != "mass":  # else it is out of reach
            raise
    taken = 0.0
    with contextlib.suppress(InputError):  # no other sink
        taken = float(exact(row, length=n, of=sink_mass).value)
    low = 1 - float(exact(row, length=n).p_nonzero) * (1 - taken)
    return Scan(found, low, 1.0, -math.inf, math.inf)


def _root(excess: Callable[[float], float], low: float, high: float) -> float:
    return float(brentq(excess, low, high, xtol=1e-13))  # type: ignore[arg-type]


def _nearest(excess: Callable[[float], float], low: float, high: float) -> float:
    """The logarithm of the whole number between two at which the excess is smallest."""
    first, last = round(math.exp(low)), round(math.exp(high))
    above = excess(low) >= 0
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (
            (middle, last) if (excess(math.log(middle)) >= 0) == above else (first, middle)
        )
    return min(math.log(first), math.log(last), key=lambda x: abs(excess(x)))
