"""Rows of one law by one program for all lengths: the draws of `RowSampler`, and their sums."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy

import sparsity
from sparsity import Decay, Row, kernels, metric, quantities
from sparsity.kernels.symbols import s
from sparsity.sampling import Sampling, devices, iid_rows
from sparsity.sampling.batches import batch_size, collect
from sparsity.sampling.iid_rows import MOST_TOKENS, IidRowSampler
from sparsity.sampling.random_numbers import IMPL, normal, normal_of, words_of_each
from sparsity.sampling.row_sampling import RowSampler, draw_rows
from sparsity.sampling.row_sources import IidTokens

QUICK = tuple(q for q in quantities.ALL if not (q.needs or q.whole))  # functions of sums alone
LENGTHS = (1, 3, 1000, MOST_TOKENS)
CELLS = [
    (kernels.exp, (0.0, 2.0, 0.0), "float64"),
    (kernels.exp, (0.5, 40.0, 0.0), "float32"),  # weights of a row beyond a float's range
    (kernels.relu2, (-3.0, 1.0, 0.1), "float64"),  # rows of zeros alone; retention
    (kernels.identity, (1.0, 1.0, 0.0), "float32"),
]
ROUNDING = {"float32": 1e-5, "float64": 1e-12}


def _both(kernel, law, dtype, length):
    """Return the batches of `RowSampler`, and those of the sampler for all lengths."""
    law = tuple(np.asarray(x, dtype) for x in law)
    scale, size = np.asarray(1.0, dtype), batch_size(length)
    one = RowSampler(kernel, IidTokens(length), QUICK, False, size, dtype)
    every = IidRowSampler(kernel, QUICK, dtype, length)
    assert every.size == size
    words = np.uint32(length), np.uint32(size)
    for sampler, arguments in (one, (law, scale - np.inf, scale)), (every, (law, scale, *words)):
        yield collect(sampler, arguments, seed=5, first=0, chunks=1)


def _differ(cell, length):
    given, found = _both(*cell, length)
    assert given.shape == found.shape == (devices.CHUNK, 3, len(QUICK) + 4)
    return not np.allclose(found, given, rtol=ROUNDING[cell[2]], atol=0)


def test_draws_and_sums_are_those_of_a_program_for_each_length():
    ran = 0
    for cell, length in itertools.product(CELLS, LENGTHS):
        assert not _differ(cell, length), (cell, length)
        ran += 1
    assert ran == len(CELLS) * len(LENGTHS)


@pytest.mark.parametrize("wrong", ["a block too few", "a slot aside"])
def test_a_planted_wrong_sum_is_seen(monkeypatch, wrong):
    blocks, read = iid_rows._blocks, iid_rows._read
    if wrong == "a block too few":
        monkeypatch.setattr(iid_rows, "_blocks", lambda *x: blocks(*x) - 1)
    else:
        monkeypatch.setattr(iid_rows, "_read", lambda arrays, at, *x: read(arrays, at + 1, *x))
    # A kernel that nothing else samples: what is planted must not be kept for others.
    kernel = sparsity.score_kernel(f"planted {wrong}", 1.0625 * sympy.exp(s))
    assert _differ((kernel, (0.0, 1.0, 0.0), "float64"), 1001)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normals_by_their_place_are_those_of_the_array(dtype):
    key = jax.random.key(np.uint32(2**32 - 5), impl=IMPL)
    places = np.random.default_rng(0).permutation(5000).astype("uint32")

    @jax.jit
    def drawn(key):
        return normal(key, (5000,), dtype), normal_of(words_of_each(key, places, dtype))

    array, each = map(np.asarray, drawn(key))
    assert array.dtype == each.dtype == dtype
    np.testing.assert_array_equal(each, array[places])


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="an accelerator has a program a length")
def test_a_curve_against_the_length_compiles_once():
    kernel = sparsity.score_kernel("once", sympy.exp(s) + 0.5)
    devices.jitted.cache_clear()
    for n in (2, 33, 700, MOST_TOKENS):
        found = sparsity.estimate(kernel, gamma=1.0, beta=0.0, length=n, rel_error=0.02, seed=n)
        law = sparsity.exact(kernel, gamma=1.0, beta=0.0, length=n)
        assert abs(found.log_value - law.log_value) < 4.5 * found.rel_stderr
    assert devices.jitted.cache_info().currsize == 1
    # Beyond, rows are drawn block by block; and what needs every weight has a program for itself.
    sparsity.estimate(kernel, gamma=1.0, beta=0.0, length=MOST_TOKENS + 1, rel_error=0.1)
    sparsity.estimate(kernel, gamma=1.0, beta=0.0, length=64, of="entropy", rel_error=0.1)
    assert devices.jitted.cache_info().currsize == 3


def test_a_quantity_of_a_users_own_may_want_the_length_as_a_number():
    entropy = quantities.Quantity(
        name="order 2",
        symbol="H₂/ln n",
        title="Rényi's entropy of order 2 over its largest value",
        average="E",
        unit="1",
        of=lambda row: -jnp.log(row.l2 / row.l1**2) / math.log(row.count),
    )
    for n in (8, 20):
        found = sparsity.estimate("exp", gamma=1.0, length=n, of=entropy, rel_error=0.01)
        own = np.exp(np.random.default_rng(n).normal(size=(20_000, n)))
        values = np.log(metric.n_eff(own)) / math.log(n)
        error = math.hypot(found.stderr, values.std() / math.sqrt(20_000))
        assert abs(found.value - values.mean()) < 4.5 * error


def test_types_are_never_promoted_silently():
    with jax.numpy_dtype_promotion("strict"):
        sparsity.estimate("exp", gamma=1.0, length=50, rel_error=0.1)


def test_rows_at_the_longest_and_one_more_say_the_same():
    row = Row("relu2", beta=-1.0, gamma=1.0, steps=(Decay(0.999),))
    sampling = Sampling(5e-3, seed=3)
    one, other = (
        draw_rows(row, n, sampling).estimate("n_eff") for n in (MOST_TOKENS, MOST_TOKENS + 1)
    )
    assert one.method == other.method == "rows"
    error = np.hypot(one.rel_stderr, other.rel_stderr)
    assert abs(one.log_value - other.log_value) < 4.5 * error
