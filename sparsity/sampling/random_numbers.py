"""Random words, uniforms and normals, all functions of a JAX key.

The words are those of `jax.random` under threefry2x32 with JAX's default setting,
`jax_threefry_partitionable`, bit for bit. On a CPU they are computed here, because JAX lowers the
twenty rounds to a loop through memory: written out they are one fused loop over the words, so a
sampler draws up to twice as fast and compiles in less time. On other devices, and for keys of
another generator, JAX's own functions are called.

Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

IMPL = "threefry2x32"
_ROUNDS = 20
_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_WORDS_PER_BLOCK = 2**12  # words made at a time, so that they stay in a core's cache

# Giles, "Approximating the erfinv function" (2012), single precision, in w = −log(1 − x²).
_ERFINV_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_ERFINV_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


def _is_written_out(key: jax.Array) -> bool:
    return jax.default_backend() == "cpu" and jax.random.key_impl(key) == IMPL


@jax.jit
def mix_counts(key: jax.Array, counts: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return both words of each count, a number below 2³²; jitted to be traced only once."""
    k0, k1 = jax.random.key_data(key)
    schedule = k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA)
    a, b = jnp.full_like(counts, k0), counts + k1
    for i in range(_ROUNDS):
        turn = _ROTATIONS[i % 8]
        a = a + b
        b = ((b << np.uint32(turn)) | (b >> np.uint32(32 - turn))) ^ a
        if i % 4 == 3:
            j = i // 4 + 1
            a, b = a + schedule[j % 3], b + schedule[(j + 1) % 3] + np.uint32(j)
    return a, b


def fold_in(key: jax.Array, number: Any) -> jax.Array:
    """Return the key of a numbered part, as `jax.random.fold_in` does.

    Args:
        key: a key.
        number: the part's number, below 2³².
    """
    if not _is_written_out(key):
        return jax.random.fold_in(key, number)
    words = mix_counts(key, jnp.asarray(number, "uint32"))
    return jax.random.wrap_key_data(jnp.stack(words), impl=IMPL)


def bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Draw independent 32-bit words, as `jax.random.bits` does.

    Args:
        key: a key.
        shape: the shape of the result, of fewer than 2³² words.
    """
    if not _is_written_out(key):
        return jax.random.bits(key, shape, "uint32")
    size = int(np.prod(shape))
    within = jax.lax.iota("uint32", min(size, _WORDS_PER_BLOCK))

    def block(start: Any) -> jax.Array:
        a, b = mix_counts(key, start + within)
        return a ^ b

    if size <= _WORDS_PER_BLOCK:
        return block(np.uint32(0)).reshape(shape)
    starts = jnp.arange(0, size, _WORDS_PER_BLOCK, dtype="uint32")
    return jax.lax.map(block, starts).reshape(-1)[:size].reshape(shape)


def uniform(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Draw independent numbers in [0, 1), as `jax.random.uniform` does.

    Args:
        key: a key.
        shape: the shape of the result.
        dtype: float32, of 23 bits each, or float64.
    """
    if jnp.dtype(dtype) != jnp.float32:
        return jax.random.uniform(key, shape, dtype)
    return (bits(key, shape) >> 9).astype(jnp.float32) * jnp.float32(2.0**-23)


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
    return normal_of(bits(key, shape))


def words_of_each(key: jax.Array, counts: jax.Array, dtype: Any) -> jax.Array:
    """Return the words that `normal` draws from for each count, its place in the array flattened.

    Args:
        key: a threefry key.
        counts: 32-bit words.
        dtype: of the normals; float64 takes 64 bits.
    """
    a, b = mix_counts(key, counts)
    if jnp.dtype(dtype) == jnp.float32:
        return a ^ b
    return (a.astype("uint64") << np.uint64(32)) | b.astype("uint64")


def normal_of(words: jax.Array) -> jax.Array:
    """Return the normal that `normal` makes of each word: float32 of 32 bits, float64 of 64."""
    if words.dtype == jnp.uint64:
        # As `jax.random.normal` does: 52 bits make a number in (−1, 1), which has its quantile.
        mantissa = (words >> np.uint64(12)) | np.float64(1).view(np.uint64)
        least = np.nextafter(-1.0, 0.0)
        u = (jax.lax.bitcast_convert_type(mantissa, "float64") - 1) * (1 - least) + least
        return np.sqrt(2.0) * jax.lax.erf_inv(jnp.maximum(u, least))
    p = ((words >> 1).astype(jnp.float32) + 0.5) * jnp.float32(2.0**-31)  # two-sided tail, (0, 1]
    w = -jnp.log(p * (2 - p))  # without the cancellation of 1 − x², x = 1 − p
    centre, tail = _polynomial(_ERFINV_CENTRE, w - 2.5), _polynomial(_ERFINV_TAIL, jnp.sqrt(w) - 3)
    magnitude = jnp.where(w < 5, centre, tail) * (1 - p) * jnp.float32(2.0**0.5)
    return jnp.where(words & 1, magnitude, -magnitude)
