"""A name that is not known, a value outside its domain, a wrong shape, NaN: one line names it."""

import functools
import warnings
from decimal import Decimal
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparsity
from sparsity import Alibi, InputError, Row, checks
from sparsity.tasks import process_pool

QUERIES = np.linspace(-1, 1, 32, dtype=np.float32).reshape(1, 8, 4)
RAGGED = [[1.0, 2.0], [3.0]]
NUMBER = (
    np.nan,
    np.inf,
    None,
    "x",
    True,
    1j,
    RAGGED,
    jax.random.key(0),
    [1.0, np.nan],
    np.datetime64("2026-01-01"),
)
POSITIVE = (*NUMBER, 0, -1.0)
WHOLE = (*NUMBER, 0, 2.5, 2**60)
NAME = ("sofmax", "", None, 3)
NO_PATH = ("", 3, "a\0b", "\ud800", "s" * 5000)
LSE = np.zeros((1, 8), np.float32)


def attend(q, k, v, scale, causal):
    return q, q[..., 0]


def fused(**given):
    q, k = given.pop("q", QUERIES), given.pop("k", QUERIES)
    return sparsity.fused_rows(given.pop("attend", attend), q, k, **given)


NO_ARRAY = (
    QUERIES.tolist(),
    RAGGED,
    None,
    "x",
    3,
    1j * QUERIES,
    QUERIES > 0,
    QUERIES.astype(object),
)
NO_QUERIES = (*NO_ARRAY, QUERIES[0], QUERIES[:, :0], QUERIES[:0], QUERIES[..., :0])
CALLS = [  # (call of one value, the argument that is named, what is refused)
    (lambda x: sparsity.evaluate("exp", gamma=x), "gamma", POSITIVE),
    (lambda x: sparsity.evaluate("exp", gamma=1, beta=x), "beta", NUMBER[:2]),
    (lambda x: sparsity.evaluate(x, gamma=1), "kernel", NAME),
    (lambda x: sparsity.exact("exp", gamma=1, length=x), "length", (*WHOLE, [])),
    (lambda x: sparsity.exact("exp", gamma=x, length=8), "gamma", (-1, [1, 2])),
    (lambda x: sparsity.exact("decayed", decay=0.5, length=8, of=x), "of", ("sink_mass",)),
    (lambda x: sparsity.exact("exp", gamma=1, length=4, of=x), "of", NAME[:2]),
    (lambda x: sparsity.exact("decayed", decay=x, length=4), "decay", (*NUMBER, 0, 1.5)),
    (lambda x: sparsity.estimate("exp", gamma=x), "gamma", POSITIVE),
    (lambda x: sparsity.estimate("exp", gamma=1, rel_error=x), "rel_error", (*POSITIVE, 1)),
    (lambda x: sparsity.estimate("exp", gamma=1, seed=x), "seed", (-1, 2.5, 2**32, None, "x")),
    (lambda x: sparsity.estimate("exp", gamma=1, dtype=x), "dtype",
     ("float16", 3, int, jax.random.key(0))),
    (lambda x: sparsity.estimate("exp", gamma=1, max_samples=x), "max_samples", (0, np.nan, "x")),
    (lambda x: sparsity.sweep("exp", gamma=x), "gamma", (*POSITIVE, [], [[1.0, 2.0]], "1:2")),
    (lambda x: sparsity.sweep("exp", gamma=1, of=x), "of", ("neff", [])),
    (lambda x: sparsity.sweep("exp", gamma=1, executor=x), "executor", (4, "x")),
    (lambda x: sparsity.sweep("exp", gamma=1, progress=x), "progress", (4, "x")),
    (lambda x: sparsity.sweep("exp", gamma=1, store=x), "store", NO_PATH),
    (lambda x: sparsity.describe(x), "config", NO_PATH),
    (lambda x: sparsity.plot("exp", gamma=1, progress=x), "progress", (4, "x")),
    (lambda x: sparsity.plot("exp", gamma=1, query=x), "query", (RAGGED,)),
    (lambda x: sparsity.n_eff([1.0, 2.0], log=x), "log", (3, "x", np.ones(2))),
    (lambda x: sparsity.sweep("exp", gamma=1, montecarlo=x), "montecarlo", (2, "yes", None)),
    (lambda x: sparsity.design("exp", length=64, n_eff=x), "n_eff", (np.nan, 0, 65, "x")),
    (lambda x: sparsity.design("exp", length=8, n_eff=3, free=x), "free", (0, "x", np.ones(2))),
    (lambda x: sparsity.verify("exp", detectable=x), "detectable", (np.nan, 0, 1)),
    (lambda x: Row("exp", gamma=1, steps=x), "steps", (3, ["alibi"], [Alibi])),
    (lambda x: Alibi(x), "slope", NUMBER),
    (lambda x: sparsity.Window(x), "size", (0, 2.5, np.nan)),
    (lambda x: sparsity.measure(queries=x, keys=QUERIES), "queries", (QUERIES[0], QUERIES * 1j)),
    (lambda x: sparsity.measure(queries=QUERIES, keys=QUERIES, scale=x), "scale", (np.nan, "x")),
    (lambda x: sparsity.measure(queries=QUERIES, keys=QUERIES, sink_logits=x), "sink_logits",
     (1e39, np.nan, [1.0, 2.0, 3.0, 4.0, 5.0])),
    (lambda x: sparsity.stream(QUERIES, QUERIES, window=x), "window", (0, 2.5)),
    *((lambda x, name=name: sparsity.stream(QUERIES, QUERIES, **{name: x}), name, (1e39, np.nan))
      for name in ("scale", "softcap", "slopes", "sink_logits")),
    (lambda x: sparsity.stream(QUERIES, QUERIES, of=x), "of", ("neff",)),
    (lambda x: sparsity.stream(QUERIES, QUERIES, mask=x), "mask", (3, lambda i, j: None)),
    (lambda x: sparsity.monitor(QUERIES, QUERIES, when=x), "when",
     (None, "yes", [True], np.array([True, False]), jnp.ones(2), jax.random.key(0))),
    (lambda x: fused(q=x), "q", NO_QUERIES),
    (lambda x: fused(k=x), "k", (*NO_QUERIES, QUERIES[:, :5], np.concatenate([QUERIES] * 2))),
    (lambda x: fused(q=QUERIES[None], k=x), "k", (QUERIES, np.stack([QUERIES] * 2))),
    (lambda x: fused(scale=x), "scale", (*NUMBER[:2], *NUMBER[3:], 0)),
    (lambda x: fused(causal=x), "causal", ("no", None, 2, 0.5, [True])),
    (lambda x: fused(cu_seqlens=x), "cu_seqlens",
     (5, [0, 3.7, 8], [0], [], [0, 9], [-1, 8], [0, 4, 4], [0, np.nan], "08", [[0, 8]], True)),
    (lambda x: fused(of=x), "of", (*NAME, ["neff"], 3.5, {"lse": 1}, np.array(3.0))),
    (lambda x: fused(attend=x), "attend",
     (3, None, "x", lambda *given: given[0], lambda *given: (given[0],), lambda *given: None,
      lambda *given: (given[0], given[0]), lambda *given: (LSE, LSE), lambda *given: given)),
    (sparsity.gini, "weights", (RAGGED, jax.random.key(0), object(), 1j)),
    (lambda x: sparsity.entropy([1.0, 2.0], x), "unit", (RAGGED, "x", -1.0, *NUMBER[:2], [1, 2])),
    (lambda x: sparsity.monitoring.log({"n_eff": x}), "layer0/n_eff", (np.ones((1, 0, 4)), 3.0)),
    (lambda x: sparsity.monitoring.alert({"a": x}, "*", below=2), "a", (LSE, "x", 1j, object())),
    (lambda x: sparsity.from_lse(x, LSE), "lse", NO_ARRAY),
    (lambda x: sparsity.from_lse(LSE, x), "lse2", (*NO_ARRAY, LSE[:, :5], np.float32(1))),
    (process_pool, "workers", (0, -1, 2.5, np.nan)),
]  # fmt: skip
CASES = [
    pytest.param(call, name, value, id=f"{i}-{name}-{j}")
    for i, (call, name, values) in enumerate(CALLS)
    for j, value in enumerate(values)
]


