"""Tokens each with a law of scores of its own: what a `Row` makes of β and γ that are arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from sparsity.checks import as_float64
from sparsity.errors import InputError
from sparsity.rows.tokens import MOST, Tokens


@dataclass(frozen=True)
class TokenScores:
    """Token j scores β_j + γ_j x_j; a row with it has as many tokens as there are entries.

    Args:
        beta: β_j of the tokens, the first one first; one number for all.
        gamma: γ_j ≥ 0 likewise; 0 is a fixed score.
    """

    own: ClassVar[dict[str, float]] = {"beta": 0.0, "gamma": 1.0}  # of the row, which x begins with
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
            object.__setattr__(self, name, tuple(values.reshape(-1).tolist()))

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
