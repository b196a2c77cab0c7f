"""What can be plotted: each quantity with the axis that its record asks for.

S, its logarithm and n_eff are three views of one number, the n_eff of rows or n·S² of long ones;
`S_n` is the mean of the S of one row.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from sparsity import quantities
from sparsity.errors import InputError
from sparsity.output import power_of_ten
from sparsity.quantities import FAMILIES, Quantity

_LONGEST = 64  # characters of a name


class Scale(NamedTuple):
    """A vertical axis.

    Args:
        low: its lower end.
        high: its upper end.
        log: whether equal heights are equal ratios.
        ticks: the values that are named, with their labels.
    """

    low: float
    high: float
    log: bool
    ticks: list[tuple[float, str]]

    def place(self, value: Any) -> np.ndarray:
        """Return the height: 0 at the lower end, 1 at the upper one, kept within [−1, 2]."""
        value = np.asarray(value, dtype=np.float64)
        if self.log:
            with np.errstate(divide="ignore"):
                height = np.log(value / self.low) / math.log(self.high / self.low)
        else:
            height = (value - self.low) / (self.high - self.low)
        return np.clip(height, -1.0, 2.0)  # far off the chart, but a number that a page can draw


def _linear(high: float, steps: int) -> Scale:
    ticks = [(k * high / steps, f"{k * high / steps:.2g}") for k in range(steps + 1)]
    return Scale(0.0, high, False, ticks)


def _powers(low: int, high: int) -> Scale:
    """Return a logarithmic axis between two powers of ten."""
    named = range(low, high + 1, 1 if high - low < 8 else 2)
    ticks = [(10.0**k, power_of_ten(k) if k else "1") for k in named]
    return Scale(10.0**low, 10.0**high, True, ticks)


def _scale(quantity: Quantity, decades: int) -> Scale:
    """Return the axis of a quantity, for rows of up to 10^decades tokens."""
    if quantity.unit == "tokens":
        return _powers(0, decades)
    if quantity.unit == "nat":
        return _linear(14.0 * decades / 6, 7)  # ln 10⁶ = 13.8
    if quantity.unit == "nat²":
        return _powers(-2, 2)
    if quantity.moment is not None:
        return _powers(-2, decades + 2)
    if quantity in quantities.OF_MAPS:
        return _linear(2.0, 4)  # 1 + 1: one-hot, of both signs
    most = quantity.ends(10.0**decades)[1] if quantity.has_law else 1.0
    return _linear(1.0, 5) if most <= 1 else _powers(0, math.ceil(math.log10(most)))


# Ways from the quantity that is computed to the number that is shown, (value, n) -> number.
def _same(value: Any, n: Any) -> Any:
    return value


def _root(value: Any, n: Any) -> Any:
    return np.sqrt(value / n)


class Column(NamedTuple):
    """A number beside the chart.

    Args:
        of: its name.
        title: the head of its column.
        short: as it is spoken.
        exact: whether it is of rows of n, not of long ones.
        shown: (value of the quantity computed, n) -> the number.
    """

    of: str
    title: str
    short: str
    exact: bool
    shown: Callable[[Any, Any], Any]


_FOCUS = (
    Column("S", "S, long rows", "S", False, _root),
    Column("S_rms", "√(n_eff/n), rows of n", "√(n_eff/n)", True, _root),
    Column("n_eff", "n_eff", "n_eff", True, _same),
)


@dataclass(frozen=True)
class Plot:
    """A choice of the y-axis.

    Args:
        name: as it is chosen: "S", "log S", or as in `of=`.
        title: as offered.
        label: along the axis.
        of: the quantity that is computed.
        scale: (decades of n) -> the axis.
        columns: the numbers beside the chart.
        shown: (value of `of`, n) -> the number that is drawn.
        long: what the number that is drawn is called in long rows.
        drawn: what it is called in rows of n.
        one: the value of `of` in a row with a single weight, where a line is drawn for it.
    """

    name: str
    title: str
    label: str
    of: Quantity
    scale: Callable[[int], Scale]
    columns: tuple[Column, ...]
    shown: Callable[[Any, Any], Any]
    long: str
    drawn: str
    one: float | None = None

    @property
    def power(self) -> float:
        """The power of the value that is drawn, by which its relative error is multiplied."""
        return 0.5 if self.shown is _root else 1.0


def _focus(name: str, title: str, scale: Callable[[int], Scale]) -> Plot:
    label, of = "sparsity  S  (small = focused)", quantities.n_eff
    return Plot(name, title, label, of, scale, _FOCUS, _root, "S", "√(n_eff/n)", 1.0)


_VIEWS = (
    _focus("S", "S", lambda decades: _linear(1.0, 5)),
    _focus("log S", "S, logarithmic", lambda decades: _powers(-(decades // 2 + 1), 0)),
    Plot(
        *("n_eff", "effective tokens n_eff", "effective tokens  n_eff", quantities.n_eff),
        *(lambda decades: _powers(0, decades), _FOCUS, _same, "n·S²", "n_eff", 1.0),
    ),
)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _of(quantity: Quantity, symbol: str) -> Plot:
    """Return the plot of a quantity as it is."""
    columns = (
        Column("limit", f"{symbol}, long rows", symbol, False, _same),
        Column("exact", f"{symbol}, rows of n", symbol, True, _same),
    )
    unit = {"1": "", "nat": " in nats"}.get(quantity.unit, f" in {quantity.unit}")
    # A member of a family has its numbers in its symbol, and a symbol that is the name says it all.
    plain = ":" not in quantity.name and _words(quantity.name) != symbol
    label = (f"{_words(quantity.name)}  {symbol}" if plain else symbol) + unit
    one = 1.0 if quantity.unit == "tokens" else None
    scale = functools.partial(_scale, quantity)
    of = (quantity.name, quantity.title, label, quantity)
    return Plot(*of, scale, columns, _same, symbol, symbol, one)


_VIEWS += (
    replace(
        _of(quantities.S, "E S_n"),
        name="S_n",
        title="S of a row of n, the mean over rows",
        label="S of a row  E S_n  (small = focused)",
    ),
)


@functools.lru_cache(maxsize=256)
def named(name: str) -> Plot:
    """Return the plot of that name; a family without its number has that of its example.

    Raises:
        InputError: no such quantity, or a number outside the domain of its family.
    """
    # Views first: "S" is a view of n_eff here, not the quantity S, which is "S_n".
    for view in _VIEWS:
        if view.name == name:
            return view
    family = next((member for member in FAMILIES if member.name == name), None)
    try:
        quantity = quantities.named(name if family is None else f"{name}:{family.example}")
    except InputError as error:
        raise InputError("y", str(error.value)[:_LONGEST], error.fix) from None
    return _of(quantity, quantity.symbol)


def offered() -> list[tuple[str, str, str]]:
    """Return (name, words, title) of every choice; a family stands under its own name."""
    seen = [view.of.name for view in _VIEWS]
    every = [q for q in (*quantities.ALL, *quantities.OF_MAPS) if q.name not in seen]
    views = [(view.name, view.title, view.title) for view in _VIEWS]
    plain = [(quantity.name, _words(quantity.name), quantity.title) for quantity in every]
    return [
        *views,
        *plain,
        *(
            (family.name, f"{_words(family.name)}, {family.symbol}", family.title)
            for family in FAMILIES
        ),
    ]


def argument(name: str) -> dict[str, str] | None:
    """Return what the number of a plot is, if it has one: its text, symbol, meaning and domain."""
    family, _, text = name.partition(":")
    for member in FAMILIES:
        if member.name == family:
            said = {"meaning": member.title, "domain": member.domain}
            return {"text": text, "symbol": member.symbol, **said}
    return None
