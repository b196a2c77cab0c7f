"""Derivatives of what a row of attention says: finite everywhere, and right."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from softmax_apart import softmax_weights

from sparsity.attention.measurement import row_focus

NAMES = (
    "S",
    "n_eff",
    "entropy",
    "largest",
    "sink_mass",
    "n_eff_without_sink_key",
    "S_without_sink_key",
)
KEYS, SINK = 7, 3
RNG = np.random.default_rng(20)
LOGITS = RNG.normal(size=(6, KEYS)) * 2


@functools.cache
def compiled(weigh):
    """(Logits, mask) -> gradient of the sum of each statistic over the rows that have it, and it.

    Last the same of all that is found, its NaN included. All from one program: to compile is dear,
    to run it is not.
    """

    def values(s, visible):
        found, _, _ = row_focus.measure_weights(weigh(row_focus.set_sink_apart(s, visible, SINK)))
        sums = [jnp.where(jnp.isnan(found[k]), 0.0, found[k]).sum() for k in NAMES]
        sums = jnp.stack([*sums, sum(x.sum() for x in found.values())])
        return sums, sums

    return jax.jit(jax.jacrev(values, has_aux=True))


def focused(visible, weigh=softmax_weights):
    """The same of the logits alone."""

    def part(i):  # of NAMES: indexed by NumPy, which compiles nothing
        return lambda s: np.asarray(compiled(weigh)(s, visible)[i])[:-1]

    return part(1), part(0)


def compare(f, gradient, s, free, rtol=1e-6, atol=2e-8):
    """Central differences in the entries that are free to move."""
    got, step = np.asarray(gradient(s)), 1e-5
    assert np.isfinite(got).all()
    for at in zip(*np.nonzero(free), strict=True):
        up, down = s.copy(), s.copy()
        up[at] += step
        down[at] -= step
        slope = (np.asarray(f(up)) - np.asarray(f(down))) / (2 * step)
        for name, one, other in zip(NAMES, got[(slice(None), *at)], slope, strict=True):
            np.testing.assert_allclose(one, other, rtol=rtol, atol=atol, err_msg=f"{name} {at}")
    return got


def masks():
    causal = np.tri(6, KEYS, dtype=bool)
    holed = causal.copy()
    holed[3] = False  # sees nothing
    holed[4] = False
    holed[4, SINK] = True  # only the sink
    unseen = causal.copy()
    unseen[:, SINK] = False  # not the sink
    return {"all": np.ones((6, KEYS), bool), "causal": causal, "holed": holed, "no sink": unseen}


def test_the_gradient_is_that_of_finite_differences():
    for visible in masks().values():
        got = compare(*focused(visible), LOGITS, visible)
        assert not got[:, ~visible].any()


@pytest.mark.parametrize("hidden_too", [True, False])
def test_logits_of_minus_infinity(hidden_too):
    """Hidden by −∞ rather than, or as well as, by a mask; one row is all −∞."""
    visible = masks()["holed"]
    s = np.where(visible, LOGITS, -np.inf)
    compare(*focused(visible if hidden_too else np.ones_like(visible)), s, visible)


def test_sinks_far_above_and_far_below():
    every = np.ones(LOGITS.shape, bool)
    pair = focused(every)
    for gap in (-2000.0, -40.0, 40.0, 2000.0):
        s = LOGITS.copy()
        s[:, SINK] = gap
        compare(*pair, s, every, rtol=1e-5, atol=1e-7)


@pytest.mark.thorough
def test_weights_themselves_with_zeros_and_signs():
    a = RNG.normal(size=(4, KEYS))
    a[1] = 0  # all zero
    a[2, np.arange(KEYS) != SINK] = 0  # only the sink
    a[3, SINK] = 0
    compare(*focused(np.ones(a.shape, bool), weigh=lambda parts: parts), a, a != 0)


def test_constant_rows_are_at_a_maximum():
    _, gradient = focused(np.ones((6, KEYS), bool))
    got = dict(zip(NAMES, np.asarray(gradient(np.ones((6, KEYS)))), strict=True))
    for name in ("S", "n_eff", "entropy"):
        np.testing.assert_allclose(got[name], 0, atol=1e-14)
