"""A needle: the one key that the query looks for, with a score of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sparsity.arguments import keep_checked, number, whole
from sparsity.errors import InputError
from sparsity.rows.tokens import Tokens


@dataclass(frozen=True)
class Needle:
    """Needle: one token has its own score m, and no earlier step hides it.

    Later steps change it as they change every token: a temperature multiplies m, ALiBi takes its
    slope times the distance from it, and a window may hide it. A row has one needle: a second step
    takes its place, and leaves the first a token of that score.

    For keys ~ N(0, I) in R^d and a query of length t that points along the needle, m = t√d and
    γ = t; of length 1 in R^16, `Row("exp", gamma=1, steps=(Needle(4),))`.

    Args:
        beta: m, or the mean of it.
        gamma: the spread of m ≥ 0; 0 is a fixed score.
        distance: n − j of its token, 0 … n − 1; None is the middle of the row, ⌊n/2⌋.

    Raises:
        InputError: a score that is not finite, a spread < 0, or a distance that is not in the row.
    """

    name: ClassVar[str] = "needle"
    example: ClassVar[tuple[Any, ...]] = (4.0,)

    beta: float
    gamma: float = 0.0
    distance: int | None = None

    def __post_init__(self) -> None:
        keep_checked(self, "beta", number, "give one finite number")
        keep_checked(self, "gamma", number, "give one number >= 0", lambda x: x >= 0)
        if self.distance is not None:
            keep_checked(self, "distance", whole, 0)

    def _at(self, length: int) -> int:
        """Return the distance of its token in rows of that length."""
        if self.distance is None:
            return length // 2
        if self.distance >= length:
            fix = f"a row of {length} tokens has distances 0 to {length - 1}"
            raise InputError("distance", self.distance, fix)
        return self.distance

    def breaks(self, length: int) -> np.ndarray:
        """Set the needle's token apart from its neighbours."""
        return np.array([0.0, 1.0]) + self._at(length)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        here = tokens.distance == self._at(length)
        return replace(
            tokens,
            beta=np.where(here, self._mean(tokens), tokens.beta),
            gamma=np.where(here, self.gamma, tokens.gamma),
            w=np.where(here, 1.0, tokens.w),
            needle=here,
        )

    def _mean(self, tokens: Tokens) -> Any:
        return self.beta


@dataclass(frozen=True)
class NeedleAbove(Needle):
    """Needle by its margin: its score is that much above what its token scores on average.

    m = β_j + margin, with the β_j that the steps before gave to the token. All else is as for
    `Needle`, whose `beta` is the margin here.

    Args:
        beta: the margin.
        gamma: the spread of the score ≥ 0.
        distance: n − j of its token; None is ⌊n/2⌋.
    """

    name: ClassVar[str] = "needle-above"

    def _mean(self, tokens: Tokens) -> Any:
        return tokens.beta + self.beta
