"""Rows of a row law by Monte Carlo: whole rows, every token drawn from its own law.

Theory and sampling share the kernel's definition, the row law and the metric. Keys on a sphere are
drawn as such, normalised Gaussian vectors in R^d, and their scores are dot products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sparsity import kernels
from sparsity.errors import InputError
from sparsity.kernels import Kernel, Law
from sparsity.kernels.lowering import jax_log_abs, numpy_log_abs
from sparsity.montecarlo.batches import summary
from sparsity.montecarlo.normals import normal
from sparsity.montecarlo.running import Sampling, conclude, run
from sparsity.results import Estimate
from sparsity.rows.steps import RowLaw

__all__ = ["QUANTITIES", "RowSampler", "RowSamples", "sample_rows"]

_NUMBERS = 2**16  # random numbers in a batch
_MOST = 2**24  # of one row
# Exponents of the sampler's moments whose product is each quantity.
_POWERS: dict[str, tuple[float, ...]] = {
    "n_eff": (1, 0, 0, -1, 0, 0, 0),
    "participation": (0, 1, 0, 0, -1, 0, 0),
    "sink_mass": (0, 0, 1, 0, -1, 0, 0),
    "S": (0, 0, 0, 0, 0, 1, -0.5),
}
QUANTITIES = tuple(_POWERS)


@dataclass(frozen=True)
class RowSampler:
    """Whole rows of tokens, each with its own β_j, γ_j and w_j, beside units.

    Moments: n_eff, Σp_j² and the sinks' mass of each row (0 for one without weights), whether a
    token is nonzero, whether anything is, then |a| and a² pooled over rows and tokens.
    """

    kernel: Kernel
    length: int
    dim: int
    size: int
    dtype: str

    @property
    def numbers(self) -> int:
        """Random numbers held at once."""
        return self.size * self.length * max(self.dim, 1)

    def _standard(self, key: jax.Array) -> jax.Array:
        """Standardised scores, [rows, n]: normal, or √d times a random direction's first entry."""
        if not self.dim:
            return normal(key, (self.size, self.length), self.dtype)
        k = normal(key, (self.size, self.length, self.dim), self.dtype)
        k = k / jnp.sqrt((k * k).sum(axis=-1, keepdims=True))
        query = jnp.zeros(self.dim, self.dtype).at[0].set(1)
        return self.dim**0.5 * (k @ query)

    def __call__(self, key: jax.Array, arguments: Any) -> jax.Array:
        """Draw one batch; arguments = (β, γ, log w, is a sink: [n] each, log unit, log scale)."""
        beta, gamma, log_w, sink, log_unit, log_scale = arguments
        log_a = jax_log_abs(self.kernel)(beta + gamma * self._standard(key)) + log_w
        pooled = jnp.exp(log_a - log_scale)
        highest = log_a.max(axis=1)
        seen = jnp.isfinite(highest)
        peak = jnp.where(seen, highest, 0)
        a = jnp.exp(log_a - peak[:, None])
        l1, l2 = a.sum(axis=1), (a * a).sum(axis=1)
        n_eff = jnp.where(seen, l1 * l1 / jnp.where(seen, l2, 1), 0)
        # With units the common scale is the larger of the two, and no row is empty.
        scale = jnp.maximum(highest, log_unit)
        live = jnp.isfinite(scale)
        shrink = jnp.where(seen, jnp.exp(peak - jnp.where(live, scale, 0)), 0)
        unit = jnp.where(live, jnp.exp(log_unit - jnp.where(live, scale, 0)), 0)
        whole = jnp.where(live, l1 * shrink + unit, 1)
        return summary(
            n_eff,
            l2 * shrink**2 / whole**2,
            ((a * sink).sum(axis=1) * shrink + unit) / whole,
            seen.astype(self.dtype),
            live.astype(self.dtype),
            pooled.mean(axis=1),
            (pooled * pooled).mean(axis=1),
        )


class RowSamples(NamedTuple):
    """Averages over sampled rows.

    Args:
        n_eff: mean of (Σ|a|)²/Σa² over rows with a nonzero token; units do not enter.
        participation: mean of Σp_j² over tokens, p_j = |a_j|/(Σ|a| + units).
        sink_mass: mean share of the sinks and units; None where there is none.
        S: of the moments pooled over rows and tokens, the limit form.
    """

    n_eff: Estimate
    participation: Estimate
    sink_mass: Estimate | None
    S: Estimate


def sample_rows(
    kernel: str | Kernel,
    law: RowLaw,
    length: int,
    sampling: Sampling,
    quantity: str = "n_eff",
) -> RowSamples:
    """Sample whole rows of a row law.

    Args:
        kernel: a built-in kernel's name, or any `Kernel` of Law.SCORE.
        law: the row law.
        length: n ≥ 1.
        sampling: the settings; samples are rows.
        quantity: what `sampling.rel_error` is meant for, one of `QUANTITIES`.

    Raises:
        InputError: a value outside its domain, or rows too long to hold.
    """
    kernel, real = kernels.named(kernel), sampling.real
    if kernel.law is not Law.SCORE:
        raise InputError("kernel", kernel.name, "needs a kernel that is a function of the score")
    if quantity not in QUANTITIES:
        raise InputError("quantity", quantity, f"choose one of {', '.join(QUANTITIES)}")
    tokens = law.tokens(length)
    n, dim = int(tokens.count.sum()), tokens.dim or 0
    row = n * max(dim, 1)
    if row > _MOST:
        raise InputError("length", length, f"a row of {row:.3g} numbers does not fit; shorten it")
    times = tokens.count.astype(np.int64)
    beta, gamma, w, sink = (
        np.repeat(x, times) for x in (tokens.beta, tokens.gamma, tokens.w, tokens.sink)
    )
    if quantity == "sink_mass" and not (sink.any() or tokens.units):
        raise InputError("law", law, "has no sink; add a Unit or a Sink")
    with np.errstate(divide="ignore"):
        log_w = np.log(w)
        log_scale = np.max(numpy_log_abs(kernel)(beta + 2 * gamma) + log_w)
        log_unit = np.logaddexp.reduce(tokens.units) if tokens.units else -np.inf
    log_scale = log_scale if np.isfinite(log_scale) else 0.0
    parts = (beta, gamma, log_w, sink, log_unit, log_scale)
    sampler = RowSampler(kernel, n, dim, max(1, _NUMBERS // row), real.name)
    arguments = tuple(np.asarray(x, dtype=real) for x in parts)
    done = run(sampler, arguments, _POWERS[quantity], sampling)
    method = "rows-sphere" if dim else "rows-law"
    found = {
        name: conclude(done, powers, method=method, sampling=sampling)
        for name, powers in _POWERS.items()
        if name != "sink_mass" or sink.any() or tokens.units
    }
    return RowSamples(found["n_eff"], found["participation"], found.get("sink_mass"), found["S"])
