"""Rows of real attention: every statistic against its definition, laws, sinks, memory, refusals."""

import gc
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from scipy import stats
from softmax_apart import softmax_weights

from sparsity import InputError, exact, measure, metric
from sparsity.attention.measurement import (
    attention_layers,
    datasets,
    layer_inputs,
    layers,
    row_laws,
    save,
    tables,
)
from sparsity.attention.measurement import sinks as layers_sinks
from sparsity.attention.stacks import sinks
from sparsity.rows import rope_planes

RNG = np.random.default_rng(7)
T = 40


def softmax(s, seen):
    a = np.where(seen, np.exp(s - s.max(-1, keepdims=True)), 0)
    return a / a.sum(-1, keepdims=True)


def heads(length=T, count=6, shared=2, dim=16, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(count, length, dim)) * 1.7
    k = rng.normal(size=(shared, length, dim))
    k[:, 0] = 2 * q.mean((0, 1))  # something of a sink
    return q.astype(dtype), k.astype(dtype)


def logits_of(q, k):
    return q @ np.repeat(k, len(q) // len(k), 0).swapaxes(1, 2) / np.sqrt(q.shape[-1])


def by_definition(x, sink):
    """The statistics of one row of logits; `sink` is None where the row does not see it."""
    a = np.exp(x)
    p = a / a.sum()
    n = len(x)
    found = {
        "length": n,
        "S": metric.S(a),
        "n_eff": metric.n_eff(a),
        "entropy": -(p * np.log(p)).sum(),
        "largest": p.max(),
        "beta": x.mean(),
        "sink_mass": 0.0 if sink is None else p[sink],
    }
    if n > 1:
        found["gamma"] = x.std(ddof=1)
    rest = x if sink is None else np.delete(x, sink)
    if len(rest) > 3:
        found["gamma_without_sink_key"] = rest.std(ddof=1)
    if len(rest) and n > 1:
        found |= {
            "S_without_sink_key": metric.S(np.exp(rest)),
            "n_eff_without_sink_key": metric.n_eff(np.exp(rest)),
        }
        found["top_logit_without_sink_key"] = rest.max() - rest.mean()
        if sink is not None:
            found["sink_logit"] = x[sink] - rest.mean()
    if len(rest):
        found["top_logit_without_sink_key"] = rest.max() - rest.mean()
    return found


def test_every_statistic_is_its_definition():
    (q, k), sink = heads(), 0
    data = measure(queries=q, keys=k, sink=sink)
    expected = {name: np.full((6, T), np.nan) for name in data if data[name].dims[-1] == "row"}
    checked = 0
    for head, rows in enumerate(logits_of(q, k)):
        for t in range(T):
            row = rows[t, : t + 1], sink if sink <= t else None
            for name, value in by_definition(*row).items():
                expected[name][head, t] = value
                checked += 1
    assert checked > 6 * T * 10
    assert checked == sum(np.isfinite(values).sum() for values in expected.values())
    for name, values in expected.items():
        known = np.isfinite(values)
        got = data[name].values[0][known]
        np.testing.assert_allclose(got, values[known], rtol=3e-6, atol=3e-6, err_msg=name)


def test_weights_give_what_queries_and_keys_give():
    q, k = heads()
    weights = softmax(logits_of(q, k), np.tri(T, dtype=bool))
    one, other = measure(queries=q, keys=k), measure(weights)
    assert "gamma" not in other
    assert len(other.data_vars) == 16
    for name in other.data_vars:
        np.testing.assert_allclose(one[name], other[name], rtol=2e-5, atol=2e-6, err_msg=name)
    scaled = measure(-3.5 * weights * RNG.choice([-1, 1], weights.shape))
    xarray.testing.assert_allclose(scaled, other, rtol=1e-5)


def test_layers_rope_scale_masks_and_libraries():
    q, k = heads(seed=1)
    plain = measure(queries=np.stack([q, 2 * q]), keys=np.stack([k, k]))
    assert plain.sizes["layer"] == 2
    stream = measure(queries=iter([q, 2 * q]), keys=iter([k, k]))
    assert stream.identical(plain)
    np.testing.assert_allclose(
        measure(queries=q, keys=k, scale=0.5).S, plain.S[1:], rtol=1e-6
    )  # 2/√16
    at = np.arange(T)
    turned = measure(
        queries=rope_planes.rotate(q, at, "half", base=500.0),
        keys=rope_planes.rotate(k, at, "half", base=500.0),
    )
    own = measure(queries=q, keys=k, rope=500.0)
    np.testing.assert_allclose(own.S, turned.S, rtol=1e-6)
    assert np.abs(own.S - plain.S[0]).max() > 0.01
    window = np.tri(T, dtype=bool) & ~np.tri(T, k=-9, dtype=bool)
    narrow = measure(queries=q, keys=k, mask=window)
    assert narrow.length.max() == 9
    assert measure(queries=q, keys=k, mask=window, sink=0).sink_mass[..., 9:].max() == 0
    first = softmax(logits_of(q, k), window)[:, at, np.maximum(at - 8, 0)]
    np.testing.assert_allclose(narrow.sink_mass[0], first, rtol=1e-12)
    np.testing.assert_allclose(
        narrow.S, measure(softmax(logits_of(q, k), window), mask=window).S, rtol=1e-5
    )
    slopes = -0.3 * np.abs(np.subtract.outer(at, at)) * np.ones((6, 1, 1))
    biased = measure(queries=q, keys=k, mask=slopes)
    np.testing.assert_allclose(
        biased.S, measure(softmax(logits_of(q, k) + slopes, np.tri(T, dtype=bool))).S, rtol=1e-5
    )
    whole = measure(queries=q, keys=k, causal=False)
    full = softmax(logits_of(q, k), np.ones((T, T), bool))
    np.testing.assert_allclose(whole.n_eff[0], 1 / (full**2).sum(-1), rtol=1e-5)
    assert whole.importance[0, :, 0].values == pytest.approx(full[..., 0].mean(-1), rel=1e-5)
    rounded = measure(queries=jnp.asarray(q, jnp.bfloat16), keys=jnp.asarray(k, jnp.bfloat16))
    np.testing.assert_allclose(rounded.S, plain.S[:1], rtol=0.1)


def test_soft_caps_bend_scaled_logits_before_the_mask():
    """cap·tanh(s/cap) + mask in the compiled blocks, in what is asked for and without all sinks."""
    q, k = heads(seed=3)
    rng = np.random.default_rng(3)
    added = np.where(rng.random((6, T, T)) > 0.3, rng.normal(size=(6, T, T)), -np.inf)
    added[:4, :, 9] = 4.0  # a sink of some heads
    seen = np.isfinite(added) & np.tri(T, dtype=bool)
    raw = logits_of(q, k)
    x = np.where(seen, 2 * np.tanh(raw / 2) + np.where(seen, added, 0), -np.inf)
    wrong = {
        "another cap": 3 * np.tanh(raw / 3) + added,
        "no cap": raw + added,
        "the mask first": 2 * np.tanh(np.where(seen, raw + added, 0) / 2),
    }
    with pytest.raises(InputError, match="give segments= as well"):  # some might be padding
        datasets.measure_with_laws(layer_inputs.layer_of_queries(q, k, mask=added), 0, ())
    text = np.ones(T, int)
    source = layer_inputs.layer_of_queries(q, k, mask=added, softcap=2.0, segments=text)
    found = datasets.measure_with_laws(source, 0, ("gini",))

    def differs(x):
        """By how much the worst row of each variable is off."""
        worst = dict.fromkeys(
            ("n_eff", "gamma", "gini", "n_eff_without_sinks", "gamma_without_sinks"), 0.0
        )
        drop = layers_sinks.find_sinks(found["key_importance"])
        for h, t in np.ndindex(6, T):
            row = x[h, t, seen[h, t]]
            rest = x[h, t, seen[h, t] & ~drop[h]]
            if len(row) > 3 and len(rest) > 3:
                own = {"n_eff": metric.n_eff(np.exp(row)), "gamma": row.std(ddof=1)}
                own["gini"] = gini(np.exp(row))
                own["n_eff_without_sinks"] = metric.n_eff(np.exp(rest))
                own["gamma_without_sinks"] = rest.std(ddof=1)
                for name, value in own.items():
                    worst[name] = max(worst[name], abs(found[name][h, t] / value - 1))
        return worst

    assert layers_sinks.find_sinks(found["key_importance"]).any()
    assert max(differs(x).values()) < 1e-5
    for name, other in wrong.items():
        assert min(differs(np.where(seen, other, -np.inf)).values()) > 0.01, name


def gini(a):
    n = len(a)
    return ((2 * np.arange(1, n + 1) - n - 1) * np.sort(a)).sum() / (n * a.sum())


def test_statistics_are_the_same_on_jax_arrays():
    """Those of an accelerator stay there; here they are asked to on the CPU, in one program."""
    from sparsity.attention.measurement import row_focus

    def statistics(s, seen):
        return row_focus.measure_weights(softmax_weights(row_focus.set_sink_apart(s, seen, 3)))[0]

    q, k = heads()
    given = logits_of(q, k), np.tri(T, dtype=bool)[None]
    a, b = statistics(*given), jax.jit(statistics)(*given)
    assert set(a) == set(b)
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-9, atol=1e-9, err_msg=name)


