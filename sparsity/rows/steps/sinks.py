"""Sinks: the first token with a score of its own, a weight that is no token, and the gate.

A gate on what a head puts out does what a sink is for: to read out little.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sparsity.arguments import keep_checked, number
from sparsity.rows.tokens import AlikeStep, Tokens


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
