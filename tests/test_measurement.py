"""Rows of real attention: every statistic against its definition, laws, sinks, memory, refusals."""

import dataclasses
import functools
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from scipy import special, stats
from softmax_apart import softmax_weights

from sparsity import InputError, Row, SinkLogit, exact, measure, metric, plotting
from sparsity.attention import claims as claims_model
from sparsity.attention import job
from sparsity.attention.claims.evidence import Evidence, LawFit, ModelRun, Sinks
from sparsity.attention.measurement import (
    SHAPE,
    attention_layers,
    datasets,
    layer_inputs,
    layers,
    row_laws,
    save,
    tables,
)
from sparsity.attention.measurement import sinks as layers_sinks
from sparsity.rows import rope_planes
from sparsity.stacks import sinks

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


def shape_by_definition(x, sink):
    """The shape of one row of logits, where there are enough of them."""
    found = {}
    for tag, y in (("", x), ("_without_sink_key", x if sink is None else np.delete(x, sink))):
        if len(y) > 3:
            z, n = np.sort(y - y.mean()), len(y)
            F, steps = special.ndtr(z / y.std(ddof=1)), np.arange(n + 1) / n
            found |= {
                f"skew{tag}": (z**3).mean() / (z * z).mean() ** 1.5,
                f"kurtosis{tag}": (z**4).mean() / (z * z).mean() ** 2 - 3,
                f"distance{tag}": max((F - steps[:-1]).max(), (steps[1:] - F).max()),
            }
    return found


def test_the_definitions_of_shape_are_scipys():
    y = np.random.default_rng(5).normal(size=30) ** 3
    z = (y - y.mean()) / y.std(ddof=1)
    known = stats.skew(y), stats.kurtosis(y), stats.kstest(z, "norm").statistic
    found = shape_by_definition(y, None)
    assert [found[x] for x in ("skew", "kurtosis", "distance")] == pytest.approx(known, rel=1e-12)


@pytest.mark.parametrize("sink", [0, 5])
def test_every_statistic_is_its_definition(sink):
    q, k = heads()
    data = measure(queries=q, keys=k, sink=sink, of=SHAPE)
    expected = {name: np.full((6, T), np.nan) for name in data if data[name].dims[-1] == "row"}
    checked = 0
    for head, rows in enumerate(logits_of(q, k)):
        for t in range(T):
            row = rows[t, : t + 1], sink if sink <= t else None
            for name, value in (by_definition(*row) | shape_by_definition(*row)).items():
                expected[name][head, t] = value
                checked += 1
    assert checked > 6 * T * 16
    assert checked == sum(np.isfinite(values).sum() for values in expected.values())
    for name, values in expected.items():
        known = np.isfinite(values)
        got, loose = data[name].values[0], 6e-5 if name.startswith("distance") else 3e-6
        np.testing.assert_allclose(got[known], values[known], rtol=loose, atol=loose, err_msg=name)


def test_weights_give_what_queries_and_keys_give():
    q, k = heads()
    weights = softmax(logits_of(q, k), np.tri(T, dtype=bool))
    one, other = measure(queries=q, keys=k), measure(weights)
    assert "gamma" not in other
    assert len(other.data_vars) == 17
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
    empty = np.tri(T, dtype=bool)
    empty[7] = False
    holed = measure(queries=q, keys=k, mask=empty)
    assert np.isnan(holed.S.values[..., 7]).all()
    assert np.isfinite(np.delete(holed.S.values, 7, axis=2)).all()
    hidden = np.where(np.tri(T, dtype=bool), 0.0, np.finfo(np.float32).min)
    same = measure(queries=q, keys=k, mask=hidden, causal=False)
    np.testing.assert_allclose(same.S, plain.S[:1], rtol=1e-6)
    whole = measure(queries=q, keys=k, causal=False)
    full = softmax(logits_of(q, k), np.ones((T, T), bool))
    np.testing.assert_allclose(whole.n_eff[0], 1 / (full**2).sum(-1), rtol=1e-5)
    assert whole.importance[0, :, 0].values == pytest.approx(full[..., 0].mean(-1), rel=1e-5)
    for other, loose in ((np.float32, 2e-5), (np.float16, 2e-2), (jnp.bfloat16, 0.1)):
        rounded = measure(queries=jnp.asarray(q.astype(other)), keys=jnp.asarray(k.astype(other)))
        np.testing.assert_allclose(rounded.S, plain.S[:1], rtol=loose)


