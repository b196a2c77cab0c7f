"""What RoPE and CoCA have in common as steps: random keys make the score at every distance."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, ClassVar

import numpy as np

from sparsity.arguments import number, vector
from sparsity.errors import InputError
from sparsity.rows.rotation import angles, split
from sparsity.rows.tokens import Tokens, every

NORMAL = 8.0  # spreads from zero at which a normal number is never negative: P < 1e−15


def query_of(query: Any, pairing: str, base: Any) -> tuple[np.ndarray, float]:
    """The query and the base of a step, checked.

    Raises:
        InputError: no finite, nonzero vector of an even d, an unknown pairing, or a base <= 1.
    """
    q = vector("query", query, "give one finite, nonzero vector")
    if not np.any(q):
        raise InputError("query", query, "give one finite, nonzero vector")
    angles(q.size, base)
    split(q, pairing)
    return q, number("base", base, "must be finite and > 1", lambda x: x > 1)


class RotaryStep:
    """A step that gives every distance m its β_m and γ_m."""

    own: ClassVar[dict[str, float]] = {"beta": 0.0, "gamma": 1.0}  # a row with it needs no γ

    query: np.ndarray
    base: float

    def _values(self) -> dict[str, Any]:
        """The fields in plain types, vectors as tuples."""
        names = [field.name for field in fields(self)]  # pyright: ignore[reportArgumentType]
        given = {name: getattr(self, name) for name in names}
        return {k: tuple(v.tolist()) if isinstance(v, np.ndarray) else v for k, v in given.items()}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._values() == self._values()

    def __hash__(self) -> int:
        return hash((type(self), *self._values().values()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._values().items())
        return f"{type(self).__name__}({shown})"

    def beta(self, distance: Any) -> np.ndarray:
        """Mean β_m of the score at each distance m."""
        raise NotImplementedError

    def gamma(self, distance: Any) -> np.ndarray:
        """Standard deviation γ_m of the score at each distance m."""
        raise NotImplementedError

    @property
    def normal(self) -> bool:
        """Whether the scores are normal."""
        return True

    @property
    def theta(self) -> np.ndarray:
        return angles(self.query.size, self.base)

    def breaks(self, length: int) -> np.ndarray:
        """Every distance differs."""
        return every(length)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        """β_m is added to β, γ becomes γ_m; sinks stay as they are.

        Raises:
            InputError: scores that are not normal.
        """
        if not self.normal:
            fix = f"must be >= {NORMAL:g}·spread, or Coca the only step of a row of exp"
            raise InputError("center", getattr(self, "center", None), fix)
        beta = np.where(tokens.sink, tokens.beta, tokens.beta + self.beta(tokens.distance))
        gamma = np.where(tokens.sink, tokens.gamma, self.gamma(tokens.distance))
        return replace(tokens, beta=beta, gamma=gamma)
