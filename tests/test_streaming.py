"""Attention measured in one pass: against NumPy float64 on the whole matrix."""

import json
import math
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from command_line import ENVIRONMENT, python
from numpy.testing import assert_allclose

import sparsity
from sparsity import InputError, stream
from sparsity.attention.streaming import ALL, OF, log_spaced, sums
from sparsity.rows import rope_planes

HEADS, GROUPS, LENGTH, DIM = 4, 2, 150, 8
NAMES = (*(each.name for each in ALL), "top_k_mass:8")
BLOCKS = {"block": (64, 48)}  # neither divides the length
PLANTED = {"block": (64, 40)}  # of no other test: what compiles with an error in it stays compiled
SLOPES = 2.0 ** -np.arange(1, HEADS + 1)
UNITS = np.array([-2.0, 0.0, 3.0, 40.0])
ROW, KEY = np.mgrid[:LENGTH, :LENGTH]


def vectors(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def heads(seed=0):
    return 2 * vectors(2, HEADS, LENGTH, DIM, seed=seed), vectors(
        2, GROUPS, LENGTH, DIM, seed=seed + 1
    )


def whole(q, k, mask, *, unit=-np.inf, cap=None, slopes=None):
    """All statistics by their definitions, on the matrix, in float64."""
    k = np.repeat(k.astype(float), q.shape[-3] // k.shape[-3], axis=-3)
    s = q.astype(float) @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    s = s if cap is None else cap * np.tanh(s / cap)
    if slopes is not None:
        s = s - slopes[:, None, None] * abs(ROW - KEY)
    s = np.where(mask, s, -np.inf)
    unit = np.broadcast_to(unit, (s.shape[-3],))[:, None]
    low = np.maximum(s.max(-1), unit)
    low = np.where(np.isfinite(low), low, 0.0)
    a, u = np.exp(s - low[..., None]), np.exp(unit - low)
    n, total, first = np.isfinite(s).sum(-1), a.sum(-1) + u, np.isfinite(s).argmax(-1)
    with np.errstate(all="ignore"):
        p = a / total[..., None]
        opening = np.take_along_axis(p, first[..., None], -1)[..., 0]
        mean = np.where(mask, s, 0.0).sum(-1) / n
        spread = np.sqrt((np.where(mask, s - mean[..., None], 0.0) ** 2).sum(-1) / (n - 1))
        n_eff = a.sum(-1) ** 2 / (a * a).sum(-1)
        found = {
            "length": n, "S": np.sqrt(n_eff / n), "n_eff": n_eff, "participation": (p * p).sum(-1),
            "entropy": -(p * np.log(np.where(p > 0, p, 1.0))).sum(-1), "max_weight": p.max(-1),
            "sink_mass": opening + u / total, "max_logit": s.max(-1), "max_key": s.argmax(-1),
            "log_sum_exp": low + np.log(total), "beta": mean, "gamma": spread,
            "gamma_ratio": spread / np.sqrt(2 * np.log(n)),
            "top_k_mass:8": -np.sort(-p, axis=-1)[..., :8].sum(-1),
        }  # fmt: skip
    for name, x in found.items():
        if name == "max_key":
            found[name] = np.where(n > 0, x, -1)
        elif name != "length":
            found[name] = np.where(n > (1 if name.startswith("gamma") else 0), x, np.nan)
    return found


CAUSAL = KEY <= ROW
SEEN = ROW % 5 != 0  # the other rows see nothing


def sees(i, j):
    return (i % 5 != 0) & (j >= 0)


CASES = {
    "causal": (CAUSAL, {}, {}),
    "documents, a soft cap, slopes, a window": (
        CAUSAL & (ROW // 40 == KEY // 40) & (ROW - KEY < 30),
        {"mask": lambda i, j: i // 40 == j // 40, "softcap": 1.5, "slopes": SLOPES, "window": 30},
        {"cap": 1.5, "slopes": SLOPES},
    ),
    "rows of nothing, sink logits, a window on both sides": (
        SEEN & (abs(ROW - KEY) < 20),
        {"mask": sees, "sink_logits": UNITS, "window": 20, "causal": False},
        {"unit": UNITS},
    ),
}


@pytest.mark.parametrize(
    "case", [pytest.param(x, marks=[pytest.mark.thorough] * (x != "causal")) for x in CASES]
)
def test_every_statistic_is_that_of_the_whole_matrix(case):
    mask, options, own = CASES[case]
    q, k = heads()
    found, true = stream(q, k, NAMES, **options, **BLOCKS), whole(q, k, mask, **own)
    assert tuple(found) == NAMES
    assert set(true) == set(NAMES)
    for name, x in found.items():
        assert x.shape == (2, HEADS, LENGTH)
        assert_allclose(x, true[name], rtol=3e-6, atol=3e-6, err_msg=name)


def merged_wrongly(a, b):
    """Three errors at once: each reaches one of `SEEN_IN` alone."""
    right = sums.merge(a, b)
    share = [jnp.exp(jnp.where(x.count > 0, sums.base(x.top) - sums.base(right.top), 0))
             for x in (a, b)]  # fmt: skip
    return right._replace(
        w=share[0] * a.w + share[1] * b.w, y=share[0] * a.y + share[1] * b.y, m2=a.m2 + b.m2
    )


SEEN_IN = {"w without its shift": "entropy", "y shifted once": "n_eff", "no gap of means": "gamma"}


@pytest.fixture(scope="module")
def planted():
    """Statistics by a merging with errors in it, of the causal case."""
    from sparsity.attention.streaming import reduce

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduce, "merge", merged_wrongly)
        return stream(*heads(), (*SEEN_IN.values(), "max_weight", "beta"), **PLANTED)


@pytest.fixture(scope="module")
def causal():
    return whole(*heads(), CAUSAL)


@pytest.mark.parametrize("error", SEEN_IN)
def test_planted_errors_of_the_merging_are_seen(error, planted, causal):
    seen = SEEN_IN[error]
    with pytest.raises(AssertionError):
        assert_allclose(planted[seen], causal[seen], rtol=3e-6, atol=3e-6)


def test_the_planted_errors_reach_nothing_else(planted, causal):
    for name in ("max_weight", "beta"):
        assert_allclose(planted[name], causal[name], rtol=3e-6, atol=3e-6)


def total_unshifted(a, b):
    return sums.merge(a, b)._replace(z=a.z + b.z)


def last_opening(a, b):
    return sums.merge(a, b)._replace(opening=jnp.where(b.count > 0, b.opening, a.opening))


def heavier_sinks(s, seen, first, fields, most=0):
    """The pass over the sinks alone asks for z alone."""
    right = sums.of_block(s, seen, first, fields, most)
    return right._replace(z=1.01 * right.z) if fields == {"z"} else right


# Where it is planted and what; keys in a block, as above; the window; what it reaches and what not.
TOTALS = {
    "z without its shift": (
        *("merge", total_unshifted, 44, None),
        *(("sink_mass", "max_weight", "log_sum_exp", "n_eff"), ("gamma", "max_logit")),
    ),
    "the first key of the last block": (
        *("merge", last_opening, 36, 60),
        *(("sink_mass",), ("n_eff", "entropy", "max_weight")),
    ),
    "one percent of the sinks": (
        *("of_block", heavier_sinks, 52, None),
        *(("sink_mass",), ("n_eff", "entropy", "max_weight")),
    ),
}


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(x, marks=pytest.mark.slow if i else pytest.mark.thorough)
        for i, x in enumerate(TOTALS)
    ],
)
def test_planted_errors_of_the_total_and_the_sink_are_seen(error, monkeypatch):
    from sparsity.attention.streaming import reduce

    where, plant, size, window, seen, others = TOTALS[error]
    monkeypatch.setattr(reduce, where, plant)
    found = stream(*heads(), (*seen, *others), window=window, block=(64, size))
    true = whole(*heads(), CAUSAL & (ROW - KEY < (window or LENGTH)))
    for name in seen:
        with pytest.raises(AssertionError):
            assert_allclose(found[name], true[name], rtol=3e-6, atol=3e-6)
    for name in others:
        assert_allclose(found[name], true[name], rtol=3e-6, atol=3e-6)


def test_rotary_rows_and_a_single_name():
    q, k = heads()
    turned = [rope_planes.rotate(x, np.arange(LENGTH), "half", base=100.0) for x in (q, k)]
    some = log_spaced(LENGTH, 12)
    found = jax.jit(lambda q, k: stream(q, k, "n_eff", rope=100.0, rows=some, **BLOCKS))(q, k)
    assert list(found) == ["n_eff"]
    assert some[0] == 0
    assert some[-1] == LENGTH - 1
    true = whole(*turned, CAUSAL)["n_eff"][..., some]
    assert_allclose(found["n_eff"], true, rtol=3e-6)
    last = stream(q[..., -3:, :], k, "n_eff", positions=np.arange(LENGTH - 3, LENGTH), **BLOCKS)
    assert_allclose(last["n_eff"], whole(q, k, CAUSAL)["n_eff"][..., -3:], rtol=3e-6)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_constant_and_huge_logits(scale):
    q, k = heads()
    ones = [np.full_like(x, math.sqrt(scale)) for x in (q, k)]
    flat = stream(*ones, NAMES, **BLOCKS)
    n = np.arange(1, LENGTH + 1)
    for name, true in (("n_eff", n), ("S", 1.0 + 0 * n), ("entropy", np.log(n))):
        assert_allclose(np.asarray(flat[name])[0, 0], true, rtol=3e-6, atol=3e-6)
    assert_allclose(np.asarray(flat["gamma"])[..., 1:], 0.0, atol=1e-6 * scale)
    found, true = stream(scale * q, k, NAMES, **BLOCKS), whole(scale * q, k, CAUSAL)
    for name in ("n_eff", "max_weight", "entropy"):  # a logit of 10⁵ has two decimals in float32
        assert_allclose(found[name], true[name], rtol=0.02 if scale > 1 else 3e-6, atol=1e-5)


@pytest.mark.thorough
def test_types_of_numbers():
    q, k = heads()
    half = [x.astype(jnp.bfloat16) for x in (q, k)]
    names = ("n_eff", "gamma", "max_key")
    found = stream(*half, names, **BLOCKS, scale=0.25)
    assert {str(x.dtype) for x in found.values()} == {"float32", "int32"}
    exact = [np.asarray(x, np.float64) for x in half]
    double = stream(*exact, "n_eff", **BLOCKS, scale=0.25)["n_eff"]
    true = whole(exact[0] * 0.25 * DIM**0.5, exact[1], CAUSAL)
    assert str(double.dtype) == "float64"
    assert_allclose(double, true["n_eff"], rtol=1e-12)
    for name in names[:2]:
        assert_allclose(found[name], true[name], rtol=3e-6, atol=3e-6)


DIFFERENTIABLE = ("n_eff", "entropy", "max_logit", "max_weight", "sink_mass", "gamma")


@pytest.mark.thorough
def test_derivatives_are_finite_everywhere_and_those_of_finite_differences():
    q, k = (x[0, :, :40].astype(np.float64) for x in heads())
    unit = UNITS[:HEADS].astype(np.float64)
    options = {"mask": sees, "block": (16, 12)}

    def total(q, k, unit):
        found = stream(q, k, DIFFERENTIABLE, sink_logits=unit, **options)
        return sum(jnp.nansum(x * (1 + i)) for i, x in enumerate(found.values()))

    at, run = (q, k, unit), jax.jit(jax.value_and_grad(total, (0, 1, 2)))
    slopes = jax.device_get(run(*at)[1])
    assert all(np.isfinite(x).all() for x in slopes)
    rng, step = np.random.default_rng(5), 1e-6
    for which in range(3):
        way = rng.standard_normal(at[which].shape)
        ends = [run(*(x + sign * step * way if i == which else x for i, x in enumerate(at)))[0]
                for sign in (-1, 1)]  # fmt: skip
        along = float((slopes[which] * way).sum())
        assert along == pytest.approx(float(ends[1] - ends[0]) / (2 * step), rel=1e-6)
    slopes = jax.device_get(run(0 * q, k, unit)[1])  # all logits equal
    assert all(np.isfinite(x).all() for x in slopes)


@pytest.mark.thorough
def test_inside_jit_and_vmap():
    q, k = heads()
    alone = stream(q, k, NAMES, **BLOCKS)
    mapped = jax.jit(jax.vmap(lambda q, k: stream(q, k, **BLOCKS)))(q, k)
    assert tuple(sorted(mapped)) == tuple(sorted(OF))
    for name, x in mapped.items():
        assert_allclose(x, alone[name], rtol=1e-6)


SPREAD = """
import json
import jax, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
from sparsity.attention.streaming import stream
NAMES = ("n_eff", "entropy", "gamma", "max_key", "sink_mass", "log_sum_exp", "top_k_mass:8")
rng = np.random.default_rng(0)
q, k = (rng.standard_normal((2, n, 144, 8)).astype(np.float32) for n in (4, 2))
q *= 2
whole = jax.device_get(stream(q, k, NAMES, sink_logits=0.5, window=100))
def part(q, k):
    return stream(q, k, NAMES, sink_logits=0.5, window=100, axis_name="keys", block=(64, 20))
spread = jax.device_get(jax.jit(jax.shard_map(
    part, mesh=Mesh(np.array(jax.devices()), ("keys",)), in_specs=(P(), P(None, None, "keys")),
    out_specs=P(), check_vma=False
))(q, k))
off = [np.nanmax(np.abs(spread[n] - whole[n]) / (1 + np.abs(whole[n]))) for n in NAMES]
same = all(np.array_equal(np.isnan(spread[n]), np.isnan(whole[n])) for n in NAMES)
print(json.dumps([len(jax.devices()), float(max(off)), same]))
"""


@pytest.mark.thorough
def test_keys_spread_over_devices():
    """Each device has several blocks of keys, the last of them not full."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_backend_optimization_level=0"
    flags += " --xla_force_host_platform_device_count=4"
    done = python("-c", SPREAD, env=ENVIRONMENT | {"XLA_FLAGS": flags})
    assert done.returncode == 0, done.stderr
    count, off, same = json.loads(done.stdout)
    # In single precision e^s of a logit of 10 is off by 1e-6.
    assert (count, same) == (4, True)
    assert off < 2e-6


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"of": "focus"}, "choose among length, S"),
        ({"keys": np.ones((3, 150, DIM))}, "must divide"),
        ({"queries": np.ones((4, 150, DIM), int)}, "floating"),
        ({"keys": np.ones((2, 90, DIM))}, "give their positions"),
        ({"positions": np.arange(3)}, "one whole number for each of 150"),
        ({"positions": np.linspace(0, 149, 150) / 2}, "one whole number for each of 150"),
        ({"positions": [-1, *range(149)]}, "one whole number for each of 150"),
        ({"positions": [math.nan, *range(149)]}, "one whole number for each of 150"),
        ({"mask": lambda i, j: i - j}, "array of bools"),
        ({"rows": [150]}, "from 0 to 149"),
        ({"window": 0}, ">= 1"),
        ({"slopes": np.ones(3)}, "one number or one for each of 4 heads"),
    ],
)
def test_bad_input_is_refused_in_one_line(change, says):
    q, k = (x[0] for x in heads())
    with pytest.raises(InputError, match=says):
        stream(**({"queries": q, "keys": k} | change))


def test_odd_arguments():
    """One line for each that does not fit; lists and large k are taken."""
    q = k = vectors(1, 4, DIM)
    for name, value in (("window", 2.5), ("sinks", 0), ("of", []), ("block", (2.5, 2))):
        with pytest.raises(InputError, match=name):
            stream(q, k, **({"of": "length"} | {name: value}))
    chosen = stream(q, k, "length", positions=[0, 1, 2, 3], rows=[1, 3])["length"]
    assert chosen.tolist() == [[2, 4]]
    largest = np.asarray(stream(q, k, "top_k_mass:1000000")["top_k_mass:1e+06"])
    assert largest[0, -1] == pytest.approx(1)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [">f8", "longdouble"])
def test_arrays_of_every_type_of_numpy(kind):
    """JAX knows neither the other byte order nor the widest numbers: they are made its own."""
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 2, 8, 4), dtype=np.float32)
    whole = {"positions": np.arange(8), "segments": np.ones(8, int)}
    given = {"slopes": np.ones(2), "sink_logits": np.zeros(2), "sinks": np.array([1])} | whole
    for run in (stream, sparsity.monitor, sparsity.monitoring.penalty):
        how = {"low": 4.0} if run is sparsity.monitoring.penalty else {}
        wide = {name: x.astype(">i4" if name in whole else kind) for name, x in given.items()}
        asked = {"rows": np.array([1, 5], ">i4"), **how}
        found = run(q.astype(kind), k.astype(kind), "n_eff", **wide, **asked)
        true = run(q, k, "n_eff", **given, **asked)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, true)