@pytest.mark.parametrize("causal", [True, False])
def test_soft_caps_bend_scaled_logits_before_the_mask(causal):
    """cap·tanh(s/cap) + mask in the compiled blocks, in what is asked for and without all sinks."""
    q, k = heads(seed=3)
    rng = np.random.default_rng(3)
    added = np.where(rng.random((6, T, T)) > 0.3, rng.normal(size=(6, T, T)), -np.inf)
    added[:4, :, 9] = 4.0  # a sink of some heads
    seen = np.isfinite(added) & (np.tri(T, dtype=bool) | (not causal))
    raw = logits_of(q, k)
    x = np.where(seen, 2 * np.tanh(raw / 2) + np.where(seen, added, 0), -np.inf)
    wrong = {
        "another cap": 3 * np.tanh(raw / 3) + added,
        "no cap": raw + added,
        "the mask first": 2 * np.tanh(np.where(seen, raw + added, 0) / 2),
    }
    with pytest.raises(InputError, match="give segments= as well"):  # some might be padding
        datasets.measure_with_laws(
            layer_inputs.layer_of_queries(q, k, causal=causal, mask=added), 0, ()
        )
    text = np.ones(T, int)
    source = layer_inputs.layer_of_queries(
        q, k, causal=causal, mask=added, softcap=2.0, segments=text
    )
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
    from sparsity.attention.measurement import requested, row_focus

    def statistics(s, seen):
        parts = row_focus.set_sink_apart(s, seen, 3)
        weights = softmax_weights(parts)
        return requested.measure_shape(parts), row_focus.measure_weights(weights)[0]

    q, k = heads()
    given = logits_of(q, k), np.tri(T, dtype=bool)[None]
    for a, b in zip(statistics(*given), jax.jit(statistics)(*given), strict=True):
        assert set(a) == set(b)
        for name in a:
            np.testing.assert_allclose(a[name], b[name], rtol=1e-9, atol=1e-9, err_msg=name)


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
            rate = tables.sink_rate(data, context, epsilon)
            assert rate == sinks.sink_rate(cut[None], epsilon)


def test_rows_that_give_nothing_are_left_out_of_sinks():
    q, k = heads()
    weights = softmax(logits_of(q, k), np.tri(T, dtype=bool))
    holes = np.delete(np.arange(T), [7, 20])
    expected = weights[:, holes, 0].mean(1)
    zeros = weights.copy()
    zeros[:, [7, 20]] = 0
    seen = np.tri(T, dtype=bool)
    seen[[7, 20]] = False
    added = np.where(seen, 0.0, -np.inf)
    epsilon = float(np.median(expected))
    assert np.mean(expected > epsilon) == 0.5
    for data in (
        measure(zeros),
        measure(zeros, mask=seen),
        measure(queries=q, keys=k, mask=seen),
        measure(queries=q, keys=k, mask=added, causal=False),
    ):
        np.testing.assert_allclose(data.importance[0, :, 0], expected, rtol=1e-5)
        assert tables.sink_rate(data, T, epsilon) == 0.5
        assert np.isfinite(data.top_importance).all()
    unseen = seen & (np.arange(T) > 0)
    nowhere = measure(queries=q, keys=k, mask=unseen, sink=0)
    assert np.isnan(nowhere.importance).all()
    assert np.isnan(tables.sink_rate(nowhere, T, 0.05))


