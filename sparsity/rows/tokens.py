"""What a row law is: how the weights a_j = w_j f(s_j) of one query lie along the sequence.

The scores are independent, s_j = β_j + γ_j z_j with z_j ~ N(0, 1), or (QK-norm) z_j = √d cos θ_j
for keys on a sphere in R^d. A `RowLaw` starts from the same β and γ everywhere; each of its steps
is a small record that changes β, γ or w of some tokens. What is equal is kept once, with a count,
so that a window in a row of 10¹² tokens is as cheap as in one of ten.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from sparsity.errors import InputError
from sparsity.kernels.parameters import LENGTH

__all__ = ["MOST", "RowLaw", "Step", "Tokens", "every", "number", "whole"]

MOST = 2**22  # different tokens that one row may hold


@dataclass(frozen=True)
class Tokens:
    """Groups of tokens of one row: all tokens of a group have the same law.

    Args:
        distance: n − j of the nearest token of each group to the query, ascending, [groups].
        count: tokens in each group, [groups]; they sum to n.
        beta: bias β_j, [groups].
        gamma: spread γ_j ≥ 0, [groups].
        w: factor w_j ≥ 0 on f(s_j), [groups]; 0 is a token out of sight, which still counts in n.
        sink: which groups are sinks, [groups].
        dim: d of keys on the sphere, None for Gaussian scores.
        units: logits b of weights e^b that stand in the denominator and are no tokens.
    """

    distance: np.ndarray
    count: np.ndarray
    beta: np.ndarray
    gamma: np.ndarray
    w: np.ndarray
    sink: np.ndarray
    dim: int | None = None
    units: tuple[float, ...] = ()


class Step(Protocol):
    """What changes the tokens of a row: frozen, hashable, validated where it is made."""

    def breaks(self, length: int) -> np.ndarray:
        """Distances n − j at which the change may differ from that of the token before."""
        ...

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        """The changed tokens of a row of that length."""
        ...


def number(
    name: str, value: Any, fix: str, holds: Callable[[float], bool] = lambda x: True
) -> None:
    """Refuse what is not one finite real number for which `holds`."""
    real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    try:
        finite = real and math.isfinite(value)
    except OverflowError:  # a whole number of hundreds of digits
        finite = False
    if not (finite and holds(float(value))):
        raise InputError(name, value, fix)


def whole(name: str, value: Any, least: int) -> int:
    """The whole number from `least` on that `value` is.

    Raises:
        InputError: anything else.
    """
    fix = f"must be a whole number >= {least}, at most 2^53"
    number(name, value, fix, lambda x: least <= x <= 2**53 and x == int(x) == value)
    return int(value)


@dataclass(frozen=True)
class RowLaw:
    """A row of independent scores: s_j ~ N(β, γ²) everywhere, then the steps, in their order.

    Example: `RowLaw(0.0, 1.0, (Alibi(0.1), Window(512), Sink(4.0)))` is ALiBi in a sliding window
    which the first token survives.

    Args:
        beta: bias β = q·μ of every token.
        gamma: spread γ = σ‖q‖ of every token, > 0.
        steps: what changes some of them.

    Raises:
        InputError: a value outside its domain.
    """

    beta: float = 0.0
    gamma: float = 1.0
    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        """Check the start; each step has checked itself."""
        number("beta", self.beta, "give one finite number")
        number("gamma", self.gamma, "give one number > 0", lambda x: x > 0)
        object.__setattr__(self, "steps", tuple(self.steps))

    def then(self, *steps: Step) -> RowLaw:
        """The same law with more steps after its own."""
        return replace(self, steps=(*self.steps, *steps))

    def tokens(self, length: Any) -> Tokens:
        """The tokens of a row of n, in groups of equals.

        Args:
            length: n, one whole number ≥ 1.

        Raises:
            InputError: a bad length, or one at which too many tokens differ.
        """
        n = LENGTH.check(length)
        if n.ndim:
            raise InputError("length", length, "give one number")
        n = int(n)
        edges = [np.array([0.0, n])]
        for step in self.steps:
            new = np.asarray(step.breaks(n), dtype=np.float64)
            edges.append(new[(new > 0) & (new < n)])
        edge = np.unique(np.concatenate(edges))
        distance = edge[:-1]
        same = np.ones_like(distance)
        tokens = Tokens(
            distance, np.diff(edge), self.beta * same, self.gamma * same, same, same == 0
        )
        for step in self.steps:
            tokens = step(tokens, n)
        return tokens

    def positions(self, length: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(β_j, γ_j, w_j) of the tokens j = 1 … n, each of shape [n]."""
        tokens = self.tokens(length)
        times = tokens.count.astype(np.int64)
        beta, gamma, w = (np.repeat(x, times)[::-1] for x in (tokens.beta, tokens.gamma, tokens.w))
        return beta, gamma, w


def every(length: int) -> np.ndarray:
    """Breaks of a step that treats every distance differently.

    Raises:
        InputError: the row is too long for that.
    """
    if length > MOST:
        fix = f"every token of this row has a law of its own; at most {MOST} of them"
        raise InputError("length", length, fix)
    return np.arange(length, dtype=np.float64)
