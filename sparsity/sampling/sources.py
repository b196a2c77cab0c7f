"""Where the scores of whole rows come from: tokens of one law, tokens that differ, whole keys.

Laws of scores other than the Gaussian are drawn by their own definition: keys on a sphere as
normalised Gaussian vectors in R^d. RoPE and CoCA from first principles are `rotary_sampling`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from sparsity.kernels import RowMap
from sparsity.rows.scores import Scores
from sparsity.sampling.normals import normal
from sparsity.sampling.threefry import fold_in, uniform


class Block(NamedTuple):
    """Neighbouring tokens of some rows.

    Args:
        scores: s_j, [rows, tokens]; or what else a row map's weights are of.
        log_w: log of the factor w_j on f(s_j), broadcast against the scores; −∞ is out of sight.
        sink: 1 for tokens that are sinks, 0 for others, [tokens]; None where no token is one.
    """

    scores: Any
    log_w: Any
    sink: jax.Array | None = None


class Source(Protocol):
    """Draws the scores of rows, one block of tokens at a time: hashable, it compiles once."""

    @property
    def length(self) -> int:
        """Tokens of a row."""
        ...

    @property
    def block(self) -> int:
        """Tokens drawn at once."""
        ...

    @property
    def width(self) -> int:
        """Random numbers of a token."""
        ...

    def __call__(self, key: jax.Array, number: Any, rows: int, dtype: str, law: Any) -> Block:
        """Draw block `number` of that many rows; `law` holds the numbers that are traced."""
        ...


def numbers(scores: Scores | None) -> int:
    """Random numbers that one score is drawn from."""
    return 1 if scores is None else scores.normals + scores.uniforms


def _standard(
    scores: Scores | None, key: jax.Array, shape: tuple[int, ...], dtype: str
) -> jax.Array:
    """The x of scores β + γx."""
    if scores is None:
        return normal(key, shape, dtype)
    z = normal(key, (*shape, scores.normals), dtype)
    return scores.drawn(uniform(fold_in(key, 1), (*shape, scores.uniforms), dtype), z)


@dataclass(frozen=True)
class IidTokens:
    """Tokens of one law under retention: nothing is kept per token, so rows can be long.

    Args:
        length: tokens of a row.
        block: tokens drawn at once.
        dim: draw whole keys in R^dim; 0 draws scalar scores.
        scores: the law of x in β + γx; None for Gaussian scores.
    """

    length: int
    block: int
    dim: int = 0
    scores: Scores | None = None

    @property
    def width(self) -> int:
        """Random numbers of a token."""
        return max(self.dim, numbers(self.scores))

    def __call__(self, key: jax.Array, number: Any, rows: int, dtype: str, law: Any) -> Block:
        """Draw a block; law = (β, γ, −log λ), or (q, μ, σ, −log λ) for whole keys."""
        *scores, rate = law
        key = fold_in(key, number)
        if self.dim:
            q, mu, sigma = scores
            noise = normal(key, (rows, self.block, self.dim), dtype)
            s = (mu + sigma * noise) @ q
        else:
            beta, gamma = scores
            s = beta + gamma * _standard(self.scores, key, (rows, self.block), dtype)
        token = number * self.block + jnp.arange(self.block)
        distance = (self.length - 1 - token).astype(dtype)
        return Block(s, jnp.where(token < self.length, -distance * rate, -jnp.inf))


@dataclass(frozen=True)
class DistinctTokens:
    """Tokens that differ, each with its own β_j, γ_j and w_j.

    Args:
        length: tokens of a row, drawn at once.
        scores: the law of x in β + γx; None for Gaussian scores.
    """

    length: int
    scores: Scores | None = None

    @property
    def block(self) -> int:
        """The whole row."""
        return self.length

    @property
    def width(self) -> int:
        """Random numbers of a token."""
        return numbers(self.scores)

    def __call__(self, key: jax.Array, number: Any, rows: int, dtype: str, law: Any) -> Block:
        """Draw the row; law = (β, γ, log w, is a sink: [n] each)."""
        beta, gamma, log_w, sink = law
        x = _standard(self.scores, key, (rows, self.length), dtype)
        spread = jax.lax.optimization_barrier(jnp.broadcast_to(log_w, x.shape))  # quicker on a CPU
        return Block(beta + gamma * x, spread, sink)


@dataclass(frozen=True)
class MapRows:
    """Rows of a map that has more than a score a token.

    Args:
        length: tokens of a row, drawn at once.
        kernel: a map that is `drawn`.
        token: standard normals of a token.
        row: standard normals that the tokens of a row share.
    """

    length: int
    kernel: RowMap
    token: int
    row: int

    @property
    def block(self) -> int:
        """The whole row."""
        return self.length

    @property
    def width(self) -> int:
        """Numbers of a token: its normals, and what becomes of them with those of the row."""
        return self.token + self.row // self.token + -(-self.row // self.length)

    def __call__(self, key: jax.Array, number: Any, rows: int, dtype: str, law: Any) -> Block:
        """Draw the row; law = the map's parameters, in order."""
        assert self.kernel.drawn is not None
        own = {p.name: value for p, value in zip(self.kernel.parameters, law, strict=True)}
        tokens = normal(fold_in(key, 0), (rows, self.length, self.token), dtype)
        shared = normal(fold_in(key, 1), (rows, self.row), dtype)
        return Block(self.kernel.drawn.read(tokens, shared, **own), jnp.zeros(self.length, dtype))