def test_additive_masks_hide_with_any_low_number():
    q, k = heads(dtype=np.float32)
    seen = np.tri(T, dtype=bool) & ~np.tri(T, k=-9, dtype=bool)
    seen[11] = False
    expected = measure(queries=q.astype(float), keys=k.astype(float), mask=seen)
    tried = 0
    for low, kind in (
        (-np.inf, np.float64), (-1e4, np.float32), (-1e9, np.float32), (-2e4, np.float16),
        (np.finfo(np.float16).min, np.float16), (np.finfo(np.float64).min, np.float64),
    ):  # fmt: skip
        hidden = np.where(seen, 0, low).astype(kind)
        got = measure(queries=q, keys=k, mask=hidden)
        assert np.array_equal(got.length, expected.length)
        xarray.testing.assert_allclose(got.drop_attrs(), expected.drop_attrs(), atol=1e-4)
        tried += 1
    assert tried == 6
    slopes = 0.5 * np.arange(T) - 4000.0  # ALiBi, up to a constant of the row
    same = measure(queries=q, keys=k, mask=np.broadcast_to(slopes, (T, T)))
    assert np.array_equal(same.length[0, 0], np.arange(1, T + 1))


def test_rows_with_few_keys_and_no_sink_are_measured():
    q, k = heads()
    left = np.tri(T, dtype=bool) & (np.arange(T) >= 9)  # padding on the left
    for seen in (np.tri(T, dtype=bool), np.eye(T, dtype=bool), left):
        mask = np.where(seen, 0.0, -np.inf)
        data = measure(queries=q, keys=k, mask=mask, causal=False, sink=5)
        same = measure(queries=q, keys=k, mask=seen, sink=5)  # none of them sees beyond itself
        xarray.testing.assert_allclose(data.drop_attrs(), same.drop_attrs(), atol=1e-5)
        assert np.array_equal(data.length[0, 0], seen.sum(1))


def test_wide_logits_have_laws_and_ranks(tmp_path, monkeypatch):
    q, k = heads(length=128)
    scale = np.minimum(np.linspace(10, 42, 128), 27)[None, :, None]
    one = measure(queries=scale * q, keys=k, of=SHAPE)
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
    constant = measure(queries=np.ones(q.shape), keys=np.ones(k.shape), of=SHAPE)
    # The other format draws the same: `test_the_command_writes_data_and_page` has both.
    vector = functools.partial(plotting.render, suffixes=("svg",))
    monkeypatch.setattr(plotting, "render", vector)
    for data in (one, whole_run(constant)):  # of a run that is not said, and of both
        files, _ = job.write_report(data, tmp_path, "sparsity measure")
        assert files[-1].stat().st_size > 1e5


def whole_run(one):
    """What `measure` found as if it had come from a model."""
    data = xarray.concat([one, one], "bos").expand_dims(text=["a"]).assign_coords(bos=[0, 1])
    data["loss"] = (("text", "bos"), np.ones((1, 2)))
    tokens = one.sizes["row"]
    return data.assign_attrs(one.attrs, model="m", model_sha256="0", tokens=tokens)


def undrawn(*_):
    """In place of a picture."""
    return {"svg": b'<svg viewBox="0 0 1 1"></svg>', "png": b""}


