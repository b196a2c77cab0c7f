"""The words are those of `jax.random`, bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparsity.montecarlo import threefry

KEYS = (0, 1, 2**32 - 1, 123456789)


def _keys():
    return [jax.random.key(np.uint32(seed), impl=threefry.IMPL) for seed in KEYS]


@pytest.mark.parametrize("shape", [(1,), (32,), (7, 19), (4096,), (4097,), (64, 257)])
def test_words_and_uniforms_are_those_of_jax(shape):
    drawn = jax.jit(threefry.bits, static_argnums=1)
    given = jax.jit(lambda key, shape: jax.random.bits(key, shape, "uint32"), static_argnums=1)
    cells = 0
    for key in _keys():
        np.testing.assert_array_equal(drawn(key, shape), given(key, shape))
        ours = threefry.uniform(key, shape, "float32")
        np.testing.assert_array_equal(ours, jax.random.uniform(key, shape, "float32"))
        cells += 1
    assert cells == len(KEYS)


def test_keys_of_parts_are_those_of_jax():
    numbers = jnp.array([0, 1, 31, 2**16, 2**31, 2**32 - 1], dtype="uint32")
    for key in _keys():
        ours = jax.vmap(lambda i, key=key: threefry.fold_in(key, i))(numbers)
        given = jax.vmap(lambda i, key=key: jax.random.fold_in(key, i))(numbers)
        np.testing.assert_array_equal(jax.random.key_data(ours), jax.random.key_data(given))


def test_a_round_too_few_is_seen(monkeypatch):
    key = jax.random.key(0, impl=threefry.IMPL)
    monkeypatch.setattr(threefry, "_ROUNDS", 19)
    if jax.default_backend() != "cpu":  # where the words are JAX's own
        pytest.skip("written out for CPUs only")
    assert not np.array_equal(threefry.bits(key, (32,)), jax.random.bits(key, (32,), "uint32"))


@pytest.mark.parametrize("impl", ["rbg", "threefry2x32"])
def test_keys_of_another_generator_are_left_to_jax(impl):
    key = jax.random.key(3, impl=impl)
    np.testing.assert_array_equal(threefry.bits(key, (40,)), jax.random.bits(key, (40,), "uint32"))
    ours, given = threefry.fold_in(key, 7), jax.random.fold_in(key, 7)
    np.testing.assert_array_equal(jax.random.key_data(ours), jax.random.key_data(given))
