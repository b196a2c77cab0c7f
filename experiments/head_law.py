"""The exact law of n_eff for the heads of a trained language model, whatever its rule of position.

Keys are taken as independent of their place, with a mean and a covariance. Turned to the distance m
they make normal scores of mean β_m and spread γ_m, as the steps `Rope` and `Coca` have it for keys
of one spread; the exact law of such rows then says n_eff of a row of n keys.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from experiments import language_model as lm
from sparsity import Row, exact
from sparsity.rows.rope_planes import planes, rotate
from sparsity.rows.rotated_scores import slack_coefficients
from sparsity.rows.tokens import Tokens, every


@dataclass(frozen=True, eq=False)
class AtDistances:
    """A step that sets the mean β_m and the spread γ_m of the score at each distance m."""

    name: ClassVar[str] = "at-distances"
    example: ClassVar[tuple[Any, ...]] = ()

    beta: np.ndarray
    gamma: np.ndarray

    def breaks(self, length: int) -> np.ndarray:
        """Return every distance: all differ."""
        return every(length)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        """Set β and γ."""
        at = tokens.distance.astype(int)
        return replace(tokens, beta=self.beta[at], gamma=self.gamma[at])


class Keys(NamedTuple):
    """Mean and covariance of keys before they turn, or of t."""

    mean: np.ndarray
    covariance: np.ndarray

    @classmethod
    def of(cls, keys: np.ndarray) -> Keys:
        """Return those of keys, [tokens, d]."""
        return cls(keys.mean(0), np.cov(keys.T))


def coefficients(rule: str, query: np.ndarray, length: int, theta: np.ndarray) -> np.ndarray:
    """Return what multiplies the entries of a key at each distance, for a query at the row's end.

    Args:
        rule: of the positions.
        query: [d].
        length: of the row.
        theta: θ_i, [d/2].

    Returns:
        Shape [length, d]; for CoCA [length, d/2], of t.
    """
    m = np.arange(length)
    if rule == lm.ROPE:
        # Between a key turned back by m and the query lies the same angle as between the key and
        # the query turned on by m.
        return rotate(np.tile(query, (length, 1)), m, lm.PAIRING, theta=theta)
    q = planes(query, lm.PAIRING)
    if rule == lm.COCA:
        return np.abs(q) ** 2 * np.cos(m[:, None] * theta)
    if rule == lm.SLACK:
        return slack_coefficients(q, length - 1, length - 1 - m, theta)
    return np.tile(query, (length, 1))


def law(
    rule: str, query: np.ndarray, keys: Keys, slope: float, theta: np.ndarray, length: int
) -> float:
    """Return n_eff of a query at the end of a row of keys, by the exact law."""
    c = coefficients(rule, query, length, theta) / math.sqrt(len(query))
    beta = c @ keys.mean - (slope * np.arange(length) if rule == lm.ALIBI else 0)
    gamma = np.sqrt(((c @ keys.covariance) * c).sum(-1))
    return float(exact(Row("exp", gamma=1.0, steps=(AtDistances(beta, gamma),)), length=length))


class Heads(NamedTuple):
    """The heads of a model, as the law is told of them.

    Args:
        rule: of the positions.
        queries: of some rows before they turn, [layers, rows, heads, d].
        keys: of each head, [layers][heads].
    """

    rule: str
    queries: np.ndarray
    keys: list[list[Keys]]

    @classmethod
    def of(cls, rule: str, queries: Any, keys: Any) -> Heads:
        """Return the heads of these queries, and of keys [layers, ..., heads, n, d]."""
        by_head = np.moveaxis(np.asarray(keys, float), -3, 1)
        pooled = [[Keys.of(head.reshape(-1, head.shape[-1])) for head in x] for x in by_head]
        return cls(rule, np.asarray(queries, float), pooled)

    def n_eff(self, theta: np.ndarray, length: int) -> np.ndarray:
        """Return n_eff of every query at the end of a row of that length, [rows, layers, heads]."""
        slopes = lm.alibi_slopes(self.queries.shape[2])
        found = np.empty(self.queries.shape[:3])
        for layer, row, head in np.ndindex(found.shape):
            query, keys = self.queries[layer, row, head], self.keys[layer][head]
            found[layer, row, head] = law(
                self.rule, query, keys, float(slopes[head]), theta, length
            )
        return found.swapaxes(0, 1)
