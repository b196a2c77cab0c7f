"""Laws of routers against rows drawn here, by JAX alone: 24 settings of each law.

On a GPU all of it takes seconds; on two cores 4096 and 65,536 tokens take hours, and
`-k "not 4096 and not 65536"` leaves out those.
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparsity import Row, exact

PLANTED = 0.01  # an error of a law that every cell must reject
# The same of a chance P below 0.9 in 10⁵ rows: it is known within √((1 − P)/P)/316, and an error of
# 1 % is less than the 9 standard errors that a cell needs to accept the law and reject the error.
OF_CHANCE = 0.04
# (γ, ρ) of a proxy, (γ, c) of blocks; (k, n) or (blocks, keys of a block, n)
PROXIES = ((0.7, 0.3), (1.5, 0.8), (2.5, 0.9), (1.0, 0.5))
READ = ((1, 2), (2, 3), (4, 16), (32, 256), (256, 4096), (4096, 65536))
SCORES = ((0.7, 0.0), (1.5, 0.3), (2.5, 0.1), (2.0, 0.8))
BLOCKS = ((1, 2, 4), (2, 2, 6), (2, 8, 64), (4, 16, 256), (8, 64, 4096), (64, 64, 65536))
OF = ("abs_sum", "recall", "n_eff")


def rows_of(n):
    """As many as the issue asks for: 10⁶, and 10⁵ of the longest."""
    return 10**6 if n < 65536 else 10**5


@functools.partial(jax.jit, static_argnames=("shape", "k", "size"))
def one_batch(key, gamma, other, shape, k, size):
    """Captured mass, whether the top key is read, and n_eff of what is, of a batch of rows."""
    rows, n = shape
    first, second = jax.random.split(key)
    own = jax.random.normal(first, shape)
    if size:
        block = jax.random.normal(second, (rows, n // size, 1))
        s = jnp.sqrt(other) * block + jnp.sqrt(1 - other) * own.reshape(rows, -1, size)
        proxy, s = s.mean(-1), gamma * s.reshape(shape)
    else:
        proxy = jax.random.normal(second, shape)
        s = gamma * (other * proxy + jnp.sqrt(1 - other * other) * own)
    least = jax.lax.top_k(proxy, k)[0][:, -1:]
    kept = jnp.repeat(proxy >= least, size, axis=1) if size else proxy >= least
    a = jnp.exp(s - s.max(1, keepdims=True))
    read = a * kept
    l1 = read.sum(1)
    return jnp.stack([l1 / a.sum(1), read.max(1) == 1, l1 * l1 / (read * read).sum(1)])


def sampled(gamma, other, k, size, n, seed=11):
    """Mean and standard error of each quantity, and how many rows there were."""
    batch = max(1, min(rows_of(n), 2**22 // n))
    count = -(-rows_of(n) // batch)
    sums, squares = np.zeros((2, len(OF)))
    keys = jax.random.split(jax.random.PRNGKey(seed), count)
    for key in keys:
        found = np.asarray(one_batch(key, gamma, other, (batch, n), k, size), np.float64)
        sums, squares = sums + found.sum(1), squares + (found * found).sum(1)
    rows = batch * count
    mean = sums / rows
    return mean, np.sqrt((squares / rows - mean**2) / rows), rows


def compare(row, n, names, drawn):
    """Hold each law against the rows, and see that one off by 1 % is rejected."""
    mean, error, rows = drawn
    assert rows >= rows_of(n)
    for of in names:
        law, i = float(exact(row, length=n, of=of)), OF.index(of)
        # The draws are of float32, and so are sums over n of their weights.
        off = math.hypot(error[i], 2e-6 * law)
        if of == "recall":  # every row may have read its top key
            off = max(off, math.sqrt(law * max(1 - law, 0.0) / rows))
        z = (mean[i] - law) / off
        print(f"{row.kernel.name} {row.params} n={n} {of}: {law:.7g}, {rows} rows, z = {z:+.2f}")
        assert abs(z) < 4.5
        uncertain = of == "recall" and law < 0.9 and rows < 10**6
        planted = OF_CHANCE if uncertain else PLANTED
        assert min(abs(z - s * planted * law / off) for s in (1, -1)) > 4.5
    return len(names)


CELLS = [(*a, *b) for b, a in itertools.product(READ, PROXIES)]
OF_BLOCKS = [(*a, *b) for b, a in itertools.product(BLOCKS, SCORES)]


def test_there_are_as_many_settings_as_asked():
    assert len(CELLS) == len(OF_BLOCKS) == 24


@pytest.mark.slow
@pytest.mark.parametrize(("gamma", "rho", "k", "n"), CELLS)
def test_keys(gamma, rho, k, n):
    row = Row(f"router:{k}", gamma=gamma, rho=rho)
    assert compare(row, n, OF, sampled(gamma, rho, k, 0, n)) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("gamma", "within", "k", "size", "n"), OF_BLOCKS)
def test_blocks(gamma, within, k, size, n):
    row = Row(f"block-router:{k},{size}", gamma=gamma, within=within)
    assert compare(row, n, ("abs_sum",), sampled(gamma, within, k, size, n)) == 1
