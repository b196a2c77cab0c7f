"""Monitors in JAX: against NumPy float64 on the whole matrix; gradients against differences."""

import functools
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from test_streaming import CAUSAL, HEADS, KEY, LENGTH, ROW, UNITS, heads, whole

import sparsity
from sparsity import InputError, monitor
from sparsity.attention.measurement import row_laws
from sparsity.attention.monitoring import OF, log, n_eff_exact, penalty
from sparsity.attention.streaming import log_spaced, log_spaced_by_text


def agree(found, true, rows=slice(None)):
    assert set(found) == set(OF)
    for name, x in found.items():
        assert_allclose(x, true[name][..., rows], rtol=3e-6, atol=3e-6, err_msg=name)


def test_all_rows_are_those_of_the_whole_matrix():
    """With a window, a soft cap and sinks; test_streaming.py has the other masks."""
    q, k = heads()
    found = monitor(q, k, rows=None, window=20, softcap=1.5, sink_logits=UNITS)
    agree(found, whole(q, k, CAUSAL & (ROW - KEY < 20), cap=1.5, unit=UNITS))


def test_planted_errors_are_seen():
    """A key too many in sight, and another scale."""
    q, k = heads()
    found = monitor(q, k, rows=None)
    for own, sight in ((k, KEY <= ROW + 1), (1.01 * k, CAUSAL)):
        with pytest.raises(AssertionError):
            agree(found, whole(q, own, sight))


@pytest.mark.thorough
def test_some_rows_in_a_step_under_grad_and_every_other_step():
    q, k = (x.astype(np.float64) for x in heads())

    @jax.jit
    def step(q, count):
        def loss(q):
            seen = monitor(q, k, when=count % 2 == 0)
            return (q**2).sum() + seen["n_eff"].sum(), seen

        return jax.value_and_grad(loss, has_aux=True)(q)

    (_, seen), slope = step(q, 4)
    agree(seen, whole(q, k, CAUSAL), log_spaced(LENGTH, 16))
    assert_allclose(slope, 2 * q)  # it has none of its own
    (_, seen), slope = step(q, 5)
    assert_allclose(slope, 2 * q)
    assert log([seen]) == {}
    chosen = monitor(q, k, "n_eff", rows=[3, 9])["n_eff"]
    assert_allclose(chosen, whole(q, k, CAUSAL)["n_eff"][..., [3, 9]])


def test_names_and_floats():
    q, k = heads()
    one, two = monitor(q, k, rows=None), monitor(2 * q, k, rows=None)
    told = log({"encoder": [one, two]})
    assert set(map(type, told.values())) == {float}
    places = {name.partition("/")[0] for name in told}
    layers = ("encoder.layer0", "encoder.layer1")
    assert places == {"all", *layers, *(f"{x}.head{i}" for x in layers for i in range(HEADS))}
    assert {name.partition("/")[2] for name in told} == {
        *OF,
        "n_eff_exact",
        "max_logit_exact",
        "bad_rows",
    }
    true, last = whole(q, k, CAUSAL), whole(2 * q, k, CAUSAL)
    assert told["encoder.layer0.head2/n_eff"] == pytest.approx(true["n_eff"][:, 2].mean(), rel=1e-6)
    gamma = np.nanmean(true["gamma"][:, 1])  # the first row has none
    assert told["encoder.layer0.head1/gamma"] == pytest.approx(gamma, rel=1e-6)
    largest = last["max_logit"][:, 3].max()
    assert told["encoder.layer1.head3/max_logit"] == pytest.approx(largest, rel=1e-6)
    every = [*true["n_eff"].ravel(), *last["n_eff"].ravel()]
    assert told["all/n_eff"] == pytest.approx(np.mean(every), rel=1e-6)
    assert log(one)["layer0/length"] == (LENGTH + 1) / 2


def test_the_exact_law_of_streamed_rows():
    n, gamma = np.array([2, 60, 1000]), np.array([0.5, 1.0, 3.0])
    row = [sparsity.exact("exp", gamma=g, length=int(m), of="n_eff").value
           for m, g in zip(n, gamma, strict=True)]  # fmt: skip
    assert_allclose(n_eff_exact(n, gamma), row, rtol=4e-6)
    assert n_eff_exact(1, np.nan) == 1
    assert np.isnan(n_eff_exact([0, 3, 9], [1.0, np.nan, 1e3])).all()


