"""Keys for `jax.random`, quick on a CPU, and normals whose tails are not cut short.

Keys have the bits of JAX's own threefry. Its loop over rounds takes a CPU 1.3 times as long as the
rounds written out, normals included, and a program with it 0.1 s longer to compile.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import define_prng_impl

from sparsity.sampling.devices import runs_on_cpu

_THREEFRY = "threefry2x32"  # a cipher of a counter: batch 10⁶ costs no more than batch 0
_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)

# Giles, "Approximating the erfinv function" (2012), single precision, in w = −log(1 − x²).
_ERFINV_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_ERFINV_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


@jax.jit  # traced once for all programs: a quarter less time to trace and lower them
def _encrypted(key: Any, count: Any) -> tuple[Any, Any]:
    """Return what threefry makes of the words (0, count)."""
    parts = key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA
    high, low = parts[0], count + parts[1]
    for i in range(5):
        for bits in _ROTATIONS[i % 2]:
            high = high + low
            low = (low << bits | low >> (32 - bits)) ^ high
        high, low = high + parts[(i + 1) % 3], low + (parts[(i + 2) % 3] + np.uint32(i + 1))
    return high, low


def _words(
    key: jax.Array, width: int, shape: tuple[int, ...], use: Callable[..., Any] = lambda x: x
) -> jax.Array:
    """Draw words of so many bits, or what `use` makes of them.

    Half of them after the other: what a loop gives XLA does not compute anew for each of its uses.
    Each half has the key with it: what both share XLA would compute before the loop, by some ten
    kernels of one number, which two cores take twice the time to share out.
    """
    size = math.prod(shape)
    half = -(-size // 2)

    def part(given: tuple[jax.Array, jax.Array]) -> Any:
        first, words = given
        high, low = _encrypted(words, first + jax.lax.iota("uint32", half))
        wide = width == 64
        return use(high.astype("uint64") << 32 | low.astype("uint64") if wide else high ^ low)

    halves = jnp.array([0, half], "uint32"), jnp.stack([key, key])
    return jax.lax.map(part, halves).reshape(-1)[:size].reshape(shape)


@functools.cache
def _impl() -> Hashable:
    """Return how keys draw, for `jax.random`."""
    if not runs_on_cpu():
        return _THREEFRY

    return define_prng_impl(
        key_shape=(2,),
        seed=lambda seed: jnp.stack([jnp.uint32(0), jnp.uint32(seed)]),
        split=lambda key, shape: jnp.stack(
            _encrypted(key, jnp.arange(math.prod(shape), dtype="uint32").reshape(shape)), axis=-1
        ),
        random_bits=_words,
        fold_in=lambda key, number: jnp.stack(_encrypted(key, number)),
        name=_THREEFRY,
    )


def key_of(seed: Any) -> jax.Array:
    """Return the key of a seed, 0 … 2³²−1."""
    return jax.random.key(seed, impl=_impl())


def _polynomial(coefficients: tuple[float, ...], x: jax.Array) -> jax.Array:
    value = jnp.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        value = c + value * x
    return value


def normal_of(words: jax.Array) -> jax.Array:
    """Return the normal of each word of 32 or 64 bits."""
    if words.dtype == jnp.uint64:  # as `jax.random.normal` does
        unit = jax.lax.bitcast_convert_type(words >> 12 | np.float64(1).view("uint64"), "float64")
        least = np.nextafter(-1.0, 0.0)
        unit = jnp.maximum((unit - 1) * (1 - least) + least, least)
        return np.sqrt(2.0) * jax.lax.erf_inv(unit)
    # The two-sided tail, in (0, 1], and the sign. SciPy's `ndtri` in JAX takes twice as long.
    p = ((words >> 1).astype(jnp.float32) + 0.5) * jnp.float32(2.0**-31)
    w = -jnp.log(p * (2 - p))  # without the cancellation of 1 − x², x = 1 − p
    centre, tail = _polynomial(_ERFINV_CENTRE, w - 2.5), _polynomial(_ERFINV_TAIL, jnp.sqrt(w) - 3)
    magnitude = jnp.where(w < 5, centre, tail) * (1 - p) * jnp.float32(2.0**0.5)
    return jnp.where(words & 1, magnitude, -magnitude)


def words_of_normals(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Draw the words that `normal` has its normals of."""
    return jax.random.bits(key, shape, f"uint{jnp.finfo(dtype).bits}")


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
    if runs_on_cpu():
        width = jnp.finfo(dtype).bits
        return _words(jax.random.key_data(key), width, shape, normal_of)
    return normal_of(words_of_normals(key, shape, dtype))
