"""Rows of maps of whole rows, drawn once, and what holds their laws against them."""

import functools

import numpy as np

import sparsity
from sparsity import Row, kernels, quantities
from sparsity.crosscheck.verify import judge
from sparsity.exact_law import map_laws
from sparsity.sampling import Sampling
from sparsity.sampling.row_sampling import draw_rows

MAPS = tuple(kernel for kernel in kernels.MAPS if kernel.drawn is None)


def law(name, of="participation", **asked):
    return sparsity.exact(name, of=of, **asked)


def rows(n, count=200, seed=3):
    """Scores of several spreads, with ties, in rows of n."""
    rng = np.random.default_rng([seed, n])
    s = rng.normal(size=(count, n)) * rng.choice([0.01, 0.3, 2.0, 20.0], size=(count, 1))
    s[::7] = np.round(s[::7])
    return s


def bisected(excess, s):
    """The threshold at which a falling function of it vanishes, row by row."""
    low, high = s.max(-1, keepdims=True) - 3, s.max(-1, keepdims=True)
    for _ in range(80):
        middle = (low + high) / 2
        above = excess(middle) > 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return (low + high) / 2


def quick_of(kernel):
    """Laws that take no more than tenths of a second."""
    return [x for x in map_laws.known(kernel) if not map_laws.slow(kernel, quantities.named(x))]


WITH_SLOW = [kernel for kernel in MAPS if len(quick_of(kernel)) < len(map_laws.known(kernel))]


def sampled_names(kernel):
    """Quantities that are asked of sampled rows, in one order: so their sampler compiles once."""
    quick = [*quick_of(kernel), *(["max_weight"] if kernel.name == "entmax1.5" else [])]
    known = quick if kernel in WITH_SLOW else map_laws.known(kernel)
    return [x for x in map_laws.known(kernel) if x in known and quantities.named(x).linear is None]


@functools.cache
def drawn(name, **own):
    """Rows of 16 of a map that several tests look at, in float32 as all here that are compared."""
    row = Row(name, **own)
    return draw_rows(row, 16, Sampling(2e-3, seed=11, dtype=np.float32), sampled_names(row.kernel))


def hold(rows, row, length, names, bound=1e-6):
    """Exact laws of the same rows."""
    to = rows.sampling.rel_error
    for of in names:
        found, seen = law(row, of, length=length), rows.estimate(of)
        assert seen.quantity == of
        assert found.error_bound < bound
        assert seen.rel_stderr < to * 1.05
        assert abs(seen.log_value - found.log_value) < 4.5 * seen.rel_stderr
    return True


def verdict(cell, value, detectable=2e-2):
    """On a value of the law, from the rows that are drawn once; the right one agrees."""
    own = {name: x for name, x in cell.row.params.items() if name == "gamma" or x}
    rows = drawn(cell.kernel.name, **own).estimate(cell.quantity)
    right, judged = (judge(cell, x, rows, 1e-4, detectable) for x in (cell.theory(), value))
    assert right.verdict == "agree"
    return judged.verdict
