"""RoPE and CoCA by Monte Carlo from first principles: draw keys or t, rotate them, take products.

Nothing is shared with the row laws but the rotation itself: no β_m, no γ_m, no coefficient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sparsity import kernels
from sparsity.finite.rotary_laws import Coca, Rope
from sparsity.kernels import Kernel
from sparsity.kernels.lowering import jax_log_abs
from sparsity.montecarlo import Sampling
from sparsity.montecarlo.batches import CHUNK, collect, summary
from sparsity.montecarlo.normals import normal
from sparsity.montecarlo.running import conclude, run
from sparsity.results import Estimate
from sparsity.rows import rotary

__all__ = ["Scores", "rows", "scores"]

_NUMBERS = 2**16  # random numbers in a batch: fits a core's cache


@dataclass(frozen=True)
class RotaryDraws:
    """Scores of one query at `position` with keys `distances` before it, [size, distances].

    `form` is "rope" (keys are drawn), "coca" (t is drawn; by the definition) or "slack".
    """

    form: str
    pairing: str
    base: float
    position: int
    distances: tuple[int, ...]
    dim: int
    size: int
    dtype: str
    shared: bool = False

    @property
    def numbers(self) -> int:
        """Random numbers in a batch."""
        return self.size * len(self.distances) * self.dim

    def scores(self, key: jax.Array, arguments: Any) -> jax.Array:
        """Draw, rotate, multiply; arguments = (q [d], mean [d] or center, spread).

        With `shared` the same key stands at every distance, as if it were moved.
        """
        query, mean, spread = arguments
        keys = self.position - np.asarray(self.distances)
        width = self.dim if self.form == "rope" else self.dim // 2
        drawn = (self.size, 1 if self.shared else len(keys), width)
        drawn = mean + spread * normal(key, drawn, self.dtype)
        drawn = jnp.broadcast_to(drawn, (self.size, len(keys), width))
        options: Any = {"base": self.base, "m": [self.position], "n": keys}
        form = {
            "rope": rotary.rope_scores,
            "coca": rotary.coca_by_definition,
            "slack": rotary.slack_scores,
        }[self.form]
        if self.form != "rope":
            drawn = jnp.maximum(drawn, 0)
        return form(query[None, :], drawn, self.pairing, **options)[..., 0, :]


@dataclass(frozen=True)
class RotaryMoments(RotaryDraws):
    """Mean and mean square of the score at every distance."""

    def __call__(self, key: jax.Array, arguments: Any) -> jax.Array:
        """Draw one batch."""
        s = self.scores(key, arguments)
        return summary(*s.T)


@dataclass(frozen=True)
class RotaryRows(RotaryDraws):
    """n_eff of whole rows of weights f(s), and whether the row is not all zero."""

    kernel: Kernel = kernels.exp

    def __call__(self, key: jax.Array, arguments: Any) -> jax.Array:
        """Draw one batch."""
        log_a = jax_log_abs(self.kernel)(self.scores(key, arguments))
        peak = log_a.max(axis=-1, keepdims=True)
        live = jnp.isfinite(peak[:, 0])
        a = jnp.exp(log_a - jnp.where(jnp.isfinite(peak), peak, 0))
        total = (a * a).sum(axis=-1)
        n_eff = jnp.where(live, a.sum(axis=-1) ** 2 / jnp.where(live, total, 1), 0)
        return summary(n_eff, live.astype(self.dtype))


def _setup(law: Rope | Coca, distances: Any, sampling: Sampling) -> tuple[dict[str, Any], Any]:
    distances, real = tuple(int(m) for m in distances), sampling.real
    position, form, mean = max(distances), "rope", getattr(law, "mean", None)
    if isinstance(law, Coca):
        form, mean = "coca", law.center
        if law.slack_at is not None:
            position, form = law.slack_at, "slack"
    dim = law.query.size
    fields = {
        "form": form,
        "pairing": law.pairing,
        "base": law.base,
        "position": position,
        "distances": distances,
        "dim": dim,
        "size": max(8, _NUMBERS // (len(distances) * dim)),
        "dtype": real.name,
    }
    arguments = tuple(np.asarray(x, dtype=real) for x in (law.query, mean, law.spread))
    return fields, arguments


def rows(
    law: Rope | Coca, length: int, sampling: Sampling, kernel: str | Kernel = "exp"
) -> Estimate:
    """n_eff of whole rows: one query, `length` random keys at the distances 0 … length − 1.

    Args:
        law: whose query, key law and pairing to draw from.
        length: n.
        sampling: the settings; samples are rows.
        kernel: of Law.SCORE.

    Returns:
        The estimate; its S field holds the mean of ‖a‖₁²/‖a‖₂² over nonzero rows.
    """
    fields, arguments = _setup(law, range(length), sampling)
    sampler = RotaryRows(**fields, kernel=kernels.named(kernel))
    done = run(sampler, arguments, (1.0, -1.0), sampling)
    return conclude(done, (1.0, -1.0), method=f"rows-{fields['form']}", sampling=sampling)


class Scores(NamedTuple):
    """Mean and standard deviation of the score at each distance, with standard errors."""

    beta: np.ndarray
    beta_stderr: np.ndarray
    gamma: np.ndarray
    gamma_stderr: np.ndarray
    samples: int


def scores(law: Rope | Coca, distances: Any, sampling: Sampling, chunks: int = 4) -> Scores:
    """Mean and standard deviation of the score by rotating random keys.

    Args:
        law: whose query, key law and pairing to draw from.
        distances: m, whole numbers ≥ 0.
        sampling: seed and dtype are taken from it.
        chunks: of 32 batches each.
    """
    fields, arguments = _setup(law, distances, sampling)
    sampler = RotaryMoments(**fields, shared=True)
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
