"""The samplers: each a frozen record, called with a key and its arguments, drawing one batch.

They share the kernel's definition and nothing else with the theory: no moment, no closed form.
Parameters arrive as traced arguments, so each kernel and shape compiles once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from sparsity.kernels import Kernel, Law
from sparsity.kernels.lowering import jax_log_abs, jax_weight
from sparsity.sampling.batches import summary
from sparsity.sampling.normals import normal
from sparsity.sampling.proposals import Table
from sparsity.sampling.threefry import uniform

_HALF_LOG_2PI = 0.5 * np.log(2 * np.pi)
_DEFENSIVE = 8  # one draw in eight comes from the base law itself


def _log_abs(kernel: Kernel, x: jax.Array, parameters: Any) -> jax.Array:
    """log|a| at the drawn coordinate: t of a score β + γt, or the distance n − j of a position."""
    if kernel.law is Law.SCORE:
        beta, gamma = parameters
        return jax_log_abs(kernel)(beta + gamma * x)
    return jax_log_abs(kernel)(x, *parameters)


def _base(kernel: Kernel, u: jax.Array, parameters: Any) -> jax.Array:
    """The base law's quantile: N(0, 1) for scores, uniform on 0…n−1 for distances."""
    if kernel.law is Law.SCORE:
        return ndtri(jnp.clip(u, jnp.finfo(u.dtype).tiny, 1 - jnp.finfo(u.dtype).epsneg))
    length = parameters[-1]
    return jnp.minimum(jnp.floor(u * length), length - 1)


def _log_base(kernel: Kernel, x: jax.Array, parameters: Any) -> jax.Array:
    if kernel.law is Law.SCORE:
        return -x * x / 2 - _HALF_LOG_2PI
    return jnp.full_like(x, -1.0) * jnp.log(parameters[-1])


def _ends(at_edges: Any) -> tuple[Any, Any]:
    """The values at the left end of each cell and at its right end."""
    return at_edges[:-1], at_edges[1:]


