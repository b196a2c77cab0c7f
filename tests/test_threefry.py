"""The words are those of `jax.random`, bit for bit."""

import jax
import numpy as np
import pytest

from sparsity.montecarlo import threefry

KEYS = (0, 1, 2**32 - 1, 123456789)


def _keys():
    return [jax.random.key(np.uint32(seed), impl=threefry.IMPL) for seed in KEYS]


@pytest.mark.parametrize("shape", [(1,), (32,), (7, 19), (4096,), (4097,), (64, 257)])
def test_words_and_uniforms_are_those_of_jax(shape):
    drawn = jax.jit(
        lambda key: (threefry.bits(key, shape), threefry.uniform(key, shape, "float32"))
    )
    given = jax.jit(
        lambda key: (
            jax.random.bits(key, shape, "uint32"),
            jax.random.uniform(key, shape, "float32"),
        )
    )
    cells = 0
    for key in _keys():
        for ours, theirs in zip(drawn(key), given(key), strict=True):
            assert ours.shape == shape
            np.testing.assert_array_equal(ours, theirs)
        cells += 1
    assert cells == len(KEYS)


def test_keys_of_parts_are_those_of_jax():
    numbers = np.array([0, 1, 31, 2**16, 2**31, 2**32 - 1], dtype="uint32")

    def folded(fold_in):
        each = jax.vmap(fold_in, (None, 0))
        return jax.jit(lambda key: jax.random.key_data(each(key, numbers)))

    ours, given = folded(threefry.fold_in), folded(jax.random.fold_in)
    for key in _keys():
        assert ours(key).shape == (6, 2)
        np.testing.assert_array_equal(ours(key), given(key))


def test_a_round_too_few_is_seen(monkeypatch):
    key = jax.random.key(0, impl=threefry.IMPL)
    monkeypatch.setattr(threefry, "_ROUNDS", 19)
    if jax.default_backend() != "cpu":  # where the words are JAX's own
        pytest.skip("written out for CPUs only")
    ours = jax.jit(lambda key: threefry.bits(key, (32,)))(key)
    assert not np.array_equal(ours, jax.random.bits(key, (32,), "uint32"))


@pytest.mark.parametrize("impl", ["rbg", "threefry2x32"])
def test_keys_of_another_generator_are_left_to_jax(impl):
    @jax.jit
    def ours(key):
        return threefry.bits(key, (40,)), jax.random.key_data(threefry.fold_in(key, 7))

    @jax.jit
    def given(key):
        folded = jax.random.key_data(jax.random.fold_in(key, 7))
        return jax.random.bits(key, (40,), "uint32"), folded

    key = jax.random.key(3, impl=impl)
    for one, other in zip(ours(key), given(key), strict=True):
        np.testing.assert_array_equal(one, other)