@pytest.mark.parametrize(("call", "name", "value"), CASES)
def test_a_bad_value_is_one_line_that_names_its_argument(call, name, value):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(InputError) as error:
            call(value)
    assert error.value.argument == name
    assert len(str(error.value)) < 500


TAKERS = {
    "monitor": functools.partial(jax.eval_shape, sparsity.monitor),
    "stream": functools.partial(jax.eval_shape, sparsity.stream),
    "fused_rows": lambda q, k: sparsity.fused_rows(attend, q, k),
    "measure": lambda q, k: sparsity.measure(queries=q[0], keys=k[0]),
}


@pytest.mark.parametrize(
    "taker", [pytest.param(x, marks=[pytest.mark.thorough] * (x == "measure")) for x in TAKERS]
)
def test_tokens_and_heads_exchanged_are_said(taker):
    x = np.ones((2, 8, 4, 4), np.float32)  # [batch, tokens, heads, dim], as of a model before it
    with pytest.warns(UserWarning, match=r"4 tokens of 8 heads: if they are \[\.\.\., tokens"):
        TAKERS[taker](x, x)
    TAKERS[taker](x.swapaxes(1, 2), x.swapaxes(1, 2))  # a warning would be an error
    TAKERS[taker](x, x[:, :4])  # of as many key heads as tokens it may be right


@pytest.mark.parametrize(
    "value",
    [2, 2.0, "2", np.float32(2), np.array(2), jnp.float32(2), jnp.bfloat16(2), Decimal(2),
     Fraction(2)],
)  # fmt: skip
def test_numbers_of_every_library_are_numbers(value):
    assert sparsity.evaluate("exp", gamma=value).value == sparsity.evaluate("exp", gamma=2.0).value


def test_masked_entries_are_no_numbers():
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    for read in (checks.check_reals, lambda *given: checks.as_float64(given[1], given[0], "fix")):
        with pytest.raises(InputError, match=r"^gamma = masked array: has masked entries"):
            read("gamma", masked)
    assert checks.check_reals("gamma", np.ma.array([1.0, 2.0])).tolist() == [1.0, 2.0]


def test_whole_numbers_stay_whole():
    for value, kind in ((3, int), (np.int64(3), int), (3.0, float), (2**60, float)):
        assert type(checks.check_number("k", value, "fix")) is kind