def _cells_of(table: Table, u: jax.Array, base: jax.Array) -> jax.Array:
    """The cell that each probability u falls in, then the cell of each coordinate.

    What lies below the first edge is in the first cell, what lies above the last in the last. Both
    ordered arrays are searched at once, which takes half the steps of two searches.
    """
    cells = len(table.edges) - 1
    both, wanted = (jnp.concatenate(x) for x in ((table.cumulative, table.edges), (u, base)))
    first = np.repeat(np.array([0, cells + 1], np.int32), [len(u), len(base)])  # 64 bits: slower

    def halve(_: Any, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = (low + high) // 2
        right = both[first + middle] <= wanted
        return jnp.where(right, middle, low), jnp.where(right, high, middle)

    steps = math.ceil(math.log2(cells))
    return jax.lax.fori_loop(0, steps, halve, (first * 0, first * 0 + cells))[0]


@dataclass(frozen=True)
class Plain:
    """Scalar draws from the base law itself, unweighted: right only where f is tame."""

    kernel: Kernel
    size: int
    dtype: str

    @property
    def numbers(self) -> int:
        """Random numbers in a batch."""
        return self.size

    def __call__(self, key: jax.Array, arguments: Any) -> jax.Array:
        """Draw one batch; arguments = (parameters, log scale of |a|)."""
        parameters, log_scale = arguments
        if self.kernel.law is Law.SCORE:
            beta, gamma = parameters
            weight = jax_weight(self.kernel)(beta + gamma * normal(key, (self.size,), self.dtype))
        else:
            u = uniform(key, (self.size,), self.dtype)
            weight = jax_weight(self.kernel)(_base(self.kernel, u, parameters), *parameters)
        a = jnp.abs(weight) * jnp.exp(-log_scale)
        return summary(a, a * a)


@dataclass(frozen=True)
class Stratified:
    """Scalar draws, one per stratum of a mixture of laws near |f|φ and f²φ with the base law.

    With h the table's density for a moment, Z its mass and m the density of the mixture, a draw
    counts as Z + (|f|^p φ − Z h)/m: the table is a control variate, whose mean is known, and only
    what it misses is noise. Moments are in units of Z. In one dimension one uniform a stratum is
    randomised quasi-Monte Carlo: a scrambled net.

    Source: Owen and Zhou, "Safe and effective importance sampling" (2000).
    """

    kernel: Kernel
    size: int
    dtype: str

    @property
    def numbers(self) -> int:
        """Random numbers in a batch."""
        return self.size

    def __call__(self, key: jax.Array, arguments: Any) -> jax.Array:
        """Draw one batch; arguments = (parameters, table)."""
        law: Any
        table: Table
        law, table = arguments
        v = uniform(key, (self.size,), self.dtype)
        defensive = self.size // _DEFENSIVE
        near = self.size - defensive
        u = (jnp.arange(near) + v[:near]) / near
        base = _base(self.kernel, (jnp.arange(defensive) + v[near:]) / defensive, law)
        cell = _cells_of(table, u, base)
        known = jnp.stack([*_ends(table.edges), *_ends(table.cumulative), *table.drawn,
                           *table.heights.reshape(4, -1)])  # fmt: skip
        left, right, below, above, *ends = known[:, cell]

        share = jnp.clip((u - below[:near]) / (above - below)[:near], 0, 1)
        a, b = ends[0][:near], ends[1][:near]
        width = (right - left)[:near]
        # The quantile of a linear density, without the cancellation of √(a² + (b²−a²)u) − a.
        offset = width * share * (a + b) / (a + jnp.sqrt(a * a + (b * b - a * a) * share))
        if self.kernel.law is Law.POSITION:
            offset = jnp.minimum(jnp.floor(offset), jnp.maximum(width - 1, 0))

        x = jnp.concatenate([left[:near] + offset, base])
        within = (base >= table.edges[0]) & (base < table.edges[-1])
        inside = jnp.concatenate([jnp.ones(near, bool), within])
        along = (x - left) / (right - left)
        drawn, *h = (
            jnp.where(inside, low + (high - low) * along, 0)
            for low, high in zip(ends[::2], ends[1::2], strict=True)
        )
        log_base = _log_base(self.kernel, x, law)
        mixture = (near * drawn + defensive * jnp.exp(log_base)) / self.size
        log_a = _log_abs(self.kernel, x, law)
        log_target = jnp.stack([log_a, 2 * log_a]) + log_base - table.log_mass[:, None]
        return summary(*(1 + (jnp.exp(log_target) - jnp.stack(h)) / mixture))


@dataclass(frozen=True)
class FullKeys:
    """Whole keys k ∈ R^d and their scores q·k by the dot product: no reduction to a scalar.

    For query q the key is k ~ N(μ + θσ²q, σ²I), weighted by the ratio of the two d-dimensional
    densities; all queries of a batch share the noise of their keys.
    """

    kernel: Kernel
    dim: int
    size: int
    dtype: str

    @property
    def numbers(self) -> int:
        """Random numbers in a batch."""
        return self.size * self.dim

    def __call__(self, key: jax.Array, arguments: Any) -> jax.Array:
        """Draw one batch; arguments = (q [queries, d], μ [d], σ, θ, log scale of |a|)."""
        q, mu, sigma, theta, log_scale = arguments
        noise = normal(key, (self.size, self.dim), self.dtype)
        along = noise @ q.T  # q·ε of k = μ + θσ²q + σε, [size, queries]
        tilt, norm2 = theta * sigma, (q * q).sum(axis=1)
        log_ratio = -tilt * (along + tilt * norm2 / 2)
        scores = q @ mu + sigma * (along + tilt * norm2)
        log_a = jax_log_abs(self.kernel)(scores) - log_scale
        return summary(jnp.exp(log_a + log_ratio), jnp.exp(2 * log_a + log_ratio))


@dataclass(frozen=True)
class Features:
    """Whole keys through a nonnegative feature map: a = q̃·h(k), k ~ N(center, spread²) per entry.

    `feature` is the kernel whose f is the feature map h.
    """

    feature: Kernel
    dim: int
    size: int
    dtype: str

    @property
    def numbers(self) -> int:
        """Random numbers in a batch."""
        return self.size * self.dim

    def __call__(self, key: jax.Array, arguments: Any) -> jax.Array:
        """Draw one batch; arguments = (q̃ [d], center, spread)."""
        query, center, spread = arguments
        noise = normal(key, (self.size, self.dim), self.dtype)
        a = jax_weight(self.feature)(center + spread * noise) @ query
        return summary(a, a * a)
