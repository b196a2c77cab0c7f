"""Where the scores of whole rows come from: tokens of one law, tokens that differ, whole keys.

Laws of scores other than the Gaussian are drawn by their own definition: keys on a sphere as
normalised Gaussian vectors in R^d. RoPE and CoCA are drawn from first principles: random keys or t
are rotated and multiplied, and nothing is shared with the steps but the rotation itself: no β_m, no
γ_m, no coefficient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sparsity.errors import InputError
from sparsity.kernels import RowMap
from sparsity.rows import rotated_scores
from sparsity.rows.rope_planes import Turns, turns
from sparsity.rows.score_laws import Scores
from sparsity.rows.steps import Coca, Rope
from sparsity.sampling.batches import CHUNK, collect
from sparsity.sampling.random_numbers import normal
from sparsity.sampling.running import Sampling

NUMBERS_AT_ONCE = 2**20  # of a row of like tokens; longer ones are drawn block by block
TOKENS_IN_CACHE = 2**11  # of eight rows: a CPU draws rows of 131,072 tokens 1.3 times as fast
_ROTARY_NUMBERS = 2**16  # random numbers in a batch of rotary moments: they fit a core's cache
_ROTARY_FORMS = {
    "rope": rotated_scores.rope_scores,
    "coca": rotated_scores.coca_by_definition,
    "slack": rotated_scores.slack_scores,
}


class TokenBlock(NamedTuple):
    """Neighbouring tokens of some rows.

    Args:
        scores: s_j, [rows, tokens]; or what else a row map's weights are of.
        log_w: log of the factor w_j on f(s_j), broadcast against the scores; −∞ is out of sight.
        sink: 1 for tokens that are sinks, 0 for others, [tokens]; None where no token is one.
        needle: likewise of the needle.
    """

    scores: Any
    log_w: Any
    sink: jax.Array | None = None
    needle: jax.Array | None = None


@dataclass(frozen=True)
class Source:
    """Draws the scores of rows, one block of tokens at a time: hashable, it compiles once.

    Args:
        length: tokens of a row.
    """

    length: int

    @property
    def block(self) -> int:
        """Tokens drawn at once: the whole row, but where tokens are alike."""
        return self.length

    @property
    def width(self) -> int:
        """Random numbers of a token."""
        raise NotImplementedError

    def __call__(self, key: jax.Array, number: Any, rows: int, dtype: str, law: Any) -> TokenBlock:
        """Draw block `number` of that many rows; `law` holds the numbers that are traced."""
        raise NotImplementedError


def numbers_per_score(scores: Scores | None) -> int:
    """Return how many random numbers one score is drawn from."""
    return 1 if scores is None else scores.normals + scores.uniforms


def _draw_standard_scores(
    scores: Scores | None, key: jax.Array, shape: tuple[int, ...], dtype: str
) -> jax.Array:
    """Draw the x of scores β + γx."""
    if scores is None:
        return normal(key, shape, dtype)
    z = normal(key, (*shape, scores.normals), dtype)
    u = jax.random.uniform(jax.random.fold_in(key, 1), (*shape, scores.uniforms), dtype)
    return scores.drawn(u, z)


@dataclass(frozen=True)
class IidTokens(Source):
    """Tokens of one law under retention: nothing is kept per token, so rows can be long.

    Args:
        length: tokens of a row.
        dim: draw whole keys in R^dim; 0 draws scalar scores.
        scores: the law of x in β + γx; None for Gaussian scores.
        most: tokens drawn at once, if fewer than NUMBERS_AT_ONCE allows.
    """

    dim: int = 0
    scores: Scores | None = None
    most: int = NUMBERS_AT_ONCE

    @property
    def block(self) -> int:
        """Tokens drawn at once."""
        return min(self.length, self.most, max(1, NUMBERS_AT_ONCE // self.width))

    @property
    def width(self) -> int:
        """Random numbers of a token."""
        return max(self.dim, numbers_per_score(self.scores))

    def __call__(self, key: jax.Array, number: Any, rows: int, dtype: str, law: Any) -> TokenBlock:
        """Draw a block; law = (β, γ, −log λ), or (q, μ, σ, −log λ) for whole keys."""
        *scores, rate = law
        key = jax.random.fold_in(key, number)
        if self.dim:
            q, mu, sigma = scores
            noise = normal(key, (rows, self.block, self.dim), dtype)
            s = (mu + sigma * noise) @ q
        else:
            beta, gamma = scores
            s = beta + gamma * _draw_standard_scores(self.scores, key, (rows, self.block), dtype)
        # The last block may reach beyond the row: its tokens there are out of sight.
        token = number * self.block + jnp.arange(self.block)
        distance = (self.length - 1 - token).astype(dtype)
        return TokenBlock(s, jnp.where(token < self.length, -distance * rate, -jnp.inf))


@dataclass(frozen=True)
class DistinctTokens(Source):
    """Tokens that differ, each with its own β_j, γ_j and w_j.

    Args:
        length: tokens of a row.
        scores: the law of x in β + γx; None for Gaussian scores.
    """

    scores: Scores | None = None

    @property
    def width(self) -> int:
        """Random numbers of a token."""
        return numbers_per_score(self.scores)

    def __call__(self, key: jax.Array, number: Any, rows: int, dtype: str, law: Any) -> TokenBlock:
        """Draw the row; law = (β, γ, log w, is a sink, is the needle: [n] each)."""
        beta, gamma, log_w, sink, needle = law
        x = _draw_standard_scores(self.scores, key, (rows, self.length), dtype)
        spread = jax.lax.optimization_barrier(jnp.broadcast_to(log_w, x.shape))  # quicker on a CPU
        return TokenBlock(beta + gamma * x, spread, sink, needle)


@dataclass(frozen=True)
class MapRows(Source):
    """Rows of a map that has more than a score a token.

    Args:
        length: tokens of a row.
        kernel: a map that is `drawn`.
        token: standard normals of a token.
        row: standard normals that the tokens of a row share.
    """

    kernel: RowMap
    token: int
    row: int

    @property
    def width(self) -> int:
        """Numbers of a token: its normals, and what becomes of them with those of the row."""
        return self.token + self.row // self.token + -(-self.row // self.length)

    def __call__(self, key: jax.Array, number: Any, rows: int, dtype: str, law: Any) -> TokenBlock:
        """Draw the row; law = the map's parameters, in order."""
        assert self.kernel.drawn is not None
        values = {p.name: value for p, value in zip(self.kernel.parameters, law, strict=True)}
        tokens = normal(jax.random.fold_in(key, 0), (rows, self.length, self.token), dtype)
        shared = normal(jax.random.fold_in(key, 1), (rows, self.row), dtype)
        return TokenBlock(
            self.kernel.drawn.read(tokens, shared, **values), jnp.zeros(self.length, dtype)
        )