def test_a_report_of_one_run(tmp_path, monkeypatch):
    """Of arrays or of `transformers`, or of one run of many: bos is a label, or not said at all.

    Pictures are drawn above, of a run that is not said and of both.
    """
    monkeypatch.setattr(plotting, "render", undrawn)
    q, k = heads(length=128)
    one = measure(queries=q, keys=k, of=SHAPE)
    many = whole_run(one)
    cases = {
        "not said": one,
        "yes": many.isel(bos=1),
        "no": many.isel(bos=0, text=0),
        "also no": many.isel(bos=[0]),
        "untold": many.isel(bos=0).drop_vars("bos"),
    }
    for name, data in cases.items():
        files, claims = job.write_report(data, tmp_path / name, "sparsity measure")
        page = files[-1].read_text("utf-8")
        assert len(claims) == len(claims_model.CLAIMS)
        assert ("<td>not said</td>" in page) == (name in ("not said", "untold"))
        assert ("<td>yes</td>" in page) == (name == "yes")
        assert ("loss" in page) == (name != "not said")
        words = (tmp_path / name / "context.csv").read_text()
        assert ("BOS" in words) == (name not in ("not said", "untold"))
        assert "without BOS" in page or name not in ("no", "also no")
    files, _ = job.write_report(many, tmp_path / "many", "sparsity measure")
    assert "<td>yes</td>" in files[-1].read_text("utf-8")
    weights = softmax(logits_of(q, k), np.tri(128, dtype=bool))
    for data, says in (
        (measure(weights), "measure queries and keys"),
        (measure(queries=q[:, :40], keys=k[:, :40], causal=False), "compares contexts"),
        (measure(queries=q[:, :40], keys=k[:, :40]), "128 tokens or more"),
        (measure(queries=q, keys=k), "of=sparsity.measurement.SHAPE"),
    ):
        with pytest.raises(InputError, match=says):
            job.write_report(data, tmp_path / "none", "sparsity measure")
    assert not (tmp_path / "none").exists()


def test_rows_without_a_shape_do_not_depart():
    rng = np.random.default_rng(3)
    q = rng.normal(size=(6, 96, 16)).astype(np.float32)
    k = np.broadcast_to(rng.normal(size=(2, 1, 16)), (2, 96, 16)).astype(np.float32)
    noise = rng.normal(size=k.shape).astype(np.float32)
    data = measure(queries=q, keys=k * (1 + 1e-7 * noise), of="distance")
    assert 0 < float(data.gamma.max()) < 1e-5
    assert not (data.departs > 0).any()
    assert np.isnan(data.distance_without_sink_key.values).all()
    s = rng.normal(size=(1, 70, 70))
    s[:, :50] = 1e-5 * np.exp(4 * s[:, :50])  # anything but Gaussian, in rows too short to be told
    short = measure(queries=np.eye(70)[None], keys=s[0].T[None].copy(), scale=1.0, of="distance")
    assert short.departs.item() <= 0.15
    assert np.isnan(
        measure(queries=q[:, :T], keys=k[:, :T] * q[:2, :T], of="distance").departs
    ).all()


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
    s = RNG.normal(size=(1, 70, 70)) * 2
    s[..., 0] += 60
    data = measure(queries=np.eye(70)[None], keys=s[0].T[None].copy(), scale=1.0)
    rest = np.exp(s[0, 69, 1:])
    np.testing.assert_allclose(data.S_without_sink_key[0, 0, 69], metric.S(rest), rtol=1e-5)
    assert float(data.sink_mass[0, 0, 69]) == 1.0
    assert float(data.n_eff[0, 0, 69]) == 1.0
    assert float(data.entropy[0, 0, 69]) < 1e-20


def test_the_exact_law_is_interpolated_within_its_stated_error():
    rng, worst, cells = np.random.default_rng(3), 0.0, 0
    for gamma in np.concatenate([[1e-3, 0.02, 40.0], 7 * rng.random(40) ** 2]):
        n = np.unique([2, 3, *rng.integers(2, 60, 6), *rng.integers(60, 4096, 4), 4096])
        direct = exact("exp", length=n, gamma=float(gamma))
        got = row_laws.exact_law(n, np.full(len(n), gamma))
        worst, cells = max(worst, np.abs(np.log(got / direct.S_rms)).max()), cells + len(n)
    assert cells > 400
    assert worst < row_laws.TABLE_ERROR
    beside = row_laws.exact_law(n[:-1] + 1, gamma)  # not of 4097, which would take another table
    assert np.abs(np.log(beside / direct.S_rms[:-1])).max() > 10 * row_laws.TABLE_ERROR
    assert np.isnan(row_laws.exact_law(9, [np.nan, 2 * row_laws.MAX_GAMMA])).all()
    assert row_laws.exact_law(1, 3.0) == 1
    assert row_laws.exact_law(5, 0.0) == 1


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


