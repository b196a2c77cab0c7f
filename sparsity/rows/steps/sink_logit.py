"""A learned sink logit: a weight in the denominator that is no token."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sparsity.arguments import keep_checked, number
from sparsity.rows.tokens import AlikeStep, Tokens


@dataclass(frozen=True)
class SinkLogit(AlikeStep):
    """Learned sink logit b: a weight e^b beside the tokens, p_j = |a_j|/(e^b + Σ|a|).

    It takes mass, but is not a token. S and n_eff compare the tokens with one another, so they stay
    as they were: dividing all weights by a larger sum changes no ratio of them. What changes is the
    mass that the tokens share, E Σp_j < 1, and E Y₂ = E Σp_j².

    Args:
        logit: b. 0 is softmax "off by one", which adds 1; a learned sink logit is any number.

    Source: Miller, "Attention Is Off By One" (2023); Xiao et al. (2023), arXiv:2309.17453.
    """

    name: ClassVar[str] = "sink-logit"
    example: ClassVar[tuple[Any, ...]] = (0.0,)

    logit: float = 0.0

    def __post_init__(self) -> None:
        keep_checked(self, "logit", number, "give one finite number")

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        return replace(tokens, units=(*tokens.units, float(self.logit)))