def test_gaussian_rows_have_the_n_eff_that_is_foretold():
    """Their null; the limit law, put in its place, is rejected."""
    rng = np.random.default_rng(0)
    q, k = 1.5 * rng.standard_normal((16, 64, 64)), rng.standard_normal((16, 512, 64))
    options = {"rows": None, "causal": False, "positions": np.arange(64)}
    seen = {name: np.asarray(x) for name, x in monitor(q, k, **options).items()}
    told = log([seen])
    heads = [told[f"layer0.head{i}/n_eff"] / told[f"layer0.head{i}/n_eff_exact"] for i in range(16)]
    error = np.std(heads, ddof=1) / 4
    assert error < 0.01
    assert abs(np.mean(heads) - 1) < 4 * error + 0.01  # γ̂ is measured, not given
    limit = 512 * np.exp(2 * row_laws.log_limit_law(seen["gamma"]))
    assert abs(told["layer0/n_eff"] / limit.mean() - 1) > 4 * error + 0.01


def few(seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((2, 4, 20, 8)), rng.standard_normal((2, 2, 20, 8))


BOUNDS = {"n_eff": (2.0, 3.0), "gamma": (0.5, 0.6), "entropy": (1.0, 1.2), "max_logit": (0.5, 0.6)}


@functools.cache
def penalised(of):
    """(q, k, keys in sight) -> the penalty and its gradient, where some rows see nothing."""
    low, high = BOUNDS[of]

    def loss(q, k, sight):
        mask = lambda i, j: (i % 5 != 0) & (j < sight)  # noqa: E731
        return penalty(q, k, of, low=low, high=high, rows=None, mask=mask, block=(16, 12))

    return jax.jit(jax.value_and_grad(loss, (0, 1)))


@pytest.mark.thorough
@pytest.mark.parametrize("of", BOUNDS)
def test_the_gradient_of_the_penalty_is_that_of_finite_differences(of):
    at, run, rng = few(), penalised(of), np.random.default_rng(5)
    slopes, wrong = jax.device_get(run(*at, 20)[1]), 0
    for which in range(2):
        way, step = rng.standard_normal(at[which].shape), 1e-6
        ends = [run(*(x + sign * step * way * (i == which) if i == which else x
                      for i, x in enumerate(at)), 20)[0] for sign in (-1, 1)]  # fmt: skip
        true, along = float(ends[1] - ends[0]) / (2 * step), float((slopes[which] * way).sum())
        assert along == pytest.approx(true, rel=1e-4)
        wrong += 1.001 * along != pytest.approx(true, rel=1e-4)
    assert wrong == 2  # a thousandth off is seen


@pytest.mark.thorough
@pytest.mark.parametrize("of", BOUNDS)
def test_the_gradient_is_finite_for_rows_of_nothing_and_constant_rows(of):
    (q, k), run = few(), penalised(of)
    for x, sight in ((q, 0), (0 * q, 20), (0 * q, 0)):
        value, slopes = jax.device_get(run(x, k, sight))
        assert np.isfinite(value)
        for slope in slopes:  # equal logits share the slope of the largest
            assert np.isfinite(slope).all()
            assert (of == "max_logit" and sight > 0) or np.abs(slope).max() <= 1e-15
        assert (value == 0) == (sight == 0)
    assert np.abs(run(q, k, 20)[1][0]).max() > 1e-6


def test_what_the_penalty_is():
    q, k = few()
    found = sparsity.stream(q, k, ("n_eff", "gamma", "entropy", "length"))

    asked = (("n_eff", 8.0, None), ("gamma", None, 0.7), ("entropy", 2.0, None))

    @jax.jit
    def penalties(q):
        return [penalty(q, k, of, low=low, high=high, rows=None) for of, low, high in asked]

    few_tokens, wide, sure = penalties(q)
    x, n = (np.asarray(found[name]) for name in ("n_eff", "length"))
    below = np.log(np.minimum(8.0, n) / x).clip(0)
    assert float(few_tokens) == pytest.approx((below**2).mean(), rel=1e-9)
    gamma = np.asarray(found["gamma"])[..., 1:]  # of one key there is none
    above = (gamma - 0.7).clip(0)
    assert float(wide) == pytest.approx((above**2).mean(), rel=1e-9)
    below = (np.minimum(2.0, np.log(n)) - np.asarray(found["entropy"])).clip(0)
    assert float(sure) == pytest.approx((below**2).mean(), rel=1e-9)


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda q, k: monitor(q, k, rows=0), "rows = 0: must be a whole number >= 1"),
        (lambda q, k: monitor(q, k, rows=[99]), "from 0 to 19"),
        (lambda q, k: monitor(q[0, 0], k[0, 0]), r"heads, tokens, dim"),
        (lambda q, k: monitor(q, k, "focus"), "choose among length, S"),
        (lambda q, k: penalty(q, k, "length", low=1.0), "choose one of n_eff, entropy"),
        (lambda q, k: penalty(q, k), "give at least one of them"),
        (lambda q, k: penalty(q, k, low=2, windw=3), "windw = 3.*window"),
        (lambda q, k: penalty(q, k, low=3.0, high=2.0), "at most high = 2.0"),
        (lambda q, k: penalty(q, k, low=0.5), ">= 1"),
        (lambda q, k: penalty(q, k, "sink_mass", high=20), "from 0 to 1"),
        (lambda q, k: log(3), "give what monitor returned"),
        (lambda q, k: log([{"n_eff": np.ones(3)}]), r"layer0/n_eff.*\[..., heads, rows\]"),
    ],
)
def test_bad_input_is_refused_in_one_line(act, says):
    with pytest.raises(InputError, match=says):
        act(*few())


