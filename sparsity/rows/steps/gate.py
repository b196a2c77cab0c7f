"""A gate on what a head puts out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sparsity.arguments import keep_checked, number
from sparsity.rows.tokens import AlikeStep, Tokens


@dataclass(frozen=True)
class Gate(AlikeStep):
    """Output gate g: what the row reads out, Σp_j v_j, is multiplied by g, and so is every p_j.

    It acts after the normalisation, so that its place among the steps does not matter; two gates
    multiply. Ratios of weights stay, and with them S, n_eff and what is said of the shares p_j,
    those beside a sink logit too. What changes are the weights as they are: `abs_sum`, the mass
    that is read out, is g times, and `square_sum`, the variance of Σa_j v_j, g² times what it was.
    A gate near 0 does what a sink is for, to read out little, and needs no sink for it.

    Args:
        value: g in (0, 1], a sigmoid of the query's state; one query has one.

    Source: Qiu et al., "Gated Attention for Large Language Models" (2025), arXiv:2505.06708.
    """

    name: ClassVar[str] = "gate"
    example: ClassVar[tuple[Any, ...]] = (0.5,)

    value: float

    def __post_init__(self) -> None:
        fix = "give one number in (0, 1]"
        keep_checked(self, "value", number, fix, lambda x: 0 < x <= 1)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        return replace(tokens, gate=tokens.gate * float(self.value))
