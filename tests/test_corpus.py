"""Sinks as they are, and many texts: summaries that merge, windows, runs that are killed."""

import dataclasses
import functools
import json
import signal
import subprocess
import sys

import numpy as np
import pytest
import tiny_model
import xarray
from scipy import special, stats

from sparsity import InputError, measure, metric, models
from sparsity.attention.checkpoints.tokens import read_text
from sparsity.attention.measurement import SHAPE, sinks, summaries, tables
from sparsity.attention.measurement.attention_layers import LogitLayer
from sparsity.attention.measurement.corpus import measure_corpus
from sparsity.attention.measurement.layer_inputs import layer_of_queries, layer_of_weights
from sparsity.attention.measurement.layers import measure_layer
from sparsity.attention.measurement.runs import measure_model
from sparsity.attention.measurement.summaries import Summary
from sparsity.attention.measurement.texts import Cut, name_texts, take_windows, texts_of_windows

TEXT = "the hand and the band, 1212 times: the end. " * 6
T = 24


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    return models.load(tiny_model.write_gguf(path, tiny_model.weights()))


# Sinks.


def layer(seed=0, heads=4, length=60, dim=8):
    rng = np.random.default_rng(seed)
    q, k = rng.normal(size=(2, heads, length, dim))
    return q * 1.5, k


def by_definition(x, drop):
    """A row of logits without some of its keys."""
    a, rest = np.exp(x), x[~drop]
    found = {"length_without_sinks": len(rest), "sinks_mass": a[drop].sum() / a.sum()}
    if len(rest):
        found |= {"n_eff_without_sinks": metric.n_eff(np.exp(rest))}
        found |= {"S_without_sinks": metric.S(np.exp(rest))}
        found |= {"top_logit_without_sinks": rest.max() - rest.mean()}
    if len(rest) > 1:
        found["gamma_without_sinks"] = rest.std(ddof=1)
        found |= {
            "skew_without_sinks": stats.skew(rest),
            "kurtosis_without_sinks": stats.kurtosis(rest),
        }
        F = special.ndtr((np.sort(rest) - rest.mean()) / rest.std(ddof=1))
        steps = np.arange(len(rest) + 1) / len(rest)
        found["distance_without_sinks"] = max((F - steps[:-1]).max(), (steps[1:] - F).max())
    if len(rest) and drop.any():
        found["sinks_logit"] = np.log(a[drop].sum()) - rest.mean()
    return found


def without(source, drop, sink=0):
    of = SHAPE if isinstance(source, LogitLayer) else ()
    return sinks.measure_without_sinks(source, drop, measure_layer(source, sink, of), sink, of)


@pytest.fixture(scope="module")
def defined():
    """Queries and keys, their logits, the keys that are dropped, and every row by definition."""
    q, k = layer()
    x = q @ k.swapaxes(1, 2) / np.sqrt(8)
    drop = np.zeros((4, 60), bool)
    drop[0, [0, 1]] = drop[1, [0, 7, 30]] = drop[2, 5] = True  # none in the last head
    rows = [
        [by_definition(x[head, t, : t + 1], drop[head, : t + 1]) for t in range(60)]
        for head in range(4)
    ]
    return q, k, x, drop, rows


def differs(got, rows):
    """The largest relative difference of any statistic of any row from its definition."""
    worst, count = 0.0, 0
    for head, own in enumerate(rows):
        for t, expected in enumerate(own):
            for name, value in expected.items():
                if name in got:
                    gap = abs(float(got[name][head, t]) - value)
                    unit = (
                        100 if name == "distance_without_sinks" else max(1, abs(value))
                    )  # Φ of a table
                    worst, count = max(worst, gap / unit), count + 1
            missing = got.keys() - {"length_without_sinks", "sinks_mass"}
            if not all(np.isnan(got[name][head, t]) for name in missing - expected.keys()):
                worst = np.inf
    return worst, count


@pytest.mark.parametrize("sink", [0, 5, 9])  # of heads with that sink alone the rows are known
def test_rows_without_their_sinks_are_those_of_the_definition(defined, sink):
    q, k, x, drop, rows = defined
    source = layer_of_queries(q, k)
    worst, count = differs(without(source, drop, sink), rows)
    assert worst < 1e-6
    assert count > 4 * 60 * 4
    alone = drop & (np.arange(60) == 0)
    assert differs(without(source, alone, sink), rows)[0] > 0.1  # key 0 alone is not enough
    a = np.where(np.tri(60, dtype=bool), np.exp(x), 0)
    weights = without(layer_of_weights(a / a.sum(-1, keepdims=True)), drop, sink)
    worst, count = differs(weights, rows)
    assert worst < 1e-6
    assert count > 4 * 60 * 3


