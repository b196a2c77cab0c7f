"""RoPE and CoCA by Monte Carlo from first principles: draw keys or t, rotate them, take products.

Nothing is shared with the steps but the rotation itself: no β_m, no γ_m, no coefficient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sparsity.errors import InputError
from sparsity.rows import rotary
from sparsity.rows.steps import Coca, Rope
from sparsity.sampling.batches import CHUNK, collect
from sparsity.sampling.normals import normal
from sparsity.sampling.running import Sampling
from sparsity.sampling.sources import Block

_NUMBERS = 2**16  # random numbers in a batch: fits a core's cache


@dataclass(frozen=True)
class Rotated:
    """Scores of one query at `position` with keys `distances` before it.

    `form` is "rope" (keys are drawn), "coca" (t is drawn; by the definition) or "slack". With
    `shared` the same key stands at every distance, as if it were moved.
    """

    form: str
    pairing: str
    theta: tuple[float, ...]
    position: int
    distances: tuple[int, ...]
    dim: int
    shared: bool = False

    @property
    def length(self) -> int:
        """Tokens of a row."""
        return len(self.distances)

    @property
    def block(self) -> int:
        """The whole row."""
        return len(self.distances)

    @property
    def width(self) -> int:
        """Random numbers of a token, at most."""
        return self.dim

    def __call__(self, key: jax.Array, number: Any, rows: int, dtype: str, law: Any) -> Block:
        """Draw, rotate, multiply; law = (q [d], mean [d] or center, spread, β to add)."""
        query, mean, spread, beta = law
        keys = self.position - np.asarray(self.distances)
        width = self.dim if self.form == "rope" else self.dim // 2
        shape = (rows, 1 if self.shared else len(keys), width)
        drawn = mean + spread * normal(key, shape, dtype)
        drawn = jnp.broadcast_to(drawn, (rows, len(keys), width))
        options: Any = {"theta": self.theta, "m": [self.position], "n": keys}
        form = {
            "rope": rotary.rope_scores,
            "coca": rotary.coca_by_definition,
            "slack": rotary.slack_scores,
        }[self.form]
        if self.form != "rope":
            drawn = jnp.maximum(drawn, 0)
        return Block(beta + form(query[None, :], drawn, self.pairing, **options)[..., 0, :], 0.0)


def rotated(
    step: Rope | Coca, distances: Any, *, beta: float = 0.0, shared: bool = False
) -> tuple[Rotated, tuple[Any, ...]]:
    """The source of rotary scores, and the numbers of its law.

    Args:
        step: whose query, key law and pairing to draw from.
        distances: m, whole numbers ≥ 0.
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
    theta = tuple(step.theta(max(distances) + 1).tolist())
    dim = step.query.size
    source = Rotated(form, step.pairing, theta, position, distances, dim, shared)
    return source, (step.query, mean, step.spread, beta)


@dataclass(frozen=True)
class RotaryMoments:
    """Mean and mean square of the score at every distance."""

    source: Rotated
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


class Scores(NamedTuple):
    """Mean and standard deviation of the score at each distance, with standard errors."""

    beta: np.ndarray
    beta_stderr: np.ndarray
    gamma: np.ndarray
    gamma_stderr: np.ndarray
    samples: int


def scores(step: Rope | Coca, distances: Any, sampling: Sampling, chunks: int = 4) -> Scores:
    """Mean and standard deviation of the score by rotating random keys.

    Args:
        step: whose query, key law and pairing to draw from.
        distances: m, whole numbers ≥ 0.
        sampling: seed and dtype are taken from it.
        chunks: of 32 batches each.
    """
    source, law = rotated(step, distances, shared=True)
    size = max(8, _NUMBERS // (source.length * source.width))
    sampler = RotaryMoments(source, size, sampling.real.name)
    arguments = tuple(np.asarray(x, dtype=sampling.real) for x in law)
    batches = collect(sampler, arguments, seed=sampling.seed, first=0, chunks=chunks)
    mean, square = batches[:, 0], batches[:, 1]
    beta = mean.mean(axis=0)
    variance = square.mean(axis=0) - beta**2
    about = square - 2 * beta * mean + beta**2  # mean of (s − β̂)² in each batch
    root, gamma = np.sqrt(len(batches)), np.sqrt(variance)
    return Scores(
        beta,
        mean.std(axis=0, ddof=1) / root,
        gamma,
        about.std(axis=0, ddof=1) / root / (2 * gamma),
        chunks * CHUNK * sampler.size,
    )
