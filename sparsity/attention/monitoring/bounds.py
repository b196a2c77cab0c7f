"""What a penalty asks of rows: one definition for JAX and PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparsity.arguments import choice, number
from sparsity.errors import InputError


@dataclass(frozen=True)
class Bounds:
    """Between which rows cost nothing.

    Args:
        of: "n_eff" or "gamma".
        low: the least; None for no such bound.
        high: the most.
    """

    of: str
    low: float | None
    high: float | None

    def __post_init__(self) -> None:
        """Check them.

        Raises:
            InputError: another `of`, no bound, `low` above `high` or out of range.
        """
        choice("of", self.of, ("n_eff", "gamma"))
        if self.low is None and self.high is None:
            raise InputError("low and high", "None", "give at least one of them")
        least = 1.0 if self.of == "n_eff" else 0.0
        for name, value in (("low", self.low), ("high", self.high)):
            if value is not None:
                fix = f"give a finite number >= {least:g}"
                number(name, value, fix, lambda x: x >= least)
        if None not in (self.low, self.high) and self.low > self.high:  # pyright: ignore
            raise InputError("low", self.low, f"must be at most high = {self.high}")


def shortfall(xp: Any, bounds: Bounds, found: Any, length: Any) -> Any:
    """The mean square of how far rows lie outside, over the rows that have a value; else 0.

    Args:
        xp: `jax.numpy` or `torch`.
        bounds: between which they cost nothing.
        found: n_eff or γ̂ of rows, NaN where there is none.
        length: keys n of each.
    """
    some = ~xp.isnan(found)
    x = xp.where(some, found, 1.0)
    zero = xp.zeros_like(x)
    low, high = (None if b is None else zero + b for b in (bounds.low, bounds.high))
    if bounds.of == "n_eff":
        x = xp.log(x)
        low = None if low is None else xp.log(xp.minimum(low, xp.where(some, zero + length, 1.0)))
        high = None if high is None else xp.log(high)
    below = zero if low is None else xp.maximum(low - x, zero)
    above = zero if high is None else xp.maximum(x - high, zero)
    squares = xp.where(some, below**2 + above**2, zero)
    return squares.sum() / xp.maximum(zero.sum() + some.sum(), zero.sum() + 1)