LEARNED = np.array([-2.0, 0.0, 3.0, 5.0])  # logits of learned sinks, one a head
AGO = np.arange(60)[:, None] - np.arange(60)
TEXTS = np.repeat([0, 1, 2, 0], [6, 30, 19, 5])  # padding, two texts, padding
SIGHTS = {
    "all keys before": ({}, AGO >= 0),
    "window": ({"mask": AGO < 20}, (AGO >= 0) & (AGO < 20)),
    "padding": ({"segments": TEXTS}, (AGO >= 0) & (TEXTS[:, None] == TEXTS) & (TEXTS > 0)),
}


def misses_of_sinks_mass(defined, sight, alone):
    """The largest relative error of `sinks_mass` with a learned sink, and how many rows it is of.

    It is (Σ_sinks e^s + e^b)/(Σ e^s + e^b) over the keys in sight.
    """
    q, k, x, drop, _ = defined
    options, seen = SIGHTS[sight]
    drop = drop & (np.arange(60) == 0) if alone else drop  # key 0 is a sink, and the only one
    a, own = np.where(seen, np.exp(x), 0.0), np.exp(LEARNED)[:, None]
    true = ((a * drop[:, None]).sum(-1) + own) / (a.sum(-1) + own)
    source = layer_of_queries(q, k, sink_logits=LEARNED, **options)
    found, some = without(source, drop, None)["sinks_mass"], seen.any(-1)
    assert np.isnan(found[:, ~some]).all()
    return np.abs(found / true - 1)[:, some].max(), found[:, some].size


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("alone", [False, True])
def test_the_mass_of_sinks_with_a_learned_one_is_that_of_the_definition(defined, sight, alone):
    worst, count = misses_of_sinks_mass(defined, sight, alone)
    assert worst < 1e-6
    assert count == 4 * (49 if sight == "padding" else 60)


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("place", ["rows measured again", "rows known"])
def test_one_percent_of_a_learned_sink_is_seen_in_the_mass_of_sinks(
    defined, sight, place, monkeypatch
):
    """Planted where heads with several sinks are measured again, and where no head has any."""
    again, reuse = sinks._measure_block, sinks._reuse_rows

    def more(layer, *rest):
        return again(dataclasses.replace(layer, learned_sinks=LEARNED[:3] + np.log(1.01)), *rest)

    def heavier(rows, *rest):
        return reuse(rows | {"learned_sink": 1.01 * rows["learned_sink"]}, *rest)

    plant = ("_measure_block", more) if place == "rows measured again" else ("_reuse_rows", heavier)
    monkeypatch.setattr(sinks, *plant)
    assert misses_of_sinks_mass(defined, sight, alone=False)[0] > 5e-3


def test_a_sink_above_the_range_of_numbers_leaves_the_rest_exact():
    q, k = layer(length=30)
    k[:, 0] = 0
    q, k = (np.concatenate([x, np.zeros((4, 30, 1))], -1) for x in (q, k))
    q[..., -1], k[:, 0, -1] = 1, 5000
    drop = np.zeros((4, 30), bool)
    drop[:, 0] = True
    found = without(layer_of_queries(q, k), drop)
    assert np.all(found["sinks_mass"] == 1)
    expected = metric.n_eff(np.exp(q[0, 29] @ k[0, 1:].T / 3))
    assert found["n_eff_without_sinks"][0, 29] == pytest.approx(expected, rel=1e-5)


def two_sinks(length=128):
    """Logits of heads in which keys 0 and 1 have a quarter each; in the last none has any."""
    rng = np.random.default_rng(3)
    s = rng.normal(size=(6, length, length))
    seen = np.tri(length, dtype=bool)
    others = np.where(seen, np.exp(s), 0)[..., 2:].sum(-1)
    s[:5, :, :2] = np.log(np.maximum(others[:5], 1e-9) / 2)[..., None]
    return np.broadcast_to(np.eye(length), s.shape), s.swapaxes(1, 2)