@dataclass(frozen=True)
class RotaryTokens(Source):
    """Scores of one query with keys at `length` distances before it.

    `form` is "rope" (keys are drawn), "coca" (t is drawn; by the definition) or "slack"; `turning`
    planes of each vector turn. With `shared` the same key stands at every distance, as if it were
    moved. Positions and angles are given to the program, which is one for all of them.
    """

    form: str
    pairing: str
    turning: int
    dim: int
    shared: bool = False

    @property
    def width(self) -> int:
        """Random numbers of a token, at most."""
        return self.dim

    def __call__(self, key: jax.Array, number: Any, rows: int, dtype: str, law: Any) -> TokenBlock:
        """Draw, rotate and multiply.

        law = (q [d], mean [d] or center, spread, β to add, turns of the query and of the keys).
        """
        query, mean, spread, beta, *at = law
        width = self.dim if self.form == "rope" else self.dim // 2
        shape = (rows, 1 if self.shared else self.length, width)
        drawn = mean + spread * normal(key, shape, dtype)
        drawn = jnp.broadcast_to(drawn, (rows, self.length, width))
        if self.form != "rope":
            drawn = jnp.maximum(drawn, 0)
        # Of θ only how many there are is asked: the angles are in the turns.
        options: Any = {"theta": np.empty(self.turning), "m": Turns(*at[:2]), "n": Turns(*at[2:])}
        scores = _ROTARY_FORMS[self.form](query[None, :], drawn, self.pairing, **options)
        return TokenBlock(beta + scores[..., 0, :], 0.0)


