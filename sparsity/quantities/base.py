"""What a quantity is: its name, its definition on a concrete row, and the average that it means."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from sparsity.errors import RESOLVED, InputError
from sparsity.quantities.laws import (
    BelowLaw,
    Exceeds,
    Integral,
    KeysLaw,
    NeedleLaw,
    PairLaw,
    RankLaw,
)

_ROUNDING = 1e-14  # relative, of the ends that a value is held against; some 50 units of float64


class RowSums(NamedTuple):
    """What a concrete row of weights adds up to, up to a common factor on the weights.

    Args:
        count: n, the tokens of the row; a traced number where one program draws rows of any n.
        l1: Σ|a| over tokens.
        l2: Σa² over tokens.
        sink: Σ|a| over sink tokens, plus `unit`.
        unit: the weights e^b of sink logits, which are no tokens.
        weights: |a| of every token, the first one first, along the last axis; None unless a
            quantity asks for them.
        one: a weight of 1 over that common factor and over the gate of the row; None for weights
            that are shares, whose sum is 1.
        top: 1 where the key of the largest score is read, 0 where a map leaves it out.
        needle: |a| of the needle; None where there is none, as are the next two.
        others_l1: Σ|a| over the other tokens: a difference would lose digits.
        others_l2: Σa² over them.
        pair: the logarithms of |a| of every token in this row, and in another one of the same law
            whose scores correlate with these over keys; None unless the quantity is of a pair.
    """

    count: Any
    l1: Any
    l2: Any
    sink: Any
    unit: Any
    weights: Any = None
    one: Any = None
    top: Any = 1.0
    needle: Any = None
    others_l1: Any = None
    others_l2: Any = None
    pair: Any = None


class Means(NamedTuple):
    """What an exact law says of a quantity, by row length.

    Args:
        value: the mean over the rows that are not all zero.
        p_nonzero: P(the row is not all zero).
        error: the bound on the relative error of the value.
    """

    value: np.ndarray
    p_nonzero: np.ndarray
    error: np.ndarray


def clip_to_range(value: Any, error: Any, ends: Any) -> np.ndarray:
    """Return values; rounding may have taken some out of their range, and those move to its end.

    Args:
        value: of a mean over rows, any shape.
        error: bounds on the relative error, likewise.
        ends: the least and the largest value of a row, each likewise.

    Raises:
        InputError: a value is farther outside than its error bound, so that its law is wrong there.
    """
    least, most = np.asarray(ends, dtype=np.float64)
    inside = np.clip(value, least, most)
    wrong = np.abs(value - inside) > np.abs(value) * error + _ROUNDING * np.abs(inside)
    wrong &= error < RESOLVED  # what is not resolved may be anywhere, and is no answer
    if np.any(wrong):
        shown, low, high = (np.broadcast_to(x, wrong.shape)[wrong][0] for x in (value, least, most))
        fix = f"lies outside {low:.6g} to {high:.6g}, where it must be: a defect; use estimate"
        raise InputError("exact law", f"{shown:.12g}", fix)
    return inside


class LongRows(Protocol):
    """What limits of long rows are made of: sums over tokens that average themselves.

    Each answer is a value and a bound on its absolute error.
    """

    @property
    def n(self) -> float:
        """The length n; asking for it is an error where none was given."""
        ...

    def product(self, *sums: tuple[float, float], count: float = 0.0, total: float = 0.0,
                sinks: float = 0.0, needle: float = 0.0) -> tuple[float, float]:  # fmt: skip
        """Return Π (Σ|a|^order)^power, times powers of n, of all mass, and of the sinks' mass.

        `sums` are pairs (order, power). All mass is Σ|a| with the weights of sink logits. `needle`
        is the order p of a factor E|a|^p of the needle's weight.
        """
        ...

    def entropy(self) -> tuple[float, float]:
        """Return −Σ p ln p of p = |a| over all mass."""
        ...


@dataclass(frozen=True)
class Linear:
    """A quantity shift(n) + slope(n)·(another one), row by row: its law is that of the other one.

    Args:
        of: the other one.
        shift: of the length n, [lengths]; ∞ is the limit of long rows.
        slope: likewise.
    """

    of: Quantity
    shift: Callable[[Any], Any]
    slope: Callable[[Any], Any]

    def __call__(self, value: Any, n: Any) -> Any:
        """Return the value in rows of n, given that of the other one."""
        return self.shift(n) + self.slope(n) * value

    def means(self, means: Means, n: Any) -> Means:
        """Return the means over rows of n, given those of the other one."""
        value, p_row, error = means
        least, most = np.sort([self(end, n) for end in self._ends(n)], axis=0)
        image = self(value, n)
        with np.errstate(divide="ignore", invalid="ignore"):
            # The slope scales the error of the other one. The sum rounds like its shift, which
            # counts where the two cancel. Where the ends are equal the value is known.
            off = np.abs(self.slope(n) * value) * error + 4e-16 * np.abs(self.shift(n))
            relative = np.where((off == 0) | (least == most), 0.0, off / np.abs(image))
        return Means(np.clip(image, least, most), p_row, relative)  # its own ends hold `value`

    def _ends(self, n: Any) -> np.ndarray:
        ends = np.array([self.of.ends(m, self.of.units) for m in np.ravel(n).tolist()])
        return np.moveaxis(ends.reshape(*np.shape(n), 2), -1, 0)


@dataclass(frozen=True)
class Quantity:
    """One thing that can be asked of a row.

    Args:
        name: as in `of=`.
        symbol: as on axes and in tables.
        title: what it is, in words.
        average: the average that the name means over rows.
        of: RowSums -> the value of a concrete row, with plain operators (NumPy and JAX).
        unit: of its values.
        units: whether a row of sink logits alone has a value, with p = 0 for every key: it counts
            among the rows that are not all zero.
        integral: its exact law at finite n; None where none is known.
        needs: what the row must have, a "sink" or a "needle"; None for nothing.
        token: j of the token that it is about, counted from the first, which has the needle's place
            in the integral; None for others.
        limit: what it tends to in long rows, and a bound on the error of that; None where there is
            no such limit, or it is that of the quantity in `linear`.
        whole: whether its definition needs the weights one by one, not their sums alone.
        rank_law: what it is of the weights by their rank, for its exact law; None for others.
        linear: what it is of another quantity, for its exact law; None for others.
        above: what it is the chance to exceed; None for others.
        chance: whether it is 0 or 1 of a row, so that its mean is a share of the rows.
        needle_law: how it goes by the needle's rank or its signal; None for others.
        pair: of which two rows it is; None for what one row has.
        moment: p of a sum Σ|a|^p of weights as they are, whose mean is that of one weight, times n;
            None for others.
    """

    name: str
    symbol: str
    title: str
    average: str
    of: Callable[[RowSums], Any]
    unit: str = "1"
    units: bool = False
    integral: Integral | None = None
    needs: str | None = None
    token: int | None = None
    limit: Callable[[LongRows], tuple[float, float]] | None = None
    whole: bool = False
    rank_law: RankLaw | KeysLaw | BelowLaw | None = None
    linear: Linear | None = None
    above: Exceeds | None = None
    needle_law: NeedleLaw | None = None
    pair: PairLaw | None = None
    chance: bool = False
    moment: int | None = None

    def __repr__(self) -> str:
        return f"Quantity({self.name!r}: {self.title})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle by name where there is one.

        The functions of the record cannot be pickled, and caches know a record by its identity.
        """
        from sparsity import quantities

        try:
            known = quantities.named(self.name) is self
        except InputError:
            known = False
        return (quantities.named, (self.name,)) if known else super().__reduce_ex__(protocol)

    @property
    def has_limit(self) -> bool:
        """Whether it has a limit in long rows, for some rows at least."""
        return self.limit is not None or (self.linear is not None and self.linear.of.has_limit)

    @property
    def has_law(self) -> bool:
        """Whether it has an exact law at finite n, for some rows at least."""
        if self.linear is not None:
            return self.linear.of.has_law
        laws = (self.integral, self.rank_law, self.above, self.needle_law, self.pair, self.moment)
        return any(law is not None for law in laws)

    def ends(self, n: float, unit: bool = False) -> tuple[float, float]:
        """Return the least and the largest value in rows of n tokens, for a quantity with a law.

        Args:
            n: tokens of the row.
            unit: whether there may be weights beside the tokens, those of sink logits.
        """
        if self.linear is not None:
            first, last = (self.linear(end, n) for end in self.linear.of.ends(n, unit))
            return min(first, last), max(first, last)
        if self.above is not None or self.needle_law is not None:
            return 0.0, 1.0
        if self.pair is not None:
            return self.pair.ends(n)
        if self.rank_law is not None:
            least, most = self.rank_law.ends(n)
            return 0.0 if unit else least, most
        if self.moment is not None:
            return 0.0, math.inf
        assert self.integral is not None
        return self.integral.ends(n, n, unit)


@dataclass(frozen=True)
class Family:
    """Quantities that differ in a number or several, each asked for as "name:number,number".

    Args:
        name: before the colon.
        symbol: of the number; of several, with commas between.
        title: what they are, in words.
        domain: of the numbers, as printed in errors.
        admits: whether they are in it.
        member: the quantity of the numbers, given its name first.
        example: numbers, as they are typed, for which the tests try every instrument.
    """

    name: str
    symbol: str
    title: str
    domain: str
    admits: Callable[..., bool]
    member: Callable[..., Quantity]
    example: str

    @property
    def count(self) -> int:
        """How many numbers a member has."""
        return self.symbol.count(",") + 1

    def named(self, *numbers: float) -> Quantity:
        """Return the member that has these numbers, which must be in the domain."""
        shown = (f"{x:g}" if float(f"{x:g}") == x else repr(x) for x in numbers)
        return self.member(f"{self.name}:{','.join(shown)}", *numbers)