def test_a_shared_sink_is_one_sink():
    q, k = two_sinks()
    data = measure(queries=q, keys=k, scale=1.0)
    row = tables.summarise_context(data, 128)
    assert row["sink_rate_0.3"] == row["any_rate_0.3"] == row["late_rate_0.3"] == 0
    assert row["sinks_rate_0.3"] == pytest.approx(5 / 6)
    listed = sinks.list_sinks(data["key_importance"].values, [f"t{i}" for i in range(128)])
    assert [(x["position"], x["token"], x["heads"]) for x in listed] == [(1, "t0", 5), (2, "t1", 5)]
    late = data.isel(row=slice(64, None), head=slice(5))
    assert float(np.exp(late.residual_exact_without_sinks.median())) == pytest.approx(1, abs=0.05)
    assert (
        float(np.exp(late.residual_exact_without_sink_key.median())) < 0.6
    )  # one of the two is still there
    np.testing.assert_allclose(late.sinks_mass, 0.5, rtol=1e-5)
    np.testing.assert_allclose(late.length_without_sinks, late.length - 2)
    last = data.isel(head=5)
    np.testing.assert_allclose(last.n_eff_without_sinks, last.n_eff, rtol=1e-5)
    assert np.isnan(last.sinks_logit).all()


def test_uniform_attention_has_no_sinks():
    found = measure(np.tri(45) / np.arange(1, 46)[:, None] * np.ones((2, 1, 1)))
    assert not sinks.find_sinks(found["key_importance"].values).any()
    assert sinks.find_sinks(found["key_importance"].values, 0.09).any()


# Summaries.


def measured_rows(seed=0, length=20, known=1.0):
    """Variables of a measurement, some of them not known."""
    rng = np.random.default_rng(seed)
    shape = (2, 3, length)
    rows = {"length": np.broadcast_to(np.arange(1, length + 1), shape)}
    rows["length_without_sinks"] = np.maximum(rows["length"] - 2, 0)
    for name in (
        "S", "n_eff", "entropy", "sink_mass", "sinks_mass", "n_eff_without_sinks", "gamma",
        "gamma_without_sinks", "residual_exact", "residual_exact_without_sinks",
    ):  # fmt: skip
        value = rng.uniform(0.1, 3, shape)
        rows[name] = np.where(rng.random(shape) < known, value, np.nan)
    return rows


def split(rows, parts=3):
    """The rows in parts: each is known in one of them."""
    own = np.random.default_rng(9).integers(parts, size=rows["S"].shape)
    keep = ("length", "length_without_sinks")
    return [
        {k: v if k in keep else np.where(own == i, v, np.nan) for k, v in rows.items()}
        for i in range(parts)
    ]


def is_a_merge(merge):
    """Whether it gives the summary of all rows, in any order and grouping."""
    rows = measured_rows(known=0.9)
    whole = Summary.of(rows)
    a, b, c = (Summary.of(part) for part in split(rows))
    found = [merge(merge(a, b), c), merge(a, merge(b, c)), merge(c, merge(a, b))]

    def same(x, y, **loose):
        pairs = zip(dataclasses.astuple(x), dataclasses.astuple(y), strict=True)
        return all(np.allclose(one, other, **loose) for one, other in pairs)

    exactly = {"rtol": 0, "atol": 0}
    return all(same(x, whole, rtol=1e-12, atol=1e-12) for x in found) and same(
        merge(a, b), merge(b, a), **exactly
    )


def planted(**changes):
    def merge(a, b):
        right = summaries.merge(a, b)
        return dataclasses.replace(right, **{k: of(a, b) for k, of in changes.items()})

    return merge


WRONG = {
    "squares about two means": planted(m2=lambda a, b: a.m2 + b.m2),
    "mean of means": planted(mean=lambda a, b: (a.mean + b.mean) / 2),
    "mean of the first": planted(mean=lambda a, b: a.mean),
    "largest count": planted(count=lambda a, b: np.maximum(a.count, b.count)),
    "largest cell": planted(histogram=lambda a, b: np.maximum(a.histogram, b.histogram)),
}


def test_merging_is_associative_and_commutative():
    assert is_a_merge(summaries.merge)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_merges_are_seen(name):
    assert not is_a_merge(WRONG[name])


