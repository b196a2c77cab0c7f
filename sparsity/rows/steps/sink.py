"""A sink: the first token with a score of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sparsity.arguments import keep_checked, number
from sparsity.rows.tokens import Tokens


@dataclass(frozen=True)
class Sink:
    """Sink: the first token has its own score, and no earlier step hides it.

    Args:
        beta: its bias, for exp its logit.
        gamma: its spread ≥ 0; 0 is a fixed score.
    """

    name: ClassVar[str] = "sink"
    example: ClassVar[tuple[Any, ...]] = (3.0,)

    beta: float
    gamma: float = 0.0

    def __post_init__(self) -> None:
        keep_checked(self, "beta", number, "give one finite number")
        keep_checked(self, "gamma", number, "give one number >= 0", lambda x: x >= 0)

    def breaks(self, length: int) -> np.ndarray:
        """Return the break behind the first token, which is the sink."""
        return np.array([length - 1.0])

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        first = tokens.distance == length - 1
        return replace(
            tokens,
            beta=np.where(first, self.beta, tokens.beta),
            gamma=np.where(first, self.gamma, tokens.gamma),
            w=np.where(first, 1.0, tokens.w),
            sink=tokens.sink | first,
        )
