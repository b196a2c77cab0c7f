"""Normals reach as far as their tails do."""

import jax
import numpy as np
import pytest
import scipy.special
import scipy.stats

from sparsity.sampling.random_numbers import key_of, normal, normal_of

SEED = np.uint32(2**32 - 5)
KEY = key_of(SEED)


def test_keys_have_the_bits_of_threefry():
    key, plain = KEY, jax.random.key(SEED, impl="threefry2x32")
    for number in (0, 7, 2**32 - 1):
        key, plain = (jax.random.fold_in(k, number) for k in (key, plain))
        for kind in ("uint32", "uint64"):
            words = jax.random.bits(key, (3, 5), kind)
            np.testing.assert_array_equal(words, jax.random.bits(plain, (3, 5), kind))
    z, of_jax = normal(key, (3, 5), "float64"), jax.random.normal(plain, (3, 5), "float64")
    np.testing.assert_allclose(z, of_jax, rtol=1e-15)
    one, other = (jax.random.key_data(jax.random.split(k, (2, 3))) for k in (key, plain))
    np.testing.assert_array_equal(one, other)


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_law_is_normal(dtype):
    z = np.asarray(normal(KEY, (500, 401), dtype))
    assert z.dtype == dtype
    assert scipy.stats.kstest(z.ravel(), "norm").pvalue > 1e-3
    assert scipy.stats.kstest(1.03 * z.ravel(), "norm").pvalue < 1e-3  # what it can see


def test_a_word_is_the_quantile_of_its_tail():
    """Of words that JAX would hardly ever draw too, where its own normals of 32 bits have ended."""
    words = np.array([0, 1, 2, 3, 2**8, 2**20, 2**31, 2**32 - 1], dtype="uint32")
    z = np.asarray(normal_of(jax.numpy.asarray(words)), dtype=float)
    tail = ((words >> 1).astype(np.float32) + np.float32(0.5)).astype(float) / 2**31
    quantile = np.where(words & 1, -1, 1) * scipy.special.ndtri(tail / 2)
    np.testing.assert_allclose(z, quantile, rtol=5e-4, atol=1e-6)  # of the last words
    assert z.min() < -6.2
    assert z.max() > 6.2