def sink_rate(data, context, epsilon):
    """The share of heads in which the importance of the sink key exceeds ε, where it is known."""
    return tables._share(tables.known_values(data.sel(context=context), "importance"), epsilon)


def test_sinks_are_those_of_the_metric():
    q, k = heads(length=200)
    weights = softmax(logits_of(q, k), np.tri(200, dtype=bool))
    data = measure(queries=q, keys=k)
    assert data.context.values.tolist() == [64, 128, 200]
    for context in (64, 128, 200):
        cut = weights[:, :context, :context]
        at = data.sel(context=context, layer=0)
        expected = sinks.importance(cut)
        np.testing.assert_allclose(at.importance, expected[:, 0], rtol=1e-5)
        often = expected[:, : context - context // 4 + 1]
        np.testing.assert_allclose(at.top_importance, often.max(-1), rtol=1e-5)
        assert np.array_equal(at.top_key, often.argmax(-1))
        for epsilon in (0.01, 0.02, 0.3):
            assert sink_rate(data, context, epsilon) == sinks.sink_rate(cut[None], epsilon)


def test_rows_that_give_nothing_are_left_out_of_sinks():
    q, k = heads()
    weights = softmax(logits_of(q, k), np.tri(T, dtype=bool))
    holes = np.delete(np.arange(T), [7, 20])
    expected = weights[:, holes, 0].mean(1)
    zeros = weights.copy()
    zeros[:, [7, 20]] = 0
    seen = np.tri(T, dtype=bool)
    seen[[7, 20]] = False
    epsilon = float(np.median(expected))
    assert np.mean(expected > epsilon) == 0.5
    for data in (measure(zeros), measure(zeros, mask=seen), measure(queries=q, keys=k, mask=seen)):
        np.testing.assert_allclose(data.importance[0, :, 0], expected, rtol=1e-5)
        assert sink_rate(data, T, epsilon) == 0.5
        assert np.isfinite(data.top_importance).all()
    unseen = seen & (np.arange(T) > 0)
    nowhere = measure(queries=q, keys=k, mask=unseen, sink=0)
    assert np.isnan(nowhere.importance).all()
    assert np.isnan(sink_rate(nowhere, T, 0.05))


def test_additive_masks_hide_with_any_low_number():
    q, k = heads(dtype=np.float32)
    seen = np.tri(T, dtype=bool) & ~np.tri(T, k=-9, dtype=bool)
    seen[11] = False
    expected = measure(queries=q.astype(float), keys=k.astype(float), mask=seen)
    for low, kind in (
        (-np.inf, np.float64), (-1e4, np.float32), (np.finfo(np.float16).min, np.float16),
    ):  # fmt: skip
        hidden = np.where(seen, 0, low).astype(kind)
        got = measure(queries=q, keys=k, mask=hidden)
        assert np.array_equal(got.length, expected.length)
        xarray.testing.assert_allclose(got.drop_attrs(), expected.drop_attrs(), atol=1e-4)
    slopes = 0.5 * np.arange(T) - 4000.0  # ALiBi, up to a constant of the row
    same = measure(queries=q, keys=k, mask=np.broadcast_to(slopes, (T, T)))
    assert np.array_equal(same.length[0, 0], np.arange(1, T + 1))


def test_rows_with_few_keys_and_no_sink_are_measured():
    q, k = heads()
    left = np.tri(T, dtype=bool) & (np.arange(T) >= 9)  # padding on the left
    for seen in (np.eye(T, dtype=bool), left):
        mask = np.where(seen, 0.0, -np.inf)
        data = measure(queries=q, keys=k, mask=mask, causal=False, sink=5)
        same = measure(queries=q, keys=k, mask=seen, sink=5)  # none of them sees beyond itself
        xarray.testing.assert_allclose(data.drop_attrs(), same.drop_attrs(), atol=1e-5)
        assert np.array_equal(data.length[0, 0], seen.sum(1))


@pytest.mark.slow
def test_wide_logits_have_laws_and_ranks():
    q, k = heads(length=128)
    scale = np.minimum(np.linspace(10, 42, 128), 27)[None, :, None]
    one = measure(queries=scale * q, keys=k)
    assert float(one.gamma.max()) > 60
    exact = np.log(one.S.astype(float)) + one.gamma.astype(float) ** 2 / 2
    np.testing.assert_allclose(one.residual_limit, exact, rtol=1e-4, atol=1e-5)
    row = tables.summary(one)[-1]
    assert row["ratio_limit"] == np.inf
    known = one.isel(row=slice(7, None))
    for name, own in (
        ("rank_limit", "gamma"),
        ("rank_limit_without_sink_key", "gamma_without_sink_key"),
    ):
        S = known["S_without_sink_key" if "sink_key" in name else "S"].values[0]
        for head in range(6):
            ranks = stats.spearmanr(S[head], -known[own].values[0, head]).statistic
            assert float(one[name][0, head]) == pytest.approx(ranks, abs=1e-6)
        assert abs(row[name] + stats.spearmanr(*(
            one[x].values[..., 64:].ravel()
            for x in (own, "S_without_sink_key" if "sink_key" in name else "S")
        )).statistic) < 1e-9  # fmt: skip


def test_n_eff_is_counted_and_not_its_identity():
    """Of Σp² to the last bit: the identity with n_eff_without_sink_key is then to be shown."""
    from sparsity.attention.measurement import row_focus

    q, k = heads()
    one = measure(queries=q, keys=k)
    apart = row_focus.set_sink_apart(logits_of(q, k), np.tri(T, dtype=bool)[None], 0)
    found, p, n = row_focus.measure_weights(softmax_weights(apart))
    direct = 1 / (found["sink_mass"] ** 2 + (p * p).sum(-1))
    assert np.array_equal(found["n_eff"], np.clip(direct, 1, n))
    np.testing.assert_allclose(one.n_eff[0], direct, rtol=1e-5)


def test_what_was_asked_is_kept_and_progress_is_honest():
    q, k = heads()
    steps = []
    data = measure(
        queries=iter([q, q]), keys=iter([k, k]), rope=500.0, sink=np.int64(2),
        mask=np.zeros((T, T)), progress=lambda *step: steps.append(step),
    )  # fmt: skip
    assert steps == [(1, 0), (2, 0)]
    kept = {"rope": 500.0, "pairing": "half", "scale": 0.25, "mask": "added", "sink": 2}
    assert kept.items() <= data.attrs.items()
    measure(queries=[q, q], keys=[k, k], progress=lambda *step: steps.append(step))
    assert steps[2:] == [(1, 2), (2, 2)]


def test_a_sink_that_takes_nearly_all_leaves_the_rest_exact():
    q, k = heads()
    q[..., 0], k[..., 0], k[:, 0, 0] = 4.0, 0.0, 70.0  # of a scale of ¼
    rest = np.exp(logits_of(q, k)[0, -1, 1:])
    found = layers.measure_layer(layer_inputs.layer_of_queries(q, k))  # whose laws are not asked
    last = {name: found[name][0, -1] for name in ("n_eff", "sink_mass", "entropy")}
    np.testing.assert_allclose(found["S_without_sink_key"][0, -1], metric.S(rest), rtol=1e-5)
    assert (last["n_eff"], last["sink_mass"]) == (1, 1)
    assert last["entropy"] < 1e-20


def test_the_exact_law_is_interpolated_within_its_stated_error():
    rng, worst, cells = np.random.default_rng(3), 0.0, 0
    for gamma in np.concatenate([[1e-3, 0.02, 9.0], 7 * rng.random(12) ** 2]):
        n = np.unique([2, 3, *rng.integers(2, 60, 6), *rng.integers(60, 4096, 4), 4096])
        direct = exact("exp", length=n, gamma=float(gamma))
        got = row_laws.exact_law(n, np.full(len(n), gamma))
        worst, cells = max(worst, np.abs(np.log(got / direct.S_rms)).max()), cells + len(n)
    assert cells > 120
    assert worst < row_laws.TABLE_ERROR
    beside = row_laws.exact_law(n[:-1] + 1, gamma)  # not of 4097, which would take another table
    assert np.abs(np.log(beside / direct.S_rms[:-1])).max() > 10 * row_laws.TABLE_ERROR
    assert np.isnan(row_laws.exact_law(9, [np.nan, 2 * row_laws.MAX_GAMMA])).all()
    assert row_laws.exact_law(1, 3.0) == 1
    assert row_laws.exact_law(5, 0.0) == 1
    *_, before, last = row_laws._table_lengths(10**5)
    assert before < 10**5 <= last  # no longer rows than are asked for


def test_gaussian_rows_follow_the_exact_law_and_not_the_limit_law():
    gamma, n, rows = 3.0, 256, 2048
    s = gamma * np.random.default_rng(5).normal(size=(1, rows, n))
    logits = np.zeros((1, rows, rows))
    logits[..., :n] = s
    seen = np.zeros((rows, rows), bool)
    seen[:, :n] = True
    weights, own = np.where(seen, np.exp(logits), 0), np.ones(rows, int)
    data = measure(weights, causal=False, mask=seen, segments=own)  # no query is padding
    draws = data.n_eff.values.ravel()
    z = (draws.mean() - exact("exp", length=n, gamma=gamma).value) / (draws.std() / np.sqrt(rows))
    assert abs(z) < 4
    assert draws.mean() > 5 * n * np.exp(2 * row_laws.log_limit_law(gamma))


def test_rank_correlation_is_scipys():
    x = RNG.normal(size=(3, 50))
    y = x + RNG.normal(size=(3, 50))
    y[1, 4] = np.nan
    got = datasets.rank_correlation(x, y)
    for i in range(3):
        keep = np.isfinite(y[i])
        assert got[i] == pytest.approx(stats.spearmanr(x[i][keep], y[i][keep]).statistic)


def test_laws_join_what_was_measured_without_them():
    q, k = heads()
    data = measure(queries=[q, 2 * q], keys=[k, k])
    laws = [x for x in data if x.startswith(("S_limit", "S_exact", "residual_", "rank_"))]
    assert len(laws) == 18
    found = datasets.with_laws(data.drop_vars(laws))
    xarray.testing.assert_allclose(found[laws], data[laws], rtol=1e-6)
    assert [found[x].attrs for x in laws] == [data[x].attrs for x in laws]
    for bad in (found.isel(layer=0, drop=True), measure(np.eye(4)[None])):
        with pytest.raises(InputError, match="measure_transformers"):
            datasets.with_laws(bad)


@pytest.mark.thorough
def test_memory_holds_a_block_of_rows():
    q, k = heads(length=4096, count=2, shared=1, dim=8, dtype=np.float32)
    measure(queries=q, keys=k)  # what it imports, and keeps of its laws at this length
    gc.collect()
    tracemalloc.start()
    data = measure(queries=q, keys=k)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert data.sizes["row"] == 4096
    assert peak < 4096 * 4096 * 4 / 4  # a quarter of one head's T × T


@pytest.mark.thorough
def test_netcdf_brings_everything_back(tmp_path):
    q, k = heads()
    data = measure(queries=q, keys=k)
    save(data, tmp_path / "a.nc")
    with xarray.open_dataset(tmp_path / "a.nc") as back:
        xarray.testing.assert_identical(back.load(), data)
    for name, variable in data.data_vars.items():
        assert variable.attrs["long_name"] == datasets.MEANING[name]
    with pytest.raises(InputError, match="out"):
        save(data, tmp_path / "no" / "a.nc")


def test_bad_arrays_are_refused():
    q, k = heads()
    weights = softmax(logits_of(q, k), np.tri(T, dtype=bool))
    nan = q.copy()
    nan[0, 3, 2] = np.nan
    bad = weights.copy()
    bad[2, 30, 4] = np.inf
    cases = [
        (lambda: measure(), "give attention weights"),
        (lambda: measure(weights, queries=q, keys=k), "give attention weights"),
        (lambda: measure(queries=q), "give attention weights"),
        (lambda: measure(weights, rope=1e4), "weights have none of them"),
        (lambda: measure(queries=nan, keys=k), "NaN"),
        (lambda: measure(bad), "NaN or infinite"),
        (lambda: measure(np.ones((1, 9, 9))), "causal=False"),
        (lambda: measure(weights, mask=np.eye(T, dtype=bool)), "another mask"),
        (lambda: measure(weights, mask=np.zeros((T, T), int)), "give bool"),
        (lambda: measure(weights * 1j), "real numbers"),
        (lambda: measure(weights[0]), r"give an array \[heads"),
        (lambda: measure(3), "give an array"),
        (lambda: measure([]), "no layer"),
        (lambda: measure(queries=q[:5], keys=k), "divide"),
        (lambda: measure(queries=q, keys=k[:, :9]), "tokens, dim"),
        (lambda: measure(queries=q, keys=k, scale=np.inf), "finite"),
        (lambda: measure(queries=q, keys=k, sink=T), "position"),
        (lambda: measure(queries=q, keys=k, mask=np.ones((T, T + 1), bool)), "mask"),
        (lambda: measure(queries=q, keys=k, mask=np.full((T, T), np.nan)), "mask"),
        (lambda: measure(queries=np.float32(1e30 * q), keys=np.float32(1e30 * k)), "logits"),
        (lambda: measure(queries=[q, q], keys=[k]), "as many layers"),
        (lambda: measure([weights, weights[:3]]), "as many texts, heads"),
        (lambda: measure(queries=q[..., :15], keys=k[..., :15], rope=1e4), "even"),
        (lambda: measure(queries=q, keys=k, sink=True), "whole number"),
        (lambda: measure(queries=q, keys=k, rope="x"), "rope"),
        (lambda: measure(queries=q, keys=k, rope=0.0), "rope"),
        (lambda: measure(queries=q, keys=k, scale="a"), "scale"),
        (lambda: measure(queries=q, keys=k, pairing="bad"), "pairing"),
    ]
    for work, says in cases:
        with pytest.raises(InputError, match=says):
            work()


def worst(data, logits, seen, sink):
    """The largest relative error of what is measured, over all rows; and of what keys receive."""
    off, expected = 0.0, softmax(logits, seen)
    found = {name: x.values for name, x in data.items()}
    for head, rows in enumerate(logits):
        for t in np.flatnonzero(seen.any(-1)):
            at = np.flatnonzero(seen[t])
            place = int(np.searchsorted(at, sink)) if seen[t, sink] else None
            for name, value in by_definition(rows[t, at], place).items():
                off = max(off, abs(found[name][0, head, t] - value) / max(1, abs(value)))
    received = expected.sum(1) / np.maximum(seen.sum(0), 1)
    return max(off, np.abs(found["importance"][0, :, -1] - received[:, sink]).max())


def test_blocks_of_every_size_and_what_they_must_not_do(monkeypatch):
    """Several tiles of keys, blocks of rows that lie over one another, one key head at a time."""
    from sparsity.attention.measurement import logit_blocks, row_focus

    q, k = heads()
    s, seen, sink = logits_of(q, k), np.tri(T, dtype=bool), 5
    window = seen & ~np.tri(T, k=-9, dtype=bool)
    monkeypatch.setattr(logit_blocks, "MAX_ROWS", 12)
    monkeypatch.setattr(logit_blocks, "MAX_KEYS", 16)
    monkeypatch.setattr(logit_blocks, "MAX_LOGITS", 36 * T)
    given = {"queries": q, "keys": k, "sink": sink}
    tiled = measure(**given)
    assert worst(tiled, s, seen, sink) < 1e-6
    single = given | {"queries": np.float32(q), "keys": np.float32(k)}
    assert worst(measure(**single, mask=window), s, window, sink) < 2e-5
    # Planted: one key too few in sight; another sink; the sink's weight counted twice.
    assert worst(tiled, s, np.tri(T, k=1, dtype=bool), sink) > 0.1
    assert worst(tiled, s, seen, 6) > 0.1
    right = row_focus.measure_logit_sums

    def twice(rest, sink, unit):
        weight = np.exp(np.minimum(sink - rest.top, 50.0))
        return right(rest._replace(z=rest.z + weight, y=rest.y + weight**2), sink)

    monkeypatch.setattr(row_focus, "measure_logit_sums", twice)
    assert worst(measure(**given), s, seen, sink) > 0.1


@pytest.mark.thorough
def test_heads_with_several_sinks_compile_no_more_than_all_heads(monkeypatch):
    shapes = set()

    def product(q, k):
        shapes.add((q.shape, k.shape))
        return np.matmul(q, k.swapaxes(-1, -2))

    monkeypatch.setattr(attention_layers, "compiled_product", lambda: product)
    rng = np.random.default_rng(0)
    q, k = (rng.normal(size=(8, 512, 4)).astype(np.float32) for _ in range(2))
    source = layer_inputs.layer_of_queries(q, k)
    rows = layers.measure_layer(source)
    for several in range(1, 9):
        marked = np.zeros((8, 512), bool)
        marked[:several, [0, 5]] = True
        layers_sinks.measure_without_sinks(source, marked, rows, 0)
    assert len(shapes) == 8  # a width each, whatever the number of heads
