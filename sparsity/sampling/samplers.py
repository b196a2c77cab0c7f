"""The samplers of long rows: each a frozen record that draws one batch from a key.

They share the kernel's definition and nothing else with the theory: no moment, no closed form.
Parameters arrive as traced arguments, so each kernel and shape compiles once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from sparsity.errors import InputError
from sparsity.kernels import Kernel, Law
from sparsity.kernels.lowering import jax_log_abs, jax_weight
from sparsity.sampling.batches import summary, summary_of_products
from sparsity.sampling.proposals import Table
from sparsity.sampling.random_numbers import normal

LONGEST = 10**8  # tokens of a row, and entries of a key, that can be sampled whole
_WIDEST = 1e100  # a score whose square float64 holds
_HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)
# One draw in eight comes from the base law itself. The mixture is then at least an eighth of it, so
# that no draw counts more than 8|f|^p, whatever the table missed. The price is that the other law
# is drawn 7/8 as often: the second moment of a draw rises by no more than 8/7.
_DEFENSIVE = 8


def keys_at(
    beta: float, gamma: float, dim: int, seed: int, queries: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Return orthogonal queries q and a mean μ of keys with q·μ = β and ‖q‖ = γ for each.

    Directions are random; where queries < d, μ also has a part across them, on which S must not
    depend. Orthogonal queries have independent scores of one key, so that pooling them is as good
    as more keys.

    Returns:
        q, [queries, d], and μ, [d].
    """
    if dim > LONGEST:
        raise InputError("dim", dim, f"must be <= {LONGEST:.0e} to be sampled whole")
    for name, size in (("beta", abs(beta)), ("gamma", gamma), ("beta/gamma", abs(beta / gamma))):
        if not size <= _WIDEST:
            raise InputError(name, size, f"must be <= {_WIDEST:.0e} for whole keys to be drawn")
    # Orthogonal directions by QR; then the part of μ along each is moved to β/γ. NumPy draws them,
    # not a batch's key: directions belong to the law that all batches sample.
    rng = np.random.default_rng([seed, dim])
    q = np.linalg.qr(rng.standard_normal((dim, queries)))[0].T
    mu = rng.standard_normal(dim)
    mu += q.T @ (beta / gamma - q @ mu)
    return q * gamma, mu


def _base_quantile(kernel: Kernel, u: jax.Array, parameters: Any) -> jax.Array:
    """Return the base law's quantile: N(0, 1) for scores, uniform on 0…n−1 for distances."""
    if kernel.law is Law.SCORE:
        return ndtri(jnp.clip(u, jnp.finfo(u.dtype).tiny, 1 - jnp.finfo(u.dtype).epsneg))
    length = parameters[-1]
    return jnp.minimum(jnp.floor(u * length), length - 1)


def _cells_of(edges: Any, values: jax.Array) -> jax.Array:
    """Return the cell that each value falls in; what lies beyond the edges is in the end cells."""
    return jnp.searchsorted(edges[1:-1], values, side="right")


@dataclass(frozen=True)
class _ScalarSampler:
    """A sampler of one coordinate: the score β + γt of a key, or its distance."""

    kernel: Kernel
    size: int
    dtype: str

    @property
    def numbers(self) -> int:
        """Random numbers in a batch."""
        return self.size


@dataclass(frozen=True)
class Plain(_ScalarSampler):
    """Scalar draws from the base law itself, unweighted: right only where f is tame."""

    def __call__(self, key: jax.Array, arguments: Any) -> jax.Array:
        """Draw one batch; arguments = (parameters, log scale of |a|)."""
        parameters, log_scale = arguments
        if self.kernel.law is Law.SCORE:
            beta, gamma = parameters
            weight = jax_weight(self.kernel)(beta + gamma * normal(key, (self.size,), self.dtype))
        else:
            u = jax.random.uniform(key, (self.size,), self.dtype)
            distance = _base_quantile(self.kernel, u, parameters)
            weight = jax_weight(self.kernel)(distance, *parameters)
        a = jnp.abs(weight) * jnp.exp(-log_scale)  # near one, so that squares do not overflow
        return summary(a, a * a)


