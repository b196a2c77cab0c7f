"""Normals reach as far as their tails do."""

import jax
import numpy as np
import pytest
import scipy.special
import scipy.stats

from sparsity.sampling.random_numbers import IMPL, normal

KEY = jax.random.key(np.uint32(2**32 - 5), impl=IMPL)


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_law_is_normal(dtype):
    z = np.asarray(normal(KEY, (500, 401), dtype))
    assert z.dtype == dtype
    assert scipy.stats.kstest(z.ravel(), "norm").pvalue > 1e-3
    assert scipy.stats.kstest(1.03 * z.ravel(), "norm").pvalue < 1e-3  # what it can see


def test_a_word_is_the_quantile_of_its_tail(monkeypatch):
    """Of words that JAX would hardly ever draw too, where its own normals of 32 bits have ended."""
    words = np.array([0, 1, 2, 3, 2**8, 2**20, 2**31, 2**32 - 1], dtype="uint32")
    monkeypatch.setattr(jax.random, "bits", lambda *_: jax.numpy.asarray(words))
    z = np.asarray(normal(KEY, words.shape, "float32"), dtype=float)
    tail = ((words >> 1).astype(np.float32) + np.float32(0.5)).astype(float) / 2**31
    quantile = np.where(words & 1, -1, 1) * scipy.special.ndtri(tail / 2)
    np.testing.assert_allclose(z, quantile, rtol=5e-4, atol=1e-6)  # of the last words
    assert z.min() < -6.2
    assert z.max() > 6.2
