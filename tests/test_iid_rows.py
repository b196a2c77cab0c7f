"""Rows of one law by one program for all lengths: their sums are those of the normals drawn."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy

import sparsity
from sparsity import kernels, metric, quantities
from sparsity.kernels.lowering import numpy_log_abs
from sparsity.kernels.symbols import s
from sparsity.quantities import RowSums
from sparsity.sampling import devices, iid_rows
from sparsity.sampling.batches import batch_size, collect
from sparsity.sampling.iid_rows import MOST_TOKENS, IidRowSampler
from sparsity.sampling.random_numbers import key_of, normal

QUICK = tuple(q for q in quantities.ALL if not (q.needs or q.whole))  # functions of sums alone
LENGTHS = (1, 3, MOST_TOKENS)
CELLS = [
    (kernels.exp, (0.5, 40.0, 0.0), "float32"),  # weights of a row beyond a float's range
    (kernels.relu2, (-3.0, 1.0, 0.1), "float64"),  # rows of zeros alone; retention
]
ROUNDING = {"float32": 1e-5, "float64": 1e-12}


def _by_definition(kernel, law, length, dtype, key):
    """Return a batch from the same normals, put together as rows and added up by NumPy."""
    size, kept = batch_size(length), (length + 1) // 2
    blocks = range(-(-kept * size // iid_rows._SLOTS))
    drawn = [normal(jax.random.fold_in(key, i), (2, iid_rows._SLOTS), dtype) for i in blocks]
    halves = np.concatenate(drawn, axis=1)[:, : kept * size].reshape(2, kept, size)
    x = np.concatenate(halves)[:length].T  # [rows, tokens]
    beta, gamma, rate = (x.dtype.type(number) for number in law)
    log_f = numpy_log_abs(kernel)(beta + gamma * x)
    log_a = log_f.astype(float) - rate * np.arange(length)[::-1]
    peak = log_a.max(axis=1, keepdims=True)
    seen = np.isfinite(peak[:, 0])
    a = np.exp(log_a - np.where(np.isfinite(peak), peak, 0))
    l1, l2 = np.where(seen, a.sum(axis=1), 1), np.where(seen, (a * a).sum(axis=1), 1)
    sums = RowSums(float(length), jnp.asarray(l1), jnp.asarray(l2), 0.0, 0.0)
    common = np.where(seen, np.exp(peak[:, 0] - 1), 0)
    pooled = common * l1 / length, common**2 * l2 / length
    values = jax.jit(lambda sums: [q.of(sums) for q in QUICK])(sums)
    v = np.stack([*(np.where(seen, x, 0) for x in values), seen, seen, *pooled])
    return np.stack([v.mean(axis=1), (v * v).mean(axis=1), v.max(axis=1)])


def _differ(cell, length):
    kernel, law, dtype = cell
    sampler = IidRowSampler(kernel, QUICK, dtype, length)
    words = np.uint32(length), np.uint32(sampler.size)
    arguments = (tuple(np.asarray(x, dtype) for x in law), np.asarray(1.0, dtype), *words)
    found = collect(sampler, arguments, seed=5, first=0, chunks=1)
    assert found.shape == (devices.CHUNK, 3, len(QUICK) + 4)
    key = jax.random.fold_in(key_of(5), 31)
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        given = _by_definition(kernel, law, length, dtype, key)
    # The pooled moments of float32 are beyond its range where weights are.
    compared = slice(None) if dtype == "float64" else slice(-2)
    one, other = found[31][:, compared], given[:, compared]
    return not np.allclose(one, other, rtol=ROUNDING[dtype], atol=0)


@pytest.mark.thorough
def test_rows_are_added_up_from_their_normals():
    for cell, length in itertools.product(CELLS, LENGTHS):
        assert not _differ(cell, length), (cell, length)


@pytest.mark.thorough
def test_a_planted_wrong_sum_is_seen(monkeypatch):
    read = iid_rows._read  # a slot aside
    monkeypatch.setattr(iid_rows, "_read", lambda arrays, at, *x: read(arrays, at + 1, *x))
    # A kernel that nothing else samples: what is planted must not be kept for others.
    kernel = sparsity.score_kernel("planted", 1.0625 * sympy.exp(s))
    assert _differ((kernel, (0.0, 1.0, 0.0), "float64"), 1001)


@pytest.mark.thorough
@pytest.mark.skipif(jax.default_backend() != "cpu", reason="an accelerator has a program a length")
def test_a_curve_against_the_length_compiles_once():
    kernel = sparsity.score_kernel("once", sympy.exp(s) + 0.5)
    devices.jitted.cache_clear()
    for n in (2, 33, 700):
        found = sparsity.estimate(kernel, gamma=1.0, beta=0.0, length=n, rel_error=0.02, seed=n)
        law = sparsity.exact(kernel, gamma=1.0, beta=0.0, length=n)
        assert abs(found.log_value - law.log_value) < 4.5 * found.rel_stderr
    assert devices.jitted.cache_info().currsize == 1
    # What needs every weight has a program for itself.
    sparsity.estimate(kernel, gamma=1.0, beta=0.0, length=64, of="entropy", rel_error=0.1)
    assert devices.jitted.cache_info().currsize == 2


def test_a_quantity_of_a_users_own_may_want_the_length_as_a_number():
    entropy = quantities.Quantity(
        name="order 2",
        symbol="H₂/ln n",
        title="Rényi's entropy of order 2 over its largest value",
        average="E",
        of=lambda row: -jnp.log(row.l2 / row.l1**2) / math.log(row.count),
    )
    found = sparsity.estimate("exp", gamma=1.0, length=8, of=entropy, rel_error=0.01)
    own = np.exp(np.random.default_rng(8).normal(size=(20_000, 8)))
    values = np.log(metric.n_eff(own)) / math.log(8)
    error = math.hypot(found.stderr, values.std() / math.sqrt(20_000))
    assert abs(found.value - values.mean()) < 4.5 * error


def test_types_are_never_promoted_silently():
    with jax.numpy_dtype_promotion("strict"):
        sparsity.estimate("exp", gamma=1.0, length=50, rel_error=0.1)