def test_one_percent_of_gaussian_rows_fail_the_test():
    s = np.random.default_rng(2).normal(size=(20000, 300))
    z = (s - s.mean(1, keepdims=True)) / s.std(1, ddof=1, keepdims=True)
    p, steps = special.ndtr(np.sort(z, 1)), np.arange(301) / 300
    distance = np.maximum(p - steps[:-1], steps[1:] - p).max(1)
    assert 0.007 < np.mean(distance > datasets.LILLIEFORS / np.sqrt(300)) < 0.013


def test_rank_correlation_is_scipys():
    x = RNG.normal(size=(3, 50))
    y = x + RNG.normal(size=(3, 50))
    y[1, 4] = np.nan
    got = datasets.rank_correlation(x, y)
    for i in range(3):
        keep = np.isfinite(y[i])
        assert got[i] == pytest.approx(stats.spearmanr(x[i][keep], y[i][keep]).statistic)


def test_memory_holds_a_block_of_rows():
    q, k = heads(length=4096, count=2, shared=1, dim=8, dtype=np.float32)
    measure(**dict(zip(("queries", "keys"), heads(dtype=np.float32), strict=True)))  # imports
    tracemalloc.start()
    data = measure(queries=q, keys=k)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert data.sizes["row"] == 4096
    assert peak < 4096 * 4096 * 4 / 4  # a quarter of one head's T × T


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
    assert len(cases) == 28


def evidence(**changes):
    """What a model that confirms every claim would show, with some of it changed."""
    T = np.array([64, 128, 256])
    n = 0.75 * T
    ones = np.ones(3)
    table = {
        "T": T,
        "ratio_limit_without_sinks": 3 * ones,
        "ratio_exact_without_sinks": 0.95 * ones,
        "rank_limit_without_sinks": 0.9 * ones,
        "rank_exact_without_sinks": 0.91 * ones,
        "any_rate_0.3": np.array([0.6, 0.5, 0.4]),
        "late_rate_0.3": np.array([0.5, 0.5, 0.5]),
        "sinks_rate_0.3": np.array([0.7, 0.7, 0.7]),
        "sink_rate_0.3": np.array([0.6, 0.5, 0.4]),
        "sink_rate_0.8": np.array([0.2, 0.1, 0.05]),
        "sink_mass": np.array([0.5, 0.4, 0.3]),
        "n_eff": 4 * ones,
        "n_eff_without_sinks": 9 * ones,
        "gamma_without_sinks": 0.5 * np.log(n),
    }
    fit = LawFit(0.97, 0.6, 1.1, 0.2, 0.78, 0.8)
    fields = {
        "real": (dataclasses.replace(fit, ratio=0.95, within=0.58),) * 3,
        "ideal": (fit,) * 3,
        "sinks": sinks_of(),
        "departs": 0.01,
        "identity": 1e-6,
    }
    table |= {key: value for key, value in changes.items() if key in table}
    fields |= {key: value for key, value in changes.items() if key in fields}
    assert set(changes) <= table.keys() | fields.keys()
    runs = (ModelRun(bos=bos, T=T, n=n, table=table, **fields) for bos in (False, True))
    return Evidence(tuple(runs))


def sinks_of(mass=(0.5, 0.4, 0.3), logit=(5.0, 5.3, 5.6)):
    """Sinks that need 5, 6 and 7 above the mean of the others to keep what they have."""
    return Sinks(9, np.array(mass), np.array(logit), np.array([5.0, 6.0, 7.0]))


def verdicts(found):
    return {claim.key: claim.record(found)["verdict"] for claim in claims_model.CLAIMS}


