"""Hoyer's index of rows: definitions, laws against integrals and sampled rows."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad

import sparsity
from sparsity import InputError, Row, metric, quantities
from sparsity.sampling import Sampling
from sparsity.sampling.row_sampling import draw_rows


def sums(weights):
    xp = weights.__array_namespace__()
    zero = xp.zeros(weights.shape[:-1])
    l1, l2 = weights.sum(-1), (weights**2).sum(-1)
    return quantities.RowSums(weights.shape[-1], l1, l2, zero, zero, weights)


@pytest.mark.parametrize(
    ("array", "made"),
    [(np.asarray, lambda function: function), (jnp.asarray, jax.jit)],
    ids=["numpy", "jax"],
)
def test_definitions_on_concrete_rows(array, made):
    rows = np.random.default_rng(4).exponential(size=(30, 9)) ** 3
    rows[3, 4:] = 0
    hoyer = made(lambda weights: quantities.hoyer.of(sums(weights)))
    found = hoyer(rows)
    assert_allclose(found, [metric.hoyer(row) for row in rows], rtol=1e-12)
    root = math.sqrt(9)
    l1, l2 = rows.sum(-1), np.sqrt((rows**2).sum(-1))
    assert_allclose(found, (root - l1 / l2) / (root - 1), rtol=1e-12)  # Hoyer (2004), section 3.1
    assert quantities.hoyer.of(sums(array(np.full((1, 1), 0.3)))).tolist() == [0]
    assert_allclose(hoyer(np.eye(4)), 1, rtol=1e-15)


def test_two_tokens_of_softmax():
    """By the difference of the scores, N(0, 2γ²)."""

    def mean(value):
        def weighed(t):
            r = math.exp(-math.sqrt(2) * t)
            return 2 * value(r) * math.exp(-t * t / 2) / math.sqrt(2 * math.pi)

        return quad(weighed, 0, 12, epsabs=1e-14, epsrel=1e-12, points=[0.1, 0.5, 1, 3])[0]

    root = math.sqrt(2)
    true = mean(lambda r: (root - (1 + r) / math.hypot(1, r)) / (root - 1))
    found = sparsity.exact("exp", gamma=1.0, length=2, of="hoyer")
    assert abs(found.value / true - 1) <= found.error_bound + 1e-11
    assert found.error_bound < 1e-8
    assert found.quantity == "hoyer"


OF = ("hoyer", "S")


def test_sampled_rows_hold_the_laws_and_reject_wrong_ones():
    row = Row("exp", gamma=2.0)
    drawn = draw_rows(row, 16, Sampling(2e-3, seed=6, dtype=np.float32), "hoyer", also=OF)
    laws = {of: sparsity.exact(row, length=16, of=of) for of in OF}
    for of, other in (OF, OF[::-1]):
        found = drawn.estimate(of)
        assert found.quantity == of
        assert abs(found.log_value - laws[of].log_value) < 4.5 * found.rel_stderr
        # The factor of n left out, or put in where it does not belong.
        assert abs(found.log_value - laws[other].log_value) > 4.5 * found.rel_stderr


def test_a_planted_wrong_image_is_rejected():
    right = quantities.hoyer.linear
    wrong = replace(quantities.hoyer, linear=replace(right, slope=lambda n: -np.ones_like(n)))
    row = Row("exp", gamma=1.0)
    drawn = draw_rows(row, 16, Sampling(2e-3, seed=2, dtype=np.float32), "hoyer", also=OF)
    found = drawn.estimate("hoyer")  # of the program that the test above compiled
    for quantity, good in ((quantities.hoyer, True), (wrong, False)):
        law = sparsity.exact(row, length=16, of=quantity)
        assert (abs(found.log_value - law.log_value) < 4.5 * found.rel_stderr) == good


def test_ends_and_other_instruments():
    values = sparsity.exact("exp", gamma=1.0, length=[1, 2, 64, 10**9], of="hoyer").value
    assert values[0] == 0
    assert abs(values[-1] / (1 - math.exp(-0.5)) - 1) < 2e-4  # (1 − n^−½)^−1
    data = sparsity.sweep("exp", gamma=[0.5, 1.0], length=[2, 64], of="hoyer")
    assert_allclose(data["hoyer"].sel(gamma=1.0).squeeze(), values[1:3], rtol=1e-9)
    found = sparsity.design("exp", length=64, hoyer=0.5, free="gamma", lengths=())
    assert_allclose(sparsity.exact("exp", gamma=found.value, length=64, of="hoyer").value, 0.5)
    for bad in ("power_sum:1", "power_sum", "power_sum:", "power_sum:2,3", "power_sum:nan"):
        with pytest.raises(InputError, match=r"an order from 0\.5 to 8"):
            quantities.named(bad)