def rotary_tokens(
    step: Rope | Coca,
    distances: Any,
    length: int | None,
    *,
    beta: float = 0.0,
    shared: bool = False,
) -> tuple[RotaryTokens, tuple[Any, ...]]:
    """Return the source of rotary scores, and the numbers of its law.

    Args:
        step: whose query, key law and pairing to draw from.
        distances: m, whole numbers ≥ 0.
        length: of the row, which a dynamic scaling goes by.
        beta: added to every score.
        shared: one key for all distances.
    """
    distances = tuple(int(m) for m in distances)
    position, form, mean = max(distances), "rope", getattr(step, "mean", None)
    if isinstance(step, Coca):
        form, mean = "coca", step.center
        if step.slack_at is not None:
            position, form = step.slack_at, "slack"
            if position < max(distances):
                fix = f"the key at distance {max(distances)} would come before the first position"
                raise InputError("slack_at", position, fix)
    theta, dim = step.theta(length), step.query.size
    source = RotaryTokens(len(distances), form, step.pairing, len(theta), dim, shared)
    # Positions are absolute, so that the rotation itself is what is tested.
    places = [position], position - np.asarray(distances)
    at = (x for place in places for x in turns(place, theta, dim // 2))
    return source, (step.query, mean, step.spread, beta, *at)


@dataclass(frozen=True)
class _RotaryMoments:
    """A sampler of mean and mean square of the score at every distance."""

    source: RotaryTokens
    size: int
    dtype: str

    @property
    def numbers(self) -> int:
        """Random numbers in a batch."""
        return self.size * self.source.length * self.source.width

    def __call__(self, key: jax.Array, arguments: Any) -> jax.Array:
        """Draw one batch; arguments = those of the source."""
        drawn = self.source(key, 0, self.size, self.dtype, arguments).scores
        drawn = jax.lax.optimization_barrier(drawn)  # else XLA draws anew for each row
        return jnp.stack([drawn.mean(0), (drawn * drawn).mean(0), drawn.max(0)])


class RotaryScores(NamedTuple):
    """Mean and standard deviation of the score at each distance, with standard errors."""

    beta: np.ndarray
    beta_stderr: np.ndarray
    gamma: np.ndarray
    gamma_stderr: np.ndarray
    samples: int


def rotary_scores(
    step: Rope | Coca, distances: Any, sampling: Sampling, chunks: int = 4
) -> RotaryScores:
    """Return mean and standard deviation of the score, by rotating random keys.

    Args:
        step: whose query, key law and pairing to draw from.
        distances: m, whole numbers ≥ 0.
        sampling: seed and dtype are taken from it.
        chunks: of 32 batches each.
    """
    source, law = rotary_tokens(step, distances, None, shared=True)
    size = max(8, _ROTARY_NUMBERS // (source.length * source.width))
    sampler = _RotaryMoments(source, size, sampling.real.name)
    arguments = tuple(np.asarray(x, dtype=sampling.real) for x in law)
    batches = collect(sampler, arguments, seed=sampling.seed, first=0, chunks=chunks)
    mean, square = batches[:, 0], batches[:, 1]
    beta = mean.mean(axis=0)
    variance = square.mean(axis=0) - beta**2
    about = square - 2 * beta * mean + beta**2  # mean of (s − β̂)² in each batch
    # The error of γ̂ = √v̂ is that of v̂ over 2γ̂, by the delta method.
    root, gamma = np.sqrt(len(batches)), np.sqrt(variance)
    return RotaryScores(
        beta,
        mean.std(axis=0, ddof=1) / root,
        gamma,
        about.std(axis=0, ddof=1) / root / (2 * gamma),
        chunks * CHUNK * sampler.size,
    )
