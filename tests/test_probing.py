"""Probes in place of values: against the weights that a mixer never shows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import sparsity
from sparsity import InputError
from sparsity.attention.measurement import probing

LENGTH = 64


def matrix(seed):
    """Causal weights of any focus; every other matrix is signed."""
    rng = np.random.default_rng(seed)
    a = np.tril(np.exp(rng.uniform(0.2, 3) * rng.standard_normal((LENGTH, LENGTH))))
    a = a * rng.choice([-1, 1], a.shape) if seed % 2 else a
    return a / np.abs(a).sum(1, keepdims=True)


def truth(a):
    return np.abs(a).sum(-1) ** 2 / (a * a).sum(-1)


def z_scores(**options):
    found = []
    for seed in range(20):
        a = matrix(seed)
        probed = sparsity.probe(lambda v, a=a: a @ v, LENGTH, seed=seed, **options)
        assert probed.ci95[0] < probed.mean < probed.ci95[1]
        for name, true in (("l1", np.abs(a).sum(1)), ("l2", (a * a).sum(1))):
            off = getattr(probed, name)[1:] - true[1:]  # the first row is one token: exact in l2
            found.append(np.abs(off / getattr(probed, f"{name}_stderr")[1:]).mean())
        found.append((probed.mean - truth(a).mean()) / probed.mean_stderr)
    assert len(found) == 60
    return np.array(found).reshape(20, 3)


def test_twenty_known_matrices():
    found = z_scores(probes=256)
    assert np.abs(found).max() <= 4
    assert 0.5 < found[:, 2].std() < 1.6  # the error bars are neither wide nor narrow


def test_normal_values_for_cauchy_ones_are_seen(monkeypatch):
    monkeypatch.setattr(
        probing.np, "tan", lambda x: np.random.default_rng(0).standard_normal(x.shape)
    )
    with pytest.raises(AssertionError):
        test_twenty_known_matrices()


def test_sums_of_weights_that_are_not_negative_are_exact():
    a = matrix(4)
    probed = sparsity.probe(lambda v: a @ v, LENGTH, nonnegative=True, seed=3)
    assert_allclose(probed.l1, np.abs(a).sum(1), rtol=1e-6)
    assert not probed.l1_stderr.any()
    assert probed.method == "Rademacher and ones"
    assert abs(probed.mean - truth(a).mean()) <= 4 * probed.mean_stderr
    again = sparsity.probe(lambda v: a @ v, LENGTH, nonnegative=True, seed=3)
    assert again.mean == probed.mean


def mixers():
    """(what, mixer, its weights [heads, rows, keys]) of three mixers, two without a matrix."""
    rng = np.random.default_rng(7)
    q, k = rng.standard_normal((2, 2, LENGTH, 8))
    causal = np.tril(np.ones((LENGTH, LENGTH)))
    scores = np.where(causal > 0, q @ k.swapaxes(-1, -2), -np.inf)
    soft = np.exp(scores - scores.max(-1, keepdims=True))
    soft = soft / soft.sum(-1, keepdims=True)
    yield "softmax", lambda v: soft @ v, soft

    g, h = np.maximum(q, 0) + 0.1, np.maximum(k, 0) + 0.1

    @jax.jit
    def linear(v):  # the state Σ h(k) v, one token after the other
        def step(state, x):
            qi, ki, vi = x
            state = state + ki[:, :, None] * vi[None, None]
            return state, jnp.einsum("hd,hdm->hm", qi, state)

        start = jnp.zeros((2, 8, v.shape[-1]))
        steps = (jnp.moveaxis(jnp.asarray(g), 1, 0), jnp.moveaxis(jnp.asarray(h), 1, 0),
                 jnp.asarray(v))  # fmt: skip
        return jnp.moveaxis(jax.lax.scan(step, start, steps)[1], 0, 1)

    yield "linear attention", linear, (g @ h.swapaxes(-1, -2)) * causal

    poles, b, c = rng.uniform(0.7, 0.99, 4), rng.standard_normal(4), rng.standard_normal(4)

    @jax.jit
    def state_space(v):  # x_t = A x_{t−1} + B v_t, o_t = C x_t, A diagonal
        def step(state, vi):
            state = poles[:, None] * state + b[:, None] * vi[None]
            return state, c @ state

        return jax.lax.scan(step, jnp.zeros((4, v.shape[-1])), jnp.asarray(v))[1][None]

    lag = np.subtract.outer(np.arange(LENGTH), np.arange(LENGTH))
    response = (c * b) @ poles[:, None] ** np.arange(LENGTH)
    yield "state space", state_space, np.where(lag >= 0, response[np.abs(lag)], 0.0)[None]


def test_mixers_without_a_matrix():
    ran = 0
    for what, mixer, weights in mixers():
        values = np.eye(LENGTH, dtype=np.float32)
        assert_allclose(mixer(values), weights, rtol=2e-4, atol=2e-5, err_msg=what)
        probed = sparsity.probe(mixer, LENGTH, probes=512, seed=1)
        assert probed.n_eff.shape == weights.shape[:2]
        assert abs(probed.mean - truth(weights).mean()) <= 4 * probed.mean_stderr, what
        assert probed.mean_stderr < 0.2 * probed.mean
        ran += 1
    assert ran == 3


@pytest.mark.parametrize(
    ("mixer", "options", "says"),
    [
        (lambda v: v * v, {}, "linear"),
        (lambda v: v[..., :3], {}, "must return"),
        (lambda v: v * np.nan, {}, "NaN"),
        (lambda v: v, {"probes": 4}, ">= 8"),
        (lambda v: v, {"length": 0}, "length"),
    ],
)
def test_bad_input_is_refused_in_one_line(mixer, options, says):
    with pytest.raises(InputError, match=says):
        sparsity.probe(mixer, **({"length": LENGTH} | options))


def test_rows_of_zeros_are_left_out():
    """The first row of a strictly causal mixer: no warning, and the mean is of the others."""
    a = np.abs(np.tril(matrix(2), -1))
    for options in ({}, {"nonnegative": True}):
        probed = sparsity.probe(lambda v: a @ v, LENGTH, probes=64, **options)
        whole = sparsity.probe(lambda v: a[1:] @ v, LENGTH, probes=64, **options)
        assert np.flatnonzero(np.isnan(probed.n_eff)).tolist() == [0]
        assert probed.l1[0] == probed.l2[0] == probed.l1_stderr[0] == probed.l2_stderr[0] == 0
        assert (probed.mean, probed.mean_stderr) == pytest.approx((whole.mean, whole.mean_stderr))
    with pytest.raises(InputError, match="all zero"):
        sparsity.probe(lambda v: 0 * v, LENGTH)


def test_negative_weights_are_not_taken_for_nonnegative():
    with pytest.raises(InputError, match="some weights are negative"):
        sparsity.probe(lambda v: matrix(1) @ v, LENGTH, nonnegative=True)
