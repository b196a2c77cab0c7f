"""ALiBi: a bias that falls linearly with the distance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sparsity.arguments import keep_checked, number
from sparsity.rows.tokens import Tokens, every


@dataclass(frozen=True)
class Alibi:
    """ALiBi: scores fall by slope·(n − j), n − j the distance.

    Args:
        slope: ≥ 0, per token.

    Source: Press et al., "Train Short, Test Long" (2022), arXiv:2108.12409.
    """

    name: ClassVar[str] = "alibi"
    example: ClassVar[tuple[Any, ...]] = (0.1,)

    slope: float

    def __post_init__(self) -> None:
        keep_checked(self, "slope", number, "give one number >= 0", lambda x: x >= 0)

    def breaks(self, length: int) -> np.ndarray:
        """Return every distance."""
        # A slope of 0 keeps tokens equal, so that rows of any length are within reach.
        return every(length) if self.slope else np.empty(0)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        return replace(tokens, beta=tokens.beta - self.slope * tokens.distance)
