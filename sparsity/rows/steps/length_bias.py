"""A bias that depends on the length: sigmoid attention's −ln n."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sparsity.arguments import keep_checked, number
from sparsity.rows.tokens import AlikeStep, Tokens


@dataclass(frozen=True)
class LengthBias(AlikeStep):
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
        keep_checked(self, "scale", number, "give one finite number")

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        return replace(tokens, beta=tokens.beta + self.scale * math.log(length))