@dataclass(frozen=True)
class Stratified(_ScalarSampler):
    """Scalar draws, one per stratum of a mixture of laws near |f|φ and f²φ with the base law.

    With h the table's density for a moment, Z its mass and m the density of the mixture, a draw
    counts as Z + (|f|^p φ − Z h)/m: the table is a control variate, whose mean is known, and only
    what it misses is noise. Moments are in units of Z. In one dimension one uniform a stratum is
    randomised quasi-Monte Carlo, a scrambled net: its error falls like size^(−3/2) for a smooth
    integrand, which changes within a stratum by the order of its width.

    The mixture is stratified too: which draws are of which law is fixed, not drawn, and each draw
    of either is weighted with the density m of both together (the balance heuristic), which leaves
    the mean over both sets unbiased.

    Source: Owen and Zhou, "Safe and effective importance sampling" (2000).
    """

    def __call__(self, key: jax.Array, arguments: Any) -> jax.Array:
        """Draw one batch; arguments = (parameters, table)."""
        parameters: Any
        table: Table
        parameters, table = arguments
        # Strata: `near` of the table's law, and after them `defensive` of the base law.
        v = jax.random.uniform(key, (self.size,), self.dtype)
        defensive = self.size // _DEFENSIVE
        near = self.size - defensive
        u = (jnp.arange(near) + v[:near]) / near
        base = _base_quantile(
            self.kernel, (jnp.arange(defensive) + v[near:]) / defensive, parameters
        )

        # Both ends of each draw's cell, gathered at once: position, cumulative probability, and the
        # densities to draw from and of the two laws.
        cell = jnp.concatenate([_cells_of(table.cumulative, u), _cells_of(table.edges, base)])
        known = jnp.stack([
            table.edges[:-1], table.edges[1:], table.cumulative[:-1], table.cumulative[1:],
            *table.drawn, *table.heights.reshape(4, -1),
        ])  # fmt: skip
        left, right, below, above, *ends = known[:, cell]

        # Within its cell a draw is the quantile of a linear density from a to b, a root of the
        # quadratic a x + (b − a)x²/2 = u(a + b)/2 on [0, 1]: here without the cancellation of
        # √(a² + (b²−a²)u) − a, and without a division by b − a = 0.
        share = jnp.clip((u - below[:near]) / (above - below)[:near], 0, 1)
        a, b = ends[0][:near], ends[1][:near]
        width = (right - left)[:near]
        offset = width * share * (a + b) / (a + jnp.sqrt(a * a + (b * b - a * a) * share))
        if self.kernel.law is Law.POSITION:
            offset = jnp.minimum(jnp.floor(offset), jnp.maximum(width - 1, 0))

        # Densities at all draws, near and defensive alike, as every draw is weighted with both
        # laws; the table's are 0 where a draw of the base law is beyond it.
        x = jnp.concatenate([left[:near] + offset, base])
        within = (base >= table.edges[0]) & (base < table.edges[-1])
        inside = jnp.concatenate([jnp.ones(near, bool), within])
        # Cells about a jump of f have no width in float32: a draw there is at their left end, where
        # the density to draw from is so high that it counts as Z alone.
        cell_width = right - left
        along = jnp.where(cell_width > 0, (x - left) / cell_width, 0)
        drawn, *h = (
            jnp.where(inside, low + (high - low) * along, 0)
            for low, high in zip(ends[::2], ends[1::2], strict=True)
        )
        of_score = self.kernel.law is Law.SCORE
        log_base = -x * x / 2 - _HALF_LOG_2PI
        if not of_score:
            log_base = jnp.full_like(x, -1.0) * jnp.log(parameters[-1])
        mixture = (near * drawn + defensive * jnp.exp(log_base)) / self.size
        at = (parameters[0] + parameters[1] * x,) if of_score else (x, *parameters)
        log_a = jax_log_abs(self.kernel)(*at)
        log_target = jnp.stack([log_a, 2 * log_a]) + log_base - table.log_mass[:, None]
        # In units of Z: 1 + (|f|^p φ/Z − h)/m.
        return summary(*(1 + (jnp.exp(log_target) - jnp.stack(h)) / mixture))


@dataclass(frozen=True)
class _KeySampler:
    """A sampler of whole keys in R^dim."""

    kernel: Kernel
    dim: int
    size: int
    dtype: str

    @property
    def numbers(self) -> int:
        """Random numbers in a batch."""
        return self.size * self.dim


@dataclass(frozen=True)
class FullKeys(_KeySampler):
    """Whole keys k ∈ R^d and their scores q·k by the dot product: no reduction to a scalar.

    For query q the key is k ~ N(μ + θσ²q, σ²I), weighted by the ratio of the two d-dimensional
    densities; all queries of a batch share the noise of their keys.
    """

    def __call__(self, key: jax.Array, arguments: Any) -> jax.Array:
        """Draw one batch; arguments = (q [queries, d], μ [d], σ, θ, log scale of |a|)."""
        q, mu, sigma, theta, log_scale = arguments
        noise = normal(key, (self.size, self.dim), self.dtype)
        along = noise @ q.T  # q·ε of k = μ + θσ²q + σε, [size, queries]
        tilt, norm2 = theta * sigma, (q * q).sum(axis=1)
        # log of N(k; μ, σ²I) / N(k; μ + θσ²q, σ²I), which depends on q·ε alone.
        log_ratio = -tilt * (along + tilt * norm2 / 2)
        scores = q @ mu + sigma * (along + tilt * norm2)
        log_a = jax_log_abs(self.kernel)(scores) - log_scale
        return summary_of_products(jnp.exp(log_a + log_ratio), jnp.exp(2 * log_a + log_ratio))


@dataclass(frozen=True)
class Features(_KeySampler):
    """Whole keys through a nonnegative feature map: a = q̃·h(k), k ~ N(center, spread²) per entry.

    The f of `kernel` is the feature map h.
    """

    def __call__(self, key: jax.Array, arguments: Any) -> jax.Array:
        """Draw one batch; arguments = (q̃ [d], center, spread); [d] and [d, d] of mixed features."""
        query, center, spread = arguments
        noise = normal(key, (self.size, self.dim), self.dtype)
        moved = noise @ spread.T if spread.ndim == 2 else spread * noise
        a = jax_weight(self.kernel)(center + moved) @ query
        return summary(a, a * a)
