"""The sink metric on attention arrays."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from sparsity import InputError
from sparsity.attention.stacks.sinks import importance, sink_rate


def attention(*lead, length=8, seed=0):
    """Random causal rows that sum to one."""
    w = np.tril(np.random.default_rng(seed).exponential(size=(*lead, length, length)))
    return w / w.sum(-1, keepdims=True)


def by_hand(a, epsilon, key):
    """The definition, one sample, layer, head and query at a time."""
    samples, layers, heads, T, _ = a.shape
    rates = []
    for s in range(samples):
        hits = 0
        for layer in range(layers):
            for h in range(heads):
                total = sum(a[s, layer, h, t, key] for t in range(key, T))
                hits += total / (T - key) > epsilon
        rates.append(hits / (layers * heads))
    return sum(rates) / samples


def test_the_rate_is_that_of_the_definition():
    a, cells = attention(3, 2, 4), set()
    for epsilon in (0.1, 0.3, 0.5):
        for key in (0, 1, 7):
            rate = sink_rate(a, epsilon, key)
            assert rate == pytest.approx(by_hand(a, epsilon, key), abs=1e-15)
            cells.add(rate)
    assert len(cells) >= 4  # the thresholds do separate


def test_the_threshold_is_applied_before_any_average():
    """One head of two is a sink; the mean importance over heads would pass or fail as a whole."""
    sink = np.zeros((4, 4))
    sink[:, 0] = 1.0
    a = np.stack([sink, np.eye(4)])[None, None]  # one sample, one layer, two heads
    assert sink_rate(a, 0.3) == 0.5
    mean = importance(a)[..., 0].mean()
    assert mean > 0.3  # averaging first would say 1


def test_the_inequality_is_strict():
    half = np.array([[1.0, 0], [0, 1]])  # α_1 = ½ exactly
    a = half[None, None]
    assert importance(a)[0, 0, 0] == 0.5
    assert sink_rate(a, 0.5) == 0.0
    assert sink_rate(a, np.nextafter(0.5, 0)) == 1.0


def test_uniform_attention():
    T = 64
    uniform = np.tril(np.ones((T, T))) / np.arange(1, T + 1)[:, None]
    shares = 1 / np.arange(1.0, T + 1)  # of each row's keys
    expected = np.cumsum(shares[::-1])[::-1] / np.arange(T, 0, -1)
    np.testing.assert_allclose(importance(uniform), expected, rtol=1e-12)
    assert expected[0] == pytest.approx(sum(1 / t for t in range(1, T + 1)) / T, rel=1e-14)
    assert f"{expected[0]:.4f}" == "0.0741"
    assert expected[-1] == pytest.approx(1 / T)
    assert sink_rate(uniform[None, None], 0.3) == 0.0
    wrong = uniform.sum(0) / T  # every key seen by all T queries
    assert not np.allclose(wrong, expected)


def test_jax_arrays_stay_jax_arrays():
    a = attention(2, 3, 4).astype(np.float32)
    found = importance(jnp.asarray(a))
    assert isinstance(found, jnp.ndarray)
    assert found.shape == (2, 3, 4, 8)
    np.testing.assert_allclose(np.asarray(found), importance(a), rtol=1e-6)
    assert sink_rate(jnp.asarray(a), 0.2) == sink_rate(a, 0.2)


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
def test_half_precision_is_summed_in_single(dtype):
    a = attention(1, 2, length=200)
    rough = jnp.asarray(a, dtype)
    assert importance(rough).dtype == jnp.float32
    np.testing.assert_allclose(np.asarray(importance(rough)), importance(a), rtol=5e-3)
    assert importance(np.asarray(rough)).dtype == np.float32


def test_lists_and_integers_are_taken():
    assert importance([[1, 0], [1, 0]]).tolist() == [1.0, 0.0]
    assert sink_rate([[[[1, 0], [1, 0]]]]) == 1.0


def bad(change):
    a = attention(1, 2, 2)
    change(a)
    return a


def _set(value, *at):
    return lambda a: a.__setitem__((0, 0, 0, *at), value)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (bad(_set(0.1, 0, 3)), "not causal"),
        (np.swapaxes(attention(1, 2, 2), -1, -2), "not causal"),
        (bad(_set(np.nan, 3, 1)), "NaN"),
        (bad(_set(np.inf, 3, 1)), "NaN or infinite"),
        (bad(_set(-0.1, 3, 1)), "negative"),
        (2 * attention(1, 2, 2), "sum is off 1"),
        (bad(_set(0.0, 7)), "sum is off 1"),
        (attention(1, 2, 2) + 1e-4 * np.tril(np.ones((8, 8))), "sum is off 1"),
        (attention(1, 2, 2)[..., :5], "wrong shape"),
        (np.ones(3), "wrong shape"),
        (np.zeros((2, 0, 0)), "wrong shape"),
        (attention(2, 2).astype(complex), "real"),
    ],
)
def test_bad_arrays_are_refused(array, words):
    with pytest.raises(InputError, match=words) as caught:
        importance(array)
    assert caught.value.argument == "attention"
    assert str(np.shape(array)) in str(caught.value)


def test_bad_arguments_are_refused():
    a = attention(1, 2, 2)
    epsilons: tuple[Any, ...] = (0, 1, -0.3, 1.5, float("nan"), "x")
    for epsilon in epsilons:
        with pytest.raises(InputError, match=r"epsilon = .*\(0, 1\)"):
            sink_rate(a, epsilon)
    with pytest.raises(InputError, match="epsilon"):
        sink_rate(a, np.array([0.1, 0.2]))  # type: ignore[arg-type]
    keys: tuple[Any, ...] = (-1, 8, 1.5, True, "0")
    for key in keys:
        with pytest.raises(InputError, match="from 0 to 7"):
            sink_rate(a, 0.3, key)
    with pytest.raises(InputError, match="layers, heads"):
        sink_rate(a[0, 0])