def test_a_summary_is_that_of_its_rows():
    rows = measured_rows(known=0.8)
    found = Summary.of(rows)
    k = np.ceil(np.log2(rows["length"]))
    for layer_, head, at in ((0, 0, 4), (1, 2, 3), (0, 1, 0), (1, 0, 5)):
        x = rows["gamma"][layer_, head][k[layer_, head] == at]
        x = x[np.isfinite(x)]
        index = summaries.NAMES.index("gamma"), layer_, head, at
        assert found.count[index] == len(x)
        if len(x):
            assert found.mean[index] == pytest.approx(x.mean(), rel=1e-12)
            assert found.m2[index] == pytest.approx(((x - x.mean()) ** 2).sum(), abs=1e-12)
        expected = np.histogram(x, summaries.CELLS, (0, 12.8))[0]
        assert np.array_equal(found.histogram[index], expected)
    x = rows["gamma"][np.isfinite(rows["gamma"])]
    assert found.average("gamma") == pytest.approx(x.mean(), rel=1e-12)
    for share in (0.1, 0.5, 0.9):
        assert found.quantile("gamma", share) == pytest.approx(np.quantile(x, share), abs=0.2)
    again = summaries.read(summaries.dataset(found))
    for one, other in zip(dataclasses.astuple(again), dataclasses.astuple(found), strict=True):
        assert np.array_equal(one, other)
    with pytest.raises(InputError, match="same layers"):
        summaries.merge(found, Summary.of(measured_rows(length=40)))
    with pytest.raises(InputError, match="no summary"):
        summaries.read(xarray.Dataset())


@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_rows_that_are_all_alike_have_their_own_median(n):
    """Not the middle of a cell: 1.11 for rows of one key."""
    ones = np.ones((1, 2, 50))
    rows = dict.fromkeys(("S", "entropy", "sink_mass", "sinks_mass", "gamma"), ones)
    rows |= dict.fromkeys(
        ("gamma_without_sinks", "residual_exact", "residual_exact_without_sinks"), ones
    )
    rows |= {"length": n * ones, "length_without_sinks": n * ones}
    found = Summary.of(rows | {"n_eff": n * ones, "n_eff_without_sinks": n * ones})
    for name in ("log_n_eff", "log_n_eff_without_sinks"):
        assert np.exp(found.quantile(name, 0.5)) == pytest.approx(n, rel=1e-12)
    assert found.quantile("gamma", 0.9) == pytest.approx(1, rel=1e-12)


def test_a_byte_order_mark_is_no_text(tmp_path):
    path = tmp_path / "marked.txt"
    path.write_bytes(b"\xef\xbb\xbfwords")
    assert read_text(path) == "words"
    path.write_bytes(b"\xef\xbb\xbf")
    with pytest.raises(InputError, match="has no words"):
        read_text(path)


def test_the_spread_over_texts_is_that_of_their_mean():
    rng = np.random.default_rng(0)
    figures = [{"S": x, "loss": np.nan} for x in rng.normal(2, 0.5, 40)]
    found = tables.bootstrap_over_texts(figures, ("S", "loss"))
    values = np.array([x["S"] for x in figures])
    assert found["S"]["value"] == pytest.approx(values.mean())
    assert found["S"]["stderr"] == pytest.approx(values.std() / np.sqrt(40), rel=0.05)
    low, high = found["S"]["ci95"]
    assert (high - low) / found["S"]["stderr"] == pytest.approx(3.92, rel=0.06)
    assert found["S"]["count"] == 40
    assert found["loss"]["count"] == 0
    assert np.isnan(tables.bootstrap_over_texts(figures[:1], ("S",))["S"]["stderr"])


def test_windows_of_a_text_are_not_drawn_apart():
    """Windows that say the same are one text, not many: the interval does not shrink."""
    rng = np.random.default_rng(1)
    figures = [{"S": x} for x in rng.normal(2, 0.5, 40)]
    alone = tables.bootstrap_over_texts(figures, ("S",))["S"]
    windows_of = [x for x in figures for _ in range(9)]
    names = [f"a@b{i}@{512 * j}" for i in range(40) for j in range(9)]
    kept = tables.bootstrap_over_texts(windows_of, ("S",), texts_of_windows(names, 512))["S"]
    assert kept["count"] == 40
    assert kept["value"] == pytest.approx(alone["value"])
    assert kept["stderr"] == pytest.approx(alone["stderr"], rel=0.1)
    apart = tables.bootstrap_over_texts(windows_of, ("S",), texts_of_windows(names, None))["S"]
    assert apart["stderr"] < 0.4 * kept["stderr"]  # as if they were 360 texts
    uneven = tables.bootstrap_over_texts(
        [{"S": x} for x in (1.0, 1.0, 1.0, 2.0)], ("S",), list("aaab")
    )
    assert uneven["S"]["value"] == 1.25  # a window counts as a window


# Texts.


