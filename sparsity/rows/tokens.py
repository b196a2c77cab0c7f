"""The tokens of a row, in groups of equals; what a step is, and tokens each with their own law.

Token j has the weight a_j = w_j f(s_j), s_j = β_j + γ_j x_j with independent x_j ~ N(0, 1), or of
another law of mean 0 and variance 1 (`scores`). What is equal is kept once, with a count: a window
in a row of 10¹² tokens is as cheap as in one of ten.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from sparsity.checks import as_float64
from sparsity.errors import InputError

MOST = 2**22  # different tokens that one row may hold: each of its arrays takes 32 MB then


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
        needle: which group is the needle, the one key that the query looks for, [groups].
        scores: the law of x_j, None for Gaussian scores.
        units: logits b of weights e^b that stand in the denominator and are no tokens.
        gate: factor on the shares p_j, after the normalisation.
    """

    distance: np.ndarray
    count: np.ndarray
    beta: np.ndarray
    gamma: np.ndarray
    w: np.ndarray
    sink: np.ndarray
    needle: np.ndarray
    scores: Any = None
    units: tuple[float, ...] = ()
    gate: float = 1.0


class Step(Protocol):
    """What changes the tokens of a row: frozen, hashable, validated where it is made.

    Attributes:
        name: as typed on the command line, before its numbers: "alibi:0.01".
        example: its numbers in the contract tests and in help, in the order of its fields.
    """

    name: ClassVar[str]
    example: ClassVar[tuple[Any, ...]]

    def breaks(self, length: int) -> np.ndarray:
        """Return the distances n − j at which the change may differ from the one before."""
        ...

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        """Return the changed tokens of a row of that length."""
        ...


class AlikeStep:
    """A step that does the same at every distance, so that it parts no tokens."""

    def breaks(self, length: int) -> np.ndarray:
        """Return no distance."""
        return np.empty(0)


def every(length: int) -> np.ndarray:
    """Return the breaks of a step that treats every distance differently.

    Raises:
        InputError: the row is too long for that.
    """
    if length > MOST:
        fix = f"every token of this row has its own law; give at most {MOST} tokens"
        raise InputError("length", length, fix)
    return np.arange(length, dtype=np.float64)


@dataclass(frozen=True)
class TokenScores:
    """Token j scores β_j + γ_j x_j; a row with it has as many tokens as there are entries.

    Args:
        beta: β_j of the tokens, the first one first; one number for all.
        gamma: γ_j ≥ 0 likewise; 0 is a fixed score.
    """

    defaults: ClassVar[dict[str, float]] = {"beta": 0.0, "gamma": 1.0}  # x begins with the row's
    name: ClassVar[str] = "token-scores"

    beta: Any
    gamma: Any

    def __post_init__(self) -> None:
        beta = as_float64(self.beta, "beta", "give real numbers, one a token")
        gamma = as_float64(self.gamma, "gamma", "give numbers >= 0, one a token")
        for name, values in (("beta", beta), ("gamma", gamma)):
            shown = f"array of shape {values.shape}" if values.ndim else getattr(self, name)
            fit = values.ndim < 2 and values.size in (1, max(beta.size, gamma.size)) and values.size
            if not fit or values.size > MOST:
                fix = f"give one number a token, in the order of the row, at most {MOST}"
                raise InputError(name, shown, fix)
            if not np.all(np.isfinite(values) & ((values >= 0) | (name == "beta"))):
                fix = "must be finite" if name == "beta" else "must be finite and >= 0"
                raise InputError(name, shown, fix)
        for name, values in zip(("beta", "gamma"), np.broadcast_arrays(beta, gamma), strict=True):
            object.__setattr__(self, name, tuple(values.ravel().tolist()))

    @property
    def length(self) -> int:
        """Tokens of a row with it."""
        return len(self.beta)

    def _by_distance(self, length: int) -> np.ndarray:
        """Return β and γ of all tokens, that of the query first, [2, n]."""
        if length != self.length:
            fix = f"beta and gamma are of {self.length} tokens; leave the length out"
            raise InputError("length", length, fix)
        return np.array([self.beta, self.gamma])[:, ::-1]

    def breaks(self, length: int) -> np.ndarray:
        """Return the distances at which β or γ changes."""
        return 1.0 + np.flatnonzero(np.any(np.diff(self._by_distance(length)), axis=0))

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        beta, gamma = self._by_distance(length)[:, tokens.distance.astype(int)]
        return replace(tokens, beta=beta, gamma=gamma)
