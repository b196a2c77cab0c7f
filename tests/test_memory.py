"""Many different calls: what is kept of them has a bound."""

import functools
import gc
import importlib
import itertools
import pkgutil
import tracemalloc

import numpy as np
import pytest
import sympy
from sympy.core.cache import clear_cache

import sparsity
from sparsity import score_kernel
from sparsity.exact_law.transforms import shared_nodes
from sparsity.sampling import devices

# Without a bound, because what they are asked for is one of a fixed few.
_OF_FEW = {
    "sparsity.claims_ledger.article_linear.norm_bounds",  # no argument
    "sparsity.attention.measurement.attention_layers.compiled_product",  # no argument
    "sparsity.attention.torch.modules.mode_class",  # no argument
    "sparsity.xla.is_measured",  # no argument
    "sparsity.xla.has_older_loops",  # no argument
    "sparsity.sampling.devices.mesh",  # no argument
    "sparsity.sampling.random_numbers._impl",  # no argument
    "sparsity.limit.closed_form._relu2_table",  # one degree
    "sparsity.special._late",  # functions of SciPy that are in use
}
_KEPT = 6000.0  # bytes a call, of 24: counts in Python's abc and SymPy's printer and lambdify


def _unbounded_caches():
    """The names of the caches without a bound in the package's modules."""
    found = []
    for each in pkgutil.walk_packages(sparsity.__path__, "sparsity."):
        # The widget's libraries are an extra; it makes no cache.
        if not each.name.endswith(("__main__", "panel.widget")):
            module = importlib.import_module(each.name)
            classes = [x for x in vars(module).values() if isinstance(x, type)]
            found += [y for x in (module, *classes) for y in vars(x).values()]
    found = [x for x in found if isinstance(x, functools._lru_cache_wrapper)]
    named = {f"{x.__module__}.{x.__qualname__}": x.cache_info().maxsize for x in found}
    own = {name: most for name, most in named.items() if name.startswith("sparsity.")}
    assert len(own) > 40
    return {name for name, most in own.items() if most is None}


def test_every_cache_has_a_bound_or_few_keys():
    assert _unbounded_caches() == _OF_FEW


def test_a_cache_without_a_bound_is_seen(monkeypatch):
    @functools.cache
    def planted(x):
        return x

    planted.__module__, planted.__qualname__ = "sparsity.limit.panels", "planted"
    monkeypatch.setattr("sparsity.limit.panels.planted", planted, raising=False)
    assert _unbounded_caches() == {*_OF_FEW, "sparsity.limit.panels.planted"}


def _formula(i):
    return f"log(1 + exp({1 + i / 1000}*s))"


_CALLS = {
    "spread": lambda i: sparsity.evaluate("sigmoid", beta=0.1, gamma=1 + i / 1000),
    "exact": lambda i: sparsity.exact(_formula(i), length=4, beta=0.0, gamma=1.0),
    "score_kernel": lambda i: score_kernel(f"of {i}", sympy.exp(i * sympy.Symbol("s"))),
}


def _bounded_caches():
    """The caches of any library that have a bound, out of what the collector looks through."""
    # By type: an object of another library may answer isinstance with a warning.
    found = [x for x in gc.get_objects() if type(x) is functools._lru_cache_wrapper]
    return [x for x in found if x.cache_info().maxsize is not None]


@pytest.fixture(scope="module")
def older():
    """The bounded caches there are; the collector leaves all older objects out from here on.

    After other tests there are a million of them: to look through them before and after each round
    of calls would take most of this file's time.
    """
    for call in _CALLS.values():
        call(0)  # imports what it needs
    gc.collect()
    found = _bounded_caches()
    gc.freeze()
    yield found
    gc.unfreeze()


def _kept(older):
    """Bytes traced after the caches that have a bound are emptied."""
    for cache in (*older, *_bounded_caches()):
        cache.cache_clear()
    shared_nodes.CACHE.clear()
    clear_cache()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _growth(call, older, count=8, first=1):
    """Bytes a call that remain of different calls, whatever bounded caches may hold."""
    numbers = itertools.count(first)
    tracemalloc.start()
    try:
        for i in itertools.islice(numbers, count):
            call(i)
        before = _kept(older)
        for i in itertools.islice(numbers, 2 * count):
            call(i)
        return (_kept(older) - before) / (2 * count)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "name",
    ["spread", *(pytest.param(x, marks=pytest.mark.thorough) for x in ("exact", "score_kernel"))],
)
def test_nothing_remains_of_a_call(name, older):
    # Twice at most: a dictionary of another library that runs full doubles its room once, what a
    # call leaves is left each time.
    assert any(_growth(_CALLS[name], older, 4, first) < _KEPT for first in (1, 101))


def test_what_remains_of_a_call_is_seen(older):
    kept = {}

    def planted(i):
        kept[i] = _CALLS["spread"](i), np.zeros(1000)

    assert _growth(planted, older) > _KEPT


def test_families_of_many_nodes_are_not_all_kept():
    """Of e^(−|s − 2|) at γ = 50, a million nodes in all; of softplus, as many as there are laws."""
    cache, counts = shared_nodes.LawNodesCache(most=4, most_nodes=150_000), []
    for text, spread in (("exp(-abs(s - 2))", 50.0), ("softplus", 1.0)):
        kernel = sparsity.kernels.named(text)
        for i in range(6):
            cache.get(kernel, 0.1 * i, spread, None, 1, False)
            counts.append((len(cache.kept), cache.count_nodes()))
    few, many = counts[5], counts[-1]
    assert few[0] < many[0] == 4
    assert all(kept == 1 or nodes <= 150_000 for kept, nodes in counts)
    assert cache.get(kernel, 0.5, 1.0, None, 1, False) is cache.get(
        kernel, 0.5, 1.0, None, 1, False
    )


@pytest.mark.thorough
def test_every_sampler_has_a_program_that_can_be_dropped():
    devices.jitted.cache_clear()
    for i in range(2):
        given = {"beta": 0.0, "gamma": 1.0, "rel_error": 0.1, "max_samples": 2000}
        sparsity.estimate(_formula(900 + i), method="plain", **given)
    assert devices.jitted.cache_info().currsize == 2