def test_windows_are_tokens_of_the_text(tiny):
    ids = np.array(tiny.encode(TEXT))
    found, _ = take_windows(tiny, {"a": TEXT}, Cut(T, offset=3, stride=10, bos=(False, True)))
    assert [x.name for x in found[:3]] == ["a@3", "a@13", "a@23"]
    assert len(found) == 1 + (len(ids) - 3 - T) // 10
    for i, window in enumerate(found):
        start = 3 + 10 * i
        plain, with_bos = window.ids
        assert np.array_equal(plain, ids[start : start + T])
        assert np.array_equal(with_bos, [0, *ids[start : start + T - 1]])
    (one,), _ = take_windows(tiny, {"a": ids}, Cut(T, offset=5))
    assert (one.name, one.ids[0].tolist()) == ("a", ids[5 : 5 + T].tolist())
    last, _ = take_windows(tiny, {"a": ids}, Cut(T, offset=len(ids) - T))
    assert len(last) == 1


def test_texts_come_as_folders_lists_files_and_ids(tiny, tmp_path):
    (tmp_path / "b.txt").write_text(TEXT)
    np.save(tmp_path / "a.npy", np.arange(T))
    (tmp_path / ".hidden").write_text(TEXT)
    (tmp_path / "inner").mkdir()
    assert list(name_texts(tmp_path)) == list(name_texts(str(tmp_path))) == ["a", "b"]
    assert list(name_texts([tmp_path, TEXT, [1, 2]])) == ["a", "b", "0", "1"]
    (tmp_path / "0.txt").write_text(TEXT)
    both = name_texts([tmp_path / "0.txt", TEXT])  # a file of a name that a text in the list has
    assert list(both.values()) == [tmp_path / "0.txt", TEXT]
    (tmp_path / "0.txt").unlink()
    for wrong in (None, 5, TEXT * 99):
        with pytest.raises(InputError, match=r"in a list|list of texts"):
            name_texts(wrong)
    with pytest.raises(InputError, match="whole numbers"):
        take_windows(tiny, name_texts([[[1], [2, 3]]]), Cut(T))
    with pytest.raises(InputError, match="bos"):
        take_windows(tiny, name_texts([TEXT]), Cut(T, bos=()))
    found, passed = take_windows(tiny, name_texts(tmp_path), Cut(T))
    assert [x.name for x in found] == ["a", "b"]
    assert np.array_equal(found[0].ids[0], np.arange(T))
    assert not passed
    for texts, says in (
        ([], "at least one text"), ({}, "at least one text"), (tmp_path / "inner", "no file"),
        ([tmp_path, tmp_path / "b.txt"], "given twice"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=says):
            name_texts(texts)


def test_texts_that_cannot_be_used_are_named_and_passed_over(tiny, tmp_path):
    (tmp_path / "torn.npy").write_bytes(b"torn")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    bad = {
        "empty": (" \n", "empty: has no words"),
        "short": ("the end", "short: has only"),
        "far": (np.full(T, 300), "far: has token ids that are not from 0 to 299"),
        "real": (np.ones(T), "real: is not a text"),
        "several": (np.ones((2, T), int), "several: is not a text"),
        "torn": (tmp_path / "torn.npy", "torn.npy: holds no array"),
        "bytes": (tmp_path / "bytes.txt", "bytes.txt: is not text in UTF-8"),
        "nowhere": (tmp_path / "nowhere.txt", "nowhere.txt: cannot be read"),
    }
    texts = {name: text for name, (text, _) in bad.items()}
    found, passed = take_windows(tiny, {**texts, "good": TEXT}, Cut(T))
    assert [x.name for x in found] == ["good"]
    assert len(passed) == len(bad) == 8
    for line, (_, says) in zip(passed, bad.values(), strict=True):
        assert says in line
        assert "\n" not in line
    for name, (text, says) in bad.items():
        with pytest.raises(InputError) as caught:
            take_windows(tiny, {name: text}, Cut(T))
        assert says in str(caught.value)
    for cut, says in (
        ({"offset": -1}, "offset"), ({"stride": 0}, "stride"), ({"tokens": 1}, "tokens"),
        ({"tokens": 129}, "trained on 128"), ({"offset": 10**6}, "after the first 1000000"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=says):
            take_windows(tiny, {"a": TEXT}, Cut(**{"tokens": T} | cut))
    data = measure_model(tiny, [TEXT, ""], tokens=T)
    assert data.text.values.tolist() == ["0"]
    assert data.attrs["passed_over"] == ["text = 1: has no words; give another text"]
    assert data.token.values[0, 0, 0] == "the"


# Many texts.


def test_a_corpus_is_its_rows_summed_up(tiny):
    texts = {"a": TEXT, "b": TEXT[9:]}
    found = measure_corpus(tiny, texts, tokens=T, bos=True)
    rows = measure_model(tiny, texts, tokens=T, bos=(True,)).isel(bos=0)
    own = [Summary.of({k: v.values for k, v in rows.sel(text=t).items()}) for t in texts]
    expected = functools.reduce(summaries.merge, own)
    for one, other in zip(
        dataclasses.astuple(found.sums), dataclasses.astuple(expected), strict=True
    ):
        assert np.array_equal(one, other)
    assert found.figures[1]["n_eff"] == tables.by_text(rows.expand_dims("bos"))[1]["n_eff"]
    assert found.figures[0]["loss"] == pytest.approx(float(rows.loss[0]), rel=1e-6)
    assert found.about["bos"] == 1
    for position, token in ((x["position"], x["token"]) for x in found.sinks[0]):
        assert rows.token.values[0, position - 1] == token


KILLED = """
import os, signal, sys
sys.modules["dask"] = None  # as where it is not installed: xarray would load it for nothing
import numpy as np
from sparsity import cli
kept, real = [], np.savez_compressed
def save(file, **values):
    if len(kept) == 2:  # the third text, half of it written
        file.write(b"PK")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    kept.append(1)
    real(file, **values)
np.savez_compressed = save
cli.main()
"""


def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path, command):
    model = tiny_model.write_gguf(tmp_path / "tiny.gguf", tiny_model.weights())
    home = tmp_path / "texts"
    home.mkdir()
    for i in range(6):
        (home / f"{i}.txt").write_text(TEXT[5 * i :])
    (home / "short.txt").write_text("the end")
    options = ["measure", model, home, "--tokens", T, "--json"]
    code, shown, err = command(*options, "--out", tmp_path / "whole.nc")
    assert code == 0, err
    answer = json.loads(shown)
    assert [x["text"] for x in answer["texts"]] == list("012345")
    assert len(answer["passed_over"]) == 1
    assert "short: has only" in answer["passed_over"][0]
    out, parts = tmp_path / "out.nc", tmp_path / ".out.nc.parts"
    words = [str(x) for x in (*options, "--out", out)]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *words], capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not out.exists()
    assert len(list(parts.glob("[0-9a-f]*.npz"))) == 2
    for changes, says in (
        (["--tokens", 20], "tokens = 20: an unfinished run with tokens = 24 is kept"),
        (["--bos"], "bos = 1: an unfinished run with bos = 0"),
        (["--offset", 3], "offset = 3"),
    ):
        code, shown, err = command(*options, "--out", out, *changes)
        assert (code, shown, len(err.splitlines())) == (2, "", 1)
        assert says in err
    before = {path: path.stat().st_mtime_ns for path in parts.glob("[0-9a-f]*.npz")}
    assert len(before) == 2
    code, shown, err = command(*options, "--out", out)
    assert code == 0, err
    assert json.loads(shown) == answer | {"files": [str(out)]}
    assert out.read_bytes() == (tmp_path / "whole.nc").read_bytes()
    assert not parts.exists()
    with xarray.open_dataset(out) as data:
        assert summaries.read(data).count.sum() > 0
        assert data.sizes["text"] == 6
    code, shown, err = command("measure", model, home, "--tokens", T, "--out", out)
    assert code == 0, err
    assert "Passed over: text = short" in shown


def test_finished_texts_are_not_measured_again(tiny, tmp_path, monkeypatch):
    from sparsity.attention.measurement import corpus

    texts = {"a": TEXT, "b": TEXT[9:]}
    first = measure_corpus(tiny, texts, tokens=T, parts=tmp_path)
    measured, real = [], corpus.measure_with_laws
    monkeypatch.setattr(corpus, "measure_with_laws", lambda *a: measured.append(1) or real(*a))
    again = measure_corpus(tiny, texts, tokens=T, parts=tmp_path)
    assert not measured
    assert again.dataset().identical(first.dataset())
    next(tmp_path.glob("[0-9a-f]*.npz")).write_bytes(b"damaged")
    again = measure_corpus(tiny, {**texts, "c": TEXT[20:]}, tokens=T, parts=tmp_path)
    assert len(measured) == 2 * 2  # layers of the damaged one, and of the new one
    assert again.figures[:2] == first.figures


def test_the_command_asks_for_a_model(command):
    code, _, err = command("measure", "--out", "x.nc")
    assert (code, "model is missing" in err) == (2, True)
