"""Sliding window: the last tokens only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sparsity.arguments import whole
from sparsity.rows.tokens import Tokens


@dataclass(frozen=True)
class Window:
    """Sliding window: only the last tokens are in sight; the others have weight 0.

    Args:
        size: tokens in sight, ≥ 1.
    """

    name: ClassVar[str] = "window"
    example: ClassVar[tuple[Any, ...]] = (8,)

    size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", whole("size", self.size, 1))

    def breaks(self, length: int) -> np.ndarray:
        """The edge of the window."""
        return np.array([float(self.size)])

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        return replace(tokens, w=np.where(tokens.distance < self.size, tokens.w, 0.0))