def test_one_row_is_the_last():
    """The first sees one key, of which no bound is asked: no penalty would ever come of it."""
    q, k = few()
    length = q.shape[-2]
    assert log_spaced(length, 1).tolist() == [length - 1]
    assert log_spaced_by_text(np.ones(length, bool), 1).tolist() == [length - 1]
    assert np.all(monitor(q, k, "length", rows=1)["length"] == length)
    assert penalty(q, k, low=length, rows=1) > 0


@pytest.mark.thorough
def test_the_page_says_what_happens_in_jax():
    page = (Path(__file__).parents[1] / "docs" / "monitor.md").read_text("utf-8")
    names = {}
    (code,) = re.findall(r"## JAX\n.*?```python\n(.*?)```", page, re.S)
    exec(compile(code, "docs/monitor.md", "exec"), names)
    assert {"layer0.head0/n_eff", "layer0.head0/n_eff_exact"} <= set(names["told"])
    assert np.isfinite(float(names["value"]))
    assert all(np.asarray(slope).any() for slope in names["slopes"].values())


def test_the_guide_says_what_the_benchmark_measured():
    root = Path(__file__).parents[1]
    pages = [(root / page).read_text("utf-8").replace("\n", " ")
             for page in ("docs/monitor.md", "benchmarks/results/monitor.md")]  # fmt: skip
    for sentence in ("In a step of", "A compiled step took"):
        kept = [re.findall(rf"{sentence} .*? more than itself\.", re.sub(" +", " ", page))
                for page in pages]  # fmt: skip
        assert kept[0] == kept[1]
        assert len(kept[0]) == 1


@pytest.mark.thorough
def test_rows_without_a_value_are_no_nan_where_jax_ends_at_one():
    """Eagerly and in a step that is traced then; NaN of a head is still seen."""
    q, k = few()
    tokens = np.arange(20) < np.array([[20], [9]])
    step = jax.jit(lambda q, when: monitor(q, k, rows=None, segments=tokens, when=when))
    plain = {name: np.asarray(x) for name, x in monitor(q, k, rows=None, segments=tokens).items()}
    slope = jax.grad(lambda q: penalty(q, k, "gamma", low=3.0))(q)
    with jax.debug_nans(True):
        seen = [monitor(q, k, rows=None, segments=tokens), step(q, True), step(q, False)]
        assert_allclose(jax.grad(lambda q: penalty(q, k, "gamma", low=3.0))(q), slope)
        assert np.isfinite(penalty(q, k, "gamma", low=3.0))
        with pytest.raises(FloatingPointError):
            jax.block_until_ready(monitor(np.where(q == q[0, 0, 5, 0], np.nan, q), k, rows=None))
    assert np.isnan(plain["gamma"]).any()
    for found in seen[:2]:
        for name, x in found.items():
            assert_allclose(np.where(np.isnan(plain[name]), -np.inf, plain[name]), x, rtol=1e-5)
    assert log(seen[0]) == pytest.approx(log(plain), rel=1e-5)
    assert log(seen[2]) == {}
