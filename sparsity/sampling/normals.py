"""Standard normals whose tails are not cut short.

`jax.random.normal` in float32 ends at about −5.4 and 5.2: moments that live in the tail come out
too small, however many samples are drawn. Here a draw's tail probability is itself a float, exact
near zero, so float32 draws reach ±6.3; what lies beyond has a probability below 3e−10.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sparsity.sampling.threefry import bits

# Giles, "Approximating the erfinv function" (2012), single precision, in w = −log(1 − x²).
_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


def _polynomial(coefficients: tuple[float, ...], x: jax.Array) -> jax.Array:
    value = jnp.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        value = c + value * x
    return value


def normal(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Independent N(0, 1) draws.

    Args:
        key: a JAX random key.
        shape: of the draws.
        dtype: float32, from one 32-bit word a draw, |z| ≤ 6.3; or float64, JAX's own, |z| ≤ 8.2.
    """
    if jnp.dtype(dtype) != jnp.float32:
        return jax.random.normal(key, shape, dtype)
    word = bits(key, shape)
    p = ((word >> 1).astype(jnp.float32) + 0.5) * jnp.float32(2.0**-31)  # two-sided tail, in (0, 1]
    w = -jnp.log(p * (2 - p))  # without the cancellation of 1 − x², x = 1 − p
    size = jnp.where(w < 5, _polynomial(_CENTRE, w - 2.5), _polynomial(_TAIL, jnp.sqrt(w) - 3))
    magnitude = size * (1 - p) * jnp.float32(2.0**0.5)
    return jnp.where(word & 1, magnitude, -magnitude)
