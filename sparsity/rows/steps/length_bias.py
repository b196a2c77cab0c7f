"""A bias that depends on the length: sigmoid attention's −ln n."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sparsity.arguments import number
from sparsity.rows.tokens import Tokens


@dataclass(frozen=True)
class LengthBias:
    """Length bias: scale·ln n is added to every score.

    At scale −1 the weights of a row of sigmoid attention sum to about E e^s, whatever n. It does
    not change softmax, where it multiplies all weights by one factor.

    Args:
        scale: any number; −1 is the usual bias of sigmoid attention.

    Source: Ramapuram et al., "Theory, Analysis, and Best Practices for Sigmoid Self-Attention"
    (2024), arXiv:2409.04431.
    """

    name: ClassVar[str] = "length-bias"
    example: ClassVar[tuple[Any, ...]] = (-1.0,)

    scale: float = -1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", number("scale", self.scale, "give one finite number"))

    def breaks(self, length: int) -> np.ndarray:
        """Return no distance: it is the same for every token."""
        return np.empty(0)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        return replace(tokens, beta=tokens.beta + self.scale * math.log(length))
