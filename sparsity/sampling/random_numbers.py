"""Normals from a key of `jax.random`, whose tails are not cut short."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

IMPL = "threefry2x32"  # a cipher of a counter: batch 10⁶ costs no more than batch 0

# Giles, "Approximating the erfinv function" (2012), single precision, in w = −log(1 − x²).
_ERFINV_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_ERFINV_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


def _polynomial(coefficients: tuple[float, ...], x: jax.Array) -> jax.Array:
    value = jnp.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        value = c + value * x
    return value


def normal(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Draw independent standard normals whose tails are not cut short.

    `jax.random.normal` in float32 ends at about −5.4 and 5.2, so moments that live in the tail come
    out too small, however many samples are drawn. Here each draw's tail probability is itself a
    float, exact near zero, so float32 draws reach ±6.3; the probability beyond is below 3e−10.

    Args:
        key: a key.
        shape: the shape of the result.
        dtype: float32, from one 32-bit word a draw; or float64, which is JAX's own, |z| ≤ 8.2.
    """
    if jnp.dtype(dtype) != jnp.float32:
        return jax.random.normal(key, shape, dtype)
    words = jax.random.bits(key, shape, "uint32")
    # The two-sided tail, in (0, 1], and the sign. SciPy's `ndtri` in JAX takes twice as long.
    p = ((words >> 1).astype(jnp.float32) + 0.5) * jnp.float32(2.0**-31)
    w = -jnp.log(p * (2 - p))  # without the cancellation of 1 − x², x = 1 − p
    centre, tail = _polynomial(_ERFINV_CENTRE, w - 2.5), _polynomial(_ERFINV_TAIL, jnp.sqrt(w) - 3)
    magnitude = jnp.where(w < 5, centre, tail) * (1 - p) * jnp.float32(2.0**0.5)
    return jnp.where(words & 1, magnitude, -magnitude)
