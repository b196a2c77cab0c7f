"""What a quantity is: its name, its definition on a concrete row, and the average that it means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple


class RowSums(NamedTuple):
    """What a concrete row of weights adds up to, up to a common factor on the weights.

    Args:
        count: n, the tokens of the row.
        l1: Σ|a| over tokens.
        l2: Σa² over tokens.
        sink: Σ|a| over sink tokens, plus `unit`.
        unit: the weights e^b of sink logits, which are no tokens.
        weights: |a| of every token, along the last axis; None unless a quantity asks for them.
        one: the 1 that the weights of a row map are shares of; None for weights without.
    """

    count: Any
    l1: Any
    l2: Any
    sink: Any
    unit: Any
    weights: Any = None
    one: Any = None


class LogMoment(NamedTuple):
    """The moment E[x^order ln(x) e^(−x)], beside the plain one of the same order."""

    order: float


@dataclass(frozen=True)
class Integral:
    """The mean over rows as one integral, for tokens with independent weights.

    With x = t|a_j|^power, φ_j = E e^(−x) and m_j,k = E[x^k e^(−x)], u = ln t,
        mean = factor(n) ∫ combine(Σ_j g(m_j/φ_j), …) Π_j φ_j du / P(the row is not all zero).

    Args:
        power: of |a| in x.
        moments: the orders k; a `LogMoment` follows the plain one of its order.
        sums: pairs (g, whose): g of the ratios m_j,k/φ_j, summed over "token" or "sink".
        combine: of the scale that the sums are over, and the sums.
        units: whether sink logits stand in the product.
        factor: of n.
        slow: whether the integrand falls like √t only, towards t = 0.
        alone: the value, given n, of a row with a single token in sight and no unit beside it.
        least: the least value, given n.
        most: the largest value, given n and the tokens in sight.
        beyond: by how much the integral of the absolute value may exceed the integral.
    """

    power: int
    moments: tuple[float | LogMoment, ...]
    sums: tuple[tuple[Callable[..., Any], str], ...]
    combine: Callable[..., Any]
    units: bool
    alone: Callable[[float], float]
    least: Callable[[float], float]
    most: Callable[[float, float], float]
    factor: Callable[[float], float] = lambda n: 1.0
    slow: bool = False
    beyond: float = 0.0


@dataclass(frozen=True)
class Layers:
    """A quantity ∫ g(N(a)) da / Z of rows, N(a) how many weights are above a and Z their sum.

    Args:
        mean: E g(N) of N ~ Bin(n, q), given n and log(1 − q).
        keys: k, if g(N) is the same for all N ≥ k; 0 if there is no such k.
        least: the least value, given n.
        most: the largest value, given n: that of rows of at most max(k, 1) tokens.
    """

    mean: Callable[[float, Any], Any]
    keys: int
    least: Callable[[float], float]
    most: Callable[[float], float]


@dataclass(frozen=True)
class Quantity:
    """One thing that can be asked of a row.

    Args:
        name: as in `of=`.
        symbol: as on axes and in tables.
        title: what it is, in words.
        average: the average that the name means over rows.
        unit: of its values.
        of: RowSums -> the value of a concrete row, with plain operators (NumPy and JAX).
        units: whether a row of sink logits alone has a value.
        integral: its exact law at finite n; None where none is known.
        sinks: whether it needs a sink in the row.
        limit: whether it has a limit for long rows without sinks.
        whole: whether its definition needs the weights one by one, not their sums alone.
        layers: what it is of the number of weights above a, for its exact law; None for others.
    """

    name: str
    symbol: str
    title: str
    average: str
    unit: str
    of: Callable[[RowSums], Any]
    units: bool = False
    integral: Integral | None = None
    sinks: bool = False
    limit: bool = False
    whole: bool = False
    layers: Layers | None = None

    @property
    def has_law(self) -> bool:
        """Whether it has an exact law at finite n, for some rows at least."""
        return self.integral is not None or self.layers is not None

    def ends(self, n: float) -> tuple[float, float]:
        """The least and the largest value of rows of n tokens, of a quantity with an exact law."""
        if self.layers is not None:
            return self.layers.least(n), self.layers.most(n)
        assert self.integral is not None
        return self.integral.least(n), self.integral.most(n, n)


@dataclass(frozen=True)
class Family:
    """Quantities that differ in one number, each asked for as "name:number".

    Args:
        name: before the colon.
        symbol: of the number.
        title: what they are, in words.
        domain: of the number, as printed in errors.
        admits: whether a number is in it.
        member: the quantity of a number, given its name as well.
        example: a number for which the tests try every instrument.
    """

    name: str
    symbol: str
    title: str
    domain: str
    admits: Callable[[float], bool]
    member: Callable[[str, float], Quantity]
    example: float

    def named(self, number: float) -> Quantity:
        """The quantity of a number in the domain."""
        short = f"{number:g}"
        shown = short if float(short) == number else repr(number)
        return self.member(f"{self.name}:{shown}", number)
