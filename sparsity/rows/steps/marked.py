"""Steps that set tokens apart: sinks, the gate that stands in for them, and a needle.

A sink is one of the first tokens with a score of its own, or a weight that is no token. A gate on
what a head puts out does what a sink is for: to read out little. A needle is the one key that the
query looks for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sparsity.checks import check_number, check_whole, keep_checked
from sparsity.errors import InputError
from sparsity.rows.tokens import AlikeStep, Step, Tokens


def _mark(tokens: Tokens, here: np.ndarray, step: Step) -> np.ndarray:
    """Return which token a step gives a score of its own.

    Raises:
        InputError: a step before has given that token one.
    """
    if np.any(here & (tokens.sink | tokens.needle)):
        fix = "a sink or a needle before it is the same token; give them different ones"
        raise InputError("steps", step, fix)
    return here


@dataclass(frozen=True)
class Sink:
    """Sink: the first token has its own score, and no earlier step hides it.

    Several are several tokens: the second one is the second token, and so on.

    Args:
        beta: its bias, for exp its logit.
        gamma: its spread ≥ 0; 0 is a fixed score.
    """

    name: ClassVar[str] = "sink"
    example: ClassVar[tuple[Any, ...]] = (3.0,)

    beta: float
    gamma: float = 0.0

    def __post_init__(self) -> None:
        keep_checked(self, "beta", check_number, "give one finite number")
        keep_checked(self, "gamma", check_number, "give one number >= 0", lambda x: x >= 0)

    def breaks(self, length: int) -> np.ndarray:
        """Return the break behind the first token; `Row` sets those of more sinks apart."""
        return np.array([length - 1.0])

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        before = int(tokens.count[tokens.sink].sum())
        here = _mark(tokens, tokens.distance == length - 1 - before, self)
        if not np.any(here):
            fix = f"is too short for {before + 1} sinks; give a longer row, or fewer of them"
            raise InputError("length", length, fix)
        return replace(
            tokens,
            beta=np.where(here, self.beta, tokens.beta),
            gamma=np.where(here, self.gamma, tokens.gamma),
            w=np.where(here, 1.0, tokens.w),
            sink=tokens.sink | here,
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
        keep_checked(self, "logit", check_number, "give one finite number")

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        return replace(tokens, units=(*tokens.units, float(self.logit)))


@dataclass(frozen=True)
class Gate(AlikeStep):
    """Output gate g: what the row reads out, Σa_j v_j, is multiplied by g, and so is every weight.

    It acts last, so that its place among the steps does not matter; two gates multiply. Ratios of
    weights stay, and with them S, n_eff and what is said of the shares p_j, those beside a sink
    logit too. What changes are sums of weights as they are: `abs_sum` is g times, and `square_sum`,
    the variance of Σa_j v_j, g² times what it was. Of softmax, whose weights are shares, the mass
    read out is g·(1 − `sink_mass`) and the variance g²·`participation`. A gate near 0 does what a
    sink is for, to read out little, and needs no sink for it.

    Args:
        value: g in (0, 1], a sigmoid of the query's state; one query has one.

    Source: Qiu et al., "Gated Attention for Large Language Models" (2025), arXiv:2505.06708.
    """

    name: ClassVar[str] = "gate"
    example: ClassVar[tuple[Any, ...]] = (0.5,)

    value: float

    def __post_init__(self) -> None:
        fix = "give one number in (0, 1]"
        keep_checked(self, "value", check_number, fix, lambda x: 0 < x <= 1)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        return replace(tokens, gate=tokens.gate * float(self.value))


@dataclass(frozen=True)
class Needle:
    """Needle: one token has its own score m, and no earlier step hides it.

    Later steps change it as they change every token: a temperature multiplies m, ALiBi takes its
    slope times the distance from it, and a window may hide it; RoPE and CoCA, which say how other
    keys score, do not. A row has one needle: a second step at another distance takes its place, and
    leaves the first a token of that score.

    For keys ~ N(0, I) in R^d and a query of length t that points along the needle, m = t√d and
    γ = t; of length 1 in R^16, `Row("exp", gamma=1, steps=(Needle(4),))`.

    Args:
        beta: m, or the mean of it.
        gamma: the spread of m ≥ 0; 0 is a fixed score.
        distance: n − j of its token, 0 … n − 1; None is the middle of the row, ⌊n/2⌋.

    Raises:
        InputError: a score that is not finite, a spread < 0, or a distance that is not in the row.
    """

    name: ClassVar[str] = "needle"
    example: ClassVar[tuple[Any, ...]] = (4.0,)

    beta: float
    gamma: float = 0.0
    distance: int | None = None

    def __post_init__(self) -> None:
        keep_checked(self, "beta", check_number, "give one finite number")
        keep_checked(self, "gamma", check_number, "give one number >= 0", lambda x: x >= 0)
        if self.distance is not None:
            keep_checked(self, "distance", check_whole, 0)

    def _at(self, length: int) -> int:
        """Return the distance of its token in rows of that length."""
        if self.distance is None:
            return length // 2
        if self.distance >= length:
            fix = f"a row of {length} tokens has distances 0 to {length - 1}"
            raise InputError("distance", self.distance, fix)
        return self.distance

    def breaks(self, length: int) -> np.ndarray:
        """Set the needle's token apart from its neighbours."""
        return np.array([0.0, 1.0]) + self._at(length)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        here = _mark(tokens, tokens.distance == self._at(length), self)
        return replace(
            tokens,
            beta=np.where(here, self._mean(tokens), tokens.beta),
            gamma=np.where(here, self.gamma, tokens.gamma),
            w=np.where(here, 1.0, tokens.w),
            needle=here,
        )

    def _mean(self, tokens: Tokens) -> Any:
        return self.beta


@dataclass(frozen=True)
class NeedleAbove(Needle):
    """Needle by its margin: its score is that much above what its token scores on average.

    m = β_j + margin, with the β_j that the steps before gave to the token. All else is as for
    `Needle`, whose `beta` is the margin here.

    Args:
        beta: the margin.
        gamma: the spread of the score ≥ 0.
        distance: n − j of its token; None is ⌊n/2⌋.
    """

    name: ClassVar[str] = "needle-above"

    def _mean(self, tokens: Tokens) -> Any:
        return tokens.beta + self.beta