def test_verdicts_follow_the_numbers():
    good = verdicts(evidence())
    assert set(good.values()) == {"confirmed"}
    fit = LawFit(0.95, 0.58, 1.1, 0.2, 0.78, 0.8)

    def real(**changes):
        return {"real": (dataclasses.replace(fit, **changes),) * 3}

    flips = [
        ("real-rows-follow-the-exact-law", "refuted", real(off_exact=0.6)),
        (
            "real-rows-follow-the-exact-law",
            "refuted",
            {"ratio_limit_without_sinks": 0.97 * np.ones(3)},
        ),
        ("real-rows-follow-the-exact-law", "refined", real(ratio=0.8)),
        ("real-rows-follow-the-exact-law", "refined", real(within=0.5)),
        ("real-rows-follow-the-exact-law", "refined", real(rank_exact=0.6)),
        ("real-rows-follow-the-exact-law", "refined", {"departs": 0.3}),
        ("first-token-is-a-sink", "refuted", {"sink_rate_0.3": 0.1 * np.ones(3)}),
        ("first-token-is-a-sink", "refined", {"any_rate_0.3": 0.8 * np.ones(3)}),
        ("dropping-the-sink", "refuted", {"n_eff_without_sinks": 4 * np.ones(3)}),
        ("spread-against-length", "refuted", {"gamma_without_sinks": np.ones(3)}),
        (
            "spread-against-length",
            "refuted",
            {"gamma_without_sinks": np.sqrt(np.log([48, 384, 9e4]))},
        ),
    ]  # fmt: skip
    for key, verdict, changes in flips:
        assert verdicts(evidence(**changes))[key] == verdict, (key, changes)


def test_the_verdict_on_sinks_is_that_of_its_statement():
    """Mass goes with the logit above the one that would keep it, whichever way both go."""
    kept, falling = (0.5, 0.5, 0.5), (0.5, 0.3, 0.2)
    cases = [
        ("confirmed", falling, (5.0, 5.0, 5.0)),  # a fixed logit loses
        ("confirmed", kept, (5.0, 6.0, 7.0)),  # one that rises as needed keeps
        ("confirmed", (0.5, 0.6, 0.7), (5.0, 7.0, 9.0)),
        ("refuted", kept, (5.0, 5.001, 5.002)),  # a fixed one keeps
        ("refuted", (0.5, 0.6, 0.7), (5.0, 5.3, 5.6)),
        ("refuted", falling, (5.0, 7.0, 9.0)),
    ]
    for verdict, mass, logit in cases:
        found = verdicts(evidence(sinks=sinks_of(mass, logit)))
        assert found["sinks-against-context"] == verdict, (mass, logit)
    flat = dataclasses.replace(sinks_of(kept, (5.0, 5.0, 5.0)), needed=np.full(3, 5.0))
    assert verdicts(evidence(sinks=flat))["sinks-against-context"] == "refuted"
    none = Sinks(0, *np.empty((3, 0)))
    assert verdicts(evidence(sinks=none))["sinks-against-context"] == "refuted"
    assert len(cases) == 6


@functools.cache
def gaussian_heads(tail=False, length=256):
    """A layer of logits drawn one by one, of a spread that differs from row to row."""
    rng = np.random.default_rng(11)
    gamma = rng.uniform(0.5, 4, size=(8, length, 1))
    draws = rng.normal(size=(8, length, length))
    if tail:  # of the same variance, with heavy tails
        draws = rng.standard_t(3, size=draws.shape) / np.sqrt(3)
    s = gamma * draws
    s[..., 0] += 6
    return whole_run(
        measure(
            queries=np.broadcast_to(np.eye(length), s.shape),
            keys=s.swapaxes(1, 2),
            scale=1.0,
            of=SHAPE,
        )
    )


