"""The words are those of `jax.random`, bit for bit."""

import jax
import numpy as np
import pytest

from sparsity.sampling import random_numbers

KEYS = (0, 1, 2**32 - 1, 123456789)


def _keys():
    return [jax.random.key(np.uint32(seed), impl=random_numbers.IMPL) for seed in KEYS]


SHAPES = ((1,), (32,), (7, 19), (4096,), (4097,), (64, 257))


def test_words_and_uniforms_are_those_of_jax():
    @jax.jit  # all shapes in one program: to compile is dear
    def drawn(key):
        return [
            (
                (random_numbers.bits(key, shape), random_numbers.uniform(key, shape, "float32")),
                (jax.random.bits(key, shape, "uint32"), jax.random.uniform(key, shape, "float32")),
            )
            for shape in SHAPES
        ]

    cells = 0
    for key in _keys():
        for shape, (ours, given) in zip(SHAPES, drawn(key), strict=True):
            for one, other in zip(ours, given, strict=True):
                assert one.shape == shape
                np.testing.assert_array_equal(one, other)
            cells += 1
    assert cells == len(KEYS) * len(SHAPES)


def test_keys_of_parts_are_those_of_jax():
    numbers = np.array([0, 1, 31, 2**16, 2**31, 2**32 - 1], dtype="uint32")

    @jax.jit
    def folded(key):
        each = (jax.vmap(f, (None, 0)) for f in (random_numbers.fold_in, jax.random.fold_in))
        return [jax.random.key_data(f(key, numbers)) for f in each]

    for key in _keys():
        ours, given = folded(key)
        assert ours.shape == (6, 2)
        np.testing.assert_array_equal(ours, given)


def test_a_round_too_few_is_seen(monkeypatch):
    key = jax.random.key(0, impl=random_numbers.IMPL)
    monkeypatch.setattr(random_numbers, "_ROUNDS", 19)
    monkeypatch.setattr(
        random_numbers, "mix_counts", random_numbers.mix_counts.__wrapped__
    )  # not traced before
    if jax.default_backend() != "cpu":  # where the words are JAX's own
        pytest.skip("written out for CPUs only")
    both = jax.jit(
        lambda key: (random_numbers.bits(key, (32,)), jax.random.bits(key, (32,), "uint32"))
    )
    assert not np.array_equal(*both(key))


@pytest.mark.parametrize("impl", ["rbg", "threefry2x32"])
def test_keys_of_another_generator_are_left_to_jax(impl):
    @jax.jit
    def drawn(key):
        ours = random_numbers.bits(key, (40,)), jax.random.key_data(random_numbers.fold_in(key, 7))
        folded = jax.random.key_data(jax.random.fold_in(key, 7))
        return ours, (jax.random.bits(key, (40,), "uint32"), folded)

    for one, other in zip(*drawn(jax.random.key(3, impl=impl)), strict=True):
        np.testing.assert_array_equal(one, other)
