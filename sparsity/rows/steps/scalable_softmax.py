"""Scalable softmax: scores that grow with the logarithm of the length."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sparsity.arguments import number
from sparsity.rows.tokens import Tokens

PUBLISHED_SCALE = 0.43  # of ln n; published, Nakanishi (2025), arXiv:2501.19399


@dataclass(frozen=True)
class ScalableSoftmax:
    """Scalable softmax: scores so far are multiplied by scale·ln n.

    β and γ are multiplied with them. With scale = 1/ln n₀ this is the log-n scaling that changes
    nothing at n₀.

    Args:
        scale: > 0; the published fit is `PUBLISHED_SCALE`.

    Source: Nakanishi, "Scalable-Softmax Is Superior for Attention" (2025), arXiv:2501.19399; Su
    Jianlin (2021), kexue.fm/archives/8823.
    """

    name: ClassVar[str] = "scalable-softmax"
    example: ClassVar[tuple[Any, ...]] = (0.43,)

    scale: float = PUBLISHED_SCALE

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "scale", number("scale", self.scale, "give one number > 0", lambda x: x > 0)
        )

    def breaks(self, length: int) -> np.ndarray:
        """None: it is the same for every token."""
        return np.empty(0)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        factor = self.scale * math.log(length)
        return replace(tokens, beta=factor * tokens.beta, gamma=factor * tokens.gamma)