def test_gaussian_rows_confirm_the_exact_law_and_others_do_not():
    record = claims_model.judge(gaussian_heads())[0]
    assert record["verdict"] == "confirmed", record["explanation"]
    heavy = claims_model.judge(gaussian_heads(tail=True))[0]
    assert heavy["verdict"] != "confirmed"
    assert "scatter" in heavy["explanation"]
    one = claims_model.judge(gaussian_heads())[0]
    assert one == record


def test_the_needed_logit_keeps_the_mass():
    """Beside Gaussian others a fixed logit loses what the exact law says."""
    run = Evidence.of(gaussian_heads()).runs[0]
    assert run.sinks.heads == 8
    assert np.all(run.sinks.change[1:] < -0.3)
    np.testing.assert_allclose(run.sinks.change, run.sinks.short, atol=0.3)
    n, gamma = 191, 2.25
    row = Row("exp", gamma=gamma, steps=(SinkLogit(run.sinks.needed[-1]),))
    mass = exact(row, length=n, of="sink_mass").value
    assert float(mass) == pytest.approx(run.sinks.mass[0], abs=0.03)


def test_evidence_is_that_of_the_data():
    q, k = heads(length=128)
    one = measure(queries=q, keys=k, of=SHAPE)
    data = xarray.concat([one, one], "bos").expand_dims(text=["a"]).assign_coords(bos=[0, 1])
    found = Evidence.of(data)
    assert [run.bos for run in found.runs] == [False, True]
    run = found.runs[0]
    assert run.identity < 1e-5
    rows = one.sel(row=slice(65, 128))
    off = float(abs(rows.residual_exact_without_sinks).median())
    assert run.real[-1].off_exact == pytest.approx(off, rel=1e-5)
    assert run.real[-1].rank_exact == pytest.approx(
        run.table["rank_exact_without_sinks"][-1], abs=1e-6
    )
    assert 0.5 < run.ideal[-1].within < 0.9
    assert run.departs == float((one.departs > 0.5).mean())
    records = claims_model.judge(data)
    assert [record["key"] for record in records] == [claim.key for claim in claims_model.CLAIMS]


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
    off = max(off, np.abs(found["importance"][0, :, -1] - received[:, sink]).max())
    return max(off, np.abs(found["last_row"][0] - expected[:, -1]).max())


def test_blocks_of_every_size_and_what_they_must_not_do(monkeypatch):
    """Several tiles of keys, blocks of rows that lie over one another, one key head at a time."""
    from sparsity.attention.measurement import logit_blocks, row_focus

    q, k = heads()
    s, seen, sink = logits_of(q, k), np.tri(T, dtype=bool), 5
    window = seen & ~np.tri(T, k=-9, dtype=bool)
    slopes = 0.3 * RNG.normal(size=(6, T, T))
    monkeypatch.setattr(logit_blocks, "MAX_ROWS", 12)
    monkeypatch.setattr(logit_blocks, "MAX_KEYS", 16)
    monkeypatch.setattr(logit_blocks, "MAX_LOGITS", 36 * T)
    given = {"queries": q, "keys": k, "sink": sink}
    tiled = measure(**given)
    assert worst(tiled, s, seen, sink) < 1e-6
    single = given | {"queries": np.float32(q), "keys": np.float32(k)}
    assert worst(measure(**single, mask=window), s, window, sink) < 2e-5
    assert worst(measure(**given, mask=slopes), s + slopes, seen, sink) < 1e-6
    # Planted: one key too few in sight; another sink; the sink's weight counted twice.
    assert worst(tiled, s, np.tri(T, k=1, dtype=bool), sink) > 0.1
    assert worst(tiled, s, seen, 6) > 0.1
    right = row_focus.measure_logit_sums

    def twice(rest, sink, unit):
        weight = np.exp(np.minimum(sink - rest.top, 50.0))
        return right(rest._replace(z=rest.z + weight, y=rest.y + weight**2), sink)

    monkeypatch.setattr(row_focus, "measure_logit_sums", twice)
    assert worst(measure(**given), s, seen, sink) > 0.1


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
