"""Retention: weights that fall geometrically with the distance."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sparsity.arguments import keep_checked, number
from sparsity.errors import InputError
from sparsity.rows.tokens import MOST, Tokens

_SMALLEST = 745.0  # e^−745 is the smallest number there is: weights below are 0


@dataclass(frozen=True)
class Decay:
    """Retention: weights fall by a factor λ for each token of distance.

    Each w_j is multiplied by λ^(n−j); weights below 1e−323 are 0.

    Args:
        decay: λ in (0, 1].
    """

    name: ClassVar[str] = "decay"
    example: ClassVar[tuple[Any, ...]] = (0.9,)

    decay: float

    def __post_init__(self) -> None:
        keep_checked(self, "decay", number, "give one number in (0, 1]", lambda x: 0 < x <= 1)

    def breaks(self, length: int) -> np.ndarray:
        """Return every distance up to where the weight underflows."""
        if self.decay == 1:
            return np.empty(0)
        # Far tokens, of weight 0, are one group: a row of 10¹² tokens has thousands of groups only.
        seen = math.ceil(min(length, 1 + _SMALLEST / -math.log(self.decay)))
        if seen > MOST:
            fix = f"{seen:.3g} tokens of this row differ, at most {MOST} may; shorten the row"
            raise InputError("decay", self.decay, fix)
        return np.arange(seen + 1, dtype=np.float64)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        with np.errstate(under="ignore"):
            w = np.exp(tokens.distance * math.log(self.decay))
            return replace(tokens, w=tokens.w * w)
